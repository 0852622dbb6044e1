//! What is measured: one table, [`METRICS`], from which names, units, headings and documents come.
//! A new metric is one row there, and its value in `measurements.rs`, where the compiler asks for
//! it.

use schedlab_model::Ns;
use schedlab_model::text::nearest;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// One row of [`METRICS`].
#[derive(Clone, Copy, Debug)]
pub struct MetricDef {
    /// Its name on the command line, in scenarios and in JSON. Metrics of a distribution are
    /// followed by a [`Stat`].
    pub name: &'static str,
    /// In what it is counted.
    pub unit: Unit,
    /// What has it.
    pub of: Of,
    /// Which direction a user wants; `None` when it depends.
    pub better: Option<Better>,
    /// Its heading in tables of tasks and of the machine; a [`Stat`] follows where it has one.
    pub heading: &'static str,
    /// The statistics of it that results hold; `[]` for what has no distribution, or is for
    /// expectations and gates only.
    pub reported: &'static [Stat],
    /// Whether results hold it. (A decision's cost has a result of its own.)
    pub in_results: bool,
    /// What it is, in one sentence.
    pub doc: &'static str,
}

/// In what a metric is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A part of one CPU; of the machine, a part of all CPU time.
    Share,
    /// Nanoseconds.
    Time,
    /// Events a second.
    PerSecond,
}

/// What has a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    /// Tasks, and where they have it sources and channels.
    Tasks,
    /// The machine as a whole.
    Machine,
    /// The machine, when the scheduler runs in agents.
    Agents,
}

/// Which direction a user wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Better {
    /// Smaller values.
    Smaller,
    /// Larger values.
    Larger,
}

/// Which number of a distribution.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stat {
    /// Smallest.
    Min,
    /// Arithmetic mean.
    Mean,
    /// Most frequent.
    Mode,
    /// A percentile, in thousandths of a per cent: p99.5 is 99 500.
    Percentile(u32),
    /// Largest.
    Max,
}

const fn p(thousandths: u32) -> Stat {
    Stat::Percentile(thousandths)
}

/// Declares every metric once: the variants of [`Metric`] and the rows of [`METRICS`], in the order
/// of results.
macro_rules! metrics {
    ($($variant:ident $(($stat:ident))? $doc:literal {
        name: $name:literal, unit: $unit:ident, of: $of:ident, better: $better:expr, heading: $heading:literal,
        reported: $reported:expr
        $(, in_results: $in_results:literal)?
    })+) => {
        /// One number about a group of tasks, a source, a channel or the machine.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Metric {
            $(#[doc = $doc] $variant $(($stat))?,)+
        }

        /// Every metric, in the order of results.
        pub const METRICS: &[MetricDef] = &[
            $(MetricDef {
                name: $name,
                unit: Unit::$unit,
                of: Of::$of,
                better: $better,
                heading: $heading,
                reported: &$reported,
                in_results: true $(&& $in_results)?,
                doc: $doc,
            },)+
        ];

        /// Places in [`METRICS`].
        enum MetricIndex { $($variant,)+ }

        impl Metric {
            /// Returns its row of [`METRICS`].
            pub const fn def(self) -> &'static MetricDef {
                match self {
                    $(Metric::$variant { .. } => &METRICS[MetricIndex::$variant as usize],)+
                }
            }

            /// Returns which number of a distribution it is; `None` for metrics without one.
            pub const fn stat(self) -> Option<Stat> {
                match self {
                    $(Metric::$variant { .. } => metrics!(@stat self, $variant $(($stat))?),)+
                }
            }

            /// Returns the metric of this row of [`METRICS`]; `None` when the row wants a statistic
            /// and there is none.
            fn build(row: usize, stat: Option<Stat>) -> Option<Metric> {
                $(if row == MetricIndex::$variant as usize {
                    return metrics!(@build stat, $variant $(($stat))?);
                })+
                None
            }

            /// Returns another number of the same distribution; `None` for metrics without one.
            pub const fn with(self, stat: Stat) -> Option<Metric> {
                match self {
                    $(Metric::$variant { .. } => metrics!(@with stat, $variant $(($stat))?),)+
                }
            }

            /// Whether the metric of this row of [`METRICS`] is one of a distribution.
            fn has_stat(row: usize) -> bool {
                const HAS: &[bool] = &[$(metrics!(@has $(($stat))?),)+];
                HAS.get(row).copied().unwrap_or_default()
            }
        }
    };
    (@stat $metric:expr, $variant:ident) => { None };
    (@stat $metric:expr, $variant:ident ($stat:ident)) => {
        match $metric { Metric::$variant(stat) => Some(stat), _ => None }
    };
    (@with $given:expr, $variant:ident) => { None };
    (@with $given:expr, $variant:ident ($stat:ident)) => { Some(Metric::$variant($given)) };
    (@build $given:expr, $variant:ident) => { Some(Metric::$variant) };
    (@build $given:expr, $variant:ident ($stat:ident)) => { $given.map(Metric::$variant) };
    (@has) => { false };
    (@has ($stat:ident)) => { true };
}

