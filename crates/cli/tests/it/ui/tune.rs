//! Searches by plain HTTP: their answers, and how they end.

use super::super::schedlab;
use super::super::schema::fits;
use super::ask::of;
use super::{REDIS, Server};
use serde_json::{Value, json};
use std::io::{Read, Write};

const SPACE: &str = "sysbench nice=0,10,19";

fn search(seeds: &str) -> Value {
    let options = json!([
        ["goal", "redis-server latency p99"],
        ["keep", "sysbench share"],
        ["space", SPACE],
        ["space", "sysbench policy=other,idle"],
        ["seeds", seeds],
        ["for", "1s"]
    ]);
    json!({"input": "f0", "tab": "a", "options": options})
}

/// The answer is that of `schedlab tune --json`, all of it, and the command that is said gives it.
#[test]
fn a_search_is_that_of_tune() {
    let server = Server::new(&[REDIS]);
    let heard = server.stream("/api/1/tune", &search("2"));
    let (told, answers) = (of(&heard, "progress"), of(&heard, "answer"));
    assert_eq!(answers.len(), 1, "{heard:?}");
    assert_eq!(heard.last().unwrap().0, "end");
    fits("answer", &answers[0].to_string());
    told.iter().for_each(|progress| fits("progress", &progress.to_string()));
    // The curve grows: settings with their numbers are there before the answer.
    let last = told.last().unwrap();
    assert_eq!(last["asked"], json!(["redis-server latency p99", "sysbench share"]));
    let settings = last["settings"].as_array().unwrap();
    assert!(settings.len() >= 3 && settings.iter().any(|one| one["front"] == json!(true)));
    let [low, middle, high] = [0, 1, 2].map(|at| settings[1]["figures"][0][at].as_f64().unwrap());
    assert!(low <= middle && middle <= high && low > 0.0, "{last}");
    let command = last["command"].as_str().unwrap();
    let said = format!("schedlab tune {REDIS} --goal 'redis-server latency p99' --keep");
    assert!(command.starts_with(&said), "{command}");
    let ran = schedlab(&[
        "tune",
        REDIS,
        "--goal",
        "redis-server latency p99",
        "--keep",
        "sysbench share",
        "--space",
        SPACE,
        "--space",
        "sysbench policy=other,idle",
        "--seeds",
        "2",
        "--for",
        "1s",
        "--json",
    ]);
    let tuned: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(tuned == *answers[0], "another answer than tune's: {tuned}");
}

/// A search that is stopped has the answer of what is finished, marked so.
#[test]
fn a_search_that_is_stopped_keeps_what_it_has_found() {
    let server = Server::new(&[REDIS]);
    server.stream("/api/1/tune", &search("1"));
    let long = search("100").to_string();
    let mut stream = server.connect();
    let lines = server.lines("POST", "/api/1/tune", long.len());
    stream.write_all(format!("{lines}Connection: close\r\n\r\n{long}").as_bytes()).unwrap();
    let mut heard = Vec::new();
    let mut some = [0; 4096];
    while !String::from_utf8_lossy(&heard).contains("\"front\":true") {
        let read = stream.read(&mut some).unwrap();
        assert!(read > 0, "it ended: {}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&some[..read]);
    }
    assert_eq!(server.post("/api/1/stop", b"\"a\"").status, 200);
    stream.read_to_end(&mut heard).unwrap();
    let heard = super::events(&super::answered(&heard).body);
    let answers = of(&heard, "answer");
    assert_eq!(answers.len(), 1, "{heard:?}");
    fits("partial", &answers[0].to_string());
    let partial = &answers[0]["partial"];
    assert!(partial["runs"].as_u64() < partial["of_runs"].as_u64(), "{partial}");
}

#[test]
fn what_is_wrong_with_a_search_is_said() {
    let server = Server::new(&[REDIS]);
    for (options, part) in [
        (json!([["space", SPACE]]), "--goal"),
        (json!([["goal", "redis-server share"], ["validate", "/etc/passwd"]]), "names a file"),
        (json!([["goal", "redis-server share"], ["color", "red"]]), "no option `color`"),
    ] {
        let body = json!({"input": "f0", "options": options}).to_string();
        let answered = server.post("/api/1/tune", body.as_bytes());
        assert_eq!(answered.status, 422, "{answered:?}");
        assert!(answered.body.contains(part), "{answered:?}");
    }
    // What only the input can tell comes as an event.
    let options = json!([["goal", "no-such-task share"], ["space", SPACE]]);
    let heard = server.stream("/api/1/tune", &json!({"input": "f0", "options": options}));
    let failed = of(&heard, "failed");
    assert!(failed[0]["error"].as_str().unwrap().contains("nothing is called"), "{heard:?}");
}
