/* The few types of the kernel that sched.bpf.c looks into, written by hand. Offsets here mean nothing: the
 * loader puts those of the running kernel in their place (CO-RE), by the names of structures and fields. */
#ifndef SCHEDLAB_KERNEL_H
#define SCHEDLAB_KERNEL_H

#include "types.h"

enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2 };
enum { BPF_F_MMAPABLE = 1 << 10 };
enum { BPF_ANY = 0 };

struct kernfs_node {
    __u64 id;
} LAYOUT;

struct cgroup;

struct cgroup_subsys_state {
    struct cgroup *cgroup;
    struct cgroup_subsys_state *parent;
} LAYOUT;

struct cgroup {
    struct cgroup_subsys_state self;
    struct kernfs_node *kn;
} LAYOUT;

struct css_set {
    struct cgroup *dfl_cgrp;
} LAYOUT;

struct task_group {
    struct cgroup_subsys_state css;
} LAYOUT;

struct thread_info {
    __u32 status;
    __u32 cpu;
} LAYOUT;

/* As the entry code of x86-64 leaves it: the system call's number, or -1. */
struct pt_regs {
    unsigned long orig_ax;
} LAYOUT;

struct task_struct {
    struct thread_info thread_info;
    int pid;
    int tgid;
    int prio;
    __u32 flags;
    int exit_state;
    char comm[16];
    struct css_set *cgroups;
    struct task_group *sched_task_group;
    bool throttled; /* from Linux 6.18 on */
} LAYOUT;

#endif
