//! The first part of a recording: what of it is read, and what is said of the rest.

use super::Options;
use super::recorded::RecordedInput;
use crate::StudyError;
use crate::variant::VariantError;
use schedlab_model::Ns;
use schedlab_model::text::{glob, quoted};
use schedlab_trace::Recording;
use schedlab_trace::import::Purpose;
use std::collections::BTreeSet;
use std::path::Path;

/// A recording that holds something, or its first part as if it had ended there: without the tasks
/// that do nothing in it, whose names are given.
pub(super) fn events_of(
    path: &Path,
    length: Option<Ns>,
    purpose: Purpose,
) -> Result<(Recording, BTreeSet<String>), StudyError> {
    let read = match length {
        None => Recording::open_for(path, purpose),
        Some(length) => Recording::open_up_to_for(path, length, purpose),
    };
    let mut recording = read.map_err(|source| StudyError::trace(path, source))?;
    let mut idle = BTreeSet::new();
    if let Some(length) = length.filter(|length| *length < recording.duration) {
        recording.duration = length;
        idle.extend(recording.leave_out_idle_tasks());
    }
    if recording.events.is_empty() {
        return Err(StudyError::NoEvents {
            path: path.to_owned(),
            cut_off: recording.repairs.cut_off,
        });
    }
    Ok((recording, idle))
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
                StudyError::Option(format!(
                    "`{target}` does nothing in the first {length} of the recording, which is all \
                     that is read: give a longer --for"
                ))
            }
            _ => error,
        }
    }
}
