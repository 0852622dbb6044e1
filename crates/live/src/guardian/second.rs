//! The second guardian: a child of the guardian that sleeps until that one ends, and does its work when it was killed
//! together with the owner. It leads a session of its own, as the guardian does: a signal to a whole process group,
//! or to the two largest processes, does not reach it.

use super::{GuardianEnd, GuardianOptions, QUIT, put_back, stop_owner};
use crate::LiveError;
use crate::journal::Record;
use std::io::{self, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// An owner without a guardian has this long to notice and to restore everything by itself.
const ALONE: Duration = Duration::from_secs(5);
/// How often the owner is looked at meanwhile.
const STEP: Duration = Duration::from_millis(5);
/// A second guardian that was told to go and does not is left behind; it ends with the guardian's pipe.
const GOING: Duration = Duration::from_secs(1);

/// Runs the second guardian.
pub(super) fn wait(watch: &GuardianOptions, record: Option<&Record>) -> Result<GuardianEnd, LiveError> {
    let mut byte = [0];
    loop {
        match io::stdin().read(&mut byte) {
            Ok(1) if byte[0] == QUIT => return Ok(GuardianEnd::Dismissed),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => break,
            Ok(0) => break,
            _ => {}
        }
    }
    let begun = Instant::now();
    let Some(owner) = record.map(|record| &record.head.owner) else { return put_back(&watch.journal) };
    while owner.process_lives() && !owner.is_ending() {
        if !watch.journal.exists() {
            return Ok(GuardianEnd::Dismissed);
        }
        // Where silence counts, an owner that goes on is killed.
        if watch.silence.is_some() && begun.elapsed() > ALONE {
            stop_owner(record);
            break;
        }
        std::thread::sleep(STEP);
    }
    put_back(&watch.journal)
}

/// The guardian's end of it. There is none where it could not be started: then the guardian is alone, as it is when
/// the second one was killed.
pub(super) struct Second(Option<(Child, ChildStdin)>);

impl Second {
    pub(super) fn start(watch: &GuardianOptions) -> Second {
        let watch = GuardianOptions { second: true, starve: None, ..watch.clone() };
        let start = || {
            let mut command = Command::new(std::env::current_exe().ok()?);
            command.args(watch.arguments()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().ok()?;
            let pipe = child.stdin.take()?;
            Some((child, pipe))
        };
        Second(start())
    }

    /// Tells it to go: everything is restored.
    pub(super) fn dismiss(self) {
        let Some((mut child, mut pipe)) = self.0 else { return };
        let _ = pipe.write_all(&[QUIT]);
        drop(pipe);
        let begun = Instant::now();
        while matches!(child.try_wait(), Ok(None)) && begun.elapsed() < GOING {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
