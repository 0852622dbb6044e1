//! `compare --fail-if`: exit codes, rows, and refusals before anything runs.

use super::schedlab;

const RECORDING: &str = "recordings/redis-other-other-closed.slt";
const SHORT: [&str; 4] = ["--seeds", "2", "--for", "500ms"];

fn compare(gates: &[&str]) -> super::Ran {
    let variant = ["--variant", "idle: sysbench policy=idle", "--variant", "same: sysbench nice=0"];
    let mut arguments = vec!["compare", RECORDING];
    arguments.extend(SHORT.into_iter().chain(variant));
    gates.iter().for_each(|gate| arguments.extend(["--fail-if", gate]));
    schedlab(&arguments)
}

#[test]
fn a_gate_that_is_met_fails() {
    let ran = compare(&["idle: sysbench share > 10%", "sysbench share > 2"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("FAILED  --fail-if 'idle: sysbench share > 10%'"), "{ran:?}");
    // Two rows beside the first.
    assert_eq!(ran.stdout.matches("passed  --fail-if 'sysbench share > 2'").count(), 2, "{ran:?}");
}

#[test]
fn gates_that_are_not_met_pass() {
    let gates = [
        "sysbench share > +20%",
        "idle: sysbench share > 1.2x against same",
        "as recorded: sysbench share > 2",
    ];
    let ran = compare(&gates);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.stdout.matches("passed  --fail-if").count(), 4, "{ran:?}");
}

#[test]
fn what_the_data_cannot_carry_is_neither() {
    let ran = compare(&["idle: redis-server latency p99.99 > 1ms"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let words: Vec<&str> = ran.stdout.split_whitespace().collect();
    assert!(words.join(" ").contains(" values, the percentile lies between "), "{ran:?}");
    let ran = compare(&["idle: sysbench response p99 > 1ms", "sysbench share < 1%"]);
    assert_eq!(ran.code, 3, "a subject without that number: {ran:?}");
}

/// Few values lie beyond the percentile, and yet all that could be it lie on one side of the bound.
#[test]
fn a_bound_beyond_the_interval_is_decided() {
    let variant = "idle: sysbench policy=idle";
    let gate = ["--fail-if", "redis-server latency p99 > 2ms"];
    let recording = "recordings/redis-other-other-closed8.slt";
    let ran = schedlab(&["compare", recording, "--variant", variant, gate[0], gate[1]]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("passed  --fail-if"), "{ran:?}");
}

#[test]
fn gates_stand_in_the_json() {
    let mut arguments =
        vec!["compare", RECORDING, "--json", "--variant", "idle: sysbench policy=idle"];
    arguments.extend(SHORT);
    arguments.extend(["--fail-if", "idle: sysbench share > 10%"]);
    let ran = schedlab(&arguments);
    assert_eq!(ran.code, 1, "{ran:?}");
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let gate = &value["gates"][0];
    assert_eq!(
        (gate["outcome"].as_str(), gate["variant"].as_str()),
        (Some("met"), Some("idle")),
        "{gate}"
    );
}

#[test]
fn the_verdict_begins_with_the_server() {
    let recording = "recordings/redis-other-other-closed8.slt";
    let mut arguments =
        vec!["compare", recording, "--json", "--variant", "idle: sysbench policy=idle"];
    // Of a part the generator alone is not certain.
    arguments.extend(["--seeds", "2"]);
    let ran = schedlab(&arguments);
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let outcome = value["verdict"]["outcome"].as_str().expect("text");
    // The load generator gains more, and no gate is about it.
    assert!(
        outcome.starts_with("Run sysbench under SCHED_IDLE (idle): redis-server "),
        "{outcome}"
    );
    // Of each the number that is felt first of those that are certain. Activations that several
    // requests share are not requests, so that shares are told in place of times and throughput.
    let told = ["redis-server CPU share", "redload CPU share"];
    let told = told.map(|what| outcome.contains(what));
    assert_eq!(told, [true, true], "{outcome}");
}

#[test]
fn gates_about_no_task_are_refused_at_once() {
    for (gate, part) in [
        ("sysbnch share < 50%", "did you mean `sysbench`?"),
        (
            "ide: sysbench share < 50%",
            "no variant or scheduler `ide`; there are: as recorded, idle",
        ),
        ("sysbench share < -5% against nothing", "no variant or scheduler `nothing`"),
        ("sysbench share < 50% against idle", "`against` needs a change"),
        ("sysbench latency > 1ms", "which number"),
    ] {
        let ran = compare(&[gate]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stdout.is_empty() && ran.stderr.contains(part), "wanted {part}: {ran:?}");
    }
    let ran = schedlab(&["compare", "recordings/two-yes.slt", "--fail-if", "yes share > +5%"]);
    assert!(ran.code == 2 && ran.stderr.contains("it is about no row"), "{ran:?}");
}
