//! Expectations: what a scenario says about its own outcome. They run as tests.

mod read;

use crate::metric::{Metric, Unit};
pub(super) use read::read;
use schedlab_model::Ns;
use schedlab_model::text::glob;
use schedlab_model::text::scaled;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One `[[expect]]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Expectation {
    /// What is looked at.
    pub metric: Metric,
    /// Task name (or glob) or class; `None`: see `source`.
    pub task: Option<String>,
    /// Source name (or glob).
    pub source: Option<String>,
    /// Channel name (or glob): requests that were finished with `done` or `serve`.
    pub channel: Option<String>,
    /// About all CPUs together.
    #[serde(default)]
    pub machine: bool,
    /// Scheduler as written in the table, or a glob; `None` = every one.
    pub scheduler: Option<String>,
    /// Variant, or a glob; `None` = every one.
    pub variant: Option<String>,
    /// Divide by the same metric of this variant.
    pub over: Option<String>,
    /// That variant's row under this scheduler, not under the row's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_scheduler: Option<String>,
    /// What it must be.
    pub bound: Bound,
    /// As written, for messages.
    pub is: String,
    /// Why, in the words of the scenario.
    pub because: Option<String>,
    /// What was published (or measured with the real thing) for this, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
    /// Why it differs from that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
    /// Where that was published, and what it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publication: Option<Publication>,
    /// Only on a machine with so many CPUs: one of the numbers of `[sweep]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<usize>,
    /// Line in the file.
    pub line: usize,
}

/// Which published figure an expectation is about.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Publication {
    /// Its source, as `published/sources.toml` names it; `None`: the scenario does not say.
    pub source: Option<String>,
    /// What it is in that source: `Table 1: 2.4, 8 CPUs`.
    pub figure: Option<String>,
    /// An input of the scenario was fitted to it, or taken from it: it is no evidence.
    pub fitted: bool,
    /// Why the simulated figure differs, as one of a few kinds.
    pub cause: Option<Cause>,
}

/// Why a simulated figure is not the published one.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A maximum or another figure of one run, which chance decides.
    OneRun,
    /// A condition that the source does not state.
    Unstated,
    /// The prices of the source's machine, which the scenario does not have.
    Prices,
    /// Something that ran there and that the model leaves out.
    NotModelled,
    /// The source's figure contradicts others of the same source, or the rules of the scheduler it
    /// names.
    Contradiction,
}

impl Cause {
    /// Every cause, in the order in which they are named.
    pub const ALL: [Cause; 5] =
        [Cause::OneRun, Cause::Unstated, Cause::Prices, Cause::NotModelled, Cause::Contradiction];

    /// The word in a scenario.
    pub const fn word(self) -> &'static str {
        match self {
            Cause::OneRun => "one-run",
            Cause::Unstated => "unstated",
            Cause::Prices => "prices",
            Cause::NotModelled => "not-modelled",
            Cause::Contradiction => "contradiction",
        }
    }

    /// The word for people.
    pub const fn title(self) -> &'static str {
        match self {
            Cause::OneRun => "one run",
            Cause::Unstated => "condition not stated",
            Cause::Prices => "prices of the machine",
            Cause::NotModelled => "not modelled",
            Cause::Contradiction => "contradiction in the source",
        }
    }

    /// What it means, after a number of figures.
    pub const fn says(self) -> &'static str {
        match self {
            Cause::OneRun => "were published from one run, as chance had it",
            Cause::Unstated => "depend on a condition that the source does not state",
            Cause::Prices => "depend on prices of the source's machine that are not known",
            Cause::NotModelled => "come from something that the model leaves out",
            Cause::Contradiction => {
                "contradict the source's other figures or the scheduler's own rules"
            }
        }
    }
}

impl Expectation {
    /// Whether it speaks about a machine of so many CPUs.
    pub fn is_for(&self, cpus: usize) -> bool {
        self.cpus.is_none_or(|only| only == cpus)
    }

    /// Whether it speaks about this cell of the table.
    pub fn covers(&self, scheduler: &str, variant: &str) -> bool {
        let matches =
            |pattern: &Option<String>, name: &str| pattern.as_ref().is_none_or(|p| glob(p, name));
        matches(&self.scheduler, scheduler) && matches(&self.variant, variant)
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = [&self.task, &self.source, &self.channel].into_iter().flatten().next();
        let of = of.map_or("the machine", String::as_str);
        write!(f, "{} of {of}", self.metric)?;
        if let Some(over) = &self.over {
            write!(f, " over {over}")?;
        }
        write!(f, " is {}", self.is)
    }
}

/// An interval of allowed values, in the metric's unit (times in nanoseconds).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Bound {
    /// Smallest allowed.
    pub low: Option<f64>,
    /// Whether `low` itself is allowed.
    pub low_included: bool,
    /// Largest allowed.
    pub high: Option<f64>,
    /// Whether `high` itself is allowed.
    pub high_included: bool,
}

