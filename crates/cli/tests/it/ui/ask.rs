//! Questions and what is shown of an input, by plain HTTP.

use super::super::schema::fits;
use super::super::{Folder, root, schedlab};
use super::{REDIS, Server, answered, events, idle};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

pub(super) fn of<'a>(events: &'a [(String, Value)], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|(event, _)| event == name).map(|(_, data)| data).collect()
}

/// The numbers of an answer are those of `schedlab compare` with the same seeds, all of them.
#[test]
fn an_answer_is_that_of_compare() {
    let server = Server::new(&[REDIS]);
    for options in [
        json!([["variant", "sysbench policy=idle"], ["serve", "redis-server"], ["for", "1s"]]),
        json!([["variant", "sysbench nice=10"], ["scheduler", "linux-6.1"], ["from", "1s"]]),
    ] {
        let question = json!({"input": "f0", "tab": "a", "options": options, "seeds": [1, 2]});
        let heard = server.ask(&question);
        let (stages, answers) = (of(&heard, "stage"), of(&heard, "answer"));
        assert_eq!((stages.len(), answers.len()), (2, 2), "{heard:?}");
        assert!(!of(&heard, "progress").is_empty());
        assert_eq!(heard.last().unwrap().0, "end");
        for (stage, answer) in stages.iter().zip(answers) {
            fits("stage", &stage.to_string());
            fits("answer", &answer.to_string());
            let seeds = stage["seeds"].to_string();
            let mut words = vec!["compare", REDIS, "--json", "--seeds", &seeds];
            let flags: Vec<(String, &str)> = options
                .as_array()
                .unwrap()
                .iter()
                .map(|pair| (format!("--{}", pair[0].as_str().unwrap()), pair[1].as_str().unwrap()))
                .collect();
            flags.iter().for_each(|(flag, value)| words.extend([flag.as_str(), *value]));
            let ran = schedlab(&words);
            let compared: Value = serde_json::from_str(&ran.stdout).unwrap();
            assert!(compared == *answer, "{options}, {seeds} seeds: another answer than compare's");
        }
    }
    let stage = server.ask(&idle("a", &[1]));
    let command = of(&stage, "stage")[0]["command"].as_str().unwrap().to_owned();
    let said =
        format!("schedlab compare {REDIS} --variant 'sysbench policy=idle' --for 1s --seeds 1");
    assert_eq!(command, said);
}

/// A scheduler in BPF that the command named is offered and asked for; a page can name none itself,
/// nor an option of it, which may be a file.
#[test]
fn an_object_that_was_named_can_be_asked_for() {
    const FAIR: &str = "bpf:bpf/sim/fair.bpf.o";
    const KERNEL: &str = "bpf/sim/kernel.bpf.o";
    let server = Server::new(&["two-hogs", "--scheduler", FAIR, "--kernel-btf", KERNEL]);
    let settings = server.get("/api/1/inputs/g:two-hogs/settings").json();
    let schedulers = settings["schedulers"].as_array().unwrap();
    assert_eq!(schedulers.last().unwrap()["name"], FAIR);
    let question = |scheduler: &str| {
        let options = json!([["for", "2s"], ["scheduler", scheduler], ["rows", "asked"]]);
        json!({"input": "g:two-hogs", "options": options, "seeds": [1]})
    };
    let heard = server.ask(&question(FAIR));
    assert!(of(&heard, "failed").is_empty(), "{heard:?}");
    let command = of(&heard, "stage")[0]["command"].as_str().unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    assert!(command.ends_with(&format!("--kernel-btf {KERNEL} --seeds 1")), "{command}");
    let ran = schedlab(&[&words[1..], &["--json"]].concat());
    let compared: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(compared == *of(&heard, "answer")[0], "another answer than that of {command}");
    for other in ["bpf:bpf/sim/central.bpf.o", &format!("{FAIR}?profile=/etc/passwd")] {
        let said = server.post("/api/1/ask", question(other).to_string().as_bytes());
        assert_eq!(said.status, 422, "{other}: {said:?}");
        assert!(said.body.contains("start `schedlab ui` with it"), "{other}: {said:?}");
    }
    let ran = schedlab(&["ui", "--no-open", "--scheduler", FAIR]);
    assert!(ran.code == 2 && ran.stderr.contains("--kernel-btf FILE names"), "{}", ran.stderr);
}

