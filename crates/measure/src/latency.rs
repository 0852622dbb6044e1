//! How long after its time a thread runs: wakeup latency on this machine.
//!
//! Threads wake on a fixed grid of absolute times. An expiry that passed while the thread was still
//! late from an earlier one is a sample too, so a long stall counts as often as it was met; the
//! uncorrected values (one for each wakeup, as cyclictest counts) stand beside. Without the first,
//! a stall hides the expiries behind it (coordinated omission: G. Tene, "How NOT to Measure
//! Latency", Strange Loop 2015); docs/measuring.md lists what else goes wrong.

pub(crate) mod account;
mod budget;
mod samples;
pub(crate) mod wake;
mod worker;

pub use account::CpuUse;
pub use budget::{Budget, BudgetPart, Cause};
pub use samples::Samples;
pub use wake::Wake;

use account::Account;
use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use schedlab_host::threads::affinity;
use schedlab_model::{CpuId, CpuSet, Ns, Policy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;
use std::{fs, io};
use wake::{Mailbox, now};
use worker::{Job, Live};

/// Shortest interval: below it a real-time thread would leave little of its CPU to others.
pub const SHORTEST: Ns = Ns::from_us(50);
/// Longest interval: Ctrl-C is seen when a thread wakes.
pub const LONGEST: Ns = Ns::from_s(1);
/// Most threads.
pub const MOST_THREADS: usize = 256;
/// From the moment at which all are ready to the beginning of the grid.
const LEAD: u64 = 5_000_000;
/// What to do when the kernel takes no deadline thread.
const DEADLINE_REMEDY: &str = "such a thread must be allowed on every CPU of its root domain \
                               (leave --cpus out, or name them \
    all; a cpuset of its own makes a smaller domain), needs CAP_SYS_NICE, and all of them \
    together must leave bandwidth \
    (EBUSY: a shorter runtime, a longer period)";
/// How often the main thread looks.
const LOOK: Duration = Duration::from_millis(50);

/// What to measure.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct LatencyRequest {
    /// The CPU of each measuring thread; a thread stays on its CPU.
    pub cpus: Vec<CpuId>,
    /// How the threads (and their wakers) are scheduled. With SCHED_DEADLINE a thread may run on
    /// all of `cpus`, which must then be a whole root domain.
    pub policy: Policy,
    /// What wakes them.
    pub wake: Wake,
    /// Between two expiries of the first thread.
    pub interval: Ns,
    /// How much longer the interval of each further thread is.
    pub distance: Ns,
    /// End after this time.
    pub duration: Option<Ns>,
    /// End after this many expiries per thread.
    pub loops: Option<u64>,
    /// Timer slack of the measuring threads; `None`: what they inherit (50 us unless it was
    /// changed).
    pub slack: Option<Ns>,
    /// Hold `/dev/cpu_dma_latency` at this many microseconds: no deep idle states. `None`: leave it
    /// alone.
    pub dma_latency_us: Option<i32>,
    /// Lock all memory, so that no page fault is measured.
    pub lock: bool,
    /// All threads expire on one grid. `false`: their grids begin apart, so that they do not meet
    /// in each expiry.
    #[serde(default)]
    pub aligned: bool,
    /// End all threads at the first wakeup that is later than this.
    #[serde(default)]
    pub break_above: Option<Ns>,
}

/// Why latency cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum LatencyError {
    /// The request makes no sense here.
    #[error("{0}")]
    Request(String),
    /// The system refused something.
    #[error("{what}: {source}; {remedy}")]
    System {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
        /// What the user can do.
        remedy: &'static str,
    },
}

/// What one thread measured.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct ThreadReport {
    /// Number of the thread, from 0.
    pub thread: u32,
    /// Its thread id.
    pub tid: u32,
    /// The CPU on which it ran; under SCHED_DEADLINE, where a thread may run on all CPUs that were
    /// asked for, the last one.
    pub cpu: CpuId,
    /// Its interval.
    pub interval: Ns,
    /// How often it woke.
    pub wakes: u64,
    /// Expiries that passed before it ran again; each is a sample of `latency`.
    pub missed: u64,
    /// Expiries that the waker did not send, being late itself. They are in no sample.
    pub withheld: u64,
    /// Every expiry.
    pub latency: Samples,
    /// One sample for each wakeup, as cyclictest counts.
    pub uncorrected: Samples,
    /// How often it woke on another CPU than before.
    pub migrations: u64,
    /// How often it lost its CPU without sleeping.
    pub preempted: u64,
    /// CPU time of thread (and waker), nanoseconds.
    pub cpu_ns: u64,
}

