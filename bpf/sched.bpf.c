/* What the scheduler does, as fixed records of 32 bytes in one ring per CPU.
 *
 * Each ring is a stretch of one memory-mapped array: user space reads it without a system call, and nothing
 * here ever wakes a reader. A program takes the number of a slot, fills the slot, and writes the slot's
 * sequence number last; a reader stops at the first slot whose number is not there yet. When the reader is
 * a whole ring behind, records are counted as lost instead of written.
 *
 * Who woke? Programs on the entry and exit of interrupts and softirqs keep the context of each CPU. A softirq
 * belongs to the task that is running when that task's own code raised it (a send over loopback raises
 * NET_RX from within the system call), and to the outside world when an interrupt raised it.
 *
 * What tasks exchange meanwhile is in facts.h, in rings of its own; what the flight recorder sums up is in sums.h.
 *
 * Built by `cargo xtask bpf`; the object beside it is what the binary carries. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Set by the loader. */
const volatile __u32 slots = 0;      /* of one CPU's ring, a power of two */
const volatile __u32 cpus = 0;       /* CPUs with a ring */
const volatile __u32 filter = 0;     /* one of FILTER_... */
const volatile __u64 group_id = 0;   /* of the control group that is recorded */

enum { FILTER_NONE, FILTER_PROCESSES, FILTER_CPU_GROUP, FILTER_UNIFIED_GROUP };

/* Records: the numbers are those of crates/host/src/record/bpf/decode.rs. */
enum {
    SWITCH = 1,    /* a prev, b next, c prev_state | exit_state << 16, priority of next, call of prev */
    WAKE = 2,      /* a wakee, b current; detail: context */
    NEW = 3,       /* a child, b parent */
    EXEC = 4,      /* a task */
    EXIT = 5,      /* a task */
    MIGRATE = 6,   /* a task, b from, c to */
    REGROUP = 7,   /* a task */
    NAME = 8,      /* a task, b and c: bytes 0-7 of its name; detail 0; */
    NAME_REST = 9, /* ... and bytes 8-15 */
    TOLD = 10,     /* a task, b and c: since when; a stretch that a rule may mean, see sums.h */
};
enum { PREEMPTED = 1, PREV_OUTSIDE = 2, NEXT_OUTSIDE = 4, THROTTLED = 8 }; /* detail of SWITCH; and, from bit 4 */
enum { DEADLINE = 1 << 4, REALTIME = 2 << 4, FAIR = 3 << 4 };              /* on, prev's class */
enum { BY_TASK = 1, BY_INLINE_SOFTIRQ = 2, BY_SOFTIRQ = 3, BY_IRQ = 4 }; /* detail of WAKE */

struct record {
    __u64 at;
    __u32 a, b, c;
    __u16 priority;
    __u8 kind, detail;
    __u32 sequence;
    __u32 call; /* of SWITCH: the system call in which prev blocks, plus one; else 0 */
};

/* One per CPU, on cache lines of its own; the last line is the reader's. */
struct control {
    __u64 head;
    __u64 lost;
    __u32 irq;          /* which kinds of interrupt are being served: one bit each */
    __u32 softirq;      /* BY_SOFTIRQ or BY_INLINE_SOFTIRQ while one is served, else 0 */
    __u32 raised;       /* softirqs that the task's own code raised and that have not run yet: a bit each */
    __u32 zero[9];
    __u64 tail;
    __u64 zero_too[7];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct record);
} rings SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct control);
} controls SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 65536);
    __type(key, __u32);
    __type(value, __u8);
} processes SEC(".maps");

/* The threads that serve softirqs in place of interrupts: what they run came from outside. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, __u32);
    __type(value, __u8);
} softirq_threads SEC(".maps");

#define INLINE static __attribute__((always_inline))

INLINE struct control *here(__u32 cpu)
{
    return bpf_map_lookup_elem(&controls, &cpu);
}

/* Room for the reader to look before a slot is written over, and for nested writers that all saw room. */
#define MARGIN 16

INLINE struct record *claim(struct control *control, __u32 cpu, bool interrupts_are_off, __u32 *sequence)
{
    __u64 head = *(volatile __u64 *)&control->head;
    if (head - *(volatile __u64 *)&control->tail >= slots - MARGIN) {
        __sync_fetch_and_add(&control->lost, 1);
        return 0;
    }
    if (interrupts_are_off)
        *(volatile __u64 *)&control->head = head + 1;
    else
        head = __sync_fetch_and_add(&control->head, 1);
    __u32 index = cpu * slots + ((__u32)head & (slots - 1));
    *sequence = (__u32)head + 1;
    return bpf_map_lookup_elem(&rings, &index);
}

