//! The simulator's schedulers under real threads and real locks: what a decision costs on this
//! machine.
//!
//! Threads are pinned, one for each CPU that is decided for. Each goes round: the slice of its task
//! ends (`tick`), `schedule` is called, and the task before is given back (`saved`). The cycle
//! counter is read around `schedule`, as the paper on Linux 2.4 did; everything else is in the sum
//! only. There is no work between decisions, so several threads ask for a shared lock as often as
//! they can. Time is virtual: every slice is used up.
//!
//! Tasks become runnable in random order, so that a list does not run through memory as prefetchers
//! expect. *Cold* decisions come after reading twice the last-level cache. Holding and waiting are
//! measured in passes of their own, with locks that write them down. A round in which a thread was
//! preempted is done again.

mod locks;
mod seat;

pub use locks::{LockKind, SCHEDULERS, Stride};

use crate::calibrate::{Filler, Spread};
use schedlab_host::Rate;
use schedlab_host::threads::affinity;
use schedlab_model::{CpuId, CpuSet, Ns, Policy, TaskId, Topology, Waker};
use schedlab_scheduler::{
    CpuView, Cx, GroupView, KnobError, Knobs, Out, Runnable, SchedulerSpec, TaskView, Wake,
    WakeKind, World, registry,
};
use schedlab_stats::Random;
use schemars::JsonSchema;
use seat::{Seat, Tally};
use serde::Serialize;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

/// What to run: every combination.
#[derive(Clone, Debug)]
pub struct RunqueueRequest {
    /// Schedulers with their knobs, and the name of the variant that the knobs make.
    pub contenders: Vec<(SchedulerSpec, String)>,
    /// Numbers of tasks, 1 … [`MOST_TASKS`].
    pub tasks: Vec<u32>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Locks.
    pub locks: Vec<LockKind>,
    /// Distances of task records.
    pub strides: Vec<Stride>,
    /// Cold decisions too, with the first lock, each after reading so many bytes
    /// ([`cold_bytes`](crate::calibrate::cold_bytes)).
    pub cold: Option<usize>,
    /// Rounds of every combination.
    pub rounds: u32,
    /// Time for all of it, apart from preparing. Cold decisions need their time whatever this says.
    pub duration: Ns,
    /// More threads than CPUs.
    pub oversubscribe: bool,
    /// Policy of the threads.
    pub policy: Policy,
    /// Order of points and tasks.
    pub seed: u64,
}

/// More tasks than that take too much memory at 8 KiB each.
pub const MOST_TASKS: u32 = 16_384;
/// Times that a disturbed round is done again.
const AGAIN: u32 = 3;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunqueueError {
    /// A number out of range, or nothing to do.
    #[error("{0}")]
    Request(String),
    /// A scheduler or knob that does not exist.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// A scheduler that cannot be called by several threads.
    #[error(
        "{name} keeps part of its state outside of its locks, so it cannot be called by several \
         threads at once; these \
         can: {}",
        SCHEDULERS.join(", ")
    )]
    NotShared {
        /// Its name.
        name: String,
    },
    /// Spinning locks on fewer CPUs than threads.
    #[error(
        "{threads} threads on {cpus} CPUs: with spinning locks a thread that waits for one that \
         does not run burns \
         its whole slice, so such numbers say nothing about locks. Give --threads {cpus} or \
         fewer, or --oversubscribe"
    )]
    Oversubscribed {
        /// Threads wanted.
        threads: usize,
        /// CPUs allowed.
        cpus: usize,
    },
    /// Something that the system refused.
    #[error("{what}: {source}")]
    Host {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Ctrl-C.
    #[error("stopped before the end")]
    Stopped,
}

/// One combination, measured. Times in nanoseconds.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct RunqueueRow {
    /// Scheduler.
    pub scheduler: String,
    /// Its variant.
    pub variant: String,
    /// Lock.
    pub lock: LockKind,
    /// Bytes from one task's record to the next.
    pub stride: usize,
    /// Caches were filled with something else before each decision.
    pub cold: bool,
    /// Threads, each deciding for a CPU of its own.
    pub threads: usize,
    /// Runnable tasks.
    pub tasks: u32,
    /// Mean time of a call of `schedule`, entry to return, waiting included; the median of the
    /// rounds' means.
    pub cost: Spread,
    /// Median of single calls.
    pub call_p50_ns: f64,
    /// 99th percentile of single calls.
    pub call_p99_ns: f64,
    /// Time over decisions of all threads together, ticks and switches included: what a decision
    /// costs the machine.
    pub sum: Spread,
    /// Part of a call that waits for locks.
    pub wait: Spread,
    /// Part of a call during which locks are held (two at once count twice).
    pub hold: Spread,
    /// Locks that a call takes.
    pub locks_taken: f64,
    /// Entries that a call looks at.
    pub looked: f64,
    /// Calls in all.
    pub calls: u64,
    /// Rounds in which a thread was preempted in spite of repeating.
    pub disturbed: u32,
}

