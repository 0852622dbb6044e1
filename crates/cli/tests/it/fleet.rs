//! Folders of recordings: `show FOLDER`, `compare FOLDER`; and tasks taken together by what they
//! belong to.

use super::{Folder, root, schedlab};
use serde_json::Value;
use std::fs;
use std::path::Path;

const SMALL: &str = "recordings/two-yes.slt";
const REDIS: &str = "recordings/redis-other-other-closed8.slt";

/// Three machines with a recording each (one of them in a folder of its own), of which two are the
/// same.
fn fleet(name: &str) -> (Folder, String) {
    let folder = Folder::new(name);
    let fleet = folder.0.join("fleet");
    fs::create_dir_all(fleet.join("web-3")).unwrap();
    let copy = |from: &str, to: &Path| assert!(fs::copy(root().join(from), to).unwrap() > 0);
    copy(SMALL, &fleet.join("web-1.slt"));
    copy(SMALL, &fleet.join("web-2.slt"));
    copy(REDIS, &fleet.join("web-3/monday.slt"));
    fs::write(fleet.join("notes.txt"), "not taken").unwrap();
    let path = fleet.display().to_string();
    (folder, path)
}

fn json(arguments: &[&str]) -> Value {
    let ran = schedlab(&[arguments, &["--json"]].concat());
    assert!([0, 3].contains(&ran.code), "{arguments:?}: {ran:?}");
    serde_json::from_str(&ran.stdout).expect("JSON")
}

fn value(recording: &Value, metric: &str) -> Option<f64> {
    let values = recording["values"].as_array().expect("values");
    values.iter().find(|value| value["metric"] == metric)?["value"].as_f64()
}

#[test]
fn a_folder_has_a_row_for_each_recording_and_what_is_typical() {
    let (folder, path) = fleet("fleet-show");
    let found = json(&["show", &path]);
    super::schema::fits("show FOLDER", &found.to_string());
    assert_eq!((&found["schema"], &found["machines"]), (&"schedlab-fleet/1".into(), &3.into()));
    let recordings = found["recordings"].as_array().unwrap();
    let machines: Vec<&str> =
        recordings.iter().map(|one| one["machine"].as_str().unwrap()).collect();
    assert_eq!(machines.len(), 3);
    let of = |machine: &str| &recordings[machines.iter().position(|one| *one == machine).unwrap()];
    for metric in ["share", "latency p99", "throttled"] {
        assert_eq!(value(of("web-1"), metric), value(of("web-2"), metric), "{metric}");
    }
    assert_ne!(value(of("web-1"), "share"), value(of("web-3"), "share"));
    // The median of three, two of which are equal, is that of the two.
    let typical = &found["typical"][0];
    assert_eq!(typical["metric"], "share");
    assert_eq!(typical["interval"]["median"].as_f64(), value(of("web-1"), "share"));

    // Only one machine runs the server: the others have rows without numbers.
    let served = json(&["show", &path, "--serve", "redis-server"]);
    assert_eq!(served["typical"][0]["machines"], 1);
    assert_eq!(served["recordings"][0]["machine"], "web-3");
    // A row for each program of each machine; one is compared with itself on the others.
    let by_name = json(&["show", &path, "--by", "name"]);
    super::schema::fits("show FOLDER", &by_name.to_string());
    let rows = by_name["recordings"].as_array().unwrap();
    let redis = rows.iter().find(|one| one["subject"] == "redis-server").unwrap();
    assert_eq!(
        (redis["machine"].as_str(), value(redis, "share")),
        (Some("web-3"), value(&served["recordings"][0], "share"))
    );
    let yes = by_name["typical"].as_array().unwrap().iter();
    let of_yes: Vec<&Value> = yes.filter(|one| one["subject"] == "yes").collect();
    assert!(!of_yes.is_empty() && of_yes.iter().all(|one| one["machines"] == 2), "{of_yes:?}");
    let text = schedlab(&["show", &path, "--by", "name"]).stdout;
    assert!(text.contains("web-3/monday.slt: redis-server"), "{text}");
    let refused = schedlab(&["show", &path, "--by", "thread"]);
    assert!(refused.code == 2 && refused.stderr.contains("on another machine"), "{refused:?}");
    let refused = schedlab(&["show", &path, "--serve", "no-such-server"]);
    assert!(
        refused.code == 2 && refused.stderr.contains("no task of any recording"),
        "{refused:?}"
    );
    let refused = schedlab(&["show", &path, "--worst", "3"]);
    assert!(refused.code == 2 && refused.stderr.contains("is for one recording"), "{refused:?}");

    // A file that cannot be read is said, and does not hide the others.
    fs::write(Path::new(&path).join("broken.slt"), "no recording").unwrap();
    let ran = schedlab(&["show", &path]);
    assert!(ran.code == 2 && ran.stdout.contains("web-3/monday.slt"), "{ran:?}");
    assert!(ran.stdout.contains("not read: broken.slt"), "{ran:?}");
    assert!(ran.stderr.contains("1 of 4 recordings could not be read"), "{ran:?}");
    drop(folder);
}

