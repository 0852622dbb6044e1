/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 * A scheduler for tests that prints its callbacks (bpf_trace_printk) for tasks whose names begin with `c_`: under a kernel into its trace, in
 * the simulator to the test. First come, first served; it needs Linux 6.12. */
#include "sim.h"

/* As 6.13 and later call it: 6.12 has the other name. */
void scx_bpf_dsq_insert___new(struct task_struct *p, __u64 dsq, __u64 slice, __u64 flags) WEAK;

struct task_struct___log {
    int pid;
    char comm[16];
} LAYOUT;

static void note(struct task_struct *p, const char *what, __u64 value) {
    struct task_struct___log *log = (void *)p;
    static const char format[] = "scx c_ %s %d %llx";
    if (log->comm[0] == 'c' && log->comm[1] == '_')
        bpf_trace_printk(format, sizeof(format), what, log->pid, value);
}

#define NOTE(p, what, value)                                                                                                               \
    ({                                                                                                                                     \
        static const char own[] = what;                                                                                                    \
        note(p, own, value);                                                                                                               \
    })

SEC("struct_ops/log_select_cpu")
__s32 log_select_cpu(unsigned long long *ctx) {
    NOTE(TASK(0), "select_cpu", ARG(2));
    return ARG(1);
}

SEC("struct_ops/log_enqueue")
int log_enqueue(unsigned long long *ctx) {
    NOTE(TASK(0), "enqueue", ARG(1));
    if (scx_bpf_dsq_insert___new)
        scx_bpf_dsq_insert___new(TASK(0), DSQ_GLOBAL, 20000000, ARG(1));
    else
        scx_bpf_dispatch___old(TASK(0), DSQ_GLOBAL, 20000000, ARG(1));
    return 0;
}

SEC("struct_ops/log_dequeue")
int log_dequeue(unsigned long long *ctx) {
    NOTE(TASK(0), "dequeue", ARG(1));
    return 0;
}

SEC("struct_ops/log_runnable")
int log_runnable(unsigned long long *ctx) {
    NOTE(TASK(0), "runnable", ARG(1));
    return 0;
}

SEC("struct_ops/log_running")
int log_running(unsigned long long *ctx) {
    NOTE(TASK(0), "running", 0);
    return 0;
}

SEC("struct_ops/log_stopping")
int log_stopping(unsigned long long *ctx) {
    NOTE(TASK(0), "stopping", ARG(1) & 1);
    return 0;
}

SEC("struct_ops/log_quiescent")
int log_quiescent(unsigned long long *ctx) {
    NOTE(TASK(0), "quiescent", ARG(1));
    return 0;
}

SEC("struct_ops/log_set_weight")
int log_set_weight(unsigned long long *ctx) {
    NOTE(TASK(0), "set_weight", ARG(1) & 0xffffffff);
    return 0;
}

SEC("struct_ops/log_set_cpumask")
int log_set_cpumask(unsigned long long *ctx) {
    NOTE(TASK(0), "set_cpumask", 0);
    return 0;
}

SEC("struct_ops/log_enable")
int log_enable(unsigned long long *ctx) {
    NOTE(TASK(0), "enable", 0);
    return 0;
}

SEC("struct_ops/log_disable")
int log_disable(unsigned long long *ctx) {
    NOTE(TASK(0), "disable", 0);
    return 0;
}

SEC("struct_ops/log_init_task")
__s32 log_init_task(unsigned long long *ctx) {
    struct scx_init_task_args *args = (void *)ARG(1);
    NOTE(TASK(0), "init_task", args->fork);
    return 0;
}

SEC("struct_ops/log_exit_task")
int log_exit_task(unsigned long long *ctx) {
    NOTE(TASK(0), "exit_task", 0);
    return 0;
}

/* The members of struct sched_ext_ops that it has; libbpf looks for them by name. */
struct sched_ext_ops___log {
    __s32 (*select_cpu)(struct task_struct *, __s32, __u64);
    void (*enqueue)(struct task_struct *, __u64);
    void (*dequeue)(struct task_struct *, __u64);
    void (*runnable)(struct task_struct *, __u64);
    void (*running)(struct task_struct *);
    void (*stopping)(struct task_struct *, bool);
    void (*quiescent)(struct task_struct *, __u64);
    void (*set_weight)(struct task_struct *, __u32);
    void (*set_cpumask)(struct task_struct *, const void *);
    __s32 (*init_task)(struct task_struct *, struct scx_init_task_args *);
    void (*exit_task)(struct task_struct *, void *);
    void (*enable)(struct task_struct *);
    void (*disable)(struct task_struct *);
    char name[128];
};

SEC(".struct_ops.link")
struct sched_ext_ops___log logs = {
    .select_cpu = (void *)log_select_cpu,
    .enqueue = (void *)log_enqueue,
    .dequeue = (void *)log_dequeue,
    .runnable = (void *)log_runnable,
    .running = (void *)log_running,
    .stopping = (void *)log_stopping,
    .quiescent = (void *)log_quiescent,
    .set_weight = (void *)log_set_weight,
    .set_cpumask = (void *)log_set_cpumask,
    .init_task = (void *)log_init_task,
    .exit_task = (void *)log_exit_task,
    .enable = (void *)log_enable,
    .disable = (void *)log_disable,
    .name = "log",
};
