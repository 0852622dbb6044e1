//! `schedlab calibrate` and the preset that it makes.

use super::{ran, root};
use schedlab_testing::settles;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A data folder of its own, removed at the end.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Home {
        let folder =
            schedlab_testing::temp_dir().join(format!("schedlab-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Home(folder)
    }

    fn schedlab(&self, arguments: &[&str]) -> super::Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
        command
            .args(arguments)
            .current_dir(root())
            .stdin(Stdio::null())
            .env("XDG_DATA_HOME", &self.0);
        ran(&mut command)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_missing_preset_says_how_to_make_it_and_a_made_one_is_taken() {
    settles(3, a_made_preset_is_taken);
}

fn a_made_preset_is_taken() {
    let home = Home::new("calibrate");
    let compare = ["compare", "two-hogs", "--costs", "this-machine", "--for", "2s", "--explain"];
    let missing = home.schedlab(&compare);
    assert_eq!(missing.code, 2, "{missing:?}");
    assert!(missing.stderr.contains("run `schedlab calibrate`"), "{missing:?}");
    let made = home.schedlab(&["calibrate", "--for", "500ms", "--rounds", "3", "--json"]);
    assert_eq!(made.code, 0, "{made:?}");
    let preset: Value = serde_json::from_str(&made.stdout).unwrap();
    assert_eq!(preset["schema"], "schedlab-calibration/1");
    assert!(preset["costs"]["syscall_ns"].as_f64().unwrap() > 0.0);
    assert!(preset["spread"]["syscall_ns"]["count"].as_u64().unwrap() > 0);
    assert!(preset["provenance"]["command"].as_str().unwrap().contains("calibrate --for 500ms"));
    assert!(home.0.join("schedlab/this-machine.toml").exists());
    let taken = home.schedlab(&compare);
    // The scenario's expectations may fail with other costs: that is not the question.
    assert!(taken.code <= 1, "{taken:?}");
    let scan = preset["simulator"]["scan_hot_ns"].as_u64().unwrap();
    let line = taken
        .stdout
        .lines()
        .find(|line| line.contains("scan_hot_ns"))
        .unwrap_or_default()
        .to_owned();
    assert!(scan > 0 && line.contains(&scan.to_string()), "{scan}: {taken:?}");
}

#[test]
fn a_scenario_may_name_it_and_bad_ones_are_refused() {
    let home = Home::new("calibrate-names");
    let scenario = home.0.join("here.toml");
    let text = std::fs::read_to_string(root().join("scenarios/two-hogs.toml")).unwrap();
    let at = text.find("[machine]").expect("the scenario has a machine") + "[machine]".len();
    let kept = text[at..]
        .lines()
        .filter(|line| !line.starts_with("costs ="))
        .collect::<Vec<_>>()
        .join("\n");
    std::fs::write(&scenario, format!("{}\ncosts = \"this-machine\"\n{kept}", &text[..at]))
        .unwrap();
    let asked = home.schedlab(&["compare", scenario.to_str().unwrap()]);
    assert_eq!(asked.code, 2);
    assert!(
        asked.stderr.contains("schedlab calibrate") && asked.stderr.contains("here.toml"),
        "{asked:?}"
    );
    std::fs::create_dir_all(home.0.join("schedlab")).unwrap();
    std::fs::write(home.0.join("schedlab/this-machine.toml"), "schema = \"other\"").unwrap();
    let broken = home.schedlab(&[
        "bench",
        "model",
        "--costs",
        "this-machine",
        "--tasks",
        "2",
        "--cpus",
        "2",
    ]);
    assert_eq!(broken.code, 2);
    assert!(broken.stderr.contains("not a calibration"), "{broken:?}");
    for (arguments, words) in [
        (&["compare", "two-hogs", "--costs", "modern-wm"][..], "did you mean \"modern-vm\"?"),
        (&["calibrate", "--for", "1ms"][..], "500ms"),
        (&["calibrate", "-o", "/"][..], "is a directory"),
    ] {
        let refused = home.schedlab(arguments);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
}
