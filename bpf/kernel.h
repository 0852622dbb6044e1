/* The few types of the kernel that sched.bpf.c and facts.h look into, written by hand. Offsets here mean nothing: the
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

/* As the entry code of x86-64 leaves it: the system call's number, or -1, and its arguments. */
struct pt_regs {
    unsigned long r10;
    unsigned long r8;
    unsigned long dx;
    unsigned long si;
    unsigned long di;
    unsigned long orig_ax;
} LAYOUT;

struct in6_addr {
    union {
        __u32 u6_addr32[4];
    } in6_u;
} LAYOUT;

struct net {
    __u64 net_cookie;
} LAYOUT;

struct sock_common {
    __be32 skc_daddr;
    __be32 skc_rcv_saddr;
    __be16 skc_dport;
    __u16 skc_num;
    unsigned short skc_family;
    volatile unsigned char skc_state;
    struct {
        struct net *net;
    } skc_net;
    struct in6_addr skc_v6_daddr;
    struct in6_addr skc_v6_rcv_saddr;
} LAYOUT;

struct socket;

struct sock {
    struct sock_common __sk_common;
    int sk_sndbuf;
    __u16 sk_type;
    __u16 sk_protocol;
    struct socket *sk_socket;
} LAYOUT;

struct inet_connection_sock {
    const void *icsk_ulp_ops;
} LAYOUT;

struct tcp_sock {
    __u32 write_seq;
    __u32 copied_seq;
} LAYOUT;

struct unix_sock {
    struct sock *peer;
} LAYOUT;

struct super_block {
    unsigned long s_magic;
} LAYOUT;

struct inode {
    unsigned short i_mode;
    unsigned long i_ino;
    struct super_block *i_sb;
} LAYOUT;

struct socket {
    struct sock *sk;
} LAYOUT;

struct socket_alloc {
    struct inode vfs_inode;
} LAYOUT;

struct qstr {
    const unsigned char *name;
} LAYOUT;

struct dentry {
    struct qstr d_name;
} LAYOUT;

struct path {
    struct dentry *dentry;
} LAYOUT;

struct file {
    struct inode *f_inode;
    void *private_data;
    struct path f_path;
} LAYOUT;

struct fdtable {
    unsigned int max_fds;
    struct file **fd;
} LAYOUT;

struct files_struct {
    struct fdtable *fdt;
} LAYOUT;

struct pipe_inode_info {
    unsigned int max_usage;
} LAYOUT;

struct timerfd_ctx {
    int clockid;
} LAYOUT;

struct pid {
    unsigned int level;
} LAYOUT;

struct mm_struct;

struct vm_area_struct {
    unsigned long vm_start;
    unsigned long vm_pgoff;
    struct file *vm_file;
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
    struct files_struct *files;
    struct mm_struct *mm;
    struct pid *thread_pid;
    bool throttled; /* from Linux 6.18 on */
} LAYOUT;

#endif
