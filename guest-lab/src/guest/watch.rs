//! Watching over a guest that runs: one that takes too long is ended, and one that hangs is asked
//! first where its CPUs are.

use super::machine::Clock;
use anyhow::{Context, Result, ensure};
use schedlab_host::program::Running;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a guest under the host's clock gives a sign of life on its console
/// (`guest-lab/guest/init.sh`).
pub(super) const BEAT: Duration = Duration::from_secs(5);

/// A guest that gave so many signs less than it should hangs: its kernel, or QEMU. A loaded host
/// delays some.
const MISSED: u32 = 24;

/// QEMU answers within this when it is asked about a guest that hangs.
const ANSWER: Duration = Duration::from_secs(5);

/// How a boot ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// The machine was switched off, by itself.
    Itself,
    /// Its time was over.
    Late,
    /// It gave no sign of life for so long.
    Silent(Duration),
}

/// Waits until QEMU ends, or ends it. `console` is what the guest says, `monitor` where QEMU's
/// answers go if it hangs.
pub(super) fn wait(
    mut running: Running,
    clock: Clock,
    limit: Duration,
    console: &Path,
    monitor: &Path,
) -> Result<Ended> {
    let begin = Instant::now();
    let mut heard = Silence::default();
    while running.ended().context("QEMU")?.is_none() {
        std::thread::sleep(Duration::from_millis(100));
        let length = std::fs::metadata(console).map_or(0, |meta| meta.len());
        let silent = heard.silent(length, begin.elapsed());
        // Under the virtual clock a second takes as long as the host needs for it.
        if clock == Clock::Host && silent > BEAT * MISSED {
            let answers = ask(&mut running)
                .unwrap_or_else(|error| format!("QEMU does not answer: {error:#}\n"));
            std::fs::write(monitor, answers)?;
            running.end(Duration::ZERO);
            return Ok(Ended::Silent(silent));
        }
        if begin.elapsed() > limit {
            running.end(Duration::ZERO);
            return Ok(Ended::Late);
        }
    }
    Ok(Ended::Itself)
}

/// Since when a console has not grown.
#[derive(Default)]
struct Silence {
    length: u64,
    since: Duration,
}

impl Silence {
    /// How long it has been silent at `now`, when it has `length` bytes.
    fn silent(&mut self, length: u64, now: Duration) -> Duration {
        if length != self.length {
            *self = Silence { length, since: now };
        }
        now - self.since
    }
}

/// Where each virtual CPU is, twice, and then an NMI, upon which the kernel panics and says on its
/// console what it did (`unknown_nmi_panic`).
fn ask(running: &mut Running) -> Result<String> {
    let mut monitor = running.stdin().context("no monitor")?;
    let mut answers = running.stdout().context("no monitor")?;
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // It ends with QEMU.
        let _ = answers.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    for request in ["info cpus", "info registers -a", "info registers -a", "nmi"] {
        writeln!(monitor, "{request}")?;
        std::thread::sleep(ANSWER / 4);
    }
    // A kernel that panics ends QEMU. A QEMU that hangs itself takes no request: the caller ends
    // it, with its process group.
    if !ends_soon(running)? {
        let _ = writeln!(monitor, "quit");
        ensure!(ends_soon(running)?, "it took no request");
    }
    Ok(super::machine::plain(&reader.join().unwrap_or_default()))
}

/// Whether it ends within the time that an answer may take.
fn ends_soon(running: &mut Running) -> Result<bool> {
    let asked = Instant::now();
    while running.ended()?.is_none() && asked.elapsed() < ANSWER {
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(running.ended()?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_host::program::Program;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_console_that_grows_is_not_silent() {
        let mut silence = Silence::default();
        assert_eq!(silence.silent(0, 3 * SECOND), 3 * SECOND);
        assert_eq!(silence.silent(10, 4 * SECOND), Duration::ZERO);
        assert_eq!(silence.silent(10, 9 * SECOND), 5 * SECOND);
        assert_eq!(silence.silent(11, 9 * SECOND), Duration::ZERO);
    }

    #[test]
    fn what_is_over_its_time_is_ended_and_what_ends_has_ended_itself() {
        let start = |words: &[&str]| {
            Program { piped: true, ..Program::new(words.iter().copied()) }.start().unwrap()
        };
        let none = Path::new("/no/console");
        let over =
            wait(start(&["sleep", "600"]), Clock::Virtual, Duration::ZERO, none, none).unwrap();
        assert_eq!(over, Ended::Late);
        let limit = Duration::from_secs(600);
        assert_eq!(wait(start(&["true"]), Clock::Host, limit, none, none).unwrap(), Ended::Itself);
    }

    #[test]
    fn a_monitor_is_asked_and_what_it_said_is_kept() {
        let script = "read a; read b; read c; read d; echo \"CPU#0 $a\"; read q; echo $q";
        let mut running =
            Program { piped: true, ..Program::new(["sh", "-c", script]) }.start().unwrap();
        assert_eq!(ask(&mut running).unwrap(), "CPU#0 info cpus\nquit\n\n");
    }
}
