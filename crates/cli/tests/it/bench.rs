//! `schedlab bench runqueue`: structure and refusals; what it measures is no matter for a test.

use super::schedlab;
use serde_json::Value;

#[test]
fn a_small_run_has_rows_a_model_and_claims() {
    let ran = schedlab(&[
        "bench",
        "runqueue",
        "--tasks",
        "2,1024",
        "--threads",
        "1",
        "--lock",
        "tas,mcs",
        "--stride",
        "64",
        "--for",
        "20ms",
        "--rounds",
        "3",
        "--costs",
        "modern",
        "--scheduler",
        "linux-2.4",
        "--scheduler",
        "linux-2.4-o1",
        "--json",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let value: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(value["schema"], "schedlab-runqueue/1");
    let rows = value["rows"].as_array().unwrap();
    // Two schedulers, two locks, two numbers of tasks.
    assert_eq!(rows.len(), 8);
    let list =
        rows.iter().find(|row| row["scheduler"] == "linux-2.4" && row["tasks"] == 1024).unwrap();
    assert!(list["looked"].as_f64().unwrap() >= 1024.0, "{list}");
    assert_eq!((&list["stride"], &list["lock"]), (&64.into(), &"tas".into()));
    let modelled = value["model"].as_array().unwrap();
    assert!(
        modelled
            .iter()
            .any(|point| point["tasks"] == 1024 && point["cost_ns"].as_f64().unwrap() > 1024.0)
    );
    // One thread: the comparison with O(1), for each lock.
    assert_eq!(value["claims"].as_array().unwrap().len(), 2);
}

#[test]
fn the_table_names_what_it_shows() {
    let ran = schedlab(&[
        "bench",
        "runqueue",
        "--tasks",
        "1024",
        "--threads",
        "1",
        "--lock",
        "ticket",
        "--stride",
        "8192",
        "--for",
        "10ms",
        "--rounds",
        "3",
        "--affinity",
        "change",
        "--affinity",
        "default",
        "--scheduler",
        "linux-2.4",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for words in ["Figures 4 and 5", "Table 1", "Claims:", "ticket", "8192", "change"] {
        assert!(ran.stdout.contains(words), "{words}: {ran:?}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (arguments, words) in [
        (&["--threads", "400"][..], "--oversubscribe"),
        (&["--lock", "tas,futex"], "there are tas, ticket, mcs"),
        (&["--stride", "100"], "there are 64 and 8192"),
        (&["--affinity", "never"], "default, stay, change"),
        (&["--scheduler", "linux-6.18"], "linux-2.6.22"),
        (&["--scheduler", "linux-2.4x"], "linux-2.4"),
        (&["--tasks", "0"], "--tasks"),
        (&["--policy", "rr:3"], "fifo:N"),
        (&["--rounds", "1"], "3 to 1000 rounds"),
        // Before anything is measured, which takes half a minute.
        (&["--costs", "moderm"], "did you mean \"modern\"?"),
    ] {
        let ran = schedlab(&[&["bench", "runqueue"], arguments].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
}
