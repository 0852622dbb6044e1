//! What the finished runs of a comparison tell while the others run.

use super::Options;
use super::recorded::RecordedInput;
use super::serve::Served;
use crate::headline::Wanted;
use crate::measurements::{Measured, SubjectData};
use crate::metric::Metric;
use crate::variant::Variant;
use schedlab_stats::median;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// Some numbers of each row, over the runs that are finished. What a result is made of does not
/// come from here: the order in which runs end is that of the machine.
#[derive(Debug)]
pub struct Seen {
    wanted: Vec<Wanted>,
    /// By place of the row (the unchanged one is 0) and name: the values of each number.
    values: Mutex<BTreeMap<(bool, String), Row>>,
}

/// The values of each number, and how many runs gave them.
#[derive(Clone, Debug, Default)]
struct Row {
    values: Vec<Vec<f64>>,
    runs: usize,
}

/// A row as far as its runs are finished.
#[derive(Clone, PartialEq, Debug)]
pub struct SeenRow {
    /// Its name.
    pub name: String,
    /// Whether it is not the first row.
    pub is_changed: bool,
    /// Runs that are finished.
    pub runs: usize,
    /// Of each number smallest value, median and largest value; `None`: nothing was counted.
    pub numbers: Vec<Option<[f64; 3]>>,
}

/// Programs of which a first look tells at most. Chosen: the numbers of each run are searched for
/// them.
const PROGRAMS: usize = 16;

impl Seen {
    /// Of the CPU shares of the server of a question, or of the programs that its variants change:
    /// what a first look at the finished runs is about.
    pub fn of_shares(input: &RecordedInput, options: &Options) -> Seen {
        let served = options.serve.as_deref().and_then(|asked| Served::find(asked, input).ok());
        let mut names: BTreeSet<String> = input.server(served.as_ref()).into_iter().collect();
        if names.is_empty() {
            let sets = options.variants.iter().filter_map(|text| Variant::parse(text).ok());
            let clauses = sets.flat_map(|set| set.clauses);
            let tasks = clauses.flat_map(|clause| input.subject().tasks(&clause.target));
            names = tasks.map(|task| input.classes[task].clone()).collect();
        }
        let share = |subject: String| Wanted { subject, metric: Metric::Share };
        Seen::new(names.into_iter().take(PROGRAMS).map(share).collect())
    }

    /// Of these numbers.
    pub fn new(wanted: Vec<Wanted>) -> Seen {
        Seen { wanted, values: Mutex::default() }
    }

    /// Adds a run of the row at this place.
    pub(crate) fn add(&self, place: usize, name: &str, measured: &Measured) {
        let value = |wanted: &Wanted| {
            let about = |subject: &&SubjectData| {
                wanted.is_about(subject.kind, &subject.name, &subject.class)
            };
            let all = measured.subjects.iter().chain(&measured.tasks);
            all.filter(about).find_map(|subject| subject.value(wanted.metric))
        };
        let found: Vec<Option<f64>> = self.wanted.iter().map(value).collect();
        // Numbers are complete at every moment.
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let row = values.entry((place > 0, name.to_owned())).or_default();
        row.values.resize(found.len(), Vec::new());
        row.runs += 1;
        for (all, value) in row.values.iter_mut().zip(found) {
            all.extend(value);
        }
    }

    /// Returns the median of the first number of the unchanged row, and those of the others by
    /// name; `None` before a run of the unchanged row is finished.
    pub fn medians(&self) -> Option<(f64, Vec<(String, f64)>)> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let first = |row: &Row| median(row.values.first()?);
        let base = first(values.iter().find(|((other, _), _)| !other)?.1)?;
        let others = values.iter().filter(|((other, _), _)| *other);
        Some((
            base,
            others.filter_map(|((_, name), row)| Some((name.clone(), first(row)?))).collect(),
        ))
    }

    /// Returns the largest change so far of a number that is a part of a CPU:
    /// `batch idle: redis-server CPU share 49.5% -> 97.8%`. `None` before the unchanged row and
    /// another one have a finished run, and until there are twice as many as when it was told last:
    /// it looks at every row.
    pub fn first_look(&self) -> Option<String> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let runs: usize = values.values().map(|row| row.runs).sum();
        drop(values);
        if !runs.is_power_of_two() {
            return None;
        }
        let rows = self.rows();
        let base = rows.iter().find(|row| !row.is_changed)?;
        let share = |row: &SeenRow, number: usize| row.numbers[number].map(|[_, part, _]| part);
        let mut largest: Option<(f64, String)> = None;
        for row in rows.iter().filter(|row| row.is_changed) {
            for (number, wanted) in self.wanted.iter().enumerate() {
                let (Some(was), Some(is)) = (share(base, number), share(row, number)) else {
                    continue;
                };
                let change = (is - was).abs();
                let is_more = largest.as_ref().is_none_or(|(most, _)| change > *most);
                if wanted.metric == Metric::Share && is_more {
                    let (was, is) = (was * 100.0, is * 100.0);
                    let told =
                        format!("{}: {} CPU share {was:.1}% -> {is:.1}%", row.name, wanted.subject);
                    largest = Some((change, told));
                }
            }
        }
        largest.map(|(_, told)| told)
    }

    /// Returns every row of which a run is finished, the unchanged one first, the others by name.
    pub fn rows(&self) -> Vec<SeenRow> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let ends = |all: &Vec<f64>| {
            let low = all.iter().copied().min_by(f64::total_cmp)?;
            let high = all.iter().copied().max_by(f64::total_cmp)?;
            Some([low, median(all)?, high])
        };
        values
            .iter()
            .map(|((is_changed, name), row)| SeenRow {
                name: name.clone(),
                is_changed: *is_changed,
                runs: row.runs,
                numbers: row.values.iter().map(ends).collect(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_change_is_told_while_others_run() {
        let share = |subject: &str| Wanted { subject: subject.to_owned(), metric: Metric::Share };
        let seen = Seen::new(vec![share("web"), share("batch")]);
        let add = |place: usize, name: &str, values: [f64; 2]| {
            let mut rows = seen.values.lock().unwrap();
            let row = rows.entry((place > 0, name.to_owned())).or_default();
            row.values.resize(2, Vec::new());
            row.values.iter_mut().zip(values).for_each(|(all, value)| all.push(value));
            row.runs += 1;
        };
        add(0, "as recorded", [0.5, 0.4]);
        assert_eq!(seen.first_look(), None, "nothing to compare with");
        add(1, "nice", [0.6, 0.35]);
        assert_eq!(seen.first_look().as_deref(), Some("nice: web CPU share 50.0% -> 60.0%"));
        add(1, "idle", [0.75, 0.02]);
        assert_eq!(seen.first_look(), None, "one more is not twice as many");
        add(0, "as recorded", [0.5, 0.4]);
        let told = seen.first_look().unwrap();
        assert_eq!(told, "idle: batch CPU share 40.0% -> 2.0%");
    }
}