metrics! {
    Share "CPU time as a part of one CPU: 0.5 is half a CPU, 2.0 two whole ones." {
        name: "share", unit: Share, of: Tasks, better: Some(Better::Larger), heading: "CPU share", reported: []
    }
    Throughput "Finished activations (tasks) or completed requests (sources, channels) a second." {
        name: "throughput", unit: PerSecond, of: Tasks, better: Some(Better::Larger), heading: "activations/s", reported: []
    }
    Latency(Stat) "Run-queue latency: from the wakeup, which makes the task runnable, to running, also \
                   while a limit (RT throttling, `cpu.max`, a cap) holds the task back. \
                   What comes before the wakeup is not \
                   in it: the slack and the lateness of a timer, and the interrupt up to the \
                   wakeup. A measured wakeup latency \
                   (cyclictest, `schedlab latency`) counts from the time the task asked for and \
                   includes both." {
        name: "latency", unit: Time, of: Tasks, better: Some(Better::Smaller), heading: "latency",
        reported: [p(50_000), p(99_000), p(99_900), Stat::Max, Stat::Mean]
    }
    QueueLatency(Stat) "The part of `latency` in which no limit (RT throttling, `cpu.max`, a cap) \
                        held the task back." {
        name: "queue-latency", unit: Time, of: Tasks, better: Some(Better::Smaller), heading: "queue latency",
        reported: []
    }
    Wait(Stat) "Wait after a preemption, until running again, without the time in which a limit \
                held the task back." {
        name: "wait", unit: Time, of: Tasks, better: Some(Better::Smaller), heading: "preempted",
        reported: [p(50_000), p(99_000), Stat::Max]
    }
    Response(Stat) "Response time: of tasks from the wakeup to blocking again, of sources what \
                    the client sees." {
        name: "response", unit: Time, of: Tasks, better: Some(Better::Smaller), heading: "response",
        reported: [
            p(50_000), p(90_000), p(95_000), p(99_000), p(99_500), p(99_900), p(99_990), Stat::Max, Stat::Mean
        ]
    }
    Run(Stat) "Length of an uninterrupted run on a CPU." {
        name: "run", unit: Time, of: Tasks, better: None, heading: "run", reported: [p(50_000), Stat::Mode, Stat::Max]
    }
    Switches "Context switches to the task (of the machine: all of them) a second." {
        name: "switches", unit: PerSecond, of: Tasks, better: None, heading: "switches/s", reported: []
    }
    Preemptions "Involuntary switches away from the task a second." {
        name: "preemptions", unit: PerSecond, of: Tasks, better: None, heading: "preemptions/s", reported: []
    }
    Migrations "Moves of the task to another CPU a second." {
        name: "migrations", unit: PerSecond, of: Tasks, better: None, heading: "migrations/s", reported: []
    }
    Throttled "Time for which a limit (`cpu.max`, a pod's CPU limit, RT throttling, a cap) held the tasks \
               back, as a part of it and their CPU time together: 1 % is 1 ms for each 99 ms that \
               they ran. The kernel counts periods instead (nr_throttled of cpu.stat). A recording \
               without a limit says nothing of the error of this: the range is that of the seeds." {
        name: "throttled", unit: Share, of: Tasks, better: Some(Better::Smaller), heading: "throttled", reported: [],
        in_results: false
    }
    Steal "Of the threads that run the virtual CPUs of a KVM guest: time for which they were runnable \
           and waited for a CPU of the host, a limit included, as a part of the time of each virtual \
           CPU. Linux tells the guest of the same time as steal (`/proc/stat`, column 8). Only \
           recordings of a host have it." {
        name: "steal", unit: Share, of: Tasks, better: Some(Better::Smaller), heading: "steal", reported: []
    }
    Utilisation "Part of all CPU time in which CPUs are not idle." {
        name: "utilisation", unit: Share, of: Machine, better: None, heading: "busy", reported: []
    }
    IdleWaiting "Part of all CPU time that is idle while a task waits that may run there." {
        name: "idle-waiting", unit: Share, of: Machine, better: Some(Better::Smaller), heading: "idle, work waits",
        reported: []
    }
    IdleCapped "Part of all CPU time that is idle while a cap (or bandwidth limit) keeps work \
                from it." {
        name: "idle-capped", unit: Share, of: Machine, better: Some(Better::Smaller), heading: "idle, work capped",
        reported: []
    }
    IdleLongest "The longest uninterrupted time in which a CPU idles while a task waits that may \
                 run there." {
        name: "idle-longest", unit: Time, of: Machine, better: Some(Better::Smaller), heading: "idle longest",
        reported: []
    }
    Decision "Mean time of a decision of the scheduler, from entry to return, where its work has \
              a price." {
        name: "decision", unit: Time, of: Machine, better: None, heading: "decision", reported: [], in_results: false
    }
    DecisionWait "The part of a decision's mean time that waits for a lock that all CPUs share." {
        name: "decision-wait", unit: Time, of: Machine, better: None, heading: "decision, lock wait", reported: [],
        in_results: false
    }
    Delivery(Stat) "From an event in the kernel to the moment in which the agent reads its message." {
        name: "delivery", unit: Time, of: Agents, better: None, heading: "delivery", reported: [p(50_000), p(99_000)]
    }
    Commit(Stat) "The agent's time for a commit." {
        name: "commit", unit: Time, of: Agents, better: None, heading: "commit", reported: [p(50_000), p(99_000)]
    }
    EndToEnd(Stat) "From the start of a commit to the switch to the last of its tasks." {
        name: "end-to-end", unit: Time, of: Agents, better: None, heading: "end-to-end",
        reported: [p(50_000), p(99_000), Stat::Max]
    }
    Transactions "Transactions of agents a second, failed ones included." {
        name: "transactions", unit: PerSecond, of: Agents, better: None, heading: "transactions/s", reported: []
    }
    FailedTransactions "Transactions of agents that failed a second." {
        name: "failed", unit: PerSecond, of: Agents, better: None, heading: "failed/s", reported: []
    }
    Messages "Messages that agents read a second." {
        name: "messages", unit: PerSecond, of: Agents, better: None, heading: "messages/s", reported: []
    }
    Agents "CPU time of the agents as a part of one CPU." {
        name: "agents", unit: Share, of: Agents, better: None, heading: "agents' CPU", reported: []
    }
}

