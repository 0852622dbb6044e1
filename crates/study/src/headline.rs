//! The headline of a comparison: the few numbers that it is about. A scenario names them; for a
//! recording they are the numbers that changed most.

use crate::measurements::{Kind, MACHINE};
use crate::metric::{Metric, MetricError, Stat};
use crate::result::{Cell, Row, Study};
use crate::view;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many figures a headline that schedlab chooses has at most.
const FIGURES: usize = 4;

/// One number of a headline.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Figure {
    /// What its subject is.
    pub kind: Kind,
    /// The subject's name.
    pub subject: String,
    /// What is counted.
    pub metric: Metric,
}

impl Figure {
    /// Returns its cell in a row.
    pub fn cell<'a>(&self, row: &'a Row) -> Option<&'a Cell> {
        row.find(self.kind, &self.subject)?.cell(self.metric)
    }

    /// Returns the subject as a heading has it.
    pub fn subject(&self) -> &str {
        match self.kind {
            Kind::Machine => "the machine",
            _ => &self.subject,
        }
    }

    /// Returns the metric as a heading of its own has it.
    pub fn heading(&self) -> String {
        match (self.kind, self.metric) {
            (Kind::Source | Kind::Channel, Metric::Throughput) => "requests/s".to_owned(),
            (Kind::Class | Kind::Task, Metric::Latency(stat)) => format!("run-queue {stat}"),
            _ => self.metric.heading(),
        }
    }
}

/// One number that a scenario names: `clients response p99`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// A task, class, source or channel, or `machine`.
    pub subject: String,
    /// What is counted.
    pub metric: Metric,
}

