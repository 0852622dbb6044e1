//! Agents on CPUs that do not exist, with threads that do not exist: every change of a priority is
//! checked when it is made.

use super::super::senders::Sent;
use super::*;
use crate::logged_core::CoreOptions;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The scheduling of a thread with the pretended kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Running,
    Parked,
    /// As it was before: SCHED_OTHER.
    Own,
    /// SCHED_IDLE, in a yield window.
    Behind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    To(Class),
    Sent(u32),
}

#[derive(Clone, Copy, Debug)]
struct Pretended {
    cpu: u32,
    class: Class,
    runnable: bool,
    alive: bool,
    /// What another process changed.
    interference: Interference,
    /// Not given back.
    managed: bool,
    /// It came from a CPU with an open yield window: its class must change.
    from_window: bool,
    /// It is inside of a lock of the kernel: it does not leave its CPU when it is sent.
    locked: bool,
    /// Where it is, though it was sent from there.
    leaves: Option<u32>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Cpu {
    armed: bool,
    fired: bool,
    rung: bool,
    /// In this round its last raised thread was lowered, with no other raised.
    hole: bool,
    /// Threads that left or entered the real-time class in this round.
    classes: usize,
}

/// The pretended kernel.
#[derive(Default, Debug)]
struct World {
    now: u64,
    cpus: Vec<Cpu>,
    threads: Vec<Pretended>,
    /// Wakeups that the agent of a CPU has not read yet.
    events: Vec<Vec<u32>>,
    changes: Vec<(u32, Change)>,
    faults: Vec<String>,
}

type Shared = Arc<Mutex<World>>;

fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn raised(&self, cpu: u32) -> impl Iterator<Item = &Pretended> {
        let here = move |one: &Pretended| one.leaves.unwrap_or(one.cpu) == cpu;
        self.threads.iter().filter(move |one| one.alive && here(one) && one.class == Class::Running)
    }

    fn set(&mut self, tid: u32, class: Class) -> bool {
        let one = self.threads[tid as usize];
        if !one.alive {
            return false;
        }
        self.changes.push((tid, Change::To(class)));
        let real_time = |class| matches!(class, Class::Running | Class::Parked);
        let here = one.leaves.unwrap_or(one.cpu);
        // Its class is a matter of the CPU that it belongs to.
        let cpu = &mut self.cpus[one.cpu as usize];
        cpu.classes += usize::from(real_time(class) != real_time(one.class) && !one.from_window);
        (self.threads[tid as usize].class, self.threads[tid as usize].from_window) = (class, false);
        let raised = self.raised(here).count();
        self.cpus[here as usize].hole |= one.class == Class::Running && raised == 0;
        if self.raised(here).filter(|one| one.leaves.is_none()).count() > 2 {
            self.faults.push(format!("{raised} threads are raised on CPU {}", one.cpu));
        }
        true
    }

    /// The block detector of a CPU runs when no thread above it wants the CPU.
    fn detectors(&mut self) {
        for cpu in 0..self.cpus.len() {
            self.let_out_alone(cpu as u32);
            let busy = self.raised(cpu as u32).any(|one| one.runnable);
            let one = &mut self.cpus[cpu];
            if one.armed && !busy {
                (one.armed, one.fired) = (false, true);
            }
        }
    }

    /// Returns the thread that would run on a CPU: the raised one; in a yield window the one with
    /// its own policy.
    fn runs(&self, cpu: u32) -> Option<u32> {
        let of = |class: Class| {
            let fits = |one: &Pretended| {
                one.alive
                    && one.managed
                    && one.runnable
                    && one.cpu == cpu
                    && one.leaves.is_none()
                    && one.class == class
            };
            self.threads.iter().position(fits).map(|tid| tid as u32)
        };
        of(Class::Running).or_else(|| of(Class::Own))
    }
}

struct PretendedControl {
    tid: u32,
    world: Shared,
}

