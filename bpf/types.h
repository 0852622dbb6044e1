/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 * Numbers of fixed size, under the names that bpf_helpers.h and the kernel have for them. */
#ifndef SCHEDLAB_TYPES_H
#define SCHEDLAB_TYPES_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

/* For a structure whose offsets the loader puts in place (CO-RE). */
#define LAYOUT __attribute__((preserve_access_index))

#endif
