//! `latency --matrix`: {idle, loaded} x {other, fifo:49}, measured in turns; and results of several
//! systems in one table.

use super::findings::{Finding, findings};
use super::load::Load;
use super::merge::{Difference, differences};
use super::published::{self, PublishedMaximum};
use super::single::expiries;
use schedlab_measure::stress::{GroupsRequest, StressError, Transport, Workers, run_groups};
use schedlab_measure::{
    LatencyError, LatencyLine, LatencyReport, LatencyRequest, Samples, Wake, latency,
};
use schedlab_model::{CpuId, Ns, Policy};
use schedlab_stats::{OrderInterval, median_interval, turns};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Version of the JSON.
pub const SCHEMA: &str = "schedlab-latency-matrix/1";

/// Pause after the start of a load.
const SETTLE: Duration = Duration::from_millis(1000);

/// A table to be measured.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct MatrixRequest {
    /// One measuring thread on each.
    pub cpus: Vec<CpuId>,
    /// Interval of the first thread.
    pub interval: Ns,
    /// How much longer that of each further one is.
    pub distance: Ns,
    /// How long each row is measured in each round.
    pub each: Ns,
    /// How often every row is measured.
    pub rounds: u32,
    /// Policies of the measuring threads.
    pub policies: Vec<Policy>,
    /// Groups of the load: 20 senders and 20 receivers each, threads, socket pairs, 100 bytes.
    pub groups: usize,
    /// Timer slack; `None`: as inherited.
    pub slack: Option<Ns>,
    /// `/dev/cpu_dma_latency`; `None`: left alone.
    pub dma_latency_us: Option<i32>,
    /// Whether memory is locked.
    pub lock: bool,
    /// Of the order of rows in a round.
    pub seed: u64,
}

/// A machine with its kernel.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct System {
    /// Its name in the table.
    pub name: String,
    /// `uname -rv`.
    pub kernel: String,
    /// Whether that kernel is PREEMPT_RT.
    pub realtime: bool,
    /// Whether a hypervisor is below; `None`: the file does not say.
    pub virtual_machine: Option<bool>,
    /// Whether the CPUs are emulated (QEMU without KVM): times in microseconds are the emulator's,
    /// not the kernel's.
    #[serde(default)]
    pub emulated: bool,
    /// The program that measured.
    pub tool: String,
    /// What its values are.
    #[serde(default)]
    pub quantity: Quantity,
    /// What its file leaves open, and what was assumed.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// What was measured. Only values of the same meaning are compared.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Wakeup latency: from the timer's expiry to the thread that waited for it.
    #[default]
    Wakeup,
    /// From the timer's expiry to its interrupt handler (rtla's IRQ): a part of the former.
    Interrupt,
    /// From the timer's expiry to the return of the thread to user space (rtla's Usr).
    UserReturn,
    /// How long a thread that never sleeps was interrupted (rtla osnoise).
    Noise,
}

impl Quantity {
    /// Returns what a reader of the table has to know beside its numbers.
    pub(super) const fn note(self) -> Option<&'static str> {
        match self {
            Quantity::Wakeup => None,
            Quantity::Interrupt => Some(
                "from the timer's expiry to its interrupt handler, a part of the wakeup latency",
            ),
            Quantity::UserReturn => {
                Some("from the timer's expiry to the thread's return to user space")
            }
            Quantity::Noise => Some(
                "the lengths of single interruptions of a thread that never sleeps (osnoise): no \
                 wakeup latency, and not compared with one",
            ),
        }
    }

    /// Returns whether two quantities can be compared: cyclictest and schedlab measure in user
    /// space, timerlat's own threads in the kernel.
    pub(super) fn compares(self, other: Quantity) -> bool {
        let wakeup = |of| matches!(of, Quantity::Wakeup | Quantity::UserReturn);
        self == other || wakeup(self) && wakeup(other)
    }
}

/// One of several equal runs.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Round {
    /// Its length.
    pub elapsed: Ns,
    /// Every expiry (of cyclictest: every wakeup).
    pub samples: Samples,
    /// One sample for each wakeup, as cyclictest counts; `None`: `samples` are those.
    #[serde(default)]
    pub uncorrected: Option<Samples>,
    /// Expiries that passed while a thread was still late.
    pub missed: u64,
    /// The part of the CPUs' time that the hypervisor took, 0 … 1.
    pub steal: f64,
    /// The part that other programs had, neither measuring threads nor schedlab's load, 0 … 1.
    /// `None`: not known.
    #[serde(default)]
    pub foreign: Option<f64>,
}