impl Metric {
    /// Returns in what it is counted.
    pub const fn unit(self) -> Unit {
        self.def().unit
    }

    /// Returns whether a change by `difference` is what a user wants; `None` when it depends.
    pub fn is_better(self, difference: f64) -> Option<bool> {
        self.def().better.map(|better| match better {
            Better::Smaller => difference < 0.0,
            Better::Larger => difference >= 0.0,
        })
    }

    /// Whether it is about the machine as a whole.
    pub const fn is_of_machine(self) -> bool {
        !matches!(self.def().of, Of::Tasks)
    }

    /// Whether only a machine with agents has it.
    pub const fn is_of_agents(self) -> bool {
        matches!(self.def().of, Of::Agents)
    }

    /// Returns every number that a result holds, in its order.
    pub fn all_reported() -> impl Iterator<Item = Metric> {
        METRICS.iter().enumerate().filter(|(_, def)| def.in_results).flat_map(|(row, def)| {
            let stats: Vec<Option<Stat>> = match Metric::has_stat(row) {
                true => def.reported.iter().copied().map(Some).collect(),
                false => vec![None],
            };
            stats.into_iter().filter_map(move |stat| Metric::build(row, stat))
        })
    }

    /// Returns `value` of this metric as people write it: `49.8%`, `1.20ms`, `2830/s`.
    pub fn show(self, value: f64) -> String {
        match self.unit() {
            Unit::Share => format!("{:.1}%", value * 100.0),
            Unit::Time => Ns(value.max(0.0).round() as u64).to_string(),
            Unit::PerSecond if value >= 100.0 => format!("{value:.0}/s"),
            Unit::PerSecond => format!("{value:.1}/s"),
        }
    }

    /// Returns its heading in tables: `CPU share`, `latency p99`.
    pub fn heading(self) -> String {
        match self.stat() {
            Some(stat) => format!("{} {stat}", self.def().heading),
            None => self.def().heading.to_owned(),
        }
    }
}

