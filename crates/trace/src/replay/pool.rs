//! Between the second and the third step: tasks that many others feed.
//!
//! Several senders write into the socket of one receiver. The receiver blocks when the socket is empty, and the next
//! message wakes it, whoever sends that. A recording shows this one message with its sender, and nothing of those that
//! came while the receiver was awake. Were the wakeup tied to that sender, the receiver would sleep in a replay until just
//! this one comes along, although four others have written meanwhile; its CPU would idle. The other way round a
//! sender whose messages fill the buffers is woken by whichever receiver makes room first.
//!
//! So the wakeups among such tasks are replaced by what they stand for: an amount. The progress of all producers of a
//! consumer is counted together, in tokens of [`QUANTUM`] of CPU time each and one more for each wakeup that they gave it. Where the
//! consumer slept in the recording it needs the tokens that were there when it was woken, all at once; while it is awake it
//! needs none. Whether it sleeps there at all, and who wakes it, is an outcome of the simulation: it sleeps when its
//! producers, taken together, are behind.
//!
//! Nothing can lock up: of all tasks that wait, take the one whose recorded wakeup was the earliest. Its producers, if
//! they wait, wait where they slept until later than that, so they have done all that they did before it.
//!
//! What is lost: a consumer may be ahead of its producers by the work of one activation, and which message lay in which
//! buffer. So the shortest sleeps are missing, of a receiver that waits for each message of a sender on another CPU: 4,000 of
//! 6,600 activations in recordings/hackbench.slt. Where those are most (a second recording of the same command, not
//! shipped: 4,900 of 10,900) the median wait comes out far too long, 1.3 ms for 48 us; p99 is off by 12 %, the share by 0.1
//! points. (With wakeups tied to their senders: 121 us, 27 % and 0.1 points there; 78 %, 15 % and 3.7 points for the shipped one.)

use super::classify::Loop;
use super::couple::add;
use super::reactor::Reactors;
use super::timeline::{Deed, Line, Origin};
use schedlab_model::Ns;

/// Wakers of one task that make it one fed by many.
const MANY: usize = 3;
/// A waker counts with this many wakeups.
const WAKES: usize = 8;
/// CPU time of a producer for one token. Chosen: a wakeup of the consumer is off by at most this much of the progress of each
/// producer. From 2 to 50 us hackbench's p50 is off by -11 to +2 %, its p99 by -7 to -2 %, its share by -2.8 to -3.5 points.
const QUANTUM: Ns = Ns::from_us(20);

/// A task that many others feed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pool {
    pub(super) consumer: usize,
    /// Ascending.
    pub(super) producers: Vec<usize>,
    /// Tokens that each of its activations needs, by activation; 0: none.
    needs: Vec<u32>,
    /// Tokens that nothing needs, at the end.
    rest: u32,
}

/// What the consumer of a pool waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Need {
    /// Number of the pool.
    pub(super) pool: usize,
    /// Tokens.
    pub(super) count: u32,
}

/// Finds the pools of closed loops. What is known of a reactor and its peers goes before that.
pub(super) fn find(lines: &[Line], loops: &[Loop], reactors: &Reactors) -> Vec<Pool> {
    let closed = loops.iter().filter(|circle| circle.closed);
    let pool = |(circle, consumer): (&Loop, usize)| {
        let producers = producers(&lines[consumer], circle);
        let pool = Pool { consumer, producers, needs: Vec::new(), rest: 0 };
        (pool.producers.len() >= MANY).then_some(pool)
    };
    let tasks = closed.flat_map(|circle| circle.tasks.iter().map(move |&task| (circle, task)));
    tasks.filter(|(_, task)| !reactors.has(*task)).filter_map(pool).collect()
}

/// The tasks of the circle that often wake this one.
fn producers(line: &Line, circle: &Loop) -> Vec<usize> {
    let by = |origin: Origin| match origin {
        Origin::Task(by) if circle.tasks.binary_search(&by.index()).is_ok() => Some(by.index()),
        _ => None,
    };
    let mut wakers: Vec<usize> = line.activations.iter().filter_map(|a| by(a.origin)).collect();
    wakers.sort_unstable();
    wakers.chunk_by(|a, b| a == b).filter(|run| run.len() >= WAKES).map(|run| run[0]).collect()
}

/// Adds the tokens of the pools to the lines; the first pool has the channel of link `first`.
pub(super) fn fill(lines: &mut [Line], pools: &mut [Pool], first: usize) {
    let mut deeds = Vec::new();
    for (number, pool) in pools.iter_mut().enumerate() {
        pool.count(lines, Deed::Feed((first + number) as u32), &mut deeds);
    }
    for (task, progress, deed) in deeds {
        add(&mut lines[task], progress, deed);
    }
    for line in lines.iter_mut() {
        line.activations.iter_mut().for_each(|a| a.deeds.sort_by_key(|(offset, _)| *offset));
    }
}

impl Pool {
    fn fed_by(&self, task: usize) -> bool {
        self.producers.binary_search(&task).is_ok()
    }

