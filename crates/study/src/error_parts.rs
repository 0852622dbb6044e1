//! What the error of a number is made of, and between which values the number lies.
//!
//! The list of the parts is declared once, here: `--explain`, the glossary, help, pages, documents
//! and JSON take their words from it.

use crate::measurements::Kind;
use crate::metric::{Metric, Unit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One part in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartDef {
    /// Which.
    pub part: Part,
    /// Its name in texts.
    pub name: &'static str,
    /// What it comes from, in a few words.
    pub from: &'static str,
    /// What it is, as a phrase that follows the name.
    pub doc: &'static str,
    /// The same as a sentence of the glossary.
    pub meaning: &'static str,
}

macro_rules! parts {
    (
        $first:ident $first_field:ident $first_name:literal $first_from:literal $first_doc:literal
        $($part:ident $field:ident $name:literal $from:literal $doc:literal)+
    ) => {
        /// A part of an error.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Part {
            #[doc = $first_doc]
            $first,
            $(#[doc = $doc] $part,)+
        }

        /// What an error is made of, each part as a half width in the metric's unit; of a bar in
        /// factors, as the natural logarithm of one.
        #[derive(Clone, Copy, PartialEq, Debug, Default, JsonSchema, Serialize, Deserialize)]
        pub struct ErrorParts {
            #[doc = $first_doc]
            pub $first_field: f64,
            $(#[doc = $doc] pub $field: f64,)+
        }

        /// Every part in words, in the order in which they are printed.
        pub const PARTS: &[PartDef] = &[
            PartDef { part: Part::$first, name: $first_name, from: $first_from, doc: $first_doc, meaning: parts!(@meaning $first_doc) },
            $(PartDef { part: Part::$part, name: $name, from: $from, doc: $doc, meaning: parts!(@meaning $doc) },)+
        ];

        /// How the parts make up the error. The first is added, because it is seen in every run;
        /// the others do not depend on each other.
        pub const RULE: &str = parts!(@rule $first_name $($name)+);

        /// What an error is, for the glossary.
        pub const MEANING: &str = concat!(
            "How far a number may be from the true one: ", parts!(@rule $first_name $($name)+), ". ",
            $first_name, ": ", $first_doc, $("; ", $name, ": ", $doc,)+ ". An interval ends at \
                what is possible."
        );

        impl ErrorParts {
            /// Returns one part.
            pub const fn get(&self, part: Part) -> f64 {
                match part {
                    Part::$first => self.$first_field,
                    $(Part::$part => self.$field,)+
                }
            }

            /// Returns the error: half the width of the interval, before it is cut to what is
            /// possible.
            pub fn half_width(&self) -> f64 {
                let squares = 0.0 $(+ self.$field * self.$field)+;
                self.$first_field + squares.sqrt()
            }
        }
    };
    (@meaning $doc:literal) => { concat!("A part of the error of a number: ", $doc, ".") };
    (@rule $first:literal $($name:literal)+) => {
        concat!($first, " + the root of the sum of the squares of the others (", parts!(@names $($name)+), ")")
    };
    (@names $first:literal $($name:literal)*) => { concat!($first $(, ", ", $name)*) };
}

parts! {
    Seeds seeds "seeds" "what differs from seed to seed" "half the range over the seeds"
    SelfReplay self_replay "self-replay" "what the simulation of the recording itself misses"
        "by how much the simulation misses the recording under the scheduler that it was recorded \
         under"
    Reaction reaction "reaction" "how the tasks react to more or less CPU time"
        "by how much readings of how the tasks react to more or less CPU time differ: all of a \
         change where the recording does not show it"
    Drift drift "drift" "what the same work costs another time"
        "by how much two recordings of one setting differ, because the same work costs more or \
         less another time (fitted to pairs of recordings)"
    Sampling sampling "sampling" "how short the recording is"
        "what windows of the recording, which is short, differ by: of percentiles, and of shares and \
         rates of tasks that moved between CPUs; else two standard errors of the CPU share"
}

impl ErrorParts {
    /// Returns the parts of a number of which only the seeds are known: that of a scenario.
    pub fn of_seeds(half_range: f64) -> ErrorParts {
        ErrorParts { seeds: half_range, ..ErrorParts::default() }
    }

    /// Returns
    /// `, the largest part of which is how the tasks react to more or less CPU time (reaction)`, to
    /// follow an error.
    pub fn of_which(&self) -> String {
        let of = |part: Part| {
            format!(", the largest part of which is {} ({})", part.def().from, part.def().name)
        };
        self.largest().map_or_else(String::new, of)
    }

    /// Returns the factor whose logarithm is the error.
    pub fn factor(&self) -> f64 {
        libm::exp(self.half_width())
    }

    /// Returns the largest part; `None` where there is no error.
    pub fn largest(&self) -> Option<Part> {
        let parts = PARTS.iter().map(|def| def.part).filter(|part| self.get(*part) > 0.0);
        // The first of equal ones.
        parts.reduce(|most, part| if self.get(part) > self.get(most) { part } else { most })
    }

    /// Returns `±19.3%, the largest part is reaction (19.2%); drift 2.1%, self-replay 0.1%`, or
    /// `a factor of 2.3, ... (2.1); drift 1.4`; parts that are nothing are left out.
    fn show(&self, show: &dyn Fn(f64) -> String, sign: &str) -> String {
        let Some(largest) = self.largest() else { return "none".to_owned() };
        let mut rest: Vec<&PartDef> =
            PARTS.iter().filter(|def| def.part != largest && self.get(def.part) > 0.0).collect();
        rest.sort_by(|a, b| self.get(b.part).total_cmp(&self.get(a.part)));
        let of = |part: Part| show(self.get(part));
        let rest: Vec<String> =
            rest.iter().map(|def| format!("{} {}", def.name, of(def.part))).collect();
        let rest = if rest.is_empty() { String::new() } else { format!("; {}", rest.join(", ")) };
        let (half, name) = (show(self.half_width()), largest.def().name);
        format!("{sign}{half}, the largest part is {name} ({}){rest}", of(largest))
    }
}

impl Part {
    /// Returns the part in words.
    pub fn def(self) -> &'static PartDef {
        // The list has every part, in the order of their declaration.
        &PARTS[self as usize]
    }
}

/// Between which values a number can lie at all.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Possible {
    /// The smallest.
    pub low: f64,
    /// The largest; infinite where there is none.
    pub high: f64,
}

