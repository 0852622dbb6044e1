//! Between the second and the third step: tasks that many others feed.
//!
//! Several senders write into the socket of one receiver. The receiver blocks when the socket is
//! empty, and the next message wakes it, no matter which task sends that. A recording shows this
//! one message with its sender, and nothing of those that came while the receiver was awake. Were
//! the wakeup tied to that sender, the receiver would sleep in a replay until just this one comes
//! along, although four others have written meanwhile; its CPU would idle. The other way round a
//! sender whose messages fill the buffers is woken by whichever receiver makes room first.
//!
//! So the wakeups among such tasks are replaced by what they stand for: an amount. The progress of
//! all producers of a consumer is counted together, in tokens of [`QUANTUM`] of CPU time each and
//! one more for each wakeup that they gave it. Where the consumer slept in the recording it needs
//! the tokens that were there when it was woken, all at once. Whether it sleeps there at all, and
//! who wakes it, is an outcome of the simulation: it sleeps when its producers, taken together, are
//! behind.
//!
//! Demand belongs to messages, not to activations: a receiver that had to wait for the CPU takes in
//! one activation what would have been thirty. So an activation is cut into pieces of about one
//! message (the median of its task's activations). What the producers did from its wakeup to its
//! end is what it used up, since it sleeps when there is no more; a piece at the part `f` of it
//! needs the part `f` of that, and never more than was there at that moment of the recording. A
//! consumer that runs earlier in a replay than it did so uses up what is there and sleeps, again
//! and again.
//!
//! Nothing can lock up: of all tasks that wait, take the one that waits where it was earliest in
//! the recording. Its producers, if they wait, wait where they were later than that, so they have
//! done all that they did before it.
//!
//! A task that opens the loop (a server's thread that accepts connections and looks at the clock
//! twice a second) wakes consumers too, now and then. A consumer waits for none of these wakeups:
//! with a date, as elsewhere, all would wait for it that it feeds.
//!
//! A pool goes on when its recorded work is done, as other closed loops do. One that is a single
//! command, whose tasks all ended, has done what there was to do: `hackbench` ends after so many
//! messages, whatever its scheduler is.
//!
//! What is lost: which message lay in which buffer, that falling asleep costs CPU time, and that a
//! sender who found a buffer full sleeps until a good part of it is free (a piece of a sender waits
//! for the next bit of room). The last counts where buffers hold many messages:
//! `hackbench -g 2 -f 5 -l 15000`, 278 messages of 100 bytes to a socket, wakes twice as often in
//! the replay, and its p99 is half of the recorded (recordings/README.md has the figures). Two
//! recordings of that command differ by as much themselves.

use super::classify::{Classes, Loop, RARE_PERCENT, creates, has_dates};
use super::couple::add;
use super::reactor::Reactors;
use super::timeline::{Deed, End, Origin, TaskTimeline};
use schedlab_model::{Ns, TaskId};

/// Wakers of one task that make it one fed by many.
const MANY: usize = 3;
/// A waker counts with this many wakeups.
const WAKES: usize = 8;
/// CPU time of a producer for one token. Chosen: a wakeup of the consumer is off by at most this
/// much of the progress of each producer.
const QUANTUM: Ns = Ns::from_us(20);
/// A piece is never smaller than this: shorter ones are noise of the clock and of interrupts.
const MESSAGE_MIN: Ns = Ns::from_us(2);

