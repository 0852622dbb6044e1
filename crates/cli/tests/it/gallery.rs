//! Every scenario of the gallery: its expectations hold, and its events are those whose hash is
//! checked in, whatever machine made them.

use super::{files, root, schedlab};
use std::path::Path;

/// `NAME HASH` of each scenario, written by `cargo xtask gallery`.
const HASHES: &str = "crates/cli/tests/gallery-hashes.txt";
/// Scenarios that are played on one thread too: nested machines, agents, recordings' kinds of
/// tasks, a sweep.
const ON_ONE_THREAD: [&str; 4] = ["xen-ping", "elevation", "redis-batch", "two-hogs"];

/// A test for each part of the gallery, so that they run side by side.
macro_rules! every_scenario_holds {
    ($($name:ident: $part:literal),+) => {
        const PARTS: usize = [$($part),+].len();
        $(#[test]
        fn $name() {
            files("scenarios", "toml").iter().skip($part).step_by(PARTS).for_each(|file| holds(file));
        })+
    };
}

every_scenario_holds!(
    every_scenario_holds_0: 0, every_scenario_holds_1: 1, every_scenario_holds_2: 2, every_scenario_holds_3: 3,
    every_scenario_holds_4: 4, every_scenario_holds_5: 5, every_scenario_holds_6: 6, every_scenario_holds_7: 7
);

fn holds(file: &Path) {
    let path = file.display().to_string();
    let ran = schedlab(&["compare", &path, "--json", "--jobs", "2"]);
    let study: schedlab_study::result::Study = serde_json::from_str(&ran.stdout).expect(&path);
    let failed: Vec<_> = study.expectations.iter().filter(|checked| !checked.holds).collect();
    assert!(failed.is_empty(), "{path}: {failed:#?}");
    assert_eq!(ran.code, 0, "{path}");
    assert!(!study.expectations.is_empty(), "{path} expects nothing");
    let tally = schedlab_study::published::Tally::count(&study.expectations);
    assert_eq!(
        tally.unexplained, 0,
        "{path}: more than 10 % off what was published, and no `differs`: {study:#?}"
    );
    let scenario = schedlab_study::scenario::load(file).expect(&path);
    let off = study.expectations.iter().filter(|one| one.deviation.is_some_and(|one| !one.near));
    for one in off {
        let expectation =
            scenario.expectations.iter().find(|known| known.line == one.line).expect("its own");
        let publication = expectation.publication.as_ref().expect("published has one");
        let named = publication.cause.is_some() || publication.fitted;
        assert!(named, "{path}:{}: more than 10 % off, and no `cause`", one.line);
    }
    let hashes = study.rows.iter().flat_map(|row| &row.event_hashes);
    assert!(hashes.clone().count() == study.rows.len() * study.seeds.len(), "{path}");
    let name = file.file_stem().expect("has one").to_string_lossy();
    let known = std::fs::read_to_string(root().join(HASHES)).expect(HASHES);
    let known = known.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    assert_eq!(
        known,
        Some(study.events_hash().as_str()),
        "{path}: other events than {HASHES} says: a change of the model (then `cargo xtask \
         gallery` writes it anew), or a machine that \
         computes otherwise"
    );
}

/// The events are the same on one thread, and so is every number that is made of them.
#[test]
fn one_thread_and_two_give_the_same_bytes() {
    for name in ON_ONE_THREAD {
        let on = |threads: &str| {
            schedlab(&["compare", name, "--json", "--for", "2s", "--jobs", threads]).stdout
        };
        assert!(on("1") == on("2"), "{name} depends on the number of threads");
    }
}

