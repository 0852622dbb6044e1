//! Global earliest deadline first: one ready set for all CPUs, the `m` earliest deadlines run.
//!
//! | rule | where it is from | state | test |
//! |---|---|---|---|
//! | the job with the earliest absolute deadline runs; deadline = release + relative deadline | Liu & Layland 1973; Dhall & Liu 1978 for several CPUs | modelled | `sim/tests/oracles.rs` (Buttazzo, Dhall, W1) |
//! | a running job wins ties (`ties=id`: the smaller task number does); among waiting jobs the smaller task number goes first | our choice, stated because published simulators differ by it | modelled | W1's preemption counts, 11,657 and 11,813 |
//! | jobs that come and jobs that end in one instant are decided together: no preemption that is undone at once | our choice | modelled | the same |
//! | relative deadline = `deadline` of policy `deadline:…`; tasks of other policies have none and run after all those | | simplified: no class order among them, first come first served | `without_deadlines_first_come_first_served` |
//! | admission test, CBS throttling | Linux SCHED_DEADLINE | omitted | |

use crate::registry::Entry;
use crate::{CellLocks, Change, Cmd, Cx, Knob, KnobKind, Lock, Locks, Needs, Pick, Prev, Scheduler, Wake};
use schedlab_model::{CpuId, Policy, TaskId};

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "edf",
    summary: "global earliest deadline first over jobs of policy deadline (no budget enforcement)",
    knobs,
    build: |_, knobs| Box::new(edf(knobs.word("ties", "running") == "id")),
};

fn knobs() -> Vec<Knob> {
    vec![Knob {
        name: "ties",
        kind: KnobKind::Word(&["running", "id"]),
        default: "running",
        doc: "equal deadlines: the running job keeps the CPU, or the smaller task number gets it",
    }]
}

/// With the simulator's locks. `ties_by_id`: see the knob `ties`.
pub fn edf(ties_by_id: bool) -> GlobalEdf<CellLocks> {
    GlobalEdf { ties_by_id, state: Lock::new(State::default()) }
}

/// Later than every deadline: not ready, or an idle CPU.
const NEVER: u64 = u64::MAX;
/// Without a deadline: before an idle CPU, after every deadline; the order of arrival is added.
const BACKGROUND: u64 = 1 << 63;

/// See the module.
pub struct GlobalEdf<L: Locks> {
    ties_by_id: bool,
    state: L::Lock<State>,
}

/// Key and task of whoever runs (or is about to) on a CPU; larger = less urgent.
type Urgency = (u64, u32);
const IDLE: Urgency = (NEVER, u32::MAX);

#[derive(Default)]
struct State {
    ready: ReadySet,
    /// Deadline of every task's present job.
    keys: Vec<u64>,
    /// What every CPU runs, or will run after the requested decision.
    cpus: Vec<Urgency>,
    arrivals: u64,
}

/// The keys of all tasks, `NEVER` when not ready, under a winner tree. Equal keys: the smaller task number.
#[derive(Default)]
struct ReadySet {
    tree: Vec<u64>,
    leaves: usize,
}

impl ReadySet {
    fn new(tasks: usize) -> ReadySet {
        let leaves = tasks.next_power_of_two().max(2);
        ReadySet { tree: vec![NEVER; 2 * leaves], leaves }
    }
    #[inline]
    fn set(&mut self, task: usize, key: u64) {
        let mut node = self.leaves + task;
        self.tree[node] = key;
        while node > 1 {
            let smaller = self.tree[node].min(self.tree[node ^ 1]);
            node >>= 1;
            if self.tree[node] == smaller {
                break;
            }
            self.tree[node] = smaller;
        }
    }
    #[inline]
    fn first(&self) -> Option<Urgency> {
        let key = self.tree[1];
        if key == NEVER {
            return None;
        }
        let mut node = 1;
        while node < self.leaves {
            node *= 2;
            node += usize::from(self.tree[node] != key);
        }
        Some((key, (node - self.leaves) as u32))
    }
    fn iter(&self) -> impl Iterator<Item = Urgency> {
        let keys = self.tree[self.leaves..].iter().enumerate();
        keys.filter(|(_, key)| **key != NEVER).map(|(task, key)| (*key, task as u32))
    }
}

