/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 * The few kernel types that ext.bpf.c looks into, written by hand. Offsets here mean nothing: the loader puts those of the
 * running kernel in their place (CO-RE), by the names of structures and fields. */
#ifndef SCHEDLAB_EXT_KERNEL_H
#define SCHEDLAB_EXT_KERNEL_H

#include "types.h"
enum { false, true };

enum { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_RINGBUF = 27, BPF_MAP_TYPE_TASK_STORAGE = 29 };
enum { BPF_F_NO_PREALLOC = 1, BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };

struct cpumask {
    unsigned long bits[1];
} LAYOUT;

struct sched_ext_entity {
    __u32 weight;
    __u64 slice;
} LAYOUT;

struct task_struct {
    int pid;
    int tgid;
    __u32 flags;
    unsigned int policy;
    struct sched_ext_entity scx;
    const struct cpumask *cpus_ptr;
} LAYOUT;

/* `int` in place of an enumeration breaks the relocation of a structure that holds it. */
enum scx_exit_kind { SCX_EXIT_NONE };

struct scx_exit_info {
    enum scx_exit_kind kind;
    __s64 exit_code;
    const char *reason;
    char *msg;
} LAYOUT;

struct scx_init_task_args {
    bool fork;
} LAYOUT;

struct scx_exit_task_args {
    bool cancelled;
} LAYOUT;

/* The processor's preemption count: `pcpu_hot` until Linux 6.14, `__preempt_count` since 6.15; x86-64 only. */
struct pcpu_hot___schedlab {
    int preempt_count;
} LAYOUT;

/* Opaque to programs; the sizes are part of the kernel's interface (include/uapi/linux/bpf.h, kernel/sched/ext.c). */
struct bpf_iter_scx_dsq {
    __u64 opaque[6];
} __attribute__((aligned(8)));

struct bpf_timer {
    __u64 opaque[2];
} __attribute__((aligned(8)));

/* Only the members that ext.bpf.c sets: libbpf matches them by name with those of the running kernel. */
struct sched_ext_ops {
    __s32 (*select_cpu)(struct task_struct *, __s32, __u64);
    void (*enqueue)(struct task_struct *, __u64);
    void (*dispatch)(__s32, struct task_struct *);
    void (*tick)(struct task_struct *);
    void (*running)(struct task_struct *);
    void (*stopping)(struct task_struct *, bool);
    void (*quiescent)(struct task_struct *, __u64);
    bool (*yield)(struct task_struct *, struct task_struct *);
    void (*set_weight)(struct task_struct *, __u32);
    void (*set_cpumask)(struct task_struct *, const struct cpumask *);
    __s32 (*init_task)(struct task_struct *, struct scx_init_task_args *);
    void (*exit_task)(struct task_struct *, struct scx_exit_task_args *);
    void (*disable)(struct task_struct *);
    void (*cpu_online)(__s32);
    void (*cpu_offline)(__s32);
    __s32 (*init)(void);
    void (*exit)(struct scx_exit_info *);
    __u64 flags;
    __u32 timeout_ms;
    char name[128];
};

#endif
