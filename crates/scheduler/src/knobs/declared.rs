//! Knobs as declarations: a scheduler writes down each of its knobs once, and reads the value
//! through what it wrote.
//!
//! ```text
//! const SLICE: TimeKnob = TimeKnob {
//!     name: "slice_ns",
//!     allowed: Times::between(Ns::from_us(1), Ns::from_s(10)),
//!     default: KnobDefault::Is(Ns::from_ms(4)),
//!     doc: "length of a slice",
//!     source: "textbook",
//! };
//! // The list for users: rows(&[&SLICE], &()). The value: knobs.get(&SLICE).
//! ```

use super::{Knob, KnobKind, KnobValue, Knobs, Steps};
use schedlab_model::Ns;

/// The default of a knob that holds a `T`. `C` is what the default depends on, such as the version
/// of the real system.
pub enum KnobDefault<T: 'static, C: 'static = ()> {
    /// The same everywhere.
    Is(T),
    /// Depends on `C` alone; lists show its value.
    By(fn(&C) -> T),
    /// Depends on what a list does not know (the CPUs of a machine, another knob): the value, and
    /// the text of the lists.
    InWords(fn(&C) -> T, fn(&C) -> String),
}

impl<T: Copy, C> KnobDefault<T, C> {
    fn value(&self, context: &C) -> T {
        match self {
            KnobDefault::Is(value) => *value,
            KnobDefault::By(value) | KnobDefault::InWords(value, _) => value(context),
        }
    }
    fn text(&self, context: &C, show: impl Fn(T) -> String) -> String {
        match self {
            KnobDefault::InWords(_, text) => text(context),
            known => show(known.value(context)),
        }
    }
}

/// A declared knob as a row of a scheduler's list.
pub trait Row<C> {
    /// Returns the row; `None` when the version in `context` has no such knob.
    fn row(&self, context: &C) -> Option<Knob>;
}

/// A declared knob that can be read.
pub trait Typed<C> {
    /// What it holds.
    type Value;
    /// Returns what was set, else the default.
    fn read(&self, knobs: &Knobs, context: &C) -> Self::Value;
    /// The same under another name, which the knob had in other versions.
    fn read_as(&self, name: &str, knobs: &Knobs, context: &C) -> Self::Value;
}

/// Returns the list of a scheduler's knobs for its users, in this order.
pub fn rows<C>(declared: &[&dyn Row<C>], context: &C) -> Vec<Knob> {
    declared.iter().filter_map(|knob| knob.row(context)).collect()
}

/// The times that a [`TimeKnob`] may have.
#[derive(Clone, Copy, Debug)]
pub struct Times(KnobKind);

impl Times {
    /// Any time from `low` to `high`.
    pub const fn between(low: Ns, high: Ns) -> Times {
        Times(KnobKind::Time(low, high))
    }
    /// A multiple of `step` from `low` to `high`.
    pub const fn steps(step: Ns, low: Ns, high: Ns) -> Times {
        Times(KnobKind::Steps(Steps { off: false, low, high, step, at_most: None }))
    }
    /// As [`steps`](Times::steps), or 0, which switches it off.
    pub const fn steps_or_off(step: Ns, low: Ns, high: Ns) -> Times {
        Times(KnobKind::Steps(Steps { off: true, low, high, step, at_most: None }))
    }
    /// The same in steps, but no more than another knob says, whose default is fixed.
    pub const fn at_most<C>(self, limit: &TimeKnob<C>) -> Times {
        match (self.0, &limit.default) {
            (KnobKind::Steps(steps), KnobDefault::Is(default)) => {
                let at_most = Some((limit.name, *default));
                Times(KnobKind::Steps(Steps {
                    off: steps.off,
                    low: steps.low,
                    high: steps.high,
                    step: steps.step,
                    at_most,
                }))
            }
            _ => panic!("only a knob in steps has a limit, and only a fixed default is one"),
        }
    }
}

/// A knob that is a time. Its name says no unit, or `_ns`.
pub struct TimeKnob<C: 'static = ()> {
    /// The real name.
    pub name: &'static str,
    /// What may be set.
    pub allowed: Times,
    /// What holds when nothing is set.
    pub default: KnobDefault<Ns, C>,
    /// What it does, in one line.
    pub doc: &'static str,
    /// Where the real system has it.
    pub source: &'static str,
}

