/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 * What the flight recorder has the kernel sum up: each task's state, sums of waits by class (user space says
 * which tasks are one), and which stretches are longer than the least bound of a rule. Only these are told as
 * records; everything else is read once a second or so.
 *
 * What a wait, a run and a block are is what crates/trace/src/analysis/follow.rs says;
 * crates/cli/tests/it/live/flight_sums.rs compares both. The layouts are those of
 * crates/host/src/record/bpf/sums.rs. */

/* Set by the loader; 0: nothing is summed up. */
const volatile __u32 classes = 0;     /* of one CPU */
const volatile __u32 life_slots = 0;  /* a power of two */

enum { UNSEEN, RUNS, WAITS, BLOCKED };            /* state of a task */
enum { FREE_TO_RUN, HELD_BY_GROUP, DISPLACED };   /* what holds a waiting task up */
enum { TOLD_MET = 0, TOLD_WAIT = 1, TOLD_RUN = 2, TOLD_BLOCK = 3 };
enum { FULLY_THROTTLED = 1 };                     /* detail of TOLD */
enum { NO_CLASS = 0xffffffff };                   /* the idle task's */

/* A task. `class` and what follows `kernel's` is user space's. */
struct life {
    __u32 tid;          /* 0: this place is free */
    __u32 state;
    __u64 since;        /* when the state began */
    __u64 queued;       /* of a wait: since when at this CPU */
    __u64 excused;      /* of a wait: time for which a limit held it up at other CPUs */
    __u32 held;
    __u32 class;        /* the place among the sums is in the lower 16 bits */
    __u64 wait, run;    /* a stretch that is as long is told; 0: none is */
    __u64 block;        /* its highest bit: waits that a limit held up are told */
};

#define TELL_THROTTLED (1ull << 63)
#define BUCKETS 208
#define CULPRITS 16

/* One class on one CPU. */
struct sums {
    __u64 waits;
    __u64 waited;
    __u64 ran;
    __u64 throttled;
    __u64 unknown;      /* of `waited`: who ran meanwhile is not known */
    __u64 by_others;    /* of `waited`: others than the first CULPRITS ran */
    struct {
        __u64 time;
        __u32 class;
        __u32 used;
    } culprits[CULPRITS];
    __u64 counts[BUCKETS]; /* waits by length, see bucket() */
};

/* Who was on a CPU, the last switches. */
#define PAST 64
struct past {
    __u64 next;
    __u64 on;           /* the task that came with the last one */
    struct {
        __u64 at;
        __u32 class;
        __u32 rank;     /* the scheduling class: the higher, the lower its rank */
    } who[PAST];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct life);
} lives SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct sums);
} sums SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct past);
} pasts SEC(".maps");

#define ONE_BY_ONE _Pragma("clang loop unroll(disable)")

/* Places that a task may have: from its number on. Thread ids follow one another, so the first is it nearly
 * always. */
#define PROBES 8

INLINE struct life *life_at(__u32 index)
{
    index &= life_slots - 1;
    return bpf_map_lookup_elem(&lives, &index);
}

INLINE struct life *life_of(__u32 tid)
{
    ONE_BY_ONE
    for (int i = 0; i < PROBES; i++) {
        struct life *life = life_at(tid + i);
        if (!life)
            return 0;
        if (life->tid == tid)
            return life;
    }
    return 0;
}

/* A place for a task that has none. User space claims places in the same way. */
static __attribute__((noinline)) int claim_life(__u32 tid)
{
    ONE_BY_ONE
    for (int i = 0; i < PROBES; i++) {
        struct life *life = life_at(tid + i);
        if (!life)
            return 0;
        if (!life->tid && !__sync_val_compare_and_swap(&life->tid, 0, tid))
            return 1;
    }
    return 0;
}

INLINE struct life *life_made(__u32 tid)
{
    struct life *life = life_of(tid);
    if (life || !claim_life(tid))
        return life;
    return life_of(tid);
}

INLINE void forget_life(struct life *life)
{
    life->state = UNSEEN;
    life->held = FREE_TO_RUN;
    life->class = 0;
    life->wait = life->run = life->block = 0;
    asm volatile("" ::: "memory");
    *(volatile __u32 *)&life->tid = 0;
}

INLINE struct sums *sums_of(__u32 cpu, __u32 class)
{
    __u32 place = class & 0xffff;
    __u32 index = cpu * classes + (place < classes ? place : 0);
    return bpf_map_lookup_elem(&sums, &index);
}

/* Eight buckets an octave, in units of 125 ns, so that powers of two of a microsecond are bounds: as the same
 * function of crates/host/src/record/bpf/sums.rs. A bucket holds its upper bound. */