/// A task that many others feed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pool {
    pub(super) consumer: usize,
    /// Ascending.
    pub(super) producers: Vec<usize>,
    /// Tasks that open the loop, or rarely wake the consumer and go by the clock in part: it waits
    /// for none of these wakeups. (The thread of a server that accepts connections and looks at the
    /// clock takes the interpreter's lock, and hands it on. A consumer that waited for that in its
    /// second round would wait for the clock. And what opens the loop works once: its CPU time is
    /// no token of a second round.) Ascending.
    beside: Vec<usize>,
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
pub(super) fn find(lines: &[TaskTimeline], classes: &Classes, reactors: &Reactors) -> Vec<Pool> {
    let closed = classes.loops.iter().filter(|circle| circle.closed);
    let pool = |(circle, consumer): (&Loop, usize)| {
        let wakers = wakers(&lines[consumer], circle);
        let all: usize = wakers.iter().map(|(_, wakes)| wakes).sum();
        let aside = |&(waker, wakes): &(usize, usize)| {
            classes.opens(waker, consumer)
                || wakes * 100 <= all * RARE_PERCENT && has_dates(&lines[waker])
        };
        let (beside, others): (Vec<_>, Vec<_>) = wakers.into_iter().partition(aside);
        let often = others.into_iter().filter(|(_, wakes)| *wakes >= WAKES);
        let producers: Vec<usize> = often.map(|(waker, _)| waker).collect();
        let beside = beside.into_iter().map(|(waker, _)| waker).collect();
        let pool = Pool { consumer, producers, beside, needs: Vec::new(), rest: 0 };
        (pool.producers.len() >= MANY).then_some(pool)
    };
    let tasks = closed.flat_map(|circle| circle.tasks.iter().map(move |&task| (circle, task)));
    tasks.filter(|(_, task)| !reactors.has(*task)).filter_map(pool).collect()
}

/// The loops with pools that are one command which was done: one of their tasks created others of
/// them, and all ended.
pub(super) fn commands(
    lines: &[TaskTimeline],
    classes: &Classes,
    pools: &[Pool],
) -> Vec<Vec<TaskId>> {
    let ended =
        |&task: &usize| lines[task].activations.last().is_some_and(|last| last.end == End::Exited);
    let is_command = |circle: &&Loop| {
        let pooled = |task: &usize| feeding(pools, *task).is_some();
        circle.tasks.iter().any(pooled)
            && circle.tasks.iter().all(ended)
            && circle.tasks.iter().any(|&task| creates(lines, task, &circle.tasks))
    };
    let all = classes.loops.iter().filter(is_command);
    all.map(|circle| circle.tasks.iter().copied().map(TaskId::from).collect()).collect()
}

/// The tasks of the circle that wake this one, ascending, and how often.
fn wakers(line: &TaskTimeline, circle: &Loop) -> Vec<(usize, usize)> {
    let by = |origin: Origin| match origin {
        Origin::Task(by) if circle.tasks.binary_search(&by.index()).is_ok() => Some(by.index()),
        _ => None,
    };
    let mut wakers: Vec<usize> = line.activations.iter().filter_map(|a| by(a.origin)).collect();
    wakers.sort_unstable();
    wakers.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect()
}

/// Adds the tokens of the pools to the lines; the first pool has the channel of link `first`.
pub(super) fn fill(lines: &mut [TaskTimeline], pools: &mut [Pool], first: usize) {
    let mut deeds = Vec::new();
    for (number, pool) in pools.iter_mut().enumerate() {
        pool.count(lines, Deed::Feed((first + number) as u32), &mut deeds);
    }
    for (task, progress, deed) in deeds {
        add(&mut lines[task], progress, deed);
    }
    lines.iter_mut().for_each(TaskTimeline::order_deeds);
}

impl Pool {
    fn fed_by(&self, task: usize) -> bool {
        self.producers.binary_search(&task).is_ok()
    }