/// The wakeup that ended a run with [`LatencyRequest::break_above`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Broke {
    /// Number of the thread.
    pub thread: u32,
    /// Its thread id.
    pub tid: u32,
    /// The CPU on which it runs.
    pub cpu: CpuId,
    /// When it should have run, CLOCK_MONOTONIC nanoseconds.
    pub due_ns: u64,
    /// When it ran.
    pub ran_ns: u64,
}

/// What a run gave.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct LatencyReport {
    /// What was asked for.
    pub request: LatencyRequest,
    /// Time from the common begin of the grids to the end.
    pub elapsed: Ns,
    /// Whether it ended early, by a signal (exit code 3).
    pub stopped: bool,
    /// Timer slack in force; 0 for real-time threads, where the kernel ignores it.
    pub slack: Ns,
    /// Why memory is not locked although that was asked for: page faults may be in the figures.
    #[serde(default)]
    pub unlocked: Option<String>,
    /// With `--break`, the wakeup that ended the run; `None`: none did.
    #[serde(default)]
    pub broke: Option<Broke>,
    /// One for each thread.
    pub threads: Vec<ThreadReport>,
    /// What else each CPU did that was used.
    pub cpus: Vec<CpuUse>,
}

impl LatencyReport {
    /// The samples of all threads.
    pub fn all(&self) -> Samples {
        let mut all = Samples::default();
        self.threads.iter().for_each(|thread| all.merge(&thread.latency));
        all
    }
}

/// What a thread has measured so far; times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LatencyLine {
    /// Its thread id.
    pub tid: u32,
    /// Its interval.
    pub interval: Ns,
    /// Wakeups so far.
    pub count: u64,
    /// Smallest.
    pub min: u64,
    /// Last.
    pub last: u64,
    /// Mean.
    pub mean: u64,
    /// Largest.
    pub max: u64,
}

impl LatencyRequest {
    /// Whether it can be measured here.
    ///
    /// # Errors
    /// What is wrong, what is allowed.
    pub fn check(&self) -> Result<(), LatencyError> {
        let fail = |text: String| Err(LatencyError::Request(text));
        let allowed = affinity(0).unwrap_or(CpuSet::ALL);
        if let Some(cpu) = self.cpus.iter().find(|cpu| !allowed.contains(**cpu)) {
            return fail(format!(
                "CPU {} is not one that this process may use: they are {allowed}",
                cpu.0
            ));
        }
        if self.cpus.is_empty() || self.cpus.len() > MOST_THREADS {
            return fail(format!(
                "{} threads: 1 to {MOST_THREADS} can be measured",
                self.cpus.len()
            ));
        }
        let longest = self
            .interval
            .saturating_add(Ns(self.distance.0.saturating_mul(self.cpus.len() as u64 - 1)));
        if self.interval < SHORTEST || longest > LONGEST {
            return fail(format!(
                "intervals from {} to {longest}: {SHORTEST} to {LONGEST} are possible \
                 (--interval, --distance)",
                self.interval
            ));
        }
        if self.duration.is_none() && self.loops.is_none() {
            return fail("neither a duration nor loops: a measurement must end".to_owned());
        }
        if self.duration.is_some_and(|duration| duration < longest) || self.loops == Some(0) {
            return fail(format!(
                "no expiry at all: measure for {longest} or longer, or for a loop or more"
            ));
        }
        Ok(())
    }
}

fn system(what: &str, source: io::Error, remedy: &'static str) -> LatencyError {
    LatencyError::System { what: what.to_owned(), source, remedy }
}

/// Memory that stays in memory while this lives.
struct Locked;

impl Drop for Locked {
    fn drop(&mut self) {
        // Nothing depends on it.
        let _ = munlockall();
    }
}

/// Locks memory if that is asked for. A plain user may lock little: why it did not work is a doubt
/// about the result, and no reason to have none.
fn lock_memory(
    asked: bool,
    lock: impl FnOnce() -> io::Result<()>,
) -> (Option<Locked>, Option<String>) {
    match asked.then(lock) {
        None => (None, None),
        Some(Ok(())) => (Some(Locked), None),
        Some(Err(error)) => (None, Some(error.to_string())),
    }
}