impl Bound {
    /// Whether `value` is inside.
    pub fn holds(&self, value: f64) -> bool {
        let above = self.low.is_none_or(|low| value > low || self.low_included && value == low);
        let below =
            self.high.is_none_or(|high| value < high || self.high_included && value == high);
        above && below
    }

    fn between(low: f64, high: f64) -> Bound {
        Bound { low: Some(low), low_included: true, high: Some(high), high_included: true }
    }
}

/// How much a plain value such as `"4ms"` may differ: a histogram's bucket is 0.8 % wide.
pub const PLAIN_TOLERANCE: f64 = 0.01;

/// Reads `"0.5 ± 0.005"`, `"0.44 ± 15%"`, `"4ms"`, `"1ms..2ms"`, `"< 50us"`, `">= 30"`.
/// `ratio`: the value is a quotient of two of the metric, hence a plain number.
fn parse_bound(text: &str, metric: Metric, ratio: bool) -> Result<Bound, String> {
    let text = text.trim();
    let value = |part: &str| number(part.trim(), metric, ratio);
    for (sign, included) in [("<=", true), ("≤", true), ("<", false)] {
        if let Some(rest) = text.strip_prefix(sign) {
            let high = Some(value(rest)?);
            return Ok(Bound { low: None, low_included: false, high, high_included: included });
        }
    }
    for (sign, included) in [(">=", true), ("≥", true), (">", false)] {
        if let Some(rest) = text.strip_prefix(sign) {
            let low = Some(value(rest)?);
            return Ok(Bound { low, low_included: included, high: None, high_included: false });
        }
    }
    if let Some((low, high)) = text.split_once("..") {
        let (low, high) = (value(low)?, value(high)?);
        if low > high {
            return Err(format!("`{text}`: the first end must not be larger than the second"));
        }
        return Ok(Bound::between(low, high));
    }
    let (middle, tolerance) = match text.split_once('±').or_else(|| text.split_once("+-")) {
        None => (value(text)?, None),
        Some((middle, tolerance)) => (value(middle)?, Some(tolerance.trim())),
    };
    let tolerance = match tolerance {
        None => middle * PLAIN_TOLERANCE,
        Some(part) => match part.strip_suffix('%') {
            Some(percent) => middle * number(percent.trim(), Metric::Throughput, true)? / 100.0,
            None => value(part)?,
        },
    };
    Ok(Bound::between(middle - tolerance, middle + tolerance))
}

fn number(text: &str, metric: Metric, ratio: bool) -> Result<f64, String> {
    const FORMS: &str = "write \"VALUE ± TOLERANCE\", \"LOW..HIGH\", \"< VALUE\" or \"> VALUE\"";
    if metric.unit() == Unit::Time && !ratio {
        let time: Result<Ns, _> = text.parse();
        return time
            .map(|ns| ns.0 as f64)
            .map_err(|error| format!("{error}; {FORMS}, such as \"4ms ± 5%\""));
    }
    let plain = text.strip_suffix("/s").unwrap_or(text).replace('_', "");
    match scaled(&plain, 9) {
        Some(value) => Ok(value as f64 / 1e9),
        None if metric == Metric::Share && text.ends_with('%') => {
            Err(format!("`{text}`: a share is a part of one CPU: write 0.5 for half a CPU"))
        }
        None => Err(format!("`{text}` is not a number; {FORMS}, such as \"0.5 ± 0.005\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(text: &str, metric: &str) -> Result<Bound, String> {
        parse_bound(text, metric.parse().unwrap(), false)
    }

    #[test]
    fn reads_every_form() {
        assert!(bound("0.5 ± 0.005", "share").unwrap().holds(0.504));
        assert!(!bound("0.5 ± 0.005", "share").unwrap().holds(0.506));
        assert!(bound("4ms ± 5%", "run mode").unwrap().holds(3_900_000.0));
        assert!(bound("4ms", "run mode").unwrap().holds(4_001_000.0));
        assert!(!bound("4ms", "run mode").unwrap().holds(4_150_000.0));
        assert!(!bound("< 0.01", "share").unwrap().holds(0.01));
        assert!(bound("<= 0.01", "share").unwrap().holds(0.01));
        assert!(bound("1_000..2_000", "throughput").unwrap().holds(2000.0));
        assert!(
            parse_bound(">= 30", Metric::Latency(crate::metric::Stat::Max), true)
                .unwrap()
                .holds(30.0)
        );
    }

    #[test]
    fn refusals_teach() {
        assert!(bound("4", "run mode").unwrap_err().contains("unit"));
        assert!(bound("50%", "share").unwrap_err().contains("0.5 for half"));
        assert!(bound("many", "throughput").unwrap_err().contains("VALUE ± TOLERANCE"));
        assert!(bound("2..1", "share").unwrap_err().contains("must not be larger"));
    }
}
