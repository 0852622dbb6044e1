//! The policy of ghOSt's Search experiment: one agent for a large machine sends every thread to the
//! nearest idle CPU, and gives a free CPU to the thread that has run least and is at home nearby.
//!
//! Used at Google for a query server on machines with several NUMA nodes and many core complexes
//! (CCX, one last-level cache each), where CFS balances too slowly and across caches. Worked
//! example (`a_woken_thread_goes_to_the_nearest_idle_cpu`, `sim/tests/it/search.rs`): on two
//! sockets of two CCX of two cores a thread that ran on CPU 0 wakes while CPU 0 is busy; it goes to
//! CPU 1 (its CCX); with that busy too to CPU 2 (its node), and only then to CPU 4.
//!
//! | rule | where it is from | state | test |
//! |---|---|---|---|
//! | one queue, ordered by run time so far: short queries overtake long ones | SOSP'21, Search (after notes; the policy was not published) | modelled | `sim/tests/it/search.rs` |
//! | a woken thread goes to an idle CPU: its last core, its CCX, its node, any | the same | modelled | the same |
//! | a free CPU prefers threads of its core and CCX, then of its node | the same | modelled: among the first `scan` that may run there; so a CPU keeps few threads of its own while another shares itself among many (`scan=1`: by run time alone) | the same |
//! | affinity of each thread (Search binds threads to sockets) | the same | modelled | the same |
//! | without priorities: nice values are not looked at | SOSP'21: "which is why C gains nothing" | modelled: `priorities=off`, the default | `scenarios/ghost-search.toml` |
//! | with priorities: run time is divided by the weight of the nice value | our extension, weights of CFS | modelled: `priorities=on` | the same |
//! | a sleeper keeps at most one slice of advantage | chosen here: the notes do not say | modelled | |
//! | a thread waits for a CPU of its CCX for a while before it goes further | from memory of the paper, not verified | `ccx_wait_ns`, off by default | `sim/tests/it/search.rs` |
//! | turns | chosen here: the notes do not say | `slice_ns`, 1 ms | |

use crate::registry::{Entry, Family};
use crate::{
    CellLocks, Change, Cmd, Cx, Lock, Locks, Needs, Pick, Prev, Runnable, Scheduler, Timer, Wake,
    Work,
};
use crate::{FlagKnob, KnobDefault, NumberKnob, TimeKnob, Times, rows};
use schedlab_model::{CpuId, Ns, TaskId};
use std::collections::BTreeSet;

const SLICE: TimeKnob = TimeKnob {
    name: "slice_ns",
    allowed: Times::between(Ns(500), Ns::from_s(10)),
    default: KnobDefault::Is(Ns::from_ms(1)),
    doc: "a thread that ran this long goes back into the queue",
    source: "schedlab",
};
const SCAN: NumberKnob = NumberKnob {
    name: "scan",
    unit: "threads",
    allowed: (1, 4096),
    default: KnobDefault::Is(16),
    doc: "of how many threads at the head of the queue a free CPU takes the nearest",
    source: "schedlab",
};
const PRIORITIES: FlagKnob = FlagKnob {
    name: "priorities",
    default: KnobDefault::Is(false),
    doc: "nice values count: run time is divided by their weight",
    source: "schedlab; weights of CFS",
};
const CCX_WAIT: TimeKnob = TimeKnob {
    name: "ccx_wait_ns",
    allowed: Times::between(Ns::ZERO, Ns::from_ms(100)),
    default: KnobDefault::Is(Ns::ZERO),
    doc: "how long a thread waits for a CPU of its own CCX before it goes further",
    source: "ghOSt (SOSP'21), Search, from memory",
};
/// Weight of nice 0.
const NICE_0: u64 = 1024;

/// How far a CPU is from where a thread is at home.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Distance {
    Core,
    Ccx,
    Node,
    Far,
}

#[derive(Clone, Copy, Debug)]
struct Rules {
    slice: Ns,
    scan: usize,
    priorities: bool,
    ccx_wait: Ns,
}

/// What is known of one thread.
#[derive(Clone, Copy, Default)]
struct Account {
    /// Run time so far, by weight with priorities: its place in the queue.
    key: u64,
    queued: bool,
    /// It ran before: it is at home somewhere.
    ran: bool,
    yielded: bool,
    /// When it was queued, or began to run.
    since: Ns,
}

#[derive(Clone, Copy, Default)]
struct Seat {
    runs: Option<TaskId>,
    /// It was asked to decide and has not done so.
    asked: bool,
}

struct SearchState {
    rules: Rules,
    queue: BTreeSet<(u64, TaskId)>,
    tasks: Vec<Account>,
    cpus: Vec<Seat>,
    /// Key of the last thread that was picked, never less than before.
    floor: u64,
}

struct Search<L: Locks> {
    state: L::Lock<SearchState>,
    waits: bool,
}

