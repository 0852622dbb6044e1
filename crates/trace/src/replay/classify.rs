//! Second step: which sleeps that the outside ended stay at their absolute times, and which move
//! with the work before them.

use super::timeline::{Activation, Origin, TaskTimeline};
use schedlab_model::{Fact, FactKind, Limit, Ns, PrevState};
use std::collections::BTreeMap;

/// What a sleep becomes that no task ended (a timer, a device, the network).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outside {
    /// The wakeup stays at its recorded time: a periodic timer, a packet from another machine.
    Absolute,
    /// The sleep keeps its length and moves with the work before it.
    Relative(Why),
}

/// Why a sleep is taken as relative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Why {
    /// The lengths of the sleeps are alike, their times are not periodic.
    EqualSleeps,
    /// The task sleeps in a system call whose time is relative.
    Nap,
    /// The task hardly ever sleeps: it wants the CPU, and would not wait for a date.
    Hungry,
    /// The task belongs to a closed loop of tasks that wake each other; a date would tie the loop
    /// to it.
    ClosedLoop,
}

/// What was found about each task.
pub(super) struct Classes {
    pub(super) outside: Vec<Outside>,
    /// Groups of tasks that wake each other in a circle, two or more each; ascending.
    pub(super) loops: Vec<Loop>,
    /// Tasks of closed loops that the outside begins, or that create others of them, and that do
    /// not drive them: a client's first thread, which opens and closes the connections. What they
    /// do has its date, and the loop does not wait for it. Ascending.
    pub(super) openers: Vec<usize>,
}

impl Classes {
    /// Whether `by` is an opener of the loop of `task`.
    pub(super) fn opens(&self, by: usize, task: usize) -> bool {
        let together =
            |circle: &Loop| [by, task].iter().all(|of| circle.tasks.binary_search(of).is_ok());
        by != task && self.openers.binary_search(&by).is_ok() && self.loops.iter().any(together)
    }

    /// The circle of this task, if nothing else drives it.
    fn closed_loop(&self, task: usize) -> Option<&Loop> {
        self.loops.iter().find(|circle| circle.closed && circle.tasks.binary_search(&task).is_ok())
    }

    /// Whether the task belongs to a circle that nothing else drives.
    pub(super) fn in_closed_loop(&self, task: usize) -> bool {
        self.closed_loop(task).is_some()
    }

    /// Whether the task belongs to a closed loop, and wakes others of it again and again in this
    /// activation.
    pub(super) fn serves(&self, task: usize, activation: &Activation) -> bool {
        self.closed_loop(task).is_some_and(|circle| wakes_of(activation, &circle.tasks) >= ENOUGH)
    }

    /// Whether the task belongs to a circle.
    pub(super) fn in_loop(&self, task: usize) -> bool {
        self.loops.iter().any(|circle| circle.tasks.binary_search(&task).is_ok())
    }
}

/// Tasks that wake each other in a circle.
pub(super) struct Loop {
    pub(super) tasks: Vec<usize>,
    /// Nothing but its own tasks drives it.
    pub(super) closed: bool,
}

/// A loop counts as driven from outside when one of its tasks gets this part of its wakeups from
/// there, and these are this part of what the busiest other task does (in per cent). Chosen, not
/// measured: loops seen so far have below 7 or above 40. An open client has one such activation for
/// each request; the threads of a Go server, which timers and the runtime's monitor wake, had one
/// for 16.
const DRIVEN_PERCENT: usize = 20;
/// What happens less often than this part of what it is compared with is rare (in per cent).
/// Chosen, not measured: the first thread of wrk has one activation for 400 of the busiest task of
/// its loop.
pub(super) const RARE_PERCENT: usize = 5;
/// A task whose timer expires without a message to a task that sleeps in this part of all times (in
/// per cent) is a monitor. Chosen: a sender has below 10, Go's monitor above 90.
const MONITOR_PERCENT: usize = 50;
/// `nanosleep` on x86-64: its time is relative by definition.
const NANOSLEEP: u32 = 35;
/// With more than this part of its timed sleeps in such a call a task sleeps for lengths, not until
/// dates (in per cent).
const NAPS_PERCENT: usize = 50;
/// A task is hungry when it sleeps for less than this part of its life (in per cent).
const HUNGRY_PERCENT: u64 = 10;
/// Fewer sleeps, or wakeups, than this say nothing about their kind.
pub(super) const ENOUGH: usize = 8;

