//! Rounds of `confirm` of which the driver is killed.

use super::*;

/// A `confirm` of one round on a spinner.
fn confirm_a_spinner(folder: &Folder) -> Child {
    let mut confirm = command(
        folder,
        &["confirm", "--scheduler", "rr", "--rounds", "1", "--for", "500ms", "--json"],
    );
    let confirm = confirm.args(["--", "sh", "-c", "while :; do :; done"]);
    confirm.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("schedlab")
}

fn spins(pid: u32) -> bool {
    words_of(pid).starts_with("sh\0-c\0while")
}

/// The driver of a round that manages the spinner now, and the spinner. Never the driver `last`.
fn managing_driver(confirm: u32, last: Option<u32>) -> Option<(u32, u32)> {
    const FIFO: i64 = 1;
    let is_driver = |pid: &u32| Some(*pid) != last && words_of(*pid).contains("\0run\0");
    let driver = started_by(confirm).into_iter().find(is_driver)?;
    let managed = |pid: &u32| spins(*pid) && state(*pid).is_some_and(|(policy, _)| policy == FIFO);
    Some((driver, started_by(driver).into_iter().find(managed)?))
}

/// Sends `signal` to the driver of a round, as soon as that manages the spinner. Gives both.
fn signal_driver(
    confirm: &Child,
    last: Option<u32>,
    signal: rustix::process::Signal,
) -> (u32, u32) {
    let mut seen = None;
    wait_until("the spinner is managed", || {
        seen = managing_driver(confirm.id(), last);
        seen.is_some()
    });
    let (driver, spinner) = seen.expect("it was seen");
    send(driver, signal);
    (driver, spinner)
}

/// A driver that its guardian ended meanwhile is gone: that is no fault.
fn send(driver: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(driver as i32).expect("a process");
    let sent = rustix::process::kill_process(pid, signal);
    assert!(matches!(sent, Ok(()) | Err(rustix::io::Errno::SRCH)), "{driver}: {sent:?}");
}

/// A guardian ends a driver that does not beat, and what the driver managed goes on: not so when it
/// was a round's, which is made again.
#[test]
fn a_round_of_which_the_driver_is_killed_is_made_again_and_leaves_nothing() {
    let Some(_turn) =
        turn("a_round_of_which_the_driver_is_killed_is_made_again_and_leaves_nothing")
    else {
        return;
    };
    // A guardian may end the third driver, too.
    settles(3, a_killed_round_is_made_again);
}

fn a_killed_round_is_made_again() {
    let folder = Folder::new("confirm-killed");
    let confirm = confirm_a_spinner(&folder);
    // Silent, then dead, then well.
    let (first, spinner) = signal_driver(&confirm, None, rustix::process::Signal::STOP);
    let (_, another) = signal_driver(&confirm, Some(first), rustix::process::Signal::KILL);
    let ended = confirm.wait_with_output().expect("a child of this test");
    // 3: what is predicted of so short a round may not be trusted.
    assert!(matches!(ended.status.code(), Some(0 | 3)), "{ended:?}");
    let told: Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    let settings = told["settings"].as_array().expect("settings");
    let elevated = settings.iter().find(|one| one["how"] == "elevation").expect("the scheduler's");
    assert_eq!(elevated["repeated"], 2, "{told}");
    always(!spins(spinner) && !spins(another), || "the command goes on".to_owned());
}

#[test]
fn a_driver_that_is_always_killed_ends_it() {
    let Some(_turn) = turn("a_driver_that_is_always_killed_ends_it") else { return };
    // A round may be over before this sees it.
    settles(3, an_always_killed_driver_ends_it);
}

fn an_always_killed_driver_ends_it() {
    let folder = Folder::new("confirm-ends");
    let mut confirm = confirm_a_spinner(&folder);
    let (mut last, mut spinners) = (None, Vec::new());
    // Not as many as there are drivers: a guardian may end one before this sees it, where the
    // machine is busy.
    wait_until("it ends", || {
        if confirm.try_wait().expect("a child of this test").is_some() {
            return true;
        }
        if let Some((driver, spinner)) = managing_driver(confirm.id(), last) {
            send(driver, rustix::process::Signal::KILL);
            last = Some(driver);
            spinners.push(spinner);
        }
        false
    });
    let ended = confirm.wait_with_output().expect("a child of this test");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    // Before it manages anything its guardian may have been the one to speak.
    let why = ["ended without a report (signal: 9", "the guardian ends process"];
    assert!(
        ended.status.code() == Some(2) && why.iter().any(|why| said.contains(why)),
        "{ended:?}"
    );
    always(spinners.iter().all(|spinner| !spins(*spinner)), || "the command goes on".to_owned());
    assert!(!spinners.is_empty(), "no driver was killed: {ended:?}");
}
