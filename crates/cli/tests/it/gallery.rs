//! Every scenario of the gallery: its expectations hold, and it gives the same bytes on one thread and in a
//! batch on two.

use super::{files, schedlab};

#[test]
fn every_scenario_holds_and_is_deterministic() {
    for file in files("scenarios", "toml") {
        let path = file.display().to_string();
        let one = schedlab(&["compare", &path, "--json", "--jobs", "1"]);
        let study: schedlab_study::result::Study = serde_json::from_str(&one.stdout).expect(&path);
        let failed: Vec<_> = study.expectations.iter().filter(|checked| !checked.holds).collect();
        assert!(failed.is_empty(), "{path}: {failed:#?}");
        assert_eq!(one.code, 0, "{path}");
        assert!(!study.expectations.is_empty(), "{path} expects nothing");
        let tally = schedlab_study::published::Tally::count(&study.expectations);
        assert_eq!(
            tally.unexplained, 0,
            "{path}: more than 10 % off what was published, and no `differs`: {study:#?}"
        );
        let two = schedlab(&["compare", &path, "--json", "--jobs", "2"]);
        // The event hashes of every row and seed are part of the result.
        assert!(one.stdout == two.stdout, "{path} depends on the number of threads");
        let hashes = study.rows.iter().flat_map(|row| &row.event_hashes);
        assert!(hashes.clone().count() == study.rows.len() * study.seeds.len(), "{path}");
    }
}

/// What is built in is what lies in the folder.
#[test]
fn the_built_in_gallery_is_the_folder() {
    for file in files("scenarios", "toml") {
        let name = file.file_stem().expect("has one").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).expect("readable");
        let built_in = schedlab_study::gallery::built_in().iter().find(|(known, _)| *known == name);
        assert_eq!(built_in.map(|(_, text)| *text), Some(text.as_str()), "{name}");
    }
}

#[test]
fn published_figures_stand_beside_ours() {
    let ran = schedlab(&["published", "elevation"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("published        539us   here        995us"), "{}", ran.stdout);
    assert!(ran.stdout.contains("a slice of 5 us costs the agent 4 us"), "{}", ran.stdout);
    // How far off: of 539 us 995.3 are 84.7 % too much; both p50 lie within 10 %.
    let far = ran.stdout.lines().find(|line| line.contains("here        995us")).expect("printed");
    assert!(far.contains("+84.7 %   FAR"), "{far}");
    assert!(ran.stdout.contains("all: 4 of 8 published numbers within 10 %"), "{}", ran.stdout);
    let ran = schedlab(&["published", "elevation", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let figures = value["scenarios"][0]["figures"].as_array().unwrap();
    assert_eq!((figures.len(), &figures[0]["published"]), (8, &"107us".into()));
    assert_eq!(value["scenarios"][0]["tally"]["explained"], 4, "{}", ran.stdout);
    let far = &figures.iter().find(|figure| figure["got"] == "995us").expect("there")["deviation"];
    assert_eq!((&far["published"][0], &far["near"]), (&539_000.0.into(), &false.into()));
    let ran = schedlab(&["published", "two-hogs"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("has no published figures"), "{}", ran.stderr);
}
