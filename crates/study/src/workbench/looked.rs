//! What one look at an input shows. The sentences and the longest waits come first. What each
//! program got, and behind which others it waited, takes longer and is found when it is asked for.
//! The schedule is larger, is asked for last, and is written down then.

use crate::StudyError;
use crate::compare::observe::WORST;
use crate::measurements::Measured;
use crate::page::recording::{lanes, measured, own_lanes, schedule_of};
use crate::scenario::Scenario;
use crate::show::{ShowOptions, ShownServer, scope, server_first};
use schedlab_model::Ns;
use schedlab_report::Lanes;
use schedlab_trace::Recording;
use schedlab_trace::analysis::blame::Blame;
use schedlab_trace::analysis::follow::Followed;
use schedlab_trace::analysis::worst::Worst;
use schedlab_trace::analysis::{Analysis as _, Answer, By, Scope, Summary};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

/// Of so many events programs are counted before the first answer. Chosen: that takes a twentieth
/// of a second, and the page is made once then.
pub(super) const AT_ONCE: usize = 200_000;

/// What is looked at.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Look {
    /// The server that was named.
    pub serve: Option<String>,
    /// Beginning of the part; `None`: that of the recording.
    pub from: Option<Ns>,
    /// End of the part; `None`: that of the recording.
    pub to: Option<Ns>,
}

impl Look {
    /// Looks at all of an input.
    pub fn of_server(serve: Option<&str>) -> Look {
        Look { serve: serve.map(str::to_owned), ..Look::default() }
    }

    fn options(&self) -> ShowOptions {
        ShowOptions {
            serve: self.serve.clone(),
            from: self.from,
            to: self.to,
            ..ShowOptions::default()
        }
    }

    /// Returns the part of a recording that is looked at, its server not known yet.
    pub(super) fn part(&self, recording: &Recording) -> Result<Scope, StudyError> {
        scope(recording, &self.options())
    }

    /// Finds the server, and puts its tasks first. Of a scenario none is guessed: its author says
    /// what it is about.
    fn server(
        &self,
        recording: &Recording,
        scenario: Option<&Scenario>,
        scope: &mut Scope,
    ) -> Result<Option<ShownServer>, StudyError> {
        match (scenario, &self.serve) {
            (Some(_), None) => Ok(None),
            _ => server_first(recording, &self.options(), scope),
        }
    }

    /// Returns what the look is at, and the server.
    pub(super) fn scope(
        &self,
        recording: &Recording,
        scenario: Option<&Scenario>,
    ) -> Result<(Scope, Option<ShownServer>), StudyError> {
        let mut scope = self.part(recording)?;
        let server = self.server(recording, scenario, &mut scope)?;
        Ok((scope, server))
    }
}

/// One look, and what it showed.
pub(super) struct Looked {
    pub(super) look: Look,
    pub(super) scope: Scope,
    pub(super) server: Option<ShownServer>,
    /// The part, its server not known.
    part: Scope,
    /// What the sentences say.
    pub(super) answer: Option<Answer>,
    /// The longest waits.
    pub(super) worst: Worst,
    numbers: Mutex<Option<Arc<Numbers>>>,
    lanes: OnceLock<Lanes>,
}

/// The numbers of a look.
pub(super) struct Numbers {
    /// The program of each task.
    pub(super) classes: Vec<String>,
    /// By program.
    pub(super) measured: Measured,
    /// Which program waited for which.
    pub(super) blame: Blame,
}

/// Returns what is said of waiting, and so many of the longest waits.
pub(super) fn waits(recording: &Recording, scope: &Scope, top: usize) -> (Option<Answer>, Worst) {
    thread::scope(|threads| {
        let worst = || Followed::over(recording, scope, Worst::new(&recording.header, scope, top));
        let worst = threads.spawn(worst);
        let knows = Answer::check(&recording.header).is_ok();
        let answer = if knows { Answer::from_recording(recording, scope) } else { None };
        (answer, worst.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

impl Looked {
    /// Looks.
    ///
    /// # Errors
    /// A part or a server that is not there, or events that do not tell preemption from blocking.
    pub(super) fn new(
        recording: &Recording,
        name: &str,
        scenario: Option<&Scenario>,
        look: &Look,
    ) -> Result<Looked, StudyError> {
        let part = look.part(recording)?;
        let mut scope = part.clone();
        Summary::check(&recording.header).map_err(|source| StudyError::trace(name, source))?;
        let server = look.server(recording, scenario, &mut scope)?;
        let (answer, worst) = waits(recording, &scope, WORST);
        let (look, numbers, lanes) = (look.clone(), Mutex::default(), OnceLock::new());
        Ok(Looked { look, scope, server, part, answer, worst, numbers, lanes })
    }

    /// Returns the numbers, where they are there already.
    pub(super) fn known_numbers(&self) -> Option<Arc<Numbers>> {
        self.numbers.try_lock().ok().and_then(|numbers| numbers.clone())
    }

    /// Returns the numbers. Of two that ask at once one waits for the other.
    ///
    /// # Errors
    /// When the recording cannot tell preemption from blocking.
    pub(super) fn numbers(
        &self,
        recording: &Recording,
        name: &str,
    ) -> Result<Arc<Numbers>, StudyError> {
        let mut known = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(numbers) = &*known {
            return Ok(numbers.clone());
        }
        let blame = || {
            let by = self.scope.by.unwrap_or(By::Name);
            let blame = Blame::new(&recording.header, &self.scope, by);
            Followed::over(recording, &self.scope, blame)
        };
        let (measured, blame) = thread::scope(|threads| {
            let blame = threads.spawn(blame);
            let measured = measured(recording, name, &self.part);
            (measured, blame.join().unwrap_or_else(|panic| resume_unwind(panic)))
        });
        let (classes, measured) = measured?;
        let numbers = Arc::new(Numbers { classes, measured, blame });
        *known = Some(numbers.clone());
        Ok(numbers)
    }

    /// Returns the schedule, where it is written down already.
    pub(super) fn known_lanes(&self) -> Option<&Lanes> {
        self.lanes.get()
    }

    /// Returns the schedule as a page's lanes have it.
    pub(super) fn lanes(&self, recording: &Recording, is_simulated: bool) -> &Lanes {
        self.lanes.get_or_init(|| {
            let worst = self.worst.cases.first();
            let own = own_lanes(&self.scope, &self.worst);
            let run = schedule_of(recording, &self.scope, worst);
            let mut lanes = lanes(&recording.header, run, own);
            if is_simulated {
                lanes.runs.iter_mut().for_each(|run| run.name = "simulated".to_owned());
            }
            lanes
        })
    }
}
