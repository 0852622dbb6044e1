/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 * A scheduler for tests that calls a kernel function without a model. */
#include "sim.h"

void *bpf_obj_new_impl(__u64 type, void *meta) __ksym;

SEC("struct_ops/missing_dispatch")
int missing_dispatch(unsigned long long *ctx) {
    bpf_obj_new_impl(1, 0);
    return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops missing = {
    .dispatch = (void *)missing_dispatch,
    .name = "missing",
};
