//! Guests of KVM beside each other, on recordings of a host whose guests said themselves how much
//! was stolen from them (recordings/guests.sh).

use super::schedlab;
use serde_json::Value;

const EQUAL: &str = "recordings/guests-equal.slt";
const WEIGHTED: &str = "recordings/guests-weighted.slt";
const QUOTA: &str = "recordings/guests-quota.slt";

/// What KVM told each guest of steal while it was recorded, both virtual CPUs together, in
/// milliseconds: `recordings/README.md`.
const TOLD: [(&str, &str, f64); 6] = [
    (EQUAL, "web", 1115.6),
    (EQUAL, "batch", 3996.6),
    (WEIGHTED, "web", 419.3),
    (WEIGHTED, "batch", 4085.0),
    (QUOTA, "web", 961.8),
    (QUOTA, "batch", 4809.4),
];

fn json(arguments: &[&str]) -> Value {
    let ran = schedlab(arguments);
    assert!(ran.code == 0 || ran.code == 3, "{ran:?}");
    serde_json::from_str(&ran.stdout).expect("JSON")
}

fn guest<'a>(shown: &'a Value, name: &str) -> &'a Value {
    let rows = shown["analyses"][0]["tables"]["guests"].as_array().expect("rows");
    rows.iter().find(|row| row["guest"] == name).expect("the guest is there")
}

/// The steal time of a guest by the events of its host is what KVM told the guest.
#[test]
fn steal_is_what_the_guests_were_told() {
    for (recording, name, told) in TOLD {
        let shown = json(&["show", recording, "--steal", "--json"]);
        let row = guest(&shown, name);
        let found = row["steal_ns"].as_f64().unwrap() / 1e6;
        // The guests print four times a second: at the edges of the recording their counters are
        // between two lines.
        assert!((found - told).abs() < 0.02 * told + 20.0, "{recording} {name}: {found} {told}");
        assert_eq!(row["vcpus"], 2);
    }
}

/// What came with another weight, and with a quota, lies within the predictions from the recording
/// with neither.
#[test]
fn a_weight_and_a_quota_are_predicted() {
    let (weighted, quota) = (format!("weight={WEIGHTED}"), format!("quota={QUOTA}"));
    let study = json(&[
        "compare",
        EQUAL,
        "--variant",
        "weight: guest web cpu.weight=400",
        "--variant",
        "quota: guest batch cpu.max=40ms/100ms",
        "--check",
        &weighted,
        "--check",
        &quota,
        "--json",
    ]);
    let rows = study["rows"].as_array().unwrap();
    let cell = |row: &Value, name: &str, metric: &str| {
        let subjects = row["subjects"].as_array().unwrap();
        let subject = subjects.iter().find(|one| one["name"] == name).expect("the guest");
        let cells = subject["cells"].as_array().unwrap().iter();
        cells.clone().find(|cell| cell["metric"] == metric).cloned().expect("the metric")
    };
    let came = |variant: &str, name: &str| {
        let all = study["predictions"].as_array().unwrap();
        let of = all.iter().find(|one| one["variant"] == variant).expect("was checked");
        cell(of, name, "steal")["recorded"].as_f64().unwrap()
    };
    for row in &rows[1..] {
        let variant = row["variant"].as_str().unwrap();
        for name in ["web", "batch"] {
            let bar = &cell(row, name, "steal")["error_bar"];
            let (low, high) = (bar["low"].as_f64().unwrap(), bar["high"].as_f64().unwrap());
            let came = came(variant, name);
            assert!(low <= came && came <= high, "{variant} {name}: {low} {came} {high}");
        }
    }
    let better = cell(&rows[1], "web", "steal");
    assert_eq!(better["change"]["judgement"], "better", "{better}");
    // Tasks that run no virtual CPU have no steal.
    let others = rows[0]["subjects"].as_array().unwrap().iter();
    let others = others.filter(|one| !["web", "batch"].contains(&one["name"].as_str().unwrap()));
    let steals = |one: &&Value| {
        one["cells"].as_array().unwrap().iter().any(|cell| cell["metric"] == "steal")
    };
    assert_eq!(others.filter(steals).count(), 0);
}

#[test]
fn a_search_finds_the_weight_that_is_enough() {
    let tuned = json(&[
        "tune",
        EQUAL,
        "--goal",
        "web steal < 10%",
        "--space",
        "guest web cpu.weight=100,400,800",
        "--json",
    ]);
    let settings = tuned["settings"].as_array().unwrap();
    let place = tuned["recommended"].as_u64().expect("one is recommended") as usize;
    assert_eq!(settings[place]["setting"], "\"guest web\" cpu.weight=800", "{tuned}");
    assert_eq!(settings[place]["meets"][0], "yes");
}

#[test]
fn what_is_no_guest_is_refused_by_name() {
    let ran = schedlab(&["compare", EQUAL, "--variant", "x: guest db cpu.weight=400"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("there is no guest `db` here; guests are: web, batch"), "{ran:?}");
    let without = "recordings/two-yes.slt";
    let ran = schedlab(&["compare", without, "--variant", "x: guest db cpu.weight=400"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("no thread is known to run a virtual CPU"), "{ran:?}");
}
