//! What ran during many waits of one CPU, in one walk over its switches: with a hundred tasks in a
//! run queue a walk for each wait looks at each switch a hundred times.

use super::{Occupancy, first_after};
use crate::analysis::follow::Occupant;
use schedlab_model::{CpuId, Ns};
use std::collections::{BTreeMap, VecDeque};

/// A part of a wait, of a task of this line; it has a length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waited {
    pub(crate) line: usize,
    pub(crate) from: Ns,
    pub(crate) to: Ns,
}

/// A line during the stretch of one occupant.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    /// Its waits that have begun and not ended.
    waits: u64,
    /// How many of its waits lie in the stretch, or a part of them.
    times: u64,
    /// How long these waited in it, all together.
    time: u128,
}

/// Beginnings and ends that are still to come, ascending, and the lines between.
struct Walk<'a> {
    begins: &'a [(Ns, usize)],
    ends: &'a [(Ns, usize)],
    open: BTreeMap<usize, Open>,
}

impl Walk<'_> {
    /// Goes from `since` to `at`, for which `who` was on the CPU.
    fn stretch(
        &mut self,
        (since, at): (Ns, Ns),
        who: Occupant,
        each: &mut impl FnMut(usize, Occupant, Ns, u64),
    ) {
        if at <= since {
            return;
        }
        for open in self.open.values_mut() {
            open.times = open.waits;
            open.time = u128::from(open.waits) * u128::from((at - since).0);
        }
        // Beginnings first, so that no sum is ever below zero.
        while let Some((&(from, line), rest)) = self.begins.split_first()
            && from < at
        {
            let open = self.open.entry(line).or_default();
            (open.waits, open.times) = (open.waits + 1, open.times + 1);
            open.time += u128::from((at - from).0);
            self.begins = rest;
        }
        while let Some((&(to, line), rest)) = self.ends.split_first()
            && to <= at
        {
            if let Some(open) = self.open.get_mut(&line) {
                open.waits -= 1;
                open.time -= u128::from((at - to).0);
            }
            self.ends = rest;
        }
        for (line, open) in &self.open {
            each(*line, who, Ns(open.time as u64), open.times);
        }
        self.open.retain(|_, open| open.waits > 0);
    }
}

impl Occupancy {
    /// Calls `each` for every stretch of an occupant of `cpu` and every line with waits in it: how
    /// long these waited in it, all together, and how many they are. The sums are those of
    /// [`Occupancy::over`] for each of the waits.
    pub(crate) fn over_all(
        &self,
        cpu: CpuId,
        waits: &[Waited],
        mut each: impl FnMut(usize, Occupant, Ns, u64),
    ) {
        let edges = |edge: fn(&Waited) -> Ns| {
            let mut all: Vec<(Ns, usize)> = waits.iter().map(|one| (edge(one), one.line)).collect();
            all.sort_unstable();
            all
        };
        let (begins, ends) = (edges(|wait| wait.from), edges(|wait| wait.to));
        let Some(&(last, _)) = ends.last() else { return };
        let mut walk = Walk { begins: &begins, ends: &ends, open: BTreeMap::new() };
        let empty = VecDeque::new();
        let log = self.cpus.get(cpu.index()).unwrap_or(&empty);
        // Where no task waits the walk goes on with the next wait.
        while let Some(&(from, _)) = walk.begins.first() {
            let first = first_after(log, from);
            let mut who = if first > 0 { log[first - 1].1 } else { Occupant::Unknown };
            let (mut since, mut pauses) = (from, false);
            for &(at, next) in log.range(first..) {
                walk.stretch((since, at), who, &mut each);
                (who, since) = (next, at);
                pauses = walk.open.is_empty();
                if pauses {
                    break;
                }
            }
            if !pauses {
                walk.stretch((since, last), who, &mut each);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use schedlab_model::TaskId;

    type Sums = BTreeMap<(usize, Occupant), (u64, u64)>;

    fn lay(sums: &mut Sums, line: usize, who: Occupant, (time, times): (Ns, u64)) {
        let sum = sums.entry((line, who)).or_default();
        *sum = (sum.0 + time.0, sum.1 + times);
    }

    proptest! {
        #[test]
        fn the_sums_are_those_of_each_wait(
            steps in proptest::collection::vec((0..4u64, 0..5u32), 0..60),
            waits in proptest::collection::vec((0..3usize, 0..90u64, 1..60u64), 0..40),
        ) {
            let (cpu, mut occupancy, mut now) = (CpuId(1), Occupancy::default(), 0);
            for (step, who) in steps {
                now += step;
                let who = match who {
                    0 => Occupant::Idle,
                    1 => Occupant::Unknown,
                    task => Occupant::Task(TaskId(task)),
                };
                occupancy.note(cpu, Ns(now), who);
            }
            let waits: Vec<Waited> = waits
                .into_iter()
                .map(|(line, from, length)| Waited { line, from: Ns(from), to: Ns(from + length) })
                .collect();
            let (mut one_by_one, mut together) = (Sums::new(), Sums::new());
            for wait in &waits {
                occupancy.over(cpu, wait.from, wait.to, |who, part| {
                    lay(&mut one_by_one, wait.line, who, (part, 1));
                });
            }
            occupancy.over_all(cpu, &waits, |line, who, time, times| {
                lay(&mut together, line, who, (time, times));
            });
            prop_assert_eq!(together, one_by_one);
        }
    }
}
