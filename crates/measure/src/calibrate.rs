//! What this machine's own work costs: system calls, switches, wakeups, changes of policy and
//! affinity, timers, caches.
//!
//! Every cost is measured in several rounds, the order of which is drawn anew each time, by threads
//! made for that round: what they change about themselves (policy, affinity) ends with them. The
//! interval of a median is drawn from whole rounds (bootstrap), because samples of one round
//! resemble each other.

mod calls;
mod foreign;
mod memory;
mod recorder;
mod siblings;
mod spread;
mod switches;
mod wakes;

pub(crate) use memory::Filler;
pub use memory::cold_bytes;
pub use spread::Spread;

use schedlab_host::threads::{Scheduling, affinity, scheduling, set_affinity, set_scheduling};
use schedlab_model::{CpuId, CpuSet, Ns, Policy};
use schedlab_stats::Random;
use serde::Serialize;
use std::io;
use std::time::{Duration, Instant};

/// What to do.
#[derive(Clone, Debug)]
pub struct CalibrateRequest {
    /// Time for all of it, [`SHORTEST`] or more. More gives narrower intervals.
    pub duration: Ns,
    /// Rounds of every measurement, 3 … 100.
    pub rounds: u32,
    /// Order of the measurements, and of the records in memory.
    pub seed: u64,
}

/// Less time gives too few samples.
pub const SHORTEST: Ns = Ns::from_ms(500);

/// One cost.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Cost {
    /// Its name, with the unit at the end.
    pub name: &'static str,
    /// What was timed.
    pub what: &'static str,
    /// How long it took.
    #[serde(flatten)]
    pub spread: Option<Spread>,
    /// Why it was not measured.
    pub lacks: Option<String>,
}

/// What came out.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Calibration {
    /// Where "this CPU" was.
    pub cpu: CpuId,
    /// Where "the other CPU" was; `None`: there is one CPU only.
    pub other: Option<CpuId>,
    /// How long it took.
    pub elapsed: Ns,
    /// Part of the time of both CPUs that other programs used or a hypervisor took, 0 to 1.
    pub foreign: f64,
    /// Lines of 64 bytes in the cache that a CPU has for itself (its second level); 0: unknown.
    pub private_lines: u64,
    /// All costs, in the order of the list.
    pub costs: Vec<Cost>,
}

impl Calibration {
    /// The median of a cost in nanoseconds.
    pub fn median(&self, name: &str) -> Option<f64> {
        self.costs.iter().find(|cost| cost.name == name)?.spread.map(|spread| spread.median_ns)
    }
}

/// Why there is no calibration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// Numbers out of range.
    #[error("a calibration takes 500ms or more, and 3 to 100 rounds")]
    Request,
    /// Not even this thread's CPUs can be read.
    #[error("cannot read where this process may run: {0}")]
    Affinity(io::Error),
    /// Ctrl-C.
    #[error("stopped before the end: nothing was written")]
    Stopped,
}

/// Where and how long a probe runs.
pub(crate) struct ProbeSettings {
    pub(crate) cpu: CpuId,
    pub(crate) other: Option<CpuId>,
    pub(crate) budget: Duration,
    pub(crate) seed: u64,
}

impl ProbeSettings {
    pub(crate) fn other(&self) -> io::Result<CpuId> {
        self.other.ok_or_else(|| io::Error::other("needs a second CPU"))
    }

    /// Asks `sample` for samples until the time is over; the first ones, which warm up, are left
    /// out.
    pub(crate) fn fill(&self, mut sample: impl FnMut() -> io::Result<f64>) -> io::Result<Vec<f64>> {
        let start = Instant::now();
        let warm = self.budget / 5;
        let mut samples = Vec::new();
        while start.elapsed() < self.budget || samples.len() < 3 {
            let value = sample()?;
            if start.elapsed() >= warm {
                samples.push(value);
            }
        }
        Ok(samples)
    }

    /// As [`ProbeSettings::fill`]; a sample is the mean of `batch` calls.
    pub(crate) fn calls(
        &self,
        batch: u32,
        mut call: impl FnMut() -> io::Result<()>,
    ) -> io::Result<Vec<f64>> {
        self.fill(|| {
            let start = Instant::now();
            for _ in 0..batch {
                call()?;
            }
            Ok(start.elapsed().as_nanos() as f64 / f64::from(batch))
        })
    }
}

/// A measurement that gives samples in nanoseconds. Runs in a thread of its own on `cpu`.
type Probe = fn(&ProbeSettings) -> io::Result<Vec<f64>>;