/// A row: one load, one policy, on one system.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Cell {
    /// [`System::name`].
    pub system: String,
    /// What else ran.
    pub load: Load,
    /// Policy of the measuring threads.
    pub policy: Policy,
    /// In the order in which they were measured.
    pub rounds: Vec<Round>,
}

/// A result: one system or several.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Matrix {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// What was asked for; `None` in a merged result.
    pub request: Option<MatrixRequest>,
    /// In the order in which they are shown; the first is what others are compared with.
    pub systems: Vec<System>,
    /// All rows.
    pub cells: Vec<Cell>,
    /// Whether it ended early, by a signal (exit code 3).
    pub stopped: bool,
}

/// The JSON of `latency --matrix` and `latency merge`: a result, and what follows from it. Only the
/// result is read again.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct MatrixOutput<'a> {
    /// The result.
    #[serde(flatten)]
    pub matrix: &'a Matrix,
    /// The values of each cell.
    pub rows: Vec<MatrixRow>,
    /// Each cell of a further system against the same cell of the first system; by wakeups where
    /// one of them is cyclictest's.
    pub differences: Vec<Difference>,
    /// Whether the four published findings hold; empty where no row states its load.
    pub findings: Vec<Finding>,
    /// The published maxima.
    #[serde(rename = "article")]
    pub published: Vec<PublishedMaximum>,
    /// Why the numbers may mislead.
    pub doubts: Vec<String>,
}

