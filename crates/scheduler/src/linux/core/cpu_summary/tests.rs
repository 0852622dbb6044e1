//! Rows, what they say, and what is carried on.

use super::*;
use crate::linux::fair::pelt::Moment;

fn signal(load: u64, runnable: u64, running: bool, until: Ns) -> Signal {
    let mut signal = Signal::zero(Ns(0));
    signal.set(Moment::new(Ns(0)), Inputs { load, runnable, running });
    signal.at(until);
    signal
}

/// Publishes `fair` hogs that have been there for long.
pub(in crate::linux) fn hogs(summary: &CpuSummary, cpu: u32, fair: u32, now: Ns) {
    let on = fair > 0;
    let facts = Facts { nr_running: fair, fair, busy: on, ..Facts::default() };
    let signal = signal(1024 * u64::from(fair), u64::from(fair), on, now);
    summary.publish(CpuId(cpu), now, &facts);
    summary.publish_fair(CpuId(cpu), &signal);
}

/// Publishes a SCHED_IDLE hog.
pub(in crate::linux) fn idle_hog(summary: &CpuSummary, cpu: u32, now: Ns) {
    let facts = Facts { nr_running: 1, fair: 1, fair_idle: 1, busy: true, ..Facts::default() };
    summary.publish(CpuId(cpu), now, &facts);
    summary.publish_fair(CpuId(cpu), &signal(3, 1, true, now));
}

/// Publishes one fair task that has run for this long, after nothing.
pub(in crate::linux) fn runs_for(summary: &CpuSummary, cpu: u32, length: Ns, now: Ns) {
    let facts = Facts { nr_running: 1, fair: 1, busy: true, ..Facts::default() };
    let mut signal = Signal::zero(Ns(0));
    signal.set(
        Moment::new(now.saturating_sub(length)),
        Inputs { load: 1024, runnable: 1, running: true },
    );
    signal.at(now);
    summary.publish(CpuId(cpu), now, &facts);
    summary.publish_fair(CpuId(cpu), &signal);
}

#[test]
fn an_empty_row_is_idle() {
    let summary = CpuSummary::new(2, &[2]);
    assert!(summary.idle(CpuId(0)) && summary.takes_wakee(CpuId(0)));
    hogs(&summary, 0, 1, Ns(5));
    assert!(!summary.idle(CpuId(0)));
    assert_eq!(summary.publish(CpuId(0), Ns(9), &Facts::default()), Turn::Idles);
    assert_eq!(summary.idle_since(CpuId(0)), Ns(9));
}

#[test]
fn only_idle_tasks_count_as_idle() {
    let summary = CpuSummary::new(1, &[1]);
    let mut facts = Facts { nr_running: 2, fair: 2, fair_idle: 2, busy: true, ..Facts::default() };
    summary.publish(CpuId(0), Ns(0), &facts);
    assert!(summary.only_idle_tasks(CpuId(0)) && !summary.idle(CpuId(0)));
    facts.nr_running = 3;
    summary.publish(CpuId(0), Ns(0), &facts);
    assert!(!summary.takes_wakee(CpuId(0)));
}

#[test]
fn signals_are_carried_on() {
    let summary = CpuSummary::new(1, &[1]);
    let facts = Facts { nr_running: 1, fair: 1, busy: true, ..Facts::default() };
    let on = signal(1024, 1, true, Ns(0));
    summary.publish(CpuId(0), Ns(0), &facts);
    summary.publish_fair(CpuId(0), &on);
    assert_eq!(summary.load(CpuId(0), Ns(0)), 0);
    let half = summary.signals(CpuId(0), Ns(32 * 1024 * 1024)).util_avg();
    assert!((490..=530).contains(&half), "{half}");
}

#[test]
fn rt_takes_capacity() {
    let summary = CpuSummary::new(1, &[1]);
    assert_eq!(summary.capacity(CpuId(0), Ns(0)), 1024);
    let facts = Facts { nr_running: 1, busy: true, rt_runs: 5, rt_best: 5, ..Facts::default() };
    let rt = signal(0, 0, true, Ns(0));
    summary.publish(CpuId(0), Ns(0), &facts);
    summary.publish_rt(CpuId(0), &rt);
    assert!(summary.capacity(CpuId(0), Ns::from_s(2)) <= 8);
    assert_eq!(summary.rt_runs(CpuId(0)), (5, false));
}

/// Sets that one thread writes are those that many write, and counts are those of the rows.
#[test]
fn one_thread_leaves_what_many_leave() {
    let one = CpuSummary::new(70, &[70]).of_threads(true);
    let many = CpuSummary::new(70, &[70]);
    for (step, cpu) in [0, 69, 64, 69, 0, 1, 64, 69].into_iter().enumerate() {
        for summary in [&one, &many] {
            hogs(summary, cpu, step as u32 * 7 % 3, Ns(step as u64));
        }
        assert_eq!((one.idle_set(), one.idle_cpus()), (many.idle_set(), many.idle_cpus()));
        assert_eq!(one.takers(true).get(), many.takers(true).get());
        assert_eq!(one.any_crowded(), many.any_crowded());
        let cpu = CpuId(cpu);
        assert_eq!(one.counts(cpu), (one.nr_running(cpu), one.fair(cpu), one.idle(cpu)));
    }
}
