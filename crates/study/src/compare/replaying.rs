//! Which replay makes the workload of a recording.

use super::part::{Read, Window, events_of};
use crate::StudyError;
use crate::measurements::Measured;
use crate::together::Together;
use schedlab_model::Ns;
use schedlab_replay::Report;
use schedlab_trace::analysis::messages::{RequestTimes, Unseen};
use schedlab_trace::analysis::{Scope, Summary};
use schedlab_trace::import::Purpose;
use schedlab_trace::replay::{Replay, ReplayOptions, replay};
use schedlab_trace::{Capability, Recording};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// From what a recording is replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReplayFrom {
    /// From the messages where they were recorded and less than a hundredth of them was lost; else,
    /// and where they do not reproduce the recording and the wakeups do, from the wakeups
    /// (docs/predictions.md).
    #[default]
    Auto,
    /// From the wakeups between tasks: what is exchanged is inferred.
    Wakeups,
    /// From the messages that were recorded: which task waits for which follows from them.
    Messages,
}

impl ReplayFrom {
    /// The replays.
    pub const ALL: [ReplayFrom; 2] = [ReplayFrom::Messages, ReplayFrom::Wakeups];

    /// Returns the name that users write.
    pub const fn name(self) -> &'static str {
        match self {
            ReplayFrom::Auto => "auto",
            ReplayFrom::Wakeups => "wakeups",
            ReplayFrom::Messages => "messages",
        }
    }

    /// Returns the replay of this recording.
    fn of(self, recording: &Recording) -> ReplayFrom {
        let header = &recording.header;
        let has_messages = || {
            header.capabilities.has(Capability::Messages)
                && !recording.facts.list.is_empty()
                && !recording.facts.loss().is_too_much()
        };
        match self {
            ReplayFrom::Auto if has_messages() => ReplayFrom::Messages,
            ReplayFrom::Auto => ReplayFrom::Wakeups,
            one => one,
        }
    }
}

impl fmt::Display for ReplayFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads `auto`, `messages` or `wakeups`.
impl FromStr for ReplayFrom {
    type Err = StudyError;

    fn from_str(text: &str) -> Result<ReplayFrom, StudyError> {
        let all = [ReplayFrom::Auto].into_iter().chain(ReplayFrom::ALL);
        let found = all.into_iter().find(|from| from.name() == text);
        found.ok_or_else(|| {
            StudyError::Option(format!("replay `{text}`: there are auto, messages and wakeups"))
        })
    }
}

/// What a replay by messages knows beside its workload.
#[derive(Debug)]
pub(super) struct ByMessages {
    /// What it found.
    pub(super) report: Report,
    /// The requests that were recorded.
    pub(super) recorded: RequestTimes,
    /// Signs of exchanges without facts that the workload may lack, a sentence each.
    pub(super) unseen: Vec<String>,
    /// What measures them in a simulation of the whole.
    pub(super) none_yet: RequestTimes,
}

/// Returns a recording as a workload, and what the replay by messages found where that made it.
/// What both have in common (delays of the machine, ticks, price of the recorder) is measured in
/// one way.
pub(super) fn replayed(
    path: &Path,
    recording: &Recording,
    from: ReplayFrom,
) -> Result<(Replay, Option<ByMessages>), StudyError> {
    let found = replay(recording, &ReplayOptions::default());
    let mut replay = found.map_err(|source| StudyError::trace(path, source))?;
    if from.of(recording) == ReplayFrom::Wakeups {
        return Ok((replay, None));
    }
    let fits = replay.report.runtimes.iter().zip(&replay.workload.handoffs);
    let runtimes: Vec<schedlab_replay::Runtime> = fits
        .map(|(fit, handoff)| schedlab_replay::Runtime {
            lanes: fit.lanes,
            handoff: handoff.clone(),
        })
        .collect();
    let (recorder, beside) = (replay.report.recorder, replay.report.beside());
    let Some(messages) = schedlab_replay::replay(recording, recorder, beside, &runtimes) else {
        return Err(StudyError::Option(format!(
            "{}: the recording has no messages, so that it cannot be replayed from them: record \
             with `schedlab record --messages on` (backend bpf), or replay its wakeups \
             (--replay wakeups)",
            path.display()
        )));
    };
    replay.workload = messages.workload;
    // What the replay by wakeups assumes beside the recording is not in this workload.
    let report = &mut replay.report;
    report.hogs.clone_from(&messages.report.endless);
    // A message is closer to the same work than an activation, which may be of several.
    report.spread_of_costs = messages.report.spread_of_costs.or(report.spread_of_costs);
    for list in
        [&mut report.makers, &mut report.undecided, &mut report.starved, &mut report.unfinished]
    {
        list.clear();
    }
    report.silent.clear();
    let handoffs = &replay.workload.handoffs;
    report.runtimes.retain(|fit| {
        handoffs.iter().any(|of| fit.threads.iter().any(|thread| of.threads.contains(thread)))
    });
    let unseen = Unseen::of(recording, &Scope::default());
    let by_messages = ByMessages {
        unseen: if unseen.matters() { unseen.sentences(&recording.header) } else { Vec::new() },
        report: messages.report,
        recorded: RequestTimes::recorded(recording),
        none_yet: RequestTimes::simulated(&recording.facts, Ns::ZERO),
    };
    Ok((replay, Some(by_messages)))
}

/// What was recorded, class by class, in a recording from which nothing is predicted.
///
/// # Errors
/// It cannot be read, or holds nothing.
pub fn measured_in(path: &Path) -> Result<Measured, StudyError> {
    measured_by(path, Together::default())
}

/// The same with tasks taken together by `by`.
pub(super) fn measured_by(path: &Path, by: Together) -> Result<Measured, StudyError> {
    let Read { recording, .. } = events_of(path, &Window::default(), Purpose::Any, &|| false)?;
    let classes = by.names(&recording.header);
    let summary =
        Summary::from_recording(&recording).map_err(|source| StudyError::trace(path, source))?;
    let mut measured = Measured::of_summary(&summary, &classes, &|_| None);
    measured.requests(&RequestTimes::recorded(&recording), summary.window);
    Ok(measured)
}
