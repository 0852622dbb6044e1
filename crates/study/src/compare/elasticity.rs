//! A second reading of how much a group of tasks would do if nobody held it back, from the recording alone.
//!
//! In a recording a group runs for a part R of the time, is held back for a part W (it waits for a CPU, and has none), and has
//! nothing to do for the rest. Taken away what holds it back, a group whose work comes by itself (an open loop) still runs for R:
//! what it did late it does in time. A closed loop does more, because its next work comes when the last is done: it runs for
//! R / (1 - W), the part of the time that is left when W is taken out. Which of the two it is the recording shows where it holds
//! moments of more and of less contention: in a closed loop a window in which the group was held back for longer is one in which
//! it ran for less by as much; in an open loop it is not.
//!
//! The simulation is asked the same question: without the tasks that never end, how much does each group run? When the two
//! disagree one of them is wrong, and which one cannot be told from the recording. A replay that plays arrivals at their recorded
//! times reproduces its own recording perfectly, whatever drives it; this is the test that it fails.

use schedlab_trace::analysis::contention::Contention;

/// Windows into which a recording is cut: of 3 s each is 15 ms long, some four turns of tasks that share a CPU.
pub(super) const WINDOWS: u64 = 200;
/// Fewer windows in which a group did anything do not show how it reacts.
const ENOUGH: usize = 10;
/// Windows whose contention differs by less than this part of their length (standard deviation) show nothing of how a group reacts:
/// where they are cut makes as much.
const SPREAD: f64 = 0.005;
/// Part of a CPU from which on a class matters.
pub(super) const MATTERS: f64 = 0.05;
/// Standard errors of a reading that are believed.
const ERRORS: f64 = 2.0;
/// And so much more is open: what comes late in one window is done in the next (an open loop looks a little closed), and requests do
/// not all cost the same (a closed loop looks a little open). Over recordings of servers whose loop is known, closed ones
/// read 0.6 to 1.05 and open ones 0.2.
const SYSTEMATIC: f64 = 0.25;

/// How a group of tasks spent a recording, and what it would do alone.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Reading {
    /// Part of a CPU that it had.
    pub(super) share: f64,
    /// Part of the time in which it was held back.
    pub(super) held: f64,
    /// From 0 (its work comes by itself) to 1 (its work comes when the last is done); see [`reading`].
    pub(super) elastic: f64,
    /// Standard error of that.
    pub(super) uncertain: f64,
    /// Standard error of its share, from how much the windows differ.
    pub(super) noise: f64,
}

impl Reading {
    /// What it would have in a closed loop that nobody holds back.
    fn alone(self) -> f64 {
        self.share / (1.0 - self.held).max(0.01)
    }

    /// What it would have if nobody held it back: lowest, likely, highest.
    pub(super) fn free(self) -> (f64, f64, f64) {
        let at = |elastic: f64| self.share + elastic.clamp(0.0, 1.0) * (self.alone() - self.share);
        let spread = ERRORS * self.uncertain + SYSTEMATIC;
        (at(self.elastic - spread), at(self.elastic), at(self.elastic + spread))
    }
}

/// Reads how a group reacts: how what it ran changes with what it was held back, from each window to the next, as a part of the
/// change that a closed loop has. From one window to the next, because the load itself changes in the course of a recording.
pub(super) fn reading(contention: &Contention, group: usize) -> Option<Reading> {
    let (duration, length) = (contention.duration().0 as f64, contention.length.0 as f64);
    let whole = contention.whole(group);
    if duration <= 0.0 {
        return None;
    }
    let mut reading = Reading {
        share: whole.ran.0 as f64 / duration,
        held: (whole.held.0 as f64 / duration).min(1.0),
        // Nothing shows how it reacts: it may be either.
        elastic: 0.5,
        uncertain: 0.125,
        noise: 0.0,
    };
    let windows = contention.windows(group);
    // The last window is cut short.
    let points: Vec<(f64, f64)> = windows
        .iter()
        .take((duration / length) as usize)
        .map(|w| (w.held.0 as f64 / length, w.ran.0 as f64 / length))
        .collect();
    if points.len() < ENOUGH {
        return Some(reading);
    }
    let steps: Vec<(f64, f64)> = points.windows(2).map(|w| (w[1].0 - w[0].0, w[1].1 - w[0].1)).collect();
    reading.noise = noise(&points);
    let count = steps.len() as f64;
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| steps.iter().map(of).sum::<f64>();
    let (xx, xy, yy) = (sum(&|s| s.0 * s.0), sum(&|s| s.0 * s.1), sum(&|s| s.1 * s.1));
    if (xx / count).sqrt() > SPREAD && reading.share > 0.0 {
        let (slope, alone) = (xy / xx, reading.alone());
        let left = (yy - slope * xy).max(0.0);
        reading.elastic = (-slope / alone).clamp(0.0, 1.0);
        reading.uncertain = (left / xx / (count - 1.0)).sqrt() / alone;
    }
    Some(reading)
}

/// Standard error of what a group ran.
fn noise(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let ran = points.iter().map(|point| point.1).sum::<f64>() / count;
    (points.iter().map(|point| (point.1 - ran) * (point.1 - ran)).sum::<f64>() / count / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId};

    /// A group that in each of 50 windows of 100 ms runs for so long, and is held back for so long.
    fn windows(of: impl Fn(u64) -> (u64, u64)) -> Contention {
        let mut contention = Contention::new(vec![Some(0), None], vec![false, true], Ns::from_ms(100));
        for window in 0..50 {
            let (ran, held) = of(window);
            let at = |ms: u64| Ns::from_ms(window * 100 + ms);
            let switch = |at: Ns, prev: Option<TaskId>, prev_state, next: Option<TaskId>| SchedEvent {
                at,
                cpu: CpuId(0),
                kind: EventKind::Switch { prev, prev_state, next },
            };
            let (task, rival) = (Some(TaskId(0)), Some(TaskId(1)));
            contention.event(&switch(at(0), rival, PrevState::Runnable, task));
            contention.event(&switch(at(ran - 1), task, PrevState::Runnable, rival));
            contention.event(&switch(at(ran - 1 + held), rival, PrevState::Runnable, task));
            contention.event(&switch(at(ran + held), task, PrevState::Sleeping, rival));
        }
        contention.finish(Ns::from_s(5));
        contention
    }

    #[test]
    fn a_closed_loop_runs_less_where_it_is_held_back() {
        // It always wants the CPU: what it is held back it does not run.
        let closed = reading(&windows(|w| (80 - w % 7 * 5, 20 + w % 7 * 5)), 0).unwrap();
        assert!((closed.elastic - 1.0).abs() < 0.01 && closed.uncertain < 0.01, "{closed:?}");
        assert!((closed.free().1 - 1.0).abs() < 0.01, "{closed:?}");
        assert!(closed.free().0 > 0.95, "{closed:?}");
    }

    #[test]
    fn an_open_loop_runs_as_much_where_it_is_held_back() {
        let open = reading(&windows(|w| (30 + w % 2, 20 + w % 7 * 5)), 0).unwrap();
        assert!(open.elastic < 0.1, "{open:?}");
        assert!(open.free().2 < 0.4, "{open:?}");
    }

    #[test]
    fn without_differences_it_may_be_either() {
        let either = reading(&windows(|_| (30, 40)), 0).unwrap();
        let (low, _, high) = either.free();
        assert!(low < 0.31 && high > 0.49, "{either:?}");
    }
}