/// All of it.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct RunqueueReport {
    /// CPUs that the threads were bound to.
    pub cpus: CpuSet,
    /// Counts of the cycle counter in a microsecond.
    pub cycles_per_us: f64,
    /// What reading it twice takes, which is subtracted.
    pub clock_ns: f64,
    /// Bytes read before a cold decision; 0: there were none.
    pub cold_bytes: usize,
    /// Rows in the order of the request: scheduler, variant, cold, stride, lock, threads, tasks.
    pub rows: Vec<RunqueueRow>,
}

/// One combination.
#[derive(Clone)]
pub(crate) struct Point {
    pub(crate) contender: usize,
    pub(crate) cold: bool,
    pub(crate) stride: Stride,
    pub(crate) lock: LockKind,
    pub(crate) threads: usize,
    pub(crate) tasks: u32,
}

/// Checked, and ready to run.
struct Bench<'a> {
    request: &'a RunqueueRequest,
    knobs: Vec<Knobs>,
    cpus: Vec<CpuId>,
    budget: Duration,
    rate: Rate,
    filler: Option<Filler>,
}

/// What one round gave.
#[derive(Default)]
struct Round {
    cost: f64,
    sum: f64,
    calls: u64,
    samples: Vec<f64>,
    disturbed: bool,
}

/// What a metered round gave, by call.
struct Metered {
    wait: f64,
    hold: f64,
    taken: f64,
    looked: f64,
}

/// Measures every combination. `progress` hears (done, all) rounds; `stop` is asked between them.
///
/// # Errors
/// As the variants of [`RunqueueError`] say.
pub fn runqueue(
    request: &RunqueueRequest,
    progress: &mut dyn FnMut(usize, usize),
    stop: &dyn Fn() -> bool,
) -> Result<RunqueueReport, RunqueueError> {
    let points = points(request);
    let bench = Bench::new(request, points.len())?;
    let steps = points.len() * request.rounds as usize;
    let mut plain: Vec<Vec<Round>> = points.iter().map(|_| Vec::new()).collect();
    let mut metered: Vec<Vec<Metered>> = points.iter().map(|_| Vec::new()).collect();
    let mut random = Random::new(request.seed);
    for round in 0..request.rounds as usize {
        let mut order: Vec<usize> = (0..points.len()).collect();
        random.shuffle(&mut order);
        for (step, &at) in order.iter().enumerate() {
            if stop() {
                return Err(RunqueueError::Stopped);
            }
            progress(round * points.len() + step, steps);
            plain[at].push(bench.plain(&points[at], &mut random)?);
            metered[at].push(bench.metered(&points[at], &mut random)?);
        }
    }
    let rows = points.iter().zip(plain.iter().zip(&metered));
    Ok(RunqueueReport {
        cpus: bench.cpus.iter().copied().collect(),
        cycles_per_us: bench.rate.per_us,
        clock_ns: bench.rate.overhead as f64 * 1e3 / bench.rate.per_us,
        cold_bytes: request.cold.unwrap_or(0),
        rows: rows
            .map(|(point, (plain, metered))| bench.row(point, plain, metered, &mut random))
            .collect(),
    })
}

fn points(request: &RunqueueRequest) -> Vec<Point> {
    let mut points = Vec::new();
    for contender in 0..request.contenders.len() {
        for &cold in if request.cold.is_some() { &[false, true][..] } else { &[false] } {
            let locks =
                if cold { &request.locks[..1.min(request.locks.len())] } else { &request.locks };
            for &stride in &request.strides {
                for &lock in locks {
                    for &threads in &request.threads {
                        for &tasks in &request.tasks {
                            points.push(Point { contender, cold, stride, lock, threads, tasks });
                        }
                    }
                }
            }
        }
    }
    points
}