/// Why a text is not a metric.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MetricError {
    /// No such name.
    #[error("unknown metric `{0}`{hint}: use {all}", hint = hint(.1), all = all_names())]
    Unknown(String, Option<String>),
    /// A time metric without a statistic, or with an unknown one.
    #[error("`{0}`: say which number of the distribution: p50, p99, p99.9, mean, min, max or mode")]
    Stat(String),
    /// A metric that is one number, with a statistic.
    #[error("`{0}`: {1} is one number, not a distribution: write \"{1}\"")]
    OneNumber(String, &'static str),
}

fn hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

/// Returns what a user may write, by what has it.
fn all_names() -> String {
    let of = |of: Of, stat: bool| {
        let rows = METRICS.iter().enumerate();
        let names = rows.filter(|(row, def)| def.of == of && Metric::has_stat(*row) == stat);
        names.map(|(_, def)| def.name).collect::<Vec<_>>().join(", ")
    };
    format!(
        "{}; for the machine {}; behind agents {}; or one of {}, {} followed by p50, p99, p99.9, \
         mean, min, max or mode, \
         such as \"latency p99\"",
        of(Of::Tasks, false),
        of(Of::Machine, false),
        of(Of::Agents, false),
        of(Of::Tasks, true),
        of(Of::Agents, true)
    )
}

impl FromStr for Metric {
    type Err = MetricError;

    fn from_str(text: &str) -> Result<Metric, MetricError> {
        let (name, stat) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let Some(row) = METRICS.iter().position(|def| def.name == name) else {
            let nearest = nearest(name, METRICS.iter().map(|def| def.name));
            return Err(MetricError::Unknown(name.to_owned(), nearest));
        };
        if !Metric::has_stat(row) && !stat.trim().is_empty() {
            return Err(MetricError::OneNumber(text.to_owned(), METRICS[row].name));
        }
        let stat = stat.trim().parse().ok();
        Metric::build(row, stat).ok_or_else(|| MetricError::Stat(text.to_owned()))
    }
}

impl FromStr for Stat {
    type Err = ();

    fn from_str(text: &str) -> Result<Stat, ()> {
        match text {
            "min" => Ok(Stat::Min),
            "mean" => Ok(Stat::Mean),
            "mode" => Ok(Stat::Mode),
            "max" => Ok(Stat::Max),
            _ => {
                let number = text.strip_prefix('p').ok_or(())?;
                let thousandths =
                    schedlab_model::text::scaled(number, 3).filter(|p| *p < 100_000).ok_or(())?;
                Ok(Stat::Percentile(thousandths as u32))
            }
        }
    }
}

impl fmt::Display for Stat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stat::Min => f.write_str("min"),
            Stat::Mean => f.write_str("mean"),
            Stat::Mode => f.write_str("mode"),
            Stat::Max => f.write_str("max"),
            Stat::Percentile(thousandths) => write!(f, "p{}", f64::from(*thousandths) / 1000.0),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stat() {
            Some(stat) => write!(f, "{} {stat}", self.def().name),
            None => f.write_str(self.def().name),
        }
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Metric {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Metric".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Metric, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for text in [
            "share",
            "latency p99.5",
            "wait max",
            "response mean",
            "run mode",
            "migrations",
            "idle-capped",
        ] {
            assert_eq!(text.parse::<Metric>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn every_row_is_read_and_written_by_its_name() {
        let reported: Vec<Metric> = Metric::all_reported().collect();
        assert_eq!(reported.len(), 41);
        for metric in reported {
            assert_eq!(metric.to_string().parse::<Metric>(), Ok(metric));
        }
        for (row, def) in METRICS.iter().enumerate() {
            let metric = Metric::build(row, Some(Stat::Max)).expect("a statistic is given");
            assert_eq!(metric.def().name, def.name);
            assert_eq!(metric.stat().is_some(), Metric::has_stat(row), "{}", def.name);
            assert!(def.doc.ends_with('.') && !def.heading.is_empty(), "{}", def.name);
            // What has no distribution lists no statistics.
            assert!(Metric::has_stat(row) || def.reported.is_empty(), "{}", def.name);
        }
    }

    #[test]
    fn refusals_teach() {
        let text = "latncy p99".parse::<Metric>().unwrap_err().to_string();
        assert!(text.contains("did you mean `latency`"), "{text}");
        for bad in ["latency", "latency p100", "latency p", "run p9x", "share p99", ""] {
            assert!(bad.parse::<Metric>().is_err(), "{bad}");
        }
    }
}
