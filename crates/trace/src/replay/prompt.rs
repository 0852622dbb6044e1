//! Between the second and the third step: servers whose next request is there before they look for
//! it.
//!
//! A backend of PostgreSQL that shares a CPU with its client answers, and that wakes the client.
//! The client takes the CPU, sends the next query and sleeps; the backend goes on, looks for a
//! query, and finds it. It hardly ever sleeps, the client wakes it once or twice in a thousand
//! queries, and the recording looks as if it worked by itself: replayed like this, a backend that a
//! scheduler favours answers queries that nobody has sent.
//!
//! So behind each answer such a server needs what its client had done when it went on: where it was
//! without a CPU first while the client ran. What it needs had been done at that moment of the
//! recording, so the recorded order remains possible.
//!
//! A backend that never slept at all has no wakeup by its client. Its siblings tell: tasks of its
//! name that are such servers of the same client.

use super::classify::{Classes, Outside, RARE_PERCENT, Why};
use super::timeline::{Activation, Deed, Origin, TaskTimeline};
use super::wakes::Wakes;
use schedlab_model::Ns;

/// Fewer answers than this to one client do not make a server of a task.
pub(super) const ANSWERS: usize = 32;
/// A producer that woke its consumer fewer times than this is not a steady one.
const STEADY_WAKES: usize = 32;
/// A steady producer causes at least this part of the consumer's activations (in per cent).
const STEADY_PERCENT: usize = 25;

/// One producer and one consumer: what the second does needs the first one's progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link {
    pub(super) producer: usize,
    pub(super) consumer: usize,
}

/// A task that goes on when another has done something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prompt {
    pub(super) link: Link,
    /// The task that the consumer wakes before it needs anything.
    pub(super) wakes: usize,
    /// When it needs that.
    pub(super) when: When,
}

/// At which point behind its message a task needs what another does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum When {
    /// Where it went on after the other had run.
    GoesOn,
    /// Before its next message.
    SendsAgain,
}

/// Finds the servers, each with its client as its producer. `names`: of the tasks.
pub(super) fn find(lines: &[TaskTimeline], classes: &Classes, names: &[&str]) -> Vec<Prompt> {
    let mut links: Vec<Link> = Vec::new();
    let wakes = Wakes::new(lines);
    for circle in classes.loops.iter().filter(|circle| circle.closed) {
        for &client in &circle.tasks {
            // Of two thousand tasks only these are worth a look.
            let serves = |task: &usize| {
                *task != client && hardly_sleeps(&lines[*task], *task, client, &wakes)
            };
            let servers = wakes.wakers(client).iter().copied().filter(serves);
            let (inside, outside): (Vec<usize>, Vec<usize>) =
                servers.partition(|server| circle.tasks.binary_search(server).is_ok());
            // One that its client wakes again and again shows with its wakeups what it waits for.
            let seldom = |server: &usize| {
                let line = &lines[*server];
                wakes.asked(*server, client) > 0 && !steady_producers(line).contains(&client)
            };
            let known: Vec<usize> = inside.into_iter().filter(seldom).collect();
            let sibling = |task: &usize| {
                known.iter().any(|&server| names[server] == names[*task]) && !classes.in_loop(*task)
            };
            let siblings = outside.into_iter().filter(sibling);
            links.extend(
                known
                    .iter()
                    .copied()
                    .chain(siblings)
                    .map(|consumer| Link { producer: client, consumer }),
            );
        }
    }
    links.sort_unstable_by_key(|link| (link.consumer, link.producer));
    links.dedup_by_key(|link| link.consumer);
    let prompt = |link: Link| Prompt { link, wakes: link.producer, when: When::GoesOn };
    links.into_iter().map(prompt).collect()
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

/// Whether this task wakes the client often, and sleeps far less often. `line`: the task's.
pub(super) fn hardly_sleeps(
    line: &TaskTimeline,
    task: usize,
    client: usize,
    wakes: &Wakes,
) -> bool {
    let answers = wakes.sent(task, client);
    answers >= ANSWERS && line.activations.len() * 100 <= answers * RARE_PERCENT
}

/// The CPU progress at which this task woke the client, ascending.
pub(super) fn answers(line: &TaskTimeline, client: usize) -> impl Iterator<Item = Ns> + '_ {
    let of = move |(activation, start): (&'_ Activation, &Ns)| {
        let start = *start;
        let wakes = move |(_, deed): &&(Ns, Deed)| matches!(deed, Deed::Wake(task, _) if task.index() == client);
        activation.deeds.iter().filter(wakes).map(move |(at, _)| start + *at).collect::<Vec<_>>()
    };
    line.activations.iter().zip(&line.starts).flat_map(of)
}