impl State {
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
        self.keys[task.index()] = key;
        key
    }

    /// The most urgent ready job that may run on `cpu`.
    #[inline]
    fn best(&self, cx: &Cx<'_>, cpu: CpuId) -> Option<Urgency> {
        let first = self.ready.first()?;
        let allowed = |job: &Urgency| cx.task(TaskId(job.1)).affinity.contains(cpu);
        if allowed(&first) { Some(first) } else { self.ready.iter().filter(allowed).min() }
    }

    /// The CPU for a job that became ready: idle, the last one first, or the one with the least urgent job.
    fn place(&self, cx: &Cx<'_>, task: TaskId, beats: impl Fn(Urgency) -> bool) -> Option<CpuId> {
        let view = cx.task(task);
        let last = view.last_cpu();
        if self.cpus[last.index()] == IDLE && view.affinity.contains(last) {
            return Some(last);
        }
        let mut worst: Option<(usize, Urgency)> = None;
        for (cpu, urgency) in self.cpus.iter().enumerate() {
            if worst.is_none_or(|(_, w)| *urgency > w) && view.affinity.contains(cpu.into()) {
                worst = Some((cpu, *urgency));
            }
        }
        worst.filter(|(_, w)| beats(*w)).map(|(cpu, _)| cpu.into())
    }

    /// Whether CPUs whose task left in this very instant, and which decide after this one, will take every
    /// waiting job that `beats` the one here: then a preemption here would be undone at once.
    fn others_take(&self, cx: &Cx<'_>, beats: impl Fn(Urgency) -> bool) -> bool {
        let leaving = |view: &&crate::CpuView| {
            view.current().is_some_and(|task| cx.task(task).runnable() == crate::Runnable::No)
        };
        let free = cx.world.cpus.iter().filter(leaving).count();
        free > 0 && self.ready.iter().filter(|job| beats(*job)).count() <= free
    }

    fn enqueue(&mut self, cx: &Cx<'_>, task: TaskId, beats: impl Fn(Urgency, Urgency) -> bool) {
        let key = self.key(cx, task);
        self.ready.set(task.index(), key);
        if let Some(cpu) = self.place(cx, task, |running| beats((key, task.0), running)) {
            self.cpus[cpu.index()] = (key, task.0);
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
        let mut state = self.state.lock();
        state.ready = ReadySet::new(cx.world.tasks.len());
        state.keys = vec![NEVER; cx.world.tasks.len()];
        state.cpus = vec![IDLE; cx.world.cpus.len()];
        state.arrivals = 0;
    }

    fn wake(&self, cx: &Cx<'_>, task: TaskId, _wake: Wake) {
        self.state.lock().enqueue(cx, task, |job, running| self.beats(job, running));
    }

    fn leave(&self, _cx: &Cx<'_>, task: TaskId) {
        self.state.lock().ready.set(task.index(), NEVER);
    }

    fn yielded(&self, cx: &Cx<'_>, task: TaskId) {
        // A job with a deadline keeps it; others go behind their equals.
        let mut state = self.state.lock();
        state.key(cx, task);
    }

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        let mut state = self.state.lock();
        let stays = prev.filter(|_| why == Prev::Runnable).map(|task| (state.keys[task.index()], task.0));
        let best = state.best(cx, cpu);
        let next = match (stays, best) {
            (Some(own), Some(other))
                if self.beats(other, own) && !state.others_take(cx, |job| self.beats(job, own)) =>
            {
                state.ready.set(own.1 as usize, own.0);
                Some(other)
            }
            (Some(own), _) => Some(own),
            (None, other) => other,
        };
        state.cpus[cpu.index()] = next.unwrap_or(IDLE);
        match next {
            Some((_, task)) => {
                if next != stays {
                    state.ready.set(task as usize, NEVER);
                }
                Pick::run(TaskId(task))
            }
            None => Pick::IDLE,
        }
    }

    fn changed(&self, cx: &Cx<'_>, change: Change) {
        if let Change::Released(task) = change
            && let Some(cpu) = cx.task(task).on_cpu()
        {
            let mut state = self.state.lock();
            let key = state.key(cx, task);
            state.cpus[cpu.index()] = (key, task.0);
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
                    Some(cpu) => state.cpus[cpu.index()] = (state.key(cx, i.into()), i as u32),
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
                state.ready.iter().collect::<Vec<_>>()
            ),
            None => "locked".to_owned(),
        }
    }
}
