//! `--serve`, and the part of a recording that is simulated: as a user meets them.

use super::{Folder, schedlab};

const REDIS: &str = "recordings/redis-other-other-closed8.slt";

/// A server that two programs ask again and again, and a task without end that waits most.
fn shop(folder: &Folder) -> String {
    let mut text = String::new();
    let mut at = 100_000_000;
    let mut line = |what: String| {
        at += 20;
        let (seconds, us) = (at / 1_000_000, at % 1_000_000);
        text += &what.replace("TIME", &format!("[000] {seconds}.{us:06}:"));
        text.push('\n');
    };
    let switch = |prev: (&str, u32, &str), next: (&str, u32)| {
        format!(
            " {0} {1}/{1} TIME sched:sched_switch: prev_comm={0} prev_pid={1} prev_prio=120 \
             prev_state={2} ==> next_comm={3} next_pid={4} next_prio=120",
            prev.0, prev.1, prev.2, next.0, next.1
        )
    };
    let waking = |by: (&str, u32), task: (&str, u32)| {
        format!(
            " {0} {1}/{1} TIME sched:sched_waking: comm={2} pid={3} prio=120 target_cpu=000",
            by.0, by.1, task.0, task.1
        )
    };
    line(switch(("hog", 9, "R"), ("shop", 2)));
    for _ in 0..120 {
        for (client, tid, next, next_tid) in [("shop", 2, "report", 3), ("report", 3, "shop", 2)] {
            line(waking((client, tid), ("db", 1)));
            line(switch((client, tid, "S"), ("db", 1)));
            line(waking(("db", 1), (client, tid)));
            line(waking(("db", 1), (next, next_tid)));
            line(switch(("db", 1, "S"), (next, next_tid)));
        }
    }
    line(switch(("shop", 2, "S"), ("hog", 9)));
    let text = folder.write("perf.txt", &text);
    let file = folder.0.join("shop.slt").display().to_string();
    let ran = schedlab(&["import", "--current-is-waker", &text, "-o", &file]);
    assert_eq!(ran.code, 0, "{ran:?}");
    file
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let ran = schedlab(arguments);
    assert!([0, 3].contains(&ran.code), "{ran:?}");
    serde_json::from_str(&ran.stdout).expect("JSON")
}

