/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 * The part of the sched_ext driver that is inside the kernel. It decides nothing: a managed thread that wants a CPU waits in one
 * queue (HOLD), user space hears of it through a ring, and sends it to a CPU with the program `commit`.
 * For each CPU it may name the thread that goes there next if the running one blocks: the CPU takes that one without waiting for user space.
 *
 * User space may stop, hang or be killed. When it has not committed for `silence`, each CPU takes the oldest waiting thread by
 * itself, and running threads give way every few milliseconds. When its process dies, the kernel unloads this scheduler. What neither
 * answers, the kernel's own watchdog does (`timeout_ms`).
 *
 * Only SCHED_EXT threads come here (SCHED_EXT's SWITCH_PARTIAL), and of these only the managed ones are held: a thread that user space
 * named, or that a managed thread made. Any other SCHED_EXT thread goes to the kernel's global queue at once.
 *
 * Two sets of kernel function names are in use: those of 6.12, and those that 6.13 brought and 7.x has alone. The weak ones of both
 * sets are declared; `bpf_ksym_exists` chooses, and the loader removes the other branch. */
#include "ext_kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#ifndef bpf_ksym_exists
#define bpf_ksym_exists(symbol) (!!(symbol))
#endif
#define WEAK __ksym __weak

/* Linux 6.13 and later. */
void scx_bpf_dsq_insert(struct task_struct *p, __u64 dsq, __u64 slice, __u64 flags) WEAK;
bool scx_bpf_dsq_move_to_local(__u64 dsq) WEAK;
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, __u64 dsq, __u64 flags) WEAK;
void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it, __u64 slice) WEAK;
/* Linux 6.19 and later: before, a program writes the field itself. */
bool scx_bpf_task_set_slice(struct task_struct *p, __u64 slice) WEAK;
/* Linux 6.12. What follows ___ is for the compiler only. */
void scx_bpf_dispatch___old(struct task_struct *p, __u64 dsq, __u64 slice, __u64 flags) WEAK;
bool scx_bpf_consume___old(__u64 dsq) WEAK;
bool scx_bpf_dispatch_from_dsq___old(struct bpf_iter_scx_dsq *it, struct task_struct *p, __u64 dsq, __u64 flags) WEAK;
void scx_bpf_dispatch_from_dsq_set_slice___old(struct bpf_iter_scx_dsq *it, __u64 slice) WEAK;
/* In all of them. An unmatched weak symbol is poisoned silently, so these are strong. */
__s32 scx_bpf_create_dsq(__u64 dsq, __s32 node) __ksym;
__s32 scx_bpf_dsq_nr_queued(__u64 dsq) __ksym;
void scx_bpf_kick_cpu(__s32 cpu, __u64 flags) __ksym;
__s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, __u64 dsq, __u64 flags) __ksym;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;
struct task_struct *bpf_task_from_pid(__s32 pid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;
void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;
/* See `struct pcpu_hot___schedlab`. */
extern const int __preempt_count WEAK;
extern const struct pcpu_hot___schedlab pcpu_hot WEAK;

/* include/linux/sched/ext.h and kernel/sched/ext.c (Linux 6.12 to 7.2). */
#define GLOBAL 0x8000000000000001ULL   /* SCX_DSQ_GLOBAL */
#define LOCAL_ON 0xC000000000000000ULL /* SCX_DSQ_LOCAL_ON; the CPU is in the low half */
#define ENQ_WAKEUP 1ULL                /* SCX_ENQ_WAKEUP */
#define ENQ_PREEMPT (1ULL << 32)       /* SCX_ENQ_PREEMPT: in front, and the running thread's slice ends */
#define DEQ_SLEEP 1ULL                 /* SCX_DEQ_SLEEP */
#define KICK_IDLE 1ULL                 /* SCX_KICK_IDLE */
#define KICK_PREEMPT 2ULL              /* SCX_KICK_PREEMPT: the running SCHED_EXT thread's slice ends */
#define OPS_ENQ_LAST 2                 /* the last runnable thread of a CPU is asked about as well */
#define OPS_ENQ_EXITING 4              /* and a thread on its way through exit */
#define OPS_SWITCH_PARTIAL 8           /* only SCHED_EXT threads */
#define PF_EXITING 4
#define SCHED_EXT 7

/* The queue of waiting threads. */
#define HOLD 1ULL
/* A decision holds until the next one: the kernel rounds slices up to ticks, so user space counts them and preempts. */
#define ENDLESS (~0ULL)
/* How long a thread runs while user space is silent: about a tick of HZ=250. */
#define ALONE_NS 4000000ULL

/* What user space is told; crates/ext/src/wire.rs has the same list. */
enum kind {
    ENQUEUE = 1, /* arg: flags of the kernel; extra: thread that woke it; high half of arg: context */
    RUNNING,
    STOPPING,  /* extra: 1 when it would go on */
    QUIESCENT, /* extra: 1 when it ends */
    YIELD,
    WEIGHT,
    CPUMASK,
    FORK, /* extra: thread that made it; arg: its process */
    EXIT,
    LEFT, /* it has another policy now */
    ONLINE,
    OFFLINE,
    END, /* this scheduler is unloaded */
};

struct event {
    __u64 at;
    __u32 tid;
    __u32 seq;
    __u16 kind;
    __u16 cpu;
    __u32 extra;
    __u64 arg;
};

enum flag {
    PREEMPT = 1,  /* the CPU's thread goes back to HOLD */
    TAKE = 2,     /* the thread is managed from now on */
    FREE = 4,     /* and no longer */
    ASK = 8,      /* what does the thread do? Nothing is changed; the answer has its `seq` */
    DISPLACE = 16, /* the thread that runs on the CPU goes back to HOLD */
    AHEAD = 32    /* the CPU takes this thread by itself when its own blocks, if it still waits with this `seq`; thread 0: none */
};

/* The answer to a decision. */
enum status {
    DONE = 1,
    EARLY = -1,  /* the event was told before the kernel put the thread into HOLD: the same again */
    STALE = -2,  /* the thread has done something since, of which an event tells */
    NOT_CPU = -3, /* it may not run there */
    BUSY = -4,   /* a decided thread waits for that CPU already */
    REFUSED = -5,
    GONE = -6,
};

enum state { OUT, HELD, SENT, ON_CPU };

struct decision {
    __u32 tid;
    __u32 seq;
    __u16 cpu;
    __u16 flags;
    __s32 status;
    __u64 slice;
};

#define BATCH 16

struct batch {
    __u32 count;
    __u32 done;
    struct decision decisions[BATCH];
};

struct per_task {
    __u32 seq; /* counts how often the thread entered HOLD: a decision about an earlier time is stale */
    __u8 state;
    __u8 managed;
    __u16 cpu;
};

struct control {
    __u64 beat; /* when user space committed last */
    __u64 lost;
    __u64 alone; /* threads that CPUs took by themselves */
    __u64 end_kind;
    __s64 end_code;
    char end_reason[64];
    char end_message[192];
};

struct alarm {
    struct bpf_timer timer;
};

/* CPUs for which a thread may be named ahead. */
#define CPUS 1024

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1024 * 1024);
} events SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct per_task);
} tasks SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct control);
} control SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct alarm);
} alarms SEC(".maps");