/// A knob that is a whole number.
pub struct NumberKnob<C: 'static = ()> {
    /// The real name.
    pub name: &'static str,
    /// What one is: `us`, `tasks`; empty for a plain number.
    pub unit: &'static str,
    /// Smallest and largest.
    pub allowed: (i64, i64),
    /// What holds when nothing is set.
    pub default: KnobDefault<i64, C>,
    /// What it does, in one line.
    pub doc: &'static str,
    /// Where the real system has it.
    pub source: &'static str,
}

/// A knob that is on or off.
pub struct FlagKnob<C: 'static = ()> {
    /// The real name.
    pub name: &'static str,
    /// What holds when nothing is set.
    pub default: KnobDefault<bool, C>,
    /// What it does when it is on, in one line.
    pub doc: &'static str,
    /// Where the real system has it.
    pub source: &'static str,
}

/// A knob that is one of the words of `W`.
pub struct WordKnob<W: Word, C: 'static = ()> {
    /// The real name.
    pub name: &'static str,
    /// What holds when nothing is set.
    pub default: KnobDefault<W, C>,
    /// What it does, in one line.
    pub doc: &'static str,
    /// Where the real system has it.
    pub source: &'static str,
}

/// What a [`WordKnob`] may be; made by [`words!`](crate::words).
pub trait Word: Copy + PartialEq + 'static {
    /// The words, as users write them.
    const WORDS: &'static [&'static str];
    /// What they mean, in the same order.
    const MEANINGS: &'static [Self];
}

/// Declares an enum whose members are the words of a knob.
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$doc:meta])* $member:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $vis enum $name { $($(#[$doc])* $member,)* }

        impl $crate::knobs::Word for $name {
            const WORDS: &'static [&'static str] = &[$($word),*];
            const MEANINGS: &'static [$name] = &[$($name::$member),*];
        }
    };
}
pub(crate) use words;

impl<C> Row<C> for TimeKnob<C> {
    fn row(&self, context: &C) -> Option<Knob> {
        let default = self.default.text(context, exact_time);
        let TimeKnob { name, allowed, doc, source, .. } = *self;
        Some(Knob { name, kind: allowed.0, unit: "", default, doc, source })
    }
}

impl<C> Typed<C> for TimeKnob<C> {
    type Value = Ns;
    fn read(&self, knobs: &Knobs, context: &C) -> Ns {
        self.read_as(self.name, knobs, context)
    }
    fn read_as(&self, name: &str, knobs: &Knobs, context: &C) -> Ns {
        match knobs.value(name) {
            Some(KnobValue::Time(value)) => value,
            _ => self.default.value(context),
        }
    }
}

impl<C> Row<C> for NumberKnob<C> {
    fn row(&self, context: &C) -> Option<Knob> {
        let default = self.default.text(context, |number| number.to_string());
        let NumberKnob { name, unit, allowed: (low, high), doc, source, .. } = *self;
        Some(Knob { name, kind: KnobKind::Number(low, high), unit, default, doc, source })
    }
}

impl<C> Typed<C> for NumberKnob<C> {
    type Value = i64;
    fn read(&self, knobs: &Knobs, context: &C) -> i64 {
        self.read_as(self.name, knobs, context)
    }
    fn read_as(&self, name: &str, knobs: &Knobs, context: &C) -> i64 {
        match knobs.value(name) {
            Some(KnobValue::Number(value)) => value,
            _ => self.default.value(context),
        }
    }
}

impl<C> Row<C> for FlagKnob<C> {
    fn row(&self, context: &C) -> Option<Knob> {
        let default = self.default.text(context, |on| if on { "on" } else { "off" }.to_owned());
        let FlagKnob { name, doc, source, .. } = *self;
        Some(Knob { name, kind: KnobKind::Flag, unit: "", default, doc, source })
    }
}

