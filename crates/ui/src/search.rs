//! Searches (`schedlab tune`) whose answer grows while a page looks.

use crate::inputs::{Failure, Inputs};
use crate::questions::{Questions, Tell, check_tab, tell_failure, text};
use schedlab_study::StudyError;
use schedlab_study::tune::{Step, TuneOptions, Tuned, tune};
use schedlab_study::workbench::search::{SearchProgress, SearchQuestion, SearchRequest};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two looks at a search. Chosen: ten pictures a second show a curve that grows.
const LOOK: Duration = Duration::from_millis(100);

/// What one search takes.
pub(crate) struct Searched<'a> {
    pub(crate) question: &'a SearchQuestion,
    request: SearchRequest,
    name: String,
}

impl<'a> Searched<'a> {
    /// Checks a search.
    pub(crate) fn new(
        question: &'a SearchQuestion,
        inputs: &Inputs,
    ) -> Result<Searched<'a>, Failure> {
        let name = inputs.name(&question.input)?;
        let request = question.request().map_err(|error| (422, error.to_string()))?;
        check_tab(&question.tab)?;
        Ok(Searched { question, request, name })
    }

    /// Searches: `progress` (a [`SearchProgress`]), and `answer` (a [`Tuned`]) or `failed` (an
    /// error). A search that is ended has the answer of what is finished, if that is one.
    pub(crate) fn run(
        &self,
        questions: &Questions,
        inputs: &Inputs,
        stop: &Arc<AtomicBool>,
        tell: Tell<'_>,
    ) {
        match self.tuned(questions, inputs, stop, tell) {
            Ok(tuned) => tell("answer", text(&tuned)),
            Err(failure) => tell_failure(tell, &failure),
        }
    }

    fn tuned(
        &self,
        questions: &Questions,
        inputs: &Inputs,
        stop: &Arc<AtomicBool>,
        tell: Tell<'_>,
    ) -> Result<Tuned, Failure> {
        let (began, last) = (Instant::now(), Mutex::new(None::<Instant>));
        let of = self.question.progress(&self.name, &self.request);
        tell("progress", text(&of));
        let id = &self.question.input;
        let reading = self.question.reading();
        let reading = (&**id, &*self.name, &*reading);
        let input = questions.input(reading, &self.request.reading, inputs, stop)?;
        let watch = |step: &Step<'_>| {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            let is_early = last.is_some_and(|last| last.elapsed() < LOOK);
            if is_early && step.done < step.all {
                return;
            }
            *last = Some(Instant::now());
            let after_ms = began.elapsed().as_millis() as u64;
            let (done, all, settings) = (step.done, step.all, step.settings());
            tell("progress", text(&SearchProgress { done, all, after_ms, settings, ..of.clone() }));
        };
        let options = TuneOptions {
            stop: Some(stop.clone()),
            keep_finished: true,
            ..self.request.options.clone()
        };
        let target = input.target(self.request.scheduler.as_ref());
        let mut tuned = tune(target, &options, &[], &watch).map_err(|error| {
            let why = match error {
                StudyError::Stopped => "ended before the first setting was finished".to_owned(),
                error => inputs.said(&error, id),
            };
            (422, why)
        })?;
        tuned.notes.extend(self.request.said.clone());
        tuned.input.name.clone_from(&self.name);
        Ok(tuned)
    }
}