INLINE __u32 bucket(__u64 length)
{
    if (length)
        length--;
    __u64 units = length < 1ull << 32 ? length * 0x10624dd3ull >> 35 : length / 125;
    if (units < 8)
        return units;
    if (units >= 1ull << 28)
        return BUCKETS - 1;
    __u32 left = units, octave = 0;
    if (left >= 1u << 16) { octave += 16; left >>= 16; }
    if (left >= 1u << 8) { octave += 8; left >>= 8; }
    if (left >= 1u << 4) { octave += 4; left >>= 4; }
    if (left >= 1u << 2) { octave += 2; left >>= 2; }
    if (left >= 1u << 1) octave += 1;
    __u32 number = (octave - 3) * 8 + (__u32)(units >> (octave - 3));
    return number < BUCKETS ? number : BUCKETS - 1;
}

INLINE void told(struct control *control, __u32 cpu, __u64 at, __u32 tid, __u64 since, __u32 what,
                 __u64 throttled, bool fully)
{
    __u32 sequence;
    /* Only a task that wakes itself may be interrupted here: as for every record of a wakeup. */
    struct record *record = claim(control, cpu, 0, &sequence);
    /* Time that a limit took has a grain of 1024 ns. */
    __u64 grains = throttled >> 10;
    if (record)
        fill(record, at, TOLD, fully ? FULLY_THROTTLED : 0, tid, (__u32)since, since >> 32, what,
             grains < 0xffffffff ? grains : 0xffffffff, sequence);
}

/* The place of a task that switches. One that is seen for the first time is told: user space gives it its class. */
INLINE struct life *life_met(struct control *control, __u32 cpu, __u64 at, __u32 tid)
{
    struct life *life = life_of(tid);
    if (life || !claim_life(tid))
        return life;
    told(control, cpu, at, tid, 0, TOLD_MET, 0, 0);
    return life_of(tid);
}

INLINE void blame(struct sums *of, __u32 class, __u64 time)
{
    ONE_BY_ONE
    for (int i = 0; i < CULPRITS; i++) {
        if (!of->culprits[i].used) {
            of->culprits[i].class = class;
            of->culprits[i].used = 1;
        }
        if (of->culprits[i].class == class) {
            of->culprits[i].time += time;
            return;
        }
    }
    of->by_others += time;
}

/* Goes back through those that were on the CPU while a task waited at it. Returns the time for which a task of
 * lower rank was, where that is asked for. */
INLINE __u64 meanwhile(struct past *past, struct sums *of, __u64 from, __u64 to, __u32 rank, bool displaced)
{
    __u64 end = to, held = 0;
    ONE_BY_ONE
    for (__u32 i = 1; i <= PAST; i++) {
        __u32 place = ((__u32)past->next - i) & (PAST - 1);
        __u64 at = past->who[place].at;
        __u32 class = past->who[place].class;
        if (!at)
            break;
        __u64 begin = at > from ? at : from;
        if (end > begin) {
            if (displaced && past->who[place].rank > rank)
                held += end - begin;
            else if (class != NO_CLASS)
                blame(of, class, end - begin);
        }
        end = begin;
        if (at <= from)
            break;
    }
    if (end > from)
        of->unknown += end - from;
    return held;
}

INLINE __u32 rank_of(struct task_struct *task)
{
    return task->prio < 0 ? 1 : task->prio < 100 ? 2 : 3;
}

/* A task that was followed leaves the CPU. */
INLINE void leaves(struct control *control, __u32 cpu, __u64 at, struct task_struct *prev, __u32 next_rank,
                   unsigned int state, bool blocks, __u32 standing)
{
    struct life *life = life_met(control, cpu, at, prev->pid);
    if (!life)
        return;
    if (life->state == RUNS) {
        __u64 ran = at - life->since;
        struct sums *of = sums_of(cpu, life->class);
        if (of)
            of->ran += ran;
        if (life->run && ran >= life->run)
            told(control, cpu, at, prev->pid, life->since, TOLD_RUN, 0, 0);
    }
    if (blocks && state & 0x80) { /* TASK_DEAD: this was its last switch */
        forget_life(life);
        return;
    }
    __u32 rank = rank_of(prev);
    life->held = FREE_TO_RUN;
    if (!state && standing & THROTTLED)
        life->held = HELD_BY_GROUP;
    else if (!state && rank < 3 && rank < next_rank)
        life->held = DISPLACED;
    life->excused = 0;
    life->since = life->queued = at;
    life->state = blocks ? BLOCKED : WAITS;
}

INLINE void count_wait(struct sums *of, __u64 waited)
{
    __u32 number = bucket(waited);
    of->waits++;
    of->waited += waited;
    if (number < BUCKETS)
        of->counts[number]++;
}

