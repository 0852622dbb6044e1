//! Global earliest deadline first: one ready set for all CPUs, the `m` earliest deadlines run. The
//! theory's scheduler (Liu and Layland 1973), without budgets; what Linux makes of it is
//! `linux::dl`.
//!
//! # Worked example
//! Buttazzo's pair on one CPU: a needs 2 of each 5, b needs 4 of each 7, together 34/35. At 0 a
//! goes first (deadline 5 against 7) and ends at 2; b runs from 2. At 5 a's second job comes with
//! deadline 10: b's is 7, it runs on to 6. Then a, 6 to 8. So a answers in 2, then in 3; over 35
//! units no task is late, the largest responses are 4 and 6, and one preemption is needed. Test:
//! `buttazzo_edf_pair`.
//!
//! # Fidelity
//! | rule | where it is from | state | test |
//! |---|---|---|---|
//! | the job with the earliest absolute deadline runs; deadline = release + relative deadline | Liu & Layland 1973; Dhall & Liu 1978 for several CPUs | modelled | `sim/tests/it/oracles.rs` (Buttazzo, Dhall, W1) |
//! | a running job wins ties (`ties=id`: the smaller task number does); among waiting jobs the smaller task number goes first | our choice, stated because published simulators differ by it | modelled | W1's preemption counts, 11,657 and 11,813 |
//! | jobs that come and jobs that end in one instant are decided together: no preemption that is undone at once | our choice | modelled | the same |
//! | relative deadline = `deadline` of policy `deadline:…`; tasks of other policies have none and run after all those | | simplified: no class order among them, first come first served | `without_deadlines_first_come_first_served` |
//! | admission test, CBS throttling | Linux SCHED_DEADLINE | omitted | |

use crate::registry::{Entry, Family};
use crate::{
    CellLocks, Change, Cmd, Cx, KnobDefault, Lock, Locks, Needs, Pick, Prev, Scheduler,
    TournamentTree, Wake, WordKnob, rows, words,
};
use schedlab_model::{CpuId, Policy, TaskId};

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "edf",
    summary: "global earliest deadline first over jobs of policy deadline (no budget enforcement)",
    family: Family::Textbook,
    proposed_live: false,
    knobs: || rows(&[&TIES], &()),
    build: |_, knobs| Box::new(edf(knobs.get(&TIES) == Ties::Id)),
};

words! {
    /// Which of two jobs with equal deadlines runs.
    enum Ties {
        /// The running one.
        Running = "running",
        /// The one of the smaller task number.
        Id = "id",
    }
}

const TIES: WordKnob<Ties> = WordKnob {
    name: "ties",
    default: KnobDefault::Is(Ties::Running),
    doc: "equal deadlines: the running job keeps the CPU, or the smaller task number gets it",
    source: "published simulators of EDF differ by this",
};

/// With the simulator's locks. `ties_by_id`: see the knob `ties`.
pub fn edf(ties_by_id: bool) -> GlobalEdf<CellLocks> {
    GlobalEdf { ties_by_id, state: Lock::new(EdfState::new(0, 0)) }
}

/// Later than every deadline: not ready, or an idle CPU.
const NEVER: u64 = u64::MAX;
/// Without a deadline: before an idle CPU, after every deadline; the order of arrival is added.
const BACKGROUND: u64 = 1 << 63;

/// See the module.
pub struct GlobalEdf<L: Locks> {
    ties_by_id: bool,
    state: L::Lock<EdfState>,
}

/// Key and task of the task that runs (or is about to) on a CPU; larger = less urgent.
type Urgency = (u64, u32);
const IDLE: Urgency = (NEVER, u32::MAX);

/// Urgency as one number, for trees.
#[inline]
fn pack((key, task): Urgency) -> u128 {
    u128::from(key) << 32 | u128::from(task)
}

#[inline]
fn unpack(packed: u128) -> Urgency {
    ((packed >> 32) as u64, packed as u32)
}

/// The ready tasks. Mostly few wait: up to `NEAR` stand in a sorted list, and what comes beyond
/// goes into a tree.
struct Ready {
    /// The most urgent last.
    near: Vec<Urgency>,
    far: TournamentTree<u128>,
}

const NEAR: usize = 16;
/// Up to so many CPUs are compared one by one.
const FEW: usize = 16;