impl Default for Possible {
    /// Returns the range of times and rates: from 0 on.
    fn default() -> Possible {
        Possible { low: 0.0, high: f64::INFINITY }
    }
}

impl Possible {
    /// Returns the range of a metric of a subject. `most`: how many CPUs its tasks can have at one
    /// time; `cpus`: those of the machine.
    pub fn for_metric(metric: Metric, kind: Kind, most: usize, cpus: usize) -> Possible {
        let high = match (metric.unit(), kind) {
            (Unit::Share, Kind::Machine) if metric == Metric::Agents => cpus as f64,
            (Unit::Share, Kind::Machine) => 1.0,
            // A part of the time of each virtual CPU.
            (Unit::Share, _) if metric == Metric::Steal => 1.0,
            (Unit::Share, _) => most as f64,
            _ => f64::INFINITY,
        };
        Possible { high, ..Possible::default() }
    }

    /// Returns the value, or the nearest one that is possible.
    pub fn nearest(self, value: f64) -> f64 {
        value.max(self.low).min(self.high)
    }

    /// Returns the range of differences from a value.
    pub fn less(self, base: f64) -> Possible {
        Possible { low: self.low - base, high: self.high - base }
    }
}

/// Between which values a number lies, and what its error is made of.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct ErrorBar {
    /// Lower end: the number less its error, or the least that is possible.
    pub low: f64,
    /// Upper end: the number and its error, or the most that is possible.
    pub high: f64,
    /// What the error is made of.
    pub parts: ErrorParts,
    /// The largest part; missing where there is no error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest: Option<Part>,
    /// The number is a time of a recording, and its error a factor: `parts` are natural logarithms.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub factors: bool,
}

impl ErrorBar {
    /// Returns the bar of `value`, which holds it.
    pub fn new(value: f64, parts: ErrorParts, possible: Possible) -> ErrorBar {
        let half = parts.half_width();
        ErrorBar {
            low: (value - half).max(possible.low).min(value),
            high: (value + half).min(possible.high).max(value),
            parts,
            largest: parts.largest(),
            factors: false,
        }
    }

    /// Returns the bar of a time that is known up to a factor, whose logarithm `down` makes up
    /// below it, and `up` above.
    pub fn of_factor(value: f64, down: ErrorParts, up: ErrorParts) -> ErrorBar {
        let parts = if up.half_width() > down.half_width() { up } else { down };
        let (low, high) = (value / down.factor(), value * up.factor());
        ErrorBar { low, high, parts, largest: parts.largest(), factors: true }
    }

    /// Returns the same bar around another value.
    pub fn around(&self, value: f64, was: f64, possible: Possible) -> ErrorBar {
        match self.factors && was > 0.0 {
            true => {
                ErrorBar { low: self.low * value / was, high: self.high * value / was, ..*self }
            }
            false => ErrorBar::new(value, self.parts, possible),
        }
    }

    /// Returns the error: half the width before the bar was cut to what is possible.
    pub fn error(&self) -> f64 {
        match self.factors {
            true => (self.high - self.low) / 2.0,
            false => self.parts.half_width(),
        }
    }

    /// Whether the bar was cut.
    pub fn is_cut(&self) -> bool {
        // A billionth is the rounding of floats.
        !self.factors && self.high - self.low < 2.0 * self.error() * (1.0 - 1e-9)
    }

