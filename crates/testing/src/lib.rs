//! For tests only: what to do when the machine under the test is not still.
//!
//! Most tests judge what was computed, in what order things happened, or how much CPU time was
//! used; nothing that the machine does makes such a test fail. The verdict of a few is a
//! measurement of the live machine all the same: a latency, a share, the length of turns. A
//! hypervisor that takes a CPU away for 30 ms in the wrong moment makes one such measurement wrong,
//! and says nothing about us. These tests are given to [`settles`].
//!
//! A folder for their files ([`temp_dir`]), and the browser in which tests look at pages.
#![forbid(unsafe_code)]

mod temp;

pub use temp::temp_dir;

use std::any::Any;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What disturbs is given this long to come to an end, times the number of the attempt that failed.
const PAUSE: Duration = Duration::from_millis(200);

/// Measures up to `attempts` times, until `attempt` ends without a panic: its value. What a failed
/// attempt said is printed; when all have failed, the last one's panic goes on.
///
/// For assertions about measurements of the live machine only. What must hold each time (that
/// everything is given back, that a file opens, that an answer is right) is no measurement.
///
/// # Panics
/// When every attempt did.
pub fn settles<T>(attempts: u32, mut attempt: impl FnMut() -> T) -> T {
    assert!(attempts > 0, "at least one attempt");
    // What an attempt leaves behind when it panics is its own: nothing of it is looked at by the
    // next one.
    let caught = || catch_unwind(AssertUnwindSafe(&mut attempt));
    let excuse = |panic: &Box<dyn Any + Send>| (!panic.is::<Broken>()).then(|| said(&**panic));
    repeated(attempts, caught, excuse).unwrap_or_else(|panic| resume_unwind(panic))
}

/// What held in no attempt may be excused; what [`always`] was told may not.
struct Broken;

/// Returns how many cases a property gets that gets `all` of them when nothing is said:
/// `PROPTEST_CASES` of 256 parts, as of proptest's own usual number, and at least 8.
#[must_use]
pub fn cases(all: u32) -> u32 {
    let said = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    said.map_or(all, |said| share(all, said))
}

fn share(all: u32, said: u32) -> u32 {
    let cases = u64::from(all) * u64::from(said) / 256;
    u32::try_from(cases).unwrap_or(u32::MAX).max(8)
}

/// The turn of a test that manages, hogs or measures a CPU; the next such test begins when this is
/// dropped.
#[derive(Debug)]
pub struct Turn {
    _lock: File,
}

/// Waits for the turn of a test that would disturb others of its kind, or be disturbed by them. The
/// turns of all test programs of one build are one queue, whether the runner makes a thread or a
/// process of a test.
///
/// # Panics
/// When the folder of the test programs cannot be written.
#[must_use]
pub fn turn() -> Turn {
    let program = std::env::current_exe().expect("Linux knows the program of a process");
    let path = program.with_file_name("live-tests.lock");
    // The file stays: the kernel takes the lock back when its holder ends, however that was.
    let options = File::options().create(true).truncate(false).write(true).open(&path);
    let lock = options.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    lock.lock().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Turn { _lock: lock }
}

/// Inside [`settles`]: what must hold in every attempt, such as that everything was given back.
/// Fails the test at once.
///
/// # Panics
/// When it does not hold.
#[expect(clippy::print_stderr, reason = "why a test fails")]
pub fn always(holds: bool, why: impl FnOnce() -> String) {
    if !holds {
        eprintln!("BROKEN, and must never be: {}", why());
        std::panic::panic_any(Broken);
    }
}

/// [`settles`] for tests that return their failure.
///
/// # Errors
/// The last attempt's, when every attempt failed.
pub fn settles_ok<T, E: std::fmt::Debug>(
    attempts: u32,
    attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    repeated(attempts, attempt, |error| Some(format!("{error:?}")))
}

/// `excuse` says why an attempt failed, and nothing when no further one may be made.
fn repeated<T, E>(
    attempts: u32,
    mut attempt: impl FnMut() -> Result<T, E>,
    excuse: impl Fn(&E) -> Option<String>,
) -> Result<T, E> {
    for number in 1..attempts {
        let result = attempt();
        let Some(why) = result.as_ref().err().and_then(&excuse) else { return result };
        say(number, attempts, &why);
        std::thread::sleep(PAUSE * number);
    }
    attempt()
}

#[expect(
    clippy::print_stderr,
    reason = "a measurement that was repeated is seen in the output of its test"
)]
fn say(number: u32, attempts: u32, why: &str) {
    eprintln!(
        "REPEATED: attempt {number} of {attempts} failed, the machine may have been disturbed: \
         {why}"
    );
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text").to_owned()
}

/// Returns the name of a Chromium that starts. `None`: there is none, and the test is to be skipped
/// by name.
///
/// # Panics
/// In CI, which installs one.
pub fn chromium() -> Option<&'static str> {
    let works = |name: &&str| {
        Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
    };
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(works);
    let in_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(found.is_some() || !in_ci, "CI installs chromium (.ci/run)");
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_fault_fails_every_attempt() {
        let mut attempts = 0;
        let ended = catch_unwind(AssertUnwindSafe(|| {
            settles(3, || {
                attempts += 1;
                assert!(attempts > 7, "planted {attempts}");
            })
        }));
        assert_eq!((attempts, said(&*ended.unwrap_err())), (3, "planted 3".to_owned()));
        let mut attempts = 0;
        let ended: Result<(), i32> = settles_ok(3, || {
            attempts += 1;
            Err(attempts)
        });
        assert_eq!(ended, Err(3));
    }

    #[test]
    fn a_push_has_a_quarter_of_the_cases() {
        assert_eq!(
            (share(512, 64), share(40, 64), share(16, 64), share(64, 5120)),
            (128, 10, 8, 1280)
        );
        assert_eq!(share(u32::MAX, u32::MAX), u32::MAX);
    }

    #[test]
    fn one_test_has_the_turn() {
        let held = turn();
        let (waits, had) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                waits.store(true, Ordering::SeqCst);
                let _turn = turn();
                had.store(true, Ordering::SeqCst);
            });
            while !waits.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            assert!(!had.load(Ordering::SeqCst), "two tests have the turn");
            drop(held);
        });
        assert!(had.into_inner());
    }

    #[test]
    fn what_must_always_hold_is_not_tried_again() {
        let mut attempts = 0;
        let ended = catch_unwind(AssertUnwindSafe(|| {
            settles(3, || {
                attempts += 1;
                always(attempts > 1, || "planted".to_owned());
            })
        }));
        assert!(ended.is_err() && attempts == 1);
    }

    #[test]
    fn a_disturbance_is_measured_again_and_a_quiet_machine_once() {
        let mut attempts = 0;
        let value = settles(3, || {
            attempts += 1;
            assert!(attempts == 2, "disturbed");
            attempts
        });
        assert_eq!((value, attempts), (2, 2));
        let mut attempts = 0;
        settles(3, || attempts += 1);
        assert_eq!(attempts, 1);
    }
}
