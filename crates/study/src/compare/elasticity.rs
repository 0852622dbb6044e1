//! A second reading of how much a group of tasks would do if no task held it back, from the
//! recording alone.
//!
//! In a recording a group runs for a part R of the time, is held back for a part W (it waits for a
//! CPU, and has none), and has nothing to do for the rest. Taken away what holds it back, a group
//! whose work comes by itself (an open loop) still runs for R: what it did late it does in time. A
//! closed loop does more, because its next work comes when the last is done: it runs for R / (1 -
//! W), the part of the time that is left when W is taken out. Which of the two it is the recording
//! shows where it holds moments of more and of less contention: in a closed loop a window in which
//! the group was held back for longer is one in which it ran for less by as much; in an open loop
//! it is not.
//!
//! Tasks of a closed loop that have one CPU take it from each other, too: where the client ran for
//! longer, the server and what holds it back both ran for less, and the server looks as if it did
//! not react at all. Such a loop is read as one group.
//!
//! The simulation is asked the same question: without the tasks that never end, how much does each
//! group run? When the two disagree one of them is wrong, and which one cannot be told from the
//! recording. A replay that plays arrivals at their recorded times reproduces its own recording
//! perfectly, whatever drives it; this is the test that it fails.

use schedlab_model::{CpuId, Ns, TaskId, Topology};
use schedlab_trace::analysis::Analysis;
use schedlab_trace::analysis::contention::{Contention, Window};
use schedlab_trace::replay::Replay;
use schedlab_trace::{Recording, TaskInfo};
use std::collections::BTreeMap;

/// Windows into which a recording is cut: of 3 s each is 15 ms long, some four turns of tasks that
/// share a CPU.
const WINDOWS: u64 = 200;
/// Fewer windows in which a group did anything do not show how it reacts.
const ENOUGH: usize = 10;
/// Windows whose contention differs by less than this part of their length (standard deviation)
/// show nothing of how a group reacts: where they are cut makes as much.
const SPREAD: f64 = 0.005;
/// Part of a CPU from which on a class matters.
pub(super) const MATTERS: f64 = 0.05;
/// Standard errors of a reading that are believed.
const ERRORS: f64 = 2.0;
/// And so much more is open: what comes late in one window is done in the next (an open loop looks
/// a little closed), and requests do not all cost the same (a closed loop looks a little open).
/// Over recordings of servers whose loop is known, closed ones read 0.6 to 1.05 and open ones 0.2.
const SYSTEMATIC: f64 = 0.25;

/// How a group of tasks spent a recording, and what it would do alone.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Reading {
    /// Part of a CPU that it had.
    pub(super) share: f64,
    /// Part of the time in which it was held back.
    pub(super) held: f64,
    /// From 0 (its work comes by itself) to 1 (its work comes when the last is done); see
    /// [`reading`].
    pub(super) elastic: f64,
    /// Standard error of that.
    pub(super) uncertain: f64,
    /// Standard error of its share, from how much the windows differ.
    pub(super) noise: f64,
}

impl Reading {
    /// What it would have in a closed loop that no task holds back.
    fn alone(self) -> f64 {
        self.share / (1.0 - self.held).max(0.01)
    }

    /// What it would have if no task held it back: lowest, likely, highest.
    pub(super) fn free(self) -> (f64, f64, f64) {
        let at = |elastic: f64| self.share + elastic.clamp(0.0, 1.0) * (self.alone() - self.share);
        let spread = ERRORS * self.uncertain + SYSTEMATIC;
        (at(self.elastic - spread), at(self.elastic), at(self.elastic + spread))
    }
}

