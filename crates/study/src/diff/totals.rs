//! Two texts with the kernel's sums by CPU (`/proc/schedstat`, `perf sched stats report`): for
//! machines where recording events costs too much.

use crate::StudyError;
use crate::result::Verdict;
use schedlab_model::Ns;
use schedlab_trace::schedstat::{Holds, SchedStat, Sums};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Value of [`Totals::schema`].
pub const SCHEMA: &str = "schedlab-totals/1";

/// The largest text that is read: 512 CPUs with six domains each have a tenth of it.
const TEXT_MAX: u64 = 16 << 20;

/// The result. Times are sums over the tasks of a CPU.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Totals {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The first file.
    pub before: String,
    /// The second file.
    pub after: String,
    /// What it comes to.
    pub verdict: Verdict,
    /// Frequency of the tick, which makes seconds out of jiffies; missing where it was not given.
    pub hz: Option<u32>,
    /// One entry: what was between two states of `/proc/schedstat`. Two: the intervals of two
    /// reports of `perf sched stats`.
    pub intervals: Vec<Interval>,
    /// What a reader must know to judge the numbers.
    pub notes: Vec<String>,
}

/// The sums of an interval.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Interval {
    /// `between`, `before` or `after`.
    pub name: String,
    /// Its length in jiffies.
    pub jiffies: u64,
    /// All CPUs together, then each.
    pub rows: Vec<TotalsRow>,
}

/// A CPU, or all of them together.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct TotalsRow {
    /// Its number; missing for all together.
    pub cpu: Option<u32>,
    /// Time that tasks ran, ns.
    pub run_ns: u64,
    /// Time that tasks waited to run, ns.
    pub wait_ns: u64,
    /// How often a task began to run.
    pub turns: u64,
    /// Mean wait before a turn, ns; missing where there was none.
    pub wait_mean_ns: Option<u64>,
    /// Mean run of a turn, ns; missing where there was none.
    pub run_mean_ns: Option<u64>,
    /// Share of a CPU that tasks ran; missing without `hz`.
    pub share: Option<f64>,
    /// Calls of `schedule`.
    pub schedules: u64,
    /// Those that left the CPU idle.
    pub left_idle: u64,
    /// Wakeups.
    pub wakeups: u64,
    /// Those of tasks that the CPU itself woke for itself.
    pub local_wakeups: u64,
}

impl TotalsRow {
    fn new(cpu: Option<u32>, sums: &Sums, seconds: Option<f64>) -> TotalsRow {
        TotalsRow {
            cpu,
            run_ns: sums.run_ns,
            wait_ns: sums.wait_ns,
            turns: sums.turns,
            wait_mean_ns: sums.wait_ns.checked_div(sums.turns),
            run_mean_ns: sums.run_ns.checked_div(sums.turns),
            share: seconds.map(|seconds| sums.run_ns as f64 / 1e9 / seconds),
            schedules: sums.schedules,
            left_idle: sums.left_idle,
            wakeups: sums.wakeups,
            local_wakeups: sums.local_wakeups,
        }
    }

    /// In words.
    pub fn name(&self) -> String {
        self.cpu.map_or_else(|| "all CPUs".to_owned(), |cpu| format!("CPU {cpu}"))
    }
}

/// Whether a file holds such sums, by its beginning.
pub fn is_totals(path: &Path) -> bool {
    use std::io::Read as _;
    let mut head = Vec::new();
    path.is_file()
        && std::fs::File::open(path)
            .and_then(|file| file.take(64 << 10).read_to_end(&mut head))
            .is_ok_and(|_| SchedStat::is(&head))
}