/// Measures. `progress` is called about twenty times a second; a `true` from `stop` ends it early.
/// Threads of this process alone are changed, and those end with it.
///
/// # Errors
/// A request that makes no sense here, or a system that refuses (no right to the policy, ...).
pub fn latency(
    request: &LatencyRequest,
    progress: &mut dyn FnMut(&[LatencyLine]),
    stop: &dyn Fn() -> bool,
) -> Result<LatencyReport, LatencyError> {
    request.check()?;
    let _small_pages = schedlab_host::NoHugePages::hold();
    let _held = request.dma_latency_us.map(hold_dma_latency).transpose()?;
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE;
    let (_locked, unlocked) = lock_memory(request.lock, || Ok(mlockall(all)?));
    let lives: Vec<Live> = request.cpus.iter().map(|_| Live::default()).collect();
    let stopping = AtomicBool::new(false);
    let jobs: Vec<Job<'_>> = request
        .cpus
        .iter()
        .zip(&lives)
        .enumerate()
        .map(|(index, (&cpu, live))| {
            let interval = Ns(request.interval.0 + request.distance.0 * index as u64);
            Job { index, cpu, interval, request, live, stop: &stopping }
        })
        .collect();
    let started = now();
    let mut stopped = false;
    let measured = thread::scope(|scope| {
        let crew = Crew::start(scope, &jobs)?;
        let begun = crew.go(request.policy)?;
        // Not before: starting all threads can take longer than a short run.
        let before = Account::now();
        while !crew.finished() {
            thread::sleep(LOOK);
            progress(&lines(&jobs));
            stopped |= stop();
            // A thread may have ended all the others already.
            stopping.fetch_or(stopped, Ordering::Relaxed);
        }
        crew.join().map(|(threads, wakers)| (begun, before, threads, wakers))
    });
    let (begun, before, threads, wakers) = measured?;
    let after = Account::now();
    debug_assert!(begun >= started);
    let mut own: BTreeMap<u32, u64> = BTreeMap::new();
    for (cpu, ns) in threads.iter().map(|t| (t.cpu, t.cpu_ns)).chain(wakers) {
        *own.entry(cpu.0).or_default() += ns;
    }
    let slack = match request.policy.is_fair() {
        true => request.slack.unwrap_or(Ns(rustix::thread::current_timer_slack().unwrap_or(0))),
        false => Ns::ZERO,
    };
    let elapsed = Ns(now().saturating_sub(begun));
    Ok(LatencyReport {
        request: request.clone(),
        elapsed,
        stopped,
        slack,
        unlocked,
        broke: broke(&jobs),
        threads,
        cpus: before.until(&after, &own),
    })
}

/// Keeps the CPUs out of idle states slower than `us` while the file is open.
fn hold_dma_latency(us: i32) -> Result<fs::File, LatencyError> {
    let opened = fs::OpenOptions::new().write(true).open("/dev/cpu_dma_latency");
    opened.and_then(|mut file| file.write_all(&us.to_ne_bytes()).map(|()| file)).map_err(|error| {
        system("/dev/cpu_dma_latency", error, "be root, or leave --dma-latency out")
    })
}

/// The wakeup that ended all threads.
fn broke(jobs: &[Job<'_>]) -> Option<Broke> {
    jobs.iter().find_map(|job| {
        let get = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed);
        let (ran_ns, late) = (get(&job.live.broke_at), get(&job.live.broke_late));
        let tid = job.live.tid.load(Ordering::Relaxed);
        let (thread, due_ns) = (job.index as u32, ran_ns.saturating_sub(late));
        (ran_ns > 0).then_some(Broke { thread, tid, cpu: job.cpu, due_ns, ran_ns })
    })
}

fn lines(jobs: &[Job<'_>]) -> Vec<LatencyLine> {
    let line = |job: &Job<'_>| {
        let get = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed);
        let live = job.live;
        let count = get(&live.count);
        LatencyLine {
            tid: live.tid.load(Ordering::Relaxed),
            interval: job.interval,
            count,
            min: get(&live.min),
            last: get(&live.last),
            mean: get(&live.sum) / count.max(1),
            max: get(&live.max),
        }
    };
    jobs.iter().map(line).collect()
}

/// Gives how many expiries were withheld, and CPU time in nanoseconds.
type WakerHandle<'scope> = ScopedJoinHandle<'scope, io::Result<(u64, u64)>>;

/// Measuring threads and the wakers' CPUs with their CPU time.
type Collected = (Vec<ThreadReport>, Vec<(CpuId, u64)>);

/// The threads of a run, in pairs of measurer and perhaps waker.
struct Crew<'scope> {
    measurers: Vec<ScopedJoinHandle<'scope, io::Result<ThreadReport>>>,
    /// With the CPU of each.
    wakers: Vec<(CpuId, WakerHandle<'scope>)>,
    ready: mpsc::Receiver<io::Result<()>>,
    begin: Vec<mpsc::Sender<u64>>,
}