/// How each class that has a twentieth of a CPU, and has an end, reacts to those that have none.
pub(super) fn readings(recording: &Recording, replay: &Replay) -> Vec<(String, Reading)> {
    if Contention::check(&recording.header).is_err() || replay.report.hogs.is_empty() {
        return Vec::new();
    }
    let tasks = &recording.header.tasks;
    let mut rivals = vec![false; tasks.len()];
    replay.report.hogs.iter().for_each(|task| rivals[task.index()] = true);
    let endless =
        |name: &str| tasks.iter().zip(&rivals).any(|(task, rival)| *rival && task.comm == name);
    let mut names: Vec<&str> = tasks.iter().map(|task| task.comm.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !endless(name));
    let classes: Vec<Option<usize>> =
        tasks.iter().map(|task| names.binary_search(&task.comm.as_str()).ok()).collect();
    let alone = Contention::from_recording(recording, classes.clone(), rivals.clone(), WINDOWS);
    let loops = together(
        names.len(),
        &classes,
        tasks,
        &recording.header.topology,
        &replay.report.closed_loops,
    );
    // A second walk over the recording, where a loop is more than one class.
    let merged = loops.iter().enumerate().any(|(class, first)| class != *first);
    let whole = merged.then(|| {
        let of_loops = classes.iter().map(|class| class.map(|class| loops[class])).collect();
        Contention::from_recording(recording, of_loops, rivals, WINDOWS)
    });
    let reading = |(class, name): (usize, &&str)| {
        let mut own = reading(&alone, class)?;
        if let Some(whole) = &whole {
            let Reading { held, elastic, uncertain, .. } = reading(whole, loops[class])?;
            own = Reading { held, elastic, uncertain, ..own };
        }
        (own.share >= MATTERS).then(|| ((*name).to_owned(), own))
    };
    names.iter().enumerate().filter_map(reading).collect()
}

/// By class, the first class of those with which it shares a closed loop and its only CPU.
fn together(
    count: usize,
    classes: &[Option<usize>],
    tasks: &[TaskInfo],
    topology: &Topology,
    loops: &[Vec<TaskId>],
) -> Vec<usize> {
    let mut first: Vec<usize> = (0..count).collect();
    let one_cpu = |task: &TaskId| {
        let affinity = tasks[task.index()].affinity;
        let mut cpus = (0..topology.cpus()).map(CpuId::from).filter(|cpu| affinity.contains(*cpu));
        cpus.next().filter(|_| cpus.next().is_none())
    };
    for circle in loops {
        let mut on: BTreeMap<CpuId, usize> = BTreeMap::new();
        for task in circle {
            let (Some(class), Some(cpu)) = (classes[task.index()], one_cpu(task)) else { continue };
            let other = *on.entry(cpu).or_insert(class);
            let (low, high) = (first[class].min(first[other]), first[class].max(first[other]));
            first.iter_mut().filter(|of| **of == high).for_each(|of| *of = low);
        }
    }
    first
}

