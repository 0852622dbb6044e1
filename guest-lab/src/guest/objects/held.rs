//! What was held against a kernel: each judge keeps its figures, and docs/sched-ext-objects.md has
//! the tables of them, which a test compares with what is kept.

use super::Found;
use crate::guest::kernels::Kernel;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Written by a judge beside the files of its test.
pub(super) const FILE: &str = "held.json";
/// Where the figures of the last boots are kept, one file for each machine.
const KEPT: &str = "guest-lab/guest/answers-objects";
/// The tests, in the order of the tables; the name of a file is that of the test.
pub(in crate::guest) const TESTS: [&str; 3] =
    ["sched-ext-objects", "sched-ext-objects-4", "sched-ext-objects-smt"];
/// The page, and what is around these tables there.
const PAGE: &str = "docs/sched-ext-objects.md";
const BEGIN: &str = "<!-- made by `cargo xtask guest --objects` -->\n";
const END: &str = "<!-- end of what was held against a kernel -->\n";

/// What one boot and the simulator gave.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Held {
    /// As `uname -r` prints it.
    #[serde(default)]
    pub(super) kernel: String,
    /// The machine.
    pub(super) shape: String,
    pub(super) plays: Vec<HeldPlay>,
    pub(super) sequences: Vec<HeldSequence>,
    pub(super) endings: Vec<HeldEnding>,
    /// What was said of the snapshot, if one was taken.
    pub(super) snapshot: Option<String>,
}

/// One play under one object.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct HeldPlay {
    pub(super) object: String,
    pub(super) play: String,
    pub(super) kernel: Figures,
    pub(super) simulator: Figures,
    /// The most by which a share of the kernel lies outside of what the simulator gives with other
    /// times of decisions and other starts, in points of one CPU.
    pub(super) outside: f64,
    /// Turns that are alike, in per cent.
    pub(super) alike: f64,
    /// The mechanism, where it is known to differ.
    pub(super) why: Option<String>,
}

/// The figures of one side.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    /// In per cent of one CPU.
    pub(super) shares: Vec<f64>,
    /// Of CPU 0: how many, and the median of their lengths in ms.
    pub(super) turns: usize,
    pub(super) turn_ms: f64,
    /// p50, p90 and the longest wait of tasks that sleep.
    pub(super) waits_ms: [f64; 3],
    pub(super) stayed: f64,
    pub(super) crowded: f64,
}

/// Which callback follows which.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct HeldSequence {
    pub(super) play: String,
    pub(super) equal: usize,
    pub(super) only_kernel: Vec<String>,
    pub(super) only_simulator: Vec<String>,
}

/// How a scheduler that does what it must not was ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct HeldEnding {
    pub(super) what: String,
    pub(super) kernel: String,
    pub(super) simulator: String,
}

fn round(value: f64, places: i32) -> f64 {
    (value * 10f64.powi(places)).round() / 10f64.powi(places)
}

impl Figures {
    pub(super) fn of(found: &Found) -> Figures {
        let ms = |time: u64| round(time as f64 / super::MS as f64, 2);
        let waits = &found.waits;
        let last = waits.last().copied().unwrap_or(0);
        Figures {
            shares: found.shares.iter().map(|share| round(*share, 1)).collect(),
            turns: found.turns.len(),
            turn_ms: round(super::median(&found.turns) as f64 / super::MS as f64, 1),
            waits_ms: [ms(super::at(waits, 50)), ms(super::at(waits, 90)), ms(last)],
            stayed: round(found.stayed, 0),
            crowded: round(found.crowded, 1),
        }
    }

    fn sleeps(&self) -> bool {
        self.waits_ms[2] > 0.0
    }
}

impl HeldPlay {
    /// The most by which shares differ.
    fn apart(&self) -> f64 {
        let both = self.kernel.shares.iter().zip(&self.simulator.shares);
        both.map(|(one, other)| (one - other).abs()).fold(0.0, f64::max)
    }
}

/// Keeps what the judges of the last boots under `runs` wrote, and writes the page anew. Returns
/// how many faults there are.
pub(in crate::guest) fn renew(tree: &Path, kernels: &[Kernel], runs: &Path) -> Result<usize> {
    let kept = tree.join(KEPT);
    std::fs::create_dir_all(&kept).with_context(|| KEPT.to_owned())?;
    let mut bad = 0;
    for kernel in kernels {
        for test in TESTS {
            let path = runs.join(&kernel.release).join(test).join(test).join(FILE);
            let Ok(text) = std::fs::read_to_string(&path) else {
                println!("   FAULT {test} left no {}", path.display());
                bad += 1;
                continue;
            };
            let held: Held = serde_json::from_str(&text)?;
            let held = Held { kernel: kernel.release.clone(), ..held };
            let file = kept.join(format!("{test}.json"));
            std::fs::write(&file, serde_json::to_string_pretty(&held)? + "\n")
                .with_context(|| file.display().to_string())?;
        }
    }
    let text = page(&all(tree)?);
    println!("{text}");
    put(&tree.join(PAGE), BEGIN, END, &text)?;
    Ok(bad)
}

