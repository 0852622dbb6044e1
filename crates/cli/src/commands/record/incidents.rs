//! `record --keep`: a recording of each event, without a gap between them.

use super::{Live, Made, RecordArgs, made};
use crate::exit::Exit;
use crate::output;
use anyhow::{Context, anyhow, bail};
use schedlab_files::FileId;
use schedlab_host::StopSignal;
use schedlab_lab::record::{RecordPlan, Recorded, Snapshot, record_incidents};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};

/// Recordings that wait to be written. More come only when writing takes longer than the events are
/// apart.
const WAITING: usize = 4;

/// Records on and on, writes a recording of each event, and keeps the newest `keep`.
pub(super) fn incidents(
    args: &RecordArgs,
    mut plan: RecordPlan,
    keep: u32,
    signal: &StopSignal,
) -> anyhow::Result<Exit> {
    if output::is_stdout(&plan.output) {
        bail!(
            "--keep {keep}: several recordings do not fit in standard output: name a file with -o"
        );
    }
    output::check(&plan.output)?;
    plan.goes_on = true;
    let (send, caught) = sync_channel(WAITING);
    let (missed, written) = std::thread::scope(|threads| {
        let writing = threads.spawn(|| write_all(args, &plan, keep, caught));
        let mut live = Live { send: Some(send), ..Live::new() };
        let stop = || signal.requested() || writing.is_finished();
        let recorded = record_incidents(&plan, &mut live, &stop);
        let missed = live.missed;
        drop(live);
        let written = writing.join().map_err(|_| anyhow!("a recording could not be written"))?;
        recorded?;
        anyhow::Ok((missed, written?))
    })?;
    if missed > 0 {
        output::warn(&format!(
            "{missed} events came while the recordings of earlier ones were written: they have no \
             file of their own\n"
        ));
    }
    let Written { kept, worst, elsewhere } = written;
    match elsewhere {
        Some(error) => Err(error),
        None => Ok(if kept.is_empty() { Exit::ExpectationFailed } else { worst }),
    }
}

/// What became of the recordings of events.
struct Written {
    kept: VecDeque<(PathBuf, FileId)>,
    worst: Exit,
    /// Where one was written because there was no room at its place.
    elsewhere: Option<anyhow::Error>,
}

/// Writes a recording of each event as it comes, and keeps the newest `keep`.
fn write_all(
    args: &RecordArgs,
    plan: &RecordPlan,
    keep: u32,
    caught: Receiver<Snapshot>,
) -> anyhow::Result<Written> {
    let mut all = Written { kept: VecDeque::new(), worst: Exit::Done, elsewhere: None };
    for snapshot in caught {
        let file = numbered(&plan.output, next_number(&plan.output));
        let Made { exit, recorded } = made(args, snapshot.write(&file, true)?)?;
        if let Some(error) = misplaced(&file, &recorded) {
            output::warn(&format!("{error}\n"));
            all.elsewhere.get_or_insert(error);
        }
        all.worst = if exit == Exit::Done { all.worst } else { exit };
        all.kept.push_back((recorded.file, recorded.id));
        // Incidents of an earlier run are not in the list, and stay.
        if all.kept.len() > keep as usize
            && let Some((file, id)) = all.kept.pop_front()
        {
            schedlab_files::remove_if(&file, id).with_context(|| file.display().to_string())?;
        }
    }
    Ok(all)
}

/// Returns the number after the highest that a file beside `file` has: what an earlier run caught
/// stays.
fn next_number(file: &Path) -> u64 {
    let folder =
        file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let end = file
        .extension()
        .map_or(String::new(), |extension| format!(".{}", extension.to_string_lossy()));
    let number = |name: String| -> Option<u64> {
        name.strip_prefix(&stem)?.strip_prefix('-')?.strip_suffix(&end)?.parse().ok()
    };
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let highest =
        names.filter_map(|entry| number(entry.file_name().to_string_lossy().into_owned())).max();
    highest.unwrap_or(0).saturating_add(1)
}

/// Returns what to say about a recording that is not where it should be.
pub(super) fn misplaced(wanted: &Path, recorded: &Recorded) -> Option<anyhow::Error> {
    let why = recorded.not_at_place.as_ref()?;
    Some(anyhow!(
        "the recording is in {}, because it could not be written to {}: {why}. Make room there \
         and move it (what is in /dev/shm is in \
         memory, and gone after a restart)",
        recorded.file.display(),
        wanted.display()
    ))
}

/// Returns `incident-3.slt` of `incident.slt`.
fn numbered(file: &Path, number: u64) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let name = match file.extension() {
        Some(extension) => format!("{stem}-{number}.{}", extension.to_string_lossy()),
        None => format!("{stem}-{number}"),
    };
    file.with_file_name(name)
}
