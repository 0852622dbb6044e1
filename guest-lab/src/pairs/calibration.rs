//! How often intervals hold that are stated at more or less than 95 %.

use super::{Figure, Summary};

/// Levels in per cent, and how wide such an interval is, as a part of that of 95 %: by the normal
/// distribution.
const LEVELS: [(u32, f64); 5] = [
    (50, 0.674_489_750 / WIDTH),
    (80, 1.281_551_566 / WIDTH),
    (90, 1.644_853_627 / WIDTH),
    (95, 1.0),
    (99, 2.575_829_304 / WIDTH),
];
const WIDTH: f64 = 1.959_963_985;
/// With what the sentence begins, which is read again from a page.
const BEGIN: &str = "Inside an interval of 50, 80, 90, 95 and 99 %: ";

/// How many figures lie inside an interval of each level, and how many there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// By level.
    pub inside: [usize; 5],
    /// All.
    pub figures: usize,
}

impl Held {
    /// Counts a figure.
    pub(super) fn count(&mut self, figure: &Figure) {
        self.figures += 1;
        for (inside, (_, scale)) in self.inside.iter_mut().zip(LEVELS) {
            *inside += usize::from(holds(figure, scale));
        }
    }

    /// Reads what is below a table.
    pub(super) fn of_table(table: &str) -> Held {
        let line = table.lines().find_map(|line| line.split_once(BEGIN)).map_or("", |(_, of)| of);
        let numbers = line.split(|c: char| !c.is_ascii_digit());
        let numbers: Vec<usize> = numbers.filter_map(|word| word.parse().ok()).collect();
        let at = |index: usize| numbers.get(index).copied().unwrap_or_default();
        Held { inside: std::array::from_fn(at), figures: at(LEVELS.len()) }
    }

    /// Adds others.
    pub(super) fn add(&mut self, other: Held) {
        self.figures += other.figures;
        self.inside.iter_mut().zip(other.inside).for_each(|(sum, other)| *sum += other);
    }

    /// Returns it as cells of a table: of each level the part that lies inside.
    pub(super) fn cells(self) -> String {
        let part = |inside: usize| inside as f64 * 100.0 / self.figures.max(1) as f64;
        let cells = self.inside.map(|inside| format!(" {:.0} % |", part(inside)));
        format!(" {} |{}", self.figures, cells.concat())
    }
}

/// Whether what came lies inside an interval that is so much as wide as the one that is stated.
fn holds(figure: &Figure, scale: f64) -> bool {
    let Some(bar) = figure.error else { return false };
    let (value, came) = (figure.predicted, figure.after);
    let apart = |one: f64, other: f64| match bar.factors {
        // The clock's nanosecond is the shortest time.
        true => (one.max(1.0) / other.max(1.0)).ln().abs(),
        false => (one - other).abs(),
    };
    let end = if came < value { bar.low } else { bar.high };
    // A billionth is the rounding of floats.
    apart(came, value) <= apart(end, value) * scale * (1.0 + 1e-9)
}

impl Summary {
    /// Returns a sentence: how many figures lie inside an interval of each level.
    pub fn calibration(&self) -> String {
        let [a, b, c, d, e] = self.at_levels.inside;
        format!("{BEGIN}{a}, {b}, {c}, {d} and {e} of {} figures.", self.at_levels.figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_study::change::Judgement;
    use schedlab_study::error_parts::{ErrorBar, ErrorParts, Possible};
    use schedlab_study::metric::Metric;

    fn figure(after: f64, error: ErrorBar) -> Figure {
        Figure {
            class: "web".to_owned(),
            metric: Metric::Share,
            before: 0.5,
            after,
            predicted: 0.5,
            error: Some(error),
            replayed: None,
            judgement: Judgement::Same,
        }
    }

    #[test]
    fn an_interval_of_half_the_level_is_a_third_as_wide() {
        let parts = ErrorParts { drift: 0.2, ..ErrorParts::default() };
        let bar = ErrorBar::new(0.5, parts, Possible::default());
        let mut held = Held::default();
        for after in [0.5, 0.55, 0.35, 0.69, 0.75, 0.9] {
            held.count(&figure(after, bar));
        }
        assert_eq!((held.inside, held.figures), ([2, 2, 3, 4, 5], 6));
        let summary = Summary { at_levels: held, ..Summary::default() };
        let table = format!("| a |\n\n* {}\n", summary.calibration());
        assert_eq!(Held::of_table(&table), held);
        assert_eq!(held.cells(), " 6 | 33 % | 33 % | 50 % | 67 % | 83 % |");
    }
}