/// Lays two of them beside each other: `before` is the earlier one.
///
/// # Errors
/// One of them is something else, cannot be read, or is not of the same boot; `hz` makes more of an
/// interval than its CPUs can run.
pub fn totals(before: &Path, after: &Path, hz: Option<u32>) -> Result<Totals, StudyError> {
    let (one, two) = (open(before)?, open(after)?);
    let both = |error: String| {
        StudyError::Option(format!("{} and {}: {error}", before.display(), after.display()))
    };
    let intervals = match (one.holds, two.holds) {
        (Holds::SinceStart, Holds::SinceStart) => {
            let between = two.since(&one).map_err(|error| both(error.to_string()))?;
            if between.jiffies == 0 {
                let why = "no time is between the two (equal timestamps): make the second later";
                return Err(both(why.to_owned()));
            }
            vec![("between", between)]
        }
        (Holds::Interval, Holds::Interval) => vec![("before", one.clone()), ("after", two.clone())],
        _ => {
            let why = "one is a state of /proc/schedstat and one a report of `perf sched stats`: \
                       give two of the same";
            return Err(both(why.to_owned()));
        }
    };
    let intervals: Vec<Interval> =
        intervals.into_iter().map(|(name, stat)| interval(name, &stat, hz)).collect();
    if let Some(row) = intervals.iter().flat_map(|of| &of.rows).find(|row| {
        // Sums are taken some microseconds apart, CPU by CPU.
        row.cpu.is_some() && row.share.is_some_and(|share| share > 1.01)
    }) {
        return Err(both(format!(
            "--hz {}: {} would have run {:.2} times as long as the interval was; take CONFIG_HZ of \
             that kernel (`getconf CLK_TCK` is another number)",
            hz.unwrap_or_default(),
            row.name(),
            row.share.unwrap_or_default()
        )));
    }
    let lost = one.cpus.keys().filter(|cpu| !two.cpus.contains_key(cpu)).count()
        + two.cpus.keys().filter(|cpu| !one.cpus.contains_key(cpu)).count();
    let mut notes = Vec::new();
    if lost > 0 {
        notes.push(format!("{lost} CPUs are in one of the two only (offline in the other)"));
    }
    if hz.is_none() {
        notes.push(
            "The texts count time in jiffies: --hz 250 (CONFIG_HZ of that kernel) gives shares"
                .to_owned(),
        );
    }
    Ok(Totals {
        schema: SCHEMA.to_owned(),
        before: before.display().to_string(),
        after: after.display().to_string(),
        verdict: verdict(&intervals),
        hz,
        intervals,
        notes,
    })
}

fn open(path: &Path) -> Result<SchedStat, StudyError> {
    let fail = |what: String| StudyError::Option(format!("{}: {what}", path.display()));
    let bytes = schedlab_files::read(path, TEXT_MAX).map_err(|error| fail(error.to_string()))?;
    if !SchedStat::is(&bytes) {
        return Err(fail(
            "it is neither /proc/schedstat nor a report of `perf sched stats`, as the other one \
             is: give two of the same"
                .to_owned(),
        ));
    }
    SchedStat::read(&String::from_utf8_lossy(&bytes)).map_err(|error| fail(error.to_string()))
}

fn interval(name: &str, stat: &SchedStat, hz: Option<u32>) -> Interval {
    let seconds = hz.map(|hz| stat.jiffies.max(1) as f64 / f64::from(hz));
    let all = TotalsRow::new(None, &stat.machine(), seconds);
    let each = stat.cpus.iter().map(|(cpu, sums)| TotalsRow::new(Some(*cpu), sums, seconds));
    Interval {
        name: name.to_owned(),
        jiffies: stat.jiffies,
        rows: std::iter::once(all).chain(each).collect(),
    }
}

fn verdict(intervals: &[Interval]) -> Verdict {
    let wait = |interval: &Interval| interval.rows.first().and_then(|row| row.wait_mean_ns);
    let show = |ns: Option<u64>| ns.map_or_else(|| "nothing".to_owned(), |ns| Ns(ns).to_string());
    let outcome = match intervals {
        [between] => {
            let all = &between.rows[0];
            let worst = between.rows[1..].iter().max_by_key(|row| row.wait_mean_ns);
            let worst = worst.filter(|_| between.rows.len() > 2).map_or_else(String::new, |row| {
                format!(", most on {} ({})", row.name(), show(row.wait_mean_ns))
            });
            format!(
                "Tasks waited {} on average before each of their {} turns on a CPU{worst}; they \
                 waited {} and ran {} in all.",
                show(wait(between)),
                all.turns,
                Ns(all.wait_ns),
                Ns(all.run_ns)
            )
        }
        [before, after] => {
            let change = match (wait(before), wait(after)) {
                (Some(was), Some(is)) if was > 0 => {
                    format!(" ({:+.0} %)", (is as f64 / was as f64 - 1.0) * 100.0)
                }
                _ => String::new(),
            };
            format!(
                "Tasks waited {} on average before a turn on a CPU, and then {}{change}.",
                show(wait(before)),
                show(wait(after))
            )
        }
        _ => String::new(),
    };
    let certainty = "These are sums of each CPU over the whole time: they have no percentile, no \
                     task and no cause, and how much two such intervals differ by chance is not \
                     known. A recording tells (`schedlab record`), and `schedlab diff` of two \
                     folders of them."
        .to_owned();
    Verdict { outcome, certainty, row: None, beside: Vec::new() }
}
