//! The names of what is measured: `share`, `latency p99`, `throughput`, …

use schedlab_model::Ns;
use schedlab_model::text::nearest;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// One number about a class of tasks, a source, or the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Metric {
    /// Part of the CPU time of one CPU: 0.5 is half a CPU, 2.0 two whole ones.
    Share,
    /// Run-queue latency: from the wakeup to running.
    Latency(Stat),
    /// Waiting after a preemption, until running again.
    Wait(Stat),
    /// Response time: tasks: from the wakeup to blocking again; sources: what the client sees.
    Response(Stat),
    /// Length of uninterrupted runs on a CPU.
    Run(Stat),
    /// Finished activations (tasks) or completed requests (sources) a second.
    Throughput,
    /// Context switches to the task, a second.
    Switches,
    /// Involuntary switches away from the task, a second.
    Preemptions,
    /// Moves to another CPU, a second.
    Migrations,
    /// The machine: part of all CPU time in which CPUs are not idle.
    Utilisation,
    /// The machine: part of all CPU time that is idle while somebody waits who may run there.
    IdleWaiting,
    /// The machine: part of all CPU time that is idle while a cap (or bandwidth limit) keeps work from it.
    IdleCapped,
    /// The machine: the longest uninterrupted time in which a CPU idles while somebody waits who may run there.
    IdleLongest,
    /// The machine: mean time of a decision of the scheduler, from entry to return, where its work has a price.
    Decision,
    /// The machine: the part of it that waits for a lock that all CPUs share.
    DecisionWait,
    /// Agents: from an event in the kernel to the moment in which its message is read.
    Delivery(Stat),
    /// Agents: their time for a commit.
    Commit(Stat),
    /// Agents: from the start of a commit to the switch to the last of its tasks.
    EndToEnd(Stat),
    /// Agents: transactions a second, failed ones included.
    Transactions,
    /// Agents: transactions that failed, a second.
    FailedTransactions,
    /// Agents: messages read, a second.
    Messages,
    /// Agents: their CPU time, as a part of one CPU.
    Agents,
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

/// In what a metric is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A part of one CPU.
    Share,
    /// Nanoseconds.
    Time,
    /// Events a second.
    PerSecond,
}

impl Metric {
    /// In what it is counted.
    pub const fn unit(self) -> Unit {
        match self {
            Metric::Share
            | Metric::Utilisation
            | Metric::IdleWaiting
            | Metric::IdleCapped
            | Metric::Agents => Unit::Share,
            Metric::IdleLongest | Metric::Decision | Metric::DecisionWait => Unit::Time,
            Metric::Latency(_) | Metric::Wait(_) | Metric::Response(_) | Metric::Run(_) => Unit::Time,
            Metric::Delivery(_) | Metric::Commit(_) | Metric::EndToEnd(_) => Unit::Time,
            _ => Unit::PerSecond,
        }
    }

    /// Whether a smaller value is what a user wants; `None` when it depends.
    pub const fn smaller_is_better(self) -> Option<bool> {
        match self {
            Metric::Latency(_) | Metric::Wait(_) | Metric::Response(_) => Some(true),
            Metric::IdleWaiting | Metric::IdleCapped | Metric::IdleLongest => Some(true),
            Metric::Share | Metric::Throughput => Some(false),
            _ => None,
        }
    }

    /// Whether it is about the machine as a whole.
    pub const fn is_of_machine(self) -> bool {
        use Metric::{Decision, DecisionWait, IdleCapped, IdleLongest, IdleWaiting, Utilisation};
        matches!(self, Utilisation | IdleWaiting | IdleCapped | IdleLongest)
            || matches!(self, Decision | DecisionWait)
            || self.is_of_agents()
    }

    /// Whether only a machine with agents has it.
    pub const fn is_of_agents(self) -> bool {
        use Metric::{Agents, Commit, Delivery, EndToEnd, FailedTransactions, Messages, Transactions};
        matches!(
            self,
            Delivery(_) | Commit(_) | EndToEnd(_) | Transactions | FailedTransactions | Messages | Agents
        )
    }

    /// `value` of this metric as people write it: `49.8%`, `1.20ms`, `2830/s`.
    pub fn show(self, value: f64) -> String {
        match self.unit() {
            Unit::Share => format!("{:.1}%", value * 100.0),
            Unit::Time => Ns(value.max(0.0).round() as u64).to_string(),
            Unit::PerSecond if value >= 100.0 => format!("{value:.0}/s"),
            Unit::PerSecond => format!("{value:.1}/s"),
        }
    }
}

