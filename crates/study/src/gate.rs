//! Gates: `redis-server latency p99 > +20%`. One grammar for `diff --fail-if`, `compare --fail-if`,
//! and commands that have a goal. `docs/exchange-formats.md` has the grammar with examples.

use crate::metric::{Metric, Stat, Unit};
use schedlab_model::Ns;
use schedlab_model::text::glob;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A condition on one number.
#[derive(Clone, PartialEq, Debug)]
pub struct Gate {
    /// Name, glob or cgroup path of the tasks that it is about; `None`: what the command measures.
    pub subject: Option<String>,
    /// What is looked at.
    pub metric: Metric,
    /// How it is compared.
    pub op: Op,
    /// With what.
    pub bound: Bound,
    /// What changes are against.
    pub against: Against,
    text: String,
}

/// What a change is against.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Against {
    /// The state before, or the baseline.
    #[default]
    Before,
    /// The same without the others: `alone`. For commands that can take the others away.
    Alone,
}

/// A comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// `>`
    Above,
    /// `>=`
    AtLeast,
    /// `<`
    Below,
    /// `<=`
    AtMost,
}

/// The right side of a gate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bound {
    /// The value itself, in the metric's unit (shares as a part of one CPU, times in nanoseconds).
    Value(f64),
    /// The change against before, in the metric's unit.
    Change(f64),
    /// The change against before as a part of the value before: 0.2 is 20 % more.
    Ratio(f64),
}

/// Why a text is not a gate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{text}': {what}; write SUBJECT METRIC OP VALUE, such as 'redis-server latency p99 > +20%' \
     or \
         'sysbench share < 50%' (OP: > >= < <=; a sign before the value means the change)"
)]
pub struct GateError {
    text: String,
    what: String,
}

impl GateError {
    /// What is wrong, without how gates are written.
    pub fn what(&self) -> &str {
        &self.what
    }
}

/// What is known about the number that a gate speaks of.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Evidence<'a> {
    /// Before the change, or the baseline.
    pub before: Option<f64>,
    /// Now.
    pub after: Option<f64>,
    /// Whether the change is larger than chance.
    pub told_apart: bool,
    /// Why the number cannot carry a judgement (too few samples, a missing capability).
    pub lacks: Option<&'a str>,
}

/// What came of a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateOutcome {
    /// The condition is not met.
    Not,
    /// It is met.
    Met,
    /// The data cannot say.
    CannotSay,
}

impl Op {
    /// Whether `value OP bound` is true.
    pub fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Op::Above => value > bound,
            Op::AtLeast => value >= bound,
            Op::Below => value < bound,
            Op::AtMost => value <= bound,
        }
    }
}

impl Gate {
    /// Parses a gate that names its subject and metric.
    ///
    /// # Errors
    /// What is wrong with the text and how it is written.
    pub fn parse(text: &str) -> Result<Gate, GateError> {
        let gate = Gate::parse_with(text, None)?;
        let fault = match (&gate.subject, gate.against) {
            (None, _) => "it names no task or cgroup",
            (_, Against::Alone) => "`alone` is for goals of `schedlab colocate`, which measures it",
            _ => return Ok(gate),
        };
        Err(GateError { text: text.to_owned(), what: fault.to_owned() })
    }

    /// Parses a gate of a command that measures one thing: the subject may be missing, and a
    /// percentile alone is one of `default` (a metric's name such as `latency`).
    ///
    /// # Errors
    /// As [`parse`](Gate::parse).
    pub fn parse_with(text: &str, default: Option<&str>) -> Result<Gate, GateError> {
        let fail = |what: String| GateError { text: text.to_owned(), what };
        let at =
            text.rfind(['<', '>']).ok_or_else(|| fail("it has no <, <=, > or >=".to_owned()))?;
        let right = &text[at + 1..];
        let (or_equal, right) = match right.strip_prefix('=') {
            Some(rest) => (true, rest),
            None => (false, right),
        };
        let op = match (text.as_bytes()[at], or_equal) {
            (b'>', false) => Op::Above,
            (b'>', true) => Op::AtLeast,
            (_, false) => Op::Below,
            (_, true) => Op::AtMost,
        };
        let (subject, metric) = left(&text[..at], default).map_err(fail)?;
        let (against, bound) = match alone(right.trim()) {
            Some(rest) => (Against::Alone, change(rest, metric).map_err(fail)?),
            None => (Against::Before, bound(right.trim(), metric).map_err(fail)?),
        };
        Ok(Gate { subject, metric, op, bound, against, text: text.trim().to_owned() })
    }

