//! The task that a scheduler names ahead of a decision is the one that it then chooses.

use crate::common::{random, scheduler};
use proptest::prelude::*;
use schedlab_model::{CpuId, Ns, TaskId};
use schedlab_scheduler::{Cx, Pick, Prev, Scheduler, registry};
use schedlab_sim::{Machine, RunOptions, run};
use std::cell::Cell;

/// Those that can tell; of them an answer is asked for whenever a task waits.
const TELL: [&str; 7] =
    ["fifo-centralized", "fifo-per-cpu", "shinjuku", "layers", "rr", "edf", "search"];

/// Asks before each decision after a task that blocked or ended.
struct Asks<'a> {
    inner: &'a dyn Scheduler,
    tells: bool,
    named: Cell<u32>,
}

impl Scheduler for Asks<'_> {
    schedlab_scheduler::forward!(inner: needs, init, wake, leave, yielded, ahead, saved, tick, tick_due, timer, call, changed, resync);

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        let leaves = matches!(why, Prev::Blocked | Prev::Exited);
        let named = if leaves { self.ahead(cx, cpu) } else { None };
        let pick = self.inner.schedule(cx, cpu, prev, why);
        if leaves && (self.tells || named.is_some()) {
            assert_eq!(named, pick.task, "{why:?} on {cpu} at {}", cx.now);
            self.named.set(self.named.get() + u32::from(named.is_some()));
        }
        pick
    }
}

/// How often one was named in a run.
fn named(name: &str, (machine, workload): &(Machine, schedlab_model::Workload)) -> u32 {
    let inner = scheduler(name, machine.topology.cpus());
    // It refuses some policies by name.
    if workload.tasks.iter().any(|task| inner.refuses(task.policy).is_some()) {
        return 0;
    }
    let asks = Asks { inner: inner.as_ref(), tells: TELL.contains(&name), named: Cell::new(0) };
    // What it rejects, and what cannot run, is for other tests.
    let _ = run(machine, workload, &asks, &RunOptions::for_time(Ns::from_ms(200)), &mut ());
    asks.named.get()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(schedlab_testing::cases(64)))]

    #[test]
    fn the_task_that_it_names_is_the_one_that_it_chooses(case in random::case()) {
        for entry in registry::all() {
            named(entry.name, &case);
        }
    }
}

#[test]
fn those_that_can_tell_do() {
    for name in TELL {
        let mut case = (Machine::flat(2), crate::common::run_sleep(6));
        case.1.tasks.iter_mut().for_each(|task| task.policy = schedlab_model::Policy::Other);
        assert!(named(name, &case) > 10, "{name}");
    }
}
