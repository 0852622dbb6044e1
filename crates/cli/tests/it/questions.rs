//! Five questions that people ask, each answered by the first two sentences of one command's
//! output. Names and numbers are those of `--json` of the same command.

use super::schedlab;
use serde_json::Value;

const DEMO: &str = "recordings/redis-other-other-closed8.slt";
const VARIANTS: [&str; 4] = [
    "--variant",
    "batch idle: sysbench policy=idle",
    "--variant",
    "redis fifo: redis-server policy=fifo:1",
];

/// The first two sentences of what a command prints, and its result as JSON.
fn answered(arguments: &[&str]) -> (String, Value) {
    let ran = schedlab(arguments);
    assert_eq!(ran.code, 0, "{ran:?}");
    let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut ends = text.match_indices(". ").map(|(at, _)| at + 1);
    let second = ends.nth(1).unwrap_or(text.len());
    let json = schedlab(&[arguments, &["--json"]].concat());
    (text[..second].to_owned(), serde_json::from_str(&json.stdout).expect("JSON"))
}

/// The median of a metric of a subject in a row, as the tables write it.
fn shown(study: &Value, row: usize, subject: &str, metric: &str) -> String {
    let all = study["rows"][row]["subjects"].as_array().unwrap();
    let subject = all.iter().find(|one| one["name"] == subject).unwrap();
    let cell =
        subject["cells"].as_array().unwrap().iter().find(|cell| cell["metric"] == metric).unwrap();
    let value = cell["value"]["median"].as_f64().unwrap();
    match metric {
        "share" => format!("{:.1}%", value * 100.0),
        "throughput" => format!("{value:.0}/s"),
        _ => schedlab_model::Ns(value.round() as u64).to_string(),
    }
}

fn recommended(study: &Value) -> usize {
    study["verdict"]["row"].as_u64().expect("a recommendation") as usize
}

#[test]
fn what_should_i_set_and_what_will_it_cost() {
    let (said, study) = answered(&["compare", "redis-batch"]);
    let row = recommended(&study);
    assert_eq!(study["rows"][row]["variant"], "batch idle");
    assert!(said.starts_with("Run sysbench under SCHED_IDLE (linux-6.1, batch idle): "), "{said}");
    for metric in ["throughput", "response p99"] {
        let change = format!(
            "{} -> {}",
            shown(&study, 0, "clients", metric),
            shown(&study, row, "clients", metric)
        );
        assert!(said.contains(&change), "{change}: {said}");
    }
    // The cost, and which tasks pay it.
    let cost = format!(
        "sysbench pays: CPU share {} -> {}",
        shown(&study, 0, "sysbench", "share"),
        shown(&study, row, "sysbench", "share")
    );
    assert!(said.contains(&cost), "{cost}: {said}");
}

#[test]
fn how_sure_is_that() {
    let (said, study) = answered(&[&["compare", DEMO][..], &VARIANTS].concat());
    let row = recommended(&study);
    assert!(
        said.starts_with("Run sysbench under SCHED_IDLE (batch idle): redis-server CPU share "),
        "{said}"
    );
    assert!(said.contains(&shown(&study, row, "redis-server", "share")), "{said}");
    let subjects = study["self_replay"]["subjects"].as_array().unwrap();
    let off = |subject: &Value| {
        let cells = subject["cells"].as_array().unwrap();
        cells
            .iter()
            .find(|cell| cell["metric"] == "share")
            .map_or(0.0, |cell| cell["difference"].as_f64().unwrap())
    };
    let worst = subjects.iter().map(|subject| off(subject).abs()).fold(0.0, f64::max) * 100.0;
    let sure =
        format!("The simulation reproduces the recording within {worst:.1} points of CPU share");
    assert!(said.contains(&sure), "{sure}: {said}");
    let cells = study["rows"][row]["subjects"].as_array().unwrap();
    let server = cells.iter().find(|one| one["name"] == "redis-server").unwrap();
    let cells = server["cells"].as_array().unwrap();
    let share = cells.iter().find(|cell| cell["metric"] == "share").unwrap();
    let number = |field: &str| share["change"][field].as_f64().unwrap();
    let times =
        format!("the gain is {:.1} times its error", number("difference").abs() / number("error"));
    assert!(said.contains(&times), "{times}: {said}");
    // Without a recording the seeds say it.
    let (said, _) = answered(&["compare", "two-hogs", "--seeds", "5"]);
    assert!(said.contains("Over 5 seeds") && said.contains("% confidence"), "{said}");
}

#[test]
fn who_made_my_server_wait() {
    for arguments in [&["show", DEMO][..], &["show", DEMO, "--blame", "--task", "redis-server"]] {
        let (said, shown) = answered(arguments);
        let answer = &shown["answer"];
        assert_eq!(
            (&answer["waiting"], &answer["running"]),
            (&"redis-server".into(), &"sysbench".into())
        );
        let time = |value: &Value| schedlab_model::Ns(value.as_u64().unwrap()).to_string();
        let first = format!(
            "redis-server waited {} of {} for a CPU, {:.1} % of it while sysbench ran.",
            time(&answer["waited_ns"]),
            time(&answer["of_ns"]),
            answer["time_ns"].as_f64().unwrap() * 100.0 / answer["waited_ns"].as_f64().unwrap()
        );
        assert!(said.starts_with(&first), "{first}: {said}");
        let longest = &answer["longest"];
        assert!(
            said.contains(&format!("Its longest wait was {}", time(&longest["waited_ns"]))),
            "{said}"
        );
        assert!(
            said.ends_with(&format!("behind {}.", longest["during"].as_str().unwrap())),
            "{said}"
        );
    }
    // The answer is what the analyses say: the largest entry of the matrix, and the longest wait.
    let ran =
        schedlab(&["show", DEMO, "--blame", "--worst", "1", "--task", "redis-server", "--json"]);
    let shown: Value = serde_json::from_str(&ran.stdout).unwrap();
    let table = |analysis: &str, table: &str| {
        let all = shown["analyses"].as_array().unwrap();
        all.iter().find(|one| one["name"] == analysis).unwrap()["tables"][table]
            .as_array()
            .unwrap()
            .clone()
    };
    let matrix = table("blame", "matrix");
    assert_eq!(matrix[0]["time_ns"], shown["answer"]["time_ns"]);
    let all: u64 = matrix.iter().map(|row| row["time_ns"].as_u64().unwrap()).sum();
    assert!(all <= shown["answer"]["waited_ns"].as_u64().unwrap());
    assert_eq!(table("worst", "worst")[0]["waited_ns"], shown["answer"]["longest"]["waited_ns"]);
}

#[test]
fn is_this_kernel_real_time() {
    let (said, doctor) = answered(&["doctor"]);
    assert_eq!(doctor["answer"], said.as_str());
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let realtime =
        std::fs::read_to_string("/sys/kernel/realtime").is_ok_and(|text| text.trim() == "1");
    let is = if realtime { "is a real-time kernel" } else { "is not a real-time kernel" };
    assert!(said.contains(&format!("Linux {} {is}", release.trim())), "{said}");
}
