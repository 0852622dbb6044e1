//! A part of a recording: what of it is read, and what is said of the rest.

use super::recorded::RecordedInput;
use super::recorded_kernel::recorded_scheduler;
use super::replaying::ReplayFrom;
use super::{Ended, Options};
use crate::StudyError;
use crate::serve::Server;
use crate::show;
use crate::together::Together;
use crate::variant::VariantError;
use schedlab_model::Ns;
use schedlab_model::text::{glob, quoted};
use schedlab_trace::Recording;
use schedlab_trace::analysis::follow::Followed;
use schedlab_trace::analysis::worst::{Case, Worst};
use schedlab_trace::analysis::{Analysis, Scope};
use schedlab_trace::import::Purpose;
use std::collections::BTreeSet;
use std::path::Path;
use std::str::FromStr;

/// Length of the part around a moment when the user does not say.
const AROUND: Ns = Ns::from_s(2);

/// Which part of a recording is simulated; the default is all of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Window {
    /// Its beginning.
    pub from: Option<Ns>,
    /// Its end.
    pub to: Option<Ns>,
    /// What is in its middle.
    pub around: Option<Around>,
    /// Its length.
    pub length: Option<Ns>,
    /// The server of whose waits one is in the middle.
    pub serve: Option<String>,
    /// No server will be asked about: who ran while each program waited is not summed up, which
    /// takes a pass over all events.
    pub unserved: bool,
    /// How its tasks are taken together.
    pub by: Together,
}

/// What is in the middle of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Around {
    /// A moment.
    At(Ns),
    /// A wait, by its rank in `schedlab show --worst`.
    Wait(usize),
}

/// Reads `2.5s`, `worst` or `worst:3`.
impl FromStr for Around {
    type Err = String;

    fn from_str(text: &str) -> Result<Around, String> {
        let wait = match text.strip_prefix("worst") {
            Some("") => Some(1),
            Some(rest) => rest.strip_prefix(':').and_then(|rank| rank.parse().ok()),
            None => None,
        };
        match (wait.filter(|rank| (1..=100_000).contains(rank)), text.parse()) {
            (Some(rank), _) => Ok(Around::Wait(rank)),
            (None, Ok(at)) => Ok(Around::At(at)),
            (None, Err(_)) => Err(format!(
                "'{text}': give a time since the start, such as 2.5s, or a wait by its rank in \
                 `schedlab show --worst`: worst (the longest one), worst:3"
            )),
        }
    }
}

impl Window {
    /// The first part, of this length; `None`: all.
    pub fn first(length: Option<Ns>) -> Window {
        Window { length, ..Window::default() }
    }

    /// The part between two moments.
    pub fn between((from, to): (Ns, Ns)) -> Window {
        Window { from: Some(from), to: Some(to), ..Window::default() }
    }

    /// Returns whether it may begin later than the recording, or was given an end.
    fn is_cut(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.around.is_some()
    }