impl Bench<'_> {
    fn new(request: &RunqueueRequest, points: usize) -> Result<Bench<'_>, RunqueueError> {
        let refuse = |text: &str| Err(RunqueueError::Request(text.to_owned()));
        if points == 0 || !(3..=1000).contains(&request.rounds) {
            return refuse(
                "a run-queue benchmark takes at least one scheduler, number of tasks, of threads, \
                 lock and stride, \
                 and 3 to 1000 rounds",
            );
        }
        if request.tasks.iter().any(|tasks| !(1..=MOST_TASKS).contains(tasks)) {
            return Err(RunqueueError::Request(format!(
                "numbers of tasks go from 1 to {MOST_TASKS}"
            )));
        }
        let host = |what| move |source| RunqueueError::Host { what, source };
        let allowed = affinity(0).map_err(host("cannot read where this process may run"))?;
        let cpus: Vec<CpuId> = allowed.iter().collect();
        let threads = request.threads.iter().copied().max().unwrap_or(1);
        if threads == 0 || threads > 512 || request.threads.contains(&0) {
            return refuse("numbers of threads go from 1 to 512");
        }
        if threads > cpus.len() && !request.oversubscribe {
            return Err(RunqueueError::Oversubscribed { threads, cpus: cpus.len() });
        }
        let mut knobs = Vec::new();
        for (spec, _) in &request.contenders {
            let entry = registry::find(&spec.name)?;
            knobs.push(Knobs::check(spec, &(entry.knobs)())?);
            if !SCHEDULERS.contains(&&*spec.name) {
                return Err(RunqueueError::NotShared { name: spec.name.clone() });
            }
        }
        let rounds = points as u64 * u64::from(request.rounds) * 2;
        let budget =
            Duration::from_nanos(request.duration.0 / rounds).max(Duration::from_micros(200));
        let filler = request.cold.map(Filler::new);
        Ok(Bench { request, knobs, cpus, budget, rate: Rate::measure(), filler })
    }

    /// A round without meters, repeated while threads are preempted in it.
    fn plain(&self, point: &Point, random: &mut Random) -> Result<Round, RunqueueError> {
        let mut last = Round::default();
        for _ in 0..=AGAIN {
            let tallies = self.run::<false>(point, random)?;
            let calls: u64 = tallies.iter().map(|tally| tally.calls).sum();
            let longest = tallies.iter().map(|tally| tally.elapsed).max().unwrap_or(0);
            let spent: f64 = tallies.iter().map(|tally| self.spent(tally)).sum();
            last = Round {
                cost: spent / calls.max(1) as f64,
                sum: longest as f64 * 1e3 / self.rate.per_us / calls.max(1) as f64,
                calls,
                samples: tallies
                    .iter()
                    .flat_map(|t| &t.samples)
                    .map(|&counts| self.rate.ns(counts))
                    .collect(),
                disturbed: tallies.iter().any(|tally| tally.preempted),
            };
            if !last.disturbed {
                break;
            }
        }
        Ok(last)
    }

    /// Nanoseconds inside of `schedule`.
    fn spent(&self, tally: &Tally) -> f64 {
        tally.spent.saturating_sub(tally.calls * self.rate.overhead) as f64 * 1e3 / self.rate.per_us
    }

    fn metered(&self, point: &Point, random: &mut Random) -> Result<Metered, RunqueueError> {
        let tallies = self.run::<true>(point, random)?;
        let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>() as f64;
        let calls = sum(|tally| tally.calls).max(1.0);
        let taken = sum(|tally| tally.meter.taken);
        let clock = taken * self.rate.overhead as f64;
        let ns = |counts: f64| (counts - clock).max(0.0) * 1e3 / self.rate.per_us / calls;
        Ok(Metered {
            wait: ns(sum(|tally| tally.meter.wait)),
            hold: ns(sum(|tally| tally.meter.hold)),
            taken: taken / calls,
            looked: sum(|tally| tally.looked) / calls,
        })
    }

    fn run<const METERED: bool>(
        &self,
        point: &Point,
        random: &mut Random,
    ) -> Result<Vec<Tally>, RunqueueError> {
        let host = |what| move |source| RunqueueError::Host { what, source };
        let (spec, _) = &self.request.contenders[point.contender];
        let how = (point.lock, point.stride, METERED);
        let scheduler = locks::build(&spec.name, point.threads, &self.knobs[point.contender], how)
            .ok_or_else(|| RunqueueError::NotShared { name: spec.name.clone() })?;
        let world = world(point);
        populate(&*scheduler, &world, point, random);
        let (ready, go) = (AtomicUsize::new(0), AtomicBool::new(false));
        let seat = |index: usize| Seat {
            cpu: CpuId::from(index),
            host: self.cpus[index % self.cpus.len()],
            world: &world,
            scheduler: &*scheduler,
            policy: self.request.policy,
            cold: self.filler.as_ref().filter(|_| point.cold),
            budget: (self.budget.as_nanos() as f64 / 1e3 * self.rate.per_us) as u64,
            ready: &ready,
            go: &go,
        };
        let seats: Vec<Seat<'_>> = (0..point.threads).map(seat).collect();
        let results: Vec<io::Result<Tally>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                seats.iter().map(|seat| scope.spawn(move || seat.sit::<METERED>())).collect();
            seat::start(&ready, &go, point.threads);
            let ended = |thread: std::thread::ScopedJoinHandle<'_, io::Result<Tally>>| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a deciding thread panicked")))
            };
            threads.into_iter().map(ended).collect()
        });
        results
            .into_iter()
            .collect::<io::Result<_>>()
            .map_err(host("a deciding thread could not do its work"))
    }

    fn row(
        &self,
        point: &Point,
        plain: &[Round],
        metered: &[Metered],
        random: &mut Random,
    ) -> RunqueueRow {
        let (spec, variant) = &self.request.contenders[point.contender];
        // Disturbed rounds count only when there are too few others.
        let quiet: Vec<&Round> = plain.iter().filter(|round| !round.disturbed).collect();
        let counted = if quiet.len() >= 3 { quiet } else { plain.iter().collect() };
        let mut spread = |values: Vec<f64>| {
            let rounds: Vec<Vec<f64>> = values.into_iter().map(|value| vec![value]).collect();
            Spread::from_rounds(&rounds, random).unwrap_or_default()
        };
        let mut samples: Vec<f64> =
            counted.iter().flat_map(|round| round.samples.iter().copied()).collect();
        samples.sort_by(f64::total_cmp);
        let rank = |part: f64| {
            samples
                .get(((samples.len().max(1) - 1) as f64 * part).round() as usize)
                .copied()
                .unwrap_or(0.0)
        };
        let mean = |of: fn(&Metered) -> f64| {
            metered.iter().map(of).sum::<f64>() / metered.len().max(1) as f64
        };
        RunqueueRow {
            scheduler: spec.name.clone(),
            variant: variant.clone(),
            lock: point.lock,
            stride: point.stride.bytes(),
            cold: point.cold,
            threads: point.threads,
            tasks: point.tasks,
            cost: spread(counted.iter().map(|round| round.cost).collect()),
            call_p50_ns: rank(0.5),
            call_p99_ns: rank(0.99),
            sum: spread(counted.iter().map(|round| round.sum).collect()),
            wait: spread(metered.iter().map(|round| round.wait).collect()),
            hold: spread(metered.iter().map(|round| round.hold).collect()),
            locks_taken: mean(|round| round.taken),
            looked: mean(|round| round.looked),
            calls: counted.iter().map(|round| round.calls).sum(),
            disturbed: plain.iter().filter(|round| round.disturbed).count() as u32,
        }
    }
}

