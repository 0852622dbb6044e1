//! `compare --report`: one HTML file with the verdict first and all its provenance.

use super::{Folder, root, schedlab};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn page(name: &str, arguments: &[&str]) -> String {
    let file = schedlab_testing::temp_dir()
        .join(format!("schedlab-report-{}-{name}.html", std::process::id()));
    let path = file.to_str().unwrap();
    let ran = schedlab(&[arguments, &["--report", path]].concat());
    assert!(matches!(ran.code, 0 | 1 | 3), "{ran:?}");
    let html = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    html
}

#[test]
fn of_a_recording() {
    let arguments = [
        "compare",
        "recordings/two-yes.slt",
        "--seeds",
        "2",
        "--variant",
        "one idle: yes policy=idle",
    ];
    let html = page("recording", &arguments);
    let order = ["What changes", "Distributions", "Who ran when", "Where the numbers come from"];
    let places: Vec<usize> =
        order.iter().map(|text| html.find(&format!("-h\">{text}")).unwrap()).collect();
    assert!(html.find("class=\"outcome\"").unwrap() < places[0], "the verdict is first");
    assert!(places.is_sorted(), "{places:?}");
    for fact in ["one idle: yes policy=idle", "recorded by", "CLOCK_MONOTONIC", "6.18.44", "seeds"]
    {
        assert!(html.contains(fact), "{fact}");
    }
    assert!(html.len() < 2_000_000, "{} bytes", html.len());
    assert_eq!(html.matches("\"data\":\"").count(), 3, "lanes of the recording and of two rows");
}

#[test]
fn of_a_scenario() {
    let html = page("scenario", &["compare", "two-hogs", "--seeds", "1"]);
    assert!(html.contains("expectations hold") && html.contains("scenario"));
    assert!(!html.contains("Recorded, then simulated"));
}

/// A named pipe has nothing to read the second time: a program that opens it again waits for ever.
#[test]
fn of_an_input_that_can_be_read_once() {
    let folder = Folder::new("read-once");
    let (pipe, html) = (folder.0.join("two-hogs.toml"), folder.0.join("page.html"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let text = std::fs::read_to_string(root().join("scenarios/two-hogs.toml")).unwrap();
    let into = pipe.clone();
    let writer = std::thread::spawn(move || std::fs::write(into, text));
    let mut child = Command::new(env!("CARGO_BIN_EXE_schedlab"))
        .args(["compare", "--assert", "--seeds", "1", "--report"])
        .args([&html, &pipe])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > Duration::from_secs(120) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("compare reads its input again");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    writer.join().unwrap().unwrap();
    assert!(status.success(), "{status}");
    assert!(std::fs::read_to_string(&html).unwrap().contains("two-hogs"));
}

#[test]
fn an_unwritable_page_is_refused_before_the_work() {
    let ran = schedlab(&["compare", "two-hogs", "--report", "/no/such/folder/x.html"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("cannot be written"), "{}", ran.stderr);
    let ran = schedlab(&["compare", "two-hogs", "--report", "/tmp/x.html", "-o", "/tmp/x.html"]);
    assert_eq!(ran.code, 2);
}

#[test]
fn of_a_recording_that_is_only_shown() {
    let html =
        page("show", &["show", "recordings/two-yes.slt", "--from", "100ms", "--to", "900ms"]);
    for part in [
        "of 800ms for a CPU, ",
        "Who ran when",
        "Which task delayed which",
        "Run-queue length",
        "100ms to 900ms",
    ] {
        assert!(html.contains(part), "{part}");
    }
}