/// Decides for every task.
///
/// `monitors` drive nobody, whatever their timers do.
pub(super) fn classify(lines: &[TaskTimeline], duration: Ns, monitors: &[usize]) -> Classes {
    let mut openers = Vec::new();
    let loops: Vec<Loop> = circles(lines)
        .into_iter()
        .map(|tasks| {
            let drives = |task: &usize| !monitors.contains(task) && driven(lines, *task);
            let (drivers, others): (Vec<usize>, Vec<usize>) =
                tasks.iter().partition(|task| drives(task));
            let closed = !drive(lines, &drivers, &others);
            if closed {
                let opens = |task: &&usize| {
                    (drivers.contains(task) || creates(lines, **task, &tasks))
                        && rare(lines, **task, &tasks)
                };
                openers.extend(tasks.iter().filter(opens).copied());
            }
            Loop { tasks, closed }
        })
        .collect();
    let mut outside: Vec<Outside> = lines.iter().map(|line| sleeps(line, duration)).collect();
    for circle in loops.iter().filter(|circle| circle.closed) {
        for &task in circle.tasks.iter().filter(|task| !openers.contains(task)) {
            outside[task] = Outside::Relative(Why::ClosedLoop);
        }
    }
    openers.sort_unstable();
    Classes { outside, loops, openers }
}

/// Whether no task began it.
fn from_outside(activation: &Activation) -> bool {
    matches!(activation.origin, Origin::HardIrq | Origin::SoftIrq | Origin::Unknown)
}

/// How many activations of a task no task began.
fn begun_outside(line: &TaskTimeline) -> usize {
    line.activations.iter().filter(|activation| from_outside(activation)).count()
}

/// Whether a task is a monitor as Go's: its own timer begins at least half of what it does. The
/// thread of a Python server that accepts connections hands the interpreter's lock on like one, and
/// the thread that had the lock wakes it for that.
pub(super) fn goes_by_the_clock(line: &TaskTimeline) -> bool {
    let outside = begun_outside(line);
    outside * 2 >= line.activations.len()
}

/// Whether the outside causes a good part of its activations, and these cause others: a monitor,
/// which looks whether there is something to do and mostly does nothing, drives nobody.
pub(super) fn driven(lines: &[TaskTimeline], task: usize) -> bool {
    let line = &lines[task];
    let outside: Vec<&Activation> = line.activations.iter().filter(|a| from_outside(a)).collect();
    if outside.len() * 100 < line.activations.len() * DRIVEN_PERCENT {
        return false;
    }
    let mut woken: BTreeMap<usize, usize> = BTreeMap::new();
    for wakee in line.activations.iter().flat_map(Activation::wakes) {
        *woken.entry(wakee).or_default() += 1;
    }
    let all: usize = woken.values().sum();
    // Who is awake gets its message without a wakeup. A silent activation that finds most of those
    // asleep whom the task wakes at all had no message.
    let idle = |a: &&&Activation| {
        let awake = woken.iter().filter(|(wakee, _)| lines[**wakee].awake_at(a.woken).is_some());
        a.wakes().next().is_none() && awake.map(|(_, times)| times).sum::<usize>() * 2 < all
    };
    outside.iter().filter(idle).count() * 100 < outside.len() * MONITOR_PERCENT
}

/// Whether what these drivers do by the outside's making is a good part of what the others of their
/// circle do. A client's first thread may look at the clock once a second, and open and close the
/// connections: it belongs to the circle, and does not drive it.
fn drive(lines: &[TaskTimeline], drivers: &[usize], others: &[usize]) -> bool {
    let begun: usize = drivers.iter().map(|&task| begun_outside(&lines[task])).sum();
    let busiest =
        others.iter().map(|&task| lines[task].activations.len()).max().unwrap_or_default();
    begun > 0 && begun * 100 >= busiest * DRIVEN_PERCENT
}

/// Whether a task creates others of its circle.
pub(super) fn creates(lines: &[TaskTimeline], task: usize, circle: &[usize]) -> bool {
    lines[task].created().any(|of| circle.binary_search(&of).is_ok())
}

