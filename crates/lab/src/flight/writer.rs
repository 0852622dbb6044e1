//! Writes the recordings of incidents, in a thread of its own, and runs what the user wants after
//! each.

use super::folder::Folder;
use super::log::{FlightLine, Level, What, unix_ns};
use crate::record::{Recorded, Snapshot};
use rustix::process::{Pid, Signal, kill_process_group};
use schedlab_host::in_kernel::Kept;
use schedlab_model::Ns;
use schedlab_trace::Incident;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// How a recording is called that no rule made.
pub(super) const BY_HAND: &str = "asked";

/// Time between two looks at a program that runs.
const LOOK: Duration = Duration::from_millis(20);

/// A recording that is to be written.
pub(super) struct Job {
    pub(super) snapshot: Snapshot,
    /// What was recorded, where it is not in the snapshot yet.
    pub(super) kept: Option<Kept>,
    /// The rule, or [`BY_HAND`].
    pub(super) rule: String,
    pub(super) max_total: u64,
    pub(super) run: Option<Vec<String>>,
    pub(super) run_timeout: Ns,
}

/// Writes until no more jobs can come.
pub(super) fn write_all(jobs: Receiver<Job>, folder: &Folder, log: &(dyn Fn(FlightLine) + Sync)) {
    for job in jobs {
        let Job { mut snapshot, kept, rule, max_total, run, run_timeout } = job;
        if let Some(kept) = kept {
            snapshot.fill(kept);
        }
        let place = folder.place(&rule, unix_ns());
        let recorded = match snapshot.write(&place, true) {
            Ok(recorded) => recorded,
            Err(error) => {
                let line = FlightLine::new(Level::Error, What::NotWritten, error.to_string());
                log(line.of_rule(&rule));
                continue;
            }
        };
        log(written(&place, &recorded, &rule));
        match folder.shrink(max_total, &recorded.file) {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => log(FlightLine::new(
                Level::Info,
                What::Removed,
                format!("{} of the oldest recordings were removed (max-total)", removed.len()),
            )),
            Err(error) => log(FlightLine::new(
                Level::Warning,
                What::Removed,
                format!("old recordings cannot be removed: {error}"),
            )),
        }
        let Some(program) = run else { continue };
        if let Err(what) = after(&program, run_timeout, &rule, &recorded) {
            let what = format!("{}: {what}", program.join(" "));
            log(FlightLine::new(Level::Error, What::RunFailed, what).of_rule(&rule));
        }
    }
}

/// Returns the line about a recording that was written.
fn written(place: &Path, recorded: &Recorded, rule: &str) -> FlightLine {
    let length = recorded.kept.map_or(recorded.end.duration, |kept| kept.duration);
    let mut message = format!("{} holds {length}", recorded.file.display());
    if recorded.kept.is_some_and(|kept| kept.short) {
        message += "; memory was too small for all of the ring";
    }
    let line = match &recorded.not_at_place {
        None => FlightLine::new(Level::Info, What::Written, message),
        Some(why) => FlightLine::new(
            Level::Error,
            What::NotWritten,
            format!("{message}, because it could not be written to {}: {why}", place.display()),
        ),
    };
    let incident = incident(recorded);
    FlightLine { file: Some(recorded.file.clone()), incident, ..line.of_rule(rule) }
}

/// Returns what is in the recording, in its time.
fn incident(recorded: &Recorded) -> Option<Incident> {
    recorded.caught.as_ref().map(|caught| caught.since(Ns::ZERO))
}

/// Runs a program; it gets the file, the rule, and the incident as JSON.
fn after(program: &[String], most: Ns, rule: &str, recorded: &Recorded) -> Result<(), String> {
    let [name, arguments @ ..] = program else { return Ok(()) };
    let json = serde_json::to_string(&incident(recorded)).map_err(|error| error.to_string())?;
    let mut command = Command::new(name);
    command.args(arguments).env("SCHEDLAB_FILE", &recorded.file).env("SCHEDLAB_RULE", rule);
    command.env("SCHEDLAB_INCIDENT", &json).stdin(Stdio::piped()).stdout(std::io::stderr());
    // A group of its own, so that what it started can be ended with it.
    let mut child = command.process_group(0).spawn().map_err(|error| error.to_string())?;
    if let Some(mut input) = child.stdin.take() {
        // A program that does not read has its reasons. What is written is less than a pipe holds.
        let _ = writeln!(input, "{json}");
    }
    let began = Instant::now();
    while began.elapsed() < Duration::from_nanos(most.0) {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(status.to_string()),
            None => std::thread::sleep(LOOK),
        }
    }
    end(&mut child);
    Err(format!("it took longer than {most} and was killed"))
}

fn end(child: &mut Child) {
    if let Ok(id) = i32::try_from(child.id())
        && let Some(group) = Pid::from_raw(id)
    {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}
