//! What is simulated: a scenario or a recording, read once.

use crate::StudyError;
use crate::compare::{
    Ended, Options, Progress, RecordedInput, ReplayFrom, Window, compare_recording,
    compare_scenario,
};
use crate::gallery::{self, Found};
use crate::result::Study;
use crate::scenario::Scenario;
use crate::tune::Target;
use schedlab_scheduler::SchedulerSpec;
use schedlab_trace::Header;
use schedlab_trace::import::Purpose;
use std::path::Path;

/// What is simulated.
#[derive(Debug)]
pub enum Input {
    /// A scenario.
    Scenario(Box<Scenario>),
    /// A recording.
    Recording(Box<RecordedInput>),
}

impl Input {
    /// Reads what a user names: a recording, a scenario, or a scenario of the gallery
    /// ([`gallery::find`]); of a recording only the part that is compared, replayed as is chosen.
    ///
    /// # Errors
    /// There is no such input, it cannot be read, or a replay was chosen for a scenario.
    pub fn open(
        name: &str,
        replay: Option<ReplayFrom>,
        window: &Window,
    ) -> Result<Input, StudyError> {
        Input::read(gallery::find(name)?, replay, window, Purpose::Replay)
    }

    /// Reads what was found; see [`Input::open`]. A trace of another tool that cannot serve
    /// `purpose` is refused at its beginning.
    ///
    /// # Errors
    /// The recording cannot be read, or a replay was chosen for a scenario.
    pub fn read(
        found: Found,
        replay: Option<ReplayFrom>,
        window: &Window,
        purpose: Purpose,
    ) -> Result<Input, StudyError> {
        Input::read_until(found, replay, (window, purpose), &|| false)
    }

    /// As [`Input::read`], until `ended`: then it is [`StudyError::Stopped`].
    ///
    /// # Errors
    /// As for [`Input::read`].
    pub fn read_until(
        found: Found,
        replay: Option<ReplayFrom>,
        (window, purpose): (&Window, Purpose),
        ended: Ended<'_>,
    ) -> Result<Input, StudyError> {
        Ok(match (found, replay) {
            (Found::Scenario(_), Some(replay)) => {
                let why = "has a meaning only for recordings, and the input is a scenario";
                return Err(StudyError::Option(format!("--replay {replay} {why}")));
            }
            (Found::Scenario(scenario), None) => Input::Scenario(scenario),
            (Found::Recording(path), replay) => {
                let from = replay.unwrap_or_default();
                let part = (window, purpose);
                Input::Recording(Box::new(RecordedInput::read_until(&path, from, part, ended)?))
            }
        })
    }

    /// Compares. `under`: the scheduler that models the kernel of a recording, where it is not
    /// chosen by the kernel's version.
    ///
    /// # Errors
    /// What is wrong with the options, or what failed.
    pub fn compare(
        &self,
        under: Option<&SchedulerSpec>,
        options: &Options,
        progress: Progress<'_>,
    ) -> Result<Study, StudyError> {
        match self {
            Input::Scenario(scenario) => compare_scenario(scenario, options, progress),
            Input::Recording(recorded) => compare_recording(recorded, under, options, progress),
        }
    }

    /// Returns what a search begins with: the first scheduler of a scenario, the recorded one, or
    /// `chosen`.
    pub fn target<'a>(&'a self, chosen: Option<&'a SchedulerSpec>) -> Target<'a> {
        match self {
            Input::Scenario(scenario) => Target::Scenario(scenario, chosen),
            Input::Recording(recorded) => Target::Recording(recorded, chosen),
        }
    }

    /// Returns file and header of a recording.
    pub fn recording(&self) -> Option<(&Path, &Header)> {
        match self {
            Input::Scenario(_) => None,
            Input::Recording(recorded) => Some((recorded.path(), recorded.found().0)),
        }
    }
}
