/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 * Types and functions of a made-up kernel with sched_ext, for tests of the simulator: its type information takes the place
 * of /sys/kernel/btf/vmlinux. Names are those of Linux (6.13 and later), the layout is not: an object that is relocated to it proves that
 * it is. Nothing here runs. */
typedef unsigned char __u8;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef _Bool bool;

struct cpumask {
    unsigned long bits[128];
};

enum scx_public_consts {
    SCX_OPS_NAME_LEN = 128,
    SCX_SLICE_DFL = 20000000,
};

enum scx_enq_flags {
    SCX_ENQ_WAKEUP = 1,
    SCX_ENQ_HEAD = 1 << 16,
    SCX_ENQ_CPU_SELECTED = 1 << 20,
};

enum scx_kick_flags {
    SCX_KICK_IDLE = 1,
    SCX_KICK_PREEMPT = 2,
    SCX_KICK_WAIT = 4,
};

enum scx_ops_flags {
    SCX_OPS_KEEP_BUILTIN_IDLE = 1,
    SCX_OPS_ENQ_LAST = 2,
    SCX_OPS_ENQ_EXITING = 4,
    SCX_OPS_SWITCH_PARTIAL = 8,
};

enum scx_exit_kind {
    SCX_EXIT_NONE,
    SCX_EXIT_DONE,
    SCX_EXIT_UNREG = 64,
    SCX_EXIT_ERROR = 1024,
    SCX_EXIT_ERROR_BPF,
    SCX_EXIT_ERROR_STALL,
};

struct scx_dispatch_q {
    __u32 nr;
    __u64 id;
};

struct sched_ext_entity {
    struct scx_dispatch_q *dsq;
    char gap[20];
    __u32 flags;
    __u32 weight;
    __s32 selected_cpu;
    unsigned long runnable_at;
    __u64 slice;
    __u64 dsq_vtime;
};

struct sched_entity {
    char before[24];
    __u64 sum_exec_runtime;
};

struct thread_info {
    unsigned long flags;
    __u32 cpu;
};

struct mm_struct {
    int users;
};

struct task_struct {
    struct thread_info thread_info;
    char gap[100];
    __u32 flags;
    int prio, static_prio;
    struct sched_entity se;
    struct sched_ext_entity scx;
    unsigned int policy;
    int nr_cpus_allowed;
    const struct cpumask *cpus_ptr;
    struct cpumask cpus_mask;
    struct mm_struct *mm;
    int pid, tgid;
    struct task_struct *real_parent;
    struct task_struct *group_leader;
    unsigned long nvcsw, nivcsw;
    char comm[16];
};

struct sched_dl_entity {
    __u64 dl_runtime;
};

struct rq {
    unsigned int nr_running;
    struct task_struct *curr, *idle;
    __u64 clock;
    int cpu;
    struct sched_dl_entity ext_server;
};

struct kernfs_node {
    __u64 id;
};

struct cgroup {
    int level;
    struct kernfs_node *kn;
};

struct scx_exit_info {
    enum scx_exit_kind kind;
    __s64 exit_code;
    const char *reason;
    char *msg;
    char *dump;
};

struct scx_init_task_args {
    bool fork;
    struct cgroup *cgroup;
};

struct scx_exit_task_args {
    bool cancelled;
};

struct scx_cpu_acquire_args {
    int unused;
};

struct scx_cpu_release_args {
    int reason;
    struct task_struct *task;
};

struct sched_ext_ops {
    __s32 (*select_cpu)(struct task_struct *p, __s32 prev_cpu, __u64 wake_flags);
    void (*enqueue)(struct task_struct *p, __u64 enq_flags);
    void (*dequeue)(struct task_struct *p, __u64 deq_flags);
    void (*dispatch)(__s32 cpu, struct task_struct *prev);
    void (*tick)(struct task_struct *p);
    void (*runnable)(struct task_struct *p, __u64 enq_flags);
    void (*running)(struct task_struct *p);
    void (*stopping)(struct task_struct *p, bool runnable);
    void (*quiescent)(struct task_struct *p, __u64 deq_flags);
    bool (*yield)(struct task_struct *from, struct task_struct *to);
    void (*set_weight)(struct task_struct *p, __u32 weight);
    void (*set_cpumask)(struct task_struct *p, const struct cpumask *cpumask);
    void (*update_idle)(__s32 cpu, bool idle);
    __s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
    void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
    void (*enable)(struct task_struct *p);
    void (*disable)(struct task_struct *p);
    __s32 (*init)(void);
    void (*exit)(struct scx_exit_info *info);
    void (*cpu_acquire)(__s32 cpu, struct scx_cpu_acquire_args *args);
    void (*cpu_release)(__s32 cpu, struct scx_cpu_release_args *args);
    __u32 dispatch_max_batch;
    __u64 flags;
    __u32 timeout_ms;
    char name[128];
};