/// How often an activation wakes tasks of the circle.
fn wakes_of(activation: &Activation, circle: &[usize]) -> usize {
    activation.wakes().filter(|of| circle.binary_search(of).is_ok()).count()
}

/// Whether a task does little beside what the others of its circle do: fewer activations and
/// wakeups of them than [`RARE_PERCENT`] of the activations of the busiest. A server that hardly
/// ever sleeps has few activations, too, and many wakeups.
fn rare(lines: &[TaskTimeline], task: usize, circle: &[usize]) -> bool {
    let wakes: usize =
        lines[task].activations.iter().map(|activation| wakes_of(activation, circle)).sum();
    let busiest =
        circle.iter().map(|&task| lines[task].activations.len()).max().unwrap_or_default();
    (lines[task].activations.len() + wakes) * 100 < busiest * RARE_PERCENT
}

/// How one task sleeps when nobody wakes it.
fn sleeps(line: &TaskTimeline, duration: Ns) -> Outside {
    if line.activations.is_empty() {
        return Outside::Absolute;
    }
    let first = line.activations.first().map_or(Ns::ZERO, |a| a.woken);
    let life = duration.saturating_sub(first).0.max(1);
    let initial_sleep = line.activations[0].slept.map_or(Ns::ZERO, |(slept, _)| slept);
    let slept = (line.slept.saturating_sub(initial_sleep) + line.slept_last).0;
    if u128::from(slept) * 100 < u128::from(life) * u128::from(HUNGRY_PERCENT)
        && line.activations.len() > 1
    {
        return Outside::Relative(Why::Hungry);
    }
    let timed: Vec<&Activation> = line.activations.iter().filter(|a| from_outside(a)).collect();
    let naps = timed.iter().filter(|a| a.call == Some(NANOSLEEP)).count();
    if naps * 100 > timed.len() * NAPS_PERCENT {
        return Outside::Relative(Why::Nap);
    }
    let lengths: Vec<u64> = timed
        .iter()
        .filter_map(|a| a.slept)
        .filter(|(_, state)| *state != PrevState::DiskSleep)
        .map(|(slept, _)| slept.0)
        .collect();
    let gaps: Vec<u64> =
        timed.windows(2).map(|pair| pair[1].woken.saturating_sub(pair[0].woken).0).collect();
    if lengths.len() < ENOUGH || gaps.len() < ENOUGH {
        return Outside::Absolute;
    }
    let (lengths, gaps) = (Spread::of(lengths), Spread::of(gaps));
    // Both alike: work that always takes the same time. A date is the safer reading: its rate is
    // what was recorded.
    let more_regular =
        lengths.half * 2 < gaps.half || lengths.half == gaps.half && lengths.mean * 2 < gaps.mean;
    if lengths.permille() <= 50 && more_regular {
        Outside::Relative(Why::EqualSleeps)
    } else {
        Outside::Absolute
    }
}

/// Lets the recorded sleeps of tasks decide, where there are any: until a time (`TIMER_ABSTIME`),
/// or for a length. What tasks of closed loops do, and hungry ones, is left as it is.
pub(super) fn ask_sleeps<'a>(
    outside: &mut [Outside],
    lines: &[TaskTimeline],
    facts: impl Iterator<Item = &'a Fact>,
) {
    let mut sleeps = vec![(0, 0); lines.len()];
    for fact in facts {
        let FactKind::Sleep { until, .. } = fact.kind else { continue };
        let task = fact.task.and_then(|task| sleeps.get_mut(task.index()));
        let Some((dates, lengths)) = task else { continue };
        match until {
            Limit::At(_) => *dates += 1,
            Limit::For(_) => *lengths += 1,
            Limit::None | Limit::Unknown => {}
        }
    }
    for ((outside, line), (dates, lengths)) in outside.iter_mut().zip(lines).zip(sleeps) {
        let all = dates + lengths;
        let undecided = !matches!(outside, Outside::Relative(Why::Hungry | Why::ClosedLoop));
        if !undecided || all < ENOUGH || all * 2 < begun_outside(line) {
            continue;
        }
        *outside = if dates >= lengths { Outside::Absolute } else { Outside::Relative(Why::Nap) };
    }
}