/// Reads how a group reacts: how what it ran changes with what it was held back, from each window
/// to the next, as a part of the change that a closed loop has. From one window to the next,
/// because the load itself changes in the course of a recording.
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
    // The last window is cut short, and so are those in which the group begins and ends, before and
    // after which it is not there.
    let windows = &windows[..windows.len().min((duration / length) as usize)];
    let busy = |window: &Window| window.ran + window.held > Ns::ZERO;
    let begin = windows.iter().position(busy).map_or(0, |first| first + usize::from(first > 0));
    let end = windows
        .iter()
        .rposition(busy)
        .map_or(0, |last| last + usize::from(last + 1 == windows.len()));
    // What it and its rivals did with the time that both had. Where others had most of it (a
    // recorder that writes), it shows nothing.
    let point = |window: &Window| {
        let shared = length - window.others.0 as f64;
        (shared * 2.0 > length)
            .then(|| (window.held.0 as f64 / shared, window.ran.0 as f64 / shared))
    };
    let points: Vec<(f64, f64)> =
        windows.get(begin..end).unwrap_or_default().iter().filter_map(point).collect();
    if points.len() < ENOUGH {
        return Some(reading);
    }
    let steps: Vec<(f64, f64)> =
        points.windows(2).map(|w| (w[1].0 - w[0].0, w[1].1 - w[0].1)).collect();
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
    (points.iter().map(|point| (point.1 - ran) * (point.1 - ran)).sum::<f64>() / count / count)
        .sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuSet, EventKind, EventSink, PrevState, SchedEvent};

    /// A group that in each of 50 windows of 100 ms runs for so long, and is held back for so long.
    fn windows(of: impl Fn(u64) -> (u64, u64)) -> Contention {
        beside_others(|window| {
            let (ran, held) = of(window);
            (ran, held, 0)
        })
    }

    /// The same beside a third task that takes the CPU from both for so long. Where it did not run,
    /// it was not there.
    fn beside_others(of: impl Fn(u64) -> (u64, u64, u64)) -> Contention {
        let mut contention =
            Contention::new(vec![Some(0), None, None], vec![false, true, false], Ns::from_ms(100));
        let (task, rival, third) = (Some(TaskId(0)), Some(TaskId(1)), Some(TaskId(2)));
        for window in 0..50 {
            let (ran, held, others) = of(window);
            if ran == 0 {
                continue;
            }
            let mut at = window * 100;
            let mut switch =
                |after: u64, prev: Option<TaskId>, prev_state, next: Option<TaskId>| {
                    at += after;
                    let kind = EventKind::Switch { prev, prev_state, next };
                    contention.event(&SchedEvent { at: Ns::from_ms(at), cpu: CpuId(0), kind });
                };
            switch(0, rival, PrevState::Runnable, task);
            switch(ran - 1, task, PrevState::Runnable, rival);
            switch(held, rival, PrevState::Runnable, third);
            switch(others, third, PrevState::Sleeping, task);
            switch(1, task, PrevState::Sleeping, rival);
        }
        contention.finish(Ns::from_s(5));
        contention
    }

    #[test]
    fn what_a_third_task_takes_from_both_shows_nothing() {
        // Every tenth window it takes half of both; the loop always wants the CPU.
        let of = |w: u64| match w % 10 {
            0 => (30, 20, 50),
            _ => (65 - w % 5 * 3, 35 + w % 5 * 3, 0),
        };
        let closed = reading(&beside_others(of), 0).unwrap();
        assert!(closed.elastic > 0.95 && closed.uncertain < 0.05, "{closed:?}");
    }

    #[test]
    fn before_and_after_a_load_nobody_is_held_back() {
        let of = |w: u64| if (8..42).contains(&w) { (60 + w % 3, 40 - w % 3) } else { (0, 0) };
        let closed = reading(&windows(of), 0).unwrap();
        assert!(closed.elastic > 0.95 && closed.uncertain < 0.05, "{closed:?}");
    }

    #[test]
    fn a_loop_on_one_cpu_is_one_group() {
        let mut tasks: Vec<TaskInfo> =
            (0..5).map(|task| TaskInfo::unknown(task, task, "task")).collect();
        let on = |cpu: u32| CpuSet::single(CpuId(cpu));
        for (task, cpu) in tasks.iter_mut().zip([0, 0, 1, 0]) {
            task.affinity = on(cpu);
        }
        // Client, server, a server on another CPU, one outside of the loop, and one that may run on
        // both.
        let classes: Vec<Option<usize>> = (0..5).map(Some).collect();
        let circle = vec![TaskId(0), TaskId(1), TaskId(2), TaskId(4)];
        let loops = [circle];
        assert_eq!(together(5, &classes, &tasks, &Topology::flat(2), &loops), [0, 0, 2, 3, 4]);
        assert_eq!(together(5, &classes, &tasks, &Topology::flat(1), &loops), [0, 0, 2, 3, 0]);
    }

    #[test]
    fn a_closed_loop_runs_less_where_it_is_held_back() {
        // It always wants the CPU: what it is held back it does not run.
        let closed = reading(&windows(|w| (80 - w % 7 * 5, 20 + w % 7 * 5)), 0).unwrap();
        assert!((closed.elastic - 1.0).abs() < 0.01 && closed.uncertain < 0.01, "{closed:?}");
        assert!((closed.free().1 - 1.0).abs() < 0.01, "{closed:?}");
        assert!(closed.free().0 > 0.9, "{closed:?}");
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
