//! `compare --fail-if`: gates over the rows of a comparison. `docs/exchange-formats.md` has the
//! grammar.

use super::percentile::Found;
use super::row_errors::{OfRow, RowErrors};
use super::timing::Timing;
use super::{Options, percentile, values};
use crate::StudyError;
use crate::change::{Judgement, MethodError, change};
use crate::diff::few_samples;
use crate::error_parts::{ErrorBar, ErrorParts};
use crate::gate::{Bound, Evidence, Gate, GateOutcome};
use crate::metric::{Metric, Stat};
use crate::result::{Gated, Interval, Row, Study, Subject};
use crate::run::{RowPlan, Run};
use schedlab_model::text::glob;
use schedlab_model::text::nearest;
use schedlab_stats::Estimate;
use std::fmt;

/// `[ROW: ]SUBJECT METRIC OP VALUE[ against ROW]`: a gate, the rows that it is about, and the row
/// that a change is counted from.
#[derive(Clone, PartialEq, Debug)]
pub struct RowGate {
    /// Variant or scheduler (a glob); `None`: every row but the first.
    pub row: Option<String>,
    /// The condition that must not be met.
    pub gate: Gate,
    /// Variant or scheduler that a change is counted from; `None`: the first row.
    pub against: Option<String>,
    text: String,
}

impl RowGate {
    /// Parses a gate.
    ///
    /// # Errors
    /// What is wrong and how a gate is written, as text.
    pub fn parse(text: &str) -> Result<RowGate, String> {
        let unnamed = |what: &str| format!("'{text}': {what} names no variant or scheduler");
        let op = text.rfind(['<', '>']).unwrap_or(text.len());
        let (rest, against) = match text[op..].find(" against ") {
            Some(at) => {
                let name = text[op + at + " against ".len()..].trim().trim_matches(['"', '\'']);
                if name.is_empty() {
                    return Err(unnamed("`against`"));
                }
                (&text[..op + at], Some(name.to_owned()))
            }
            None => (text, None),
        };
        let (row, condition) = match rest[..op].split_once(": ") {
            Some((row, _)) if row.trim().is_empty() => return Err(unnamed("what is before `:`")),
            Some((row, _)) => (Some(row.trim().to_owned()), &rest[row.len() + 2..]),
            None => (None, rest),
        };
        let gate = Gate::parse(condition).map_err(|error| error.to_string())?;
        if against.is_some() && matches!(gate.bound, Bound::Value(_)) {
            return Err(format!(
                "'{text}': `against` needs a change such as +20%, -1ms or 1.5x, and this is a value"
            ));
        }
        Ok(RowGate { row, gate, against, text: text.trim().to_owned() })
    }

    /// Returns the gate about the row of a scheduler, and a change counted from that of another,
    /// where it names none.
    #[must_use]
    pub fn about(mut self, scheduler: &str, against: &str) -> RowGate {
        self.row.get_or_insert_with(|| scheduler.to_owned());
        if self.relative() {
            self.against.get_or_insert_with(|| against.to_owned());
        }
        self
    }

    fn relative(&self) -> bool {
        !matches!(self.gate.bound, Bound::Value(_))
    }

    /// The row that a change is counted from.
    fn base(&self, plans: &[RowPlan]) -> Option<usize> {
        match &self.against {
            None => Some(0),
            Some(name) => plans.iter().position(|plan| is(plan, name)),
        }
    }

    /// The rows that it is about, without the one that a change is counted from.
    fn rows(&self, plans: &[RowPlan]) -> Vec<usize> {
        let base = if self.relative() { self.base(plans) } else { None };
        let wanted = |index: usize| match &self.row {
            Some(name) => is(&plans[index], name),
            None => index > 0 || (plans.len() == 1 && !self.relative()),
        };
        (0..plans.len()).filter(|&index| wanted(index) && Some(index) != base).collect()
    }
}

impl fmt::Display for RowGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether the row has this variant, scheduler, or both (`linux-6.18, batch idle`).
fn is(plan: &RowPlan, name: &str) -> bool {
    let both = format!("{}, {}", plan.label, plan.variant);
    glob(name, &plan.variant) || glob(name, &plan.label) || glob(name, &both)
}

/// The gates of a comparison, whose rows and subjects there are.
pub(super) struct Gates<'a> {
    gates: Vec<&'a RowGate>,
    /// Classes, tasks and what else can be a subject.
    names: &'a [String],
}

