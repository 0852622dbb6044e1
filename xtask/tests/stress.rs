//! `cargo xtask stress` as a stranger runs it: with a fault planted in a copy of a scheduler it
//! fails, and leaves a small scenario behind.

use std::path::{Path, PathBuf};
use std::process::Command;

struct Ran {
    code: i32,
    text: String,
}

fn stress(args: &str, folder: &Path) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output =
        command.arg("stress").args(args.split(' ')).arg("--folder").arg(folder).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    Ran { code: output.status.code().unwrap_or(-1), text }
}

/// A new folder for one test; it goes when the test ends well.
fn folder(name: &str) -> PathBuf {
    let folder =
        schedlab_testing::temp_dir().join(format!("schedlab-stress-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn kept(folder: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

#[test]
fn a_planted_fault_leaves_a_small_scenario_behind() {
    let folder = folder("plant");
    let ran = stress("--seed 1 --runs 40 --scheduler rr --plant forgets --trials 200", &folder);
    assert_eq!(ran.code, 1, "{}", ran.text);
    assert!(ran.text.contains("seed ") && ran.text.contains("--plant forgets"), "{}", ran.text);
    let file = kept(&folder);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(ran.text.contains(&text), "the scenario is printed: {}", ran.text);
    // The file shows the same again, and nothing without the fault.
    let again = stress(&format!("--file {} --plant forgets", file.display()), &folder);
    assert_eq!(again.code, 1, "{}", again.text);
    let sound = stress(&format!("--file {}", file.display()), &folder);
    assert_eq!(sound.code, 0, "{}", sound.text);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_hangs_or_dies_does_not_end_the_run() {
    for (plant, says) in [("spins", "hangs"), ("overflows", "dies")] {
        let folder = folder(plant);
        let args =
            format!("--seed 1 --runs 12 --scheduler rr --plant {plant} --case 1s --trials 4");
        let ran = stress(&args, &folder);
        assert!(ran.code == 1 && ran.text.contains(&format!("({says})")), "{plant}: {}", ran.text);
        assert!(kept(&folder).exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn sound_schedulers_pass_and_what_was_covered_is_said() {
    let folder = folder("sound");
    let ran = stress("--seed 1 --runs 12 --keep-going", &folder);
    assert_eq!(ran.code, 0, "{}", ran.text);
    assert!(ran.text.contains("12 cases") && ran.text.contains("0 failed"), "{}", ran.text);
    assert!(ran.text.contains("in the kernel"), "{}", ran.text);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(stress("--seed", &folder).code, 2);
}