/// Makes siblings that never slept a part of the loop of their client.
pub(super) fn join(classes: &mut Classes, prompt: &[Prompt]) {
    for Prompt { link, .. } in prompt {
        let circle = classes
            .loops
            .iter_mut()
            .find(|circle| circle.tasks.binary_search(&link.producer).is_ok());
        let Some(circle) = circle else { continue };
        if let Err(at) = circle.tasks.binary_search(&link.consumer) {
            circle.tasks.insert(at, link.consumer);
            classes.outside[link.consumer] = Outside::Relative(Why::ClosedLoop);
        }
    }
}

/// Adds what such tasks wait for to the lines.
pub(super) fn fill(lines: &mut [TaskTimeline], prompt: &[Prompt]) {
    let mut deeds = Vec::new();
    for (number, Prompt { link, wakes, when }) in (0_u32..).zip(prompt) {
        let (server, client) = (&lines[link.consumer], &lines[link.producer]);
        let mut answers: Vec<Ns> = answers(server, *wakes).collect();
        answers.push(server.total);
        let mut fed = Ns::ZERO;
        for pair in answers.windows(2) {
            let point = match when {
                When::GoesOn => goes_on(server, client, pair[0], pair[1]),
                When::SendsAgain => Some(sends_again(server, client, pair[1])),
            };
            let Some((own, needed)) = point else { continue };
            if needed > fed {
                fed = needed;
                deeds.push((link.producer, needed, Deed::Feed(number)));
                deeds.push((link.consumer, own, Deed::Await(number)));
            }
        }
    }
    for (task, progress, deed) in deeds {
        lines[task].add(progress, deed);
    }
    lines.iter_mut().for_each(TaskTimeline::order_deeds);
}

/// Where the server goes on behind its answer at `from` after the client has run, before its answer
/// at `to`: its own CPU progress, and that of the client.
fn goes_on(server: &TaskTimeline, client: &TaskTimeline, from: Ns, to: Ns) -> Option<(Ns, Ns)> {
    let done = client.progress(server.reached(from));
    let first = server.stretches.partition_point(|stretch| stretch.before < from);
    let until_next = server.stretches[first..].iter().take_while(|stretch| stretch.before < to);
    let mut resumed = until_next.map(|stretch| (stretch.before, client.progress(stretch.from)));
    resumed.find(|(_, progress)| *progress > done)
}

/// The last point before its message at `to`, and what the other had done when that came.
fn sends_again(task: &TaskTimeline, other: &TaskTimeline, to: Ns) -> (Ns, Ns) {
    (to.saturating_sub(Ns(1)), other.progress(task.reached(to)))
}

#[cfg(test)]
mod tests {
    use super::super::classify::classify;
    use super::super::timeline::{End, Origin};
    use super::*;
    use schedlab_model::TaskId;

    const CLIENT: usize = 0;
    const NAMES: [&str; 4] = ["client", "backend", "backend", "batch"];

    fn us(us: u64) -> Ns {
        Ns::from_us(us)
    }

    /// In each of 1,000 us one backend works for 300 us, answers, and the client takes the CPU for
    /// 200 us: 100 us later the backend goes on. The second one never sleeps; the first does, once,
    /// and the client wakes it.
    fn lines() -> Vec<TaskTimeline> {
        let mut lines = vec![TaskTimeline::default(); 4];
        for backend in [1, 2, 3] {
            lines[backend].begin(Origin::Initial, Ns::ZERO, None);
        }
        for round in 0..100 {
            let (at, backend) = (us(1_000 * round), 1 + (round % 2) as usize);
            if backend == 1 && round == 40 {
                let number = lines[backend].activations.len() as u32;
                let wakes = (us(150), Deed::Wake(TaskId::from(backend), number));
                lines[CLIENT].activations.last_mut().unwrap().deeds.push(wakes);
                lines[backend].begin(Origin::Task(TaskId::from(CLIENT)), at, None);
            }
            lines[backend].run(at, at + us(300));
            let number = lines[CLIENT].activations.len() as u32;
            let open = lines[backend].activations.last_mut().unwrap();
            open.deeds.push((open.demand, Deed::Wake(TaskId::from(CLIENT), number)));
            lines[CLIENT].begin(Origin::Task(TaskId::from(backend)), at + us(300), None);
            lines[CLIENT].run(at + us(300), at + us(500));
            lines[backend].run(at + us(600), at + us(700));
        }
        lines
            .iter_mut()
            .skip(1)
            .for_each(|line| line.activations.last_mut().unwrap().end = End::Cut);
        lines
    }

