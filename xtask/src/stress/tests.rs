use super::planted::{Planted, builder, find};
use super::*;
use schedlab_scheduler::registry;

/// A short walk on every run of the tests; `cargo xtask stress` goes on for as long as you like.
#[test]
fn random_cases_of_each_scheduler_hold() {
    for entry in registry::all() {
        let mut ran = 0;
        for seed in 1..=12 {
            let text = generate::draft(seed, Some(entry.name)).unwrap().to_toml();
            match generate::trial(&text, &registry::build) {
                Verdict::Ran(_) => ran += 1,
                Verdict::Refused(_) => {}
                Verdict::Failed(_, how) => panic!("seed {seed}: {how}\n{text}"),
            }
        }
        assert!(ran >= 6, "{}: only {ran} of 12 cases ran", entry.name);
    }
}

/// The first seed of at most 60 that fails, with its fault and words and its smallest scenario.
fn caught(scheduler: &str, fault: Planted) -> Option<(Fault, String, String)> {
    let build = builder(fault);
    (1..=60).find_map(|seed| {
        let draft = generate::draft(seed, Some(scheduler)).unwrap();
        let Verdict::Failed(fault, how) = generate::trial(&draft.to_toml(), &build) else {
            return None;
        };
        let mut left = 300;
        let small = generate::shrink(&draft, |smaller| {
            if left == 0 {
                return Still::Enough;
            }
            left -= 1;
            match generate::trial(&smaller.to_toml(), &build) {
                Verdict::Failed(found, _) if found == fault => Still::Fails,
                _ => Still::Holds,
            }
        });
        assert!(small.parts.len() <= draft.parts.len());
        Some((fault, how, small.to_toml()))
    })
}

#[test]
fn a_planted_fault_is_caught_and_shrunk() {
    for scheduler in ["rr", "linux-6.18"] {
        assert_eq!(caught(scheduler, Planted::None), None, "{scheduler}");
    }
    let (fault, how, small) = caught("rr", Planted::Forgets).expect("a lost wakeup is found");
    assert!(matches!(fault, Fault::Events | Fault::Contract), "{how}");
    // The scenario can be run, and holds little more than the tasks that matter.
    assert!(schedlab_study::scenario::parse("small", "small.toml", &small).is_ok(), "{small}");
    assert!(small.matches("[[task]]").count() <= 2, "{small}");
    let (fault, how, _) = caught("rr", Planted::Anywhere).expect("a wrong pick is found");
    assert!(fault == Fault::Contract && how.contains("it picked"), "{how}");
    let (fault, how, _) =
        caught("linux-6.1", Planted::Tickless).expect("ticks that matter are found");
    assert!(fault == Fault::Ticks, "{how}");
    let (fault, how, _) =
        caught("rr", Planted::Unsteady).expect("a run that cannot be repeated is found");
    assert!(fault == Fault::Unsteady, "{how}");
    let (fault, how, _) = caught("linux-2.6.22", Planted::Panics).expect("a panic is found");
    assert!(fault == Fault::Panic && how.contains("planted"), "{how}");
}

#[test]
fn every_planted_fault_has_a_name() {
    for (fault, name, _) in planted::ALL {
        assert_eq!(find(name).unwrap(), fault);
    }
    assert_eq!(find("none").unwrap(), Planted::None);
}

/// What failed once and was repaired, as small as it went. A new one is a file more.
#[test]
fn what_was_found_is_repaired() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/stress/found");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        match generate::trial(&text, &registry::build) {
            Verdict::Ran(_) => {}
            Verdict::Refused(why) => panic!("{}: refused: {why:?}", file.display()),
            Verdict::Failed(_, how) => panic!("{}: {how}", file.display()),
        }
    }
}