impl<'a> MatrixOutput<'a> {
    /// Returns a result with what follows from it.
    pub fn new(matrix: &'a Matrix) -> MatrixOutput<'a> {
        MatrixOutput {
            matrix,
            rows: matrix.rows(),
            differences: differences(matrix),
            findings: findings(matrix),
            published: published::MAXIMA.to_vec(),
            doubts: matrix.doubts(),
        }
    }
}

/// The values of a row, nanoseconds.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct MatrixRow {
    /// [`System::name`].
    pub system: String,
    /// What else ran.
    pub load: Load,
    /// Policy.
    pub policy: Policy,
    /// Samples of all rounds.
    pub count: u64,
    /// Rounds.
    pub rounds: usize,
    /// Arithmetic mean, over the rounds.
    pub mean_ns: OrderInterval,
    /// Half were no later, over the rounds.
    pub p50_ns: OrderInterval,
    /// 99 %, over the rounds.
    pub p99_ns: OrderInterval,
    /// 99.9 % of all rounds together; `None`: too few samples.
    pub p999_ns: Option<u64>,
    /// The two samples between which that lies with 95 %, by order statistics; `None` at an end:
    /// too few samples for one.
    pub p999_interval_ns: [Option<u64>; 2],
    /// Largest of a round, over the rounds.
    pub max_ns: OrderInterval,
    /// Largest of all.
    pub worst_ns: u64,
    /// The published maximum for this kind of kernel, load and policy.
    #[serde(rename = "article_max_ns")]
    pub published_max_ns: Option<Ns>,
}

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum MatrixError {
    /// The request is not possible.
    #[error("{0}")]
    Request(String),
    /// Measuring failed.
    #[error(transparent)]
    Latency(#[from] LatencyError),
    /// The load failed.
    #[error("the load: {0}")]
    Load(#[from] StressError),
}

impl System {
    /// Returns the kernel and the program that measured, for a message.
    pub fn described(&self) -> String {
        format!("{} ({})", self.kernel_name(), self.tool)
    }

    /// Returns the kernel, or that it is not known.
    pub fn kernel_name(&self) -> &str {
        if self.kernel.is_empty() { "kernel not stated" } else { &self.kernel }
    }

    /// Returns whether both are one system; notes are of a file.
    pub(super) fn same_as(&self, other: &System) -> bool {
        *self == System { notes: self.notes.clone(), ..other.clone() }
    }

    /// Adds what another file of this system leaves open.
    pub(super) fn add_notes(&mut self, notes: Vec<String>) {
        for note in notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    /// Returns whether the program counts a sample for each wakeup, and not for each expiry.
    pub(super) fn counts_wakeups(&self) -> bool {
        self.tool.starts_with("cyclictest") || self.tool.starts_with("rtla timerlat")
    }
}

impl Cell {
    /// Returns the samples of all rounds together.
    pub fn all(&self) -> Samples {
        let mut all = Samples::default();
        self.rounds.iter().for_each(|round| all.merge(&round.samples));
        all
    }

    /// Returns whether the policy is real-time.
    pub fn fifo(&self) -> bool {
        matches!(self.policy, Policy::Fifo(_) | Policy::Rr(_))
    }

    /// Returns the part of the CPUs that other programs had during an idle row, when that was more
    /// than 5 % (chosen).
    pub fn disturbed(&self) -> Option<f64> {
        let known: Vec<f64> = self.rounds.iter().filter_map(|round| round.foreign).collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        (self.load == Load::Idle && mean > 0.05).then_some(mean)
    }

    fn over_rounds(&self, value: impl Fn(&Samples) -> u64) -> OrderInterval {
        let values = self.rounds.iter().filter(|round| round.samples.count() > 0);
        median_interval(values.map(|round| value(&round.samples) as f64).collect())
            .unwrap_or_default()
    }
}

impl Matrix {
    /// Returns the system of this name.
    pub fn system(&self, name: &str) -> Option<&System> {
        self.systems.iter().find(|system| system.name == name)
    }

    /// Returns the values of every row.
    pub fn rows(&self) -> Vec<MatrixRow> {
        let row = |cell: &Cell| {
            let all = cell.all();
            let realtime = self.system(&cell.system).is_some_and(|system| system.realtime);
            let comparable = cell.fifo() || cell.policy == Policy::Other;
            MatrixRow {
                system: cell.system.clone(),
                load: cell.load,
                policy: cell.policy,
                count: all.count(),
                rounds: cell.rounds.len(),
                mean_ns: cell.over_rounds(Samples::mean),
                p50_ns: cell.over_rounds(|samples| samples.quantile(0.5)),
                p99_ns: cell.over_rounds(|samples| samples.quantile(0.99)),
                p999_ns: (all.count() >= Samples::needed(0.999)).then(|| all.quantile(0.999)),
                p999_interval_ns: all.interval(0.999),
                max_ns: cell.over_rounds(Samples::max),
                worst_ns: all.max(),
                published_max_ns: published::max(realtime, cell.load, cell.fifo())
                    .filter(|_| comparable),
            }
        };
        self.cells.iter().map(row).collect()
    }

    /// Returns why the numbers may mislead.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if self.stopped {
            doubts.push("ended early, by a signal: rows may lack rounds".to_owned());
        }
        for system in &self.systems {
            if system.emulated {
                doubts.push(format!(
                    "{}: its CPUs are emulated (QEMU's TCG). Absolute times mean little, and \
                     nothing beside those of a real \
                     machine; the order of the rows and the causes that `--break` names are the \
                     finding",
                    system.name
                ));
            } else if system.virtual_machine == Some(true) {
                doubts.push(format!(
                    "{}: a virtual machine. Its largest values may come from the hypervisor, \
                     which no measurement inside can tell",
                    system.name
                ));
            }
        }
        for system in &self.systems {
            doubts.extend(system.notes.iter().map(|note| format!("{}: {note}", system.name)));
        }
        for cell in &self.cells {
            let name = format!("{}, {}, {}", cell.system, cell.load.as_str(), cell.policy);
            let steal = cell.rounds.iter().map(|round| round.steal).fold(0.0, f64::max);
            if steal > 0.05 {
                doubts.push(format!(
                    "{name}: {:.0} % of a round was stolen by the hypervisor",
                    steal * 100.0
                ));
            }
            if let Some(part) = cell.disturbed() {
                doubts.push(format!(
                    "{name}: {:.0} % of the CPUs went to other programs",
                    part * 100.0
                ));
            }
            let missed: u64 = cell.rounds.iter().map(|round| round.missed).sum();
            if missed > 0 {
                doubts.push(format!(
                    "{name}: {} passed while a thread was still late; they count here, and do not \
                     in cyclictest",
                    expiries(missed)
                ));
            }
            if cell.rounds.len() < 5 {
                doubts
                    .push(format!("{name}: {} rounds; an interval wants five", cell.rounds.len()));
            }
        }
        doubts
    }
}

/// Is told the runs done, all runs, what is measured now, and the state of the threads.
pub type MatrixProgress<'a> = dyn FnMut(usize, usize, &str, &[LatencyLine]) + 'a;

/// Measures the table.
///
/// # Errors
/// A request that is not possible here; a system that refuses.
pub fn matrix(
    request: &MatrixRequest,
    system: System,
    progress: &mut MatrixProgress<'_>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Matrix, MatrixError> {
    if !(1..=1000).contains(&request.rounds) || request.policies.is_empty() {
        return Err(MatrixError::Request(format!(
            "{} rounds: 1 to 1000 are possible, and 5 give an interval",
            request.rounds
        )));
    }
    let plan: Vec<(Load, Policy)> = [Load::Idle, Load::Loaded]
        .into_iter()
        .flat_map(|load| request.policies.iter().map(move |policy| (load, *policy)))
        .collect();
    for (_, policy) in &plan {
        run(request, *policy).check()?;
    }
    let cell = |&(load, policy): &(Load, Policy)| Cell {
        system: system.name.clone(),
        load,
        policy,
        rounds: Vec::new(),
    };
    let mut cells: Vec<Cell> = plan.iter().map(cell).collect();
    let all = plan.len() * request.rounds as usize;
    let (mut done, mut stopped) = (0, false);
    for order in turns(plan.len(), request.rounds as usize, request.seed) {
        for index in order {
            stopped |= stop();
            if stopped {
                break;
            }
            let (load, policy) = plan[index];
            let what = format!("{}, {policy}", load.as_str());
            let one = run(request, policy);
            let report = match load {
                Load::Loaded => {
                    under_load(request, &one, &mut |lines| progress(done, all, &what, lines), stop)?
                }
                _ => latency(&one, &mut |lines| progress(done, all, &what, lines), stop)?,
            };
            stopped |= report.stopped;
            if !report.stopped {
                let mut round = Round::from_report(&report);
                // Beside schedlab's own load, other programs cannot be told from it.
                round.foreign = round.foreign.filter(|_| load == Load::Idle);
                cells[index].rounds.push(round);
            }
            done += 1;
        }
    }
    let schema = SCHEMA.to_owned();
    Ok(Matrix { schema, request: Some(request.clone()), systems: vec![system], cells, stopped })
}

impl Round {
    /// Returns the samples that cyclictest would have: one for each wakeup.
    pub fn by_wakeup(&self) -> &Samples {
        self.uncorrected.as_ref().unwrap_or(&self.samples)
    }

    /// Returns a round of another program, of which only the samples are known.
    pub fn from_samples(elapsed: Ns, samples: Samples) -> Round {
        Round { elapsed, samples, uncorrected: None, missed: 0, steal: 0.0, foreign: None }
    }

    /// Returns what a table keeps of a report.
    pub fn from_report(report: &LatencyReport) -> Round {
        let cpus = report.cpus.len().max(1) as u64;
        let foreign: u64 = report.cpus.iter().map(|cpu| cpu.foreign_ns).sum();
        let stolen: u64 = report.cpus.iter().map(|cpu| cpu.steal_ns).sum();
        let mut uncorrected = Samples::default();
        report.threads.iter().for_each(|thread| uncorrected.merge(&thread.uncorrected));
        Round {
            elapsed: report.elapsed,
            samples: report.all(),
            uncorrected: Some(uncorrected),
            missed: report.threads.iter().map(|thread| thread.missed).sum(),
            steal: stolen as f64 / (report.elapsed.0.max(1) * cpus) as f64,
            foreign: Some(foreign as f64 / (report.elapsed.0.max(1) * cpus) as f64),
        }
    }
}

fn run(request: &MatrixRequest, policy: Policy) -> LatencyRequest {
    LatencyRequest {
        cpus: request.cpus.clone(),
        policy,
        wake: Wake::Clock,
        interval: request.interval,
        distance: request.distance,
        duration: Some(request.each),
        loops: None,
        slack: request.slack,
        dma_latency_us: request.dma_latency_us,
        lock: request.lock,
        aligned: false,
        break_above: None,
    }
}

/// Measures while groups of threads send to each other. The groups have ended when it returns.
fn under_load(
    request: &MatrixRequest,
    one: &LatencyRequest,
    progress: &mut dyn FnMut(&[LatencyLine]),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<LatencyReport, MatrixError> {
    // Threads and not processes: this process has several threads and must not fork.
    let groups = GroupsRequest {
        groups: request.groups,
        fds: 20,
        messages: 1_000_000_000,
        size: 100,
        transport: Transport::Socket,
        workers: Workers::Thread,
    };
    let enough = AtomicBool::new(false);
    thread::scope(|scope| {
        let load =
            scope.spawn(|| run_groups(&groups, &|| enough.load(Ordering::Relaxed) || stop()));
        thread::sleep(SETTLE);
        let early = load.is_finished();
        let report = match early {
            true => None,
            false => Some(latency(one, progress, stop)),
        };
        let gone = report.is_some() && load.is_finished();
        enough.store(true, Ordering::Relaxed);
        let ended = load
            .join()
            .unwrap_or_else(|_| Err(StressError::Request("its thread panicked".to_owned())));
        thread::sleep(SETTLE / 4);
        ended?;
        let ended_early =
            || MatrixError::Request("the load ended by itself: measure again".to_owned());
        let report = report.ok_or_else(ended_early)??;
        if gone && !report.stopped { Err(ended_early()) } else { Ok(report) }
    })
}
