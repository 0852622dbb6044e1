//! The figures of an experiment, by row and metric: published, this machine, simulated.

use schedlab_model::Ns;
use schedlab_stats::{BootstrapInterval, Difference};
use schemars::JsonSchema;
use serde::Serialize;

/// The unit of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Nanoseconds.
    Time,
    /// A part of one CPU, or of something else: 0.5 is half.
    Share,
    /// Per second.
    PerSecond,
    /// A plain number.
    Count,
    /// Seconds.
    Seconds,
}

impl Unit {
    /// Returns `value` with its unit, as it is printed.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Time => {
                let ns = Ns(value.abs().round() as u64);
                let short = match ns.0 {
                    0..1_000 => ns.to_string(),
                    1_000..1_000_000 => format!("{:.1}us", ns.0 as f64 / 1e3),
                    1_000_000..1_000_000_000 => format!("{:.2}ms", ns.0 as f64 / 1e6),
                    _ => format!("{:.2}s", ns.0 as f64 / 1e9),
                };
                if value < 0.0 { format!("-{short}") } else { short }
            }
            Unit::Share => format!("{:.1}%", value * 100.0),
            Unit::PerSecond => format!("{value:.0}/s"),
            Unit::Count => format!("{value:.1}"),
            Unit::Seconds => format!("{value:.3}s"),
        }
    }
}

/// A figure that every row has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
}

/// One figure of one row.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
#[schemars(rename = "Line")]
pub struct FigureLine {
    /// The row.
    pub row: String,
    /// The figure.
    pub figure: Figure,
    /// The published value.
    #[serde(rename = "article")]
    pub published: Option<f64>,
    /// The value on this machine, over the rounds.
    pub machine: Option<BootstrapInterval>,
    /// The rounds, in the order in which they were measured.
    pub rounds: Vec<f64>,
    /// The value in the simulator.
    pub simulated: Option<f64>,
    /// The change against the row that the others are compared with.
    pub against: Option<Against>,
}

/// A change against another row, on this machine.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Against {
    /// That row.
    pub row: String,
    /// The change.
    pub difference: Difference,
}

/// A table.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Sheet {
    /// What it shows.
    pub title: String,
    /// What the published column is.
    pub source: String,
    /// The figures of each row, in one order.
    pub lines: Vec<FigureLine>,
}

/// The values of all rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct Collected {
    values: Vec<(String, Figure, Vec<f64>)>,
}

impl Collected {
    /// Adds the value of a round.
    pub(super) fn add(&mut self, row: &str, figure: Figure, value: Option<f64>) {
        let Some(value) = value.filter(|value| value.is_finite()) else { return };
        match self.values.iter_mut().find(|(name, known, _)| name == row && *known == figure) {
            Some((_, _, values)) => values.push(value),
            None => self.values.push((row.to_owned(), figure, vec![value])),
        }
    }

    /// Returns the values of a row so far.
    pub(super) fn values(&self, row: &str, figure: Figure) -> &[f64] {
        let found = self.values.iter().find(|(name, known, _)| name == row && *known == figure);
        found.map_or(&[], |(_, _, values)| values)
    }

    /// Returns the median of a row.
    pub(super) fn median(&self, row: &str, figure: Figure) -> Option<f64> {
        schedlab_stats::median(self.values(row, figure))
    }

    /// Returns the lines of `rows`, each against `base`.
    pub(super) fn lines(
        &self,
        rows: &[&str],
        figures: &[Figure],
        base: &str,
        published: &dyn Fn(&str, &str) -> Option<f64>,
        simulated: &dyn Fn(&str, &str) -> Option<f64>,
        seed: u64,
    ) -> Vec<FigureLine> {
        let mut lines = Vec::new();
        for row in rows {
            for &figure in figures {
                let rounds = self.values(row, figure);
                let difference =
                    schedlab_stats::difference(self.values(base, figure), rounds, seed)
                        .filter(|_| *row != base);
                let line = FigureLine {
                    row: (*row).to_owned(),
                    figure,
                    published: published(row, figure.name),
                    machine: schedlab_stats::interval(rounds, seed),
                    rounds: rounds.to_vec(),
                    simulated: simulated(row, figure.name),
                    against: difference
                        .map(|difference| Against { row: base.to_owned(), difference }),
                };
                if line.published.is_some() || line.machine.is_some() || line.simulated.is_some() {
                    lines.push(line);
                }
            }
        }
        lines
    }

    /// Returns a line for each figure that drifts, and one for each row with figures of which a
    /// round is far from the others.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        let mut far: Vec<(&str, Vec<String>)> = Vec::new();
        for (row, figure, values) in &self.values {
            if let Some(way) = schedlab_stats::trend(values) {
                all.push(format!(
                    "{row}, {} {way} from round to round: the machine changed meanwhile",
                    figure.name
                ));
            }
            let rounds: Vec<String> =
                schedlab_stats::odd_rounds(values).iter().map(usize::to_string).collect();
            if rounds.is_empty() {
                continue;
            }
            let text = format!("{} ({})", figure.name, rounds.join(", "));
            match far.iter_mut().find(|(name, _)| name == row) {
                Some((_, figures)) => figures.push(text),
                None => far.push((row, vec![text])),
            }
        }
        let line = |(row, figures): (&str, Vec<String>)| {
            format!(
                "{row}: figures with a round (its number) far from the others: {}",
                figures.join(", ")
            )
        };
        all.extend(far.into_iter().map(line));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P99: Figure = Figure { name: "p99", unit: Unit::Time };

    #[test]
    fn values_are_printed_with_their_units() {
        assert_eq!(Unit::Time.show(4_130_000.0), "4.13ms");
        assert_eq!(Unit::Time.show(-1500.0), "-1.5us");
        assert_eq!(Unit::Share.show(0.498), "49.8%");
        assert_eq!(Unit::PerSecond.show(2408.4), "2408/s");
    }

    #[test]
    fn lines_are_compared_with_the_base() {
        let mut collected = Collected::default();
        for value in [1.0, 2.0, 3.0, 4.0, 5.0] {
            collected.add("a", P99, Some(value));
            collected.add("b", P99, Some(value + 100.0));
            collected.add("c", P99, None);
        }
        let published = |row: &str, _: &str| (row == "a").then_some(7.0);
        let lines = collected.lines(&["a", "b", "c"], &[P99], "a", &published, &|_, _| None, 1);
        assert_eq!(lines.len(), 2, "nothing is known of c");
        assert_eq!((lines[0].published, lines[0].against.is_none()), (Some(7.0), true));
        let against = lines[1].against.clone().unwrap();
        assert!(against.difference.told_apart && against.difference.median == 100.0);
    }

    #[test]
    fn rounds_far_off_are_named_once_for_a_row() {
        let mut collected = Collected::default();
        for value in [5.0, 1.0, 4.0, 2.0, 3.0, 50.0] {
            collected.add("a", P99, Some(value));
            collected.add("a", Figure { name: "max", unit: Unit::Time }, Some(value));
        }
        (0..8).for_each(|value| collected.add("b", P99, Some(f64::from(value))));
        let far = "a: figures with a round (its number) far from the others: p99 (6), max (6)";
        let told = collected.warnings();
        assert!(
            told[0].starts_with("b, p99 rises") && told[1] == far && told.len() == 2,
            "{told:?}"
        );
    }
}
