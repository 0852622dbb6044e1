//! `watch` without a screen: what a program reads, and what it says where it cannot work.

use super::schedlab;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Command, Stdio};
use std::time::Duration;

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
    let ran = schedlab(&["watch", "--json", "--for", "1500ms"]);
    if ran.code == 2 {
        assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "recording must work here: {ran:?}");
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

/// A terminal made by script(1): once the screen is drawn a signal comes, and the terminal is as it was.
#[test]
#[allow(clippy::print_stderr)]
fn the_terminal_comes_back_whole_after_a_signal() {
    let folder = std::env::temp_dir().join(format!("schedlab-watch-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (typescript, pid) = (folder.join("typescript"), folder.join("pid"));
    let program = env!("CARGO_BIN_EXE_schedlab");
    let inner = format!(
        "stty rows 24 cols 80; before=$(stty -g); sh -c 'echo $$ > {}; exec {program} watch --for 60s'; code=$?; \
         [ \"$before\" = \"$(stty -g)\" ] && echo WHOLE-$code",
        pid.display()
    );
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        // Nothing of the round before.
        let _ = (std::fs::remove_file(&typescript), std::fs::remove_file(&pid));
        let child = Command::new("script")
            .args(["-qefc", &inner])
            .arg(&typescript)
            .env("TERM", "xterm")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let Ok(mut child) = child else {
            assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "script(1) must be here");
            eprintln!("SKIPPED: no script(1) here");
            return;
        };
        let text = || String::from_utf8_lossy(&std::fs::read(&typescript).unwrap_or_default()).into_owned();
        let drawn = || text().contains("Worst waits");
        while !drawn() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(50));
        }
        if !drawn() {
            assert!(
                std::env::var("CI").map_or(true, |ci| ci != "true"),
                "recording must work here: {}",
                text()
            );
            eprintln!("SKIPPED: nothing can be recorded here");
            return;
        }
        let watch = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(watch).unwrap(), signal).unwrap();
        child.wait().unwrap();
        let text = text();
        let (enter, leave) = (text.find("\u{1b}[?1049h"), text.rfind("\u{1b}[?1049l"));
        assert!(enter.is_some() && leave > enter, "{signal:?}: {text:?}");
        assert!(text.contains("WHOLE-0") && text.contains("watched "), "{signal:?}: {text:?}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