/// How far values are apart, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Spread {
    /// Half the distance between the quartiles.
    half: u64,
    /// The mean distance from the median: tells apart what is equal most of the time.
    mean: u64,
    /// The median.
    median: u64,
}

impl Spread {
    fn of(mut values: Vec<u64>) -> Spread {
        values.sort_unstable();
        let at = |quarter: usize| values[(values.len() - 1) * quarter / 4];
        let median = at(2);
        let distances: u128 = values.iter().map(|value| u128::from(value.abs_diff(median))).sum();
        let mean = (distances / values.len() as u128) as u64;
        Spread { half: (at(3) - at(1)) / 2, mean, median }
    }

    /// Half the distance between the quartiles in thousandths of the median.
    fn permille(self) -> u64 {
        (u128::from(self.half) * 1000 / u128::from(self.median.max(1))) as u64
    }
}

/// The strongly connected components of "woke" with more than one task (Tarjan's algorithm, without
/// recursion).
fn circles(lines: &[TaskTimeline]) -> Vec<Vec<usize>> {
    let wakes: Vec<Vec<usize>> = lines.iter().map(TaskTimeline::wakees).collect();
    let mut finder = Circles {
        order: vec![usize::MAX; lines.len()],
        low: vec![0; lines.len()],
        on_stack: vec![false; lines.len()],
        stack: Vec::new(),
        next: 0,
        found: Vec::new(),
    };
    for task in 0..lines.len() {
        if finder.order[task] == usize::MAX {
            finder.visit(task, &wakes);
        }
    }
    finder.found.sort();
    finder.found
}

struct Circles {
    order: Vec<usize>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    next: usize,
    found: Vec<Vec<usize>>,
}

impl Circles {
    fn visit(&mut self, root: usize, wakes: &[Vec<usize>]) {
        let mut path = vec![(root, 0)];
        self.enter(root);
        while let Some((task, edge)) = path.last_mut() {
            let task = *task;
            if let Some(&to) = wakes[task].get(*edge) {
                *edge += 1;
                if self.order[to] == usize::MAX {
                    self.enter(to);
                    path.push((to, 0));
                } else if self.on_stack[to] {
                    self.low[task] = self.low[task].min(self.order[to]);
                }
                continue;
            }
            path.pop();
            if let Some(&(parent, _)) = path.last() {
                self.low[parent] = self.low[parent].min(self.low[task]);
            }
            if self.low[task] == self.order[task] {
                self.leave(task);
            }
        }
    }

    fn enter(&mut self, task: usize) {
        self.order[task] = self.next;
        self.low[task] = self.next;
        self.next += 1;
        self.stack.push(task);
        self.on_stack[task] = true;
    }

