//! `schedlab tune`: a search finds the setting, says what it costs, and gives the same bytes again.

use super::schedlab;
use serde_json::Value;

const RECORDING: &str = "recordings/redis-other-other-closed8.slt";

fn tune(input: &str, more: &[&str]) -> super::Ran {
    schedlab(&[&["tune", input][..], more].concat())
}

fn json(input: &str, more: &[&str]) -> Value {
    let ran = tune(input, &[more, &["--json"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    super::schema::fits("tune", &ran.stdout);
    serde_json::from_str(&ran.stdout).expect("JSON")
}

#[test]
fn the_batch_job_of_the_scenario_becomes_idle() {
    let goal = "clients response p99 < 1ms";
    let policies = "sysbench policy=other,batch,idle";
    let options = ["--goal", goal, "--keep", "sysbench share", "--space", policies, "--seeds", "3"];
    let found = json("redis-batch", &options);
    let place = found["recommended"].as_u64().expect("there is one") as usize;
    assert_eq!(found["settings"][place]["setting"], "sysbench policy=idle");
    assert_eq!(found["settings"][place]["meets"][0], "yes");
    let outcome = found["verdict"]["outcome"].as_str().unwrap();
    assert!(outcome.starts_with("Run sysbench under SCHED_IDLE"), "{outcome}");
    assert!(
        outcome.contains("within the goal") && outcome.contains("it costs sysbench CPU share"),
        "{outcome}"
    );
    let variant = &found["confirm"]["arguments"][1];
    assert_eq!(variant, "tuned: sysbench policy=idle");
}

/// The last round is a comparison of these variants with these seeds.
#[test]
fn the_numbers_of_a_recording_are_those_of_compare() {
    let options =
        ["--goal", "redis-server share", "--space", "sysbench policy=batch,idle", "--seeds", "2"];
    let found = json(RECORDING, &options);
    let ran = schedlab(&[
        "compare",
        RECORDING,
        "--seeds",
        "2",
        "--variant",
        "sysbench policy=idle",
        "--json",
    ]);
    let compared: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let rows = compared["rows"].as_array().unwrap();
    let subjects = rows[1]["subjects"].as_array().unwrap();
    let redis = subjects.iter().find(|subject| subject["name"] == "redis-server").unwrap();
    let cells = redis["cells"].as_array().unwrap();
    let share = cells.iter().find(|cell| cell["metric"] == "share").unwrap();
    let settings = found["settings"].as_array().unwrap();
    let idle = settings.iter().find(|one| one["setting"] == "sysbench policy=idle").unwrap();
    assert_eq!(&idle["figures"][0], share);
    assert_eq!(idle["deploy"], rows[1]["deploy"]);
}

#[test]
fn a_search_gives_the_same_bytes_on_one_thread_and_on_two() {
    let options = [
        "--goal",
        "redis-server share",
        "--keep",
        "sysbench share",
        "--space",
        "sysbench nice=0..19",
        "--space",
        "base_slice_ns=0.3ms..30ms",
        "--trials",
        "16",
        "--seeds",
        "2",
        "--seed",
        "7",
        "--for",
        "300ms",
    ];
    let one = tune(RECORDING, &[&options[..], &["--json", "--jobs", "1"]].concat());
    let two = tune(RECORDING, &[&options[..], &["--json", "--jobs", "2"]].concat());
    assert!([0, 3].contains(&one.code), "{one:?}");
    assert_eq!(one.stdout, two.stdout);
    let found: Value = serde_json::from_str(&one.stdout).expect("JSON");
    assert_eq!(
        (&found["search"]["how"], &found["search"]["settings"]),
        (&"sample".into(), &16.into())
    );
    // The seeds of the numbers are not those of the search.
    assert_eq!(found["seeds"], serde_json::json!([9, 10]));
    assert_eq!(found["settings"].as_array().map(Vec::len), Some(13));
}

#[test]
fn what_was_found_is_tried_on_a_recording_that_the_search_did_not_see() {
    let other = "recordings/redis-other-other-closed.slt";
    let space = ["--space", "sysbench policy=batch,idle", "--seeds", "1", "--validate", other];
    let found = json(RECORDING, &[&["--goal", "redis-server share"][..], &space].concat());
    let held_out = &found["validated"][0];
    assert_eq!(
        (&held_out["file"], &held_out["holds"][0]),
        (&other.into(), &"holds".into()),
        "{held_out}"
    );
    let ran = tune(
        RECORDING,
        &[&["--goal", "redload share"][..], &space[..4], &["--validate", "recordings/two-yes.slt"]]
            .concat(),
    );
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.stderr.contains(
            "--validate recordings/two-yes.slt: --goal 'redload share': nothing is called"
        ),
        "{ran:?}"
    );
}

/// What is found by messages is confirmed by messages.
#[test]
fn the_line_for_confirm_has_the_replay() {
    let file = "recordings/redis-messages.slt";
    let options = ["--goal", "batch share", "--space", "batch policy=other,batch", "--seeds", "1"];
    let confirm = |more: &[&str]| {
        let found = json(file, &[&options[..], more].concat());
        assert_eq!(found["trusted"], true, "{}", found["distrust"]);
        found["confirm"]["arguments"].to_string()
    };
    for by_messages in [confirm(&["--replay", "messages"]), confirm(&[])] {
        assert!(by_messages.contains(r#""--replay","messages""#), "{by_messages}");
    }
    assert!(!confirm(&["--replay", "wakeups"]).contains("--replay"));
    let ran = tune(file, &[&options[..], &["--replay", "letters"]].concat());
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("there are auto, messages and wakeups"), "{ran:?}");
}

/// p99 of a few dozen activations says nothing, and neither does the answer.
#[test]
fn a_gain_that_is_not_certain_is_none() {
    let options = [
        "--goal",
        "redis-server latency p99",
        "--space",
        "sysbench policy=batch,idle",
        "--seeds",
        "2",
    ];
    let ran = tune(RECORDING, &options);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stdout.starts_with("No setting of the space gains anything for certain"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("fewer than two values lie beyond latency p99"), "{}", ran.stdout);
    let deploy = tune(RECORDING, &[&options[..], &["--deploy", "shell"]].concat());
    assert_eq!(deploy.code, 2, "{deploy:?}");
}

#[test]
fn more_cpus_are_no_setting() {
    let options = [
        "--goal",
        "clients response p99",
        "--space",
        "sysbench cpus=0,1",
        "--for",
        "1500ms",
        "--seeds",
        "1",
    ];
    let ran = tune("redis-batch", &options);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stdout
            .contains("no setting of this machine under its load, or refused: sysbench cpus=1"),
        "{}",
        ran.stdout
    );
}

/// A nice value that counts against no other task is named, and not tried.
#[test]
fn what_cannot_matter_is_not_tried() {
    let groups = "recordings/pairs/guest/6.1-caddy-groups.slt";
    let goal = ["--goal", "caddy share", "--seeds", "1", "--space", "batch nice=0,19"];
    let ran = tune(groups, &goal);
    assert_eq!(ran.code, 2, "{ran:?}");
    let why = "batch is alone in /batch: nice=19 changes no share there; the weight of /batch does";
    assert!(ran.stderr.contains(why), "{ran:?}");
    assert!(ran.stderr.contains("--space '/batch cpu.weight=1..100'"), "{ran:?}");
    let ran = tune(groups, &[&goal[..], &["--space", "/batch cpu.weight=1,100"]].concat());
    assert!([0, 3].contains(&ran.code), "{ran:?}");
    let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("not tried: --space 'batch nice=0,19': "), "{text}");
    assert!(text.contains("/batch cpu.weight=1") && !text.contains("nice=0 ;"), "{text}");
}

/// The names of the settings that a search tried and kept, its first row apart.
fn tried(input: &str, goal: &str, space: &str) -> Vec<String> {
    let options = ["--goal", goal, "--space", space, "--seeds", "1", "--for", "1200ms"];
    let ran = tune(input, &[&options[..], &["--json"]].concat());
    assert!([0, 3].contains(&ran.code), "{space}: {ran:?}");
    let found: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let settings = found["settings"].as_array().unwrap();
    let mut names: Vec<String> =
        settings[1..].iter().map(|one| one["setting"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// Each kind of dimension: what it is called, and what becomes of it.
#[test]
fn every_kind_of_setting_is_a_dimension() {
    let share = "redis-server share";
    for (input, goal, space, settings) in [
        (RECORDING, share, "scheduler=linux-6.1,linux-7.2", ["linux-6.1", "linux-7.2"]),
        (
            RECORDING,
            share,
            "sysbench group=/batch ; /batch cpu.max=10%,50%",
            [
                "sysbench group=/batch ; /batch cpu.max=10%",
                "sysbench group=/batch ; /batch cpu.max=50%",
            ],
        ),
        (
            RECORDING,
            share,
            "sysbench group=/batch ; /batch cpu.weight=1,1000",
            [
                "sysbench group=/batch ; /batch cpu.weight=1",
                "sysbench group=/batch ; /batch cpu.weight=1000",
            ],
        ),
        (
            "two-hogs",
            "yes share",
            "scheduler=linux-6.1:latency_ns=6ms,linux-6.18",
            ["linux-6.18", "linux-6.1:latency_ns=6ms"],
        ),
        (
            "xen-bare-weights",
            "hog-1 share",
            "/d1 weight=128,512",
            ["/d1 weight=128", "/d1 weight=512"],
        ),
        ("xen-bare-weights", "hog-1 share", "/d2 cap=10,30", ["/d2 cap=10", "/d2 cap=30"]),
        (
            "xen-bare-weights",
            "hog-1 share",
            "tslice=1ms,30ms",
            ["scheduler tslice=1ms", "scheduler tslice=30ms"],
        ),
        (
            "xen-bare-weights",
            "hog-1 share",
            "ratelimit=0ms,1ms",
            ["scheduler ratelimit=0ms", "scheduler ratelimit=1ms"],
        ),
        (
            "xen-bare-weights",
            "hog-1 share",
            "scheduler=xen-credit,xen-credit2",
            ["xen-credit", "xen-credit2"],
        ),
    ] {
        assert_eq!(tried(input, goal, space), settings, "{space}");
    }
}

#[test]
fn refusals_teach() {
    let goal = "redis-server share";
    let nice = "sysbench nice=0..3";
    for (goal, space, part) in [
        ("redis-srver share", &[nice][..], "did you mean `redis-server`?"),
        ("redis-server", &[nice], "is not SUBJECT METRIC"),
        ("sysbench response p99", &[nice], "nothing was counted"),
        (goal, &["sysbnch nice=0..3"], "--space 'sysbnch nice=0..3': there is no task"),
        (goal, &["base_slice=1ms,2ms"], "did you mean `base_slice_ns`?"),
        (goal, &["base_slice_ns=1ns..2ms"], "must be a time from 100us"),
        (goal, &["sysbench nice=5..2"], "is empty"),
        (goal, &["sysbench nice=0..40"], "-20 to 19"),
        (goal, &[nice, nice], "is a dimension already"),
        (goal, &[nice, nice, nice, nice], "the Python package"),
    ] {
        let space = space.iter().flat_map(|text| ["--space", *text]);
        let options: Vec<&str> = ["--goal", goal].into_iter().chain(space).collect();
        let ran = tune(RECORDING, &options);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(part), "{options:?}: {ran:?}");
    }
}