impl SearchState {
    fn fill(&mut self, cx: &Cx<'_>) {
        self.queue.clear();
        self.tasks = vec![Account::default(); cx.world.tasks.len()];
        self.cpus = vec![Seat::default(); cx.world.cpus.len()];
    }

    fn distance(&self, cx: &Cx<'_>, task: TaskId, cpu: CpuId) -> Distance {
        if !self.tasks[task.index()].ran {
            return Distance::Core;
        }
        let places = cx.world.topology.places();
        let (home, there) = (places[cx.task(task).last_cpu().index()], places[cpu.index()]);
        match () {
            () if home.core == there.core => Distance::Core,
            () if home.llc == there.llc => Distance::Ccx,
            () if home.node == there.node => Distance::Node,
            () => Distance::Far,
        }
    }

    fn push(&mut self, cx: &Cx<'_>, task: TaskId) {
        let account = &mut self.tasks[task.index()];
        account.key = account.key.max(self.floor.saturating_sub(self.rules.slice.0));
        (account.queued, account.since) = (true, cx.now);
        self.queue.insert((account.key, task));
        cx.did(Work::TreeStep, self.queue.len().ilog2() + 1);
        cx.touch(task, true);
    }

    fn remove(&mut self, task: TaskId) {
        let account = &mut self.tasks[task.index()];
        if std::mem::take(&mut account.queued) {
            self.queue.remove(&(account.key, task));
        }
    }

    /// Asks the nearest idle CPU for a queued thread. `patient`: not one beyond its CCX, but for a
    /// timer.
    fn place(&mut self, cx: &Cx<'_>, task: TaskId, patient: bool) {
        let view = cx.task(task);
        let idle = |(cpu, seat): (usize, &Seat)| {
            let cpu = CpuId::from(cpu);
            let free = seat.runs.is_none() && !seat.asked && cx.cpu(cpu).online;
            (free && view.affinity.contains(cpu)).then(|| {
                let other = view.last_cpu() != cpu;
                (self.distance(cx, task, cpu), other, cpu)
            })
        };
        let best = self.cpus.iter().enumerate().filter_map(idle).min();
        cx.did(Work::Scan, 1);
        match best {
            Some((distance, _, _)) if patient && distance > Distance::Ccx => {
                cx.push(Cmd::Arm(Timer::Task(task), cx.now + self.rules.ccx_wait));
            }
            Some((_, _, cpu)) => {
                self.cpus[cpu.index()].asked = true;
                cx.push(Cmd::Resched(cpu));
            }
            // The task that frees a CPU of another CCX leaves it to others for as long.
            None if patient => cx.push(Cmd::Arm(Timer::Task(task), cx.now + self.rules.ccx_wait)),
            None => {}
        }
    }

    fn patient(&self, task: TaskId) -> bool {
        self.rules.ccx_wait > Ns::ZERO && self.tasks[task.index()].ran
    }

    fn put(&mut self, cx: &Cx<'_>, prev: TaskId, why: Prev) {
        let weight = match self.rules.priorities {
            true => crate::linux::weight_of_nice(cx.task(prev).nice),
            false => NICE_0,
        };
        let account = &mut self.tasks[prev.index()];
        let ran = cx.now.saturating_sub(account.since).0;
        account.key = account.key.saturating_add(ran * NICE_0 / weight);
        account.ran = true;
        if why != Prev::Runnable || account.queued {
            return;
        }
        if std::mem::take(&mut account.yielded) {
            account.key = account.key.saturating_add(self.rules.slice.0);
        }
        self.push(cx, prev);
    }

    /// The thread for `cpu`: of the first `scan` that may run there the nearest, among equals the
    /// first; with its key.
    fn best(&self, cx: &Cx<'_>, cpu: CpuId) -> Option<(u64, TaskId)> {
        let mut best: Option<(Distance, u64, TaskId)> = None;
        let mut seen = 0;
        for &(key, task) in &self.queue {
            cx.did(Work::Scan, 1);
            if !cx.task(task).affinity.contains(cpu) {
                continue;
            }
            let distance = self.distance(cx, task, cpu);
            let waited = cx.now.saturating_sub(self.tasks[task.index()].since);
            if distance > Distance::Ccx && self.patient(task) && waited < self.rules.ccx_wait {
                continue;
            }
            // Core and CCX share a cache: between them the run time decides.
            let class = distance.max(Distance::Ccx);
            if best.is_none_or(|(than, _, _)| class < than) {
                best = Some((class, key, task));
            }
            seen += 1;
            if class == Distance::Ccx || seen >= self.rules.scan {
                break;
            }
        }
        best.map(|(_, key, task)| (key, task))
    }

    /// The same, off the queue.
    fn take(&mut self, cx: &Cx<'_>, cpu: CpuId) -> Option<TaskId> {
        let (key, task) = self.best(cx, cpu)?;
        self.queue.remove(&(key, task));
        self.floor = self.floor.max(key);
        let account = &mut self.tasks[task.index()];
        (account.queued, account.since) = (false, cx.now);
        Some(task)
    }
}