impl ThreadControl for PretendedControl {
    fn tid(&self) -> u32 {
        self.tid
    }
    fn state(&self) -> ThreadActivity {
        match lock(&self.world).threads[self.tid as usize] {
            Pretended { alive: false, .. } => ThreadActivity::Gone,
            Pretended { runnable: true, .. } => ThreadActivity::Runnable,
            _ => ThreadActivity::Sleeping,
        }
    }
    fn raise(&self) -> bool {
        lock(&self.world).set(self.tid, Class::Running)
    }
    fn park(&self) -> bool {
        lock(&self.world).set(self.tid, Class::Parked)
    }
    fn set_own(&self) -> bool {
        lock(&self.world).set(self.tid, Class::Own)
    }
    fn set_behind(&self) -> bool {
        lock(&self.world).set(self.tid, Class::Behind)
    }
    fn send_to(&mut self, cpu: CpuId) -> Sent {
        let mut world = lock(&self.world);
        let one = world.threads[self.tid as usize];
        if one.interference == Interference::Cpus {
            return Sent::No;
        }
        if matches!(one.class, Class::Running | Class::Own) && one.alive {
            world
                .faults
                .push(format!("thread {} is sent away while it may run: {one:?}", self.tid));
        }
        world.changes.push((self.tid, Change::Sent(cpu.0)));
        let from_window = one.class == Class::Behind;
        let leaves = one.leaves.or(one.locked.then_some(one.cpu));
        world.threads[self.tid as usize] = Pretended { cpu: cpu.0, from_window, leaves, ..one };
        match (one.alive, leaves) {
            (false, _) => Sent::No,
            (true, None) => Sent::There,
            (true, Some(_)) => Sent::OnTheWay,
        }
    }
    fn leaves(&self) -> Option<CpuId> {
        lock(&self.world).threads[self.tid as usize].leaves.map(CpuId)
    }
    fn interference(&self) -> Interference {
        lock(&self.world).threads[self.tid as usize].interference
    }
    fn is_as_in_window(&self) -> bool {
        self.interference() != Interference::Policy
    }
    fn new_nice(&mut self) -> Option<Nice> {
        None
    }
    fn give_back(&mut self) {
        let mut world = lock(&self.world);
        world.set(self.tid, Class::Own);
        world.threads[self.tid as usize].managed = false;
    }
    fn let_go(&self, _: Interference) {
        lock(&self.world).threads[self.tid as usize].managed = false;
    }
}

struct PretendedCpu {
    cpu: usize,
    world: Shared,
}

impl CpuControl for PretendedCpu {
    fn arm(&mut self) {
        lock(&self.world).cpus[self.cpu].armed = true;
    }
    fn fired(&mut self) -> bool {
        std::mem::take(&mut lock(&self.world).cpus[self.cpu].fired)
    }
    fn wake_agent(&self) {
        lock(&self.world).cpus[self.cpu].rung = true;
    }
}

fn options(scheduler: &str, cpus: usize) -> CoreOptions {
    CoreOptions { scheduler: scheduler.to_owned(), cpus, tasks: 32, hz: 250, seed: 1 }
}

struct Play {
    world: Shared,
    /// The time that a round of an agent takes.
    round_ns: u64,
    state: AgentState<PretendedControl, PretendedCpu>,
}

impl Play {
    fn new(scheduler: &str, cpus: usize) -> Play {
        Play::under(
            LoggedCore::new(&options(scheduler, cpus)).expect("a scheduler of the registry"),
            cpus,
        )
    }

    fn under(core: LoggedCore, cpus: usize) -> Play {
        let world = Shared::default();
        lock(&world).cpus = vec![Cpu::default(); cpus];
        lock(&world).events = vec![Vec::new(); cpus];
        let clock = world.clone();
        let rules = Rules {
            clock: Box::new(move || Ns(lock(&clock).now)),
            used: Box::new(|| Ns::ZERO),
            hz: 250,
            starve_after: Ns::from_s(1),
            windows: YieldWindows::from_rt_limits(None, None),
        };
        let control = |cpu: usize| (CpuId(cpu as u32), PretendedCpu { cpu, world: world.clone() });
        let state = AgentState::new(core, rules, (0..cpus).map(control).collect(), 1 << 16);
        Play { world, round_ns: 0, state }
    }

    /// Takes on a sleeping thread, on the CPUs in turn.
    fn join(&mut self, policy: Policy) -> u32 {
        let cpus = self.state.slots.len();
        let tid = {
            let mut world = lock(&self.world);
            let (tid, interference) = (world.threads.len() as u32, Interference::None);
            let (cpu, class) = (tid % cpus as u32, Class::Parked);
            let (alive, managed, from_window) = (true, true, false);
            world.threads.push(Pretended {
                cpu,
                class,
                runnable: false,
                alive,
                interference,
                managed,
                from_window,
                locked: false,
                leaves: None,
            });
            tid
        };
        let control = PretendedControl { tid, world: self.world.clone() };
        let (cpu, affinity) = (CpuId(tid % cpus as u32), CpuSet::first(cpus));
        self.state.enter(0);
        self.state.join(NewThread {
            control,
            process: 1,
            taken_for: policy,
            nice: Nice::ZERO,
            affinity,
            cpu,
        });
        tid
    }

