//! Between the second and the third step: work that lies until a runtime's monitor finds it.
//!
//! Where none of a Go runtime's threads waits in epoll, a client's message wakes nobody: the
//! monitor looks for it every 20 us to 10 ms, and wakes a thread. In a recording that thread slept
//! until a timer expired. Kept at its length that sleep would be a pause of the loop which no
//! scheduler can shorten; it lasted for as long as its client took to send.
//!
//! So a lane that the monitor woke needs what its client had done by then, and sleeps for what was
//! left of its sleep: until the monitor looked. That had been done at that moment of the recording,
//! so the recorded order remains possible. A sleep in which the client did nothing keeps its
//! length.

use super::classify::Classes;
use super::couple::{Link, add};
use super::prompt::{ANSWERS, answers};
use super::runtime::Runtime;
use super::timeline::{Deed, TaskTimeline};
use schedlab_model::{Ns, PrevState};
use std::collections::BTreeMap;

/// A lane that the monitor wakes, and its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Look {
    link: Link,
    /// Activation of the lane.
    activation: usize,
    /// What the client had done when the lane woke.
    needed: Ns,
    /// For how long the lane still slept then.
    rest: Ns,
}

/// Ties the lanes to their clients: gives one link for each lane that has any such sleep. The first
/// has the number `first`.
pub(super) fn tie<'a>(
    lines: &mut [TaskTimeline],
    classes: &Classes,
    runtimes: impl Iterator<Item = &'a Runtime>,
    first: usize,
) -> Vec<Link> {
    let mut links: Vec<Link> = Vec::new();
    let looks: Vec<Look> =
        runtimes.flat_map(|runtime| of_runtime(lines, classes, runtime)).collect();
    for Look { link, activation, needed, rest } in looks {
        let known = links.iter().position(|other| *other == link);
        let number = known.unwrap_or(links.len());
        if known.is_none() {
            links.push(link);
        }
        let number = (first + number) as u32;
        add(&mut lines[link.producer], needed, Deed::Feed(number));
        let lane = &mut lines[link.consumer].activations;
        lane[activation].slept = Some((rest, PrevState::Sleeping));
        let before = &mut lane[activation - 1];
        before.deeds.push((before.demand, Deed::Await(number)));
    }
    lines.iter_mut().for_each(TaskTimeline::order_deeds);
    links
}

fn of_runtime(lines: &[TaskTimeline], classes: &Classes, runtime: &Runtime) -> Vec<Look> {
    let mut clients: BTreeMap<usize, Option<usize>> = BTreeMap::new();
    for &(lane, _) in &runtime.looks {
        clients.entry(lane).or_insert_with(|| client(lines, classes, runtime, lane));
    }
    let look = |&(lane, activation): &(usize, usize)| {
        let link = Link { producer: clients[&lane]?, consumer: lane };
        let (client, woken) = (&lines[link.producer], &lines[lane].activations[activation]);
        let (slept, _) = woken.slept?;
        let (before, needed) =
            (client.progress(woken.woken.saturating_sub(slept)), client.progress(woken.woken));
        let rest = woken.woken.saturating_sub(client.reached(needed));
        (needed > before).then_some(Look { link, activation, needed, rest })
    };
    runtime.looks.iter().filter(|(_, activation)| *activation > 0).filter_map(look).collect()
}

/// The task outside of the runtime that a lane answers most often, in the same closed loop.
fn client(
    lines: &[TaskTimeline],
    classes: &Classes,
    runtime: &Runtime,
    lane: usize,
) -> Option<usize> {
    let circle =
        classes.loops.iter().find(|circle| circle.closed && circle.tasks.contains(&lane))?;
    let outside = circle.tasks.iter().copied().filter(|task| !runtime.threads.contains(task));
    let answered = outside.map(|task| (answers(&lines[lane], task).count(), task));
    answered.max().filter(|(times, _)| *times >= ANSWERS).map(|(_, task)| task)
}

