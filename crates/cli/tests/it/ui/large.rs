//! A recording of a large machine in a real browser.

use super::super::Folder;
use super::Server;
use super::browser::{Browser, ERRORS, READY};
use schedlab_study::{scenario, show};

/// Length of the recording: 64 CPUs and 2,000 programs have 418,000 events in it. With
/// `SCHEDLAB_LARGE=600ms` it is two million.
const LENGTH: &str = "120ms";
/// Bytes of what the page gets before its first sentences: chosen between the 36 kB of one run and
/// the 700 kB of all 2,000 programs.
const OVERVIEW: u64 = 150_000;
/// Bytes that the scripts hold for an event at most: chosen, more than twice the 12 of one run of
/// Chromium 156.
const HELD: u64 = 30;

/// Clients and servers, each a program of its own.
fn made(folder: &Folder) -> String {
    let length = std::env::var("SCHEDLAB_LARGE").unwrap_or_else(|_| LENGTH.to_owned());
    let toml = format!(
        r#"title = "a large machine"
schedulers = ["linux-6.12"]
duration = "{length}"
channels = [{{ name = "ask", count = 900 }}, {{ name = "reply", count = 900 }}]
[machine]
cpus = 64
[[task]]
name = "server"
count = 900
program = ["receive ask-{{n}}", "run exp 40us", "send reply-{{n}}"]
[[task]]
name = "client"
count = 900
program = ["send ask-{{n}}", "receive reply-{{n}}", "run exp 20us", "sleep exp 2ms"]
[[task]]
name = "periodic"
count = 150
program = ["every 5ms", "run exp 200us"]
[[task]]
name = "batch"
count = 50
program = ["run exp 3ms", "sleep exp 1ms"]
"#
    );
    let scenario = scenario::parse("made", "made.toml", &toml).unwrap();
    let recording = show::simulate(&scenario, None, None, None).unwrap();
    let path = folder.0.join("large.slt");
    schedlab_trace::save(&recording, &path).unwrap();
    path.display().to_string()
}

#[test]
fn a_large_recording_is_looked_at() {
    let Some(mut browser) = Browser::new("ui-large") else { return };
    let folder = Folder::new("ui-large-file");
    let file = made(&folder);
    let server = Server::new(&[&file]);
    let tab = browser.open(&server.page(""));
    browser.wait(&tab, READY);
    let events = server.get("/api/1/inputs/f0/overview").json()["events"].as_u64().unwrap();
    assert!(events > 200_000, "{events} events");
    // What comes first is small, and all programs are there in the end.
    let size = "performance.getEntriesByType('resource').find((one) => \
                one.name.includes('/overview')).decodedBodySize";
    let size = browser.run(&tab, size).as_u64().unwrap();
    assert!(size < OVERVIEW, "{size} bytes before the first sentence");
    browser.wait(&tab, "document.querySelectorAll('#target option').length >= 2000");
    let rows = "[...document.querySelectorAll('#programs ~ .scroll')][0].querySelectorAll('tbody \
                tr').length";
    assert_eq!(browser.run(&tab, rows), 100);
    // A wait is gone to, and the view moves.
    browser.run(&tab, "document.querySelector('.waits a').click()");
    let view = "['from', 'to'].map((end) => Number(document.getElementById('lanes').dataset[end]))";
    browser.wait(&tab, &format!("(([from, to]) => to - from < 5e7)({view})"));
    let before = browser.run(&tab, view);
    browser.run(&tab, "document.querySelector('#lanes canvas[tabindex]').focus()");
    browser.key(&tab, "ArrowRight", 39);
    browser.wait(&tab, &format!("(([from]) => from > {})({view})", before[0]));
    let held = browser.heap(&tab);
    assert!(held < events * HELD, "the scripts hold {held} bytes for {events} events");
    assert_eq!(browser.run(&tab, ERRORS), "");
}