    /// Notes the tokens of the producers, and how many of them each activation of the consumer, and
    /// each piece of it, needs.
    fn count(&mut self, lines: &[TaskTimeline], token: Deed, out: &mut Vec<(usize, Ns, Deed)>) {
        let consumer = &lines[self.consumer];
        let times = self.tokens(lines, token, out);
        let message = message(consumer);
        let mut taken = 0;
        for (number, activation) in consumer.activations.iter().enumerate() {
            let until = |at: Ns| times.partition_point(|time| *time <= at);
            let woken = until(activation.woken);
            // The first one begins at its time.
            let fed = matches!(activation.origin, Origin::Task(by) if self.fed_by(by.index()));
            let waits = fed && number > 0;
            self.needs.push(if waits { (woken - taken) as u32 } else { 0 });
            taken = if waits { woken } else { taken };
            let used = until(consumer.ends(number)).saturating_sub(woken) as u64;
            let pieces = activation.demand.0 / message.0;
            for piece in 1..pieces {
                let own = consumer.starts[number] + part(activation.demand, piece, pieces);
                let reached = consumer.reached(own);
                // What came in that very moment may have been its own doing.
                let there = times.partition_point(|time| *time < reached);
                let needed = (woken + (used * piece / pieces) as usize).min(there);
                if needed > taken {
                    out.push((self.consumer, own, Deed::Gather((needed - taken) as u32)));
                    taken = needed;
                }
            }
        }
        self.rest = (times.len() - taken) as u32;
    }

    /// Notes the tokens of the producers; gives the times at which they were there, ascending.
    fn tokens(
        &self,
        lines: &[TaskTimeline],
        token: Deed,
        out: &mut Vec<(usize, Ns, Deed)>,
    ) -> Vec<Ns> {
        let mut times = Vec::new();
        for &producer in &self.producers {
            let line = &lines[producer];
            for at in (1..=line.total.0 / QUANTUM.0).map(|number| Ns(number * QUANTUM.0)) {
                out.push((producer, at, token));
                times.push(line.reached(at));
            }
        }
        for activation in &lines[self.consumer].activations {
            let Origin::Task(by) = activation.origin else { continue };
            if self.fed_by(by.index()) {
                out.push((by.index(), lines[by.index()].progress(activation.woken), token));
                times.push(activation.woken);
            }
        }
        times.sort_unstable();
        times
    }
}

fn part(whole: Ns, piece: u64, pieces: u64) -> Ns {
    Ns((u128::from(whole.0) * u128::from(piece) / u128::from(pieces)) as u64)
}

/// About the CPU time of one message: the median activation. (The first quartile makes pieces that
/// no message has: of hackbench with messages of 64 KiB p50 is off by -13 to -21 % with it, by -6
/// to +8 % with the median.)
fn message(line: &TaskTimeline) -> Ns {
    let mut demands: Vec<Ns> = line.activations.iter().map(|a| a.demand).collect();
    demands.sort_unstable();
    demands.get(demands.len() / 2).copied().unwrap_or_default().max(MESSAGE_MIN)
}

/// The pool that feeds `consumer`.
pub(super) fn feeding(pools: &[Pool], consumer: usize) -> Option<usize> {
    pools.iter().position(|pool| pool.consumer == consumer)
}

/// What the pool of `consumer` asks for before this activation; `None`: no pool feeds that.
pub(super) fn need(pools: &[Pool], consumer: usize, activation: usize) -> Option<Need> {
    let pool = feeding(pools, consumer)?;
    let count = pools[pool].needs.get(activation).copied()?;
    (count > 0).then_some(Need { pool, count })
}

/// What is left of the pool of `consumer` when its recorded work is done.
pub(super) fn rest(pools: &[Pool], consumer: usize) -> Option<Need> {
    let pool = feeding(pools, consumer)?;
    let count = pools[pool].rest;
    (count > 0).then_some(Need { pool, count })
}

/// Whether a wakeup of `wakee` by `waker` is no token of its own: those of a pool stand for it, or
/// the pool waits for none of them.
pub(super) fn covers(pools: &[Pool], waker: usize, wakee: usize) -> bool {
    let covers = |pool: &Pool| pool.fed_by(waker) || pool.beside.binary_search(&waker).is_ok();
    pools.iter().any(|pool| pool.consumer == wakee && covers(pool))
}

#[cfg(test)]
mod tests {
    use super::super::timeline::{Activation, Stretch};
    use super::*;
    use schedlab_model::TaskId;