/// Threads of one process, all allowed everywhere.
fn world(point: &Point) -> World {
    let cpus = point.threads;
    let task = |index: u32| {
        let mut view = TaskView::default();
        (view.alive, view.process) = (true, 1);
        (view.affinity, view.soft_affinity) = (CpuSet::first(cpus), CpuSet::first(cpus));
        view.set_runnable(Runnable::Yes);
        view.set_last_cpu(CpuId::from(index as usize % cpus));
        view
    };
    World {
        roles: Default::default(),
        partitions: Vec::new(),
        tasks: (0..point.tasks).map(task).collect(),
        cpus: (0..cpus).map(|_| CpuView::new(Ns::from_ms(10))).collect(),
        groups: vec![GroupView::default()],
        topology: Topology::flat(cpus),
        hz: 100,
        tick_ns: Ns::from_ms(10),
    }
}

/// All tasks become runnable, in random order.
fn populate(
    scheduler: &dyn schedlab_scheduler::Scheduler,
    world: &World,
    point: &Point,
    random: &mut Random,
) {
    let out = Out::new(1);
    let cx = Cx { now: Ns::from_s(1), cpu: CpuId(0), world, out: &out };
    scheduler.init(&cx);
    let mut order: Vec<u32> = (0..point.tasks).collect();
    random.shuffle(&mut order);
    let wake = Wake { kind: WakeKind::New, sync: false, waker: Waker::HardIrq };
    let mut told = Vec::new();
    for task in order {
        let cpu = world.tasks[task as usize].last_cpu();
        scheduler.wake(&Cx { cpu, ..cx }, TaskId(task), wake);
        out.take_cmds(&mut told);
        told.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> RunqueueRequest {
        let contender = |name: &str| {
            let spec = SchedulerSpec::named(name);
            (spec, "default".to_owned())
        };
        RunqueueRequest {
            contenders: SCHEDULERS.iter().copied().map(contender).collect(),
            tasks: vec![1, 3, 64],
            threads: vec![1, 3],
            locks: LockKind::ALL.map(|(_, kind)| kind).into(),
            strides: vec![Stride::Line, Stride::Far],
            cold: None,
            rounds: 3,
            duration: Ns(1),
            oversubscribe: true,
            policy: Policy::Other,
            seed: 1,
        }
    }

    /// Three threads on whatever CPUs there are, all schedulers, locks and layouts. Metered rounds
    /// check that no task is given to two CPUs, and every thread ends: no list is torn.
    #[test]
    fn several_threads_decide_at_once() {
        let request = request();
        let report = runqueue(&request, &mut |_, _| {}, &|| false).unwrap();
        assert_eq!(report.rows.len(), 4 * 2 * 3 * 2 * 3);
        for row in &report.rows {
            assert!(
                row.calls > 0 && row.cost.median_ns >= 0.0 && row.sum.median_ns > 0.0,
                "{row:?}"
            );
            if row.scheduler == "linux-2.4" {
                // All tasks on one list, looked at at least once, and again after a recharge.
                assert!(row.looked >= f64::from(row.tasks), "{row:?}");
                assert!(row.locks_taken == 1.0, "{row:?}");
            }
            if row.scheduler.contains("o1") || row.scheduler.contains("2.6") {
                assert!(row.looked < 8.0, "{row:?}");
            }
        }
    }

    #[test]
    fn a_cold_decision_comes_after_memory() {
        let mut request = request();
        request.contenders.truncate(1);
        request.strides.truncate(1);
        (request.cold, request.tasks, request.threads) = (Some(1 << 20), vec![64], vec![1]);
        let report = runqueue(&request, &mut |_, _| {}, &|| false).unwrap();
        // Cold ones with the first lock only.
        assert_eq!(report.rows.iter().filter(|row| row.cold).count(), 1);
        let cold = report.rows.iter().find(|row| row.cold).unwrap();
        assert_eq!(cold.calls, u64::from(seat::COLD_CALLS - 1) * 3);
        assert_eq!(report.cold_bytes, 1 << 20);
        assert!(crate::calibrate::cold_bytes() >= 1 << 20);
    }

    #[test]
    fn what_says_nothing_is_refused() {
        let cpus = affinity(0).unwrap().count();
        let too_many =
            RunqueueRequest { threads: vec![cpus + 1], oversubscribe: false, ..request() };
        let run = |request: &RunqueueRequest| runqueue(request, &mut |_, _| {}, &|| false);
        assert!(matches!(run(&too_many), Err(RunqueueError::Oversubscribed { .. })));
        let mut other = request();
        other.contenders[0].0.name = "linux-6.18".to_owned();
        let message = run(&other).unwrap_err().to_string();
        assert!(message.contains("linux-2.6.22"), "{message}");
        other.contenders[0].0.name = "linux-9".to_owned();
        assert!(matches!(run(&other), Err(RunqueueError::Knob(_))));
        for bad in [
            RunqueueRequest { tasks: vec![0], ..request() },
            RunqueueRequest { threads: vec![0], ..request() },
            RunqueueRequest { rounds: 2, ..request() },
            RunqueueRequest { locks: Vec::new(), ..request() },
        ] {
            assert!(matches!(run(&bad), Err(RunqueueError::Request(_))));
        }
        assert!(matches!(
            runqueue(&request(), &mut |_, _| {}, &|| true),
            Err(RunqueueError::Stopped)
        ));
    }
}
