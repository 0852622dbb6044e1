//! What comes first of an input: a summary of its schedule, the waits that its sentence is about,
//! and the scheduler that it was recorded under.

use super::{REDIS, Server};
use serde_json::{Value, json};

#[test]
fn a_schedule_is_summed_up_until_it_is_there() {
    // Of two inputs none is looked at before it is asked for.
    let server = Server::new(&[REDIS, "recordings/redis-other-idle-closed8.slt"]);
    let lanes = |query: &str| {
        server.get(&format!("/api/1/inputs/f0/lanes{query}")).json()["runs"][0].clone()
    };
    let bytes = |run: &Value| run["data"].as_str().unwrap().len();
    let sums = lanes("?columns=50");
    assert_eq!(sums["summed"], true);
    let all = lanes("");
    assert_eq!(all["summed"], Value::Null);
    assert!(bytes(&sums) * 10 < bytes(&all), "{} of {} bytes", bytes(&sums), bytes(&all));
    for key in ["cpus", "from_ns", "to_ns", "events"] {
        assert_eq!(sums[key], all[key], "{key}");
    }
    assert_eq!(lanes("?columns=50"), all, "it is there now");
    // Where the summary has no fewer spans there is none.
    let small = server.get("/api/1/inputs/f1/lanes?columns=16000&from=1s&to=1010ms").json();
    assert_eq!(small["runs"][0]["summed"], Value::Null);
    for wrong in ["0", "x", "-1"] {
        let said = server.get(&format!("/api/1/inputs/f0/lanes?columns={wrong}"));
        assert!(said.status == 422 && said.body.contains("columns: a number"), "{said:?}");
    }
}

#[test]
fn the_longest_waits_are_of_what_the_sentence_is_about() {
    let server = Server::new(&[REDIS]);
    let overview = server.get("/api/1/inputs/f0/overview?to=1s").json();
    assert!(overview["answer"].as_str().unwrap().starts_with("redis-server waited"), "{overview}");
    assert_eq!(
        (&overview["server"], &overview["waits_of"]),
        (&Value::Null, &json!("redis-server"))
    );
    for wait in overview["waits"].as_array().unwrap() {
        assert!(wait["head"].as_str().unwrap().starts_with("redis-server["), "{wait}");
    }
    let served = server.get("/api/1/inputs/f0/overview?serve=sysbench&to=1s").json();
    assert_eq!(served["waits_of"], "sysbench");
}

/// A trace without its kernel is shown, and answered with a scheduler that is named.
#[test]
fn the_recorded_scheduler_is_named_where_none_is_known() {
    let server = Server::new(&["crates/trace/tests/field/ftrace-stacktrace.txt"]);
    let get = |path: &str| server.get(&format!("/api/1/inputs/f0/{path}"));
    assert_eq!(get("overview").json()["scheduler"], "");
    let named = get("overview?under=linux-6.18").json();
    assert!(named["scheduler"].as_str().unwrap().starts_with("linux-6.18"), "{named}");
    let has = |path: &str, key: &str| {
        let found = get(path).json()["settings"].clone();
        found.as_array().unwrap().iter().any(|one| one["key"] == key)
    };
    assert!(has("settings?under=linux-6.18", "nice") && !has("settings?under=xen-credit2", "nice"));
    let heard = server.stream("/api/1/prepare", &json!({"input": "f0"}));
    assert!(heard[0].1["error"].as_str().unwrap().contains("--recorded-under"), "{heard:?}");
    for (under, why) in [("bpf:/etc/passwd", "names a file"), ("linux-6.18:x=1", "under: ")] {
        let said = get(&format!("overview?under={under}"));
        assert!(said.status == 422 && said.body.contains(why), "{said:?}");
    }
}
