//! Which schedulers see in the views of tasks what changes as they run: those that do not say that
//! they keep their own marks, and with every tick delivered all.

use crate::common::{run_sleep, scheduler};
use schedlab_model::{CpuId, Ns, TaskId};
use schedlab_scheduler::{Cx, Needs, Pick, Prev, Runnable, Scheduler};
use schedlab_sim::{Machine, RunOptions, run};
use std::cell::RefCell;

/// What changes in a view: `ran`, `runnable`, `on_cpu`, `last_cpu`, `released`.
type Shown = (Ns, Runnable, Option<CpuId>, CpuId, Ns);

/// Notes at every decision what the views of all tasks show.
struct Reads<'a> {
    inner: &'a dyn Scheduler,
    own_marks: bool,
    seen: RefCell<Vec<Shown>>,
}

impl Scheduler for Reads<'_> {
    schedlab_scheduler::forward!(inner: init, wake, leave, yielded, changed, resync);

    fn needs(&self) -> Needs {
        Needs { own_marks: self.own_marks, ..self.inner.needs() }
    }

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        let shown = cx.world.tasks.iter();
        let shown =
            shown.map(|t| (t.ran(), t.runnable(), t.on_cpu(), t.last_cpu(), t.released.get()));
        self.seen.borrow_mut().extend(shown);
        self.inner.schedule(cx, cpu, prev, why)
    }
}

/// What is seen in 50 ms, and the CPU time of all tasks.
fn seen(own_marks: bool, every_tick: bool) -> (Vec<Shown>, Ns) {
    let inner = scheduler("fifo-per-cpu", 2);
    let reads = Reads { inner: inner.as_ref(), own_marks, seen: RefCell::default() };
    let options = RunOptions { every_tick, ..RunOptions::for_time(Ns::from_ms(50)) };
    let outcome =
        run(&Machine::flat(2), &run_sleep(6), &reads, &options, &mut ()).expect("a clean run");
    let ran = outcome.metrics.tasks.iter().map(|t| t.cpu_ns).sum();
    (reads.seen.into_inner(), ran)
}

#[test]
fn views_are_left_out_only_for_a_scheduler_that_says_so() {
    let (told, ran) = seen(false, false);
    let shown: Ns = told[told.len() - 6..].iter().map(|view| view.0).sum();
    assert!(
        shown > ran - Ns::from_ms(5) && shown <= ran,
        "{shown} of {ran} is shown at the last decision"
    );
    let (left_out, same) = seen(true, false);
    assert_eq!((left_out.len(), same), (told.len(), ran), "the schedule is the same");
    assert!(
        left_out.iter().all(|view| view.0 == Ns::ZERO),
        "nothing is kept for a scheduler that does not read it"
    );
}

#[test]
fn with_every_tick_views_are_kept_for_all() {
    assert_eq!(seen(true, true), seen(false, false));
}
