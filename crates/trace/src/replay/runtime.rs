//! Between the first and the second step: threads over which a runtime multiplexes its own tasks.
//!
//! Go runs goroutines on `GOMAXPROCS` processors (its Ps), and whichever thread holds a processor
//! carries its work on. A thread that loses its CPU inside a system call loses its processor too: a
//! monitor, which sleeps for 20 us to 10 ms at a time, takes it away and wakes a parked thread for
//! it. In a recording such a service is several threads, each asleep most of the time, woken by a
//! thread whose timer expired: as if the timer were what drives it. Replayed like this the service
//! cannot go faster than the monitor, whatever scheduler it gets.
//!
//! So the threads of one process that take over from each other are found, and what they did is put
//! together again: each *lane* is the work of one processor, in the order in which it was done,
//! whichever thread did it. A lane sleeps where none of its threads was awake. In the workload one
//! thread carries each lane, and [`Handoff`](schedlab_model::Handoff) moves it to a parked one as
//! the recording shows it: how long a thread had waited, how often another took over then, and what
//! the first still ran before it parked.
//!
//! What makes threads a runtime is not their names: another thread of the process takes over when
//! the one that works has lost its CPU, and the first, when it runs again, has next to nothing left
//! to do. In a pool of workers with jobs of their own it has all of it left.

use super::classify::{RARE_PERCENT, goes_by_the_clock};
use super::timeline::{Activation, Deed, End, Origin, TaskTimeline};
use super::weave::weave;
use schedlab_model::{Ns, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// Threads of a process are no runtime with fewer takeovers than this. Chosen: two halves of so few
/// can be told apart.
const TAKEOVERS: usize = 8;
/// What a thread still runs after another took over is short up to here: the way out of a system
/// call and to the parking place. Chosen: in recordings of Go half of them take below 8 us and nine
/// in ten of the others above 300 us.
const REST: Ns = Ns::from_us(50);
/// At least this part of the threads that were taken over from have nothing but such a rest left
/// (in per cent).
const SHORT_PERCENT: usize = 50;
/// Another thread takes over from this part of the threads that wait as long as half of those (in
/// per cent). Chosen: 26 in a recording of Go, and 6 in one of Python, whose interpreter lock lets
/// one thread work at a time, so that another one of the process now and then begins while it
/// waits.
const TAKEN_PERCENT: usize = 10;
/// A thread that is without its CPU for so long has lost it: Go's monitor takes over after 0.08 ms
/// where it is busy, and after 10 ms at the latest.
const LONG: Ns = Ns::from_ms(10);
/// Between two stretches of a thread that does not lose its CPU lies no more than the recorder's
/// own work.
const OFF_CPU: Ns = Ns::from_us(10);
/// One more lane is there when it was missing in this part of the begun activations (in per cent).
const MISSING_PERCENT: usize = 5;

/// Threads that hand their work to each other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Runtime {
    /// Ascending.
    pub(super) threads: Vec<usize>,
    /// The threads that carry a lane at the beginning: the lines of the others are empty.
    pub(super) lanes: Vec<usize>,
    /// Threads that let others take over. Their timers are the runtime's own business: they drive
    /// nothing.
    pub(super) monitors: Vec<usize>,
    /// How long threads had waited for their CPU when another one took over, ascending.
    pub(super) after: Vec<Ns>,
    /// What they still ran then, ascending.
    pub(super) rest: Vec<Ns>,
    /// How many threads waited at least as long as half of those, and were not taken over from.
    pub(super) kept: usize,
}

impl Runtime {
    /// How often another thread takes over from one that waits for long, in thousandths.
    pub(super) fn permille(&self) -> u32 {
        (self.after.len() * 1_000 / (self.after.len() + self.kept).max(1)) as u32
    }
}

