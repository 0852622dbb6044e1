//! Faults planted in a copy of a scheduler: what the assertions are for.
//! `cargo xtask stress --plant forgets --scheduler rr` must fail.

use anyhow::{Result, bail};
use schedlab_model::{CpuId, Ns, TaskId};
use schedlab_scheduler::{Cx, KnobError, Pick, Prev, Scheduler, SchedulerSpec, Wake, registry};
use std::cell::Cell;

/// What is wrong with the copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Planted {
    /// Nothing.
    None,
    /// It forgets every 20th wakeup.
    Forgets,
    /// Every 20th pick is some task, whether that may run there or not.
    Anywhere,
    /// It says that no tick matters.
    Tickless,
    /// What it does depends on how often it was made before.
    Unsteady,
    /// It never comes back from its 20th wakeup.
    Spins,
    /// It panics at its 20th wakeup.
    Panics,
    /// It exhausts the stack at its 20th wakeup.
    Overflows,
}

/// All faults with their names and what they do.
pub(super) const ALL: [(Planted, &str, &str); 7] = [
    (Planted::Forgets, "forgets", "every 20th wakeup is lost"),
    (Planted::Anywhere, "anywhere", "every 20th pick is any task"),
    (Planted::Tickless, "tickless", "it says that no tick matters"),
    (Planted::Unsteady, "unsteady", "slices differ from run to run"),
    (Planted::Spins, "spins", "the 20th wakeup never returns"),
    (Planted::Panics, "panics", "the 20th wakeup panics"),
    (Planted::Overflows, "overflows", "the 20th wakeup uses up the stack"),
];

/// The fault of that name.
pub(super) fn find(name: &str) -> Result<Planted> {
    if name == "none" {
        return Ok(Planted::None);
    }
    let Some((fault, ..)) = ALL.iter().find(|(_, known, _)| *known == name) else {
        let list: Vec<String> =
            ALL.iter().map(|(_, name, what)| format!("{name} ({what})")).collect();
        bail!("--plant {name}: there are {}", list.join(", "));
    };
    Ok(*fault)
}

/// Makes schedulers with `fault` in them; `registry::build` when there is none.
pub(super) fn builder(
    fault: Planted,
) -> impl Fn(&SchedulerSpec, usize) -> Result<Box<dyn Scheduler>, KnobError> {
    let made = Cell::new(0);
    move |spec, cpus| {
        made.set(made.get() + 1);
        let inner = registry::build(spec, cpus)?;
        if fault == Planted::None {
            return Ok(inner);
        }
        let counts = (Cell::new(0), Cell::new(0));
        Ok(Box::new(Spoilt { inner, fault, made: made.get(), calls: counts.0, tasks: counts.1 }))
    }
}

/// A scheduler with a fault in it.
struct Spoilt {
    inner: Box<dyn Scheduler>,
    fault: Planted,
    made: u64,
    calls: Cell<u64>,
    /// Tasks seen so far.
    tasks: Cell<u32>,
}

impl Spoilt {
    fn strikes(&self) -> bool {
        self.calls.set(self.calls.get() + 1);
        self.calls.get().is_multiple_of(20)
    }

    /// Whether the wakeup is lost, if one comes back from it.
    fn spoilt(&self) -> bool {
        let woken = [Planted::Forgets, Planted::Spins, Planted::Panics, Planted::Overflows];
        if !woken.contains(&self.fault) || !self.strikes() {
            return false;
        }
        match self.fault {
            Planted::Spins => loop {
                std::hint::spin_loop();
            },
            Planted::Panics => panic!("planted"),
            Planted::Overflows => deeper(1) == 0,
            _ => true,
        }
    }
}

/// Calls itself until there is no stack left.
fn deeper(depth: u64) -> u64 {
    let room = std::hint::black_box([depth; 64]);
    if depth == 0 { 0 } else { deeper(room[63] + 1) + room[0] }
}

impl Scheduler for Spoilt {
    schedlab_scheduler::forward!(
        inner: needs, refuses, rejects, init, leave, yielded, saved, tick, timer, call, changed, resync, standing, explain
    );

    fn wake(&self, cx: &Cx<'_>, task: TaskId, wake: Wake) {
        self.tasks.set(self.tasks.get().max(task.0 + 1));
        if !self.spoilt() {
            self.inner.wake(cx, task, wake);
        }
    }
    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        let mut pick = self.inner.schedule(cx, cpu, prev, why);
        if self.fault == Planted::Unsteady && self.strikes() {
            pick.slice_ns = pick.slice_ns.map(|slice| slice + Ns(self.made));
        }
        if self.fault == Planted::Anywhere && self.strikes() {
            return Pick::run(TaskId((self.calls.get() / 20) as u32 % self.tasks.get().max(1)));
        }
        pick
    }
    fn tick_due(&self, cx: &Cx<'_>, cpu: CpuId) -> u64 {
        if self.fault == Planted::Tickless { u64::MAX } else { self.inner.tick_due(cx, cpu) }
    }
}