    /// Returns what the error is made of, in words.
    pub fn explained(&self, metric: Metric) -> String {
        match self.factors {
            true => self.parts.show(&|log| format!("{:.1}", libm::exp(log)), "a factor of "),
            false => self.parts.show(&|part| metric.show(part), "±"),
        }
    }

    /// Whether `bound` lies within the error.
    pub fn holds(&self, bound: f64) -> bool {
        let within = self.low < bound && bound < self.high;
        within || self.is_cut() && (bound == self.low || bound == self.high)
    }

    /// Returns the same bar around another number: that of a value from that of its difference.
    pub fn moved(&self, by: f64) -> ErrorBar {
        ErrorBar { low: self.low + by, high: self.high + by, ..*self }
    }

    /// Returns what is printed behind the number: ` ± 12.0us`, ` (78.2% to 100.0%)` where the bar
    /// was cut or is a factor, nothing without an error.
    pub fn beside(&self, metric: Metric) -> String {
        match self.error() {
            _ if self.parts.half_width() <= 0.0 => String::new(),
            _ if self.is_cut() || self.factors => {
                format!(" ({} to {})", metric.show(self.low), metric.show(self.high))
            }
            error => format!(" ± {}", metric.show(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Stat;
    use proptest::prelude::*;

    fn parts(of: [f64; 5]) -> ErrorParts {
        let [seeds, self_replay, reaction, drift, sampling] = of;
        ErrorParts { seeds, self_replay, reaction, drift, sampling }
    }

    #[test]
    fn a_share_never_leaves_what_its_tasks_can_have() {
        let parts = parts([0.0, 0.001, 0.19, 0.02, 0.0]);
        let one =
            ErrorBar::new(0.975, parts, Possible::for_metric(Metric::Share, Kind::Class, 1, 4));
        assert_eq!(one.beside(Metric::Share), " (78.4% to 100.0%)");
        let two =
            ErrorBar::new(0.975, parts, Possible::for_metric(Metric::Share, Kind::Class, 2, 4));
        assert_eq!(two.beside(Metric::Share), " ± 19.1%");
        let p99 = Metric::Latency(Stat::Percentile(99_000));
        let tail = ErrorBar::new(
            2e3,
            ErrorParts::of_seeds(5e3),
            Possible::for_metric(p99, Kind::Class, 1, 4),
        );
        assert_eq!(tail.beside(p99), " (0ns to 7.00us)");
    }

    #[test]
    fn the_text_names_the_largest_part_first() {
        let bar = |of| ErrorBar::new(0.5, parts(of), Possible { low: 0.0, high: 1.0 });
        let shown = bar([0.0, 0.001, 0.19, 0.02, 0.0]).explained(Metric::Share);
        assert_eq!(
            shown,
            "±19.1%, the largest part is reaction (19.0%); drift 2.0%, self-replay \
                           0.1%"
        );
        assert_eq!(bar([0.0; 5]).explained(Metric::Share), "none");
        let p99 = Metric::Latency(Stat::Percentile(99_000));
        let (down, up) = (parts([0.0, 0.1, 0.0, 2f64.ln(), 0.0]), parts([0.0, 0.1, 0.0, 0.0, 0.0]));
        let time = ErrorBar::of_factor(1e5, down, up);
        assert_eq!(
            time.explained(p99),
            "a factor of 2.0, the largest part is drift (2.0); \
                                         self-replay 1.1"
        );
        assert_eq!(time.beside(p99), " (49.6us to 111us)");
    }

    #[test]
    fn each_part_is_where_its_number_says() {
        for (index, def) in PARTS.iter().enumerate() {
            let mut only = [0.0; 5];
            only[index] = 1.0;
            assert_eq!(parts(only).largest(), Some(def.part));
            assert_eq!((def.part.def(), parts(only).half_width()), (def, 1.0));
            assert!(RULE.contains(def.name), "{RULE}");
        }
        assert_eq!(PARTS.len(), 5);
    }

    proptest! {
        #[test]
        fn the_bar_is_possible_and_holds_its_value(
            value in 0.0f64..4.0, of in proptest::array::uniform5(0.0f64..3.0), most in 4usize..6
        ) {
            let possible = Possible::for_metric(Metric::Share, Kind::Class, most, 8);
            let bar = ErrorBar::new(value, parts(of), possible);
            prop_assert!(possible.low <= bar.low && bar.low <= value && value <= bar.high);
            prop_assert!(bar.high <= possible.high);
            let largest = bar.largest.map(|part| bar.parts.get(part));
            prop_assert_eq!(largest, of.into_iter().reduce(f64::max).filter(|most| *most > 0.0));
            if !bar.is_cut() {
                prop_assert!((bar.high - bar.low - 2.0 * bar.error()).abs() < 1e-6);
            }
        }
    }
}