#[test]
fn a_setting_is_compared_over_a_folder() {
    let (folder, path) = fleet("fleet-compare");
    let idle = "idle: sysbench policy=idle";
    let compare = ["compare", &path, "--variant", idle, "--for", "1s"];
    let found = json(&compare);
    super::schema::fits("compare FOLDER", &found.to_string());
    assert_eq!(found["schema"], "schedlab-fleet-compare/1");
    let recordings = found["recordings"].as_array().unwrap();
    let absent = recordings.iter().filter(|one| one["absent"] == true).count();
    assert_eq!((recordings.len(), absent), (3, 2), "two machines have no sysbench: {found}");
    // One machine is too few for a claim over machines, whatever its recording says.
    let changes = found["changes"].as_array().unwrap();
    let open =
        |change: &Value| ["cannot-tell", "same"].contains(&change["judgement"].as_str().unwrap());
    assert!(changes.iter().all(open), "{found}");

    // What one recording gives is what `compare` of it gives.
    let alone = json(&["compare", REDIS, "--variant", idle, "--for", "1s", "--seeds", "1"]);
    let subject = |row: usize, name: &str| {
        let subjects = alone["rows"][row]["subjects"].as_array().unwrap().clone();
        subjects.into_iter().find(|one| one["name"] == name).unwrap()
    };
    let share = |row: usize| {
        let cells = subject(row, "sysbench")["cells"].as_array().unwrap().clone();
        let cell = cells.into_iter().find(|cell| cell["metric"] == "share").unwrap();
        cell["value"]["median"].as_f64().unwrap()
    };
    if alone["self_replay"]["trusted"] == true {
        let is = |change: &&Value| change["subject"] == "sysbench" && change["metric"] == "share";
        let change = changes.iter().find(is).unwrap_or_else(|| panic!("{found}"));
        let difference = change["change"]["median"].as_f64().unwrap();
        assert!((difference - (share(1) - share(0))).abs() < 1e-9, "{change}");
    }
    for (more, part) in [
        (&["--fail-if", "sysbench share < 1%"][..], "`schedlab ci run` judges gates"),
        (&["--report", "x.html"], "is for one recording"),
    ] {
        let ran = schedlab(&[&compare[..], more].concat());
        assert!(ran.code == 2 && ran.stderr.contains(part), "{more:?}: {ran:?}");
    }
    let nothing = schedlab(&["compare", &path]);
    assert!(
        nothing.code == 2 && nothing.stderr.contains("nothing would be compared"),
        "{nothing:?}"
    );
    drop(folder);
}