fn rows(value: &serde_json::Value, table: &str) -> Vec<String> {
    let rows = value["analyses"][0]["tables"][table].as_array().expect("rows");
    rows.iter().map(|row| row["task"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn show_begins_with_the_server_that_is_named() {
    let folder = Folder::new("serve-show");
    let file = shop(&folder);
    let ran = schedlab(&["show", &file, "--serve", "report"]);
    assert!(ran.stdout.starts_with("report waited "), "{}", ran.stdout);
    assert!(!ran.stdout.contains("guessed"), "{}", ran.stdout);
    let named = json(&["show", &file, "--latency", "--serve", "report", "--json"]);
    assert_eq!(named["serve"]["programs"], serde_json::json!(["report"]));
    assert!(named["serve"]["guessed"].is_null());
    assert_eq!(rows(&named, "tasks")[0], "report");
    // The longest waits are those of the server, though others waited longer.
    let worst = json(&["show", &file, "--worst", "2", "--serve", "3", "--json"]);
    for rank in 0..2 {
        assert_eq!(worst["analyses"][0]["tables"]["worst"][rank]["task"]["name"], "report");
    }
    for (arguments, words) in [
        (["--latency", "--serve", "reports"], "did you mean `report`?"),
        (["--timehist", "--serve", "report"], "in the order of time or of CPUs"),
    ] {
        let ran = schedlab(&[&["show", &file][..], &arguments].concat());
        assert!(ran.code == 2 && ran.stderr.contains(words), "{ran:?}");
    }
}

#[test]
fn a_guess_is_said_and_only_orders_rows() {
    let folder = Folder::new("serve-guess");
    let file = shop(&folder);
    let ran = schedlab(&["show", &file, "--latency"]);
    let serve = "serve: db (guessed: most others wait for it; name another by --serve)";
    assert!(ran.stdout.starts_with("db waited ") && ran.stdout.contains(serve), "{}", ran.stdout);
    let guessed = json(&["show", &file, "--latency", "--json"]);
    assert_eq!(guessed["serve"]["guessed"], "most others wait for it");
    let other = json(&["show", &file, "--latency", "--serve", "hog", "--json"]);
    let (mut one, mut two) = (rows(&guessed, "tasks"), rows(&other, "tasks"));
    assert_eq!((one[0].as_str(), two[0].as_str()), ("db", "hog"));
    one.sort();
    two.sort();
    assert_eq!(one, two, "no row is hidden");
    // Rows without a word beside them stay as they are, and so does what was asked for otherwise.
    let csv = schedlab(&["show", &file, "--latency", "--format", "csv"]).stdout;
    assert!(csv.lines().nth(1).is_some_and(|row| !row.starts_with("db")), "{csv}");
    let some = json(&["show", &file, "--latency", "--task", "report", "--json"]);
    assert!(some["serve"].is_null());
    // Two programs wait for each other: neither is guessed.
    assert!(json(&["show", REDIS, "--latency", "--json"])["serve"].is_null());

    // A page says it, too.
    let page = folder.0.join("page.html").display().to_string();
    let said = |arguments: &[&str]| {
        let ran = schedlab(&[arguments, &["--report", &page][..]].concat());
        assert!([0, 3].contains(&ran.code), "{ran:?}");
        std::fs::read_to_string(&page).expect("it was written").contains(serve)
    };
    assert!(said(&["show", &file]));
    assert!(!said(&["show", &file, "--serve", "db"]));

    let compare = ["compare", &file, "--recorded-under", "linux-6.18", "--seeds", "1"];
    assert!(said(&compare));
    let study = json(&[&compare[..], &["--json"]].concat());
    assert_eq!(study["guess"]["name"], "db");
    assert!(study["served"].is_null());
    let text = schedlab(&compare).stdout;
    assert!(text.contains(serve), "{text}");
    let first = |text: &str| {
        text.lines().skip_while(|line| !line.contains("latency p50")).nth(1).map(str::to_owned)
    };
    assert!(first(&text).is_some_and(|row| row.trim_start().starts_with("db ")), "{text}");
    let named = json(&[&compare[..], &["--serve", "db", "--json"]].concat());
    assert!(named["guess"].is_null() && named["served"]["classes"][0] == "db", "{named}");
}

#[test]
fn a_part_of_a_recording_is_simulated() {
    let compare = ["compare", REDIS, "--seeds", "1", "--json"];
    let with = |more: &[&str]| json(&[&compare[..], more].concat());
    let part = with(&["--from", "500ms", "--to", "1s"]);
    assert_eq!(part["input"]["window_ns"], serde_json::json!([500_000_000, 1_000_000_000]));
    assert_eq!(part["duration_ns"], 500_000_000);
    let same = with(&["--from", "500ms", "--for", "500ms"]);
    assert_eq!(part["rows"], same["rows"]);
    let around = with(&["--around", "750ms", "--for", "500ms"]);
    assert_eq!(part["rows"], around["rows"]);
    let whole = with(&["--for", "500ms"]);
    assert_eq!(whole["input"]["window_ns"], serde_json::json!([0, 500_000_000]));

    // The longest wait of the server is in the middle.
    let worst = json(&["show", REDIS, "--worst", "1", "--serve", "redis-server", "--json"]);
    let wait = &worst["analyses"][0]["tables"]["worst"][0];
    let (from, to) = (wait["from_ns"].as_u64().unwrap(), wait["to_ns"].as_u64().unwrap());
    let around = with(&["--around", "worst", "--serve", "redis-server", "--for", "400ms"]);
    let window = around["input"]["window_ns"].as_array().expect("a part");
    let [begin, end] = [0, 1].map(|end| window[end].as_u64().unwrap());
    assert!(begin <= from && to <= end && end - begin == 400_000_000, "{window:?}: {from}..{to}");

    let text =
        schedlab(&["compare", REDIS, "--seeds", "1", "--from", "500ms", "--to", "1s"]).stdout;
    assert!(text.contains("500ms each (the recording from 500ms to 1"), "{text}");
    let tune = [
        "tune",
        REDIS,
        "--goal",
        "redis-server share",
        "--space",
        "sysbench nice=0,19",
        "--seeds",
        "1",
        "--from",
        "500ms",
        "--to",
        "1s",
        "--json",
    ];
    let tuned = json(&tune);
    assert_eq!(tuned["input"]["window_ns"], part["input"]["window_ns"], "{tuned}");
}

#[test]
fn a_part_that_is_not_there_is_refused() {
    for (arguments, words) in [
        (&["--from", "99s"][..], "--from 99"),
        (&["--from", "1s", "--to", "99s"], "--to 99"),
        (&["--from", "1s", "--to", "500ms"], "must be later than --from 1"),
        (&["--around", "99s"], "--around 99"),
        (&["--around", "worst:99999"], "waits for a CPU"),
        (&["--around", "best"], "worst (the longest one), worst:3"),
        (&["--around", "1s", "--from", "1s"], "--around excludes --from and --to"),
        (&["--to", "1s", "--for", "1s"], "excludes --for"),
        (&["--from", "1s", "--to", "1.000000001s"], "nothing happened in this part"),
    ] {
        let ran = schedlab(&[&["compare", REDIS][..], arguments].concat());
        assert!(ran.code == 2 && ran.stderr.contains(words), "{arguments:?}: {ran:?}");
    }
    for command in [
        &["compare", "two-hogs", "--from", "1s"][..],
        &["tune", "two-hogs", "--goal", "hog share", "--space", "hog nice=0,1", "--from", "1s"],
    ] {
        let ran = schedlab(command);
        assert!(ran.code == 2 && ran.stderr.contains("only for recordings"), "{ran:?}");
    }
}

#[test]
fn explain_names_the_constants_of_an_interval() {
    let ran = schedlab(&["compare", REDIS, "--seeds", "1", "--explain"]);
    let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in
        ["REACTION_OF_LOOPS = 0.5: of a", "fitted to the pairs", "DRIFT_OF_LOOPS = 2: a perc"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let scenario = schedlab(&["compare", "two-hogs", "--explain"]).stdout;
    assert!(!scenario.contains("RATE_OF_WAITS"), "no interval was made with it: {scenario}");
}

#[test]
fn confirm_refuses_a_server_before_its_rounds() {
    let variant = ["--variant", "nice: sysbench nice=1", "--serve", "redis-sever"];
    let ran = schedlab(&[&["confirm", REDIS][..], &variant, &["--", "sleep", "9"]].concat());
    assert!(ran.code == 2 && ran.stderr.contains("did you mean `redis-server`?"), "{ran:?}");
}

#[test]
fn watch_takes_one_way_to_choose_tasks() {
    let ran = schedlab(&["watch", "--json", "--serve", "redis-server", "--pid", "1"]);
    assert!(ran.code == 2 && ran.stderr.contains("cannot be used with"), "{ran:?}");
}
