//! The error that is printed is the error that is described: its parts add up, its interval is
//! possible, and every output names its largest part.

use super::{Folder, schedlab};
use serde_json::Value;

const DEMO: &str = "recordings/redis-other-other-closed8.slt";
const VARIANT: [&str; 2] = ["--variant", "batch idle: sysbench policy=idle"];
/// The parts, as JSON names them: the first is added, the others are squared.
const PARTS: [&str; 5] = ["seeds", "self_replay", "reaction", "drift", "sampling"];

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

/// Looks at the bar of a time, which is known up to a factor: its parts are logarithms, and make up
/// the wider side. `base`: what the ends of a change start from.
#[track_caller]
fn check_factor(what: &str, value: f64, base: f64, bar: &Value) {
    let parts = PARTS.map(|part| number(&bar["parts"][part]));
    let whole = parts[0] + parts[1..].iter().map(|part| part * part).sum::<f64>().sqrt();
    let [low, high] = ["low", "high"].map(|end| number(&bar[end]) + base);
    let near = 1e-9 * value.abs().max(1.0);
    assert!(
        -near <= low && low <= value + near && value <= high + near,
        "{what}: {value} in {bar} from {base}"
    );
    if value > 0.0 {
        let wider = (high / value).ln().max((value / low).ln());
        assert!((whole - wider).abs() <= 1e-6 * whole.max(1.0), "{what}: {bar} is not {wider}");
    }
}

/// Looks at one bar: `value` with its stated half width, and between which values it can lie.
#[track_caller]
fn check(what: &str, (value, error): (f64, f64), bar: &Value, (least, most): (f64, f64)) {
    let parts = PARTS.map(|part| number(&bar["parts"][part]));
    let whole = parts[0] + parts[1..].iter().map(|part| part * part).sum::<f64>().sqrt();
    assert!((whole - error).abs() <= 1e-9 * whole.max(1.0), "{what}: {bar} is not {error}");
    let (low, high) = (number(&bar["low"]), number(&bar["high"]));
    let near = 1e-9 * value.abs().max(1.0);
    assert!(
        least - near <= low && low <= value + near,
        "{what}: {low} of {value} in {least}..{most}"
    );
    assert!(
        value - near <= high && high <= most + near,
        "{what}: {high} of {value} in {least}..{most}"
    );
    let largest = parts.iter().copied().fold(0.0, f64::max);
    match bar["largest"].as_str() {
        Some(name) => assert_eq!(number(&bar["parts"][name.replace('-', "_")]), largest, "{what}"),
        None => assert_eq!(largest, 0.0, "{what}"),
    }
}

