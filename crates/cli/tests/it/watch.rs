//! `watch` without a screen: what a program reads, and what it says where it cannot work.

use super::schedlab;
use super::terminal::Terminal;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn it_says_that_it_needs_a_terminal() {
    let ran = schedlab(&["watch", "--for", "1s"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("terminal") && ran.stderr.contains("--json"), "{}", ran.stderr);
    assert!(ran.stdout.is_empty(), "no escape sequences into a pipe");
}

#[test]
#[allow(clippy::print_stderr)]
fn lines_of_json_name_this_machines_tasks() {
    let ran = schedlab(&["watch", "--json", "--for", "3500ms"]);
    if ran.code == 2 {
        assert!(
            std::env::var("CI").map_or(true, |ci| ci != "true"),
            "recording must work here: {ran:?}"
        );
        eprintln!("SKIPPED: nothing can be recorded here");
        return;
    }
    let last = ran.stdout.lines().last().unwrap();
    let value: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(value["schema"], "schedlab-watch/1");
    assert!(value["events"].as_u64().unwrap() > 0);
    assert!(!value["tasks"].as_array().unwrap().is_empty());
    assert!(ran.stdout.lines().count() >= 2, "one a second and one at the end");
}

#[test]
fn a_process_that_does_not_exist_is_an_answer() {
    let ran = schedlab(&["watch", "--json", "--pid", "4194303", "--for", "1s"]);
    assert_eq!(ran.code, 2, "{ran:?}");
}

#[test]
#[allow(clippy::print_stderr)]
fn the_terminal_comes_back_whole_after_a_signal() {
    let folder =
        schedlab_testing::temp_dir().join(format!("schedlab-watch-{}", std::process::id()));
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let Some(mut terminal) = Terminal::run(&folder, "watch --for 60s", &[]) else {
            eprintln!("SKIPPED: no script(1) here");
            return;
        };
        if !terminal.shows("Longest waits") {
            let text = terminal.text();
            assert!(std::env::var_os("CI").is_none(), "recording must work here: {text}");
            eprintln!("SKIPPED: nothing can be recorded here");
            return;
        }
        terminal.signal(signal);
        let text = terminal.left_whole(0);
        assert!(text.contains("watched "), "{signal:?}: {text:?}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
#[allow(clippy::print_stderr)]
fn tasks_are_chosen_by_name_or_unit() {
    for (option, value) in [("--task", "schedlab*"), ("--unit", "no-such-unit")] {
        let ran = schedlab(&["watch", "--json", option, value, "--for", "1500ms"]);
        if ran.code == 2 {
            assert!(std::env::var_os("CI").is_none(), "recording must work here: {ran:?}");
            eprintln!("SKIPPED: nothing can be recorded here");
            return;
        }
        let last = ran.stdout.lines().last().expect("a line");
        let value: serde_json::Value = serde_json::from_str(last).expect("JSON");
        let tasks = value["tasks"].as_array().expect("tasks");
        let is_own = |task: &serde_json::Value| {
            task["task"].as_str().is_some_and(|name| name.starts_with("schedlab"))
        };
        assert!(tasks.iter().all(is_own), "{value}");
        assert_eq!(tasks.is_empty(), option == "--unit", "{value}");
        assert!(value["guess"].is_null(), "the user named tasks: {value}");
    }
    for both in [["--task", "a", "--unit", "b"], ["--pid", "1", "--task", "a"]] {
        let ran = schedlab(&[&["watch", "--json"][..], &both].concat());
        assert!(ran.code == 2 && ran.stderr.contains("cannot be used with"), "{ran:?}");
    }
}

/// The keys: a search, and the last seconds as a recording.
#[test]
#[allow(clippy::print_stderr)]
fn keys_search_and_save() {
    let folder = super::Folder::new("watch-keys");
    let Some(mut terminal) = Terminal::run(&folder.0, "watch --for 60s", &[]) else { return };
    if !terminal.shows("Longest waits") {
        assert!(std::env::var_os("CI").is_none(), "recording must work here");
        eprintln!("SKIPPED: nothing can be recorded here");
        return;
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    terminal.press("w");
    let saved = || folder.names().into_iter().find(|name| name.ends_with(".slt"));
    let begun = std::time::Instant::now();
    while saved().is_none() && begun.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    terminal.press("/quit\r");
    // q was a letter.
    terminal.press("p");
    assert!(terminal.shows("PAUSED"), "{}", terminal.text());
    terminal.press("q");
    terminal.left_whole(0);
    let saved = folder.0.join(saved().expect("a file")).display().to_string();
    let ran = schedlab(&["show", &saved, "--tasks"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

/// Returns what `watch` serves at a socket; an empty text: nothing yet.
fn scraped(socket: &str) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = UnixStream::connect(socket) {
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it listens");
        stream.read_to_string(&mut text).expect("an answer");
    }
    text
}

/// Rows and series are by what the user chose, and the server ends with the command.
#[test]
#[allow(clippy::print_stderr)]
fn rows_and_metrics_are_by_what_the_user_chose() {
    let folder = super::Folder::new("watch-by");
    let socket = folder.0.join("metrics").display().to_string();
    let address = format!("unix:{socket}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command.args(["watch", "--by", "cgroup", "--json", "--openmetrics", &address]);
    let mut watch =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    let counted = |text: &str| {
        let count = "schedlab_wait_seconds_count{cgroup=\"/";
        text.lines().any(|line| line.starts_with(count) && !line.ends_with(" 0"))
    };
    let mut text = String::new();
    while !counted(&text) && watch.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{text}");
        std::thread::sleep(Duration::from_millis(50));
        text = scraped(&socket);
    }
    // The line of the end says what was counted until then.
    let _ = kill_process(Pid::from_child(&watch), Signal::INT);
    let ran = watch.wait_with_output().expect("it ends");
    if ran.status.code() == Some(2) {
        assert!(std::env::var_os("CI").is_none(), "recording must work here: {ran:?}");
        eprintln!("SKIPPED: nothing can be recorded here");
        return;
    }
    assert!(text.contains(" 200 OK") && text.ends_with("# EOF\n"), "{text}");
    assert!(!text.contains("command=\""), "{text}");
    let stdout = String::from_utf8(ran.stdout).expect("text");
    let last: serde_json::Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["by"], "cgroup");
    let rows: Vec<&str> =
        last["tasks"].as_array().unwrap().iter().map(|row| row["task"].as_str().unwrap()).collect();
    assert!(!rows.is_empty() && rows.iter().all(|row| row.starts_with('/')), "{rows:?}");
    let is_row = |row: &serde_json::Value| rows.contains(&row["row"].as_str().unwrap());
    assert!(last["worst"].as_array().unwrap().iter().all(is_row), "{last}");
    assert_eq!(scraped(&socket), "", "the server ended");
}

#[test]
fn metrics_are_for_this_machine_and_rows_are_known() {
    let ran = schedlab(&["watch", "--openmetrics", "0.0.0.0:9920", "--for", "1s"]);
    assert!(ran.code == 2 && ran.stderr.contains("only loopback"), "{ran:?}");
    let ran = schedlab(&["watch", "--by", "color", "--json", "--for", "1s"]);
    assert!(ran.code == 2 && ran.stderr.contains("container"), "{ran:?}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = schedlab(&["watch", "--openmetrics", &address, "--for", "1s"]);
    assert!(ran.code == 2 && ran.stderr.contains(&address), "{ran:?}");
}
