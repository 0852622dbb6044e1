/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 * What the schedulers of this folder know of the kernel: types by name, relocated by the loader, and its functions. They are small on purpose:
 * each is there for what it asks of the simulator (tests of crates/sim and crates/bpf). */
#ifndef SCHEDLAB_SIM_H
#define SCHEDLAB_SIM_H

#include "../types.h"
enum { false, true };
enum { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_PERCPU_ARRAY = 6, BPF_MAP_TYPE_TASK_STORAGE = 29 };
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct sched_ext_entity {
    __u32 weight;
    __u64 slice;
    __u64 dsq_vtime;
} LAYOUT;

struct task_struct {
    int pid;
    int nr_cpus_allowed;
    struct sched_ext_entity scx;
} LAYOUT;

struct scx_init_task_args {
    bool fork;
} LAYOUT;

struct bpf_timer {
    __u64 opaque[2];
} __attribute__((aligned(8)));

struct sched_ext_ops {
    __s32 (*select_cpu)(struct task_struct *, __s32, __u64);
    void (*enqueue)(struct task_struct *, __u64);
    void (*dequeue)(struct task_struct *, __u64);
    void (*dispatch)(__s32, struct task_struct *);
    void (*runnable)(struct task_struct *, __u64);
    void (*running)(struct task_struct *);
    void (*stopping)(struct task_struct *, bool);
    void (*quiescent)(struct task_struct *, __u64);
    void (*set_weight)(struct task_struct *, __u32);
    void (*enable)(struct task_struct *);
    __s32 (*init_task)(struct task_struct *, struct scx_init_task_args *);
    void (*update_idle)(__s32, bool);
    __s32 (*init)(void);
    __u64 flags;
    __u32 timeout_ms;
    char name[128];
};

#define WEAK __ksym __weak
void scx_bpf_dsq_insert(struct task_struct *p, __u64 dsq, __u64 slice, __u64 flags) __ksym;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, __u64 dsq, __u64 slice, __u64 vtime, __u64 flags) __ksym;
bool scx_bpf_dsq_move_to_local(__u64 dsq) __ksym;
__s32 scx_bpf_create_dsq(__u64 dsq, __s32 node) __ksym;
__s32 scx_bpf_dsq_nr_queued(__u64 dsq) __ksym;
__s32 scx_bpf_select_cpu_dfl(struct task_struct *p, __s32 prev, __u64 flags, bool *idle) __ksym;
void scx_bpf_kick_cpu(__s32 cpu, __u64 flags) __ksym;
__u32 scx_bpf_nr_cpu_ids(void) __ksym;
void scx_bpf_error_bstr(char *format, unsigned long long *data, __u32 bytes) __ksym;
/* Linux 6.12, absent from the kernel of these tests. */
void scx_bpf_dispatch___old(struct task_struct *p, __u64 dsq, __u64 slice, __u64 flags) WEAK;

/* Constants of include/linux/sched/ext.h (Linux 6.12 to 7.2). */
#define DSQ_GLOBAL 0x8000000000000001ULL
#define DSQ_LOCAL 0x8000000000000002ULL
#define DSQ_LOCAL_ON 0xC000000000000000ULL
#define KICK_PREEMPT 2

/* The arguments of a callback lie in an array of words. */
#define ARG(n) ctx[n]
#define TASK(n) ((struct task_struct *)ctx[n])
#endif
