//! Between the second and the third step: closed loops whose last step no wakeup shows.
//!
//! A client shares its CPU with a server of several threads. It sends, the server takes the CPU at
//! that wakeup, and when the client goes on the reply is there: it never sleeps, so nobody ever
//! wakes it. The recording shows a task that works by itself and wakes others, and has an end.
//! Replayed like this, a server that a scheduler lets run more gets no more requests than were
//! recorded. Or the server is the one that never sleeps: a thread that carries Java's virtual
//! threads answers, client and dispatcher take the CPU, and the next request is there; favoured, it
//! would answer what nobody has asked.
//!
//! What tells is that such a task never gets ahead: whenever it sends, all who work for it sleep
//! again, so they had done what it sent before. Then it is a task of their loop, and before each of
//! its messages it needs what they had done by then (`prompt`).
//!
//! Only between processes: what passes there goes through a connection or a pipe, which holds
//! little. Threads of one process may have a queue without bound, in which a task that works by
//! itself may get ahead under another scheduler.

use super::SilentTask;
use super::classify::{Classes, ENOUGH, Loop, Outside, Why};
use super::prompt::{Link, Prompt, When, answers, hardly_sleeps};
use super::timeline::TaskTimeline;
use super::wakes::Wakes;
use schedlab_model::{Ns, TaskId};
use std::collections::BTreeSet;

/// Those who work for it do so in this part of their activations, and sleep again before this part
/// of its messages (in per cent). Chosen, not fitted: the threads of apache under wrk, and wrk
/// under Java, show 99 and more.
const HABIT_PERCENT: usize = 90;
/// It sends a message for so much of its own CPU time, or more often: a batch job that prints its
/// progress does not. Chosen: requests of servers take a millisecond or less.
const MESSAGE_EVERY: Ns = Ns::from_ms(10);

/// A task that hardly ever sleeps, because what it waits for is there when it looks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Silent {
    pub(super) task: usize,
    /// The task that it wakes, in another process.
    door: usize,
    /// That task, and all others that work for it alone: ascending.
    pub(super) others: Vec<usize>,
}

impl Silent {
    pub(super) fn described(&self, lines: &[TaskTimeline]) -> SilentTask {
        let messages = answers(&lines[self.task], self.door).count() as u64;
        SilentTask { task: TaskId::from(self.task), others: self.others.len(), messages }
    }

    /// Whether the task or one that works for it belongs to this circle.
    fn ties(&self, circle: &Loop) -> bool {
        let of = |task: &usize| circle.tasks.binary_search(task).is_ok();
        of(&self.task) || self.others.iter().any(of)
    }

    /// Whether nearly all of its messages come when all who work for it sleep.
    fn never_ahead(&self, lines: &[TaskTimeline]) -> bool {
        let line = &lines[self.task];
        let before = |at: Ns| line.reached(at).saturating_sub(Ns(1));
        let rest = |at: Ns| self.others.iter().all(|&other| lines[other].awake_at(at).is_none());
        let (mut sent, mut done) = (0, 0);
        for at in answers(line, self.door) {
            sent += 1;
            done += usize::from(rest(before(at)));
        }
        done * 100 >= sent * HABIT_PERCENT
    }
}

/// What is known of a task's home.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    pub(super) process: u32,
    /// A thread of the kernel works for everybody.
    pub(super) kernel: bool,
}

/// Finds these tasks. `homes`: of all tasks.
pub(super) fn find(lines: &[TaskTimeline], classes: &Classes, homes: &[Home]) -> Vec<Silent> {
    let mut found = Vec::new();
    let wakes = Wakes::new(lines);
    for task in (0..lines.len()).filter(|&task| !homes[task].kernel) {
        let elsewhere =
            |of: &usize| homes[*of].process != homes[task].process && !homes[*of].kernel;
        let door = lines[task]
            .wakees()
            .into_iter()
            .filter(elsewhere)
            .find(|&door| hardly_sleeps(&lines[task], task, door, &wakes));
        let Some(door) = door else { continue };
        let possible = |of: usize| of != task && !homes[of].kernel;
        let Some(others) = others(lines, (task, door), &possible, &wakes) else { continue };
        let silent = Silent { task, door, others };
        let often = MESSAGE_EVERY * answers(&lines[task], door).count() as u64 >= lines[task].total;
        // That something else drives the task itself, which hardly ever sleeps, says nothing of its
        // messages.
        let driven = |circle: &Loop| {
            !circle.closed && silent.others.iter().any(|of| circle.tasks.contains(of))
        };
        // A task that the door wakes, too, has a tie already.
        let apart = wakes.asked(task, door) == 0 && !classes.loops.iter().any(driven);
        if often && apart && silent.never_ahead(lines) {
            found.push(silent);
        }
    }
    found
}