#[cfg(test)]
mod tests {
    use super::super::classify::{Loop, Outside, Why};
    use super::super::timeline::{End, Origin};
    use super::*;
    use schedlab_model::TaskId;

    const LANE: usize = 0;
    const CLIENT: usize = 1;
    const IDLE: u64 = 20;

    fn us(us: u64) -> Ns {
        Ns::from_us(us)
    }

    /// In each millisecond the lane works for 300 us and answers; 100 us later the client works for
    /// 200 us and sends, and the monitor finds that 400 us later. In one of 40 rounds nobody sends.
    fn lines() -> Vec<TaskTimeline> {
        let mut lines = vec![TaskTimeline::default(); 2];
        for round in 0..40 {
            let at = us(1_000 * round);
            let slept = (round > 0).then_some((us(700), PrevState::Sleeping));
            lines[LANE].begin(Origin::HardIrq, at, slept);
            lines[LANE].run(at, at + us(300));
            let number = lines[CLIENT].activations.len() as u32;
            let open = lines[LANE].activations.last_mut().unwrap();
            open.deeds.push((open.demand, Deed::Wake(TaskId::from(CLIENT), number)));
            open.end = End::Blocked(PrevState::Sleeping);
            lines[CLIENT].begin(Origin::Task(TaskId::from(LANE)), at + us(300), None);
            if round != IDLE {
                lines[CLIENT].run(at + us(400), at + us(600));
            }
            lines[CLIENT].activations.last_mut().unwrap().end = End::Blocked(PrevState::Sleeping);
        }
        lines
    }

    fn classes(closed: bool) -> Classes {
        let outside = vec![Outside::Relative(Why::ClosedLoop); 2];
        Classes {
            outside,
            loops: vec![Loop { tasks: vec![LANE, CLIENT], closed }],
            openers: Vec::new(),
        }
    }

    fn runtime() -> Runtime {
        let looks = (0..40).map(|activation| (LANE, activation)).collect();
        Runtime { threads: vec![LANE], lanes: vec![LANE], looks, ..Runtime::default() }
    }

    #[test]
    fn a_lane_that_the_monitor_woke_waits_for_its_client_and_then_for_the_look() {
        let mut lines = lines();
        let links = tie(&mut lines, &classes(true), [runtime()].iter(), 5);
        assert_eq!(links, [Link { producer: CLIENT, consumer: LANE }]);
        let lane = &lines[LANE].activations;
        assert_eq!(
            lane[3].slept,
            Some((us(400), PrevState::Sleeping)),
            "from the message to the look"
        );
        assert_eq!(lane[2].deeds.last(), Some(&(us(300), Deed::Await(5))), "behind the answer");
        let fed = &lines[CLIENT].activations[2].deeds;
        assert_eq!(fed[..], [(us(200), Deed::Feed(5))], "all that the client did before");
        // Nobody sent: the monitor had another reason.
        let idle = IDLE as usize;
        assert_eq!(lane[idle + 1].slept, Some((us(700), PrevState::Sleeping)));
        assert!(!lane[idle].deeds.contains(&(us(300), Deed::Await(5))));
        let count = |task: usize, deed: Deed| {
            lines[task]
                .activations
                .iter()
                .flat_map(|a| &a.deeds)
                .filter(|(_, other)| *other == deed)
                .count()
        };
        assert_eq!(
            (count(LANE, Deed::Await(5)), count(CLIENT, Deed::Feed(5))),
            (38, 38),
            "each wait is met"
        );
    }

    #[test]
    fn a_loop_that_the_outside_drives_waits_for_its_dates() {
        let (mut lines, before) = (lines(), lines());
        assert_eq!(tie(&mut lines, &classes(false), [runtime()].iter(), 0), []);
        assert!(lines.iter().zip(&before).all(|(new, old)| new.activations == old.activations));
    }
}
