//! Scenarios that are generated: `generate`, and workloads of rt-app.

use super::{Folder, schedlab};

#[test]
fn a_generated_scenario_can_be_compared() {
    let folder = Folder::new("generate");
    let ran = schedlab(&["generate", "--seed", "7"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.starts_with("# A random scenario: schedlab generate --seed 7\n"), "{ran:?}");
    let file = folder.0.join("x.toml").display().to_string();
    assert_eq!(schedlab(&["generate", "--seed", "7", "-o", &file]).code, 0);
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        ran.stdout,
        "the same number gives the same scenario"
    );
    assert_ne!(schedlab(&["generate", "--seed", "8"]).stdout, ran.stdout);
    let ran = schedlab(&["compare", &file, "--for", "50ms"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let ran = schedlab(&["compare", &file, "--for", "50ms", "--assert"]);
    assert!(ran.code == 0 && !ran.stderr.contains("--assert"), "{ran:?}");
}

#[test]
fn what_does_not_hold_is_said() {
    let folder = Folder::new("assert");
    let file = folder.0.join("x.toml").display().to_string();
    // Switches that cost nothing and a penalty for staying: the tasks change places for ever.
    let text = "title = \"x\"\nschedulers = [\"linux-2.4:proc_change_penalty=-85\"]\n\
                duration = \"1s\"\n\
                [machine]\ncpus = 2\n[[task]]\nname = \"t\"\ncount = 3\nprogram = [\"run 1s\"]\n";
    std::fs::write(&file, text).unwrap();
    let ran = schedlab(&["compare", &file, "--assert"]);
    assert!(ran.code == 3 && ran.stderr.contains("circle") && ran.stdout.is_empty(), "{ran:?}");
    let ran = schedlab(&["compare", &file]);
    assert!(ran.code == 2 && ran.stderr.contains("other_switch_ns"), "{ran:?}");
    let ran = schedlab(&["compare", "recordings/redis-other-closed8.slt", "--assert"]);
    assert!(ran.code == 2 && ran.stderr.contains("recording"), "{ran:?}");
}

#[test]
fn a_generated_scenario_may_be_about_one_scheduler() {
    let ran = schedlab(&["generate", "--seed", "7", "--scheduler", "xen-credit2"]);
    assert!(ran.code == 0 && ran.stdout.contains("schedulers = [\"xen-credit2"), "{ran:?}");
    let ran = schedlab(&["generate", "--seed", "7", "--scheduler", "xen-credit3"]);
    assert!(ran.code == 2 && ran.stderr.contains("did you mean"), "{ran:?}");
    assert_eq!(schedlab(&["generate"]).code, 2, "there is no number");
}

#[test]
fn an_rt_app_workload_is_compared_and_imported() {
    let folder = Folder::new("rtapp");
    let json = "fuzz/corpus/rtapp/good-pipeline.json";
    let ran = schedlab(&["compare", json]);
    assert!(ran.code == 0 && ran.stdout.contains("producer"), "{ran:?}");
    assert!(ran.stdout.contains("mem is left out"), "what was left out is said: {ran:?}");
    let file = folder.0.join("x.toml").display().to_string();
    let ran = schedlab(&["import", json, "-o", &file]);
    assert!(ran.code == 0 && ran.stdout.contains("a scenario with 5 tasks"), "{ran:?}");
    assert_eq!(schedlab(&["compare", &file]).code, 0);
    for (name, part) in [("bad-event", "did you mean `sleep`"), ("bad-syntax", "line 2")] {
        let ran = schedlab(&["compare", &format!("fuzz/corpus/rtapp/{name}.json")]);
        assert!(ran.code == 2 && ran.stderr.contains(part), "{ran:?}");
    }
}
