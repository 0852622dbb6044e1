//! Between the second and the third step: what a recording does not show of tasks that work for
//! each other.
//!
//! While both sides of a connection are busy, neither blocks, so no wakeup tells that a message
//! passed. With nothing but the recorded wakeups, a task could run ahead of the one that feeds it,
//! up to its own next block: a server that a scheduler favours would serve requests that were not
//! sent yet, and the client of a server that is delayed would go on without replies.
//!
//! So the work of a consumer is taken as a flow that its producer feeds: within one activation of
//! the consumer, a part `f` of its demand needs the part `f` of what the producer did from the
//! beginning of that activation to its end. Both are cut into portions of about one message (the
//! smaller activations of the consumer). A portion never needs more of the producer than it had
//! done at that moment of the recording, so the recorded order itself always remains possible, and
//! nothing can lock up.
//!
//! Messages wait in the connections between the two: a server of eight clients has up to seven
//! requests in stock and goes on for as long when nobody sends any more. How far a consumer goes
//! without its producer shows where it blocks at last: it has done that much since the producer did
//! anything. So a portion needs no more than the producer had done when the consumer was
//! this *window* before it (the median of all blocks).

use super::classify::{Loop, driven};
use super::pool::Pool;
use super::reactor::Reactors;
use super::timeline::{Activation, Deed, End, Origin, TaskTimeline};
use schedlab_model::Ns;

/// One producer and one consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link {
    pub(super) producer: usize,
    pub(super) consumer: usize,
}

/// A producer that woke its consumer fewer times than this is not a steady one.
const STEADY_WAKES: usize = 32;
/// A producer causes at least this part of the consumer's activations (in per cent).
const STEADY_PERCENT: usize = 25;
/// A portion is never smaller than this: shorter ones are noise of the clock and of interrupts.
const PORTION_MIN: Ns = Ns::from_us(2);
/// A producer may lag by this many of its own portions before its consumer waits: messages are not
/// all alike.
const SLACK_PORTIONS: u64 = 1;

/// Finds the links within the loops and adds their deeds to the lines.
/// Those that many feed (`pool`) are left to their pools, and connections to their `reactor`.
pub(super) fn couple(
    lines: &mut [TaskTimeline],
    loops: &[Loop],
    pools: &[Pool],
    reactors: &Reactors,
) -> Vec<Link> {
    let mut links = Vec::new();
    for circle in loops {
        // What the outside drives does not wait for those that it drives: an open loop sends
        // without replies.
        for &consumer in circle.tasks.iter().filter(|task| !driven(lines, **task)) {
            if reactors.has(consumer) || pools.iter().any(|pool| pool.consumer == consumer) {
                continue;
            }
            let producers = steady_producers(&lines[consumer]);
            let inside = producers.into_iter().filter(|p| circle.tasks.contains(p));
            links.extend(inside.map(|producer| Link { producer, consumer }));
        }
    }
    let mut deeds = Vec::new();
    for (number, link) in links.iter().enumerate() {
        flow(lines, *link, number as u32, &mut deeds);
    }
    for (task, progress, deed) in deeds {
        add(&mut lines[task], progress, deed);
    }
    lines.iter_mut().for_each(TaskTimeline::order_deeds);
    links
}

/// Those that begin a good part of what a task does.
pub(super) fn steady_producers(line: &TaskTimeline) -> Vec<usize> {
    let mut wakers: Vec<usize> = line
        .activations
        .iter()
        .filter_map(|a| match a.origin {
            Origin::Task(by) => Some(by.index()),
            _ => None,
        })
        .collect();
    wakers.sort_unstable();
    let all = line.activations.len();
    let runs = wakers.chunk_by(|a, b| a == b);
    runs.filter(|run| run.len() >= STEADY_WAKES && run.len() * 100 >= all * STEADY_PERCENT)
        .map(|run| run[0])
        .collect()
}

/// About the CPU time of one message: the first quartile of the demands.
fn portion(line: &TaskTimeline) -> Ns {
    let mut demands: Vec<Ns> =
        line.activations.iter().filter(|a| a.end != End::Cut).map(|a| a.demand).collect();
    demands.sort_unstable();
    demands.get(demands.len() / 4).copied().unwrap_or(Ns::MAX).max(PORTION_MIN)
}

/// How much a consumer did, at the median, between the last progress of its producer and its own
/// block.
fn window(producer: &TaskTimeline, consumer: &TaskTimeline) -> Ns {
    let blocked =
        consumer.activations.iter().zip(&consumer.starts).filter(|(a, _)| a.end != End::Cut);
    let alone = |(activation, start): (&Activation, &Ns)| {
        let end = *start + activation.demand;
        let last = producer.reached(producer.progress(consumer.reached(end)));
        end.saturating_sub(consumer.progress(last).max(*start))
    };
    let mut windows: Vec<Ns> = blocked.map(alone).collect();
    windows.sort_unstable();
    windows.get(windows.len() / 2).copied().unwrap_or_default()
}

