//! Questions that are answered in stages, each with more seeds. A view's next question ends the one
//! before, and so does a reader that is gone.

use crate::answer::Events;
use crate::cache::Cache;
use crate::inputs::{Failure, Inputs, stopped};
use schedlab_study::StudyError;
use schedlab_study::compare::request::CompareRequest;
use schedlab_study::input::Input;
use schedlab_study::page::{self, Origin};
use schedlab_study::result::Study;
use schedlab_study::workbench::ask::{Question, Stage};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Questions that are answered at a time. Chosen: as many tabs as a person looks at.
const MOST: usize = 8;
/// Time after which a reader that is gone is noticed.
const BEAT: Duration = Duration::from_millis(250);
/// Letters of the name of a view.
pub(crate) const TAB: usize = 64;

/// Refuses a name of a view that is too long.
pub(crate) fn check_tab(tab: &str) -> Result<(), Failure> {
    if tab.len() > TAB {
        return Err((422, format!("tab: {TAB} letters at most")));
    }
    Ok(())
}

/// What is done for a view. The next of its kind ends the one before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// A question, a search, or the state of the machine.
    Answer,
    /// Getting an input ready for questions.
    Preparation,
    /// What the page asks first is got ready before there is a page: no request ends that.
    First,
    /// Two recordings are compared.
    Comparison,
}

/// The questions that are being answered.
#[derive(Default)]
pub(crate) struct Questions {
    running: Mutex<BTreeMap<(Kind, String), Arc<AtomicBool>>>,
    inputs: Cache<Input>,
    /// Inputs that were played as they are.
    prepared: Cache<()>,
}

/// A question that is being answered; it ends with its value.
struct Running<'a> {
    questions: &'a Questions,
    view: (Kind, String),
    stop: Arc<AtomicBool>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut all = self.questions.running.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(&self.view).is_some_and(|stop| Arc::ptr_eq(stop, &self.stop)) {
            all.remove(&self.view);
        }
    }
}