impl<L: Locks> Scheduler for Search<L> {
    fn needs(&self) -> Needs {
        Needs { wakeups: true, exact_slices: true, task_timers: self.waits, ..Needs::default() }
    }

    fn refuses(&self, policy: schedlab_model::Policy) -> Option<&'static str> {
        super::refuses_deadlines(policy)
    }

    fn init(&self, cx: &Cx<'_>) {
        self.state.lock().fill(cx);
    }

    fn wake(&self, cx: &Cx<'_>, task: TaskId, _wake: Wake) {
        cx.did(Work::Lock, 1);
        let mut state = self.state.lock();
        state.push(cx, task);
        let patient = state.patient(task);
        state.place(cx, task, patient);
    }

    fn leave(&self, _cx: &Cx<'_>, task: TaskId) {
        self.state.lock().remove(task);
    }

    fn yielded(&self, _cx: &Cx<'_>, task: TaskId) {
        self.state.lock().tasks[task.index()].yielded = true;
    }

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        cx.did(Work::Lock, 1);
        let mut state = self.state.lock();
        if let Some(prev) = prev {
            state.put(cx, prev, why);
        }
        let next = state.take(cx, cpu);
        state.cpus[cpu.index()] = Seat { runs: next, asked: false };
        if let Some(prev) = prev.filter(|prev| state.tasks[prev.index()].queued) {
            let patient = state.patient(prev);
            state.place(cx, prev, patient);
        }
        let slice = state.rules.slice;
        next.map_or(Pick::IDLE, |task| Pick { slice_ns: Some(slice), ..Pick::run(task) })
    }

    fn timer(&self, cx: &Cx<'_>, timer: Timer) {
        let mut state = self.state.lock();
        if let Timer::Task(task) = timer
            && state.tasks[task.index()].queued
        {
            state.place(cx, task, false);
        }
    }

    fn ahead(&self, cx: &Cx<'_>, cpu: CpuId) -> Option<TaskId> {
        self.state.lock().best(cx, cpu).map(|(_, task)| task)
    }

    fn changed(&self, cx: &Cx<'_>, change: Change) {
        let mut state = self.state.lock();
        match change {
            Change::Created { task, .. } => state.tasks[task.index()] = Account::default(),
            Change::Affinity(task) => {
                match state.cpus.iter().position(|seat| seat.runs == Some(task)) {
                    Some(cpu) if !cx.task(task).affinity.contains(cpu.into()) => {
                        cx.push(Cmd::Displace(task))
                    }
                    None if state.tasks[task.index()].queued => state.place(cx, task, false),
                    _ => {}
                }
            }
            Change::Online(cpu, true) => cx.push(Cmd::Resched(cpu)),
            _ => {}
        }
    }

    fn resync(&self, cx: &Cx<'_>) {
        let mut state = self.state.lock();
        state.fill(cx);
        for (task, view) in cx.world.tasks.iter().enumerate().filter(|(_, view)| view.alive) {
            let task = TaskId::from(task);
            match view.on_cpu() {
                Some(cpu) => {
                    state.tasks[task.index()].since = cx.now;
                    state.cpus[cpu.index()].runs = Some(task);
                }
                None if view.runnable() != Runnable::No => state.push(cx, task),
                None => {}
            }
        }
        let queued: Vec<TaskId> = state.queue.iter().map(|(_, task)| *task).collect();
        queued.into_iter().for_each(|task| state.place(cx, task, false));
    }

    fn explain(&self, _cx: &Cx<'_>, cpu: CpuId) -> String {
        match self.state.try_lock() {
            Some(state) => {
                format!("runs {:?}, queue {:?}", state.cpus[cpu.index()].runs, state.queue)
            }
            None => "locked".to_owned(),
        }
    }
}

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "search",
    summary: "nearest idle CPU by core, CCX and NUMA node, least run time first (ghOSt's Search \
              policy)",
    family: Family::Agent,
    proposed_live: false,
    knobs: || rows(&[&SLICE, &SCAN, &PRIORITIES, &CCX_WAIT], &()),
    build: |_, knobs| {
        let rules = Rules {
            slice: knobs.get(&SLICE),
            scan: knobs.get(&SCAN) as usize,
            priorities: knobs.get(&PRIORITIES),
            ccx_wait: knobs.get(&CCX_WAIT),
        };
        let (queue, tasks, cpus) = (BTreeSet::new(), Vec::new(), Vec::new());
        let state = SearchState { rules, queue, tasks, cpus, floor: 0 };
        Box::new(Search::<CellLocks> {
            state: <CellLocks as Locks>::Lock::new(state),
            waits: rules.ccx_wait > Ns::ZERO,
        })
    },
};
