//! `watch` without a screen: what a program reads, and what it says where it cannot work.

use super::schedlab;
use super::terminal::Terminal;
use rustix::process::Signal;

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
