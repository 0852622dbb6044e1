/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 * A scheduler for tests that checks the order in which its callbacks come, by a state for each task in task storage. Whatever is out of order
 * ends it with an error. */
#include "sim.h"

enum { GONE, READY, ASLEEP, AWAKE, QUEUED, RUNS, STOPPED };

struct state {
    __u32 at;
    __u32 turns;
};

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, 1);
    __type(key, int);
    __type(value, struct state);
} states SEC(".maps");

static void step(struct task_struct *p, __u32 from, __u32 or_from, __u32 to) {
    struct state *state = bpf_task_storage_get(&states, (void *)p, 0, 1);
    if (!state)
        return;
    if (state->at != from && state->at != or_from) {
        static char format[] = "task %d goes from state %u to %u";
        unsigned long long data[3] = { p->pid, state->at, to };
        scx_bpf_error_bstr(format, data, sizeof(data));
        return;
    }
    state->at = to;
}

SEC("struct_ops/trace_init_task")
__s32 trace_init_task(unsigned long long *ctx) {
    step(TASK(0), GONE, GONE, READY);
    return 0;
}

SEC("struct_ops/trace_enable")
int trace_enable(unsigned long long *ctx) {
    step(TASK(0), READY, READY, ASLEEP);
    return 0;
}

SEC("struct_ops/trace_runnable")
int trace_runnable(unsigned long long *ctx) {
    step(TASK(0), ASLEEP, ASLEEP, AWAKE);
    return 0;
}

SEC("struct_ops/trace_enqueue")
int trace_enqueue(unsigned long long *ctx) {
    step(TASK(0), AWAKE, STOPPED, QUEUED);
    scx_bpf_dsq_insert(TASK(0), DSQ_GLOBAL, 3000000, ARG(1));
    return 0;
}

SEC("struct_ops/trace_running")
int trace_running(unsigned long long *ctx) {
    struct state *state = bpf_task_storage_get(&states, (void *)TASK(0), 0, 0);
    if (state)
        state->turns += 1;
    step(TASK(0), QUEUED, QUEUED, RUNS);
    return 0;
}

SEC("struct_ops/trace_stopping")
int trace_stopping(unsigned long long *ctx) {
    step(TASK(0), RUNS, RUNS, STOPPED);
    return 0;
}

SEC("struct_ops/trace_quiescent")
int trace_quiescent(unsigned long long *ctx) {
    step(TASK(0), STOPPED, QUEUED, ASLEEP);
    return 0;
}

SEC("struct_ops/trace_select_cpu")
__s32 trace_select_cpu(unsigned long long *ctx) {
    step(TASK(0), ASLEEP, ASLEEP, ASLEEP);
    return ARG(1);
}

SEC(".struct_ops.link")
struct sched_ext_ops trace = {
    .select_cpu = (void *)trace_select_cpu,
    .enqueue = (void *)trace_enqueue,
    .runnable = (void *)trace_runnable,
    .running = (void *)trace_running,
    .stopping = (void *)trace_stopping,
    .quiescent = (void *)trace_quiescent,
    .enable = (void *)trace_enable,
    .init_task = (void *)trace_init_task,
    .name = "trace",
};
