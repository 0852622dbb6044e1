//! The result of a comparison of a recording, from what was played.

use super::observe::Keep;
use super::part::Window;
use super::recorded::RecordedInput;
use super::replaying::measured_by;
use super::row_errors::RowErrors;
use super::scenario::costs;
use super::timing::Timing;
use super::trust::against;
use super::{Numbers, Options, rows};
use crate::StudyError;
use crate::measurements::Measured;
use crate::no_effect::{self, Known};
use crate::result::{Detail, Input, InputKind, Prediction, SCHEMA, Study};
use crate::run::{RowPlan, Run};
use crate::together::Together;
use schedlab_model::Ns;
use schedlab_trace::Header;
use std::path::PathBuf;

/// What was played, row by row.
pub(super) struct Played<'a> {
    pub(super) plans: &'a [RowPlan],
    /// Of each row those of all seeds.
    pub(super) runs: &'a [Vec<Run>],
    pub(super) errors: &'a RowErrors,
    /// What other ticks and prices gave.
    pub(super) timing: &'a Timing,
}

impl RecordedInput {
    fn described(&self) -> Input {
        Input {
            kind: InputKind::Recording,
            name: schedlab_model::text::shown(&self.path().display().to_string()).into_owned(),
            title: title(&self.header),
            cpus: self.replay.topology.cpus(),
            hz: self.hz(),
            window_ns: self.window.map(|(from, to)| [from.0, to.0]),
        }
    }

    /// Returns the result but for what is found from it: how good the replay is, gates, headline
    /// and verdict.
    pub(super) fn study(
        &self,
        played: &Played<'_>,
        options: &Options,
        notes: Vec<String>,
        seeds: Vec<u64>,
    ) -> Result<Study, StudyError> {
        let Played { plans, runs, errors, timing } = *played;
        let numbers = Numbers::new(options, &[]);
        let mut rows =
            rows(plans, runs, &self.classes, &|task| self.task_name(task), errors, numbers);
        no_effect::add_to(&mut rows, plans, self.known(&|task| self.share(task)));
        timing.add_to(&mut rows, runs);
        Ok(Study {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            input: self.described(),
            duration_ns: self.replay.duration.0,
            warmup_ns: 0,
            verdict: Default::default(),
            headline: Vec::new(),
            detail: None,
            unfinished: 0,
            self_replay: None,
            served: None,
            guess: None,
            predictions: predictions(played, &options.checks, self.by)?,
            rows,
            expectations: Vec::new(),
            gates: Vec::new(),
            notes,
            costs: costs(&self.costs()),
            fitted: Vec::new(),
            sections: Vec::new(),
            seeds,
        })
    }

    /// Returns what a page shows behind the numbers.
    pub(super) fn detailed(
        &self,
        study: &Study,
        runs: &[Vec<Run>],
        keep: &Keep,
        was: &Measured,
    ) -> Result<Detail, StudyError> {
        let mut detail = Detail::from_runs(study, runs, self.names(), Some(was));
        let window = self.window.map_or_else(Window::default, Window::between);
        detail.observed(study, runs, keep, Some((self.path(), &window)))?;
        Ok(detail)
    }

    /// Returns the part of one CPU that a task had while it was recorded.
    pub(crate) fn share(&self, task: usize) -> f64 {
        let run = self.summary.tasks.get(task).map_or(Ns::ZERO, |task| task.run);
        run.0 as f64 / self.summary.window.0.max(1) as f64
    }

    /// Returns what is known of the tasks, with their parts of one CPU.
    pub(crate) fn known<'a>(&'a self, share: &'a dyn Fn(usize) -> f64) -> Known<'a> {
        Known { classes: &self.classes, share }
    }

    /// Returns each task's name and class.
    fn names(&self) -> Vec<(String, String)> {
        (0..self.classes.len())
            .map(|task| (self.task_name(task), self.classes[task].clone()))
            .collect()
    }
}

fn title(header: &Header) -> String {
    match (header.note.is_empty(), header.command.is_empty()) {
        (false, _) => header.note.clone(),
        (true, false) => header.command.join(" "),
        (true, true) => String::new(),
    }
}

/// What was predicted for a variant against a recording of it.
fn predictions(
    &Played { plans, runs, errors, .. }: &Played<'_>,
    checks: &[(String, PathBuf)],
    by: Together,
) -> Result<Vec<Prediction>, StudyError> {
    let mut predictions = Vec::new();
    for (variant, path) in checks {
        let Some(row) = plans.iter().position(|plan| plan.variant == *variant) else {
            let mut names: Vec<&str> = plans.iter().map(|plan| plan.variant.as_str()).collect();
            names.dedup();
            let names = names.join(", ");
            let text = format!(
                "--check '{variant}=...': there is no variant `{variant}`; there are: {names}"
            );
            return Err(StudyError::Option(text));
        };
        let was = measured_by(path, by)?;
        predictions.push(Prediction {
            variant: variant.clone(),
            scheduler: plans[row].label.clone(),
            file: path.display().to_string(),
            subjects: against(&was, &runs[row], Some(errors.row(row))),
        });
    }
    Ok(predictions)
}