impl Ready {
    fn new(tasks: usize) -> Ready {
        Ready { near: Vec::with_capacity(NEAR), far: TournamentTree::new(tasks, u128::MAX) }
    }

    #[inline]
    fn insert(&mut self, job: Urgency) {
        let mut at = self.near.len();
        if at == NEAR {
            return self.far.set(job.1 as usize, pack(job));
        }
        self.near.push(job);
        while at > 0 && self.near[at - 1] < job {
            self.near[at] = self.near[at - 1];
            at -= 1;
        }
        self.near[at] = job;
    }

    /// Takes a task out, if it is in.
    #[inline]
    fn remove(&mut self, task: u32) {
        match self.near.last() {
            Some(last) if last.1 == task => {
                self.near.pop();
            }
            _ => self.remove_inside(task),
        }
    }

    fn remove_inside(&mut self, task: u32) {
        match self.near.iter().position(|job| job.1 == task) {
            Some(at) => {
                self.near.remove(at);
            }
            None => self.far.set(task as usize, u128::MAX),
        }
    }

    /// The most urgent one.
    #[inline(always)]
    fn first(&self) -> Option<Urgency> {
        let (near, far) = (self.near.last().copied(), self.far.top());
        if far == u128::MAX {
            return near;
        }
        Some(near.map_or(unpack(far), |near| near.min(unpack(far))))
    }

    fn iter(&self) -> impl Iterator<Item = Urgency> {
        let far = self.far.keys().filter(|key| **key != u128::MAX).map(|key| unpack(*key));
        self.near.iter().copied().chain(far.take(if self.far.top() == u128::MAX {
            0
        } else {
            usize::MAX
        }))
    }
}

/// What is known of a task.
#[derive(Clone, Copy)]
struct Job {
    /// Deadline of its present job.
    key: u64,
    /// It may run on every CPU.
    anywhere: bool,
}

struct EdfState {
    ready: Ready,
    jobs: Vec<Job>,
    /// What every CPU runs, or will run after the requested decision.
    cpus: Vec<Urgency>,
    /// Idle CPUs, a bit each.
    idle: Vec<u64>,
    /// `cpus` the other way round: the least urgent wins, of equals the CPU with the smallest
    /// number. Asked only while no CPU is idle, so what has changed is kept in `stale` until then.
    lazy: TournamentTree<u128>,
    /// The same for few CPUs, which are compared one by one: key, task and CPU as one number.
    few: [u128; FEW],
    stale: Vec<u32>,
    is_stale: Vec<bool>,
    arrivals: u64,
}

/// The largest of eight numbers. Which one it is cannot be foreseen, so this is not a loop, which
/// would be compiled to branches.
#[inline(always)]
fn last_of(numbers: &[u128]) -> u128 {
    let &[a, b, c, d, e, f, g, h] = numbers else { return 0 };
    a.max(b).max(c.max(d)).max(e.max(f).max(g.max(h)))
}

impl EdfState {
    fn new(tasks: usize, cpus: usize) -> EdfState {
        let mut idle = vec![0; cpus.div_ceil(64)];
        (0..cpus).for_each(|cpu| idle[cpu / 64] |= 1 << (cpu % 64));
        EdfState {
            ready: Ready::new(tasks),
            jobs: vec![Job { key: NEVER, anywhere: false }; tasks],
            cpus: vec![IDLE; cpus],
            idle,
            lazy: TournamentTree::new(cpus, u128::MAX),
            few: [0; FEW],
            stale: (0..cpus as u32).collect(),
            is_stale: vec![true; cpus],
            arrivals: 0,
        }
    }

    #[inline]
    fn set_cpu(&mut self, cpu: usize, urgency: Urgency) {
        self.cpus[cpu] = urgency;
        let (word, bit) = (&mut self.idle[cpu / 64], 1 << (cpu % 64));
        *word = if urgency == IDLE { *word | bit } else { *word & !bit };
        if let Some(few) = self.few.get_mut(cpu) {
            *few = u128::from(urgency.0) << 64 | u128::from(urgency.1) << 16 | cpu as u128;
        }
        if self.cpus.len() > FEW && !std::mem::replace(&mut self.is_stale[cpu], true) {
            self.stale.push(cpu as u32);
        }
    }

