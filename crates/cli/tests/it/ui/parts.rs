//! What else can be seen of an input, by plain HTTP: two above each other, messages, lessons,
//! pictures, and the machine itself.

use super::super::schema::fits;
use super::super::{root, schedlab, skip};
use super::{REDIS, Server, events};
use serde_json::{Value, json};
use std::io::Read;

const IDLE: &str = "recordings/redis-other-idle-closed8.slt";
const MESSAGES: &str = "recordings/redis-messages.slt";

#[test]
fn two_recordings_are_compared_as_diff_compares_them() {
    let server = Server::new(&[REDIS, IDLE]);
    let compared = |with: &str| {
        let answered = server.get(&format!("/api/1/inputs/f0/diff?with={with}"));
        assert_eq!(answered.status, 200, "{answered:?}");
        let heard = events(&answered.body);
        assert_eq!((heard.len(), heard[0].0.as_str(), heard[1].0.as_str()), (2, "answer", "end"));
        heard[0].1.clone()
    };
    let found = compared("f1");
    fits("diff", &found.to_string());
    let ran = schedlab(&["diff", REDIS, IDLE, "--json"]);
    let wanted: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(found == wanted, "another answer than diff's: {found}");
    // Their lanes begin at 0, and share one list of tasks.
    let lanes = server.get("/api/1/inputs/f0/beside?with=f1").json();
    let runs = lanes["runs"].as_array().unwrap();
    assert_eq!([&runs[0]["name"], &runs[1]["name"]], [REDIS, IDLE]);
    assert_eq!([&runs[0]["from_ns"], &runs[1]["from_ns"]], [&json!(0), &json!(0)]);
    let alone = |id: &str| server.get(&format!("/api/1/inputs/{id}/lanes")).json();
    let count = |lanes: &Value| lanes["tasks"].as_array().unwrap().len();
    assert_eq!(count(&lanes), count(&alone("f0")) + count(&alone("f1")));
    // A dropped file has its own name, and a scenario has no events.
    let bytes = std::fs::read(root().join(IDLE)).unwrap();
    server.post("/api/1/inputs?name=idle.slt", &bytes);
    let dropped = compared("f2");
    assert_eq!(dropped["after"]["file"], "idle.slt");
    assert!(!dropped.to_string().contains("/proc/"), "{dropped}");
    let scenario = server.get("/api/1/inputs/f0/diff?with=g:two-hogs");
    assert_eq!(scenario.status, 422);
    assert!(scenario.body.contains("this is a scenario"), "{scenario:?}");
    assert_eq!(server.get("/api/1/inputs/f0/diff?with=f9").status, 404);
}

#[test]
fn messages_are_those_that_show_lists() {
    let server = Server::new(&[MESSAGES, REDIS]);
    let found = server.get("/api/1/inputs/f0/flow");
    fits("flow", &found.body);
    let found = found.json();
    let first = &found["nodes"][0];
    assert_eq!((&first["name"], &first["serves"]), (&json!("redis-server"), &json!(true)));
    let ran = schedlab(&["show", MESSAGES, "--messages", "--json"]);
    let shown: Value = serde_json::from_str(&ran.stdout).unwrap();
    let text = shown.to_string();
    let edges = found["edges"].as_array().unwrap();
    let name = |place: &Value| &found["nodes"][place.as_u64().unwrap() as usize]["name"];
    let edge = edges.iter().find(|edge| name(&edge["to"]) == "redis-server").unwrap();
    assert_eq!(name(&edge["from"]), "redis-benchmark");
    for field in ["messages", "bytes", "longest_queue_bytes", "queued_p99_ns"] {
        let number = &edge[field];
        assert!(text.contains(&number.to_string()), "{field} {number} is not in {text}");
    }
    // The slowest request and the median one, from the client to the server.
    let requests = found["requests"].as_array().unwrap();
    let length = |one: &Value| one["to_ns"].as_u64().unwrap() - one["from_ns"].as_u64().unwrap();
    assert_eq!(
        (&requests[0]["which"], &requests[1]["which"]),
        (&json!("slowest"), &json!("median"))
    );
    assert!(length(&requests[0]) > 10 * length(&requests[1]), "{requests:?}");
    for request in requests {
        let frames = request["frames"].as_array().unwrap();
        let programs: Vec<&Value> = frames.iter().map(|frame| &frame["program"]).collect();
        assert_eq!(programs, ["redis-benchmark", "redis-server"]);
        for frame in frames {
            let states = frame["states"].as_array().unwrap();
            let sum: u64 =
                states.iter().map(|one| one[2].as_u64().unwrap() - one[1].as_u64().unwrap()).sum();
            assert_eq!(sum, length(request), "the states fill the frame: {frame}");
        }
    }
    // A recording without them says why.
    let without = server.get("/api/1/inputs/f1/flow").json();
    assert!(without["missing"].as_str().unwrap().contains("message"), "{without}");
}

#[test]
fn lessons_and_pictures_are_there() {
    let server = Server::new(&[]);
    let course = server.get("/api/1/course");
    fits("course", &course.body);
    let lessons = course.json()["lessons"].as_array().unwrap().clone();
    assert_eq!(lessons[0]["scenario"], "two-hogs");
    let picture = server.get("/api/1/inputs/g:two-hogs/picture");
    fits("picture", &picture.body);
    assert_eq!(picture.json()["programs"].as_array().unwrap().len(), 2);
    assert_eq!(server.get("/api/1/inputs/g:no-such/picture").status, 404);
}

#[test]
fn a_machine_is_watched_only_where_that_was_asked_for() {
    let server = Server::new(&[]);
    assert_eq!(server.get("/api/1/inputs").json()["live"], false);
    for answered in [server.get("/api/1/live"), server.post("/api/1/live/keep", b"")] {
        assert_eq!(answered.status, 404);
        assert!(answered.body.contains("schedlab ui --live"), "{answered:?}");
    }
}

/// The state comes every second, and what is kept is a recording that leaves no file.
#[test]
fn the_machine_is_watched_and_kept() {
    let Some(server) = Server::try_new(&["--live"]) else {
        return skip("ui-live", "nothing can be recorded here");
    };
    assert_eq!(server.get("/api/1/inputs").json()["live"], true);
    let mut stream = server.connect();
    let lines = server.lines("GET", "/api/1/live?tab=a", 0);
    std::io::Write::write_all(&mut stream, format!("{lines}\r\n").as_bytes()).unwrap();
    let mut heard = Vec::new();
    let mut some = [0; 65536];
    while String::from_utf8_lossy(&heard).matches("event: state").count() < 3 {
        let read = stream.read(&mut some).unwrap();
        assert!(read > 0, "it ended: {}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&some[..read]);
    }
    drop(stream);
    let kept = server.post("/api/1/live/keep", b"");
    assert_eq!(kept.status, 200, "{kept:?}");
    let id = kept.json()[0].as_str().unwrap().to_owned();
    let overview = server.get(&format!("/api/1/inputs/{id}/overview"));
    fits("overview", &overview.body);
    assert!(overview.json()["events"].as_u64() > Some(0), "{overview:?}");
    let files = std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap();
    let links = files.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let mut slt = links.filter(|link| link.display().to_string().contains(".slt"));
    assert!(slt.all(|link| link.display().to_string().ends_with("(deleted)")));
}