/// No program of the recording is in a unit: all of them are together, but for the tasks that the
/// variant changes, which have rows of their own then.
#[test]
fn compare_takes_tasks_together_by_what_they_belong_to() {
    let ask = |more: &[&str]| {
        let all = ["compare", REDIS, "--for", "1s", "--seeds", "1"];
        json(&[&all[..], more].concat())
    };
    let variant = ["--variant", "idle: sysbench policy=idle"];
    let by_name = ask(&variant);
    let by_unit = ask(&[&variant[..], &["--by", "unit"]].concat());
    let shares = |found: &Value, row: usize| -> Vec<(String, f64)> {
        let subjects = found["rows"][row]["subjects"].as_array().unwrap();
        let of = |one: &Value| {
            let cells = one["cells"].as_array().unwrap();
            let share = cells.iter().find(|cell| cell["metric"] == "share")?;
            Some((one["name"].as_str()?.to_owned(), share["value"]["median"].as_f64()?))
        };
        subjects.iter().filter_map(of).collect()
    };
    let sum = |of: &[(String, f64)]| of.iter().map(|(_, share)| share).sum::<f64>();
    let (names, units) = (shares(&by_name, 0), shares(&by_unit, 0));
    assert!(names.iter().any(|(name, _)| name == "redis-server"), "{names:?}");
    assert!(!units.iter().any(|(name, _)| name == "redis-server"), "{units:?}");
    assert!(units.iter().any(|(name, _)| name.starts_with("(no unit)")), "{units:?}");
    assert!((sum(&names) - sum(&units)).abs() < 1e-3, "{names:?} {units:?}");
    // The variant named a program, and changes what it changes by name.
    let (names, units) = (shares(&by_name, 1), shares(&by_unit, 1));
    assert!((sum(&names) - sum(&units)).abs() < 1e-3, "{names:?} {units:?}");
    let notes = by_unit["notes"].to_string();
    assert!(notes.contains("taken together by unit"), "{notes}");
}

#[test]
fn a_pod_is_a_variant_and_a_fragment_of_a_manifest() {
    let pod = "k8s: pod sysbench requests.cpu=500m limits.cpu=500m";
    let compare = ["compare", REDIS, "--for", "1s", "--seeds", "1", "--variant", pod];
    let found = json(&compare);
    let row = &found["rows"][1];
    let notes = row["notes"].to_string();
    assert!(notes.contains("cpu.weight 59 by the quadratic formula"), "{notes}");
    assert!(notes.contains("cpu.max 50.0ms/100ms"), "{notes}");
    let subject = row["subjects"].as_array().unwrap().iter().find(|one| one["name"] == "sysbench");
    let cells = subject.unwrap()["cells"].as_array().unwrap();
    let share = cells.iter().find(|cell| cell["metric"] == "share").unwrap();
    assert!(share["value"]["median"].as_f64().unwrap() < 0.51, "the limit holds: {share}");
    let deploy = &row["deploy"];
    let kubernetes = deploy["kubernetes"].as_str().unwrap();
    assert_eq!(
        kubernetes,
        "spec:\n  containers:\n  - name: sysbench\n    resources:\n      requests: {cpu: \"500m\"}\n      \
         limits: {cpu: \"500m\"}"
    );
    assert!(deploy["shell"].as_str().unwrap().starts_with("kubectl set resources"), "{deploy}");
}

/// "Which limit keeps throttling below 1 %?"
#[test]
fn tune_finds_the_limit_that_keeps_throttling_low() {
    let ran = schedlab(&[
        "tune",
        REDIS,
        "--goal",
        "sysbench share",
        "--keep",
        "redis-server throttled < 1%",
        "--space",
        "pod redis-server limits.cpu=100m,500m,2",
        "--seeds",
        "2",
        "--for",
        "1s",
        "--json",
    ]);
    assert!([0, 3].contains(&ran.code), "{ran:?}");
    let found: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let settings = found["settings"].as_array().unwrap();
    let of = |limit: &str| {
        let is = |one: &&Value| {
            one["setting"]
                .as_str()
                .is_some_and(|text| text.ends_with(&format!("limits.cpu={limit}")))
        };
        let one = settings.iter().find(is).unwrap_or_else(|| panic!("{limit}: {found}"));
        (one["figures"][1]["value"]["median"].as_f64().unwrap(), one["meets"][1].clone())
    };
    let [small, enough, large] = ["100m", "500m", "2"].map(of);
    assert!(small.0 > 0.3 && small.1 == "no", "{small:?}");
    assert!(enough.0 < 0.01 && enough.1 == "yes", "{enough:?}");
    assert!(large.0 < 0.01 && large.1 == "yes", "{large:?}");
}

