/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 * A scheduler for tests that does what it must not: which of it, `fault` says. */
#include "sim.h"

enum { NONE, PAST_A_VALUE, NO_END, NO_SUCH_QUEUE, LOST, SAYS_SO, STORE_TO_NULL, NO_SUCH_CPU, WRONG_TASK, PAST_THE_STACK, NO_INIT };

const volatile __u32 fault = 0;
__u64 lost = 0;
__u64 other = 0;

struct value {
    __u64 words[2];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 3);
    __type(key, __u32);
    __type(value, struct value);
} values SEC(".maps");

SEC("struct_ops/faults_select_cpu")
__s32 faults_select_cpu(unsigned long long *ctx) {
    return fault == NO_SUCH_CPU ? 4711 : (__s32)ARG(1);
}

static __u64 past_a_value(void) {
    __u32 key = 1;
    struct value *value = bpf_map_lookup_elem(&values, &key);
    /* The offset is not known to the compiler, so that it stays. */
    __u64 at = 2 + (lost & 1);
    return value ? value->words[at] : 0;
}

SEC("struct_ops/faults_enqueue")
int faults_enqueue(unsigned long long *ctx) {
    struct task_struct *p = TASK(0);
    volatile __u64 stack[2] = { 0, 0 };
    switch (fault) {
    case PAST_A_VALUE:
        lost += past_a_value();
        break;
    case NO_END:
        while (!(*(volatile __u64 *)&lost))
            ;
        break;
    case NO_SUCH_QUEUE:
        scx_bpf_dsq_insert(p, 99, 1000000, 0);
        return 0;
    case LOST:
        if (!lost++)
            return 0;
        break;
    case SAYS_SO: {
        static char format[] = "task %d of %s";
        static char what[] = "mine";
        unsigned long long data[2] = { 7, (unsigned long long)what };
        scx_bpf_error_bstr(format, data, sizeof(data));
        return 0;
    }
    case STORE_TO_NULL:
        *(volatile __u64 *)(lost & 1) = 1;
        break;
    case WRONG_TASK:
        if (other && other != (__u64)p) {
            scx_bpf_dsq_insert((struct task_struct *)other, DSQ_GLOBAL, 1000000, 0);
            return 0;
        }
        other = (__u64)p;
        break;
    case PAST_THE_STACK:
        lost = *(volatile __u64 *)((__u64)&stack[1] + 16);
        break;
    }
    scx_bpf_dsq_insert(p, DSQ_GLOBAL, 1000000, 0);
    return 0;
}

SEC("struct_ops/faults_init")
__s32 faults_init(unsigned long long *ctx) {
    return fault == NO_INIT ? -12 : 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops faults = {
    .select_cpu = (void *)faults_select_cpu,
    .enqueue = (void *)faults_enqueue,
    .init = (void *)faults_init,
    .timeout_ms = 1000,
    .name = "faults",
};
