//! What the finished runs of a comparison tell while the others run.

use crate::headline::Wanted;
use crate::measurements::{Measured, SubjectData};
use schedlab_stats::median;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// One number of each row, over the runs that are finished. What a result is made of does not come
/// from here: the order in which runs end is that of the machine.
#[derive(Debug)]
pub struct Seen {
    wanted: Wanted,
    /// By place of the row (the unchanged one is 0) and name.
    values: Mutex<BTreeMap<(bool, String), Vec<f64>>>,
}

impl Seen {
    /// Of this number.
    pub fn new(wanted: Wanted) -> Seen {
        Seen { wanted, values: Mutex::default() }
    }

    /// Adds a run of the row at this place.
    pub(crate) fn add(&self, place: usize, name: &str, measured: &Measured) {
        let about = |subject: &&SubjectData| {
            self.wanted.is_about(subject.kind, &subject.name, &subject.class)
        };
        let all = measured.subjects.iter().chain(&measured.tasks);
        let value = all.filter(about).find_map(|subject| subject.value(self.wanted.metric));
        if let Some(value) = value {
            // Numbers are complete at every moment.
            let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
            values.entry((place > 0, name.to_owned())).or_default().push(value);
        }
    }

    /// Returns the median of the unchanged row, and those of the others by name; `None` before a
    /// run of the unchanged row is finished.
    pub fn medians(&self) -> Option<(f64, Vec<(String, f64)>)> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let base = median(values.iter().find(|((other, _), _)| !other)?.1)?;
        let others = values.iter().filter(|((other, _), _)| *other);
        Some((
            base,
            others.filter_map(|((_, name), all)| Some((name.clone(), median(all)?))).collect(),
        ))
    }
}
