//! Tasks that start one command after the other: make, xargs, a shell in a loop.
//!
//! Each of their commands ends, and the next one is another task, so that nothing in the recording
//! happens twice. What the recording shows is how many such commands there are at a time, and what
//! they cost. When a scheduler lets them run faster the recorded ones are done before the time is
//! over, and the maker starts more: it begins again, and creates again what has ended.
//!
//! At least [`COMMANDS`] of them must have one name. A script runs different commands one after the
//! other: that more would follow is not shown, and to begin again would repeat what was done once.
//!
//! A maker that ended by itself, or started its last command long before the end, was done.

use super::timeline::{End, Origin, TaskTimeline};
use schedlab_model::{Ns, TaskId};
use std::collections::BTreeMap;

/// Fewer commands than this do not show that more would follow. Chosen: a compiler driver starts
/// two or three.
const COMMANDS: usize = 4;
/// Of the commands so many have ended (in per cent): a server keeps its workers.
const ENDED_PERCENT: usize = 50;

/// The makers, and all that they create.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Makers {
    /// Ascending.
    pub(super) tasks: Vec<usize>,
    /// Who created what they create, and what that creates. In a second round no others do anything
    /// for them.
    parents: BTreeMap<usize, usize>,
}

impl Makers {
    /// Whether a task is a maker.
    pub(super) fn has(&self, task: usize) -> bool {
        self.tasks.binary_search(&task).is_ok()
    }

    /// Whether a maker, or what it creates, created this task.
    pub(super) fn create(&self, task: usize) -> bool {
        self.parents.contains_key(&task) && self.nearest(task).is_some()
    }

    /// All that one maker, and what it creates, creates; ascending.
    pub(super) fn commands_of(&self, maker: usize) -> Vec<usize> {
        self.parents.keys().copied().filter(|&task| self.is_of(task, maker)).collect()
    }

    /// The nearest maker: itself, or the one whose command it is.
    pub(super) fn nearest(&self, task: usize) -> Option<usize> {
        std::iter::successors(Some(task), |of| self.parents.get(of).copied())
            .find(|&of| self.has(of))
    }

    #[cfg(test)]
    pub(super) fn of(tasks: &[usize], parents: &[(usize, usize)]) -> Makers {
        Makers { tasks: tasks.to_vec(), parents: parents.iter().copied().collect() }
    }

    fn is_of(&self, task: usize, maker: usize) -> bool {
        std::iter::successors(self.parents.get(&task).copied(), |of| self.parents.get(of).copied())
            .any(|of| of == maker)
    }

    /// Whether `by`, which is none of theirs, ended one of them, whose last activation is this: its
    /// next round waits for nobody who does that.
    pub(super) fn are_stopped(
        &self,
        lines: &[TaskTimeline],
        by: usize,
        task: usize,
        activation: usize,
    ) -> bool {
        let stranger = |maker: usize| by != maker && !self.is_of(by, maker);
        activation + 1 == lines[task].activations.len()
            && has_ended(&lines[task])
            && self.nearest(task).is_some_and(stranger)
    }

    /// For the report.
    pub(super) fn named(&self) -> Vec<TaskId> {
        self.tasks.iter().copied().map(TaskId::from).collect()
    }
}

/// All that makers create together has at least this part of a CPU (in per cent): a build. Chosen:
/// a script that looks after something, a few commands a second, has 6 in a shipped recording, and
/// waits for more than its commands.
const WORK_PERCENT: u64 = 20;

/// Finds the makers. `processes` and `names`: by task.
pub(super) fn find(
    lines: &[TaskTimeline],
    processes: &[u32],
    names: &[&str],
    duration: Ns,
) -> Makers {
    let tasks = makers(lines, processes, names, duration);
    let mut parents = BTreeMap::new();
    let mut open = tasks.clone();
    while let Some(task) = open.pop() {
        for of in lines[task].created() {
            if parents.insert(of, task).is_none() {
                open.push(of);
            }
        }
    }
    let found = Makers { tasks, parents };
    let works = |maker: &usize| {
        let had: Ns = found.commands_of(*maker).into_iter().map(|of| lines[of].total).sum();
        had.0 * 100 >= duration.0 * WORK_PERCENT
    };
    let tasks = found.tasks.iter().copied().filter(works).collect();
    Makers { tasks, ..found }
}

fn makers(lines: &[TaskTimeline], processes: &[u32], names: &[&str], duration: Ns) -> Vec<usize> {
    let is_maker = |task: &usize| {
        let line = &lines[*task];
        let commands: Vec<usize> =
            line.created().filter(|of| processes[*of] != processes[*task]).collect();
        let ended = commands.iter().filter(|of| has_ended(&lines[**of])).count();
        // In the last third, or one that lasts: four compilers that began long before may still be
        // at it.
        let late = |of: &usize| {
            let line = &lines[*of];
            let begun = line.activations.first().map_or(Ns::ZERO, |first| first.woken);
            begun.0 * 3 > duration.0 * 2 || line.ended_late(duration)
        };
        let goes_on = commands.last().is_some_and(late);
        most_alike(&commands, names) >= COMMANDS
            && ended * 100 >= commands.len() * ENDED_PERCENT
            && goes_on
            && (!has_ended(line) || line.ended_late(duration) && is_stopped(line))
    };
    (0..lines.len()).filter(is_maker).collect()
}

