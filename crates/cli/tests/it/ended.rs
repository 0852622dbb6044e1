//! `tune` and `published` on a terminal: the best answer so far is on the screen, and Ctrl-C and
//! TERM end them with the answer of what is finished.

use super::Folder;
use super::terminal::Terminal;
use rustix::process::Signal;

/// Runs the command until these words are on the screen, sends the signal, and returns all that
/// was written. `None`: there is no script(1).
fn ended(folder: &Folder, command: &str, words: &str, signal: Signal) -> Option<String> {
    let Some(mut terminal) = Terminal::run(&folder.0, command, &[]) else {
        super::skip("ended", "no script(1)");
        return None;
    };
    assert!(terminal.shows(words), "{command}: {}", terminal.text());
    terminal.signal(signal);
    Some(terminal.ended())
}

/// So many runs that it never comes to an end by itself.
const SEARCH: &str = "tune redis-batch --goal \"clients response p99 < 1ms\" --for 2s --seeds 1000 \
                      --space \"sysbench nice=0,5,10,19\" --keep \"sysbench share\"";

#[test]
fn a_search_shows_the_best_setting_and_answers_on_ctrl_c() {
    let folder = Folder::new("ended-search");
    let Some(text) = ended(&folder, SEARCH, "so far: sysbench nice=", Signal::INT) else { return };
    assert!(text.contains("/5000 runs") && text.contains("WHOLE-3"), "{text}");
    assert!(text.contains(": ended early, after ") && text.contains("Run sysbench at"), "{text}");
}

#[test]
fn the_file_of_an_ended_search_is_whole_and_marked() {
    let folder = Folder::new("ended-file");
    let command = format!("{SEARCH} --json -o found.json");
    let Some(text) = ended(&folder, &command, "so far: sysbench nice=", Signal::TERM) else {
        return;
    };
    assert!(text.contains("WHOLE-3"), "{text}");
    let file = std::fs::read_to_string(folder.0.join("found.json")).expect("it was written");
    super::schema::fits("tune", &file);
    let found: serde_json::Value = serde_json::from_str(&file).expect("JSON");
    let partial = &found["partial"];
    assert!(partial["runs"].as_u64().is_some_and(|runs| runs < 5_000), "{partial}");
    assert_eq!(partial["of_runs"], 5_000);
}

/// The second scenario takes far longer than the first.
#[test]
fn published_answers_with_the_scenarios_that_are_finished() {
    let folder = Folder::new("ended-published");
    for (arguments, signal) in [("", Signal::INT), (" --json > found.json", Signal::TERM)] {
        let command = format!("published two-hogs xen-bare-steals{arguments}");
        let Some(text) = ended(&folder, &command, "so far: 1 of 2: ", signal) else { return };
        assert!(text.contains("WHOLE-3"), "{text}");
        let said = "ended early, after 1 of 2 scenarios";
        assert!(!arguments.is_empty() || text.contains(said), "{text}");
    }
    let file = std::fs::read_to_string(folder.0.join("found.json")).expect("it was written");
    super::schema::fits("published", &file);
    let found: serde_json::Value = serde_json::from_str(&file).expect("JSON");
    assert_eq!(
        (&found["partial_of"], found["scenarios"].as_array().unwrap().len()),
        (&2.into(), 1)
    );
}

#[test]
fn latency_for_an_hour_ends_with_what_is_measured() {
    let folder = Folder::new("ended-latency");
    let command = "latency --for 1h --cpus 0 --no-lock --json -o found.json";
    let Some(text) = ended(&folder, command, " Max:", Signal::TERM) else { return };
    assert!(text.contains("measures for 3600s; Ctrl-C ends it"), "{text}");
    assert!(text.contains("WHOLE-3"), "{text}");
    let file = std::fs::read_to_string(folder.0.join("found.json")).expect("it was written");
    let found: serde_json::Value = serde_json::from_str(&file).expect("JSON");
    assert_eq!(found["stopped"], true);
}