    /// The idle CPU with the smallest number, else the one with the least urgent job.
    #[inline]
    fn laziest(&mut self) -> usize {
        match self.idle.iter().position(|word| *word != 0) {
            Some(word) => 64 * word + self.idle[word].trailing_zeros() as usize,
            None => self.least_urgent_of_all(),
        }
    }

    fn least_urgent_of_all(&mut self) -> usize {
        if self.cpus.len() <= FEW {
            let (low, high) = (&self.few[..FEW / 2], &self.few[FEW / 2..]);
            let last = if self.cpus.len() <= FEW / 2 {
                last_of(low)
            } else {
                last_of(low).max(last_of(high))
            };
            return last as u16 as usize;
        }
        while let Some(cpu) = self.stale.pop() {
            let urgency = pack(self.cpus[cpu as usize]);
            self.is_stale[cpu as usize] = false;
            self.lazy.set(cpu as usize, (!urgency << 32 >> 16) | u128::from(cpu));
        }
        (self.lazy.top() & 0xffff) as usize
    }

    /// The ready tasks with their urgency.
    fn ready(&self) -> impl Iterator<Item = Urgency> {
        self.ready.iter()
    }

    fn set_affinity(&mut self, cx: &Cx<'_>, task: TaskId) {
        let all = cx.world.all_cpus();
        self.jobs[task.index()].anywhere = cx.task(task).affinity.and(&all) == all;
    }

    fn key(&mut self, cx: &Cx<'_>, task: TaskId) -> u64 {
        let view = cx.task(task);
        let key = match view.policy {
            Policy::Deadline { deadline, .. } => {
                view.released.get().0.saturating_add(deadline.0).min(BACKGROUND - 1)
            }
            _ => {
                self.arrivals += 1;
                BACKGROUND + self.arrivals
            }
        };
        self.jobs[task.index()].key = key;
        key
    }

    #[inline]
    fn may_run(&self, cx: &Cx<'_>, task: u32, cpu: CpuId) -> bool {
        self.jobs[task as usize].anywhere || cx.task(TaskId(task)).affinity.contains(cpu)
    }

    /// The most urgent ready job that may run on `cpu`.
    #[inline(always)]
    fn best(&self, cx: &Cx<'_>, cpu: CpuId) -> Option<Urgency> {
        let first = self.ready.first()?;
        if self.may_run(cx, first.1, cpu) { Some(first) } else { self.best_of_all(cx, cpu) }
    }

    #[inline(never)]
    fn best_of_all(&self, cx: &Cx<'_>, cpu: CpuId) -> Option<Urgency> {
        self.ready().filter(|job| self.may_run(cx, job.1, cpu)).min()
    }

    /// The CPU for a job that became ready: idle, the last one first, or the one with the least
    /// urgent job.
    #[inline]
    fn place(
        &mut self,
        cx: &Cx<'_>,
        task: TaskId,
        beats: impl Fn(Urgency) -> bool,
    ) -> Option<CpuId> {
        let last = cx.task(task).last_cpu();
        if self.cpus[last.index()] == IDLE && self.may_run(cx, task.0, last) {
            return Some(last);
        }
        let cpu = if self.jobs[task.index()].anywhere {
            self.laziest()
        } else {
            self.least_urgent(cx, task)?
        };
        beats(self.cpus[cpu]).then(|| cpu.into())
    }

    /// Of the CPUs on which the task may run.
    fn least_urgent(&self, cx: &Cx<'_>, task: TaskId) -> Option<usize> {
        let allowed = (0..self.cpus.len()).filter(|cpu| self.may_run(cx, task.0, (*cpu).into()));
        allowed.min_by_key(|cpu| std::cmp::Reverse(self.cpus[*cpu]))
    }

    /// Whether CPUs whose task left in this very instant, and which decide after this one, will
    /// take every waiting job that `beats` the one here: then a preemption here would be undone at
    /// once.
    #[inline]
    fn others_take(&self, cx: &Cx<'_>, beats: impl Fn(Urgency) -> bool) -> bool {
        cx.out.others_may_decide() && self.leaving_take(cx, beats)
    }

    #[inline(never)]
    fn leaving_take(&self, cx: &Cx<'_>, beats: impl Fn(Urgency) -> bool) -> bool {
        let leaving = |view: &&crate::CpuView| {
            view.current().is_some_and(|task| cx.task(task).runnable() == crate::Runnable::No)
        };
        let free = cx.world.cpus.iter().filter(leaving).count();
        free > 0 && self.ready().filter(|job| beats(*job)).count() <= free
    }