fn json(arguments: &[&str]) -> Value {
    let ran = schedlab(&[arguments, &["--json"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    serde_json::from_str(&ran.stdout).expect("JSON")
}

/// The value of the same number in another row.
fn value_of(row: &Value, subject: &Value, cell: &Value) -> f64 {
    let is = |one: &&Value| one["name"] == subject["name"] && one["kind"] == subject["kind"];
    let found =
        row["subjects"].as_array().unwrap().iter().find(is).expect("a change is from a number");
    let cells = found["cells"].as_array().unwrap();
    number(&cells.iter().find(|one| one["metric"] == cell["metric"]).unwrap()["value"]["median"])
}

/// Looks at every number of a result; returns how many bars were cut.
fn check_all(study: &Value) -> usize {
    let (mut cut, mut seen) = (0, 0);
    let cpus = number(&study["input"]["cpus"]);
    for row in study["rows"].as_array().unwrap() {
        for subject in row["subjects"].as_array().unwrap() {
            for cell in subject["cells"].as_array().unwrap() {
                let most =
                    match (cell["metric"].as_str().unwrap(), subject["kind"].as_str().unwrap()) {
                        ("utilisation" | "idle-waiting" | "idle-capped", _) => 1.0,
                        ("share", _) => number(&subject["tasks"]).min(cpus),
                        _ => f64::INFINITY,
                    };
                let what = format!("{} {}", subject["name"], cell["metric"]);
                let value = number(&cell["value"]["median"]);
                if let Some(bar) = cell.get("error_bar").filter(|bar| bar["factors"] == true) {
                    check_factor(&what, value, 0.0, bar);
                    seen += 1;
                } else if let Some(bar) = cell.get("error_bar") {
                    let error =
                        cell.get("error").map_or_else(|| number(&bar["parts"]["seeds"]), number);
                    check(&what, (value, error), bar, (0.0, most));
                    seen += 1;
                    cut += usize::from(number(&bar["high"]) - number(&bar["low"]) < 1.99 * error);
                }
                let change = &cell["change"];
                if !change.is_null() {
                    let (difference, error) =
                        (number(&change["difference"]), number(&change["error"]));
                    let base = value_of(&study["rows"][0], subject, cell);
                    let (possible, bar) = ((-base, most - base), &change["error_bar"]);
                    match bar["factors"] == true {
                        true => check_factor(&what, base + difference, base, bar),
                        false => check(&what, (difference, error), bar, possible),
                    }
                }
            }
        }
    }
    assert!(seen > 20, "{seen}");
    cut
}

#[test]
fn parts_add_up_and_intervals_are_possible() {
    let recorded = json(&[&["compare", DEMO][..], &VARIANT].concat());
    assert!(check_all(&recorded) > 0, "one server has nearly a CPU: its interval ends there");
    // Of a scenario only the seeds are known.
    let scenario = json(&["compare", "two-hogs", "--seeds", "3"]);
    check_all(&scenario);
}

#[test]
fn every_output_names_the_largest_part() {
    let folder = Folder::new("error-parts");
    let page = folder.0.join("page.html").display().to_string();
    let asked = [&["compare", DEMO][..], &VARIANT].concat();
    let study = json(&asked);
    let row = &study["rows"][study["verdict"]["row"].as_u64().unwrap() as usize];
    let figure = &study["headline"][0];
    let subjects = row["subjects"].as_array().unwrap();
    let subject = subjects.iter().find(|subject| subject["name"] == figure["subject"]).unwrap();
    let cells = subject["cells"].as_array().unwrap();
    let cell = cells.iter().find(|cell| cell["metric"] == figure["metric"]).unwrap();
    let largest = cell["change"]["error_bar"]["largest"].as_str().unwrap();
    let named = format!("({largest})");
    assert!(
        study["verdict"]["certainty"].as_str().unwrap().contains(&named),
        "{}",
        study["verdict"]
    );
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for options in
        [&["--brief"][..], &[], &["--explain"], &["--format", "markdown"], &["--report", &page]]
    {
        let ran = schedlab(&[&asked, options].concat());
        assert!(ran.code == 0 && plain(&ran.stdout).contains(&named), "{options:?}: {ran:?}");
    }
    let explained = plain(&schedlab(&[&asked, &["--explain"][..]].concat()).stdout);
    let page = plain(&std::fs::read_to_string(&page).unwrap());
    let part = format!("the largest part is {largest} (");
    let subject = figure["subject"].as_str().unwrap();
    let name = format!("error of {subject} CPU share, batch idle: ±");
    for text in [&explained, &page] {
        assert!(text.contains(&name) && text.contains(&part), "{name}, {part}: {text}");
    }
    let gate = ["--fail-if", "batch idle: redis-server share > 97%"];
    let judged = schedlab(&[&asked, &gate[..]].concat());
    assert!(
        plain(&judged.stdout).contains("the bound lies within the error, of which"),
        "{judged:?}"
    );
    // No task has more than one CPU, so that this is no question of the error.
    let gate = ["--fail-if", "batch idle: redis-server share > 101%"];
    let judged = schedlab(&[&asked, &gate[..]].concat());
    assert_eq!(judged.code, 0, "{judged:?}");
}

#[test]
fn every_part_is_explained() {
    for part in PARTS {
        let name = part.replace('_', "-");
        let ran = schedlab(&["explain", &name]);
        assert!(ran.code == 0 && ran.stdout.contains(&name), "{ran:?}");
        let whole = schedlab(&["explain", "error"]);
        assert!(whole.stdout.contains(&name), "{whole:?}");
    }
}