    /// How far a value is from what it is against, in the unit of the bound, and the bound. `None`:
    /// the bound is a value, or there is nothing to compare with.
    pub fn distance(&self, value: f64, against: f64) -> Option<(f64, f64)> {
        match self.bound {
            Bound::Value(_) => None,
            Bound::Change(bound) => Some((value - against, bound)),
            Bound::Ratio(bound) => (against > 0.0).then(|| (value / against - 1.0, bound)),
        }
    }

    /// Whether it speaks about the subject of this name.
    pub fn covers(&self, name: &str) -> bool {
        self.subject.as_ref().is_none_or(|pattern| glob(pattern, name))
    }

    /// Whether the condition is met. A change counts only when it is larger than chance.
    pub fn judge(&self, evidence: &Evidence<'_>) -> GateOutcome {
        let (Some(after), None) = (evidence.after, evidence.lacks) else {
            return GateOutcome::CannotSay;
        };
        if let Bound::Value(bound) = self.bound {
            return if self.op.holds(after, bound) { GateOutcome::Met } else { GateOutcome::Not };
        }
        let Some(value) = evidence.before.and_then(|before| self.distance(after, before)) else {
            return GateOutcome::CannotSay;
        };
        match (self.op.holds(value.0, value.1), evidence.told_apart) {
            (false, _) => GateOutcome::Not,
            (true, true) => GateOutcome::Met,
            (true, false) => GateOutcome::CannotSay,
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `SUBJECT METRIC [STAT]`; the subject may hold blanks.
fn left(text: &str, default: Option<&str>) -> Result<(Option<String>, Metric), String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let subject = |words: &[&str]| {
        let name = words.join(" ");
        let name = name.trim_matches(['"', '\'']);
        (!name.is_empty()).then(|| name.to_owned())
    };
    let [rest @ .., last] = &words[..] else {
        return Err("there is nothing before the comparison".to_owned());
    };
    if last.parse::<Stat>().is_ok() {
        if let [more @ .., name] = rest
            && let Ok(metric) = format!("{name} {last}").parse::<Metric>()
        {
            return Ok((subject(more), metric));
        }
        if let Some(name) = default {
            let metric =
                format!("{name} {last}").parse::<Metric>().map_err(|error| error.to_string())?;
            return Ok((subject(rest), metric));
        }
        let name = rest.last().copied().unwrap_or_default();
        return Err(match format!("{name} {last}").parse::<Metric>() {
            Err(error) => error.to_string(),
            Ok(_) => "the metric is not understood".to_owned(),
        });
    }
    let metric = last.parse::<Metric>().map_err(|error| error.to_string())?;
    Ok((subject(rest), metric))
}

/// What follows `alone`; `None`: it does not begin so.
fn alone(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("alone")?;
    rest.chars().next().is_none_or(|next| !next.is_alphanumeric()).then(|| rest.trim())
}

/// What follows a reference: nothing, or a change with its sign.
fn change(text: &str, metric: Metric) -> Result<Bound, String> {
    match text.as_bytes().first() {
        None => Ok(Bound::Ratio(0.0)),
        Some(b'+' | b'-') => bound(text, metric),
        _ => Err(format!(
            "`alone {text}`: write `alone`, or a change with its sign such as `alone + 10%`"
        )),
    }
}

fn bound(text: &str, metric: Metric) -> Result<Bound, String> {
    if text.starts_with(char::is_alphabetic) {
        return Err(format!(
            "`{text}` is not a number or a time; the one word there is `alone`, in goals of \
             `schedlab colocate`: \
             'p99 < alone + 10%'"
        ));
    }
    let (sign, rest) = match text.as_bytes().first() {
        Some(b'+') => (Some(1.0), &text[1..]),
        Some(b'-') => (Some(-1.0), &text[1..]),
        _ => (None, text),
    };
    let rest = rest.trim();
    let number = |text: &str| {
        let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let value = text.parse::<f64>().ok().filter(|value| plain && value.is_finite());
        value.ok_or_else(|| format!("`{text}` is not a number"))
    };
    if let Some(percent) = rest.strip_suffix('%') {
        let part = number(percent.trim())? / 100.0;
        return match (sign, metric.unit()) {
            (Some(sign), _) => Ok(Bound::Ratio(sign * part)),
            (None, Unit::Share) => Ok(Bound::Value(part)),
            (None, _) => Err(format!("`{rest}` of what? `+{rest}` is a change against before")),
        };
    }
    if let Some(times) = rest.strip_suffix('x') {
        return match sign {
            None => Ok(Bound::Ratio(number(times.trim())? - 1.0)),
            Some(_) => Err(format!("`{text}`: write `{rest}` without a sign")),
        };
    }
    let value = match metric.unit() {
        Unit::Time => {
            let ns = rest.replace(' ', "").parse::<Ns>();
            ns.map_err(|_| format!("`{rest}` is not a time such as 200us or 1.5ms"))?.0 as f64
        }
        Unit::PerSecond => number(rest.strip_suffix("/s").unwrap_or(rest).trim())?,
        Unit::Share => number(rest)?,
    };
    Ok(sign.map_or(Bound::Value(value), |sign| Bound::Change(sign * value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const P99: Metric = Metric::Latency(Stat::Percentile(99_000));

    fn parts(text: &str) -> (Option<String>, Metric, Op, Bound) {
        let Gate { subject, metric, op, bound, .. } =
            Gate::parse_with(text, Some("latency")).unwrap();
        (subject, metric, op, bound)
    }

    #[test]
    fn the_forms() {
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(
            parts("redis-server latency p99 > +20%"),
            (some("redis-server"), P99, Op::Above, Bound::Ratio(0.2))
        );
        assert_eq!(
            parts("'Web Content' latency p99>=1ms"),
            (some("Web Content"), P99, Op::AtLeast, Bound::Value(1e6))
        );
        assert_eq!(
            parts("/batch share < 50%"),
            (some("/batch"), Metric::Share, Op::Below, Bound::Value(0.5))
        );
        assert_eq!(
            parts("a throughput < -5%"),
            (some("a"), Metric::Throughput, Op::Below, Bound::Ratio(-0.05))
        );
        assert_eq!(parts("a latency p99 > +100us").3, Bound::Change(1e5));
        assert_eq!(parts("a latency p99 > 1.5x").3, Bound::Ratio(0.5));
        assert_eq!(parts("a switches <= 300/s").3, Bound::Value(300.0));
        assert_eq!(parts("p99 > 200us"), (None, P99, Op::Above, Bound::Value(2e5)));
    }

    #[test]
    fn alone_is_a_reference_with_a_change() {
        let gate = |text: &str| Gate::parse_with(text, Some("latency")).unwrap();
        for (text, bound) in [
            ("client response p99 < alone + 10%", Bound::Ratio(0.1)),
            ("p99<alone+10%", Bound::Ratio(0.1)),
            ("a throughput >= alone - 5%", Bound::Ratio(-0.05)),
            ("p99 < alone + 50us", Bound::Change(5e4)),
            ("p99 <= alone", Bound::Ratio(0.0)),
        ] {
            assert_eq!((gate(text).against, gate(text).bound), (Against::Alone, bound), "{text}");
        }
        assert_eq!(gate("p99 < +10%").against, Against::Before);
        let near = gate("p99 < alone + 10%").distance(105.0, 100.0).unwrap();
        assert!((near.0 - 0.05).abs() < 1e-9 && near.1 == 0.1);
        for (text, expected) in [
            ("p99 < alone 10%", "with its sign"),
            ("p99 < alone + 1.5x", "without a sign"),
            ("p99 < alonely", "not a number or a time"),
            ("p99 < alne + 10%", "'p99 < alone + 10%'"),
        ] {
            let error = Gate::parse_with(text, Some("latency")).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let error = Gate::parse("a latency p99 > alone + 10%").unwrap_err().to_string();
        assert!(error.contains("schedlab colocate"), "{error}");
    }

    #[test]
    fn refusals_teach() {
        for (text, expected) in [
            ("a latency p99", "no <"),
            ("latency p99 > 1ms", "no task"),
            ("a latency > 1ms", "which number"),
            ("a latncy p99 > 1ms", "did you mean"),
            ("a latency p99 > 20%", "+20%"),
            ("a latency p99 > 20", "not a time"),
            ("a share > nan", "not a number"),
            ("> 1ms", "nothing before"),
        ] {
            let error = Gate::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_change_within_chance_cannot_fail() {
        let gate = Gate::parse("a latency p99 > +20%").unwrap();
        let evidence =
            Evidence { before: Some(100.0), after: Some(130.0), told_apart: true, lacks: None };
        assert_eq!(gate.judge(&evidence), GateOutcome::Met);
        assert_eq!(gate.judge(&Evidence { told_apart: false, ..evidence }), GateOutcome::CannotSay);
        assert_eq!(gate.judge(&Evidence { after: Some(110.0), ..evidence }), GateOutcome::Not);
        assert_eq!(
            gate.judge(&Evidence { lacks: Some("few"), ..evidence }),
            GateOutcome::CannotSay
        );
        assert_eq!(gate.judge(&Evidence { before: None, ..evidence }), GateOutcome::CannotSay);
    }
}
