/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 * A scheduler for tests: tasks wait for the CPU on which they were, and when a task of a higher class takes it they go to the CPU that its
 * `syscall` program was told. */
#include "sim.h"

#define ENQ_REENQ (1ULL << 40)

__u32 scx_bpf_reenqueue_local(void) __ksym;

struct sched_ext_ops___release {
    __s32 (*select_cpu)(struct task_struct *, __s32, __u64);
    void (*enqueue)(struct task_struct *, __u64);
    void (*cpu_acquire)(__s32, void *);
    void (*cpu_release)(__s32, void *);
    __u32 timeout_ms;
    char name[128];
};

struct target {
    __s32 unused;
    __s32 cpu;
};

__u32 elsewhere = 0;
__u32 released = 0;

SEC("syscall")
int set_target(struct target *target) {
    elsewhere = target->cpu;
    return target->cpu < 0 || target->cpu > 63;
}

struct room {
    __u64 at;
};

__u64 mask = 0;

/* Gives room for a mask, as scx's arena library does. */
SEC("syscall")
int give_room(struct room *room) {
    room->at = (__u64)&mask;
    return 0;
}

/* The first CPU of the mask, once that is filled. */
SEC("syscall")
int target_of_mask(struct room *room) {
    __u32 cpu = 0;
    while (cpu < 63 && !(mask >> cpu & 1))
        cpu++;
    elsewhere = cpu;
    return room->at != (__u64)&mask;
}

SEC("struct_ops/release_select_cpu")
__s32 release_select_cpu(unsigned long long *ctx) {
    return ARG(1);
}

SEC("struct_ops/release_enqueue")
int release_enqueue(unsigned long long *ctx) {
    __u64 to = ARG(1) & ENQ_REENQ ? DSQ_LOCAL_ON | elsewhere : DSQ_LOCAL;
    scx_bpf_dsq_insert(TASK(0), to, 4000000, ARG(1));
    return 0;
}

SEC("struct_ops/release_cpu_release")
int release_cpu_release(unsigned long long *ctx) {
    static char format[] = "a CPU was released twice";
    if (released++)
        scx_bpf_error_bstr(format, 0, 0);
    scx_bpf_reenqueue_local();
    return 0;
}

SEC("struct_ops/release_cpu_acquire")
int release_cpu_acquire(unsigned long long *ctx) {
    released--;
    return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops___release release = {
    .select_cpu = (void *)release_select_cpu,
    .enqueue = (void *)release_enqueue,
    .cpu_acquire = (void *)release_cpu_acquire,
    .cpu_release = (void *)release_cpu_release,
    .timeout_ms = 2000,
    .name = "release",
};