INLINE void fill(struct record *to, __u64 at, __u32 kind, __u32 detail, __u32 a, __u32 b, __u32 c,
                 __u32 priority, __u32 call, __u32 sequence)
{
    to->at = at;
    to->call = call;
    to->a = a;
    to->b = b;
    to->c = c;
    to->priority = priority;
    to->kind = kind;
    to->detail = detail;
    asm volatile("" ::: "memory");
    *(volatile __u32 *)&to->sequence = sequence;
}

/* For programs that an interrupt may interrupt. */
INLINE void put(__u32 kind, __u32 a, __u32 b, __u32 c)
{
    __u64 at = bpf_ktime_get_ns();
    __u32 cpu = bpf_get_smp_processor_id(), sequence;
    struct control *control = here(cpu);
    if (!control)
        return;
    struct record *record = claim(control, cpu, 0, &sequence);
    if (record)
        fill(record, at, kind, 0, a, b, c, 0, 0, sequence);
}

INLINE bool in_group(struct cgroup *group)
{
    /* Limit for the verifier: control groups deeper than 24 levels count as not recorded. */
    for (int level = 0; level < 24; level++) {
        if (!group)
            return 0;
        if (group->kn->id == group_id)
            return 1;
        struct cgroup_subsys_state *above = group->self.parent;
        if (!above)
            return 0;
        group = above->cgroup;
    }
    return 0;
}

INLINE bool wanted(struct task_struct *task)
{
    if (filter == FILTER_PROCESSES) {
        __u32 process = task->tgid;
        return bpf_map_lookup_elem(&processes, &process) != 0;
    }
    if (filter == FILTER_CPU_GROUP)
        return in_group(task->sched_task_group->css.cgroup);
    if (filter == FILTER_UNIFIED_GROUP)
        return in_group(task->cgroups->dfl_cgrp);
    return 1;
}

#define THREAD_OF_THE_KERNEL (0x00200000 | 0x4000) /* PF_KTHREAD, PF_USER_WORKER: no system calls of their own */
#define CALL_OF_32_BITS 0x2                         /* TS_COMPAT: other numbers */

/* The system call in which a task blocks, plus one; 0: in none (a page fault, say). Read from the registers that
 * the task left on its kernel stack when it entered the kernel: system calls themselves cost nothing more. */
INLINE __u32 call_of(struct task_struct *task)
{
    if (!bpf_core_field_exists(struct pt_regs, orig_ax) || task->flags & THREAD_OF_THE_KERNEL ||
        task->thread_info.status & CALL_OF_32_BITS)
        return 0;
    struct pt_regs *registers = (struct pt_regs *)bpf_task_pt_regs(task);
    if (!registers)
        return 0;
    __u64 number = registers->orig_ax;
    return number < 0xffff ? (__u32)number + 1 : 0;
}

INLINE __u32 context(struct control *control, __u32 current)
{
    if (control->irq)
        return BY_IRQ;
    if (control->softirq)
        return control->softirq;
    /* The idle task does nothing of its own: it runs what interrupts left behind. */
    return current ? BY_TASK : BY_IRQ;
}

#include "facts.h"
#include "sums.h"

/* The scheduling class by priority, and whether the limit of a control group took the CPU away: from Linux 6.18
 * on a task learns of that on its way back to user space, and leaves the queue by itself. */
INLINE __u32 standing(struct task_struct *task)
{
    __u32 class = task->prio < 0 ? DEADLINE : task->prio < 100 ? REALTIME : FAIR;
    if (bpf_core_field_exists(task->throttled) && task->throttled)
        class |= THROTTLED;
    return class;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int state)
{
    __u32 detail = preempt ? PREEMPTED : 0;
    if (filter != FILTER_NONE) {
        if (prev->pid && !wanted(prev))
            detail |= PREV_OUTSIDE;
        if (next->pid && !wanted(next))
            detail |= NEXT_OUTSIDE;
        /* All that is outside counts as one: only its switches among itself are left out. */
        if ((detail & PREV_OUTSIDE) && (detail & NEXT_OUTSIDE))
            return 0;
    }
    __u64 at = bpf_ktime_get_ns();
    __u32 cpu = bpf_get_smp_processor_id(), sequence;
    struct control *control = here(cpu);
    if (!control)
        return 0;
    /* What the task before raised and left behind is served by ksoftirqd or an interrupt. */
    control->raised = 0;
    bool blocks = state && !preempt;
    __u32 call = blocks ? call_of(prev) : 0;
    if (fact_slots)
        stopped(prev, cpu, at, blocks || (detail & PREV_OUTSIDE));
    detail |= standing(prev);
    struct record *record = claim(control, cpu, 1, &sequence);
    if (record)
        fill(record, at, SWITCH, detail, prev->pid, next->pid, (state & 0xffff) | (__u32)prev->exit_state << 16,
             next->prio, call, sequence);
    if (classes)
        sum_switch(control, cpu, at, prev, next, state, blocks, detail);
    return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
    if (filter != FILTER_NONE && !wanted(task))
        return 0;
    struct task_struct *current = bpf_get_current_task_btf();
    __u64 at = bpf_ktime_get_ns();
    __u32 cpu = bpf_get_smp_processor_id(), sequence;
    struct control *control = here(cpu);
    if (!control)
        return 0;
    /* Only a task that wakes itself may be interrupted here. */
    struct record *record = claim(control, cpu, task != current, &sequence);
    if (record) {
        __u32 by = current->pid;
        fill(record, at, WAKE, context(control, by), task->pid, by, 0, 0, 0, sequence);
    }
    if (classes)
        sum_waking(control, cpu, at, task);
    return 0;
}