/// Writes a part of a page anew.
pub(super) fn put(path: &Path, begin: &str, end: &str, part: &str) -> Result<()> {
    let page = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let (before, _, after) = parts(&page, begin, end)
        .with_context(|| format!("{}: no place for the tables", path.display()))?;
    let text = format!("{before}{begin}\n{part}\n{end}{after}");
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// What is before, between and after two marks.
pub(super) fn parts<'a>(
    page: &'a str,
    begin: &str,
    end: &str,
) -> Option<(&'a str, &'a str, &'a str)> {
    let (before, rest) = page.split_once(begin)?;
    let (inside, after) = rest.split_once(end)?;
    Some((before, inside, after))
}

fn all(tree: &Path) -> Result<Vec<Held>> {
    let mut all = Vec::new();
    for test in TESTS {
        let path = tree.join(KEPT).join(format!("{test}.json"));
        if let Ok(text) = std::fs::read_to_string(&path) {
            all.push(serde_json::from_str(&text).with_context(|| path.display().to_string())?);
        }
    }
    ensure!(!all.is_empty(), "{KEPT} has no figures: cargo xtask guest --objects");
    Ok(all)
}

/// The names of objects that were held against a kernel.
pub(super) fn names(tree: &Path) -> Result<Vec<String>> {
    let all = all(tree)?;
    Ok(all.iter().flat_map(|held| &held.plays).map(|play| play.object.clone()).collect())
}

/// The tables.
fn page(all: &[Held]) -> String {
    let mut text = by_scheduler(all);
    text += "\n";
    text += &sequences(all);
    text += "\n";
    text += &endings(all);
    text += "\n";
    text + &plays(all)
}

fn by_scheduler(all: &[Held]) -> String {
    let kernels: BTreeMap<&str, ()> = all.iter().map(|held| (held.kernel.as_str(), ())).collect();
    let kernels = kernels.into_keys().collect::<Vec<_>>().join(", ");
    let mut text = format!("By scheduler, under Linux {kernels}:\n\n| scheduler |");
    all.iter().for_each(|held| {
        let _ = write!(text, " {} |", held.shape);
    });
    text += " where it differs, and why |\n|---|";
    text += &"---|".repeat(all.len() + 1);
    text += "\n";
    let mut objects: Vec<&str> = Vec::new();
    for play in all.iter().flat_map(|held| &held.plays) {
        if !objects.contains(&play.object.as_str()) {
            objects.push(&play.object);
        }
    }
    for object in objects {
        let _ = write!(text, "| {object} |");
        let mut why = Vec::new();
        for held in all {
            let own: Vec<&HeldPlay> =
                held.plays.iter().filter(|play| play.object == object).collect();
            let _ = write!(text, " {} |", cell(&own));
            why.extend(own.iter().filter_map(|play| {
                play.why.as_ref().map(|why| format!("{}, {}: {why}", held.shape, play.play))
            }));
        }
        let _ = writeln!(text, " {} |", why.join("; "));
    }
    text
}

/// What all plays of a scheduler on a machine say.
fn cell(plays: &[&HeldPlay]) -> String {
    let Some(first) = plays.first() else { return "not played".to_owned() };
    let apart = plays.iter().map(|play| play.apart()).fold(0.0, f64::max);
    let outside = plays.iter().map(|play| play.outside).fold(0.0, f64::max);
    let mut text = format!("{} plays; shares {apart:.1} points apart at most", plays.len());
    if outside + 0.05 < apart {
        let _ = write!(text, ", {outside:.1} outside of what timing and starts change");
    }
    if plays.len() > 2 {
        let alike = plays.iter().map(|play| play.alike).fold(100.0, f64::min);
        let _ = write!(text, "; turns {alike:.0} % alike at least");
    }
    if let Some(play) = plays.iter().find(|play| play.kernel.sleeps()).or(Some(first)) {
        let of = |side: &Figures| format!("{:.2}", side.waits_ms[0]);
        let _ = write!(text, "; waits p50 {} and {} ms", of(&play.kernel), of(&play.simulator));
    }
    if let Some(play) = plays.iter().find(|play| play.play == "idle") {
        let (one, other) = (play.kernel.stayed, play.simulator.stayed);
        let _ = write!(text, "; stays {one:.0} and {other:.0} %");
        let (one, other) = (play.kernel.crowded, play.simulator.crowded);
        if one + other > 0.0 {
            let _ = write!(text, "; a crowded core {one:.1} and {other:.1} %");
        }
    }
    text
}