    /// All tasks in one closed loop, which these open.
    fn closed_loop(openers: &[usize]) -> Classes {
        let circle = Loop { tasks: vec![0, 1, 2, 3], closed: true };
        Classes { outside: Vec::new(), loops: vec![circle], openers: openers.to_vec() }
    }

    /// Task 0 is woken by tasks 1, 2 and 3 in turn, each of which runs for 1 ms at a time, and runs
    /// for 400 us then.
    fn lines() -> Vec<TaskTimeline> {
        let mut lines = vec![TaskTimeline::default(); 4];
        for turn in 0..30 {
            let (by, at) = (1 + turn % 3, Ns::from_ms(2 * turn as u64));
            let before = lines[by].total;
            lines[by].stretches.push(Stretch { from: at, to: at + Ns::from_ms(1), before });
            lines[by].starts.push(before);
            lines[by].activations.push(Activation::plain(Origin::Initial, at, Ns::from_ms(1)));
            lines[by].total += Ns::from_ms(1);
            let (woken, before) = (at + Ns::from_us(505), lines[0].total);
            lines[0].stretches.push(Stretch { from: woken, to: woken + Ns::from_us(400), before });
            lines[0].starts.push(before);
            lines[0].activations.push(Activation::plain(
                Origin::Task(TaskId::from(by)),
                woken,
                Ns::from_us(400),
            ));
            lines[0].total += Ns::from_us(400);
        }
        lines
    }

    #[test]
    fn a_consumer_needs_what_was_there_when_it_was_woken() {
        let mut lines = lines();
        let classes = closed_loop(&[]);
        let mut pools = find(&lines, &classes, &Reactors::default());
        assert_eq!(
            (pools.len(), pools[0].consumer, &pools[0].producers[..]),
            (1, 0, &[1, 2, 3][..])
        );
        fill(&mut lines, &mut pools, 7);
        assert!(covers(&pools, 2, 0) && !covers(&pools, 0, 2));
        // 25 tokens in the first 505 us, and the one of the wakeup; then all of one turn until the
        // next. The first activation begins at its recorded time, and what was there then is taken
        // with the next.
        let needs: Vec<u32> =
            (0..30).map(|a| need(&pools, 0, a).map_or(0, |need| need.count)).collect();
        assert_eq!((&needs[..2], &needs[2..]), (&[0, 26 + 51][..], &[51; 28][..]));
        assert_eq!(rest(&pools, 0), Some(Need { pool: 0, count: 25 }));
        let given = |task: usize| {
            let deeds = lines[task].activations.iter().flat_map(|a| &a.deeds);
            deeds.filter(|(_, deed)| *deed == Deed::Feed(7)).count()
        };
        assert_eq!(
            [0, 1, 2, 3].map(given),
            [0, 510, 510, 510],
            "one for each 20 us and each wakeup"
        );
        assert_eq!((need(&pools, 1, 3), rest(&pools, 1)), (None, None));
        // An open loop is left alone.
        let mut open = classes;
        open.loops[0].closed = false;
        assert!(find(&lines, &open, &Reactors::default()).is_empty());
    }

    /// A load that is stopped leaves its server behind; a command whose tasks all end was done.
    #[test]
    fn a_loop_that_created_its_tasks_and_ended_is_a_command() {
        let mut lines = lines();
        let classes = closed_loop(&[]);
        let pools = find(&lines, &classes, &Reactors::default());
        let of = |lines: &[TaskTimeline], pools: &[Pool]| commands(lines, &classes, pools).len();
        lines.iter_mut().for_each(|line| line.activations.last_mut().unwrap().end = End::Exited);
        assert_eq!(of(&lines, &pools), 0, "a server and its clients");
        lines[1].activations[0].deeds.push((Ns(1), Deed::Spawn(TaskId(2))));
        assert_eq!((of(&lines, &pools), of(&lines, &[])), (1, 0));
        lines[3].activations.last_mut().unwrap().end = End::Cut;
        assert_eq!(of(&lines, &pools), 0, "one is still there");
    }