/// Every scenario has a hash, and no other.
#[test]
fn the_hashes_are_of_the_gallery() {
    let text = std::fs::read_to_string(root().join(HASHES)).expect(HASHES);
    let names: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once(' ')?.0)).collect();
    let known: Vec<&str> =
        schedlab_study::gallery::built_in().iter().map(|(name, _)| *name).collect();
    assert_eq!(names, known);
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
    // The answer comes first, in two sentences: fitted figures are not among those that are inside.
    assert!(
        ran.stdout
            .starts_with("1 of 6 figures that papers, articles and talks publish are inside 10 %"),
        "{}",
        ran.stdout
    );
    let plain = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        plain
            .contains("4 more were used to fit inputs and are no evidence. Of the 5 that are not,"),
        "{plain}"
    );
    assert!(ran.stdout.contains("published        539us   here        995us"), "{}", ran.stdout);
    assert!(
        plain.contains("prices of the machine: a slice of 5 us costs the agent 4 us"),
        "{plain}"
    );
    // How far off: of 539 us 995.3 are 84.7 % too much.
    let far = ran.stdout.lines().find(|line| line.contains("here        995us")).expect("printed");
    assert!(far.contains("+84.7 %   off"), "{far}");
    let ran = schedlab(&["published", "elevation", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let figures = value["scenarios"][0]["figures"].as_array().unwrap();
    assert_eq!((figures.len(), &figures[0]["published"]), (10, &"107us".into()));
    assert_eq!(
        (&value["sources"][0]["id"], &figures[2]["kind"]),
        (&"elevation-paper".into(), &"fitted".into())
    );
    let far = &figures.iter().find(|figure| figure["got"] == "995us").expect("there")["deviation"];
    assert_eq!((&far["published"][0], &far["near"]), (&539_000.0.into(), &false.into()));
    let ran = schedlab(&["published", "fifo-rr"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("has no published figures"), "{}", ran.stderr);
}

/// Of several tasks one figure: the largest maximum, else the value that is farthest off.
#[test]
fn a_figure_of_several_tasks_counts_once() {
    let scenario = schedlab_study::gallery::load("two-hogs").expect("there").expect("valid");
    let options = schedlab_study::compare::Options { jobs: 2, ..Default::default() };
    let published =
        schedlab_study::published::figures(&scenario, &options, &|_, _| ()).expect("runs");
    let share = published
        .figures
        .iter()
        .find(|one| one.figure == "two hogs: share of each")
        .expect("there");
    assert_eq!((published.figures.len(), share.lines), (2, 2));
    let far = share.checked.deviation.expect("a number").difference.abs();
    let lines = schedlab_study::compare::compare_scenario(
        &scenario,
        &schedlab_study::compare::Options::default(),
        &|_, _| (),
    );
    let lines = lines.expect("runs").expectations;
    let same =
        lines.iter().filter(|one| one.line == share.checked.line).filter_map(|one| one.deviation);
    assert!(same.into_iter().all(|one| one.difference.abs() <= far));
}

/// Every published figure of the gallery names its source, and is in one place.
#[test]
fn every_published_figure_stands_once() {
    let mut seen = std::collections::BTreeMap::new();
    for (name, _) in schedlab_study::gallery::built_in() {
        let scenario = schedlab_study::gallery::load(name).expect("there").expect("valid");
        for one in scenario.expectations.iter().filter(|one| one.published.is_some()) {
            let place = format!("{name}, line {}", one.line);
            let publication = one.publication.as_ref().expect("published has one");
            let source = publication.source.clone();
            assert!(source.is_some(), "{place}: add published_in");
            let paper = source.as_deref() != Some("xen-code");
            assert!(
                !paper || publication.figure.is_some(),
                "{place}: name the figure of the paper"
            );
            let of = [&one.task, &one.source, &one.channel, &one.scheduler, &one.variant];
            let own = || format!("{name}: {} of {of:?}", one.metric);
            let figure = publication.figure.clone().unwrap_or_else(own);
            if let Some(other) = seen.insert((source, figure.clone()), place.clone()) {
                panic!("{place}: the figure `{figure}` stands in {other} too");
            }
        }
    }
    assert!(seen.len() > 150, "{}", seen.len());
}

/// Table 1 of the SMP paper on 2, 4 and 8 CPUs: the scenario's machine, and two more of its sweep.
#[test]
fn figures_of_other_machines_of_a_sweep_are_there() {
    let ran = schedlab(&["published", "smp-evaluation", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let figures = value["scenarios"][0]["figures"].as_array().unwrap();
    let of = |cpus: u64| figures.iter().filter(|one| one["cpus"] == cpus).count();
    let own = figures.iter().filter(|one| one.get("cpus").is_none()).count();
    assert_eq!((of(2), of(4), own), (3, 3, 3), "{}", ran.stdout);
}
