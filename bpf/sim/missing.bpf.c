/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 * A scheduler for tests that calls a kernel function without a model. */
#include "sim.h"

bool scx_bpf_sub_dispatch(__u64 group) __ksym;

SEC("struct_ops/missing_dispatch")
int missing_dispatch(unsigned long long *ctx) {
    scx_bpf_sub_dispatch(1);
    return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops missing = {
    .dispatch = (void *)missing_dispatch,
    .name = "missing",
};