/// What is measured: name, what was timed, how.
const PROBES: [(&str, &str, Probe); 35] = [
    ("clock_read_ns", "one read of CLOCK_MONOTONIC (no system call)", calls::clock),
    ("cpu_clock_read_ns", "one read of a thread's CPU time (a system call)", calls::cpu_clock),
    ("syscall_ns", "a system call that does nothing (getppid)", calls::null),
    ("yield_ns", "sched_yield with no other task to give way to", calls::alone),
    (
        "switch_yield_ns",
        "sched_yield from one thread to another of its CPU: a switch without a wakeup",
        switches::yields,
    ),
    (
        "switch_same_pipe_ns",
        "one way through a pipe to a thread of the same CPU: write, wake, switch, read",
        switches::pipe_same,
    ),
    ("switch_same_futex_ns", "the same through a futex", switches::futex_same),
    ("switch_same_eventfd_ns", "the same through an eventfd", switches::eventfd_same),
    (
        "switch_cross_pipe_ns",
        "one way through a pipe to a thread that sleeps on another CPU",
        switches::pipe_cross,
    ),
    ("switch_cross_futex_ns", "the same through a futex", switches::futex_cross),
    ("switch_cross_eventfd_ns", "the same through an eventfd", switches::eventfd_cross),
    ("wake_nobody_ns", "a write into an eventfd for which no task waits", wakes::nobody),
    (
        "wake_call_ns",
        "the same write when it wakes a thread that does not preempt the writer",
        wakes::call,
    ),
    (
        "wakeup_busy_cpu_ns",
        "from a write to the FIFO thread that it wakes on another CPU, which was busy",
        wakes::busy,
    ),
    ("wakeup_idle_cpu_ns", "the same when that CPU was idle for 300 us", wakes::idle),
    ("setattr_self_ns", "sched_setattr: own policy, other to batch and back", calls::setattr_self),
    (
        "setattr_self_fifo_ns",
        "sched_setattr: own policy, other to FIFO and back, one call",
        calls::setattr_fifo,
    ),
    ("setattr_sleeping_ns", "sched_setattr on a thread that sleeps", calls::setattr_sleeping),
    (
        "setattr_running_ns",
        "sched_setattr on a runnable thread of the same CPU",
        calls::setattr_running,
    ),
    (
        "setattr_remote_ns",
        "sched_setattr on a thread that runs on another CPU",
        calls::setattr_remote,
    ),
    ("affinity_same_ns", "sched_setaffinity, own mask, unchanged", calls::affinity_same),
    (
        "affinity_stay_ns",
        "sched_setaffinity, own mask, changed, this CPU stays allowed",
        calls::affinity_stay,
    ),
    (
        "affinity_migrate_ns",
        "sched_setaffinity, own mask, without this CPU: moves the caller",
        calls::affinity_migrate,
    ),
    ("affinity_sleeping_ns", "sched_setaffinity on a thread that sleeps", calls::affinity_sleeping),
    (
        "affinity_remote_ns",
        "sched_setaffinity on a thread that runs on another CPU and must leave it",
        calls::affinity_remote,
    ),
    (
        "timer_fifo_ns",
        "how late a FIFO thread wakes from clock_nanosleep on an idle CPU",
        wakes::timer_fifo,
    ),
    (
        "timer_other_ns",
        "the same for SCHED_OTHER, timer slack as it is by default",
        wakes::timer_other,
    ),
    (
        "tick_ns",
        "what the timer tick takes from a thread that computes: the gap that comes back every \
         period",
        wakes::tick,
    ),
    ("scan_hot_ns", "the next of 1024 records of 64 bytes, shuffled, in the cache", memory::hot),
    (
        "line_ns",
        "the next of records that are in no cache, in an order that no prefetcher guesses: from memory",
        memory::cold,
    ),
    (
        "refill_64k_ns",
        "reading 64 KiB that is in no cache, more than reading it again",
        memory::refill,
    ),
    (
        "refill_64k_moved_ns",
        "reading 64 KiB after moving to another CPU, more than reading it again",
        memory::moved,
    ),
    (
        "lock_handoff_ns",
        "a contended test-and-set lock, taken by two CPUs in turn: one acquisition",
        memory::handoff,
    ),
    (
        "loop_alone_ns",
        "4000 steps of a loop in registers, with nothing of schedlab on the core's other hardware \
         threads",
        siblings::alone,
    ),
    (
        "loop_beside_ns",
        "the same while another hardware thread of its core does the same",
        siblings::beside,
    ),
];

/// What recording adds, which is measured apart: it concerns the whole machine.
const RECORDER: (&str, &str) = (
    "recorder_switch_ns",
    "what recording (the best backend that works) adds to a switch with its wakeup",
);

