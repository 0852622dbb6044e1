//! What happened beside the schedule: losses, throttling, stolen time, and the incident.
//!
//! The bytes: the number of marks, then for each its kind ([`Kind`]), when it began and how long it
//! lasted in nanoseconds from the beginning of the lanes, its CPU, and the task (throttled) or the
//! number of events (lost). All are varints.

use crate::embed::varint;
use schedlab_model::{CpuId, Ns, TaskId};
use serde::Serialize;
use std::collections::BTreeMap;

/// So many are marked; a page would not show more.
const LIMIT: usize = 20_000;

/// What a flight recorder kept a recording for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LaneIncident {
    /// When it began.
    pub from_ns: Ns,
    /// When it ended, at most the end of the recording.
    pub to_ns: Ns,
    /// What it was.
    pub text: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Lost = 0,
    Throttled = 1,
    Stolen = 2,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    kind: Kind,
    from: Ns,
    to: Ns,
    cpu: CpuId,
    what: u64,
}

/// Collects marks.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    all: Vec<Mark>,
    /// Tasks that are throttled: since when, on which CPU.
    open: BTreeMap<TaskId, (Ns, CpuId)>,
    /// Those for which there was no room.
    pub(super) left: u64,
}

impl Marks {
    fn push(&mut self, mark: Mark) {
        if self.all.len() < LIMIT {
            self.all.push(mark);
        } else {
            self.left += 1;
        }
    }

    pub(super) fn lost(&mut self, at: Ns, cpu: CpuId, count: u64) {
        self.push(Mark { kind: Kind::Lost, from: at, to: at, cpu, what: count });
    }

    /// The time ends now.
    pub(super) fn stolen(&mut self, at: Ns, cpu: CpuId, ns: Ns) {
        let from = at.saturating_sub(ns);
        self.push(Mark { kind: Kind::Stolen, from, to: at, cpu, what: 0 });
    }

    pub(super) fn throttled(&mut self, at: Ns, cpu: CpuId, task: TaskId) {
        self.open.entry(task).or_insert((at, cpu));
    }

    /// What ended before the lanes begin is not kept.
    pub(super) fn released(&mut self, at: Ns, task: TaskId, begin: Ns) {
        let since = self.open.remove(&task);
        if let Some((from, cpu)) = since.filter(|_| at >= begin) {
            let what = u64::from(task.0);
            self.push(Mark { kind: Kind::Throttled, from, to: at, cpu, what });
        }
    }

    /// Writes the marks that reach into the lanes.
    pub(super) fn finish(&self, from: Ns, to: Ns, out: &mut Vec<u8>) {
        let still = self.open.iter().map(|(task, (since, cpu))| Mark {
            kind: Kind::Throttled,
            from: *since,
            to,
            cpu: *cpu,
            what: u64::from(task.0),
        });
        let reaches = |mark: &Mark| mark.to >= from && mark.from <= to;
        let all: Vec<Mark> = self.all.iter().copied().chain(still).filter(reaches).collect();
        varint(out, all.len() as u64);
        for mark in all {
            let (begin, end) = (mark.from.max(from), mark.to.min(to));
            varint(out, mark.kind as u64);
            varint(out, (begin - from).0);
            varint(out, end.saturating_sub(begin).0);
            varint(out, mark.cpu.index() as u64);
            varint(out, mark.what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_cut_to_the_lanes_and_open_ones_end_with_them() {
        let mut marks = Marks::default();
        let cpu = CpuId(3);
        marks.throttled(Ns(10), cpu, TaskId(7));
        marks.throttled(Ns(20), cpu, TaskId(7));
        marks.released(Ns(60), TaskId(7), Ns(50));
        marks.released(Ns(61), TaskId(7), Ns(50));
        marks.stolen(Ns(90), cpu, Ns(30));
        marks.stolen(Ns(40), cpu, Ns(30));
        marks.lost(Ns(95), cpu, 5);
        marks.throttled(Ns(99), cpu, TaskId(1));
        let mut bytes = Vec::new();
        marks.finish(Ns(50), Ns(100), &mut bytes);
        let expected = [
            [1, 0, 10, 3, 7], // throttled, from the beginning of the lanes on
            [2, 10, 30, 3, 0],
            [0, 45, 0, 3, 5],
            [1, 49, 1, 3, 1],
        ];
        assert_eq!((bytes[0], &bytes[1..]), (4, expected.as_flattened()));
    }

    #[test]
    fn too_many_are_counted() {
        let mut marks = Marks::default();
        (0..LIMIT as u64 + 5).for_each(|at| marks.lost(Ns(at), CpuId(0), 1));
        assert_eq!((marks.all.len(), marks.left), (LIMIT, 5));
    }
}