    /// Notes the tokens of the producers, and how many of them each activation of the consumer needs.
    fn count(&mut self, lines: &[Line], token: Deed, out: &mut Vec<(usize, Ns, Deed)>) {
        let consumer = &lines[self.consumer];
        let mut times = Vec::new();
        for &producer in &self.producers {
            let line = &lines[producer];
            for at in (1..=line.total.0 / QUANTUM.0).map(|number| Ns(number * QUANTUM.0)) {
                out.push((producer, at, token));
                times.push(line.reached(at));
            }
        }
        for activation in &consumer.activations {
            let Origin::Task(by) = activation.origin else { continue };
            if self.fed_by(by.index()) {
                out.push((by.index(), lines[by.index()].progress(activation.woken), token));
                times.push(activation.woken);
            }
        }
        times.sort_unstable();
        let mut taken = 0;
        for (number, activation) in consumer.activations.iter().enumerate() {
            // The first one begins at its time.
            let fed = matches!(activation.origin, Origin::Task(by) if self.fed_by(by.index()));
            let waits = fed && number > 0;
            let there = if waits { times.partition_point(|time| *time <= activation.woken) } else { taken };
            self.needs.push((there - taken) as u32);
            taken = there;
        }
        self.rest = (times.len() - taken) as u32;
    }
}

/// What the pool of `consumer` asks for before this activation; `None`: no pool feeds that.
pub(super) fn need(pools: &[Pool], consumer: usize, activation: usize) -> Option<Need> {
    let pool = pools.iter().position(|pool| pool.consumer == consumer)?;
    let count = pools[pool].needs.get(activation).copied()?;
    (count > 0).then_some(Need { pool, count })
}

/// What is left of the pool of `consumer` when its recorded work is done.
pub(super) fn rest(pools: &[Pool], consumer: usize) -> Option<Need> {
    let pool = pools.iter().position(|pool| pool.consumer == consumer)?;
    let count = pools[pool].rest;
    (count > 0).then_some(Need { pool, count })
}

/// Whether a wakeup of `wakee` by `waker` is one of those that the tokens of a pool stand for.
pub(super) fn covers(pools: &[Pool], waker: usize, wakee: usize) -> bool {
    pools.iter().any(|pool| pool.consumer == wakee && pool.fed_by(waker))
}

#[cfg(test)]
mod tests {
    use super::super::timeline::{Activation, End, Stretch};
    use super::*;
    use schedlab_model::{PrevState, TaskId};

    /// Task 0 is woken by tasks 1, 2 and 3 in turn, each of which runs for 1 ms at a time, and runs for 400 us then.
    fn lines() -> Vec<Line> {
        let mut lines = vec![Line::default(); 4];
        for turn in 0..30 {
            let (by, at) = (1 + turn % 3, Ns::from_ms(2 * turn as u64));
            let make = |origin, woken, demand| Activation {
                origin,
                woken,
                slept: None,
                demand,
                deeds: Vec::new(),
                end: End::Blocked(PrevState::Sleeping),
            };
            let before = lines[by].total;
            lines[by].stretches.push(Stretch { from: at, to: at + Ns::from_ms(1), before });
            lines[by].starts.push(before);
            lines[by].activations.push(make(Origin::Initial, at, Ns::from_ms(1)));
            lines[by].total += Ns::from_ms(1);
            let (woken, before) = (at + Ns::from_us(505), lines[0].total);
            lines[0].stretches.push(Stretch { from: woken, to: woken + Ns::from_us(400), before });
            lines[0].starts.push(before);
            lines[0].activations.push(make(Origin::Task(TaskId::from(by)), woken, Ns::from_us(400)));
            lines[0].total += Ns::from_us(400);
        }
        lines
    }

    #[test]
    fn a_consumer_needs_what_was_there_when_it_was_woken() {
        let mut lines = lines();
        let circle = Loop { tasks: vec![0, 1, 2, 3], closed: true };
        let mut pools = find(&lines, std::slice::from_ref(&circle), &Reactors::default());
        assert_eq!((pools.len(), pools[0].consumer, &pools[0].producers[..]), (1, 0, &[1, 2, 3][..]));
        fill(&mut lines, &mut pools, 7);
        assert!(covers(&pools, 2, 0) && !covers(&pools, 0, 2));
        // 25 tokens in the first 505 us, and the one of the wakeup; then all of one turn until the next. The first
        // activation begins at its recorded time, and what was there then is taken with the next.
        let needs: Vec<u32> = (0..30).map(|a| need(&pools, 0, a).map_or(0, |need| need.count)).collect();
        assert_eq!((&needs[..2], &needs[2..]), (&[0, 26 + 51][..], &[51; 28][..]));
        assert_eq!(rest(&pools, 0), Some(Need { pool: 0, count: 25 }));
        let given = |task: usize| {
            let deeds = lines[task].activations.iter().flat_map(|a| &a.deeds);
            deeds.filter(|(_, deed)| *deed == Deed::Feed(7)).count()
        };
        assert_eq!([0, 1, 2, 3].map(given), [0, 510, 510, 510], "one for each 20 us and each wakeup");
        assert_eq!((need(&pools, 1, 3), rest(&pools, 1)), (None, None));
        // An open loop is left alone.
        assert!(find(&lines, &[Loop { closed: false, ..circle }], &Reactors::default()).is_empty());
    }
}
