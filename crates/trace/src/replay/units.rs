//! What is a unit of work: the tasks of which an activation is a request.
//!
//! A server of one connection sleeps after each answer: an activation is a request, and activations
//! a second are its throughput under every scheduler. A server of many connections answers what has
//! come when it gets a CPU, one request or thirty: its activations merge and split with the load,
//! and their number says nothing about requests. Where it is awake, no wakeup shows what came. So a
//! task whose activations are requests is one that does as much for each: woken by another task, it
//! wakes just that one, once.

use super::timeline::{Deed, Origin, TaskTimeline};
use schedlab_model::TaskId;

/// The rule must hold for this part of a task's activations (in per cent).
const HABIT_PERCENT: usize = 90;
/// … and of so many at least: fewer are nobody's load.
const ENOUGH: usize = 32;

/// The tasks of which an activation is a request; `lines` as they were recorded.
pub(super) fn requests(lines: &[TaskTimeline]) -> Vec<TaskId> {
    let of_requests = |line: &&TaskTimeline| {
        let answers = line.activations.iter().filter(|activation| match activation.origin {
            Origin::Task(by) => {
                let mut woken = activation.deeds.iter().filter_map(|(_, deed)| match deed {
                    Deed::Wake(task, _) => Some(*task),
                    _ => None,
                });
                woken.next() == Some(by) && woken.next().is_none()
            }
            _ => false,
        });
        let answers = answers.count();
        answers >= ENOUGH && answers * 100 >= line.activations.len() * HABIT_PERCENT
    };
    let tasks = lines.iter().enumerate().filter(|(_, line)| of_requests(line));
    tasks.map(|(task, _)| TaskId::from(task)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::timeline::Activation;
    use super::*;
    use schedlab_model::Ns;

    fn line(wakes: &[u32]) -> TaskTimeline {
        let deeds = wakes.iter().map(|&task| (Ns(5), Deed::Wake(TaskId(task), 0))).collect();
        let one =
            Activation { deeds, ..Activation::plain(Origin::Task(TaskId(0)), Ns::ZERO, Ns(10)) };
        let mut line = TaskTimeline::default();
        line.activations = vec![one; 100];
        line
    }

    #[test]
    fn one_answer_for_each_wakeup_is_a_request() {
        let mut lines = [line(&[0]), line(&[]), line(&[0, 0]), line(&[3]), line(&[0])];
        assert_eq!(requests(&lines), [TaskId(0), TaskId(4)]);
        lines[4].activations.truncate(31);
        assert_eq!(requests(&lines), [TaskId(0)], "too few to be a habit");
    }
}
