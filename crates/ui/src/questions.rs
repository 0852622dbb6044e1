//! Questions that are answered in stages, each with more seeds. A view's next question ends the one
//! before, and so does a reader that is gone.

use crate::answer::Events;
use crate::cache::Cache;
use crate::inputs::{Failure, Inputs};
use schedlab_study::StudyError;
use schedlab_study::compare::request::CompareRequest;
use schedlab_study::input::Input;
use schedlab_study::page::{self, Origin};
use schedlab_study::result::Study;
use schedlab_study::workbench::ask::{Question, Stage};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Questions that are answered at a time. Chosen: as many tabs as a person looks at.
const MOST: usize = 8;
/// Time after which a reader that is gone is noticed.
const BEAT: Duration = Duration::from_millis(250);
/// Letters of the name of a view.
const TAB: usize = 64;

/// The questions that are being answered.
#[derive(Default)]
pub(crate) struct Questions {
    running: Mutex<BTreeMap<String, Arc<AtomicBool>>>,
    inputs: Cache<Input>,
}

/// A question that is being answered; it ends with its value.
struct Running<'a> {
    questions: &'a Questions,
    tab: String,
    stop: Arc<AtomicBool>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut all = self.questions.running.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(&self.tab).is_some_and(|stop| Arc::ptr_eq(stop, &self.stop)) {
            all.remove(&self.tab);
        }
    }
}

/// What is told while a question is answered.
enum Told {
    /// Finished runs of all runs of the stage.
    Progress(usize, usize),
    /// A stage and its answer.
    Answer(Box<(Stage, Study)>),
    /// No answer.
    Failed(String),
}

/// What one answer takes.
pub(crate) struct Asked<'a> {
    pub(crate) question: &'a Question,
    pub(crate) request: CompareRequest,
    pub(crate) name: String,
}

impl<'a> Asked<'a> {
    /// Checks a question.
    pub(crate) fn new(question: &'a Question, inputs: &Inputs) -> Result<Asked<'a>, Failure> {
        let name = inputs.name(&question.input)?;
        let request = question.request().map_err(|error| (422, error.to_string()))?;
        if question.tab.len() > TAB {
            return Err((422, format!("tab: {TAB} letters at most")));
        }
        Ok(Asked { question, request, name })
    }
}

impl Questions {
    /// Ends the question of the view that asks now, and takes its place.
    fn begin(&self, tab: &str) -> Result<Running<'_>, Failure> {
        let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST && !all.contains_key(tab) {
            let why = format!("{MOST} questions are being answered: close a view, or wait");
            return Err((429, why));
        }
        let stop = Arc::new(AtomicBool::new(false));
        if let Some(before) = all.insert(tab.to_owned(), stop.clone()) {
            before.store(true, Relaxed);
        }
        Ok(Running { questions: self, tab: tab.to_owned(), stop })
    }

    /// Ends all questions.
    pub(crate) fn end(&self) {
        let all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().for_each(|stop| stop.store(true, Relaxed));
    }

    /// Reads an input as a question plays it, or returns it from memory.
    fn input(&self, asked: &Asked<'_>, inputs: &Inputs) -> Result<Arc<Input>, Failure> {
        let id = &asked.question.input;
        self.inputs.get(&asked.question.reading(), || {
            let found = inputs.find(id)?;
            if let Some((option, why)) = asked.request.without_meaning(&found, &asked.name) {
                return Err((422, format!("--{} {why}", option.flag)));
            }
            asked.request.read(found).map_err(|error| (422, inputs.said(&error, id)))
        })
    }