    #[inline]
    fn enqueue(&mut self, cx: &Cx<'_>, task: TaskId, beats: impl Fn(Urgency, Urgency) -> bool) {
        let key = self.key(cx, task);
        self.ready.insert((key, task.0));
        if let Some(cpu) = self.place(cx, task, |running| beats((key, task.0), running)) {
            self.set_cpu(cpu.index(), (key, task.0));
            cx.push(Cmd::Resched(cpu));
        }
    }
}

impl<L: Locks> GlobalEdf<L> {
    /// Whether a waiting job takes the CPU from a running one.
    #[inline]
    fn beats(&self, waiting: Urgency, running: Urgency) -> bool {
        waiting.0 < running.0 || (self.ties_by_id && waiting < running)
    }
}

impl<L: Locks> Scheduler for GlobalEdf<L> {
    fn needs(&self) -> Needs {
        Needs { wakeups: true, ..Needs::default() }
    }

    fn init(&self, cx: &Cx<'_>) {
        let mut state = EdfState::new(cx.world.tasks.len(), cx.world.cpus.len());
        (0..cx.world.tasks.len()).for_each(|task| state.set_affinity(cx, task.into()));
        *self.state.lock() = state;
    }

    fn wake(&self, cx: &Cx<'_>, task: TaskId, _wake: Wake) {
        self.state.lock().enqueue(cx, task, |job, running| self.beats(job, running));
    }

    fn leave(&self, _cx: &Cx<'_>, task: TaskId) {
        self.state.lock().ready.remove(task.0);
    }

    fn yielded(&self, cx: &Cx<'_>, task: TaskId) {
        // A job with a deadline keeps it; others go behind their equals.
        let mut state = self.state.lock();
        state.key(cx, task);
    }

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        let mut state = self.state.lock();
        let stays = prev
            .filter(|_| why == Prev::Runnable)
            .map(|task| (state.jobs[task.index()].key, task.0));
        let best = state.best(cx, cpu);
        let next = match (stays, best) {
            (Some(own), Some(other))
                if self.beats(other, own) && !state.others_take(cx, |job| self.beats(job, own)) =>
            {
                state.ready.insert(own);
                Some(other)
            }
            (Some(own), _) => Some(own),
            (None, other) => other,
        };
        state.set_cpu(cpu.index(), next.unwrap_or(IDLE));
        match next {
            Some((_, task)) => {
                if next != stays {
                    state.ready.remove(task);
                }
                Pick::run(TaskId(task))
            }
            None => Pick::IDLE,
        }
    }

    fn ahead(&self, cx: &Cx<'_>, cpu: CpuId) -> Option<TaskId> {
        self.state.lock().best(cx, cpu).map(|(_, task)| TaskId(task))
    }

    fn changed(&self, cx: &Cx<'_>, change: Change) {
        // A live task has its affinity when it joins, which is after `init`.
        if let Change::Affinity(task) | Change::Created { task, .. } = change {
            self.state.lock().set_affinity(cx, task);
        }
        if let Change::Released(task) = change
            && let Some(cpu) = cx.task(task).on_cpu()
        {
            let mut state = self.state.lock();
            let key = state.key(cx, task);
            state.set_cpu(cpu.index(), (key, task.0));
            if state.best(cx, cpu).is_some_and(|other| self.beats(other, (key, task.0))) {
                cx.push(Cmd::Resched(cpu));
            }
        }
    }

    fn resync(&self, cx: &Cx<'_>) {
        self.init(cx);
        let mut state = self.state.lock();
        for (i, view) in cx.world.tasks.iter().enumerate() {
            if view.alive && view.runnable() != crate::Runnable::No {
                match view.on_cpu() {
                    Some(cpu) => {
                        let key = state.key(cx, i.into());
                        state.set_cpu(cpu.index(), (key, i as u32));
                    }
                    None => state.enqueue(cx, i.into(), |job, running| self.beats(job, running)),
                }
            }
        }
    }

    fn explain(&self, _cx: &Cx<'_>, cpu: CpuId) -> String {
        match self.state.try_lock() {
            Some(state) => format!(
                "runs {:?}, ready {:?}",
                state.cpus.get(cpu.index()),
                state.ready().collect::<Vec<_>>()
            ),
            None => "locked".to_owned(),
        }
    }
}