/// Says an event: its name, and its data as JSON. Called from any thread.
pub(crate) type Tell<'a> = &'a (dyn Fn(&'static str, String) + Sync);

/// What gives the events of an answer, until the flag is set.
pub(crate) type Work<'a> = &'a (dyn Fn(&Arc<AtomicBool>, Tell<'_>) + Sync);

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
        let request = question.request(&inputs.named).map_err(|error| (422, error.to_string()))?;
        check_tab(&question.tab)?;
        Ok(Asked { question, request, name })
    }

    fn input(
        &self,
        questions: &Questions,
        inputs: &Inputs,
        stop: &AtomicBool,
    ) -> Result<Arc<Input>, Failure> {
        let reading = self.question.reading();
        let of = (&*self.question.input, &*self.name, &*reading);
        questions.input(of, &self.request, inputs, stop)
    }
}

impl Questions {
    /// Ends the question of the view that asks now, and takes its place.
    fn begin(&self, kind: Kind, tab: &str) -> Result<Running<'_>, Failure> {
        let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let view = (kind, tab.to_owned());
        let alike = all.keys().filter(|(other, _)| *other == kind).count();
        if alike >= MOST && !all.contains_key(&view) {
            let why = format!("{MOST} questions are being answered: close a view, or wait");
            return Err((429, why));
        }
        let stop = Arc::new(AtomicBool::new(false));
        if let Some(before) = all.insert(view.clone(), stop.clone()) {
            before.store(true, Relaxed);
        }
        Ok(Running { questions: self, view, stop })
    }

    /// Ends the question of a view: its answer is what is finished, where that is one.
    pub(crate) fn stop(&self, tab: &str) {
        let all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let stop = all.get(&(Kind::Answer, tab.to_owned()));
        stop.iter().for_each(|stop| stop.store(true, Relaxed));
    }

    /// Ends all questions.
    pub(crate) fn end(&self) {
        let all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().for_each(|stop| stop.store(true, Relaxed));
    }

    /// Reads an input as a question plays it, or returns it from memory. `reading` tells readings
    /// apart. Of several that ask for one, one reads it, and goes on while any of them needs it.
    pub(crate) fn input(
        &self,
        (id, name, reading): (&str, &str, &str),
        request: &CompareRequest,
        inputs: &Inputs,
        stop: &AtomicBool,
    ) -> Result<Arc<Input>, Failure> {
        let read = self.inputs.get(reading, stop, |ended| {
            let found = inputs.find(id)?;
            if let Some((option, why)) = request.without_meaning(&found, name) {
                return Err((422, format!("--{} {why}", option.flag)));
            }
            request.read_until(found, ended).map_err(|error| failed(&error, inputs, id))
        })?;
        read.ok_or_else(stopped)
    }

    /// Gets an input ready for questions about it: reads it, and plays it as it is with the first
    /// seed. Of several that ask for that one does it. Says `ready`, or `failed`.
    pub(crate) fn prepare(
        &self,
        asked: &Asked<'_>,
        inputs: &Inputs,
        stop: &Arc<AtomicBool>,
        tell: Tell<'_>,
    ) {
        let mut request = asked.request.clone();
        (request.options.schedulers, request.options.variants) = (Vec::new(), Vec::new());
        request.scans.clear();
        let asked = Asked { request, name: asked.name.clone(), ..*asked };
        let made = self.prepared.get(&asked.question.reading(), stop, |_| {
            match asked.input(self, inputs, stop)?.recording() {
                // A scenario has rows of its own, which no question asks for.
                None => Ok(()),
                Some(_) => self.study(&asked, inputs, (1, stop), &|_, _| {}).map(drop),
            }
        });
        match made.and_then(|made| made.ok_or_else(stopped)) {
            Ok(_) => tell("ready", "{}".to_owned()),
            Err(failure) => tell_failure(tell, &failure),
        }
    }

    /// Gets ready what the page asks first, before there is a page.
    pub(crate) fn prepare_first(&self, inputs: &Inputs, is_over: &dyn Fn() -> bool) {
        let Some(question) = inputs.first_question() else { return };
        let Ok(asked) = Asked::new(&question, inputs) else { return };
        let Ok(running) = self.begin(Kind::First, "") else { return };
        // What is wrong is said when the page asks.
        if !is_over() {
            self.prepare(&asked, inputs, &running.stop, &|_, _| {});
        }
    }

    /// Answers one stage.
    fn study(
        &self,
        asked: &Asked<'_>,
        inputs: &Inputs,
        (seeds, stop): (u32, &Arc<AtomicBool>),
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Study, Failure> {
        let input = asked.input(self, inputs, stop)?;
        let mut request = asked.request.clone();
        request.options.repetitions = Some(seeds);
        request.options.stop = Some(stop.clone());
        let study = request.compare(&input, progress);
        let mut study = study.map_err(|error| failed(&error, inputs, &asked.question.input))?;
        study.input.name.clone_from(&asked.name);
        Ok(study)
    }

    /// Sends the events of `work` to the reader, and `end`. The view's question before ends, and
    /// `work` is told to end when the reader is gone.
    ///
    /// # Errors
    /// The reader is gone.
    pub(crate) fn stream(
        &self,
        (kind, tab): (Kind, &str),
        begin: impl FnOnce() -> io::Result<Events>,
        refuse: impl FnOnce(Failure) -> io::Result<()>,
        work: Work<'_>,
    ) -> io::Result<()> {
        let running = match self.begin(kind, tab) {
            Ok(running) => running,
            Err(failure) => return refuse(failure),
        };
        let mut events = begin()?;
        let (say, said) = channel();
        let stop = &running.stop;
        let sent = std::thread::scope(|threads| {
            // That the other end is gone is noticed by the flag.
            threads.spawn(move || {
                work(stop, &|name, data| drop(say.send((name, data))));
            });
            let sent = pass(&said, &mut events);
            // The runs end when no reader is left.
            stop.store(true, Relaxed);
            sent
        });
        sent?;
        events.send("end", "{}")?;
        events.end();
        Ok(())
    }

    /// Answers a question stage by stage: `progress` (a [`Stage`]), for each stage `stage` and
    /// `answer` (a [`Study`]), or `failed` (an error).
    pub(crate) fn stages(
        &self,
        asked: &Asked<'_>,
        inputs: &Inputs,
        stop: &Arc<AtomicBool>,
        tell: Tell<'_>,
    ) {
        let began = Instant::now();
        for seeds in asked.question.stages() {
            let of = Stage::new(asked.question, seeds, &asked.name, &inputs.named);
            let progress = |done: usize, all: usize| {
                tell("progress", text(&Stage { done, all, ..of.clone() }));
            };
            match self.study(asked, inputs, (seeds, stop), &progress) {
                Ok(study) => {
                    let after_ms = began.elapsed().as_millis() as u64;
                    tell("stage", text(&Stage { after_ms, ..of }));
                    tell("answer", text(&study));
                }
                Err(failure) => return tell_failure(tell, &failure),
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
        let running = self.begin(Kind::Answer, &asked.question.tab)?;
        let seeds = asked.question.stages().last().copied().unwrap_or(1);
        asked.request.options.detail = true;
        let study = self.study(&asked, inputs, (seeds, &running.stop), &|_, _| {})?;
        let input = asked.input(self, inputs, &running.stop)?;
        let header = input.recording().map(|(path, header)| {
            (header.clone(), std::fs::metadata(path).map_or(0, |data| data.len()))
        });
        let command = asked.question.command(&asked.name, seeds, &inputs.named);
        let origin = Origin { command, recording: header, ..origin.clone() };
        let page = page::of_study(&study, &asked.request.scans, &origin);
        page.render().map_err(|error| (500, error.to_string()))
    }
}

/// Says why an input gave nothing.
fn failed(error: &StudyError, inputs: &Inputs, id: &str) -> Failure {
    let status = if matches!(error, StudyError::Stopped) { 409 } else { 422 };
    (status, inputs.said(error, id))
}

/// Returns an event's data.
pub(crate) fn text(value: &impl Serialize) -> String {
    // The types of this program have only keys that are texts.
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

/// Says why there is no answer: `failed`, with `schedlab-error/1`.
pub(crate) fn tell_failure(tell: Tell<'_>, (_, why): &Failure) {
    tell("failed", text(&schedlab_study::error_output::ErrorOutput::new(why)));
}

/// Passes on what is said, until all is said or the reader is gone.
fn pass(said: &Receiver<(&'static str, String)>, events: &mut Events) -> io::Result<()> {
    loop {
        match said.recv_timeout(BEAT) {
            Ok((name, data)) => events.send(name, &data)?,
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
        let begin = |tab: &str| questions.begin(Kind::Answer, tab);
        let first = begin("a").unwrap_or_else(|_| panic!("there is room"));
        let other = begin("b").unwrap_or_else(|_| panic!("there is room"));
        // What is prepared for a view ends neither, and is ended by neither.
        let prepared = questions.begin(Kind::Preparation, "a");
        let prepared = prepared.unwrap_or_else(|_| panic!("it has a place of its own"));
        assert!(!first.stop.load(Relaxed));
        let second = begin("a").unwrap_or_else(|_| panic!("it takes a place"));
        assert!(!prepared.stop.load(Relaxed));
        drop(prepared);
        assert_eq!(
            [&first, &second, &other].map(|one| one.stop.load(Relaxed)),
            [true, false, false]
        );
        drop(first);
        assert_eq!(questions.running.lock().unwrap().len(), 2, "the second still is there");
        let _more: Vec<_> = (2..MOST).map(|n| begin(&n.to_string()).ok().unwrap()).collect();
        assert_eq!(begin("one more").err().map(|(status, _)| status), Some(429));
        questions.end();
        assert!(second.stop.load(Relaxed) && other.stop.load(Relaxed));
    }

    /// The recording that was named alone is played before there is a page, and once.
    #[test]
    fn the_first_question_is_prepared() {
        let inputs = vec!["../../recordings/two-yes.slt".to_owned()];
        let options = crate::WorkbenchOptions { inputs, ..crate::WorkbenchOptions::default() };
        let inputs = Inputs::new(&options).unwrap();
        let questions = Questions::default();
        let reading = inputs.first_question().unwrap().reading();
        let go_on = AtomicBool::new(false);
        let known = || questions.prepared.get(&reading, &go_on, |_| Err::<(), _>("missing"));
        questions.prepare_first(&inputs, &|| true);
        assert_eq!(known(), Err("missing"), "the server has ended");
        questions.prepare_first(&inputs, &|| false);
        assert!(known().is_ok_and(|made| made.is_some()));
        assert!(questions.running.lock().unwrap().is_empty());
    }
}
