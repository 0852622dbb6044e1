//! Every scenario of the gallery: its expectations hold, and it gives the same bytes on one thread and in a
//! batch on two.

use super::{files, schedlab};

#[test]
fn every_scenario_holds_and_is_deterministic() {
    for file in files("scenarios", "toml") {
        let path = file.display().to_string();
        let one = schedlab(&["compare", &path, "--json", "--jobs", "1"]);
        let study: schedlab_lab::result::Study = serde_json::from_str(&one.stdout).expect(&path);
        let failed: Vec<_> = study.expectations.iter().filter(|checked| !checked.holds).collect();
        assert!(failed.is_empty(), "{path}: {failed:#?}");
        assert_eq!(one.code, 0, "{path}");
        assert!(!study.expectations.is_empty(), "{path} expects nothing");
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
        let built_in = schedlab_lab::gallery::built_in().iter().find(|(known, _)| *known == name);
        assert_eq!(built_in.map(|(_, text)| *text), Some(text.as_str()), "{name}");
    }
}
