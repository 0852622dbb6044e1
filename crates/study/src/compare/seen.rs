//! What the finished runs of a comparison tell while the others run.

use crate::headline::Wanted;
use crate::measurements::{Measured, SubjectData};
use schedlab_stats::median;
use std::collections::BTreeMap;
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

impl Seen {
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