/// The longest wait of the Redis recording as an incident of `flight`; and the process.
fn longest_wait() -> (Value, u64) {
    let worst = json(&["show", REDIS, "--worst", "1"]);
    let row = &worst["analyses"][0]["tables"]["worst"][0];
    let length = row["to_ns"].as_u64().unwrap() - row["from_ns"].as_u64().unwrap();
    let incident = serde_json::json!({
        "condition": "wait > 1ms", "task": row["task"]["name"], "tid": row["task"]["tid"],
        "did": "waited", "from_ns": row["from_ns"], "length_ns": length,
    });
    (incident, row["task"]["pid"].as_u64().unwrap())
}

/// `contrib/flight/otlp.py` about an incident of the Redis recording.
fn otlp(incident: &Value) -> std::process::Command {
    let python = std::env::var("SCHEDLAB_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut script = std::process::Command::new(python);
    script
        .arg(root().join("contrib/flight/otlp.py"))
        .current_dir(root())
        .env("SCHEDLAB", env!("CARGO_BIN_EXE_schedlab"))
        .env("SCHEDLAB_FILE", REDIS)
        .env("SCHEDLAB_RULE", "slow")
        .env("SCHEDLAB_INCIDENT", incident.to_string())
        .env("NO_PROXY", "*");
    script
}

/// What `contrib/flight/otlp.py` sends to a collector: here a socket.
#[test]
fn an_incident_is_sent_as_a_span() {
    use std::io::{Read as _, Write as _};
    let (incident, _) = longest_wait();
    let length = incident["length_ns"].as_u64().unwrap();
    let collector = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", collector.local_addr().unwrap());
    let mut script = otlp(&incident).arg(url).spawn().unwrap();
    let (mut stream, _) = collector.accept().unwrap();
    let mut request = Vec::new();
    let body = loop {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).unwrap();
        request.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length: usize = length.and_then(|text| text.trim().parse().ok()).expect("a length");
        if body.len() >= length {
            assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
            break body.to_owned();
        }
    };
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    stream.write_all(answer.as_bytes()).unwrap();
    assert!(script.wait().unwrap().success());
    let sent: Value = serde_json::from_str(&body).unwrap();
    let span = &sent["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    let time = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(time("endTimeUnixNano") - time("startTimeUnixNano"), length);
    assert_eq!(span["traceId"].as_str().unwrap().len(), 32);
    assert_eq!(of_span(span, "thread.id"), &incident["tid"].to_string());
    let events = span["events"].as_array().unwrap();
    assert!(events.iter().any(|one| one["name"].as_str().unwrap().ends_with(" ran")), "{span}");
}

/// The value of an attribute; whole numbers are texts in OTLP's JSON.
fn of_span<'a>(span: &'a Value, key: &str) -> &'a str {
    let mut all = span["attributes"].as_array().unwrap().iter();
    let value =
        &all.find(|one| one["key"] == key).unwrap_or_else(|| panic!("{key}: {span}"))["value"];
    value["intValue"].as_str().or(value["stringValue"].as_str()).unwrap()
}