INLINE void name(__u32 tid, const char *comm)
{
    __u32 words[4];
    bpf_probe_read_kernel(words, sizeof(words), comm);
    put(NAME, tid, words[0], words[1]);
    put(NAME_REST, tid, words[2], words[3]);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_new, struct task_struct *task)
{
    struct task_struct *current = bpf_get_current_task_btf();
    if (filter == FILTER_PROCESSES) {
        __u32 process = task->tgid;
        __u8 one = 1;
        /* Children of those that are recorded are recorded. */
        if (wanted(current) && !wanted(task))
            bpf_map_update_elem(&processes, &process, &one, BPF_ANY);
    }
    if (filter != FILTER_NONE && !wanted(task))
        return 0;
    if (classes)
        sum_new(bpf_ktime_get_ns(), task, current);
    put(NEW, task->pid, current->pid, 0);
    name(task->pid, task->comm);
    return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(on_rename, struct task_struct *task, const char *comm)
{
    if (filter != FILTER_NONE && !wanted(task))
        return 0;
    name(task->pid, comm);
    return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate, struct task_struct *task, int to)
{
    if (filter != FILTER_NONE && !wanted(task))
        return 0;
    if (classes)
        sum_migrate(bpf_ktime_get_ns(), task);
    put(MIGRATE, task->pid, task->thread_info.cpu, to);
    return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
    if (filter != FILTER_NONE && !wanted(task))
        return 0;
    put(EXEC, task->pid, 0, 0);
    return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
    if (filter != FILTER_NONE && !wanted(task))
        return 0;
    if (classes)
        sum_exit(bpf_ktime_get_ns(), task);
    put(EXIT, task->pid, 0, 0);
    return 0;
}

SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(on_attach, struct cgroup *to, const char *path, struct task_struct *task)
{
    if (filter == FILTER_PROCESSES && !wanted(task))
        return 0;
    put(REGROUP, task->pid, 0, 0);
    return 0;
}

/* Interrupts: a bit for each kind, so that a missed entry or exit is repaired at the next. */
INLINE int irq(__u32 bit, bool begins)
{
    struct control *control = here(bpf_get_smp_processor_id());
    if (control)
        control->irq = begins ? control->irq | 1u << bit : control->irq & ~(1u << bit);
    return 0;
}

#define INTERRUPT(bit, entry, exit)                                                                            \
    SEC("tp_btf/" #entry) int entry(void *ctx) { return irq(bit, 1); }                                         \
    SEC("tp_btf/" #exit) int exit(void *ctx) { return irq(bit, 0); }

INTERRUPT(0, irq_handler_entry, irq_handler_exit)
INTERRUPT(1, local_timer_entry, local_timer_exit)
INTERRUPT(2, reschedule_entry, reschedule_exit)
INTERRUPT(3, call_function_entry, call_function_exit)
INTERRUPT(4, call_function_single_entry, call_function_single_exit)
INTERRUPT(5, x86_platform_ipi_entry, x86_platform_ipi_exit)
INTERRUPT(6, irq_work_entry, irq_work_exit)
INTERRUPT(7, ipi_entry, ipi_exit)

SEC("tp_btf/softirq_raise")
int BPF_PROG(softirq_raise, unsigned int number)
{
    struct control *control = here(bpf_get_smp_processor_id());
    if (!control || number > 31)
        return 0;
    struct task_struct *current = bpf_get_current_task_btf();
    /* A softirq that raises itself again stays what it was. */
    bool own = !control->irq && current->pid && control->softirq != BY_SOFTIRQ;
    if (own)
        control->raised |= 1u << number;
    return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry, unsigned int number)
{
    struct control *control = here(bpf_get_smp_processor_id());
    if (!control || number > 31)
        return 0;
    __u32 current = ((struct task_struct *)bpf_get_current_task_btf())->pid;
    bool own = control->raised >> number & 1;
    control->raised &= ~(1u << number);
    bool outside = !own || !current || bpf_map_lookup_elem(&softirq_threads, &current);
    control->softirq = outside ? BY_SOFTIRQ : BY_INLINE_SOFTIRQ;
    return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit, unsigned int number)
{
    struct control *control = here(bpf_get_smp_processor_id());
    if (control)
        control->softirq = 0;
    return 0;
}