/// Measures everything. `progress` hears (done, all) steps; `stop` is asked between them.
///
/// # Errors
/// A request out of range, or stopped. A cost that this machine or these permissions do not let
/// measure is in the result, with the reason.
pub fn calibrate(
    request: &CalibrateRequest,
    progress: &mut dyn FnMut(usize, usize),
    stop: &dyn Fn() -> bool,
) -> Result<Calibration, CalibrateError> {
    if request.duration < SHORTEST || !(3..=100).contains(&request.rounds) {
        return Err(CalibrateError::Request);
    }
    let allowed = affinity(0).map_err(CalibrateError::Affinity)?;
    let mut cpus = allowed.iter();
    let (cpu, other) = (cpus.next().unwrap_or(CpuId(0)), cpus.next());
    let steps = request.rounds as usize * PROBES.len();
    // A tenth of the time is for the recorder.
    let budget = Duration::from_nanos(request.duration.0 * 9 / 10 / steps as u64);
    let (start, account) = (Instant::now(), foreign::Foreign::start(cpu, other));
    let mut rounds: Vec<Vec<io::Result<Vec<f64>>>> = PROBES.iter().map(|_| Vec::new()).collect();
    let mut random = Random::new(request.seed);
    for round in 0..request.rounds {
        let mut order: Vec<usize> = (0..PROBES.len()).collect();
        random.shuffle(&mut order);
        for (step, &probe) in order.iter().enumerate() {
            if stop() {
                return Err(CalibrateError::Stopped);
            }
            progress(round as usize * PROBES.len() + step, steps);
            let settings = ProbeSettings { cpu, other, budget, seed: random.next() };
            rounds[probe].push(on(cpu, || (PROBES[probe].2)(&settings)));
        }
    }
    let mut costs: Vec<Cost> = PROBES
        .iter()
        .zip(rounds)
        .map(|(&(name, what, _), rounds)| cost(name, what, rounds, &mut random))
        .collect();
    let settings = ProbeSettings {
        cpu,
        other,
        budget: Duration::from_nanos(request.duration.0 / 10),
        seed: request.seed,
    };
    costs.push(cost(RECORDER.0, RECORDER.1, recorder::rounds(&settings), &mut random));
    let elapsed = Ns(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let private_lines = memory::second_level() as u64 / 64;
    Ok(Calibration { cpu, other, elapsed, foreign: account.part(), private_lines, costs })
}

fn cost(
    name: &'static str,
    what: &'static str,
    rounds: Vec<io::Result<Vec<f64>>>,
    random: &mut Random,
) -> Cost {
    let lacks = rounds.iter().find_map(|round| Some(round.as_ref().err()?.to_string()));
    let good: Vec<Vec<f64>> = rounds.into_iter().filter_map(Result::ok).collect();
    let spread = Spread::from_rounds(&good, random);
    Cost { name, what, lacks: lacks.filter(|_| spread.is_none()), spread }
}

/// Runs `work` in a thread of its own, bound to `cpu`.
pub(crate) fn on<T: Send>(
    cpu: CpuId,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            set_affinity(0, &CpuSet::single(cpu))?;
            work()
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the measuring thread ended early")))
    })
}

/// The calling thread gets a policy, until it ends.
pub(crate) fn become_policy(policy: Policy) -> io::Result<()> {
    let old = scheduling(0)?;
    let told =
        |error: io::Error| io::Error::new(error.kind(), format!("needs policy {policy}: {error}"));
    set_scheduling(0, &Scheduling { slice: None, ..old.with_policy(policy) }).map_err(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_one_measures_everything_or_says_why() {
        schedlab_testing::settles(3, measures_everything);
    }

    fn measures_everything() {
        let before = scheduling(0).unwrap();
        let request = CalibrateRequest { duration: SHORTEST, rounds: 3, seed: 7 };
        let result = calibrate(&request, &mut |_, _| {}, &|| false).unwrap();
        assert_eq!(result.costs.len(), PROBES.len() + 1);
        for cost in &result.costs {
            match (&cost.spread, &cost.lacks) {
                (Some(spread), None) => assert!(
                    spread.count > 0
                        && spread.low_ns <= spread.median_ns
                        && spread.median_ns <= spread.high_ns,
                    "{cost:?}"
                ),
                (None, Some(why)) => assert!(!why.is_empty()),
                _ => panic!("{cost:?}"),
            }
        }
        // What needs no second CPU and no privilege is always there.
        for name in [
            "clock_read_ns",
            "syscall_ns",
            "switch_same_pipe_ns",
            "setattr_sleeping_ns",
            "scan_hot_ns",
        ] {
            assert!(result.median(name).is_some_and(|ns| ns > 0.0), "{name}");
        }
        schedlab_testing::always(scheduling(0).unwrap() == before, || {
            format!("not {before:?} any more")
        });
        let refused = CalibrateRequest { rounds: 2, ..request };
        assert!(matches!(
            calibrate(&refused, &mut |_, _| {}, &|| false),
            Err(CalibrateError::Request)
        ));
        assert!(matches!(
            calibrate(&request, &mut |_, _| {}, &|| true),
            Err(CalibrateError::Stopped)
        ));
    }
}