/// The possible tasks that work for this one alone: it and these begin nearly all that they do.
/// `None`: the door does not.
fn others(
    lines: &[TaskTimeline],
    (task, door): (usize, usize),
    possible: &dyn Fn(usize) -> bool,
    wakes: &Wakes,
) -> Option<Vec<usize>> {
    let mut found: Vec<usize> = Vec::new();
    let mut next = vec![door];
    while !next.is_empty() {
        found.append(&mut next);
        found.sort_unstable();
        let begin = || std::iter::once(task).chain(found.iter().copied());
        let works = |other: &usize| {
            let begun: usize = begin().map(|by| wakes.asked(*other, by)).sum();
            let all = lines[*other].activations.len();
            begun >= ENOUGH && begun * 100 >= all * HABIT_PERCENT
        };
        if !works(&door) {
            return None;
        }
        let begun: BTreeSet<usize> =
            begin().flat_map(|by| wakes.begins(by).iter().copied()).collect();
        let joins =
            |other: &usize| possible(*other) && found.binary_search(other).is_err() && works(other);
        next.extend(begun.into_iter().filter(joins));
    }
    Some(found)
}

/// Makes each such task and those who work for it one closed loop, with all closed loops that they
/// have a part in.
pub(super) fn join(classes: &mut Classes, silent: &[Silent]) {
    for silent in silent {
        for circle in classes.loops.iter_mut().filter(|circle| !circle.closed) {
            circle.tasks.retain(|task| *task != silent.task);
        }
        classes.loops.retain(|circle| circle.tasks.len() > 1);
        let mut tasks = vec![silent.task];
        tasks.extend(&silent.others);
        let (tied, mut loops): (Vec<Loop>, Vec<Loop>) =
            std::mem::take(&mut classes.loops).into_iter().partition(|circle| silent.ties(circle));
        tied.iter().for_each(|circle| tasks.extend(&circle.tasks));
        tasks.sort_unstable();
        tasks.dedup();
        for &task in tasks.iter().filter(|task| classes.openers.binary_search(task).is_err()) {
            classes.outside[task] = Outside::Relative(Why::ClosedLoop);
        }
        loops.push(Loop { tasks, closed: true });
        loops.sort_by(|a, b| a.tasks.cmp(&b.tasks));
        classes.loops = loops;
    }
}

/// What each such task needs behind its messages.
pub(super) fn needs(silent: &[Silent]) -> impl Iterator<Item = Prompt> + '_ {
    silent.iter().flat_map(|silent| {
        // Where it goes on it may have to run a little before the others get its CPU again.
        let need = |&producer: &usize| Prompt {
            link: Link { producer, consumer: silent.task },
            wakes: silent.door,
            when: When::SendsAgain,
        };
        silent.others.iter().map(need)
    })
}

#[cfg(test)]
mod tests {
    use super::super::classify::classify;
    use super::super::timeline::{Deed, End, Origin};
    use super::*;

    const CLIENT: usize = 0;
    const DOOR: usize = 1;
    const WORKERS: [usize; 2] = [2, 3];
    const BATCH: usize = 4;

    fn us(us: u64) -> Ns {
        Ns::from_us(us)
    }

    fn begins(lines: &mut [TaskTimeline], by: usize, task: usize, at: Ns) {
        let number = lines[task].activations.len() as u32;
        let open = lines[by].activations.last_mut().unwrap();
        open.deeds.push((open.demand, Deed::Wake(TaskId::from(task), number)));
        lines[task].begin(Origin::Task(TaskId::from(by)), at, None);
    }

    fn ends(lines: &mut [TaskTimeline], task: usize) {
        lines[task].activations.last_mut().unwrap().end =
            End::Blocked(schedlab_model::PrevState::Sleeping);
    }

    /// In each millisecond the client works for 100 us and sends; the door hands that on to one of
    /// two workers in 100 us, which needs 300. With `late` rounds in a hundred the client sends
    /// while the worker of the round before has not run.
    fn lines(late: u64) -> Vec<TaskTimeline> {
        let mut lines = vec![TaskTimeline::default(); 5];
        [CLIENT, BATCH].iter().for_each(|&task| lines[task].begin(Origin::Initial, Ns::ZERO, None));
        for round in 0..100 {
            let (at, worker) = (us(1_000 * round), WORKERS[(round % 2) as usize]);
            lines[CLIENT].run(at, at + us(100));
            begins(&mut lines, CLIENT, DOOR, at + us(100));
            lines[DOOR].run(at + us(100), at + us(200));
            begins(&mut lines, DOOR, worker, at + us(200));
            ends(&mut lines, DOOR);
            let later = if round % 100 < late { us(1_000) } else { Ns::ZERO };
            lines[worker].run(at + later + us(200), at + later + us(500));
            ends(&mut lines, worker);
            lines[BATCH].run(at + us(500), at + us(1_000));
        }
        lines
    }