fn sequences(all: &[Held]) -> String {
    let mut text = "Which callback of a task follows which, with its flags (`calls`: wakeups, \
                    turns, a fork and exits; `changes`: nice value and affinity of a running task; \
                    without wakeups by a child's end and interruptions by threads above the class, \
                    which the simulated plays do not have):\n\n| machine | play | \
                    steps that are equal | only in the kernel | only in the simulator |\n\
                    |---|---|---|---|---|\n"
        .to_owned();
    for held in all {
        for one in &held.sequences {
            let Held { shape, .. } = held;
            let HeldSequence { play, equal, only_kernel, only_simulator } = one;
            let (kernel, simulator) = (words(only_kernel), words(only_simulator));
            let _ = writeln!(text, "| {shape} | {play} | {equal} | {kernel} | {simulator} |");
        }
    }
    text
}

fn words(steps: &[String]) -> String {
    if steps.is_empty() { "none".to_owned() } else { steps.join(", ") }
}

fn endings(all: &[Held]) -> String {
    let mut text = "How a scheduler that does what it must not is ended:\n\n| machine | what it \
                    does | kernel | simulator |\n|---|---|---|---|\n"
        .to_owned();
    for held in all {
        for HeldEnding { what, kernel, simulator } in &held.endings {
            let simulator = if simulator == kernel { "the same" } else { simulator };
            let _ = writeln!(text, "| {} | {what} | {kernel} | {simulator} |", held.shape);
        }
    }
    for held in all {
        if let Some(said) = &held.snapshot {
            let _ = writeln!(text, "\nWhat `bpf snapshot` wrote in the guest: {said}.");
        }
    }
    text
}

fn plays(all: &[Held]) -> String {
    let mut text = "Each play (kernel, then simulator; shares in per cent of one CPU, turns are \
                    those of CPU 0):\n\n| machine | scheduler | play | shares | turns and their \
                    median | waits p50, p90, longest, ms |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for held in all {
        for play in &held.plays {
            let sides = [&play.kernel, &play.simulator];
            let both = |of: &dyn Fn(&Figures) -> String| sides.map(of).join("; ");
            let shares = both(&|side| {
                let shares: Vec<String> =
                    side.shares.iter().map(|share| format!("{share:.1}")).collect();
                shares.join(" ")
            });
            let turns = both(&|side| format!("{} of {:.1} ms", side.turns, side.turn_ms));
            let waits = both(&|side| match side.sleeps() {
                true => side.waits_ms.map(|ms| format!("{ms:.2}")).join(" "),
                false => "none".to_owned(),
            });
            let (shape, object, play) = (&held.shape, &play.object, &play.play);
            let _ =
                writeln!(text, "| {shape} | {object} | {play} | {shares} | {turns} | {waits} |");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page has what was recorded: no figure of it is written by hand.
    #[test]
    fn the_page_has_what_is_kept() {
        let tree = crate::root();
        let text = std::fs::read_to_string(tree.join(PAGE)).expect(PAGE);
        let (_, inside, _) = parts(&text, BEGIN, END).expect("a place for the tables");
        let kept = all(&tree).expect("figures");
        assert_eq!(kept.len(), TESTS.len(), "of each machine");
        assert_eq!(inside.trim(), page(&kept).trim(), "cargo xtask guest --objects writes it");
    }

    #[test]
    fn what_differs_is_said_with_its_reason() {
        let side = |share, wait| Figures {
            shares: vec![share, 100.0 - share],
            turns: 10,
            turn_ms: 24.0,
            waits_ms: [wait; 3],
            stayed: 90.0,
            crowded: 0.0,
        };
        let play = HeldPlay {
            object: "mine".to_owned(),
            play: "two".to_owned(),
            kernel: side(65.0, 1.0),
            simulator: side(50.0, 2.0),
            outside: 1.0,
            alike: 69.0,
            why: Some("a reason".to_owned()),
        };
        let held = Held { shape: "1 CPU".to_owned(), plays: vec![play], ..Held::default() };
        let text = page(&[held]);
        for said in [
            "shares 15.0 points apart at most, 1.0 outside of what timing and starts change",
            "waits p50 1.00 and 2.00 ms",
            "1 CPU, two: a reason",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}