    /// Answers one stage.
    fn study(
        &self,
        asked: &Asked<'_>,
        inputs: &Inputs,
        (seeds, stop): (u32, &Arc<AtomicBool>),
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Study, Failure> {
        let input = self.input(asked, inputs)?;
        let mut request = asked.request.clone();
        request.options.repetitions = Some(seeds);
        request.options.stop = Some(stop.clone());
        let study = request.compare(&input, progress);
        let mut study = study.map_err(|error| {
            let status = if matches!(error, StudyError::Stopped) { 409 } else { 422 };
            (status, inputs.said(&error, &asked.question.input))
        })?;
        study.input.name.clone_from(&asked.name);
        Ok(study)
    }

    /// Answers a question as events: `progress` (a [`Stage`]), for each stage `stage` and `answer`
    /// (a [`Study`]), `failed` (an error), and `end`.
    ///
    /// # Errors
    /// The reader is gone.
    pub(crate) fn answer(
        &self,
        asked: &Asked<'_>,
        inputs: &Inputs,
        begin: impl FnOnce() -> io::Result<Events>,
        refuse: impl FnOnce(Failure) -> io::Result<()>,
    ) -> io::Result<()> {
        let running = match self.begin(&asked.question.tab) {
            Ok(running) => running,
            Err(failure) => return refuse(failure),
        };
        let mut events = begin()?;
        let (tell, told) = channel();
        let stop = &running.stop;
        let sent = std::thread::scope(|threads| {
            threads.spawn(move || self.stages(asked, inputs, stop, &tell));
            let sent = pass(&told, &mut events, asked);
            // The runs end when no reader is left.
            stop.store(true, Relaxed);
            sent
        });
        sent?;
        events.send("end", "{}")?;
        events.end()
    }

    fn stages(
        &self,
        asked: &Asked<'_>,
        inputs: &Inputs,
        stop: &Arc<AtomicBool>,
        tell: &Sender<Told>,
    ) {
        // That the other end is gone is noticed by the flag.
        let say = |told: Told| tell.send(told).is_ok();
        let began = Instant::now();
        for seeds in asked.question.stages() {
            let progress = |done: usize, all: usize| {
                say(Told::Progress(done, all));
            };
            match self.study(asked, inputs, (seeds, stop), &progress) {
                Ok(study) => {
                    let after = began.elapsed().as_millis() as u64;
                    let of = Stage::new(asked.question, seeds, &asked.name);
                    let stage = Stage { after_ms: after, ..of };
                    if !say(Told::Answer(Box::new((stage, study)))) {
                        return;
                    }
                }
                Err((_, why)) => {
                    say(Told::Failed(why));
                    return;
                }
            }
        }
    }

    /// Answers a question as a page of its own, with the seeds of its last stage.
    ///
    /// # Errors
    /// What is wrong with the question, or what failed.
    pub(crate) fn page(
        &self,
        mut asked: Asked<'_>,
        inputs: &Inputs,
        origin: &Origin,
    ) -> Result<String, Failure> {
        let running = self.begin(&asked.question.tab)?;
        let seeds = asked.question.stages().last().copied().unwrap_or(1);
        asked.request.options.detail = true;
        let study = self.study(&asked, inputs, (seeds, &running.stop), &|_, _| {})?;
        let input = self.input(&asked, inputs)?;
        let header = input.recording().map(|(path, header)| {
            (header.clone(), std::fs::metadata(path).map_or(0, |data| data.len()))
        });
        let command = asked.question.command(&asked.name, seeds);
        let origin = Origin { command, recording: header, ..origin.clone() };
        let page = page::of_study(&study, &asked.request.scans, &origin);
        page.render().map_err(|error| (500, error.to_string()))
    }
}

/// Passes on what is told, until all is told or the reader is gone.
fn pass(told: &Receiver<Told>, events: &mut Events, asked: &Asked<'_>) -> io::Result<()> {
    let mut number = 0;
    let stages = asked.question.stages();
    loop {
        match told.recv_timeout(BEAT) {
            Ok(Told::Progress(done, all)) => {
                let seeds = stages.get(number).copied().unwrap_or_default();
                let of = Stage::new(asked.question, seeds, &asked.name);
                events.send("progress", &serde_json::to_string(&Stage { done, all, ..of })?)?;
            }
            Ok(Told::Answer(answer)) => {
                number += 1;
                let (stage, study) = *answer;
                events.send("stage", &serde_json::to_string(&stage)?)?;
                events.send("answer", &serde_json::to_string(&study)?)?;
            }
            Ok(Told::Failed(why)) => {
                let error = schedlab_study::error_output::ErrorOutput::new(&why);
                events.send("failed", &serde_json::to_string(&error)?)?;
            }
            Err(RecvTimeoutError::Timeout) => events.beat()?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_question_of_a_view_ends_the_one_before() {
        let questions = Questions::default();
        let first = questions.begin("a").unwrap_or_else(|_| panic!("there is room"));
        let other = questions.begin("b").unwrap_or_else(|_| panic!("there is room"));
        assert!(!first.stop.load(Relaxed));
        let second = questions.begin("a").unwrap_or_else(|_| panic!("it takes a place"));
        assert_eq!(
            [&first, &second, &other].map(|one| one.stop.load(Relaxed)),
            [true, false, false]
        );
        drop(first);
        assert_eq!(questions.running.lock().unwrap().len(), 2, "the second still is there");
        let _more: Vec<_> =
            (2..MOST).map(|n| questions.begin(&n.to_string()).ok().unwrap()).collect();
        assert_eq!(questions.begin("one more").err().map(|(status, _)| status), Some(429));
        questions.end();
        assert!(second.stop.load(Relaxed) && other.stop.load(Relaxed));
    }
}
