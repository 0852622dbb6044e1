//! Knobs: every tunable that the real system has, under its real name and with its real default.

use schedlab_model::Ns;
use schedlab_model::text::nearest;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// One tunable of a scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// The real name, such as `sched_latency_ns`.
    pub name: &'static str,
    /// What it may be.
    pub kind: KnobKind,
    /// The default as text (it may depend on the machine: `6ms * factor`).
    pub default: &'static str,
    /// What it does, in one line, with unit and source.
    pub doc: &'static str,
}

/// What a knob may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KnobKind {
    /// A time from `.0` to `.1`.
    Time(Ns, Ns),
    /// A time that the real system takes in whole units.
    Steps(Steps),
    /// A whole number from `.0` to `.1`.
    Number(i64, i64),
    /// `true`/`false`, `1`/`0`, `on`/`off`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// The times that a knob of whole units may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steps {
    /// Whether 0 (off) is allowed too.
    pub off: bool,
    /// Smallest, apart from 0.
    pub low: Ns,
    /// Largest.
    pub high: Ns,
    /// The unit: a value is a multiple of it.
    pub step: Ns,
    /// The knob that it must not exceed, and that knob's default.
    pub at_most: Option<(&'static str, Ns)>,
}

impl Steps {
    fn holds(self, value: Ns) -> bool {
        let off = self.off && value == Ns::ZERO;
        off || (self.low..=self.high).contains(&value) && value.0.is_multiple_of(self.step.0.max(1))
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Steps { off, low, high, step, at_most } = self;
        write!(f, "{}a time from {low} to {high} in steps of {step}", if *off { "0 (off) or " } else { "" })?;
        at_most.map_or(Ok(()), |(knob, _)| write!(f, ", at most {knob}"))
    }
}

/// A value of a knob.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KnobValue {
    /// A time.
    Time(Ns),
    /// A number.
    Number(i64),
    /// A switch.
    Flag(bool),
    /// A word.
    Word(&'static str),
}

/// A scheduler by name, with knobs: `linux-6.18` or `linux-6.18:base_slice_ns=2.8ms,features.RUN_TO_PARITY=off`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SchedulerSpec {
    /// Name in the registry.
    pub name: String,
    /// Knob settings as text, in the order given.
    pub knobs: Vec<(String, String)>,
}

/// What is wrong with a scheduler's name or knobs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KnobError {
    /// Not `name=value`.
    #[error("`{0}` is not a knob setting: write name=value, several separated by commas")]
    Syntax(String),
    /// No such scheduler.
    #[error("unknown scheduler `{name}`{}; `schedlab list schedulers` shows all", suggest(.nearest))]
    UnknownScheduler {
        /// As given.
        name: String,
        /// The nearest real one.
        nearest: Option<String>,
    },
    /// No such knob.
    #[error("scheduler {scheduler} has no knob `{name}`{}; it has: {all}", suggest(.nearest))]
    UnknownKnob {
        /// The scheduler.
        scheduler: String,
        /// As given.
        name: String,
        /// The nearest real one.
        nearest: Option<String>,
        /// Every knob it has.
        all: String,
    },
    /// A value of the wrong kind or out of bounds.
    #[error("knob {name}={value}: must be {allowed}")]
    Value {
        /// The knob.
        name: String,
        /// As given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
}

fn suggest(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default()
}

impl FromStr for SchedulerSpec {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<SchedulerSpec, KnobError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let knobs = rest
            .split(',')
            .filter(|part| !part.trim().is_empty())
            .map(|part| match part.split_once('=') {
                Some((knob, value)) => Ok((knob.trim().to_owned(), value.trim().to_owned())),
                None => Err(KnobError::Syntax(part.to_owned())),
            })
            .collect::<Result<_, _>>()?;
        Ok(SchedulerSpec { name: name.trim().to_owned(), knobs })
    }
}

impl fmt::Display for SchedulerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (i, (knob, value)) in self.knobs.iter().enumerate() {
            write!(f, "{}{knob}={value}", if i == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl fmt::Display for KnobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KnobKind::Time(low, high) => write!(f, "a time from {low} to {high}, such as \"3ms\""),
            KnobKind::Steps(steps) => steps.fmt(f),
            KnobKind::Number(low, high) => write!(f, "a whole number from {low} to {high}"),
            KnobKind::Flag => f.write_str("on or off"),
            KnobKind::Word(words) => write!(f, "one of {}", words.join(", ")),
        }
    }
}

impl KnobKind {
    fn parse(self, text: &str) -> Option<KnobValue> {
        match self {
            KnobKind::Time(low, high) => {
                let value = time(text)?;
                (low <= value && value <= high).then_some(KnobValue::Time(value))
            }
            KnobKind::Steps(steps) => {
                let value = time(text)?;
                steps.holds(value).then_some(KnobValue::Time(value))
            }
            KnobKind::Number(low, high) => {
                let value = text.parse().ok()?;
                (low <= value && value <= high).then_some(KnobValue::Number(value))
            }
            KnobKind::Flag => match text {
                "on" | "true" | "1" => Some(KnobValue::Flag(true)),
                "off" | "false" | "0" => Some(KnobValue::Flag(false)),
                _ => None,
            },
            KnobKind::Word(words) => words.iter().find(|w| **w == text).map(|w| KnobValue::Word(w)),
        }
    }
}