    fn leave(&mut self, root: usize) {
        let mut component = Vec::new();
        while let Some(task) = self.stack.pop() {
            self.on_stack[task] = false;
            component.push(task);
            if task == root {
                break;
            }
        }
        if component.len() > 1 {
            component.sort_unstable();
            self.found.push(component);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::timeline::Deed;
    use super::*;
    use schedlab_model::TaskId;

    const SERVER: usize = 0;
    const CLIENT: usize = 1;
    const MAIN: usize = 2;

    fn us(us: u64) -> Ns {
        Ns::from_us(us)
    }

    /// An activation of 10 us that wakes these tasks (never for the first time) at its end.
    fn act(origin: Origin, at: Ns, wakes: &[usize]) -> Activation {
        let deeds = wakes.iter().map(|&task| (us(10), Deed::Wake(TaskId::from(task), 1))).collect();
        Activation {
            deeds,
            slept: Some((us(50), PrevState::Sleeping)),
            ..Activation::plain(origin, at, us(10))
        }
    }

    fn by(task: usize) -> Origin {
        Origin::Task(TaskId::from(task))
    }

    /// A server wakes its client 1,000 times and is woken 20 times, half of them by the client's
    /// first thread, whose timer expires `expires` times.
    fn server_and_client(expires: usize) -> Vec<TaskTimeline> {
        let mut lines = vec![TaskTimeline::default(); 3];
        for round in 0..1_000 {
            let at = us(100 * round);
            let first = if round < 10 { &[SERVER][..] } else { &[] };
            lines[CLIENT].activations.push(act(by(SERVER), at, first));
        }
        for round in 0..20 {
            let waker = if round < 10 { CLIENT } else { MAIN };
            lines[SERVER].activations.push(act(by(waker), us(5_000 * round), &[CLIENT; 50]));
        }
        lines[MAIN].activations.push(act(by(CLIENT), us(1), &[]));
        lines[CLIENT].activations[0].deeds.push((us(10), Deed::Wake(TaskId::from(MAIN), 0)));
        for expiry in 0..expires {
            lines[MAIN].activations.push(act(Origin::HardIrq, us(90 * expiry as u64), &[SERVER]));
        }
        lines
    }

    #[test]
    fn a_first_thread_that_looks_at_the_clock_drives_no_loop() {
        let duration = us(100_000);
        let classes = classify(&server_and_client(10), duration, &[]);
        assert!(classes.loops[0].closed && classes.loops[0].tasks == [SERVER, CLIENT, MAIN]);
        assert!(
            classes.opens(MAIN, SERVER)
                && classes.opens(MAIN, CLIENT)
                && !classes.opens(CLIENT, SERVER)
        );
        assert_eq!(classes.outside[CLIENT], Outside::Relative(Why::ClosedLoop));
        assert_ne!(
            classes.outside[MAIN],
            Outside::Relative(Why::ClosedLoop),
            "what it does keeps its date"
        );
        // A server that a timer begins now and then is none that opens.
        let mut lines = server_and_client(10);
        for expiry in 0..8 {
            lines[SERVER].activations.push(act(
                Origin::HardIrq,
                us(200_000 + expiry),
                &[CLIENT; 50],
            ));
        }
        assert!(driven(&lines, SERVER));
        let classes = classify(&lines, us(300_000), &[]);
        assert!(
            classes.loops[0].closed
                && classes.opens(MAIN, SERVER)
                && !classes.opens(SERVER, CLIENT)
        );
        // The timers of a runtime begin a tenth of what the client does.
        for expiry in 8..100 {
            lines[SERVER].activations.push(act(
                Origin::HardIrq,
                us(200_000 + expiry),
                &[CLIENT; 50],
            ));
        }
        assert!(driven(&lines, SERVER) && classify(&lines, us(300_000), &[]).loops[0].closed);
        // An open client: a timer for each request.
        let classes = classify(&server_and_client(900), duration, &[]);
        assert!(!classes.loops[0].closed && !classes.opens(MAIN, SERVER));
    }

    #[test]
    fn a_task_of_a_closed_loop_that_wakes_others_works_for_them() {
        let lines = server_and_client(10);
        let classes = classify(&lines, us(100_000), &[]);
        let last = |task: usize| lines[task].activations.last().unwrap();
        assert!(classes.serves(SERVER, last(SERVER)), "50 answers in it");
        assert!(!classes.serves(CLIENT, last(CLIENT)), "no request in it");
        let open = classify(&server_and_client(900), us(100_000), &[]);
        assert!(!open.serves(SERVER, last(SERVER)), "the outside drives it");
    }

    #[test]
    fn a_first_thread_that_creates_the_others_opens_their_loop() {
        let mut lines = server_and_client(0);
        // It is woken by the loop alone.
        let classes = classify(&lines, us(100_000), &[]);
        assert!(classes.loops.iter().all(|circle| circle.closed) && !classes.opens(MAIN, SERVER));
        lines[MAIN].activations[0].deeds.push((us(1), Deed::Spawn(TaskId::from(CLIENT))));
        lines[MAIN].activations[0].deeds.push((us(2), Deed::Wake(TaskId::from(SERVER), 1)));
        let classes = classify(&lines, us(100_000), &[]);
        assert!(classes.opens(MAIN, SERVER) && !classes.opens(SERVER, MAIN));
        // A thread that creates another and then does as much as the others is a part of the loop.
        for round in 0..100 {
            lines[MAIN].activations.push(act(by(SERVER), us(1_000 * round), &[SERVER]));
        }
        assert!(!classify(&lines, us(100_000), &[]).opens(MAIN, SERVER));
    }
}