/// With the application's own spans the wait is a part of its trace: within the span that its
/// thread had open, or before the next one.
#[test]
fn an_incident_joins_the_trace_of_its_thread() {
    let folder = Folder::new("otlp");
    let (incident, process) = longest_wait();
    let spans = |name: &str, spans: &[Value], process: u64| {
        let whole = serde_json::json!({"resourceSpans": [{
            "resource": {"attributes": [{"key": "process.pid", "value": {"intValue": process.to_string()}}]},
            "scopeSpans": [{"spans": spans}],
        }]});
        folder.write(name, format!("{whole}\n{{\"resourceSpans\": [{{"))
    };
    let sent = |file: &str| -> Value {
        let mut script = otlp(&incident);
        let ran = script.args(["--print", "--patience", "0", "--spans", file]).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let all: Value = serde_json::from_slice(&ran.stdout).unwrap();
        all["resourceSpans"][0]["scopeSpans"][0]["spans"][0].clone()
    };
    let alone = sent(&spans("none.json", &[], process));
    assert_eq!(of_span(&alone, "schedlab.joined"), "no");
    // The clock's offset moves a little between two runs of the script.
    let begin: u64 = alone["startTimeUnixNano"].as_str().unwrap().parse().unwrap();
    let span = |id: u64, (from, to): (i64, i64), thread: (&str, Value)| {
        let at = |ms: i64| begin.checked_add_signed(ms * 1_000_000).unwrap().to_string();
        serde_json::json!({
            "traceId": format!("{id:032x}"), "spanId": format!("{id:016x}"),
            "startTimeUnixNano": at(from), "endTimeUnixNano": at(to),
            "attributes": [{"key": thread.0, "value": thread.1}],
        })
    };
    let own = || ("thread.id", serde_json::json!({"intValue": incident["tid"].to_string()}));
    let called = || ("thread.name", serde_json::json!({"stringValue": incident["task"]}));
    let other = || ("thread.id", serde_json::json!({"intValue": "1"}));
    let all = [
        span(1, (-9_000, 9_000), own()),
        span(2, (-5_000, 9_000), called()),
        span(3, (-4_000, 9_000), other()),
        span(4, (-4_000, -3_000), own()),
        span(5, (4_000, 5_000), own()),
    ];
    let within = sent(&spans("all.json", &all, process));
    assert_eq!(of_span(&within, "schedlab.joined"), "within");
    assert_eq!(within["parentSpanId"], all[1]["spanId"], "the innermost of its thread");
    assert_eq!(within["traceId"], all[1]["traceId"]);
    let before = sent(&spans("later.json", &all[2..], process));
    assert_eq!(of_span(&before, "schedlab.joined"), "before");
    assert_eq!(before["links"][0]["spanId"], all[4]["spanId"]);
    assert_eq!(before["traceId"], all[4]["traceId"]);
    assert!(before.get("parentSpanId").is_none());
    let strange = sent(&spans("other.json", &all, process + 1));
    assert_eq!(of_span(&strange, "schedlab.joined"), "no", "another process");
}

/// The rules in the manifests of contrib/k8s are read by the program; the manifests fit the
/// schemas of Kubernetes, where a Python with `kubernetes-validate` is there (CI has one).
#[test]
#[allow(clippy::print_stderr)]
fn manifests_fit_the_schemas_and_their_rules_are_read() {
    let manifest = fs::read_to_string(root().join("contrib/k8s/flight.yaml")).unwrap();
    let (_, rest) = manifest.split_once("flight.toml: |\n").expect("rules");
    let rules: Vec<&str> = rest
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with("    "))
        .map(|line| line.strip_prefix("    ").unwrap_or_default())
        .collect();
    let folder = Folder::new("k8s");
    let file = folder.write("flight.toml", rules.join("\n"));
    let ran = schedlab(&["flight", "--check", &file]);
    assert!(ran.code == 0 && ran.stdout.contains("throttled"), "{ran:?}");

    let python = std::env::var("SCHEDLAB_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has = std::process::Command::new(&python)
        .args(["-c", "import kubernetes_validate, yaml"])
        .output()
        .is_ok_and(|ran| ran.status.success());
    if !has {
        assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "{python} lacks it");
        eprintln!("skipped: the schemas of manifests (pip install kubernetes-validate)");
        return;
    }
    let checked = std::process::Command::new(python)
        .arg(root().join("contrib/k8s/check.py"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success() && said.contains(", 0 faults"), "{said}");
    assert!(said.contains("22 documents fit the schemas"), "{said}");
}