    fn pairs(lines: &[TaskTimeline]) -> Vec<(usize, usize)> {
        let classes = classify(lines, us(100_000), &[]);
        find(lines, &classes, &NAMES)
            .iter()
            .map(|of| (of.link.consumer, of.link.producer))
            .collect()
    }

    #[test]
    fn a_server_that_hardly_sleeps_is_found_and_tells_of_its_sibling() {
        let mut lines = lines();
        assert_eq!(pairs(&lines), [(1, CLIENT), (2, CLIENT)]);
        // Its client wakes it as often as other servers.
        for number in 0..7 {
            lines[1].activations.push(Activation::plain(
                Origin::Task(TaskId(0)),
                us(100_000 + number),
                us(1),
            ));
            let total = lines[1].total;
            lines[1].starts.push(total);
        }
        assert_eq!(pairs(&lines), []);
    }

    /// A Go server under wrk: woken ten times, by the first messages. One that is woken again and
    /// again has a flow of its own.
    #[test]
    fn a_server_that_its_client_wakes_for_a_while_is_one() {
        let wakes = |times: u64| {
            let mut lines = lines();
            for round in 0..(20 * times) {
                let at = us(100_000 + 1_000 * round);
                lines[1].run(at, at + us(300));
                let number = lines[CLIENT].activations.len() as u32;
                let open = lines[1].activations.last_mut().unwrap();
                open.deeds.push((open.demand, Deed::Wake(TaskId::from(CLIENT), number)));
                lines[CLIENT].begin(Origin::Task(TaskId(1)), at + us(300), None);
                lines[CLIENT].run(at + us(300), at + us(500));
            }
            for number in 0..times {
                let at = us(100_000 + 1_000 * 20 * times + number);
                lines[1].begin(Origin::Task(TaskId::from(CLIENT)), at, None);
            }
            pairs(&lines).contains(&(1, CLIENT))
        };
        assert_eq!((wakes(10), wakes(40)), (true, false));
    }

    #[test]
    fn a_stranger_that_never_slept_is_no_sibling() {
        let lines = lines();
        let classes = classify(&lines, us(100_000), &[]);
        let found = find(&lines, &classes, &["client", "backend", "hog", "batch"]);
        assert_eq!(found.iter().map(|of| of.link.consumer).collect::<Vec<_>>(), [1]);
        let mut classes = classes;
        join(
            &mut classes,
            &[Prompt {
                link: Link { producer: CLIENT, consumer: 2 },
                wakes: CLIENT,
                when: When::GoesOn,
            }],
        );
        assert!(classes.in_closed_loop(2) && !classes.in_closed_loop(3));
        assert_eq!(classes.outside[2], Outside::Relative(Why::ClosedLoop));
    }

    #[test]
    fn behind_each_answer_it_needs_what_the_client_had_done_when_it_went_on() {
        let mut lines = lines();
        fill(
            &mut lines,
            &[Prompt {
                link: Link { producer: CLIENT, consumer: 2 },
                wakes: CLIENT,
                when: When::GoesOn,
            }],
        );
        let deeds = |task: usize, deed: Deed| -> Vec<Ns> {
            let line = &lines[task];
            let of = line.activations.iter().zip(&line.starts);
            let all = of.flat_map(|(activation, start)| {
                activation.deeds.iter().map(|(at, deed)| (*start + *at, *deed))
            });
            all.filter(|(_, other)| *other == deed).map(|(at, _)| at).collect()
        };
        let (fed, awaited) = (deeds(CLIENT, Deed::Feed(0)), deeds(2, Deed::Await(0)));
        assert_eq!((fed.len(), awaited.len()), (50, 50));
        // Its third answer comes in round 5, after 3 x 300 and 2 x 100 us of its own; the client
        // has run in six rounds then.
        assert_eq!((fed[2], awaited[2]), (us(6 * 200), us(3 * 300 + 2 * 100)));
        for (need, at) in fed.iter().zip(&awaited) {
            assert!(
                *need <= lines[CLIENT].progress(lines[2].reached(*at + Ns(1))),
                "the recorded order remains possible"
            );
        }
    }
}