impl<C> Typed<C> for FlagKnob<C> {
    type Value = bool;
    fn read(&self, knobs: &Knobs, context: &C) -> bool {
        self.read_as(self.name, knobs, context)
    }
    fn read_as(&self, name: &str, knobs: &Knobs, context: &C) -> bool {
        match knobs.value(name) {
            Some(KnobValue::Flag(value)) => value,
            _ => self.default.value(context),
        }
    }
}

impl<W: Word, C> Row<C> for WordKnob<W, C> {
    fn row(&self, context: &C) -> Option<Knob> {
        let word = |meaning: W| {
            let at = W::MEANINGS.iter().position(|known| *known == meaning);
            at.map_or(String::new(), |at| W::WORDS[at].to_owned())
        };
        let default = self.default.text(context, word);
        let WordKnob { name, doc, source, .. } = *self;
        Some(Knob { name, kind: KnobKind::Word(W::WORDS), unit: "", default, doc, source })
    }
}

impl<W: Word, C> Typed<C> for WordKnob<W, C> {
    type Value = W;
    fn read(&self, knobs: &Knobs, context: &C) -> W {
        self.read_as(self.name, knobs, context)
    }
    fn read_as(&self, name: &str, knobs: &Knobs, context: &C) -> W {
        let set = match knobs.value(name) {
            Some(KnobValue::Word(word)) => W::WORDS.iter().position(|known| *known == word),
            _ => None,
        };
        set.map_or_else(|| self.default.value(context), |at| W::MEANINGS[at])
    }
}

/// Returns a time in the largest unit in which it is whole, as a knob takes it: `750us`, `4ms`,
/// `0`.
pub(crate) fn exact_time(time: Ns) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
    let whole = units.iter().find(|(unit, _)| time.0 > 0 && time.0.is_multiple_of(*unit));
    whole.map_or("0".to_owned(), |(unit, name)| format!("{}{name}", time.0 / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    words! {
        enum Ties { Running = "running", Id = "id", }
    }

    const SLICE: TimeKnob = TimeKnob {
        name: "slice",
        allowed: Times::between(Ns(1), Ns::from_s(1)),
        default: KnobDefault::Is(Ns::from_us(1_500)),
        doc: "",
        source: "",
    };
    const TIES: WordKnob<Ties, u32> = WordKnob {
        name: "ties",
        default: KnobDefault::By(|version| if *version < 3 { Ties::Running } else { Ties::Id }),
        doc: "",
        source: "",
    };
    const SCAN: NumberKnob<u32> = NumberKnob {
        name: "scan",
        unit: "tasks",
        allowed: (1, 9),
        default: KnobDefault::InWords(
            |version| i64::from(*version),
            |_| "as the version".to_owned(),
        ),
        doc: "",
        source: "",
    };

    #[test]
    fn defaults_are_stated_once() {
        assert_eq!(rows(&[&SLICE], &())[0].default, "1500us");
        let defaults = |version| {
            rows(&[&TIES, &SCAN], &version).into_iter().map(|row| row.default).collect::<Vec<_>>()
        };
        assert_eq!(defaults(2), ["running", "as the version"]);
        assert_eq!(defaults(3), ["id", "as the version"]);
        let unset = Knobs::default();
        assert_eq!(unset.get(&SLICE), Ns::from_us(1_500));
        assert_eq!(unset.get_for(&SCAN, &7), 7);
        assert!(unset.get_for(&TIES, &2) == Ties::Running && unset.get_for(&TIES, &3) == Ties::Id);
    }

    #[test]
    fn what_is_set_is_read_by_the_same_declaration() {
        let has = rows(&[&TIES, &SCAN], &3);
        let set = Knobs::check(&"x:ties=running,scan=9".parse().unwrap(), &has).unwrap();
        assert!(set.get_for(&TIES, &3) == Ties::Running && set.get_for(&SCAN, &3) == 9);
    }

    #[test]
    fn times_are_shown_in_their_largest_whole_unit() {
        assert_eq!(
            [0, 1, 1_500, 750_000, 4_000_000, 2_000_000_000].map(|ns| exact_time(Ns(ns))),
            ["0", "1ns", "1500ns", "750us", "4ms", "2s"]
        );
    }
}
