//! `linux-6.12` and `linux-6.18` in the simulator: the golden values of specs/linux-schedulers.md §10.

mod common;

use common::scheduler;
use schedlab_model::{Ns, Policy, Program, Start, TaskSpec, Workload};
use schedlab_sim::{Machine, RunOptions, run};

/// A task's timer and the end of another's job fall into one instant, and the timer's interrupt comes first.
#[test]
fn an_interrupt_may_come_in_the_instant_in_which_a_job_ends() {
    let mut machine = Machine::flat(1);
    machine.costs.wake_interrupt_ns = Ns(2_750);
    let worker = TaskSpec::new("worker", Program::closed(Ns::from_ms(1), Ns::from_ms(1)));
    let mut late = TaskSpec::new("late", Program::hog());
    (late.policy, late.start) = (Policy::Batch, Start::AsleepUntil(Ns::from_ms(1)));
    let workload = Workload { tasks: vec![worker, late], ..Workload::default() };
    let options = RunOptions::for_time(Ns::from_ms(20));
    run(&machine, &workload, &*scheduler("linux-6.12", 1), &options, &mut ()).expect("a clean run");
}