/// Finds the runtimes, and puts the work of each together. `processes`: by task. Gives also the
/// threads of which too little is seen to tell: fewer than [`TAKEOVERS`] of them lost their CPU for
/// long.
pub(super) fn merge(
    lines: &mut [TaskTimeline],
    processes: &[u32],
    duration: Ns,
) -> (Vec<Runtime>, Vec<usize>) {
    let (mut runtimes, mut undecided) = (Vec::new(), Vec::new());
    for threads in candidates(lines, processes) {
        let mut sweep = Sweep::new(lines, &threads, processes, 1);
        while sweep.wants_another_lane() {
            sweep = Sweep::new(lines, &threads, processes, sweep.lanes.len() + 1);
        }
        let kept = sweep.kept(sweep.usual());
        if sweep.is_runtime(kept) {
            let (mut runtime, lanes) = sweep.finish(kept);
            runtime.lanes = weave(lines, &runtime, &lanes, duration);
            runtimes.push(runtime);
        } else if sweep.shows_little() {
            undecided.extend(threads);
        }
    }
    (runtimes, undecided)
}

/// What a monitor begins its timer begins, also where too few threads lost their CPU to be a
/// runtime: a thread that goes by the clock, and wakes others of its process now and then and
/// nobody else. It would tie its process to the length of its naps.
pub(super) fn cut_monitors(lines: &mut [TaskTimeline], processes: &[u32]) {
    for monitor in 0..lines.len() {
        let Some(threads) = watches(&lines[monitor], monitor, processes) else { continue };
        let by_monitor = Origin::Task(TaskId::from(monitor));
        for thread in threads {
            let begun = lines[thread].activations.iter_mut();
            begun.filter(|a| a.origin == by_monitor).for_each(|a| a.origin = Origin::HardIrq);
        }
        let kept = |(_, deed): &(Ns, Deed)| !matches!(deed, Deed::Wake(..));
        lines[monitor].activations.iter_mut().for_each(|a| a.deeds.retain(kept));
    }
}

/// The threads that a monitor wakes, ascending; `None`: this task is no monitor.
fn watches(line: &TaskTimeline, monitor: usize, processes: &[u32]) -> Option<Vec<usize>> {
    let all = line.wakees();
    let wakes = line.activations.iter().filter(|a| a.wakes().next().is_some()).count();
    let seldom = wakes * 100 < line.activations.len() * RARE_PERCENT;
    let inside = all.iter().all(|&of| processes[of] == processes[monitor]);
    (!all.is_empty() && seldom && inside && goes_by_the_clock(line)).then_some(all)
}

/// Threads of one process that do the same: they wake the same tasks outside, and a thread of the
/// process begins a part of what they do.
fn candidates(lines: &[TaskTimeline], processes: &[u32]) -> Vec<Vec<usize>> {
    let mut by_process: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (task, line) in lines.iter().enumerate() {
        let process = processes[task];
        let begun_inside = |a: &Activation| match a.origin {
            Origin::Task(by) => processes[by.index()] == process,
            _ => false,
        };
        let works_for_others = |a: &&Activation| a.wakes().any(|other| processes[other] != process);
        let works = line.activations.iter().filter(works_for_others).count();
        // A monitor that found a message now and then is still none of those that it looks after.
        let looks_on =
            goes_by_the_clock(line) && works * 100 < line.activations.len() * RARE_PERCENT;
        if works > 0 && !looks_on && line.activations.iter().any(begun_inside) {
            by_process.entry(process).or_default().push(task);
        }
    }
    by_process.into_values().filter(|threads| threads.len() > 1).collect()
}

/// Where a thread stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CarrierState {
    Asleep,
    /// It carries this lane.
    Carries(usize),
    /// Another thread took this lane over.
    Lost(usize),
}

/// One processor of the runtime.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// The thread that carries it, and since when.
    holder: Option<(usize, Ns)>,
    /// Who carried it, from when to when; whether the lane slept before, and which activation of
    /// the thread ended that.
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) thread: usize,
    pub(super) from: Ns,
    pub(super) to: Ns,
    /// The activation of the thread with which the lane woke; `None`: it went on.
    pub(super) wakes: Option<usize>,
}

/// One walk over the activations of the threads in the order of time.
struct Sweep<'a> {
    lines: &'a [TaskTimeline],
    threads: &'a [usize],
    processes: &'a [u32],
    places: BTreeMap<usize, CarrierState>,
    lanes: Vec<Lane>,
    after: Vec<Ns>,
    rest: Vec<Ns>,
    monitors: BTreeSet<usize>,
    /// CPU progress of a thread when its lane was taken over.
    lost_at: BTreeMap<usize, Ns>,
    begun: usize,
    missing: usize,
}

