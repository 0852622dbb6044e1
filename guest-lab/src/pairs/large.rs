//! Changes that a person would ask about, and how many of them the predictions told.

use super::{Figure, PairResult, Summary};
use schedlab_study::change::Judgement;
use schedlab_study::metric::{Metric, Unit};

/// A change after which a person would ask, whatever a prediction says of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LargeChange {
    /// A CPU share changed by more than 10 points.
    Share,
    /// A rate changed by more than a fifth.
    Rate,
    /// A time changed by more than half.
    Time,
}

impl LargeChange {
    /// Returns what a figure's change is; `None`: it was not large.
    fn of_figure(figure: &Figure) -> Option<LargeChange> {
        let size = (figure.after - figure.before).abs();
        let (kind, least) = match figure.metric {
            Metric::Share => (LargeChange::Share, 0.1),
            metric if metric.unit() == Unit::Time => (LargeChange::Time, figure.before * 0.5),
            _ => (LargeChange::Rate, figure.before * 0.2),
        };
        (size > least).then_some(kind)
    }

    /// Returns it in words.
    const fn text(self) -> &'static str {
        match self {
            LargeChange::Share => "Shares that changed by more than 10 points",
            LargeChange::Rate => "Rates that changed by more than a fifth",
            LargeChange::Time => "Times (p99) that changed by more than half",
        }
    }
}

/// What predictions say of large changes: of untrusted pairs nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// Changes that came.
    pub came: usize,
    /// Told in the direction in which they came.
    pub right: usize,
    /// Told in the other direction.
    pub wrong: usize,
}

impl Told {
    /// Reads what is said below a table of each kind of large change.
    pub(super) fn of_table(table: &str) -> [Told; 3] {
        [LargeChange::Share, LargeChange::Rate, LargeChange::Time].map(|large| {
            let line = table.lines().find(|line| line.contains(large.text()));
            let numbers = line.and_then(|line| line.rsplit_once(large.text())).map(|(_, rest)| {
                rest.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok())
            });
            let numbers: Vec<usize> = numbers.into_iter().flatten().collect();
            let at = |index: usize| numbers.get(index).copied().unwrap_or_default();
            Told { came: at(0), right: at(1), wrong: at(2) }
        })
    }

    /// Adds others.
    pub(super) fn add(&mut self, other: Told) {
        self.came += other.came;
        self.right += other.right;
        self.wrong += other.wrong;
    }

    /// Returns it as a cell of a table.
    pub(super) fn cell(self) -> String {
        format!(" {} of {}, {} |", self.right, self.came, self.wrong)
    }
}

impl Summary {
    /// Counts the large changes of a pair, and those that its prediction told.
    pub(super) fn count_large(&mut self, result: &PairResult) {
        let predicted = result.figures.iter().filter(|figure| figure.error.is_some());
        for (figure, large) in
            predicted.filter_map(|figure| Some((figure, LargeChange::of_figure(figure)?)))
        {
            let told = self.told.entry(large).or_default();
            let claims = result.distrust.is_empty()
                && matches!(figure.judgement, Judgement::Better | Judgement::Worse);
            told.came += 1;
            told.right += usize::from(claims && !figure.is_wrong());
            told.wrong += usize::from(claims && figure.is_wrong());
        }
    }

    /// Returns a sentence for each kind of large change: how many came, and how many were told.
    pub fn large_changes(&self) -> impl Iterator<Item = String> {
        self.told.iter().map(|(large, told)| {
            format!(
                "{}: {}, of them told: {}, in the wrong direction: {}.",
                large.text(),
                told.came,
                told.right,
                told.wrong
            )
        })
    }
}
