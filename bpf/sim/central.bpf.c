/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 * A scheduler for tests: a timer on one CPU takes the CPU from each task that has had it for `slice_ns`, since slices themselves are endless. */
#include "sim.h"

#define SHARED 7
#define ENDLESS (~0ULL)
#define CPUS 64

const volatile __u64 slice_ns = 10000000;
const volatile __u64 period_ns = 1000000;
__u64 began[CPUS];
__u64 fired = 0;

struct holder {
    struct bpf_timer timer;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct holder);
} timers SEC(".maps");

static __u32 here(void) {
    return bpf_get_smp_processor_id() & (CPUS - 1);
}

SEC("struct_ops/central_enqueue")
int central_enqueue(unsigned long long *ctx) {
    scx_bpf_dsq_insert(TASK(0), SHARED, ENDLESS, ARG(1));
    return 0;
}

SEC("struct_ops/central_dispatch")
int central_dispatch(unsigned long long *ctx) {
    scx_bpf_dsq_move_to_local(SHARED);
    return 0;
}

SEC("struct_ops/central_running")
int central_running(unsigned long long *ctx) {
    began[here()] = bpf_ktime_get_ns() + 1;
    return 0;
}

SEC("struct_ops/central_stopping")
int central_stopping(unsigned long long *ctx) {
    began[here()] = 0;
    return 0;
}

static int on_timer(void *map, int *key, struct holder *holder) {
    __u64 now = bpf_ktime_get_ns() + 1;
    __u32 cpus = scx_bpf_nr_cpu_ids();
    fired += 1;
    for (__u32 cpu = 0; cpu < CPUS && cpu < cpus; cpu++) {
        if (began[cpu] && now - began[cpu] >= slice_ns && scx_bpf_dsq_nr_queued(SHARED) > 0)
            scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
    }
    bpf_timer_start(&holder->timer, period_ns, 0);
    return 0;
}

SEC("struct_ops/central_init")
__s32 central_init(unsigned long long *ctx) {
    __u32 key = 0;
    struct holder *holder = bpf_map_lookup_elem(&timers, &key);
    if (!holder || scx_bpf_create_dsq(SHARED, -1))
        return -1;
    bpf_timer_init(&holder->timer, &timers, 1);
    bpf_timer_set_callback(&holder->timer, on_timer);
    return bpf_timer_start(&holder->timer, period_ns, 0);
}

SEC(".struct_ops.link")
struct sched_ext_ops central = {
    .enqueue = (void *)central_enqueue,
    .dispatch = (void *)central_dispatch,
    .running = (void *)central_running,
    .stopping = (void *)central_stopping,
    .init = (void *)central_init,
    .name = "central",
};