impl<'a> Gates<'a> {
    /// Refuses gates about rows or subjects that there are not, before anything runs. `names`:
    /// classes and tasks.
    pub(super) fn new(
        options: &'a Options,
        plans: &[RowPlan],
        names: &'a [String],
    ) -> Result<Gates<'a>, StudyError> {
        let known = known(plans, names);
        let covers = |gate: &&RowGate| known.iter().any(|name| gate.gate.covers(name));
        let all = options.gates.iter();
        let gates = all.filter(|gate| !options.gates_where_found || covers(gate)).collect();
        let gates = Gates { gates, names };
        check(&gates.gates, plans, names)?;
        Ok(gates)
    }

    /// One entry for each row and subject that a gate covers. A gate about a row that was refused
    /// meanwhile is an error.
    pub(super) fn judge(
        &self,
        plans: &[RowPlan],
        runs: &[Vec<Run>],
        errors: &RowErrors,
        timing: &Timing,
        study: &Study,
    ) -> Result<Vec<Gated>, StudyError> {
        check(&self.gates, plans, self.names)?;
        let mut all = Vec::new();
        for &gate in &self.gates {
            for row in gate.rows(plans) {
                let base = gate.base(plans).unwrap_or(0);
                let errors = errors.row(row);
                let asked = Asked {
                    gate,
                    row: &study.rows[row],
                    own: &runs[row],
                    base: &runs[base],
                    errors,
                    timing: (timing, row, base),
                };
                all.extend(asked.all(study.trusted()));
            }
        }
        Ok(all)
    }
}

/// Returns what can be the subject of a gate, each once.
fn known<'a>(plans: &'a [RowPlan], names: &'a [String]) -> Vec<&'a str> {
    let mut known: Vec<&str> = names.iter().map(String::as_str).collect();
    for plan in plans {
        known.extend(plan.workload.sources.iter().map(|source| source.name.as_str()));
        known.extend(plan.workload.channels.iter().map(|channel| channel.name.as_str()));
    }
    known.push(crate::measurements::MACHINE);
    known.sort_unstable();
    known.dedup();
    known
}

fn check(gates: &[&RowGate], plans: &[RowPlan], names: &[String]) -> Result<(), StudyError> {
    let known = known(plans, names);
    for gate in gates {
        let fail = |what: String| Err(StudyError::Option(format!("--fail-if '{gate}': {what}")));
        for name in gate.row.iter().chain(&gate.against) {
            if !plans.iter().any(|plan| is(plan, name)) {
                let mut rows: Vec<&str> = plans
                    .iter()
                    .flat_map(|plan| [plan.variant.as_str(), plan.label.as_str()])
                    .collect();
                rows.sort_unstable();
                rows.dedup();
                return fail(format!(
                    "there is no variant or scheduler `{name}`; there are: {}",
                    rows.join(", ")
                ));
            }
        }
        if gate.rows(plans).is_empty() {
            return fail(
                "it is about no row: give something to try (--variant, --scheduler), or a value \
                 without a sign"
                    .to_owned(),
            );
        }
        if !known.iter().any(|name| gate.gate.covers(name)) {
            let subject = gate.gate.subject.as_deref().unwrap_or_default();
            let hint = nearest(subject, known.iter().copied())
                .map(|near| format!(" (did you mean `{near}`?)"))
                .unwrap_or_default();
            let some: Vec<&str> = known.iter().copied().take(20).collect();
            let more = if known.len() > some.len() { ", ..." } else { "" };
            return fail(format!(
                "nothing is called `{subject}`{hint}; there are: {}{more}",
                some.join(", ")
            ));
        }
    }
    Ok(())
}

/// One gate and one row.
struct Asked<'a> {
    gate: &'a RowGate,
    row: &'a Row,
    own: &'a [Run],
    base: &'a [Run],
    errors: OfRow<'a>,
    /// What other ticks and prices give, with the places of both rows.
    timing: (&'a Timing, usize, usize),
}