fn flow(lines: &[TaskTimeline], link: Link, number: u32, out: &mut Vec<(usize, Ns, Deed)>) {
    let (producer, consumer) = (&lines[link.producer], &lines[link.consumer]);
    let portion = portion(consumer);
    let slack = self::portion(producer) * SLACK_PORTIONS;
    let window = window(producer, consumer);
    let mut before = Ns::ZERO;
    let mut fed = Ns::ZERO;
    for activation in &consumer.activations {
        let parts = activation.demand.0 / portion.0;
        let start = producer.progress(activation.woken);
        let end = producer.progress(consumer.reached(before + activation.demand));
        let made = end.saturating_sub(start);
        for part in 1..parts {
            let own = before
                + Ns(
                    (u128::from(activation.demand.0) * u128::from(part) / u128::from(parts)) as u64
                );
            let share = Ns((u128::from(made.0) * u128::from(part) / u128::from(parts)) as u64);
            let done = producer.progress(consumer.reached(own.saturating_sub(window)));
            let needed = (start + share).min(done).saturating_sub(slack);
            // What the consumer was woken for, and what an earlier portion needed, is there.
            if needed > start.max(fed) {
                fed = needed;
                out.push((link.producer, needed, Deed::Feed(number)));
                out.push((link.consumer, own, Deed::Await(number)));
            }
        }
        before += activation.demand;
    }
}

/// Adds a deed at this CPU progress of the task.
pub(super) fn add(line: &mut TaskTimeline, progress: Ns, deed: Deed) {
    let mut before = Ns::ZERO;
    let at = line.starts.partition_point(|start| *start < progress).saturating_sub(1);
    if let Some(start) = line.starts.get(at) {
        before = *start;
    }
    if let Some(activation) = line.activations.get_mut(at) {
        activation.deeds.push((progress.saturating_sub(before).min(activation.demand), deed));
    }
}

#[cfg(test)]
mod tests {
    use super::super::timeline::Stretch;
    use super::*;
    use schedlab_model::TaskId;

    /// A line of activations: when each began, and how long it ran without a break.
    fn line(activations: &[(u64, u64)], origin: Origin) -> TaskTimeline {
        let mut line = TaskTimeline::default();
        for &(at, ran) in activations {
            let (woken, demand) = (Ns::from_us(at), Ns::from_us(ran));
            line.starts.push(line.total);
            line.stretches.push(Stretch { from: woken, to: woken + demand, before: line.total });
            line.activations.push(Activation::plain(origin, woken, demand));
            line.total += demand;
        }
        line
    }

    /// Each millisecond the client works for 300 us, from 100 us after the server began, which goes
    /// on for 240 us without it. Their smallest activations are single messages.
    fn server_and_client() -> Vec<TaskTimeline> {
        let rounds = |from: u64, ran: u64| (0..40).map(move |i| (i * 1_000 + from, ran));
        let mut server: Vec<(u64, u64)> = rounds(0, 640).collect();
        server.extend((0..20).map(|i| (40_000 + i * 1_000, 20)));
        let mut client: Vec<(u64, u64)> = rounds(100, 300).collect();
        client.extend((0..20).map(|i| (40_005 + i * 1_000, 10)));
        let client_origin = Origin::Task(TaskId(0));
        vec![line(&server, Origin::Task(TaskId(1))), line(&client, client_origin)]
    }

    #[test]
    fn what_is_in_stock_needs_no_producer() {
        let lines = server_and_client();
        assert_eq!(window(&lines[1], &lines[0]), Ns::from_us(240));
        let mut deeds = Vec::new();
        flow(&lines, Link { producer: 1, consumer: 0 }, 0, &mut deeds);
        let of = |task: usize, deed: Deed| {
            deeds.iter().filter(move |d| d.0 == task && d.2 == deed).map(|d| d.1)
        };
        let (fed, awaited): (Vec<Ns>, Vec<Ns>) =
            (of(1, Deed::Feed(0)).collect(), of(0, Deed::Await(0)).collect());
        assert!(fed.len() == awaited.len() && fed.len() > 40, "{}", fed.len());
        for (need, at) in fed.iter().zip(&awaited) {
            let at_hand = lines[1].progress(lines[0].reached(at.saturating_sub(Ns::from_us(240))));
            assert!(
                *need <= at_hand,
                "at {at} it needs {need}, and {at_hand} was there a window before"
            );
        }
    }

    /// Demand times the number of a portion overflows 64 bits: the fuzzer found it.
    #[test]
    fn portions_of_a_very_long_activation_are_in_order() {
        const LONG: u64 = 10_000_000_000_000;
        let mut producer: Vec<(u64, u64)> = (0..8).map(|i| (i * 100, 20)).collect();
        producer.push((1_000, 2 * LONG));
        let short = LONG / 10_000;
        let consumer = [(0, short), (2 * short, short), (4 * short, short), (6 * short, LONG)];
        let lines =
            [line(&producer, Origin::Task(TaskId(1))), line(&consumer, Origin::Task(TaskId(0)))];
        let mut deeds = Vec::new();
        flow(&lines, Link { producer: 0, consumer: 1 }, 0, &mut deeds);
        let awaited: Vec<Ns> =
            deeds.iter().filter(|d| d.2 == Deed::Await(0)).map(|d| d.1).collect();
        assert!(awaited.len() > 1_000, "{}", awaited.len());
        assert!(awaited.is_sorted() && *awaited.last().unwrap() < lines[1].total);
    }
}
