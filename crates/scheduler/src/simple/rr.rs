//! Round robin on every CPU for itself: one first-in-first-out queue each, fixed slices, no
//! balancing. The scheduler of the first time-sharing systems and of textbooks; here the plain
//! thing to compare with.
//!
//! # Worked example
//! Two hogs and a task that wakes at 5 ms for 1 ms, on one CPU, slices of 4 ms: a 0–4, b 4–8, a
//! 8–12; the third task goes to the end at 5 (behind a), runs 12–13 and has waited 7 ms; then b
//! 13–17, a, b … Test: `rr_takes_turns_of_4_ms`.
//!
//! # Fidelity
//! | rule | where it is from | state | test |
//! |---|---|---|---|
//! | a task runs for a slice at most, then goes to the end of its CPU's queue | textbook | modelled | `sim/tests/it/workloads.rs` (W2: 473,124 slices) |
//! | a woken task goes to the end; it never preempts | textbook | modelled | the same |
//! | a task is placed when it is created: the allowed CPU with the fewest tasks, the lowest of equals; again only when its affinity excludes that CPU | our choice | modelled | `sim/tests/it/agent_schedulers.rs` |
//! | policy, nice, groups | | omitted: every task is equal | |

use crate::registry::{Entry, Family};
use crate::{CellLocks, Change, Cmd, Cx, Lock, Locks, Needs, Pick, Prev, Scheduler, Wake};
use crate::{KnobDefault, TimeKnob, Times, rows};
use schedlab_model::{CpuId, Ns, TaskId};
use std::collections::VecDeque;

const SLICE: TimeKnob = TimeKnob {
    name: "slice_ns",
    allowed: Times::between(Ns::from_us(1), Ns::from_s(10)),
    default: KnobDefault::Is(Ns::from_ms(4)),
    doc: "length of a slice, by a timer of its own (not rounded to ticks)",
    source: "schedlab: one tick at HZ=250",
};

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "rr",
    summary: "round robin per CPU with exact slices, no balancing",
    family: Family::Textbook,
    proposed_live: true,
    knobs: || rows(&[&SLICE], &()),
    build: |_, knobs| Box::new(round_robin(knobs.get(&SLICE))),
};

/// With the simulator's locks.
pub fn round_robin(slice: Ns) -> RoundRobin<CellLocks> {
    RoundRobin { slice: Some(slice), state: Lock::new(RoundRobinState::default()) }
}

/// The same without slices: a task runs until it blocks.
pub fn first_in_first_out() -> RoundRobin<CellLocks> {
    RoundRobin { slice: None, state: Lock::new(RoundRobinState::default()) }
}

/// See the module.
pub struct RoundRobin<L: Locks> {
    slice: Option<Ns>,
    state: L::Lock<RoundRobinState>,
}

#[derive(Default)]
struct RoundRobinState {
    queues: Vec<VecDeque<TaskId>>,
    /// Tasks placed on each CPU.
    placed: Vec<u32>,
    /// The CPU of every task.
    home: Vec<CpuId>,
}

impl RoundRobinState {
    fn place(&mut self, cx: &Cx<'_>, task: TaskId) {
        let allowed = cx.task(task).affinity;
        let placed =
            self.placed.iter().enumerate().filter(|(cpu, _)| allowed.contains((*cpu).into()));
        if let Some((cpu, _)) = placed.min_by_key(|(cpu, tasks)| (**tasks, *cpu)) {
            self.home[task.index()] = cpu.into();
            self.placed[cpu] += 1;
        }
    }

    /// The affinity of a task changed: it finds another home when it may not run at the old one.
    fn evict(&mut self, cx: &Cx<'_>, task: TaskId) {
        let old = self.home[task.index()];
        if cx.task(task).affinity.contains(old) {
            return;
        }
        self.placed[old.index()] -= 1;
        self.place(cx, task);
        let queue = &mut self.queues[old.index()];
        let before = queue.len();
        queue.retain(|queued| *queued != task);
        if queue.len() < before {
            self.enqueue(cx, task);
        } else if cx.cpu(old).current() == Some(task) {
            cx.push(Cmd::Displace(task));
        }
    }

    fn enqueue(&mut self, cx: &Cx<'_>, task: TaskId) {
        let cpu = self.home[task.index()];
        self.queues[cpu.index()].push_back(task);
        if cx.task(task).last_cpu() != cpu {
            cx.push(Cmd::Moved(task, cpu));
        }
        if cx.cpu(cpu).current().is_none() {
            cx.push(Cmd::Resched(cpu));
        }
    }
}

impl<L: Locks> Scheduler for RoundRobin<L> {
    fn needs(&self) -> Needs {
        Needs {
            wakeups: true,
            exact_slices: self.slice.is_some(),
            own_marks: true,
            ..Needs::default()
        }
    }

    fn init(&self, cx: &Cx<'_>) {
        let mut state = self.state.lock();
        let cpus = cx.world.cpus.len();
        *state = RoundRobinState {
            queues: (0..cpus)
                .map(|_| VecDeque::with_capacity(cx.world.tasks.len() / cpus + 1))
                .collect(),
            placed: vec![0; cpus],
            home: vec![CpuId(0); cx.world.tasks.len()],
        };
        let alive = cx.world.tasks.iter().enumerate().filter(|(_, view)| view.alive);
        alive.for_each(|(task, _)| state.place(cx, task.into()));
    }

    fn wake(&self, cx: &Cx<'_>, task: TaskId, _wake: Wake) {
        self.state.lock().enqueue(cx, task);
    }

    fn leave(&self, _cx: &Cx<'_>, task: TaskId) {
        self.state
            .lock()
            .queues
            .iter_mut()
            .for_each(|queue| queue.retain(|queued| *queued != task));
    }

    fn yielded(&self, _cx: &Cx<'_>, _task: TaskId) {}

    fn schedule(&self, _cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        let mut state = self.state.lock();
        if let Some(task) = prev {
            match why {
                Prev::Runnable => state.queues[cpu.index()].push_back(task),
                Prev::Exited => state.placed[cpu.index()] -= 1,
                _ => {}
            }
        }
        match state.queues[cpu.index()].pop_front() {
            Some(task) => Pick { slice_ns: self.slice, ..Pick::run(task) },
            None => Pick::IDLE,
        }
    }

    fn ahead(&self, _cx: &Cx<'_>, cpu: CpuId) -> Option<TaskId> {
        self.state.lock().queues[cpu.index()].front().copied()
    }

    fn changed(&self, cx: &Cx<'_>, change: Change) {
        let mut state = self.state.lock();
        match change {
            Change::Created { task, .. } => state.place(cx, task),
            Change::Affinity(task) => state.evict(cx, task),
            _ => {}
        }
    }

    fn resync(&self, cx: &Cx<'_>) {
        self.init(cx);
        let mut state = self.state.lock();
        for (i, view) in cx.world.tasks.iter().enumerate() {
            if view.alive && view.runnable() != crate::Runnable::No && view.on_cpu().is_none() {
                state.enqueue(cx, i.into());
            }
        }
    }

    fn explain(&self, _cx: &Cx<'_>, cpu: CpuId) -> String {
        match self.state.try_lock() {
            Some(state) => format!("queue {:?}", state.queues.get(cpu.index())),
            None => "locked".to_owned(),
        }
    }
}