impl<'scope> Crew<'scope> {
    fn start<'env>(
        scope: &'scope thread::Scope<'scope, 'env>,
        jobs: &'env [Job<'env>],
    ) -> Result<Self, LatencyError> {
        let (tell, ready) = mpsc::channel();
        let mut crew = Crew { measurers: Vec::new(), wakers: Vec::new(), ready, begin: Vec::new() };
        let allowed = affinity(0).unwrap_or(CpuSet::ALL);
        let refused = |error| system("a thread or channel", error, "ask for fewer --threads");
        for job in jobs {
            let mailbox =
                job.request.wake.has_waker().then(|| Mailbox::new(job.request.wake)).transpose();
            let mailbox = mailbox.map_err(refused)?;
            let (begin, start) = mpsc::channel();
            crew.begin.push(begin);
            let (tell_one, mail) = (tell.clone(), mailbox.clone());
            let body = move || {
                job.live.tid.store(
                    rustix::thread::gettid().as_raw_nonzero().get() as u32,
                    Ordering::Relaxed,
                );
                let base = enter(job, job.cpu, job.request.slack, &tell_one, &start)?;
                job.measure(base, mail.as_deref())
            };
            let name = thread::Builder::new().name(format!("latency/{}", job.index));
            crew.measurers.push(name.spawn_scoped(scope, body).map_err(refused)?);
            let Some(mailbox) = mailbox else { continue };
            let cpu = allowed
                .iter()
                .find(|&cpu| cpu > job.cpu)
                .or(allowed.iter().next())
                .unwrap_or(job.cpu);
            let (begin, start) = mpsc::channel();
            crew.begin.push(begin);
            let tell_one = tell.clone();
            let body = move || {
                // Its own lateness is no part of a sample: the least slack.
                let base = enter(job, cpu, Some(Ns(1)), &tell_one, &start)?;
                job.wake(base, &mailbox)
            };
            let name = thread::Builder::new().name(format!("waker/{}", job.index));
            crew.wakers.push((cpu, name.spawn_scoped(scope, body).map_err(refused)?));
        }
        Ok(crew)
    }

    /// Begins when all are ready; gives when. After an error no thread begins: the senders are
    /// dropped.
    fn go(&self, policy: Policy) -> Result<u64, LatencyError> {
        for _ in &self.begin {
            let told =
                self.ready.recv().unwrap_or_else(|_| Err(io::Error::other("a thread ended early")));
            told.map_err(|error| {
                if let Policy::Deadline { .. } = policy {
                    return system("SCHED_DEADLINE for a measuring thread", error, DEADLINE_REMEDY);
                }
                system(
                    "policy or CPU of a measuring thread",
                    error,
                    "fifo and rr need CAP_SYS_NICE or `ulimit -r`, and in a control group with \
                     real-time groups a cpu.rt_runtime_us",
                )
            })?;
        }
        let base = now() + LEAD;
        for begin in &self.begin {
            // A thread that is gone says why when it is joined.
            let _ = begin.send(base);
        }
        Ok(base)
    }

    fn finished(&self) -> bool {
        self.measurers.iter().all(ScopedJoinHandle::is_finished)
            && self.wakers.iter().all(|(_, waker)| waker.is_finished())
    }

    fn join(self) -> Result<Collected, LatencyError> {
        let failed = |error| system("measuring", error, "nothing helps but another --wake");
        let panicked = |_| io::Error::other("a thread panicked");
        let mut threads = Vec::new();
        for measurer in self.measurers {
            threads.push(measurer.join().map_err(panicked).flatten().map_err(failed)?);
        }
        let mut wakers = Vec::new();
        for (thread, (cpu, waker)) in threads.iter_mut().zip(self.wakers) {
            let (withheld, cpu_ns) = waker.join().map_err(panicked).flatten().map_err(failed)?;
            thread.withheld = withheld;
            wakers.push((cpu, cpu_ns));
        }
        Ok((threads, wakers))
    }
}

/// Prepares the calling thread, says so, and waits for the beginning.
fn enter(
    job: &Job<'_>,
    cpu: CpuId,
    slack: Option<Ns>,
    ready: &mpsc::Sender<io::Result<()>>,
    start: &mpsc::Receiver<u64>,
) -> io::Result<u64> {
    // The receiver outlives the threads, or no reader is interested.
    let _ = ready.send(worker::prepare(job.request, cpu, slack));
    start.recv().map_err(|_| io::Error::other("not begun"))
}

#[cfg(test)]
mod tests;