    fn with(scheduler: &str, cpus: usize, policies: &[&str]) -> Play {
        let mut play = Play::new(scheduler, cpus);
        for policy in policies {
            play.join(policy.parse().expect("a policy"));
        }
        play.settle();
        play
    }

    /// Makes a round as an agent does ([`super::super::agent`]), and checks what must hold after
    /// it.
    fn go_round(&mut self, slot: usize) {
        let events = {
            let mut world = lock(&self.world);
            world.cpus[slot].rung = false;
            world.cpus.iter_mut().for_each(|cpu| (cpu.hole, cpu.classes) = (false, 0));
            std::mem::take(&mut world.events[slot])
        };
        let windows = |state: &AgentState<_, _>| -> Vec<bool> {
            state.slots.iter().map(|slot: &CpuSlot<PretendedCpu>| slot.window.is_some()).collect()
        };
        let (before, logged) = (windows(&self.state), self.state.log.len());
        let (given_back, stale) = (self.state.counts.starved, self.state.counts.stale);
        let state = &mut self.state;
        state.enter(slot);
        state.look_at_arrival(slot);
        state.look_at_running(slot);
        events.into_iter().for_each(|tid| state.heard_wake(tid, WokenBy::Unknown));
        state.look_at_chosen_in_window(slot);
        state.fire_timers(slot);
        state.look_around(slot);
        state.settle(slot);
        state.update_window(slot);
        lock(&self.world).now += self.round_ns;
        let state = &mut self.state;
        state.leave(slot);
        let after = windows(&self.state);
        let world = lock(&self.world);
        for (cpu, one) in world.cpus.iter().enumerate() {
            let given_away = before[cpu] || after[cpu];
            let idles = |line: &LogLine| {
                matches!(line.step.what, StepKind::Decide { cpu: decided, .. } if decided as usize == cpu)
                    && line.decision.is_some_and(|decision| decision.task.is_none())
            };
            let idled = self.state.log[logged..].iter().any(idles);
            // A chosen thread that cannot be raised there: the block detector fires at once.
            let not_raised = stale != self.state.counts.stale
                || world.threads.iter().any(|one| one.leaves.is_some());
            assert!(
                !one.hole || idled || given_away || not_raised,
                "lowered before raised on CPU {cpu}: {:?}",
                world.changes
            );
            let released = given_back != self.state.counts.starved;
            assert!(
                one.classes == 0 || given_away || released,
                "a class was changed where a priority would do, on CPU {cpu}: {:?}",
                world.changes
            );
            let raised: Vec<_> =
                world.raised(cpu as u32).filter(|one| one.leaves.is_none()).collect();
            assert!(raised.len() <= 1, "two threads run on CPU {cpu}: {raised:?}");
        }
        assert_eq!(world.faults, [] as [String; 0]);
        assert_eq!(self.state.breach, None);
    }