impl<'a> Sweep<'a> {
    fn new(
        lines: &'a [TaskTimeline],
        threads: &'a [usize],
        processes: &'a [u32],
        lanes: usize,
    ) -> Sweep<'a> {
        let mut sweep = Sweep {
            lines,
            threads,
            processes,
            places: threads.iter().map(|&thread| (thread, CarrierState::Asleep)).collect(),
            lanes: vec![Lane::default(); lanes],
            after: Vec::new(),
            rest: Vec::new(),
            monitors: BTreeSet::new(),
            lost_at: BTreeMap::new(),
            begun: 0,
            missing: 0,
        };
        let mut moments = Vec::new();
        for &thread in threads {
            let line = &lines[thread];
            for (number, activation) in line.activations.iter().enumerate() {
                let end = if activation.end == End::Cut { Ns::MAX } else { line.ends(number) };
                moments.push((activation.woken, true, thread, number));
                moments.push((end.max(activation.woken), false, thread, number));
            }
        }
        // Who ends goes before who begins.
        moments.sort_unstable();
        for (at, begins, thread, number) in moments {
            if begins { sweep.begin(at, thread, number) } else { sweep.end(at, thread) }
        }
        sweep
    }

    /// Whether a task is a thread of the same process.
    fn is_inside(&self, task: usize) -> bool {
        self.threads.first().is_some_and(|&first| self.processes[first] == self.processes[task])
    }

    /// Since when a thread has been without a CPU; `None`: it runs.
    fn off_cpu(&self, thread: usize, at: Ns) -> Option<Ns> {
        let stretches = &self.lines[thread].stretches;
        let next = stretches.partition_point(|s| s.from <= at);
        let last = next.checked_sub(1).map_or(Ns::ZERO, |i| stretches[i].to);
        (at.saturating_sub(last) > OFF_CPU).then_some(last)
    }

    /// What the thread still does from here to its next block.
    fn left(&self, thread: usize, at: Ns) -> Ns {
        let line = &self.lines[thread];
        let Some(open) = line.activations.partition_point(|a| a.woken <= at).checked_sub(1) else {
            return Ns::ZERO;
        };
        let end = line.starts[open] + line.activations[open].demand;
        end.saturating_sub(line.progress(at))
    }

    fn begin(&mut self, at: Ns, thread: usize, number: usize) {
        let activation = &self.lines[thread].activations[number];
        let by = match activation.origin {
            Origin::Task(by) => Some(by.index()),
            _ => None,
        };
        let substantial = activation.demand > REST || activation.end == End::Cut;
        let longest_off = |(lane, holder): (usize, &Lane)| {
            let since = self.off_cpu(holder.holder?.0, at)?;
            Some((since, lane))
        };
        let off = self.lanes.iter().enumerate().filter_map(longest_off).min();
        let free = self.lanes.iter().position(|lane| lane.holder.is_none());
        let yields = by.and_then(|by| match self.places.get(&by) {
            Some(&CarrierState::Carries(lane)) if self.left(by, at) <= REST => Some(lane),
            _ => None,
        });
        let looks_after =
            |by: &usize| !self.places.contains_key(by) && goes_by_the_clock(&self.lines[*by]);
        let monitor = by.filter(|by| self.is_inside(*by) && looks_after(by));
        self.begun += 1;
        match (yields, off, free) {
            (Some(lane), ..) => self.take_over(lane, at, thread),
            (None, Some((since, lane)), _) if monitor.is_some() => {
                self.monitors.extend(monitor);
                self.after.push(at.saturating_sub(since));
                self.take_over(lane, at, thread);
            }
            (None, _, Some(lane)) => {
                self.lanes[lane].holder = Some((thread, at));
                self.lanes[lane].parts.push(Part { thread, from: at, to: at, wakes: Some(number) });
                self.places.insert(thread, CarrierState::Carries(lane));
            }
            (None, Some((_, lane)), None) if substantial => self.take_over(lane, at, thread),
            (None, off, None) => {
                self.missing += usize::from(substantial && off.is_none());
                self.places.insert(thread, CarrierState::Lost(0));
            }
        }
    }

    fn take_over(&mut self, lane: usize, at: Ns, thread: usize) {
        if let Some((from, _)) = self.lanes[lane].holder {
            self.close(lane, at);
            self.lost_at.insert(from, self.lines[from].progress(at));
            self.places.insert(from, CarrierState::Lost(lane));
        }
        self.lanes[lane].holder = Some((thread, at));
        self.lanes[lane].parts.push(Part { thread, from: at, to: at, wakes: None });
        self.places.insert(thread, CarrierState::Carries(lane));
    }

    fn close(&mut self, lane: usize, at: Ns) {
        self.lanes[lane].holder = None;
        if let Some(part) = self.lanes[lane].parts.last_mut() {
            part.to = at;
        }
    }

    fn end(&mut self, at: Ns, thread: usize) {
        let place = self.places.insert(thread, CarrierState::Asleep);
        match place {
            Some(CarrierState::Carries(lane)) => {
                self.close(lane, at);
                // Who lost a lane and has work left goes on with this one.
                let awake = self.places.iter().find(|(other, place)| {
                    matches!(place, CarrierState::Lost(_)) && self.left(**other, at) > REST
                });
                if let Some((&other, _)) = awake {
                    self.lost_at.remove(&other);
                    self.lanes[lane].holder = Some((other, at));
                    self.lanes[lane].parts.push(Part {
                        thread: other,
                        from: at,
                        to: at,
                        wakes: None,
                    });
                    self.places.insert(other, CarrierState::Carries(lane));
                }
            }
            Some(CarrierState::Lost(_)) => {
                if let Some(progress) = self.lost_at.remove(&thread) {
                    self.rest.push(self.lines[thread].progress(at).saturating_sub(progress));
                }
            }
            _ => {}
        }
    }

    fn wants_another_lane(&self) -> bool {
        self.lanes.len() < self.threads.len() && self.missing * 100 > self.begun * MISSING_PERCENT
    }

    /// Whether too few of its threads lost their CPU to see what comes of it.
    fn shows_little(&self) -> bool {
        self.after.len() < TAKEOVERS && self.kept(LONG) < TAKEOVERS
    }

    /// `kept`: the waits that did not end in a takeover.
    fn is_runtime(&self, kept: usize) -> bool {
        let short = self.rest.iter().filter(|rest| **rest <= REST).count();
        let taken = self.after.len();
        taken >= TAKEOVERS
            && short * 100 >= self.rest.len() * SHORT_PERCENT
            && taken * 100 >= (taken + kept) * TAKEN_PERCENT
    }

    /// How long a thread had waited when another one took over, at the median.
    fn usual(&self) -> Ns {
        let mut after = self.after.clone();
        after.sort_unstable();
        after.get(after.len() / 2).copied().unwrap_or_default()
    }

    /// Waits of carriers that were as long as half of those that ended in a takeover, and did not.
    fn kept(&self, long: Ns) -> usize {
        let parts = self.lanes.iter().flat_map(|lane| &lane.parts);
        let waits = |part: &Part| {
            let stretches = &self.lines[part.thread].stretches;
            let first = stretches.partition_point(|s| s.to <= part.from);
            let inside = stretches[first..].iter().take_while(|s| s.from < part.to);
            let starts: Vec<Ns> = inside.clone().map(|s| s.from).collect();
            let ends = inside.map(|s| s.to);
            ends.zip(starts.into_iter().skip(1))
                .filter(|(end, next)| next.saturating_sub(*end) >= long)
                .count()
        };
        parts.map(waits).sum()
    }

    /// What was found, and the parts of each lane.
    fn finish(mut self, kept: usize) -> (Runtime, Vec<Vec<Part>>) {
        self.after.sort_unstable();
        self.rest.sort_unstable();
        let (threads, lanes) = (self.threads.to_vec(), Vec::new());
        let monitors = self.monitors.into_iter().collect();
        let runtime =
            Runtime { threads, lanes, monitors, after: self.after, rest: self.rest, kept };
        (runtime, self.lanes.into_iter().map(|lane| lane.parts).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: usize = 3;
    const MONITOR: usize = 2;
    const PROCESSES: [u32; 4] = [1, 1, 1, 2];
    const ROUNDS: u64 = 20;

    fn us(us: u64) -> Ns {
        Ns::from_us(us)
    }

    /// Two workers in turn: one works for 4 ms, wakes the client in their middle and loses its CPU;
    /// 80 us later the monitor wakes the other. The first still runs for `left` then.
    fn rounds(left: Ns) -> Vec<TaskTimeline> {
        let mut lines = vec![TaskTimeline::default(); 4];
        for round in 0..ROUNDS {
            let (worker, at) = (round as usize % 2, us(4_080 * round));
            let by =
                if round == 0 { Origin::Initial } else { Origin::Task(TaskId(MONITOR as u32)) };
            lines[worker].begin(by, at, None);
            lines[worker].run(at, at + us(4_000));
            let heard = lines[CLIENT].activations.len() as u32;
            let deed = (us(2_000), Deed::Wake(TaskId(CLIENT as u32), heard));
            lines[worker].activations.last_mut().unwrap().deeds.push(deed);
            lines[worker].run(at + us(4_180), at + us(4_180) + left);
            lines[CLIENT].begin(Origin::Task(TaskId(worker as u32)), at + us(2_000), None);
            lines[CLIENT].run(at + us(2_001), at + us(2_011));
            lines[MONITOR].begin(Origin::HardIrq, at + us(4_080), None);
            let next = Deed::Wake(TaskId(1 - worker as u32), (round.div_ceil(2)) as u32);
            lines[MONITOR].activations.last_mut().unwrap().deeds.push((Ns::ZERO, next));
        }
        lines
    }

    #[test]
    fn threads_that_take_over_are_one_lane() {
        let mut lines = rounds(us(5));
        // A runtime creates threads when it needs them.
        lines[0].activations[0].deeds.push((us(3_000), Deed::Spawn(TaskId(1))));
        let (runtimes, undecided) = merge(&mut lines, &PROCESSES, us(4_080 * ROUNDS));
        assert_eq!((runtimes.len(), undecided), (1, vec![]));
        let runtime = &runtimes[0];
        let found = (&runtime.threads[..], &runtime.lanes[..], &runtime.monitors[..]);
        assert_eq!(found, (&[0, 1][..], &[0][..], &[MONITOR][..]));
        assert!(runtime.after.iter().all(|after| *after == us(80)));
        // From the last one nobody took over: it got its CPU back.
        assert_eq!((runtime.after.len(), runtime.kept, runtime.permille()), (19, 1, 950));
        assert!(runtime.rest.iter().all(|rest| *rest == us(5)), "{:?}", runtime.rest);
        let lane = &lines[0];
        assert_eq!(
            (lane.activations.len(), lane.total),
            (1, us(4_000 * ROUNDS + 5)),
            "the last keeps its rest"
        );
        assert_eq!(
            lane.activations[0].deeds.len(),
            ROUNDS as usize,
            "all that the threads did to the client"
        );
        assert_eq!(lane.activations[0].deeds[7].0, us(4_000 * 7 + 2_000));
        assert!(lines[1].activations.is_empty());
        assert!(lines[CLIENT].activations.iter().all(|a| a.origin == Origin::Task(TaskId(0))));
        assert!(
            lines[MONITOR].activations.iter().all(|a| a.deeds.is_empty()),
            "nobody waits for the monitor"
        );
    }

    /// The thread of a Python server that accepts connections hands the lock on; the thread that
    /// had the lock woke it.
    #[test]
    fn a_thread_that_others_wake_is_no_monitor() {
        let mut lines = rounds(us(5));
        for activation in lines[MONITOR].activations.iter_mut().skip(1).step_by(2) {
            activation.origin = Origin::Task(TaskId(0));
        }
        assert_eq!(
            merge(&mut lines.clone(), &PROCESSES, us(4_080 * ROUNDS)).0.len(),
            1,
            "half of it by its timer"
        );
        lines[MONITOR].activations[0].origin = Origin::Task(TaskId(0));
        assert!(merge(&mut lines, &PROCESSES, us(4_080 * ROUNDS)).0.is_empty());
    }

    /// As in `rounds`, with hardly any takeover: one worker carries all, and the monitor wakes the
    /// other twice in 100 looks.
    #[test]
    fn what_a_monitor_begins_its_timer_begins() {
        let mut lines = vec![TaskTimeline::default(); 4];
        lines[0].begin(Origin::Initial, Ns::ZERO, None);
        for look in 0..100 {
            lines[MONITOR].begin(Origin::HardIrq, us(1_000 * look), None);
            if look % 50 == 7 {
                let number = lines[1].activations.len() as u32;
                let open = lines[MONITOR].activations.last_mut().unwrap();
                open.deeds.push((Ns::ZERO, Deed::Wake(TaskId(1), number)));
                lines[1].begin(Origin::Task(TaskId(MONITOR as u32)), us(1_000 * look), None);
            }
        }
        let mut others = lines.clone();
        cut_monitors(&mut lines, &PROCESSES);
        assert!(lines[1].activations.iter().all(|a| a.origin == Origin::HardIrq));
        assert!(lines[MONITOR].activations.iter().all(|a| a.deeds.is_empty()));
        // A load generator wakes a thread of another process, however seldom.
        let as_they_were = |mut lines: Vec<TaskTimeline>, processes: &[u32]| {
            let before: Vec<_> = lines.iter().map(|line| line.activations.clone()).collect();
            cut_monitors(&mut lines, processes);
            lines.iter().map(|line| &line.activations).eq(&before)
        };
        assert!(as_they_were(others.clone(), &[1, 2, 1, 2]));
        // A thread that wakes another one every time works for it.
        let wake = (Ns::ZERO, Deed::Wake(TaskId(0), 1));
        others[MONITOR].activations.iter_mut().for_each(|a| a.deeds.push(wake));
        assert!(as_they_were(others, &PROCESSES));
    }

    /// Go's monitor polls the network when nobody else does, and wakes the client for a message of
    /// its own.
    #[test]
    fn a_monitor_that_answers_once_is_none_of_those_that_it_looks_after() {
        let mut lines = rounds(us(5));
        let end = us(4_080 * ROUNDS);
        (1..=20).for_each(|look| lines[MONITOR].begin(Origin::HardIrq, end + us(20 * look), None));
        let to_client = Deed::Wake(TaskId(CLIENT as u32), lines[CLIENT].activations.len() as u32);
        lines[MONITOR].activations[3].deeds.push((Ns::ZERO, to_client));
        lines[MONITOR].activations[4].origin = Origin::Task(TaskId(0));
        let (runtimes, _) = merge(&mut lines, &PROCESSES, end + us(1_000));
        assert_eq!(
            (&runtimes[0].threads[..], &runtimes[0].monitors[..]),
            (&[0, 1][..], &[MONITOR][..])
        );
    }

    #[test]
    fn workers_with_jobs_of_their_own_are_no_runtime() {
        let mut lines = rounds(us(3_000));
        let before = lines.clone();
        assert_eq!(merge(&mut lines, &PROCESSES, us(4_080 * ROUNDS)), (vec![], vec![]));
        assert!(lines.iter().zip(&before).all(|(new, old)| new.activations == old.activations));
    }

    /// A thread that mostly gets its CPU back keeps its work: that another one begins meanwhile is
    /// chance.
    #[test]
    fn threads_that_wait_and_go_on_are_no_runtime() {
        let begun_again = |times: u64| {
            let mut lines = rounds(us(5));
            let from = 4_080 * ROUNDS + 200;
            (0..times)
                .for_each(|time| lines[1].run(us(from + 200 * time), us(from + 200 * time + 100)));
            merge(&mut lines, &PROCESSES, us(from + 200 * times + 1_000)).0.len()
        };
        // 19 takeovers, and one thread that got its CPU back already.
        assert_eq!((begun_again(150), begun_again(180)), (1, 0));
    }
}
