//! Every JSON output names its schema, and is what docs/schema says.

use super::{Folder, Ran, root, schedlab};
use serde_json::Value;

/// Returns where and why a value does not fit a schema of JSON Schema 2020-12.
fn misfits(schema: &Value, value: &Value) -> Vec<String> {
    let validator =
        jsonschema::validator_for(schema).unwrap_or_else(|error| panic!("{error}: {schema}"));
    validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

/// Readers of a result have to expect new fields; here, a field that a type does not describe is a
/// fault. Schemas that are not made from types yet do not list all.
fn strict(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.values_mut().for_each(strict);
            if map.contains_key("properties") {
                map.entry("additionalProperties").or_insert(Value::Bool(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(strict),
        _ => {}
    }
}

/// The schema that a value names, from docs/schema.
fn schema_of(value: &Value) -> Value {
    let name = value["schema"].as_str().unwrap_or_else(|| panic!("no schema is named: {value}"));
    let file = name.strip_prefix("schedlab-").expect(name).replace('/', "-") + ".json";
    let path = root().join("docs/schema").join(&file);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("docs/schema/{file}: {error}"));
    let mut schema: Value = serde_json::from_str(&text).expect(&file);
    // An output of several forms (`anyOf`) has its name in each of them.
    assert!(text.contains(&format!("\"const\": \"{name}\"")), "{file}");
    strict(&mut schema);
    schema
}

#[track_caller]
pub(super) fn fits(what: &str, text: &str) {
    let value: Value =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{what}: {error}: {text}"));
    assert_eq!(misfits(&schema_of(&value), &value), Vec::<String>::new(), "{what}");
}

fn done(ran: &Ran) -> bool {
    [0, 1, 3].contains(&ran.code)
}

#[test]
fn every_json_output_is_what_its_schema_says() {
    let folder = Folder::new("schema");
    let recording = "recordings/redis-other-other-closed8.slt";
    let out = folder.0.join("x.txt").display().to_string();
    let (scenario, imported) = (format!("{out}.toml"), format!("{out}.slt"));
    let trace = "crates/trace/tests/field/systrace.html";
    let gate = "redis-server latency p99 > 1ms";
    for command in [
        &["compare", "two-hogs", "--for", "1500ms", "--json"][..],
        &[
            "compare",
            recording,
            "--seeds",
            "1",
            "--for",
            "500ms",
            "--json",
            "--fail-if",
            gate,
            "--variant",
            "i: sysbench policy=idle",
        ],
        &["diff", recording, recording, "--json"],
        &["show", recording, "--json"],
        &[
            "show",
            recording,
            "--json",
            "--worst=3",
            "--latency",
            "--slices",
            "--blame",
            "--states",
            "--runqueue",
            "--wakes",
        ],
        &["show", "xen-ping", "--xl", "--xenalyze", "--json"],
        &["list", "schedulers", "--json"],
        &["list", "schedulers", "--live", "--json"],
        &["list", "scenarios", "--json"],
        &["explain", "--json"],
        &["doctor", "--json"],
        &["status", "--json"],
        &["restore", "--json"],
        &["export", recording, "--ftrace", &out, "--json"],
        &["import", "crates/study/tests/field/rtapp-finite-share.json", "-o", &scenario, "--json"],
        &["import", trace, "-o", &imported, "--json"],
        &["published", "xen-bare-one", "--json"],
        &["bench", "model", "--json"],
        &["stress", "--hogs", "1", "--for", "100ms", "--json"],
    ] {
        let ran = schedlab(command);
        assert!(done(&ran), "{command:?}: {ran:?}");
        fits(&format!("{command:?}"), &ran.stdout);
    }
}

/// What measures the live machine, where it may.
#[test]
#[allow(clippy::print_stderr)]
fn live_json_output_is_what_its_schema_says() {
    let folder = Folder::new("schema-live");
    let file = folder.0.join("x.slt").display().to_string();
    let preset = folder.0.join("x.toml").display().to_string();
    for command in [
        &[
            "record",
            "-o",
            &file,
            "--backend",
            "own",
            "--no-calibration",
            "--json",
            "--",
            "sleep",
            "0.1",
        ][..],
        &["watch", "--json", "--for", "1s"],
        &["latency", "--for", "300ms", "--json"],
        &["calibrate", "--for", "500ms", "--rounds", "3", "-o", &preset, "--json"],
        &[
            "bench",
            "runqueue",
            "--tasks",
            "2",
            "--threads",
            "1",
            "--rounds",
            "3",
            "--for",
            "1ms",
            "--json",
        ],
        &[
            "colocate",
            "--serve",
            "sleep 9",
            "--batch",
            "sleep 9",
            "--dry-run",
            "--cpus",
            "0",
            "--json",
        ],
    ] {
        let ran = schedlab(command);
        if !done(&ran) {
            assert!(
                std::env::var("CI").map_or(true, |ci| ci != "true"),
                "it must work here: {ran:?}"
            );
            eprintln!("SKIPPED {}: {}", command[0], ran.stderr);
            continue;
        }
        match command[0] {
            "watch" => ran.stdout.lines().for_each(|line| fits("watch", line)),
            name => fits(name, &ran.stdout),
        }
    }
}

/// With --json an error is JSON too, on standard error; standard output stays empty.
#[test]
fn errors_are_json_where_the_result_would_be() {
    for command in [
        &["compare", "no-such-thing", "--json"][..],
        &["show", "gone.slt", "--json"],
        &["compare", "two-hogs", "--json", "--no-such-option"],
    ] {
        let ran = schedlab(command);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stdout.is_empty(), "{ran:?}");
        fits(&format!("{command:?}"), &ran.stderr);
    }
}

#[test]
fn a_misfit_is_found() {
    let schema = serde_json::json!({
        "type": "object", "required": ["a"],
        "properties": { "a": { "type": ["integer", "null"] }, "b": { "type": "array", "items": { "type": "string" } } },
    });
    let mut closed = schema.clone();
    strict(&mut closed);
    assert!(misfits(&schema, &serde_json::json!({ "a": 1, "c": 1 })).is_empty());
    assert_eq!(misfits(&closed, &serde_json::json!({ "a": 1, "c": 1 })).len(), 1);
    for (value, fits) in [
        (serde_json::json!({ "a": 1 }), true),
        (serde_json::json!({ "a": null, "b": ["x"], "c": 1 }), true),
        (serde_json::json!({ "b": [] }), false),
        (serde_json::json!({ "a": 1.5 }), false),
        (serde_json::json!({ "a": 1, "b": ["x", 2] }), false),
    ] {
        assert_eq!(misfits(&schema, &value).is_empty(), fits, "{value}");
    }
}

/// Every schema that a command can name has its file; the live ones, which need root and time, are
/// checked in `live.rs`.
#[test]
fn every_schema_has_its_file() {
    let code = root().join("crates");
    let mut names: Vec<String> = Vec::new();
    let mut folders = vec![code];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.extension().and_then(|end| end.to_str()) {
                None if entry.is_dir() && !entry.ends_with("tests") => folders.push(entry),
                Some("rs") => {
                    let text = std::fs::read_to_string(&entry).unwrap();
                    let parts = text.split("SCHEMA: &str = \"").skip(1);
                    names.extend(parts.map(|part| part.split('"').next().unwrap().to_owned()));
                }
                _ => {}
            }
        }
    }
    names.retain(|name| name.starts_with("schedlab-"));
    assert!(names.len() > 12, "{names:?}");
    for name in names {
        let file = name.strip_prefix("schedlab-").unwrap().replace('/', "-") + ".json";
        assert!(root().join("docs/schema").join(&file).is_file(), "docs/schema/{file} is missing");
    }
}