/// How many of these commands have the name that most of them have.
fn most_alike(commands: &[usize], names: &[&str]) -> usize {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for &command in commands {
        *counts.entry(names[command]).or_default() += 1;
    }
    counts.into_values().max().unwrap_or_default()
}

/// Whether a task that it did not create woke it for the last time: a signal. A script that ends
/// behind its last command was done.
fn is_stopped(line: &TaskTimeline) -> bool {
    let last = line.activations.last().map(|last| last.origin);
    matches!(last, Some(Origin::Task(by)) if !line.created().any(|of| of == by.index()))
}

fn has_ended(line: &TaskTimeline) -> bool {
    line.activations.last().is_some_and(|last| last.end == End::Exited)
}

/// Whether all that a task created is still there when the recording ends.
pub(super) fn keeps_all(lines: &[TaskTimeline], task: usize) -> bool {
    lines[task].created().all(|of| !has_ended(&lines[of]))
}

#[cfg(test)]
mod tests {
    use super::super::timeline::Deed;
    use super::*;

    const DURATION: Ns = Ns::from_ms(1_000);

    /// Task 0 starts a command at each of these times (in ms), which lasts for 100 ms.
    fn lines(starts: &[u64]) -> (Vec<TaskTimeline>, Vec<u32>) {
        let mut lines = vec![TaskTimeline::default()];
        lines[0].begin(Origin::Initial, Ns::ZERO, None);
        lines[0].run(Ns::ZERO, DURATION);
        for &start in starts {
            let (at, command) = (Ns::from_ms(start), lines.len());
            lines[0].activations[0].deeds.push((at, Deed::Spawn(TaskId::from(command))));
            let mut line = TaskTimeline::default();
            line.begin(Origin::Forked(Some(TaskId(0))), at, None);
            line.run(at, at + Ns::from_ms(100));
            line.activations[0].end = End::Exited;
            lines.push(line);
        }
        let processes = (0..lines.len() as u32).collect();
        (lines, processes)
    }

    #[test]
    fn who_starts_commands_to_the_end_goes_on() {
        let (mut lines, processes) = lines(&[100, 300, 500, 700, 900]);
        let found = find(&lines, &processes, &["cc"; 6], DURATION);
        assert_eq!((&found.tasks[..], found.commands_of(0)), (&[0][..], vec![1, 2, 3, 4, 5]));
        assert_eq!(
            (found.nearest(3), found.nearest(0), found.create(0)),
            (Some(0), Some(0), false)
        );
        assert!(!keeps_all(&lines, 0));
        let find = |lines: &[TaskTimeline], processes: &[u32]| {
            find(lines, processes, &["cc"; 6], DURATION).tasks
        };
        assert!(find(&lines, &[7; 6]).is_empty(), "threads of its own are no commands");
        lines[0].activations[0].end = End::Exited;
        assert!(find(&lines, &processes).is_empty(), "it was done");
        lines[0].begin(Origin::Task(TaskId(6)), DURATION, None);
        lines[0].activations[1].end = End::Exited;
        assert_eq!(find(&lines, &processes), [0], "it was stopped");
        lines[1..].iter_mut().for_each(|line| line.activations[0].end = End::Cut);
        assert!(find(&lines, &processes).is_empty() && keeps_all(&lines, 0), "workers that stay");
    }

    #[test]
    fn who_waits_for_commands_that_last_goes_on() {
        let (mut lines, processes) = lines(&[100, 300, 500, 600]);
        assert_eq!(find(&lines, &processes, &["cc"; 6], DURATION).tasks, [0; 0]);
        lines[4].stretches.last_mut().unwrap().to = Ns::from_ms(900);
        assert_eq!(find(&lines, &processes, &["cc"; 6], DURATION).tasks, [0]);
    }

    #[test]
    fn who_was_done_begins_no_more() {
        for starts in [&[100, 200, 300, 400, 500][..], &[700, 800, 900]] {
            let (lines, processes) = lines(starts);
            assert_eq!(
                find(&lines, &processes, &["cc"; 6], DURATION),
                Makers::default(),
                "{starts:?}"
            );
        }
    }

    #[test]
    fn a_script_of_different_commands_is_done_once() {
        let (lines, processes) = lines(&[100, 300, 500, 700, 900]);
        let script = ["sh", "tar", "gzip", "sha256sum", "sleep", "bench"];
        assert_eq!(find(&lines, &processes, &script, DURATION), Makers::default());
        let make = ["make", "cc", "cc", "ld", "cc", "cc"];
        assert_eq!(find(&lines, &processes, &make, DURATION).tasks, [0]);
    }
}