/// Returns the value before a change, the error of `now` after it, and whether both are told apart.
fn against(
    metric: Metric,
    theirs: &[f64],
    mine: &[f64],
    (now, method): (f64, MethodError),
) -> (Option<Estimate>, ErrorBar, bool) {
    let told = if theirs.len() == mine.len() { change(metric, theirs, mine, method) } else { None };
    let apart = told
        .is_some_and(|change| !matches!(change.judgement, Judgement::CannotTell | Judgement::Same));
    let before = Estimate::from_values(theirs.to_vec());
    let bar = told.and_then(|change| {
        let base = before?.median;
        let bar = change.error_bar?.moved(base);
        Some(bar.around(now, base + change.difference, method.possible))
    });
    let none = ErrorBar::new(now, ErrorParts::default(), method.possible);
    (before, bar.unwrap_or(none), apart)
}

impl Asked<'_> {
    fn found(&self, subject: &str, outcome: GateOutcome, got: String) -> Gated {
        Gated {
            gate: self.gate.to_string(),
            scheduler: self.row.scheduler.clone(),
            variant: self.row.variant.clone(),
            subject: subject.to_owned(),
            outcome,
            got,
        }
    }

    /// An entry for each subject that the gate covers; at least one.
    fn all(&self, trusted: bool) -> Vec<Gated> {
        let covered =
            self.row.subjects.iter().filter(|subject| self.gate.gate.covers(&subject.name));
        let judged: Vec<Gated> =
            covered.filter_map(|subject| self.judge(subject, trusted)).collect();
        if !judged.is_empty() {
            return judged;
        }
        let name = self.gate.gate.subject.as_deref().unwrap_or_default();
        let got = format!("{} was not measured: nothing was counted", self.gate.gate.metric);
        vec![self.found(name, GateOutcome::CannotSay, got)]
    }

    /// `None`: the subject has no such number.
    fn judge(&self, subject: &Subject, trusted: bool) -> Option<Gated> {
        let metric = self.gate.gate.metric;
        let measured =
            self.own.iter().find_map(|run| run.measured.find(subject.kind, &subject.name))?;
        let method = self.errors.method(measured, metric);
        let (interval, method) =
            Found::of_runs(self.own, subject.kind, &subject.name).with_tail(metric, method);
        let of = |runs: &[Run]| -> Vec<f64> {
            let values = values(runs, subject.kind, &subject.name, metric).into_iter();
            values.map(|value| method.anchored(metric, value)).collect()
        };
        let mine = of(self.own);
        let now = Estimate::from_values(mine.clone())?;
        // A change is of two percentiles; a value has an interval of its own.
        let mut lacks = if self.gate.relative() { self.few(subject, metric) } else { None };
        if method.merges {
            lacks = Some(
                "several requests share an activation, so that activations are no measure of \
                 work: the client's own count (--client-log) is"
                    .to_owned(),
            );
        }
        if !trusted {
            lacks = Some("the simulation does not reproduce the recording".to_owned());
        }
        let (before, bar, told_apart) = if self.gate.relative() {
            against(metric, &of(self.base), &mine, (now.median, method))
        } else {
            (None, method.bar(metric, now.median, &now), true)
        };
        let mut evidence = Evidence {
            before: before.map(|before| before.median),
            after: Some(now.median),
            told_apart,
            lacks: lacks.as_deref(),
        };
        let open = match self.gate.gate.bound {
            Bound::Value(bound) => open(metric, bound, &bar, interval.as_ref()),
            _ => None,
        };
        evidence.lacks = evidence.lacks.or(open.as_deref());
        let mut outcome = self.gate.gate.judge(&evidence);
        let depends = self.by_timing(subject, method, outcome);
        if depends.is_some() {
            (outcome, evidence.lacks) = (GateOutcome::CannotSay, depends.as_deref());
        }
        let mut got = metric.show(now.median);
        if let Some(before) = before {
            got = format!("{} -> {got}", metric.show(before.median));
        }
        got += &bar.beside(metric);
        if outcome == GateOutcome::CannotSay {
            let why = match (self.gate.relative(), before) {
                (true, None) => "it has no such number in the row that the change is counted from",
                _ => "the change is not larger than its error",
            };
            got += &format!(": {}", evidence.lacks.unwrap_or(why));
        }
        Some(self.found(&subject.name, outcome, got))
    }

    /// Why a gate about a number that depends on timing cannot be judged: with other ticks or
    /// prices it would be judged otherwise.
    fn by_timing(
        &self,
        subject: &Subject,
        method: MethodError,
        outcome: GateOutcome,
    ) -> Option<String> {
        let ((timing, row, base), metric) = (self.timing, self.gate.gate.metric);
        let number = (subject.kind, &*subject.name, metric);
        let of_base = || timing.range(base, self.base, number).filter(|_| self.gate.relative());
        let (low, high) = timing.range(row, self.own, number).or_else(of_base)?;
        let of = |row: usize, runs: &'_ [Run], way: usize| -> Vec<f64> {
            let tried = timing.tries(row).get(way).map_or(runs, Vec::as_slice);
            let values = values(tried, subject.kind, &subject.name, metric).into_iter();
            values.map(|value| method.anchored(metric, value)).collect()
        };
        let otherwise = |way: usize| {
            let (mine, theirs) = (of(row, self.own, way), of(base, self.base, way));
            let Some(now) = Estimate::from_values(mine.clone()) else { return false };
            let (before, told_apart) = match self.gate.relative() {
                true => {
                    let (before, _, apart) = against(metric, &theirs, &mine, (now.median, method));
                    (before.map(|before| before.median), apart)
                }
                false => (None, true),
            };
            let after = Some(now.median);
            let evidence = Evidence { before, after, told_apart, lacks: None };
            let judged = self.gate.gate.judge(&evidence);
            judged != GateOutcome::CannotSay && judged != outcome
        };
        let ways = timing.tries(row).len().max(timing.tries(base).len());
        let open = outcome != GateOutcome::CannotSay && (0..ways).any(otherwise);
        open.then(|| {
            let (low, high) = (metric.show(low), metric.show(high));
            format!("it depends on timing ({low} to {high} with other ticks and prices)")
        })
    }

    /// Why a percentile of so few samples says nothing.
    fn few(&self, subject: &Subject, metric: Metric) -> Option<String> {
        let (quantity, stat) = percentile::quantity(metric)?;
        if !matches!(stat, Stat::Percentile(_)) {
            return None;
        }
        let samples = |run: &Run| {
            let found = run.measured.find(subject.kind, &subject.name);
            found.map_or(0, |found| {
                found.buckets(quantity).iter().map(|(_, count)| count).sum::<u64>()
            })
        };
        let runs = if self.gate.relative() { self.base } else { &[] };
        let least = self.own.iter().chain(runs).map(samples).min().unwrap_or(0);
        few_samples(stat, [least, least])
    }
}

