//! The workloads W1 and W2 give the totals that other simulators give
//! (docs/sources/simulation-facts.md).

use crate::common::{W1, periodic_set, scheduler, simulate, w2};
use schedlab_model::{CpuId, Ns, Policy, TaskId};
use schedlab_scheduler::{Cx, Pick, Prev, Scheduler};
use schedlab_sim::{Machine, RunOptions, run};
use std::cell::Cell;

/// Preemptions and the sum of all response times over 10 s.
fn w1(spec: &str) -> (u64, u128) {
    let (cpus, workload) = periodic_set(W1);
    assert_eq!((cpus, workload.tasks.len()), (8, 100));
    let outcome = simulate(spec, cpus, &workload, Ns::from_s(10));
    let responses = outcome.metrics.tasks.iter().map(|t| t.response.sum_ns()).sum();
    (outcome.metrics.preemptions(), responses)
}

/// The counts of the other simulators belong to two tie rules: preemptions to "a running job wins
/// ties" (11,657; 11,813 by task number), the sum of responses to ties by task number.
#[test]
fn w1_under_global_edf() {
    assert_eq!(w1("edf").0, 11_657);
    assert_eq!(w1("edf:ties=id"), (11_813, 84_176_192_000));
}

/// 4,198.6 jobs a second: the sum of `1 / period`, seen over 1000 s within a job a task.
#[test]
fn w1_has_the_published_rate() {
    let (_, workload) = periodic_set(W1);
    let rate: f64 = workload
        .tasks
        .iter()
        .map(|task| match task.policy {
            Policy::Deadline { period, .. } => 1e9 / period.0 as f64,
            _ => 0.0,
        })
        .sum();
    assert!((rate - 4_198.6).abs() < 0.05, "{rate}");
}

/// Counts how often `schedule` found a task still runnable.
struct Counting<'a> {
    inner: &'a dyn Scheduler,
    slices: Cell<u64>,
    /// When each CPU decided last, and the length of all finished slices.
    since: Vec<Cell<Ns>>,
    served: Cell<Ns>,
}

impl Scheduler for Counting<'_> {
    schedlab_scheduler::forward!(inner: needs, init, wake, leave, yielded, changed, resync);

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        if why != Prev::Idle {
            self.slices.set(self.slices.get() + 1);
            self.served.set(self.served.get() + (cx.now - self.since[cpu.index()].get()));
        }
        self.since[cpu.index()].set(cx.now);
        self.inner.schedule(cx, cpu, prev, why)
    }
}

#[test]
fn w2_under_round_robin() {
    let inner = scheduler("rr:slice_ns=4ms", 8);
    let counting = Counting {
        inner: inner.as_ref(),
        slices: Cell::new(0),
        since: vec![Cell::default(); 8],
        served: Cell::default(),
    };
    let options = RunOptions::for_time(Ns::from_s(200));
    let outcome = run(&Machine::flat(8), &w2(8, 64), &counting, &options, &mut ()).unwrap();
    let bursts: u64 = outcome.metrics.tasks.iter().map(|t| t.response.count()).sum();
    // The published busy time counts finished slices only.
    assert_eq!(
        (counting.slices.get(), bursts, counting.served.get()),
        (473_124, 152_636, Ns(1_599_373_024_961))
    );
}