/* By CPU: the thread that goes there next, with its `seq` in the high half. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, CPUS);
    __type(key, __u32);
    __type(value, __u64);
} aheads SEC(".maps");

/* Set by user space before it loads this; ns. */
const volatile __u64 silence = 100000000;

#define INLINE static __attribute__((always_inline))

INLINE struct control *here(void)
{
    __u32 key = 0;
    return bpf_map_lookup_elem(&control, &key);
}

INLINE bool silent(const struct control *c)
{
    return bpf_ktime_get_ns() - *(volatile const __u64 *)&c->beat > silence;
}

/* What is kept of a managed thread; none: it is not managed. */
INLINE struct per_task *managed(struct task_struct *p)
{
    struct per_task *t = bpf_task_storage_get(&tasks, p, 0, 0);
    return t && t->managed ? t : 0;
}

/* `wakes`: the event asks for a decision. Others wait for the next round: waking user space for what its own decisions cause would never
 * come to rest. */
INLINE void tell(__u32 kind, bool wakes, __u32 cpu, __u32 tid, __u32 seq, __u32 extra, __u64 arg)
{
    struct event *e = bpf_ringbuf_reserve(&events, sizeof *e, 0);
    if (!e) {
        struct control *c = here();
        if (c)
            __sync_fetch_and_add(&c->lost, 1);
        return;
    }
    e->at = bpf_ktime_get_ns();
    e->tid = tid;
    e->seq = seq;
    e->kind = kind;
    e->cpu = cpu;
    e->extra = extra;
    e->arg = arg;
    bpf_ringbuf_submit(e, wakes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

INLINE void insert(struct task_struct *p, __u64 dsq, __u64 slice, __u64 flags)
{
    if (bpf_ksym_exists(scx_bpf_dsq_insert))
        scx_bpf_dsq_insert(p, dsq, slice, flags);
    else
        scx_bpf_dispatch___old(p, dsq, slice, flags);
}

INLINE void end_slice(struct task_struct *p)
{
    if (bpf_ksym_exists(scx_bpf_task_set_slice))
        scx_bpf_task_set_slice(p, 0);
    else
        p->scx.slice = 0;
}

INLINE bool take_oldest(void)
{
    if (bpf_ksym_exists(scx_bpf_dsq_move_to_local))
        return scx_bpf_dsq_move_to_local(HOLD);
    return scx_bpf_consume___old(HOLD);
}

INLINE bool move(struct bpf_iter_scx_dsq *it, struct task_struct *p, __u64 dsq, __u64 slice, __u64 flags)
{
    if (bpf_ksym_exists(scx_bpf_dsq_move)) {
        scx_bpf_dsq_move_set_slice(it, slice);
        return scx_bpf_dsq_move(it, p, dsq, flags);
    }
    scx_bpf_dispatch_from_dsq_set_slice___old(it, slice);
    return scx_bpf_dispatch_from_dsq___old(it, p, dsq, flags);
}

INLINE bool may_run_on(struct task_struct *p, __u32 cpu)
{
    const struct cpumask *mask = p->cpus_ptr;
    unsigned long word = 0;
    bpf_probe_read_kernel(&word, sizeof word, &mask->bits[cpu / 64]);
    return word >> cpu % 64 & 1;
}

/* Who wakes: 1 the current task, 2 a softirq, 3 an interrupt; 0 where the processor's count cannot be read. (On 6.12 a wakeup that one
 * CPU hands to another is an interrupt there.) The bits are those of include/linux/preempt.h. */
INLINE __u32 context(void)
{
    int count;
    if (bpf_ksym_exists(&__preempt_count))
        count = *(int *)bpf_this_cpu_ptr(&__preempt_count);
    else if (bpf_ksym_exists(&pcpu_hot))
        count = ((struct pcpu_hot___schedlab *)bpf_this_cpu_ptr(&pcpu_hot))->preempt_count;
    else
        return 0;
    if (count & 0xff0000)
        return 3;
    return count & 0x100 ? 2 : 1;
}

/* Moves the thread of a decision from HOLD to `dsq`. In a loop: only an iterator may take a thread out of the middle of a queue. */
INLINE __s32 send(struct per_task *t, __u32 tid, __u64 dsq, __u64 slice, __u64 flags)
{
    struct bpf_iter_scx_dsq it;
    struct task_struct *p;
    __s32 status = EARLY;
    bpf_iter_scx_dsq_new(&it, HOLD, 0);
    while ((p = bpf_iter_scx_dsq_next(&it))) {
        if (p->pid != (int)tid)
            continue;
        /* Before the move: `running` may come, on another CPU, before it returns. */
        t->state = SENT;
        if (move(&it, p, dsq, slice, flags)) {
            status = DONE;
        } else {
            t->state = HELD;
            status = REFUSED;
        }
        break;
    }
    bpf_iter_scx_dsq_destroy(&it);
    return status;
}

/* Gives a CPU that has nothing the thread that user space named for it, if that still waits as it did then. */
INLINE void take_ahead(__u32 cpu, struct task_struct *prev)
{
    __u64 *named = bpf_map_lookup_elem(&aheads, &cpu);
    __u64 both = named ? *(volatile __u64 *)named : 0;
    __u32 tid = both;
    if (!tid)
        return;
    /* It would go on; its slice was ended so that it waits for a decision. */
    struct per_task *own = prev ? managed(prev) : 0;
    if (own && own->state == ON_CPU)
        return;
    struct task_struct *p = bpf_task_from_pid(tid);
    if (!p)
        return;
    struct per_task *t = managed(p);
    if (t && t->seq == both >> 32 && t->state == HELD && may_run_on(p, cpu))
        send(t, tid, LOCAL_ON | cpu, ENDLESS, 0);
    bpf_task_release(p);
}

/* The answer to ASK: the state, with the CPU, above every status. */
#define STATE(t) (0x100 | (t)->state | (__s32)(t)->cpu << 16)

INLINE __s32 about(struct task_struct *p, __u32 tid, __u32 *seq, __u32 cpu, __u32 flags, __u64 slice)
{
    struct per_task *t = bpf_task_storage_get(&tasks, p, 0, flags & TAKE ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
    if (!t)
        return flags & TAKE ? REFUSED : GONE;
    if (flags & ASK) {
        *seq = t->seq;
        return STATE(t);
    }
    if (flags & TAKE) {
        t->managed = 1;
        return DONE;
    }
    if (flags & DISPLACE) {
        if (t->state != ON_CPU || t->cpu != cpu)
            return STALE;
        scx_bpf_kick_cpu(cpu, KICK_PREEMPT);
        return DONE;
    }
    if (flags & FREE) {
        t->managed = 0;
        return t->state == HELD ? send(t, tid, GLOBAL, ALONE_NS, 0) : DONE;
    }
    if (t->seq != *seq || t->state != HELD)
        return STALE;
    if (!may_run_on(p, cpu))
        return NOT_CPU;
    /* Behind an endless slice a second one would wait for ever. */
    if (scx_bpf_dsq_nr_queued(LOCAL_ON | cpu) > 0)
        return BUSY;
    return send(t, tid, LOCAL_ON | cpu, slice, flags & PREEMPT ? ENQ_PREEMPT : 0);
}

/* A function of its own for the verifier, which would otherwise look at it BATCH times. Returns the status in the low half and, to ASK,
 * how often the thread entered HOLD in the high half. */
__attribute__((noinline)) __u64 decide(__u32 tid, __u32 seq, __u32 cpu, __u32 flags, __u64 slice)
{
    if (flags & AHEAD) {
        __u64 *named = bpf_map_lookup_elem(&aheads, &cpu);
        if (!named)
            return (__u32)REFUSED;
        *(volatile __u64 *)named = (__u64)seq << 32 | tid;
        return (__u64)seq << 32 | DONE;
    }
    struct task_struct *p = bpf_task_from_pid(tid);
    if (!p)
        return (__u32)GONE;
    bpf_rcu_read_lock();
    __u32 status = about(p, tid, &seq, cpu, flags, slice);
    bpf_rcu_read_unlock();
    bpf_task_release(p);
    return (__u64)seq << 32 | status;
}

/* Carries out a batch of decisions; the kernel copies it in and, with the statuses, out again. An empty one says that user space lives. */
SEC("syscall") int commit(struct batch *b)
{
    struct control *c = here();
    if (!c)
        return -1;
    c->beat = bpf_ktime_get_ns();
    __u32 count = b->count;
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
        if ((__u32)i < count) {
            struct decision *d = &b->decisions[i];
            /* Of a batch each field is read at a constant offset: the verifier wants it so. */
            __u64 answer = decide(d->tid, d->seq, d->cpu, d->flags, d->slice);
            d->seq = answer >> 32;
            d->status = answer;
        }
    }
    b->done = count;
    return 0;
}

/* Where the thread was last: user space names the CPU when it decides. */
SEC("struct_ops/ext_select_cpu") __s32 BPF_PROG(ext_select_cpu, struct task_struct *p, __s32 prev, __u64 flags)
{
    return prev;
}

SEC("struct_ops/ext_enqueue") void BPF_PROG(ext_enqueue, struct task_struct *p, __u64 flags)
{
    struct per_task *t = managed(p);
    if (!t) {
        insert(p, GLOBAL, ALONE_NS, flags);
        return;
    }
    __u32 seq = ++t->seq, waker = 0, by = 0;
    t->state = HELD;
    if (flags & ENQ_WAKEUP) {
        by = context();
        waker = bpf_get_current_pid_tgid();
    }
    insert(p, HOLD, ALONE_NS, flags);
    tell(ENQUEUE, true, scx_bpf_task_cpu(p), p->pid, seq, waker, (__u64)by << 32 | (flags & 0xffffffff));
}

SEC("struct_ops/ext_dispatch") void BPF_PROG(ext_dispatch, __s32 cpu, struct task_struct *prev)
{
    struct control *c = here();
    if (!c)
        return;
    if (!silent(c))
        take_ahead(cpu, prev);
    else if (take_oldest())
        __sync_fetch_and_add(&c->alone, 1);
}

SEC("struct_ops/ext_tick") void BPF_PROG(ext_tick, struct task_struct *p)
{
    struct control *c = here();
    /* Given without end by a user space that is silent now. */
    if (c && p->scx.slice > ALONE_NS && silent(c) && scx_bpf_dsq_nr_queued(HOLD))
        end_slice(p);
}

SEC("struct_ops/ext_running") void BPF_PROG(ext_running, struct task_struct *p)
{
    struct per_task *t = managed(p);
    if (!t)
        return;
    t->state = ON_CPU;
    t->cpu = scx_bpf_task_cpu(p);
    tell(RUNNING, false, t->cpu, p->pid, t->seq, 0, 0);
}

SEC("struct_ops/ext_stopping") void BPF_PROG(ext_stopping, struct task_struct *p, bool runnable)
{
    struct per_task *t = managed(p);
    if (!t)
        return;
    /* Runnable: it stays first in its CPU's queue, unless `enqueue` follows. */
    t->state = runnable ? SENT : OUT;
    tell(STOPPING, false, t->cpu, p->pid, t->seq, runnable, 0);
}

SEC("struct_ops/ext_quiescent") void BPF_PROG(ext_quiescent, struct task_struct *p, __u64 flags)
{
    struct per_task *t = managed(p);
    /* Without that flag only its attributes change, and it is enqueued again. */
    if (!t || !(flags & DEQ_SLEEP))
        return;
    t->state = OUT;
    tell(QUIESCENT, true, scx_bpf_task_cpu(p), p->pid, t->seq, !!(p->flags & PF_EXITING), 0);
}

SEC("struct_ops/ext_yield") bool BPF_PROG(ext_yield, struct task_struct *from, struct task_struct *to)
{
    struct per_task *t = managed(from);
    if (t)
        tell(YIELD, false, scx_bpf_task_cpu(from), from->pid, t->seq, 0, 0);
    end_slice(from);
    return false;
}

SEC("struct_ops/ext_set_weight") void BPF_PROG(ext_set_weight, struct task_struct *p, __u32 weight)
{
    struct per_task *t = managed(p);
    if (t)
        tell(WEIGHT, true, scx_bpf_task_cpu(p), p->pid, t->seq, weight, 0);
}

SEC("struct_ops/ext_set_cpumask") void BPF_PROG(ext_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
    struct per_task *t = managed(p);
    if (t)
        tell(CPUMASK, true, scx_bpf_task_cpu(p), p->pid, t->seq, 0, 0);
}

/* In the context of the thread that forks. Also called once for every thread of the machine when this scheduler is loaded. */
SEC("struct_ops.s/ext_init_task") __s32 BPF_PROG(ext_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
    if (!args->fork || p->policy != SCHED_EXT)
        return 0;
    struct task_struct *maker = bpf_get_current_task_btf();
    if (!managed(maker))
        return 0;
    struct per_task *t = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
    /* Without memory for it the thread is one that is not managed. */
    if (t) {
        t->managed = 1;
        tell(FORK, true, 0, p->pid, 0, maker->pid, p->tgid);
    }
    return 0;
}

SEC("struct_ops/ext_exit_task") void BPF_PROG(ext_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
    struct per_task *t = managed(p);
    if (t)
        tell(EXIT, true, 0, p->pid, t->seq, args->cancelled, 0);
}

SEC("struct_ops/ext_disable") void BPF_PROG(ext_disable, struct task_struct *p)
{
    struct per_task *t = managed(p);
    if (!t || p->flags & PF_EXITING)
        return;
    t->state = OUT;
    tell(LEFT, true, 0, p->pid, t->seq, p->policy, 0);
}

/* With both of these a CPU that comes or goes does not unload the scheduler. */
SEC("struct_ops/ext_cpu_online") void BPF_PROG(ext_cpu_online, __s32 cpu)
{
    tell(ONLINE, true, cpu, 0, 0, 0, 0);
}

SEC("struct_ops/ext_cpu_offline") void BPF_PROG(ext_cpu_offline, __s32 cpu)
{
    tell(OFFLINE, true, cpu, 0, 0, 0, 0);
}

/* Threads that wait while user space falls silent, and idle CPUs that nothing wakes: `dispatch` is for a CPU that schedules. */
static int wake_idle(void *map, int *key, struct alarm *a)
{
    struct control *c = here();
    if (c && silent(c) && scx_bpf_dsq_nr_queued(HOLD)) {
        struct bpf_iter_scx_dsq it;
        struct task_struct *p;
        bpf_iter_scx_dsq_new(&it, HOLD, 0);
        while ((p = bpf_iter_scx_dsq_next(&it)))
            scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KICK_IDLE);
        bpf_iter_scx_dsq_destroy(&it);
    }
    bpf_timer_start(&a->timer, silence / 4, 0);
    return 0;
}

SEC("struct_ops.s/ext_init") __s32 BPF_PROG(ext_init)
{
    __u32 key = 0;
    struct control *c = here();
    struct alarm *a = bpf_map_lookup_elem(&alarms, &key);
    if (!c || !a)
        return -1;
    c->beat = bpf_ktime_get_ns();
    __s32 error = scx_bpf_create_dsq(HOLD, -1);
    if (error)
        return error;
    bpf_timer_init(&a->timer, &alarms, 1 /* CLOCK_MONOTONIC */);
    bpf_timer_set_callback(&a->timer, wake_idle);
    bpf_timer_start(&a->timer, silence / 4, 0);
    return 0;
}

SEC("struct_ops/ext_exit") void BPF_PROG(ext_exit, struct scx_exit_info *info)
{
    struct control *c = here();
    if (!c)
        return;
    c->end_code = info->exit_code;
    bpf_probe_read_kernel_str(c->end_reason, sizeof c->end_reason, info->reason);
    bpf_probe_read_kernel_str(c->end_message, sizeof c->end_message, info->msg);
    c->end_kind = info->kind;
    tell(END, true, 0, 0, 0, info->kind, 0);
}

/* timeout_ms: beside fair load, which goes before this class, a thread may wait for seconds without anything being wrong. */
SEC(".struct_ops.link") struct sched_ext_ops schedlab_ops = {
    .select_cpu = (void *)ext_select_cpu,
    .enqueue = (void *)ext_enqueue,
    .dispatch = (void *)ext_dispatch,
    .tick = (void *)ext_tick,
    .running = (void *)ext_running,
    .stopping = (void *)ext_stopping,
    .quiescent = (void *)ext_quiescent,
    .yield = (void *)ext_yield,
    .set_weight = (void *)ext_set_weight,
    .set_cpumask = (void *)ext_set_cpumask,
    .init_task = (void *)ext_init_task,
    .exit_task = (void *)ext_exit_task,
    .disable = (void *)ext_disable,
    .cpu_online = (void *)ext_cpu_online,
    .cpu_offline = (void *)ext_cpu_offline,
    .init = (void *)ext_init,
    .exit = (void *)ext_exit,
    .flags = OPS_SWITCH_PARTIAL | OPS_ENQ_EXITING | OPS_ENQ_LAST,
    .timeout_ms = 10000,
    .name = "schedlab",
};