    /// Runs until no agent has anything to do.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            lock(&self.world).detectors();
            let now = lock(&self.world).now;
            let wants = |slot: &usize| {
                let world = lock(&self.world);
                let cpu = world.cpus[*slot];
                let called = cpu.fired || cpu.rung || !world.events[*slot].is_empty();
                drop(world);
                called || self.state.due(*slot).0 <= now
            };
            let Some(slot) = (0..self.state.slots.len()).find(wants) else {
                self.check();
                return;
            };
            self.go_round(slot);
        }
        panic!("the agents never come to rest");
    }

    /// Checks what holds when all is done: the pretended kernel runs the threads that were decided
    /// for.
    fn check(&self) {
        let world = lock(&self.world);
        for (task, managed) in self.state.threads.iter().enumerate() {
            let thread = world.threads[task];
            if managed.left || !thread.alive {
                continue;
            }
            let slot = &self.state.slots[managed.slot];
            assert_eq!(slot.cpu.0, thread.cpu, "the state knows where {task} is");
            let on = self.state.core.on_cpu(task as u32);
            if slot.window.is_some() {
                // A sleeping thread is placed when it wakes; beside a raised one the class of the
                // others does not matter.
                let wanted = match (on.is_some(), self.state.is_yielded(managed.slot)) {
                    (true, true) => &[Class::Own][..],
                    (false, true) => &[Class::Behind],
                    (true, false) => &[Class::Running],
                    (false, false) => &[Class::Own, Class::Behind, Class::Parked],
                };
                assert!(
                    !thread.runnable || wanted.contains(&thread.class),
                    "in a yield window, thread {task}: {thread:?}"
                );
                continue;
            }
            let wanted = if on.is_some() { Class::Running } else { Class::Parked };
            assert_eq!(thread.class, wanted, "thread {task}: {thread:?}");
            assert!(on.is_none_or(|cpu| cpu == thread.cpu), "{task} runs where it is not");
            assert_eq!(
                self.state.core.runnable(task as u32),
                thread.runnable,
                "a wakeup or a block was lost"
            );
        }
    }

    fn pass(&mut self, us: u64) {
        let end = lock(&self.world).now + us * 1_000;
        // Agents wake when something is due, not later.
        loop {
            let due =
                (0..self.state.slots.len()).map(|slot| self.state.due(slot).0).min().unwrap_or(end);
            let now = due.min(end);
            lock(&self.world).now = now;
            self.settle();
            if now == end {
                return;
            }
        }
    }

    /// Wakes a thread on `cpu`, whose agent hears of it.
    fn wake(&mut self, tid: u32, cpu: usize) {
        {
            let mut world = lock(&self.world);
            let one = &mut world.threads[tid as usize];
            if !one.alive || one.runnable {
                return;
            }
            one.runnable = true;
            let managed = one.managed;
            if managed {
                world.events[cpu].push(tid);
            }
        }
        self.settle();
    }

    /// The running thread of a CPU blocks; with `anew` it is woken before an agent looks, and the
    /// agent of that CPU hears of it.
    fn block(&mut self, cpu: usize, anew: Option<usize>) {
        {
            let mut world = lock(&self.world);
            let Some(tid) = world.runs(cpu as u32) else { return };
            world.threads[tid as usize].runnable = false;
            world.detectors();
            if let Some(heard) = anew {
                world.threads[tid as usize].runnable = true;
                world.events[heard].push(tid);
            }
        }
        self.settle();
    }

    fn exit(&mut self, cpu: usize) {
        let runs = lock(&self.world).runs(cpu as u32);
        runs.into_iter().for_each(|tid| lock(&self.world).threads[tid as usize].alive = false);
        self.settle();
    }

    fn currents(&self) -> Vec<Option<u32>> {
        (0..self.state.slots.len()).map(|slot| self.state.current(slot)).collect()
    }

    fn changes(&self) -> Vec<(u32, Change)> {
        std::mem::take(&mut lock(&self.world).changes)
    }
}

#[test]
fn a_task_goes_to_the_cpu_that_is_free_and_is_raised_there_before_the_other_is_lowered() {
    let mut play = Play::with("fifo-centralized", 2, &["other"; 3]);
    for tid in 0..3 {
        play.wake(tid, 1);
    }
    assert_eq!(play.currents(), [Some(0), Some(1)]);
    play.changes();
    // CPU 1 is free: the third, which was parked on CPU 0, is sent there, raised, and then the
    // first one there lowered.
    play.block(1, None);
    assert_eq!(play.currents(), [Some(0), Some(2)]);
    let order =
        [(2, Change::Sent(1)), (2, Change::To(Class::Running)), (1, Change::To(Class::Parked))];
    assert_eq!(play.changes(), order);
    assert_eq!(play.state.counts.migrations, 1);
    // It is woken on the other CPU, preempts no thread, and comes back when a CPU is free.
    play.wake(1, 0);
    assert!(play.changes().is_empty());
    play.exit(0);
    assert_eq!(play.currents(), [Some(1), Some(2)]);
    assert_eq!(play.changes(), [(1, Change::Sent(0)), (1, Change::To(Class::Running))]);
}

#[test]
fn a_wakeup_that_one_agent_hears_preempts_on_the_cpu_of_another() {
    let mut play = Play::with("layers", 2, &["idle", "idle", "other"]);
    play.wake(0, 0);
    play.wake(1, 0);
    assert_eq!(play.currents().iter().flatten().count(), 2);
    play.changes();
    play.wake(2, 1);
    let currents = play.currents();
    assert!(currents.contains(&Some(2)), "{currents:?}");
    let loser = if currents.contains(&Some(0)) { 1 } else { 0 };
    let changes = play.changes();
    let at = |change: (u32, Change)| changes.iter().position(|one| *one == change);
    let (raised, lowered) =
        (at((2, Change::To(Class::Running))), at((loser, Change::To(Class::Parked))));
    assert!(raised.is_some() && raised < lowered, "{changes:?}");
}

const SCHEDULERS: [&str; 8] = [
    "fifo-per-cpu",
    "fifo-centralized",
    "rr:slice_ns=3ms",
    "edf",
    "shinjuku:quantum=2ms",
    "layers",
    "filter",
    "linux-6.18",
];

mod affinity;
mod any_acts;
mod arrivals;
mod breach;
mod slices;
mod yield_windows;