    /// Refuses options that exclude each other.
    fn check(&self) -> Result<(), StudyError> {
        let bad = |text: String| Err(StudyError::Option(text));
        if self.around.is_some() && (self.from.is_some() || self.to.is_some()) {
            return bad("--around excludes --from and --to: --for says how long the part is".into());
        }
        if let (Some(to), Some(length)) = (self.to, self.length) {
            return bad(format!("--to {to} excludes --for {length}: give one of them"));
        }
        match (self.to, self.from.unwrap_or(Ns::ZERO)) {
            (Some(to), from) if to <= from => {
                bad(format!("--to {to} must be later than --from {from}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the last moment that is read, where that is known before the recording is.
    fn last(&self) -> Option<Ns> {
        let length = self.length.unwrap_or(AROUND);
        match (self.around, self.to, self.length) {
            (Some(Around::Wait(_)), ..) => None,
            // Near the end of the recording the part begins earlier.
            (Some(Around::At(at)), ..) => Some(at.saturating_add(length)),
            (None, Some(to), _) => Some(to),
            (None, None, length) => {
                length.map(|length| self.from.unwrap_or(Ns::ZERO).saturating_add(length))
            }
        }
    }

    /// Returns beginning and end in a recording. A wait is one of `tasks`, where they are given.
    pub(crate) fn of(
        &self,
        recording: &Recording,
        tasks: Option<&Vec<bool>>,
    ) -> Result<(Ns, Ns), StudyError> {
        let whole = recording.duration;
        let bad = |text: String| {
            StudyError::Option(format!("{text}: the recording is only {whole} long"))
        };
        let (middle, least) = match self.around {
            None => {
                let from = self.from.unwrap_or(Ns::ZERO);
                if from >= whole {
                    return Err(bad(format!("--from {from}")));
                }
                let to = self.to.or(self.length.map(|length| from.saturating_add(length)));
                return match to {
                    Some(to) if to > whole && self.to.is_some() => Err(bad(format!("--to {to}"))),
                    Some(to) if to > whole => Err(bad(format!("--from and --for end at {to}"))),
                    to => Ok((from, to.unwrap_or(whole))),
                };
            }
            Some(Around::At(at)) if at >= whole => return Err(bad(format!("--around {at}"))),
            Some(Around::At(at)) => (at, Ns::ZERO),
            Some(Around::Wait(rank)) => {
                let wait = self.wait(recording, rank, tasks)?;
                (Ns(wait.from.0 + wait.length().0 / 2), wait.length())
            }
        };
        let length = match self.length {
            Some(length) if length > whole => return Err(bad(format!("--for {length}"))),
            Some(length) if length < least => {
                return Err(StudyError::Option(format!(
                    "--for {length}: the wait that --around names is {least} long; give a longer \
                     part, such as --for {}",
                    least * 2
                )));
            }
            Some(length) => length,
            None => AROUND.max(least * 2).min(whole),
        };
        let from = middle.saturating_sub(Ns(length.0 / 2)).min(whole.saturating_sub(length));
        Ok((from, from + length))
    }

    /// Returns a wait by its rank: of the server, where one is named.
    fn wait(
        &self,
        recording: &Recording,
        rank: usize,
        tasks: Option<&Vec<bool>>,
    ) -> Result<Case, StudyError> {
        let header = &recording.header;
        Worst::check(header)
            .map_err(|error| StudyError::Option(format!("--around worst: {error}")))?;
        let server = self.serve.as_deref().map(Server::new);
        let of_server = server.as_ref().map(|server| server.tasks(header)).transpose()?;
        let tasks = tasks.cloned().or(of_server);
        let scope = Scope { tasks, ..Scope::default() };
        let mut cases = Followed::over(recording, &scope, Worst::new(header, &scope, rank)).cases;
        let found = cases.len();
        cases.truncate(rank);
        cases.pop().filter(|_| found == rank).ok_or_else(|| {
            let of = server.map_or_else(String::new, |server| format!(" of {}", server.asked()));
            StudyError::Option(format!(
                "--around worst:{rank}: the recording has {found} waits{of} for a CPU (`schedlab \
                 show --worst` lists them)"
            ))
        })
    }
}

/// What of a recording is simulated.
pub(super) struct Read {
    /// The part as if it had been recorded alone, without the tasks that do nothing in it.
    pub(super) recording: Recording,
    /// Their names.
    pub(super) idle: BTreeSet<String>,
    /// Where the part lies in the recording; `None`: it is all of it.
    pub(super) window: Option<(Ns, Ns)>,
}

/// Reads a recording that holds something, or a part of it. What comes later is not read.
pub(super) fn events_of(
    path: &Path,
    window: &Window,
    purpose: Purpose,
    ended: Ended<'_>,
) -> Result<Read, StudyError> {
    window.check()?;
    if purpose == Purpose::ReplayOfKernel {
        check_kernel(path)?;
    }
    let recording = match window.last() {
        None => show::whole(path, purpose, ended)?,
        Some(last) => Recording::open_up_to_for(path, last, purpose)
            .map_err(|source| StudyError::trace(path, source))?,
    };
    let mut found = Read { recording, idle: BTreeSet::new(), window: None };
    let recording = &mut found.recording;
    if window.is_cut() && !recording.events.is_empty() {
        let (from, to) = window.of(recording, None)?;
        if from > Ns::ZERO || to < recording.duration {
            let begins = recording.events.partition_point(|event| event.at < from);
            let ends = recording.events.partition_point(|event| event.at <= to);
            if begins == ends {
                return Err(StudyError::Option(format!(
                    "--from {from} --to {to}: nothing happened in this part of the recording: give \
                     a longer one"
                )));
            }
            *recording = recording.part(from, to);
            found.window = Some((from, to));
        }
    } else if let Some(length) = window.length.filter(|length| *length < recording.duration) {
        recording.duration = length;
        found.window = Some((Ns::ZERO, length));
    }
    if found.window.is_some() {
        found.idle.extend(recording.leave_out_idle_tasks());
    }
    if recording.events.is_empty() {
        return Err(StudyError::NoEvents {
            path: path.to_owned(),
            cut_off: recording.repairs.cut_off,
        });
    }
    Ok(found)
}

/// Refuses a recording whose kernel no scheduler models before its events are read, which may take
/// long. What cannot be looked at twice, or is wrong otherwise, is for the reader of the whole.
fn check_kernel(path: &Path) -> Result<(), StudyError> {
    match show::about(path) {
        Ok(Some(about)) => recorded_scheduler(&about.recording.header, None).map(drop),
        _ => Ok(()),
    }
}

/// Returns for how long a comparison goes on.
pub(super) fn duration(input: &RecordedInput, options: &Options) -> Result<Ns, StudyError> {
    let whole = input.replay.duration;
    match options.duration {
        Some(duration) if duration > whole => {
            Err(StudyError::Option(format!("--for {duration}: the recording is only {whole} long")))
        }
        other => Ok(other.unwrap_or(whole)),
    }
}

impl RecordedInput {
    /// Says of a task that is not there that it comes later, or was before.
    pub(super) fn named_in_vain(&self, error: StudyError) -> StudyError {
        match &error {
            StudyError::Variant { source: VariantError::Target { target, .. }, .. }
                if self.idle.iter().any(|name| glob(target, name)) =>
            {
                let (target, length) = (quoted(target), self.replay.duration);
                let (part, what) = match self.window {
                    Some((from, to)) if from > Ns::ZERO => {
                        (format!("from {from} to {to}"), "--from, --to or --for")
                    }
                    _ => (format!("in the first {length}"), "--for"),
                };
                StudyError::Option(format!(
                    "`{target}` does nothing {part} of the recording, which is all that is read: \
                     give a longer {what}"
                ))
            }
            _ => error,
        }
    }
}
impl RecordedInput {
    /// Reads and converts a recording with tasks taken together by `by`.
    ///
    /// # Errors
    /// As for [`RecordedInput::open_from`].
    pub fn open_by(
        path: &Path,
        from: ReplayFrom,
        by: Together,
    ) -> Result<RecordedInput, StudyError> {
        let window = Window { by, ..Window::default() };
        RecordedInput::read_for(path, from, &window, Purpose::Replay)
    }
}
