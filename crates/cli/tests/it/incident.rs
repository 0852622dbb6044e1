//! What a flight recorder caught is what `show` and the page begin with.

use super::{Folder, schedlab};
use schedlab_model::{CpuId, EventKind, Ns, PrevState, SchedEvent, TaskId, Topology, Waker};
use schedlab_trace::{Capabilities, Header, Incident, Recording, TaskInfo};

/// Ten seconds in which two tasks take turns every 10 us, and at the end `victim` waits 20 ms
/// behind `hog`: more events than a page has room for.
fn caught(folder: &Folder) -> String {
    let names = ["a", "b", "hog", "victim"];
    let tasks = (1..).zip(names).map(|(tid, name)| TaskInfo::unknown(tid, tid, name)).collect();
    let mut header = Header {
        tasks,
        topology: Topology::flat(1),
        capabilities: Capabilities::simulator(),
        ..Header::default()
    };
    header.set_incident(&Incident {
        condition: "victim waited > 10.0ms".to_owned(),
        task: "victim".to_owned(),
        tid: 4,
        did: "waited".to_owned(),
        from_ns: 9_970_000_000,
        length_ns: Some(20_000_000),
        before_ns: 0,
    });
    let event = |us: u64, kind| SchedEvent { at: Ns::from_us(us), cpu: CpuId(0), kind };
    let switch = |prev: u32, prev_state, next: u32| EventKind::Switch {
        prev: Some(TaskId(prev)),
        prev_state,
        next: Some(TaskId(next)),
    };
    let turn = |n: u64| {
        let (one, other) = if n.is_multiple_of(2) { (0, 1) } else { (1, 0) };
        event(n * 5, switch(one, PrevState::Runnable, other))
    };
    let mut events: Vec<SchedEvent> = (0..1_990_000).map(turn).collect();
    events.push(event(9_950_000, switch(0, PrevState::Runnable, 2)));
    let wake = EventKind::Wake { task: TaskId(3), waker: Waker::HardIrq };
    events.push(event(9_970_000, wake));
    events.push(event(9_990_000, switch(2, PrevState::Sleeping, 3)));
    events.push(event(9_990_100, switch(3, PrevState::Sleeping, 0)));
    let recording = Recording::from_parts(header, events, Ns::from_s(10)).expect("in order");
    let file = folder.0.join("caught.slt");
    schedlab_trace::save(&recording, &file).expect("the folder is writable");
    file.display().to_string()
}

#[test]
fn what_was_caught_is_the_headline() {
    let folder = Folder::new("incident");
    let file = caught(&folder);
    let said = "victim[4] waited 20.0ms for a CPU, behind hog[3], from 9.97s on: the recording was \
                kept for this (victim waited > 10.0ms).";
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let ran = schedlab(&["show", &file]);
    assert!(plain(&ran.stdout).starts_with(said), "{}", ran.stdout);
    let ran = schedlab(&["show", &file, "--to", "5s"]);
    assert!(!ran.stdout.contains("was kept for this"), "{}", ran.stdout);
    let json = schedlab(&["show", &file, "--worst", "1", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["caught"]["from_ns"], 9_970_000_000_u64);

    let page = folder.0.join("caught.html").display().to_string();
    let ran = schedlab(&["show", &file, "--report", &page]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let page = std::fs::read_to_string(&page).expect("it was written");
    assert!(page.contains("victim[4] waited 20.0ms for a CPU, behind hog[3]"));
    // The lanes have room for the end alone, and begin with what was caught in view.
    assert!(page.contains("\"focus_ns\":[9960000000,10000000000]"), "no focus");
    let end = |name: &str| {
        let (_, rest) = page.split_once(&format!("\"{name}\":")).expect("lanes");
        let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default();
        digits.parse::<u64>().expect("a time")
    };
    assert!((3_000_000_000..9_900_000_000).contains(&end("from_ns")), "{}", end("from_ns"));
    assert_eq!(end("to_ns"), 10_000_000_000);
    assert!(page.contains("Not the whole run is shown"));
}
