//! When the ticks of the recorded machine came, fitted from its events.
//!
//! A running task that loses its CPU although nobody woke shortly before lost it to a tick: the
//! switch comes a few microseconds after the edge. So the times of such switches, modulo the tick's
//! period, crowd just after the phase of their CPU. The phase is where the densest window of them
//! begins. Linux sets off the ticks of all CPUs together (unless booted with `skew_tick=1`), so a
//! CPU that shows nothing has the phase of the one that shows most.

use crate::Recording;
use schedlab_model::{EventKind, Ns, PrevState};

/// A switch this long after the wakeup of the task that it brings was not caused by the wakeup.
const LONG_AFTER_WAKEUP: Ns = Ns::from_us(300);
/// Width of the window: from the fastest to a slow way from the edge to the switch record.
const WINDOW: Ns = Ns::from_us(40);
/// Fewer switches than this in the window say nothing.
const ENOUGH: usize = 5;
/// They must be this many times as many as chance would put there.
const CROWD: usize = 8;
/// One in so many switches of the window may have come before the edge, by chance.
const STRAYS: usize = 20;

/// The ticks of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TickFit {
    /// The first edge: 1 … one period after the start of the recording. It is the time of the
    /// earliest switch that an edge caused, so the way from the edge to the switch is in it.
    pub first: Ns,
    /// Switches in the window that it was fitted to; 0: it was taken over from another CPU.
    pub switches: usize,
    /// Switches of tasks that lost their CPU, all in all.
    pub of: usize,
}

/// One fit for each CPU; `None` where no CPU shows its ticks.
pub(super) fn fit(recording: &Recording) -> Vec<Option<TickFit>> {
    let cpus = recording.header.topology.cpus();
    // No ticks, or ticks without time between them (no kernel has those; a damaged header may claim
    // them).
    let period = 1_000_000_000u64.checked_div(recording.header.hz.into()).unwrap_or(0);
    if period == 0 {
        return vec![None; cpus];
    }
    let own: Vec<Option<TickFit>> =
        lost_cpus(recording).into_iter().map(|times| phase(times, period)).collect();
    let best = own.iter().flatten().max_by_key(|fit| fit.switches).copied();
    own.into_iter()
        .map(|fit| fit.or(best.map(|best| TickFit { switches: 0, of: 0, ..best })))
        .collect()
}

/// By CPU: when a running task lost it, and no wakeup had asked for that.
fn lost_cpus(recording: &Recording) -> Vec<Vec<u64>> {
    let mut woken = vec![None; recording.header.tasks.len()];
    let mut times = vec![Vec::new(); recording.header.topology.cpus()];
    for event in &recording.events {
        match event.kind {
            EventKind::Wake { task, .. } => woken[task.index()] = Some(event.at),
            EventKind::New { task, .. } => woken[task.index()] = Some(event.at),
            EventKind::Switch { prev: Some(_), prev_state, next: Some(next) } => {
                let lost = matches!(prev_state, PrevState::Runnable | PrevState::RunnableInKernel);
                let recent = woken[next.index()]
                    .is_some_and(|at: Ns| event.at.saturating_sub(at) < LONG_AFTER_WAKEUP);
                if lost && !recent {
                    times[event.cpu.index()].push(event.at.0);
                }
            }
            _ => {}
        }
    }
    times
}

/// The beginning of the densest window of `times` modulo `period`.
fn phase(times: Vec<u64>, period: u64) -> Option<TickFit> {
    let all = times.len();
    let mut turned: Vec<u64> = times.into_iter().map(|at| at % period).collect();
    turned.sort_unstable();
    // Once around and into the next turn, so that a window may lie across the seam.
    let next: Vec<u64> = turned.iter().map(|at| at + period).collect();
    turned.extend(next);
    let inside = |from: usize| turned.partition_point(|at| *at <= turned[from] + WINDOW.0) - from;
    let from = (0..all).rev().max_by_key(|&from| inside(from))?;
    let crowd = inside(from);
    let by_chance = all * WINDOW.0 as usize / period as usize + 1;
    if crowd < ENOUGH || crowd < by_chance * CROWD {
        return None;
    }
    // A stray switch may stand before the crowd.
    let edge = turned[from + crowd / STRAYS] % period;
    Some(TickFit { first: Ns(if edge == 0 { period } else { edge }), switches: crowd, of: all })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 4_000_000;

    #[test]
    fn the_phase_is_where_the_switches_crowd() {
        // 20 edges with 5 to 14 us to the switch, and noise elsewhere.
        let edges = (0..20).map(|i| 2_340_000 + i * PERIOD + 5_000 + i % 10 * 1_000);
        let noise = (0..30).map(|i| i * 7_654_321);
        let fit = phase(edges.chain(noise).collect(), PERIOD).unwrap();
        assert_eq!((fit.first, fit.of), (Ns(2_345_000), 50));
        assert!((20..=22).contains(&fit.switches), "{fit:?}");
    }

    #[test]
    fn a_crowd_across_the_seam_is_one() {
        let times = (0..10).map(|i| (i + 1) * PERIOD - 6_000 + i * 1_500).collect();
        let fit = phase(times, PERIOD).unwrap();
        assert_eq!((fit.first, fit.switches), (Ns(PERIOD - 6_000), 10));
    }

    #[test]
    fn ticks_without_time_between_them_have_no_phase() {
        // A fuzzer's header: 2,147,483,648 ticks a second.
        let mut recording = Recording::default();
        recording.header.hz = 1 << 31;
        recording.header.topology = schedlab_model::Topology::flat(2);
        assert_eq!(fit(&recording), [None, None]);
    }

    #[test]
    fn no_crowd_no_phase() {
        assert_eq!(phase(Vec::new(), PERIOD), None);
        assert_eq!(phase((0..400).map(|i| i * 1_234_567).collect(), PERIOD), None);
        assert_eq!(phase(vec![5; 4], PERIOD), None);
    }
}