    /// Client, door and workers, batch: by process.
    fn homes(of: [u32; 3]) -> Vec<Home> {
        let processes = [of[0], of[1], of[1], of[1], of[2]];
        processes.map(|process| Home { process, kernel: false }).to_vec()
    }

    fn found(lines: &[TaskTimeline], homes: &[Home]) -> Vec<Silent> {
        find(lines, &classify(lines, us(100_000), &[]), homes)
    }

    #[test]
    fn a_client_whose_replies_are_there_is_found_with_all_who_serve_it() {
        let silent = found(&lines(0), &homes([10, 11, 12]));
        assert_eq!(silent, [Silent { task: CLIENT, door: DOOR, others: vec![1, 2, 3] }]);
        assert_eq!(silent[0].described(&lines(0)).messages, 100);
        // A few messages may come early.
        assert_eq!(found(&lines(8), &homes([10, 11, 12])).len(), 1);
    }

    #[test]
    fn who_works_ahead_or_in_the_same_process_or_for_the_kernel_is_no_client() {
        assert_eq!(
            found(&lines(30), &homes([10, 11, 12])),
            [],
            "it sends while its servers have work"
        );
        assert_eq!(
            found(&lines(0), &homes([10, 10, 12])),
            [],
            "a queue of its own process has no bound"
        );
        let mut kernel = homes([10, 11, 12]);
        kernel[DOOR].kernel = true;
        assert_eq!(found(&lines(0), &kernel), []);
    }

    #[test]
    fn a_batch_job_that_prints_its_progress_is_no_client() {
        let mut lines = lines(0);
        lines[CLIENT].total = us(1_000_001);
        assert_eq!(
            found(&lines, &homes([10, 11, 12])),
            [],
            "100 messages, each for more than 10 ms of work"
        );
    }

    #[test]
    fn client_and_servers_become_one_closed_loop() {
        let lines = lines(0);
        let mut classes = classify(&lines, us(100_000), &[]);
        assert!(!classes.in_loop(CLIENT));
        let silent = find(&lines, &classes, &homes([10, 11, 12]));
        join(&mut classes, &silent);
        let tied: Vec<&[usize]> =
            classes.loops.iter().map(|circle| circle.tasks.as_slice()).collect();
        assert_eq!(tied, [&[0, 1, 2, 3][..]]);
        assert!(classes.in_closed_loop(CLIENT) && !classes.in_loop(BATCH));
        assert_eq!(classes.outside[WORKERS[0]], Outside::Relative(Why::ClosedLoop));
        let needs: Vec<(usize, usize, usize)> = needs(&silent)
            .map(|need| (need.link.producer, need.link.consumer, need.wakes))
            .collect();
        assert_eq!(needs, [(1, CLIENT, DOOR), (2, CLIENT, DOOR), (3, CLIENT, DOOR)]);
    }

    #[test]
    fn a_loop_that_the_outside_drives_has_no_such_client() {
        let lines = lines(0);
        let mut classes = classify(&lines, us(100_000), &[]);
        classes.loops.push(Loop { tasks: vec![DOOR, WORKERS[0]], closed: false });
        assert_eq!(find(&lines, &classes, &homes([10, 11, 12])), []);
        // What drives the client itself is left alone.
        classes.loops = vec![Loop { tasks: vec![CLIENT, BATCH], closed: false }];
        let silent = find(&lines, &classes, &homes([10, 11, 12]));
        join(&mut classes, &silent);
        assert_eq!(silent.len(), 1);
        assert!(classes.loops.len() == 1 && classes.loops[0].closed && classes.in_loop(CLIENT));
        // One that the door wakes, too, has a tie already; that both are of one loop is none.
        classes.loops = vec![Loop { tasks: vec![CLIENT, DOOR], closed: true }];
        assert_eq!(find(&lines, &classes, &homes([10, 11, 12])).len(), 1);
        let mut woken = lines.clone();
        woken[CLIENT].begin(Origin::Task(TaskId::from(DOOR)), us(100_000), None);
        assert_eq!(find(&woken, &classes, &homes([10, 11, 12])), []);
    }
}