/// Why a value cannot be judged against `bound`: the bound lies within the error, or within the
/// interval of the percentile.
pub(crate) fn open(
    metric: Metric,
    bound: f64,
    bar: &ErrorBar,
    interval: Option<&Interval>,
) -> Option<String> {
    if bar.holds(bound) {
        let most = bar.largest.map_or("", |part| part.def().name);
        return Some(format!(
            "the bound lies within the error, of which {most} is the largest part"
        ));
    }
    // The order statistics of a factor are in it.
    let (interval, error) = (interval.filter(|_| !bar.factors)?, bar.error());
    let below = interval.high.is_some_and(|high| high + error < bound);
    let above = interval.low.is_some_and(|low| low - error > bound);
    if below || above {
        return None;
    }
    let end = |end: Option<f64>, without: &str| {
        end.map_or_else(|| without.to_owned(), |ns| metric.show(ns))
    };
    Some(format!(
        "of {} values, the percentile lies between {} and {} with 95 %, and the bound too",
        interval.samples,
        end(interval.low, "0"),
        end(interval.high, "no known end")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_named_before_and_after() {
        let parts = |text: &str| {
            let RowGate { row, gate, against, .. } = RowGate::parse(text).unwrap();
            (row, gate.subject.unwrap(), against)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(parts("web latency p99 > 1ms"), (None, "web".to_owned(), None));
        assert_eq!(
            parts("batch idle: web latency p99 > +20% against as recorded"),
            (some("batch idle"), "web".to_owned(), some("as recorded"))
        );
        assert_eq!(
            parts("linux-6.18:base_slice_ns=6ms: kworker/0:1 share > 5%"),
            (some("linux-6.18:base_slice_ns=6ms"), "kworker/0:1".to_owned(), None)
        );
        for (text, expected) in [
            ("web latency p99 > 1ms against other", "`against` needs a change"),
            ("web latency p99 > +5% against ", "names no variant"),
            (": web latency p99 > 1ms", "names no variant"),
            ("latency p99 > 1ms", "no task"),
            ("", "no <"),
        ] {
            let error = RowGate::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