/// The kernel's own files hold bare nanoseconds; a bare number here means the same.
fn time(text: &str) -> Option<Ns> {
    text.parse().ok().or_else(|| text.parse::<u64>().ok().map(Ns))
}

/// The knobs that were set, checked against what the scheduler has. Unset ones keep their defaults.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Knobs {
    values: BTreeMap<&'static str, KnobValue>,
}

impl Knobs {
    /// Checks `spec` against the knobs that the scheduler `has`.
    pub fn check(spec: &SchedulerSpec, has: &[Knob]) -> Result<Knobs, KnobError> {
        let mut values = BTreeMap::new();
        for (name, text) in &spec.knobs {
            let Some(knob) = has.iter().find(|knob| knob.name == name) else {
                return Err(KnobError::UnknownKnob {
                    scheduler: spec.name.clone(),
                    name: name.clone(),
                    nearest: nearest(name, has.iter().map(|knob| knob.name)),
                    all: has.iter().map(|knob| knob.name).collect::<Vec<_>>().join(", "),
                });
            };
            let value = knob.kind.parse(text).ok_or_else(|| KnobError::Value {
                name: name.clone(),
                value: text.clone(),
                allowed: knob.kind.to_string(),
            })?;
            values.insert(knob.name, value);
        }
        let knobs = Knobs { values };
        knobs.check_limits(has)?;
        Ok(knobs)
    }
    /// A knob that another one limits must not exceed it, whichever of the two was set.
    fn check_limits(&self, has: &[Knob]) -> Result<(), KnobError> {
        for knob in has {
            let KnobKind::Steps(Steps { at_most: Some((limit, default)), .. }) = knob.kind else { continue };
            let Some(KnobValue::Time(value)) = self.values.get(knob.name) else { continue };
            let most = self.time(limit, default);
            if *value > most {
                return Err(KnobError::Value {
                    name: knob.name.to_owned(),
                    value: value.to_string(),
                    allowed: format!("{}, which is {most}", knob.kind),
                });
            }
        }
        Ok(())
    }
    /// The time set for `name`, or `default`.
    pub fn time(&self, name: &str, default: Ns) -> Ns {
        match self.values.get(name) {
            Some(KnobValue::Time(value)) => *value,
            _ => default,
        }
    }
    /// The number set for `name`, or `default`.
    pub fn number(&self, name: &str, default: i64) -> i64 {
        match self.values.get(name) {
            Some(KnobValue::Number(value)) => *value,
            _ => default,
        }
    }
    /// The switch set for `name`, or `default`.
    pub fn flag(&self, name: &str, default: bool) -> bool {
        match self.values.get(name) {
            Some(KnobValue::Flag(value)) => *value,
            _ => default,
        }
    }
    /// The word set for `name`, or `default`.
    pub fn word(&self, name: &str, default: &'static str) -> &'static str {
        match self.values.get(name) {
            Some(KnobValue::Word(value)) => value,
            _ => default,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HAS: &[Knob] = &[
        Knob { name: "slice", kind: KnobKind::Time(Ns(1), Ns::from_s(1)), default: "4ms", doc: "" },
        Knob { name: "fair_server", kind: KnobKind::Flag, default: "on", doc: "" },
    ];

    #[test]
    fn knobs_are_checked_by_name_kind_and_bounds() {
        let check = |text: &str| Knobs::check(&text.parse().unwrap(), HAS);
        assert_eq!(check("x:slice=3ms").unwrap().time("slice", Ns(0)), Ns::from_ms(3));
        assert!(!check("x:fair_server=off").unwrap().flag("fair_server", true));
        assert!(matches!(check("x:slise=3ms"),
            Err(KnobError::UnknownKnob { nearest: Some(n), .. }) if n == "slice"));
        assert!(matches!(check("x:slice=2s"), Err(KnobError::Value { .. })));
        assert!("x:slice".parse::<SchedulerSpec>().is_err());
    }

    #[test]
    fn whole_units_and_limits_between_knobs() {
        let steps = |off, low, high, step, at_most| KnobKind::Steps(Steps { off, low, high, step, at_most });
        let limit = Some(("tslice", Ns::from_ms(30)));
        let knob = |name, kind| Knob { name, kind, default: "", doc: "" };
        let has = [
            knob("tslice", steps(false, Ns::from_ms(1), Ns::from_s(1), Ns::from_ms(1), None)),
            knob("ratelimit", steps(true, Ns::from_us(100), Ns::from_ms(500), Ns::from_us(1), limit)),
        ];
        let check = |text: &str| Knobs::check(&text.parse().unwrap(), &has);
        for good in ["x:tslice=5ms", "x:ratelimit=0ns", "x:ratelimit=100us", "x:ratelimit=5ms,tslice=5ms"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["x:tslice=2500us", "x:ratelimit=99us", "x:ratelimit=31ms", "x:ratelimit=6ms,tslice=5ms"] {
            let text = check(bad).unwrap_err().to_string();
            assert!(text.contains("in steps of"), "{bad}: {text}");
        }
    }
}
