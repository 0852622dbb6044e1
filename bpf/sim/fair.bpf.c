/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 * A scheduler for tests: one queue for all CPUs, first in first out, or ordered by virtual time that runs at the inverse of a task's weight. */
#include "sim.h"

#define SHARED 0

const volatile bool fifo = false;
const volatile __u64 slice_ns = 20000000;
const volatile __s32 offset[4] = { 1, -2, 3, -4 };
/* Filled by the loader from the kernel's enumerators. */
const volatile __u64 __SCX_SLICE_DFL = 0;
__u64 clock_of_all = 0;

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u64);
} counts SEC(".maps");

static void count(__u32 which) {
    __u64 *value = bpf_map_lookup_elem(&counts, &which);
    if (value)
        *value += 1;
}

static bool before(__u64 a, __u64 b) {
    return (__s64)(a - b) < 0;
}

SEC("struct_ops/fair_select_cpu")
__s32 fair_select_cpu(unsigned long long *ctx) {
    bool idle = false;
    __s32 cpu = scx_bpf_select_cpu_dfl(TASK(0), ARG(1), ARG(2), &idle);
    if (idle) {
        count(0);
        scx_bpf_dsq_insert(TASK(0), DSQ_LOCAL, slice_ns, 0);
    }
    return cpu;
}

SEC("struct_ops/fair_enqueue")
int fair_enqueue(unsigned long long *ctx) {
    struct task_struct *p = TASK(0);
    count(1);
    if (fifo) {
        if (scx_bpf_dispatch___old)
            scx_bpf_dispatch___old(p, SHARED, slice_ns, ARG(1));
        else
            scx_bpf_dsq_insert(p, SHARED, slice_ns, ARG(1));
        return 0;
    }
    /* What a sleeper may have saved up is one slice. */
    __u64 vtime = p->scx.dsq_vtime;
    if (before(vtime, clock_of_all - slice_ns))
        vtime = clock_of_all - slice_ns;
    scx_bpf_dsq_insert_vtime(p, SHARED, slice_ns, vtime, ARG(1));
    return 0;
}

SEC("struct_ops/fair_dispatch")
int fair_dispatch(unsigned long long *ctx) {
    scx_bpf_dsq_move_to_local(SHARED);
    return 0;
}

SEC("struct_ops/fair_running")
int fair_running(unsigned long long *ctx) {
    struct task_struct *p = TASK(0);
    if (before(clock_of_all, p->scx.dsq_vtime))
        clock_of_all = p->scx.dsq_vtime;
    return 0;
}

SEC("struct_ops/fair_stopping")
int fair_stopping(unsigned long long *ctx) {
    struct task_struct *p = TASK(0);
    p->scx.dsq_vtime += (slice_ns - p->scx.slice) * 100 / p->scx.weight;
    return 0;
}

SEC("struct_ops/fair_enable")
int fair_enable(unsigned long long *ctx) {
    struct task_struct *p = TASK(0);
    p->scx.dsq_vtime = clock_of_all;
    return 0;
}

SEC("struct_ops/fair_init")
__s32 fair_init(unsigned long long *ctx) {
    if (__SCX_SLICE_DFL != 20000000 || offset[3] >= 0)
        return -22;
    return scx_bpf_create_dsq(SHARED, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops fair = {
    .select_cpu = (void *)fair_select_cpu,
    .enqueue = (void *)fair_enqueue,
    .dispatch = (void *)fair_dispatch,
    .running = (void *)fair_running,
    .stopping = (void *)fair_stopping,
    .enable = (void *)fair_enable,
    .init = (void *)fair_init,
    .timeout_ms = 5000,
    .name = "fair",
};