    /// Task 3 opens the loop and woke the consumer ten times of 30; or task 4 does, and woke it
    /// once.
    #[test]
    fn a_task_that_opens_the_loop_gives_no_tokens() {
        let (often, mut rarely) = (lines(), lines());
        rarely.push(TaskTimeline::default());
        rarely[0].activations[5].origin = Origin::Task(TaskId(4));
        let found = |lines: &[TaskTimeline], opener: usize| {
            let mut classes = closed_loop(&[opener]);
            classes.loops[0].tasks = (0..lines.len()).collect();
            let pools = find(lines, &classes, &Reactors::default());
            pools.into_iter().map(|pool| (pool.producers, pool.beside)).collect::<Vec<_>>()
        };
        assert!(found(&often, 3).is_empty(), "two others are no pool");
        assert_eq!(found(&rarely, 4), [(vec![1, 2, 3], vec![4])]);
        assert_eq!(found(&rarely, 0), [(vec![1, 2, 3], vec![])], "4 opens nothing");
        rarely[4].activations.push(Activation::plain(
            Origin::SoftIrq,
            Ns::from_ms(9),
            Ns::from_us(1),
        ));
        assert_eq!(found(&rarely, 0), [(vec![1, 2, 3], vec![4])], "4 goes by the clock");
        let mut classes = closed_loop(&[4]);
        classes.loops[0].tasks = vec![0, 1, 2, 3, 4];
        let pools = find(&rarely, &classes, &Reactors::default());
        assert!(covers(&pools, 4, 0) && !covers(&pools, 0, 4));
    }

    /// The same, but in turn 10 the consumer waits for the CPU, and does six turns at once then.
    #[test]
    fn a_long_activation_needs_what_came_piece_by_piece() {
        let mut lines = lines();
        lines[0].activations.drain(11..16);
        lines[0].starts.drain(11..16);
        lines[0].stretches.drain(11..16);
        lines[0].activations[10].demand = Ns::from_us(2_400);
        lines[0].stretches[10].from = Ns::from_ms(28);
        lines[0].stretches[10].to = Ns::from_us(30_400);
        let classes = closed_loop(&[]);
        let mut pools = find(&lines, &classes, &Reactors::default());
        fill(&mut lines, &mut pools, 7);
        let gathered: Vec<(Ns, u32)> = lines[0].activations[10]
            .deeds
            .iter()
            .filter_map(
                |(at, deed)| {
                    if let Deed::Gather(count) = deed { Some((*at, *count)) } else { None }
                },
            )
            .collect();
        // From the wakeup at 20.505 ms to 30.4 ms the producers do 4.9 turns: 245 tokens for six
        // pieces.
        let counts: Vec<u32> = gathered.iter().map(|(_, count)| *count).collect();
        assert_eq!(
            gathered.iter().map(|(at, _)| at.0 / 400_000).collect::<Vec<_>>(),
            [1, 2, 3, 4, 5]
        );
        assert!(counts.iter().all(|count| (40..=41).contains(count)), "{counts:?}");
        assert!(
            lines[0].activations[12].deeds.iter().all(|(_, deed)| !matches!(deed, Deed::Gather(_)))
        );
        let all: u32 = (0..pools[0].needs.len())
            .map(|a| need(&pools, 0, a).map_or(0, |need| need.count))
            .sum();
        let taken = all + counts.iter().sum::<u32>() + pools[0].rest;
        let given = |task: usize| {
            let deeds = lines[task].activations.iter().flat_map(|a| &a.deeds);
            deeds.filter(|(_, deed)| *deed == Deed::Feed(7)).count() as u32
        };
        assert_eq!(
            taken,
            given(1) + given(2) + given(3),
            "no token is needed twice, none is left out"
        );
    }
}