/* A task gets the CPU. Returns its class. */
INLINE __u32 comes(struct control *control, __u32 cpu, __u64 at, struct task_struct *next, struct past *past)
{
    struct life *life = life_met(control, cpu, at, next->pid);
    if (!life)
        return 0;
    __u32 class = life->class;
    struct sums *of = life->state == WAITS ? sums_of(cpu, class) : 0;
    if (of) {
        __u64 waited = at - life->since, throttled = life->excused;
        count_wait(of, waited);
        if (life->held == HELD_BY_GROUP)
            throttled += at - life->queued;
        else
            throttled += meanwhile(past, of, life->queued, at, rank_of(next), life->held == DISPLACED);
        if (life->queued - life->since > life->excused)
            of->unknown += life->queued - life->since - life->excused;
        of->throttled += throttled;
        if ((life->wait && waited >= life->wait) || (throttled && life->block & TELL_THROTTLED))
            told(control, cpu, at, next->pid, life->since, TOLD_WAIT, throttled, throttled == waited);
    }
    life->since = at;
    life->state = RUNS;
    return class;
}

/* `prev` leaves a CPU to which it was not seen to come: a kernel may hide from BPF programs what some tasks do (the
 * first process, in some sandboxes), and with it the switch away from them. As crates/trace/src/repair.rs has it, the
 * time since the last switch that was seen is `prev`'s, so that its wait ends then; the task that was there has left. What
 * ran meanwhile counts as unknown: a second walk over the past would be too much for the verifier. */
INLINE void came_unseen(struct control *control, __u32 cpu, struct task_struct *prev, struct past *past)
{
    __u64 last = past->who[((__u32)past->next - 1) & (PAST - 1)].at;
    struct life *ran = past->on ? life_of((__u32)past->on) : 0;
    /* Since then it may run elsewhere. */
    if (ran && ran->state == RUNS && ran->since == last)
        ran->state = UNSEEN;
    struct life *life = prev->pid ? life_of(prev->pid) : 0;
    if (!life || life->state == RUNS)
        return;
    __u64 came = life->since > last ? life->since : last;
    struct sums *of = life->state == WAITS ? sums_of(cpu, life->class) : 0;
    if (of) {
        __u64 waited = came - life->since;
        count_wait(of, waited);
        of->unknown += waited - (life->excused < waited ? life->excused : waited);
        of->throttled += life->excused;
        if (life->wait && waited >= life->wait)
            told(control, cpu, came, prev->pid, life->since, TOLD_WAIT, life->excused, 0);
    }
    life->since = came;
    life->state = RUNS;
}

INLINE void sum_switch(struct control *control, __u32 cpu, __u64 at, struct task_struct *prev,
                       struct task_struct *next, unsigned int state, bool blocks, __u32 standing)
{
    struct past *past = bpf_map_lookup_elem(&pasts, &cpu);
    if (!past)
        return;
    __u32 rank = next->pid ? rank_of(next) : 4, class = NO_CLASS;
    if (past->next && past->on != (__u32)prev->pid)
        came_unseen(control, cpu, prev, past);
    if (prev->pid)
        leaves(control, cpu, at, prev, rank, blocks ? state : 0, blocks, standing);
    if (next->pid)
        class = comes(control, cpu, at, next, past);
    __u32 place = (__u32)past->next & (PAST - 1);
    past->who[place].at = at;
    past->who[place].class = class;
    past->who[place].rank = rank;
    past->on = (__u32)next->pid;
    past->next++;
}

INLINE void waits_from(struct life *life, __u64 at)
{
    life->excused = 0;
    life->held = FREE_TO_RUN;
    life->since = life->queued = at;
    life->state = WAITS;
}

INLINE void sum_waking(struct control *control, __u32 cpu, __u64 at, struct task_struct *task)
{
    struct life *life = life_of(task->pid);
    if (!life || life->state == RUNS || life->state == WAITS)
        return;
    __u64 bound = life->block & ~TELL_THROTTLED;
    if (life->state == BLOCKED && bound && at - life->since >= bound)
        told(control, cpu, at, task->pid, life->since, TOLD_BLOCK, 0, 0);
    waits_from(life, at);
}

/* A new task is what its parent is until user space has looked at it. */
INLINE void sum_new(__u64 at, struct task_struct *task, struct task_struct *parent)
{
    struct life *life = life_made(task->pid), *of = life_of(parent->pid);
    if (!life)
        return;
    if (of && of != life) {
        life->class = of->class;
        life->wait = of->wait;
        life->run = of->run;
        life->block = of->block;
    }
    waits_from(life, at);
}

/* The task's last run counts until here. */
INLINE void sum_exit(__u64 at, struct task_struct *task)
{
    __u32 cpu = bpf_get_smp_processor_id();
    struct life *life = life_of(task->pid);
    struct control *control = here(cpu);
    if (!life || !control || life->state != RUNS)
        return;
    if (life->run && at - life->since >= life->run)
        told(control, cpu, at, task->pid, life->since, TOLD_RUN, 0, 0);
    life->run = 0;
}

INLINE void sum_migrate(__u64 at, struct task_struct *task)
{
    struct life *life = life_of(task->pid);
    if (!life || life->state != WAITS)
        return;
    if (life->held == HELD_BY_GROUP)
        life->excused += at - life->queued;
    life->held = FREE_TO_RUN;
    life->queued = at;
}
