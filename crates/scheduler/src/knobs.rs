//! Knobs: every tunable that the real system has, under its real name and with its real default.
//!
//! A scheduler declares each of its knobs once ([`TimeKnob`], [`NumberKnob`], [`FlagKnob`],
//! [`WordKnob`]) and reads the value through the declaration. The lists that users see and the
//! check of what they set are made from it ([`rows`]).

mod declared;
mod spec;

pub use declared::{
    FlagKnob, KnobDefault, NumberKnob, Row, TimeKnob, Times, Typed, Word, WordKnob, rows,
};
pub(crate) use declared::{exact_time, words};
pub use spec::{KnobError, SchedulerList, SchedulerSpec};

use schedlab_model::Ns;
use schedlab_model::text::nearest;
use std::collections::BTreeMap;
use std::fmt;

/// One tunable of a scheduler, as lists show it and settings are checked against it.
#[derive(Clone, Debug)]
pub struct Knob {
    /// The real name, such as `sched_latency_ns`.
    pub name: &'static str,
    /// What it may be.
    pub kind: KnobKind,
    /// Unit of a number: `us`, `tasks`; empty for a plain number, and for times, which are written
    /// with theirs.
    pub unit: &'static str,
    /// The default as text (it may depend on the machine: `6ms times the scaling factor`).
    pub default: String,
    /// What it does, in one line.
    pub doc: &'static str,
    /// Where the real system has it.
    pub source: &'static str,
}

impl Knob {
    /// Returns what it may be, with the unit.
    pub fn allowed(&self) -> String {
        match self.unit {
            "" => self.kind.to_string(),
            unit => format!("{} ({unit})", self.kind),
        }
    }
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
        write!(
            f,
            "{}a time from {low} to {high} in steps of {step}",
            if *off { "0 (off) or " } else { "" }
        )?;
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
                allowed: knob.allowed(),
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
            let KnobKind::Steps(Steps { at_most: Some((limit, default)), .. }) = knob.kind else {
                continue;
            };
            let Some(KnobValue::Time(value)) = self.values.get(knob.name) else { continue };
            let most = match self.value(limit) {
                Some(KnobValue::Time(most)) => most,
                _ => default,
            };
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
    /// Returns what was set for `name`, if anything.
    fn value(&self, name: &str) -> Option<KnobValue> {
        self.values.get(name).copied()
    }
    /// Returns what was set for a declared knob, or its default.
    pub fn get<K: Typed<()>>(&self, knob: &K) -> K::Value {
        knob.read(self, &())
    }
    /// The same for a knob whose default depends on `context`.
    pub fn get_for<C, K: Typed<C>>(&self, knob: &K, context: &C) -> K::Value {
        knob.read(self, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: TimeKnob = TimeKnob {
        name: "slice",
        allowed: Times::between(Ns(1), Ns::from_s(1)),
        default: KnobDefault::Is(Ns::from_ms(4)),
        doc: "",
        source: "",
    };
    const FAIR_SERVER: FlagKnob =
        FlagKnob { name: "fair_server", default: KnobDefault::Is(true), doc: "", source: "" };

    #[test]
    fn knobs_are_checked_by_name_kind_and_bounds() {
        let check =
            |text: &str| Knobs::check(&text.parse().unwrap(), &rows(&[&SLICE, &FAIR_SERVER], &()));
        assert_eq!(check("x:slice=3ms").unwrap().get(&SLICE), Ns::from_ms(3));
        assert!(!check("x:fair_server=off").unwrap().get(&FAIR_SERVER));
        assert!(matches!(check("x:slise=3ms"),
            Err(KnobError::UnknownKnob { nearest: Some(n), .. }) if n == "slice"));
        assert!(matches!(check("x:slice=2s"), Err(KnobError::Value { .. })));
        assert!("x:slice".parse::<SchedulerSpec>().is_err());
    }

    #[test]
    fn a_comma_separates_schedulers_knobs_or_the_cpus_of_a_pool() {
        let list = |text: &str| {
            let list = text.parse::<SchedulerList>().map_err(|error| error.to_string())?;
            Ok::<Vec<String>, String>(list.0.iter().map(ToString::to_string).collect())
        };
        assert_eq!(list("rr").unwrap(), ["rr"]);
        assert_eq!(list("rr,layers").unwrap(), ["rr", "layers"]);
        let knobs = "linux-6.1:latency_ns=6ms,wakeup_granularity_ns=1ms,rr:slice_ns=5ms,edf";
        let split =
            ["linux-6.1:latency_ns=6ms,wakeup_granularity_ns=1ms", "rr:slice_ns=5ms", "edf"];
        assert_eq!(list(knobs).unwrap(), split);
        assert_eq!(list("rr/0,2:layers,edf").unwrap(), ["rr/0,2:layers", "edf"]);
        for wrong in ["", "rr,", ",rr", "rr,,layers"] {
            let why = list(wrong).unwrap_err();
            assert!(why.contains("a comma has no scheduler beside it"), "{wrong}: {why}");
        }
    }

    #[test]
    fn whole_units_and_limits_between_knobs() {
        const TSLICE: TimeKnob = TimeKnob {
            name: "tslice",
            allowed: Times::steps(Ns::from_ms(1), Ns::from_ms(1), Ns::from_s(1)),
            default: KnobDefault::Is(Ns::from_ms(30)),
            doc: "",
            source: "",
        };
        const RATELIMIT: TimeKnob = TimeKnob {
            name: "ratelimit",
            allowed: Times::steps_or_off(Ns::from_us(1), Ns::from_us(100), Ns::from_ms(500))
                .at_most(&TSLICE),
            ..TSLICE
        };
        let has = rows(&[&TSLICE, &RATELIMIT], &());
        let check = |text: &str| Knobs::check(&text.parse().unwrap(), &has);
        for good in
            ["x:tslice=5ms", "x:ratelimit=0ns", "x:ratelimit=100us", "x:ratelimit=5ms,tslice=5ms"]
        {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in [
            "x:tslice=2500us",
            "x:ratelimit=99us",
            "x:ratelimit=31ms",
            "x:ratelimit=6ms,tslice=5ms",
        ] {
            let text = check(bad).unwrap_err().to_string();
            assert!(text.contains("in steps of"), "{bad}: {text}");
        }
    }
}