/* As the map of a loaded scheduler has it (BPF_MAP_TYPE_STRUCT_OPS). */
struct bpf_struct_ops_sched_ext_ops {
    int references, state;
    char gap[56];
    struct sched_ext_ops data;
};

struct bpf_iter_num {
    __u64 opaque[1];
};
struct bpf_iter_scx_dsq {
    __u64 opaque[6];
};
struct bpf_cpumask;

/* What the kernel offers to programs. */
#define KERNEL(type, name, ...)                                                                                                        \
    type name(__VA_ARGS__) {                                                                                                           \
        return (type)0;                                                                                                                \
    }
KERNEL(bool, scx_bpf_dsq_insert___v2, struct task_struct *p, __u64 dsq, __u64 slice, __u64 flags)
KERNEL(int, scx_bpf_dsq_insert, struct task_struct *p, __u64 dsq, __u64 slice, __u64 flags)
KERNEL(int, scx_bpf_dsq_insert_vtime, struct task_struct *p, __u64 dsq, __u64 slice, __u64 vtime, __u64 flags)
KERNEL(bool, scx_bpf_dsq_move_to_local, __u64 dsq)
KERNEL(int, scx_bpf_create_dsq, __u64 dsq, __s32 node)
KERNEL(__s32, scx_bpf_dsq_nr_queued, __u64 dsq)
KERNEL(__s32, scx_bpf_select_cpu_dfl, struct task_struct *p, __s32 prev, __u64 flags, bool *idle)
KERNEL(__s32, scx_bpf_pick_idle_cpu, const struct cpumask *allowed, __u64 flags)
KERNEL(int, scx_bpf_kick_cpu, __s32 cpu, __u64 flags)
KERNEL(int, scx_bpf_error_bstr, char *format, unsigned long long *data, __u32 bytes)
KERNEL(__s32, scx_bpf_task_cpu, const struct task_struct *p)
KERNEL(bool, scx_bpf_task_running, const struct task_struct *p)
KERNEL(__u64, scx_bpf_now, void)
KERNEL(__u32, scx_bpf_reenqueue_local, void)
KERNEL(__u32, scx_bpf_nr_cpu_ids, void)
KERNEL(void *, bpf_obj_new_impl, __u64 type, void *meta)
KERNEL(int, bpf_iter_num_new, struct bpf_iter_num *it, int start, int end)
KERNEL(int *, bpf_iter_num_next, struct bpf_iter_num *it)
KERNEL(int, bpf_iter_num_destroy, struct bpf_iter_num *it)
KERNEL(int, bpf_iter_scx_dsq_new, struct bpf_iter_scx_dsq *it, __u64 dsq, __u64 flags)
KERNEL(struct task_struct *, bpf_iter_scx_dsq_next, struct bpf_iter_scx_dsq *it)
KERNEL(int, bpf_iter_scx_dsq_destroy, struct bpf_iter_scx_dsq *it)
KERNEL(bool, scx_bpf_dsq_move, struct bpf_iter_scx_dsq *it, struct task_struct *p, __u64 dsq, __u64 flags)
KERNEL(bool, bpf_cpumask_test_cpu, __u32 cpu, const struct cpumask *mask)

/* Types that only variables bring into the type information. */
struct sched_ext_ops ops;
struct bpf_struct_ops_sched_ext_ops loaded_ops;
struct rq runqueues;
struct scx_exit_task_args exit_args;
enum scx_public_consts consts;
enum scx_enq_flags enq_flags;
enum scx_kick_flags kick_flags;
enum scx_ops_flags ops_flags;