/// What was prepared, and runs that are known from a question before, change no number.
#[test]
fn a_prepared_answer_is_that_of_compare() {
    let server = Server::new(&[REDIS]);
    let part = json!([["to", "1s"], ["serve", "redis-server"]]);
    let prepare = || server.stream("/api/1/prepare", &json!({"input": "f0", "options": part}));
    assert_eq!(
        prepare().iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["ready", "end"]
    );
    for variant in ["sysbench nice=10", "sysbench policy=idle"] {
        let mut options = part.as_array().unwrap().clone();
        options.insert(0, json!(["variant", variant]));
        let heard = server.ask(&json!({"input": "f0", "options": options, "seeds": [1, 3]}));
        for (answer, seeds) in of(&heard, "answer").iter().zip(["1", "3"]) {
            let words = ["compare", REDIS, "--json", "--variant", variant, "--to", "1s"];
            let ran =
                schedlab(&[&words[..], &["--serve", "redis-server", "--seeds", seeds]].concat());
            let compared: Value = serde_json::from_str(&ran.stdout).unwrap();
            assert!(compared == **answer, "{variant}, {seeds} seeds: another answer");
        }
    }
    // What cannot be read is said, and a view of another input is not disturbed.
    let wrong = json!({"input": "f0", "options": [["serve", "no-such"], ["to", "1s"]]});
    let heard = server.stream("/api/1/prepare", &wrong);
    assert!(of(&heard, "failed")[0]["error"].as_str().unwrap().contains("no-such"), "{heard:?}");
    assert_eq!(server.post("/api/1/prepare", b"{\"input\": \"f9\"}").status, 404);
}