/// Why a text is not a metric.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MetricError {
    /// No such name.
    #[error(
        "unknown metric `{0}`{hint}: use share, throughput, switches, preemptions, migrations, \
         for the machine utilisation, idle-waiting, idle-capped, idle-longest, decision, decision-wait, behind agents messages, \
         transactions, failed, agents, delivery, commit or end-to-end followed by p50 and so on, or one of latency, wait, response, run followed by p50, p99, p99.9, mean, min, max or mode, such as \"latency p99\"",
        hint = .1.as_ref().map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default()
    )]
    Unknown(String, Option<String>),
    /// A time metric without a statistic, or with an unknown one.
    #[error("`{0}`: say which number of the distribution: p50, p99, p99.9, mean, min, max or mode")]
    Stat(String),
}

impl FromStr for Metric {
    type Err = MetricError;

    fn from_str(text: &str) -> Result<Metric, MetricError> {
        let (name, stat) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let stat = || stat.trim().parse::<Stat>().map_err(|()| MetricError::Stat(text.to_owned()));
        match name {
            "share" => Ok(Metric::Share),
            "throughput" => Ok(Metric::Throughput),
            "switches" => Ok(Metric::Switches),
            "preemptions" => Ok(Metric::Preemptions),
            "migrations" => Ok(Metric::Migrations),
            "utilisation" => Ok(Metric::Utilisation),
            "idle-waiting" => Ok(Metric::IdleWaiting),
            "idle-capped" => Ok(Metric::IdleCapped),
            "idle-longest" => Ok(Metric::IdleLongest),
            "decision" => Ok(Metric::Decision),
            "decision-wait" => Ok(Metric::DecisionWait),
            "transactions" => Ok(Metric::Transactions),
            "failed" => Ok(Metric::FailedTransactions),
            "messages" => Ok(Metric::Messages),
            "agents" => Ok(Metric::Agents),
            "delivery" => Ok(Metric::Delivery(stat()?)),
            "commit" => Ok(Metric::Commit(stat()?)),
            "end-to-end" => Ok(Metric::EndToEnd(stat()?)),
            "latency" => Ok(Metric::Latency(stat()?)),
            "wait" => Ok(Metric::Wait(stat()?)),
            "response" => Ok(Metric::Response(stat()?)),
            "run" => Ok(Metric::Run(stat()?)),
            _ => {
                let names = [
                    "share",
                    "throughput",
                    "switches",
                    "preemptions",
                    "migrations",
                    "utilisation",
                    "idle-waiting",
                    "idle-capped",
                    "idle-longest",
                    "decision",
                    "decision-wait",
                    "transactions",
                    "failed",
                    "messages",
                    "agents",
                    "delivery",
                    "commit",
                    "end-to-end",
                    "latency",
                    "wait",
                    "response",
                    "run",
                ];
                Err(MetricError::Unknown(name.to_owned(), nearest(name, names.into_iter())))
            }
        }
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
        match self {
            Metric::Share => f.write_str("share"),
            Metric::Throughput => f.write_str("throughput"),
            Metric::Switches => f.write_str("switches"),
            Metric::Preemptions => f.write_str("preemptions"),
            Metric::Migrations => f.write_str("migrations"),
            Metric::Utilisation => f.write_str("utilisation"),
            Metric::IdleWaiting => f.write_str("idle-waiting"),
            Metric::IdleCapped => f.write_str("idle-capped"),
            Metric::IdleLongest => f.write_str("idle-longest"),
            Metric::Decision => f.write_str("decision"),
            Metric::DecisionWait => f.write_str("decision-wait"),
            Metric::Transactions => f.write_str("transactions"),
            Metric::FailedTransactions => f.write_str("failed"),
            Metric::Messages => f.write_str("messages"),
            Metric::Agents => f.write_str("agents"),
            Metric::Delivery(stat) => write!(f, "delivery {stat}"),
            Metric::Commit(stat) => write!(f, "commit {stat}"),
            Metric::EndToEnd(stat) => write!(f, "end-to-end {stat}"),
            Metric::Latency(stat) => write!(f, "latency {stat}"),
            Metric::Wait(stat) => write!(f, "wait {stat}"),
            Metric::Response(stat) => write!(f, "response {stat}"),
            Metric::Run(stat) => write!(f, "run {stat}"),
        }
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Metric, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for text in
            ["share", "latency p99.5", "wait max", "response mean", "run mode", "migrations", "idle-capped"]
        {
            assert_eq!(text.parse::<Metric>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refusals_teach() {
        let text = "latncy p99".parse::<Metric>().unwrap_err().to_string();
        assert!(text.contains("did you mean `latency`"), "{text}");
        for bad in ["latency", "latency p100", "latency p", "run p9x", ""] {
            assert!(bad.parse::<Metric>().is_err(), "{bad}");
        }
    }
}