impl Wanted {
    /// Reads `SUBJECT METRIC`. A statistic alone (`mean`) is another number of the distribution
    /// before it.
    ///
    /// # Errors
    /// What is wrong, as text.
    pub fn parse(text: &str, before: Option<&Wanted>) -> Result<Wanted, String> {
        if let (Ok(stat), Some(before)) = (text.trim().parse::<Stat>(), before) {
            let metric = before.metric.with(stat).ok_or_else(|| {
                format!("`{text}`: {} before it is one number, not a distribution", before.metric)
            })?;
            return Ok(Wanted { metric, subject: before.subject.clone() });
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut fault = None;
        // The metric is the last word or the last two; a name may have spaces.
        for of_metric in [2, 1] {
            let Some(at) = words.len().checked_sub(of_metric).filter(|at| *at > 0) else {
                continue;
            };
            match words[at..].join(" ").parse::<Metric>() {
                Ok(metric) => return Ok(Wanted { subject: words[..at].join(" "), metric }),
                Err(error @ (MetricError::Stat(_) | MetricError::OneNumber(..))) => {
                    fault.get_or_insert(error.to_string());
                }
                Err(error) => fault = fault.or(Some(error.to_string())),
            }
        }
        let fault = fault.map(|fault| format!(": {fault}")).unwrap_or_default();
        Err(format!("`{text}` is not SUBJECT METRIC, such as \"clients response p99\"{fault}"))
    }

    /// Whether it may be about the subject of this kind, name and class.
    pub(crate) fn is_about(&self, kind: Kind, name: &str, class: &str) -> bool {
        match kind {
            Kind::Machine => self.subject == "machine",
            _ => self.subject == name || kind == Kind::Task && self.subject == class,
        }
    }

    /// Returns the figures that it means in this table: one, or one for each task of a class that
    /// has no row of its own.
    pub(crate) fn figures(&self, base: &Row) -> Vec<Figure> {
        let named = |kind: Kind| {
            let name = if kind == Kind::Machine { MACHINE } else { &self.subject };
            let wanted = kind != Kind::Machine || self.subject == "machine";
            base.find(kind, name).filter(|_| wanted)
        };
        let kinds = [Kind::Machine, Kind::Source, Kind::Channel, Kind::Class, Kind::Task];
        // A source and a channel that it feeds may have one name: the one that has the number is
        // meant.
        let has =
            |kind: &Kind| named(*kind).is_some_and(|subject| subject.cell(self.metric).is_some());
        let kind = kinds
            .into_iter()
            .find(has)
            .or_else(|| kinds.into_iter().find(|kind| named(*kind).is_some()));
        let figure =
            |kind, name: &str| Figure { kind, subject: name.to_owned(), metric: self.metric };
        match kind.and_then(named) {
            Some(subject) => vec![figure(subject.kind, &subject.name)],
            None => Vec::new(),
        }
    }
}

/// Returns the headline: what the scenario names, else what changed most.
pub(crate) fn headline(study: &Study, wanted: &[Wanted]) -> Vec<Figure> {
    let Some(base) = study.rows.first() else { return Vec::new() };
    let named: Vec<Figure> = wanted.iter().flat_map(|wanted| wanted.figures(base)).collect();
    if !named.is_empty() {
        return named;
    }
    let mut figures = of_server(study, base);
    let others = automatic(study, base);
    figures.extend(others.into_iter().filter(|other| !figures.contains(other)).collect::<Vec<_>>());
    figures.truncate(FIGURES);
    figures
}

/// The numbers of the server that was asked about, its latency first: of a guest its steal,
/// response times where they are predicted, else how late it gets a CPU.
fn of_server(study: &Study, base: &Row) -> Vec<Figure> {
    let classes = study.served.iter().flat_map(|served| &served.classes);
    let shares = |name: &&String| {
        base.find(Kind::Class, name)?.cell(Metric::Share).map(|cell| cell.value.median)
    };
    // Of a server of several programs the one that works most.
    let most =
        classes.filter_map(|name| Some((name, shares(&name)?))).max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((name, subject)) =
        most.and_then(|(name, _)| Some((name, base.find(Kind::Class, name)?)))
    else {
        return Vec::new();
    };
    let p99 = Stat::Percentile(99_000);
    let is_predicted =
        |metric: &Metric| subject.cell(*metric).is_some_and(|cell| cell.error_bar.is_some());
    let late = [Metric::Steal, Metric::Response(p99), Metric::Latency(p99)];
    let latency = late.into_iter().find(is_predicted);
    let figures = latency.into_iter().chain([Metric::Share]);
    figures.map(|metric| Figure { kind: Kind::Class, subject: name.clone(), metric }).collect()
}

/// One number, or two of clients, of each subject that matters: those that finish work first, of
/// these those that gain. Tasks without end take what is left of the CPU, so their gain alone is no
/// reason for a setting.
fn automatic(study: &Study, base: &Row) -> Vec<Figure> {
    let tellings = crate::compare::tellings(study);
    let (subjects, _) = view::by_importance(study);
    let mut figures: Vec<((bool, bool), Figure)> = Vec::new();
    for (kind, name) in subjects {
        if view::is_own(&name) || kind == Kind::Machine {
            continue;
        }
        let Some(subject) = base.find(kind, &name) else { continue };
        let of: Vec<_> =
            tellings.iter().filter(|t| t.subject.kind == kind && t.subject.name == name).collect();
        let most = of.iter().map(|t| t.size).fold(0.0, f64::max);
        let told =
            of.iter().filter(|t| t.size >= most / 2.0).map(|t| t.cell.metric).min_by_key(felt);
        let metrics = match kind {
            Kind::Source | Kind::Channel => {
                vec![Metric::Throughput, Metric::Response(Stat::Percentile(99_000))]
            }
            _ => vec![told.unwrap_or(Metric::Share)],
        };
        let gains = of.iter().any(|t| t.better);
        let endless = subject.cell(Metric::Throughput).is_none_or(|cell| cell.value.median == 0.0);
        for metric in metrics.into_iter().filter(|metric| subject.cell(*metric).is_some()) {
            figures.push(((endless, !gains), Figure { kind, subject: name.clone(), metric }));
        }
    }
    figures.sort_by_key(|(place, _)| *place);
    figures.into_iter().map(|(_, figure)| figure).take(FIGURES).collect()
}

/// The place of a metric in the order in which users feel them.
fn felt(metric: &Metric) -> usize {
    crate::compare::FELT.iter().position(|felt| felt == metric).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statistic_alone_goes_on_from_the_number_before() {
        let first = Wanted::parse("the clients response p99", None).unwrap();
        assert_eq!(
            (first.subject.as_str(), first.metric.to_string().as_str()),
            ("the clients", "response p99")
        );
        let second = Wanted::parse("mean", Some(&first)).unwrap();
        assert_eq!(
            (second.subject, second.metric.to_string()),
            ("the clients".to_owned(), "response mean".to_owned())
        );
        let share = Wanted::parse("sysbench share", None).unwrap();
        assert_eq!(share.metric, Metric::Share);
        assert!(Wanted::parse("mean", Some(&share)).unwrap_err().contains("one number"));
    }

    #[test]
    fn refusals_teach() {
        for (text, part) in [
            ("mean", "SUBJECT METRIC"),
            ("clients", "SUBJECT METRIC"),
            ("clients latncy p99", "did you mean `latency`"),
            ("clients latency", "which number of the distribution"),
            ("", "SUBJECT METRIC"),
        ] {
            let error = Wanted::parse(text, None).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