#[test]
fn the_next_question_of_a_view_ends_the_one_before_and_no_other() {
    let server = Server::new(&[REDIS]);
    // Reads it once, so that runs begin at once.
    server.ask(&idle("first", &[1]));
    let long = idle("a", &[100]).to_string();
    let mut stream = server.connect();
    let lines = server.lines("POST", "/api/1/ask", long.len());
    stream.write_all(format!("{lines}Connection: close\r\n\r\n{long}").as_bytes()).unwrap();
    let mut heard = Vec::new();
    let mut some = [0; 4096];
    while !String::from_utf8_lossy(&heard).contains("event: progress") {
        let read = stream.read(&mut some).unwrap();
        assert!(read > 0, "it ended: {}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&some[..read]);
    }
    // Another view's question does not end it.
    assert_eq!(of(&server.ask(&idle("b", &[1])), "answer").len(), 1);
    assert_eq!(of(&server.ask(&idle("a", &[1])), "answer").len(), 1);
    stream.read_to_end(&mut heard).unwrap();
    let heard = events(&answered(&heard).body);
    assert!(of(&heard, "answer").is_empty());
    let failed = of(&heard, "failed");
    assert!(failed[0]["error"].as_str().unwrap().contains("stopped"), "{failed:?}");
    let last = of(&heard, "progress").last().unwrap()["done"].as_u64().unwrap();
    assert!(last < 150, "it went on: {last} runs of 200");
}

/// A reader that goes away ends its runs: their places are free again.
#[test]
fn a_reader_that_is_gone_ends_its_question() {
    let server = Server::new(&[REDIS]);
    server.ask(&idle("first", &[1]));
    for tab in 0..8 {
        let long = idle(&format!("gone {tab}"), &[100]).to_string();
        let mut stream = server.connect();
        let lines = server.lines("POST", "/api/1/ask", long.len());
        stream.write_all(format!("{lines}\r\n{long}").as_bytes()).unwrap();
        assert!(stream.read(&mut [0; 64]).unwrap() > 0);
    }
    let began = Instant::now();
    loop {
        let body = idle("new", &[1]).to_string();
        let answered = server.post("/api/1/ask", body.as_bytes());
        match answered.status {
            200 => break,
            status => {
                assert!(status == 429 && began.elapsed() < Duration::from_secs(60), "{answered:?}")
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_input_is_shown() {
    let server = Server::new(&[REDIS, "--serve", "redis-server"]);
    let inputs = server.get("/api/1/inputs");
    fits("inputs", &inputs.body);
    let inputs = inputs.json();
    assert_eq!((&inputs["first"], &inputs["serve"]), (&json!("f0"), &json!("redis-server")));
    assert!(inputs["gallery"].as_array().unwrap().len() > 20);
    let overview = server.get("/api/1/inputs/f0/overview?serve=redis-server");
    fits("overview", &overview.body);
    let overview = overview.json();
    assert!(overview["answer"].as_str().unwrap().starts_with("redis-server waited 1.47s"));
    let first = &overview["programs"][0];
    assert_eq!((&first["name"], &first["serves"]), (&json!("redis-server"), &json!(true)));
    assert_eq!(first["behind"][0][0], "sysbench");
    // A part of it has its own numbers.
    let part = server.get("/api/1/inputs/f0/overview?from=1s&to=2s").json();
    assert_eq!(part["part_ns"], json!([1_000_000_000_u64, 2_000_000_000_u64]));
    assert!(part["programs"][0]["waited_ns"].as_u64() < first["waited_ns"].as_u64());
    // The schema itself can be had, too.
    assert_eq!(server.get("/api/1/schema").json()["title"], "schedlab-workbench/1");
    let programs = server.get("/api/1/inputs/f0/programs?serve=redis-server");
    fits("programs", &programs.body);
    assert_eq!(overview["more_programs"], 0);
    assert_eq!(programs.json()["programs"], overview["programs"]);
    let settings = server.get("/api/1/inputs/f0/settings");
    fits("settings", &settings.body);
    let lanes = server.get("/api/1/inputs/f0/lanes").json();
    assert_eq!(lanes["runs"][0]["cpus"], 2, "the recorded machine");
    assert!(lanes["tasks"].as_array().unwrap().len() > 50);
    // A scenario is simulated, and has sources.
    let scenario = server.get("/api/1/inputs/g:redis-batch/overview");
    fits("scenario", &scenario.body);
    assert_eq!(scenario.json()["kind"], "scenario");
    assert!(!scenario.json()["sources"].as_array().unwrap().is_empty());
}

#[test]
fn a_dropped_file_is_opened_and_leaves_nothing() {
    let server = Server::new(&[]);
    let bytes = std::fs::read(root().join(REDIS)).unwrap();
    let dropped = server.post("/api/1/inputs?name=my%20redis.slt", &bytes);
    assert_eq!(dropped.json(), json!(["f0"]));
    let overview = server.get("/api/1/inputs/f0/overview").json();
    assert_eq!(overview["name"], "my redis.slt");
    let heard = server.ask(&idle("a", &[1]));
    assert_eq!(of(&heard, "answer")[0]["input"]["name"], "my redis.slt");
    // Its file has no name: nothing is left when the program is killed.
    let files = std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap();
    let links = files.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let deleted = links.filter(|link| link.display().to_string().ends_with("(deleted)")).count();
    assert_eq!(deleted, 1);
    // What is no recording is said with its own name.
    let other = server.post("/api/1/inputs?name=..%2f..%2fetc%2fx.slt", b"nothing");
    let failed =
        server.get(&format!("/api/1/inputs/{}/overview", other.json()[0].as_str().unwrap()));
    assert_eq!(failed.status, 422, "{failed:?}");
    assert!(failed.body.contains("x.slt: ") && !failed.body.contains("/proc/"), "{failed:?}");
}

#[test]
fn a_folder_is_a_list_with_the_worst_first() {
    let folder = Folder::new("ui-folder");
    for (from, to) in
        [("two-yes", "a"), ("redis-other-other-closed8", "b"), ("redis-other-idle-closed8", "c")]
    {
        let path = |folder: &std::path::Path, name: &str| folder.join(format!("{name}.slt"));
        std::fs::copy(path(&root().join("recordings"), from), path(&folder.0, to)).unwrap();
    }
    folder.write("notes.txt", "no recording\n");
    let server = Server::new(&[folder.0.to_str().unwrap()]);
    let began = Instant::now();
    let inputs = loop {
        let inputs = server.get("/api/1/inputs").json();
        if inputs["complete"] == json!(true) {
            break inputs;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{inputs}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let files = inputs["files"].as_array().unwrap();
    let waits: Vec<u64> =
        files.iter().map(|file| file["longest_wait_ns"].as_u64().unwrap()).collect();
    assert_eq!(waits.len(), 3, "{files:?}");
    assert!(waits.is_sorted_by(|a, b| a >= b), "{waits:?}");
    let redis = files.iter().find(|file| file["name"].as_str().unwrap().ends_with("b.slt"));
    assert!(redis.unwrap()["about"].as_str().unwrap().contains("redis-server waited"));
}

/// The page of an answer is that of `compare --report`.
#[test]
fn an_answer_is_saved_as_a_page() {
    let server = Server::new(&[REDIS]);
    let body = idle("a", &[1]).to_string();
    let page = server.post("/api/1/page", body.as_bytes());
    assert_eq!(page.status, 200, "{}", page.head);
    assert!(page.head.contains("attachment; filename=\"schedlab.html\""), "{}", page.head);
    assert!(page.body.contains("data-widget=\"lanes\"") && page.body.contains("schedlab compare"));
}
