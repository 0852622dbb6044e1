//! Names are data: threads, control groups, programs and files with control characters, markup and formulas in their names, in every
//! view.

use super::{Folder, Ran, ran, root, schedlab};
use schedlab_model::text::{is_hostile, shown};
use schedlab_model::{
    CpuId, EventKind, EventSink, Fact, FactKind, GroupId, GroupSpec, Ns, ObjectInfo, ObjectKind, PrevState,
    SchedEvent, TaskId, Transfer, Waker,
};
use schedlab_trace::{Capabilities, Capability, GroupInfo, Header, TaskInfo, Writer};
use std::process::{Command, Stdio};

const NAMES: [&str; 4] =
    ["\u{1b}[31mred\u{1b}]0;t\u{7}", "=1+1\r\n@x", "\u{202e}evil|<b>", "-\u{9b}2J\u{200b}"];

/// Nothing in `text` acts on a terminal.
#[track_caller]
pub(super) fn harmless(what: &str, text: &str) {
    let found = text.char_indices().find(|&(_, c)| is_hostile(c) && !matches!(c, '\n' | '\t'));
    if let Some((at, c)) = found {
        panic!("{what}: {c:?} in {:?}", text[at..].chars().take(40).collect::<String>());
    }
}

#[track_caller]
fn harmless_run(what: &str, ran: &Ran) {
    harmless(what, &ran.stdout);
    harmless(what, &ran.stderr);
}

/// No cell of a CSV table begins like a formula; a negative number is none.
#[track_caller]
pub(super) fn no_formulas(what: &str, csv: &str) {
    let cells = csv.lines().skip(1).flat_map(|line| line.split(','));
    let formula = |cell: &&str| {
        cell.starts_with(['=', '+', '@']) || cell.starts_with('-') && cell.parse::<f64>().is_err()
    };
    assert_eq!(cells.map(|cell| cell.trim_matches('"')).find(formula), None, "{what}");
}

/// A recording of 40 ms in which four tasks take turns; the names are written as they are.
fn recording(folder: &Folder) -> String {
    let group = |name: &str, parent| GroupInfo {
        spec: GroupSpec { name: name.to_owned(), parent, ..GroupSpec::default() },
    };
    let mut task = |index: usize| TaskInfo {
        known: true,
        group: GroupId(1),
        ..TaskInfo::unknown(10 + index as u32, 10 + index as u32, NAMES[index])
    };
    let mut capabilities = Capabilities::simulator();
    capabilities.0.insert(Capability::Messages.name().to_owned());
    let header = Header {
        kernel: "6.18.5".to_owned(),
        hz: 250,
        note: NAMES[0].to_owned(),
        command: vec![NAMES[3].to_owned()],
        capabilities,
        tasks: (0..NAMES.len()).map(&mut task).collect(),
        groups: vec![group("/", None), group(&format!("/{}", NAMES[2]), Some(GroupId(0)))],
        ..Header::default()
    };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    let mut on = None;
    for step in 0..40u64 {
        let next = TaskId((step % 4) as u32);
        let at = Ns::from_ms(step);
        let wake = EventKind::Wake { task: next, waker: on.map_or(Waker::Unknown, Waker::Task) };
        writer.event(&SchedEvent { at, cpu: CpuId(0), kind: wake });
        let kind = EventKind::Switch { prev: on, prev_state: PrevState::Sleeping, next: Some(next) };
        writer.event(&SchedEvent { at: at + Ns(9_000), cpu: CpuId(0), kind });
        on = Some(next);
    }
    let object = ObjectInfo { to: NAMES[1].to_owned(), ..ObjectInfo::of(ObjectKind::Unix) };
    let object = writer.add_object(ObjectInfo { from: NAMES[0].to_owned(), ..object });
    for (ms, task) in [(1, 0), (2, 1)] {
        let moved = Transfer::of(object, 5);
        let kind = if task == 0 { FactKind::Send(moved) } else { FactKind::Receive(moved) };
        writer.fact(&Fact { at: Ns::from_ms(ms), cpu: CpuId(0), task: Some(TaskId(task)), kind });
    }
    let bytes = writer.finish(Ns::from_ms(40)).unwrap();
    folder.write("\u{1b}[2Jname.slt", bytes)
}

#[test]
fn every_view_of_a_recording_escapes_names() {
    let folder = Folder::new("hostile");
    let file = recording(&folder);
    let out = |name: &str| folder.0.join(name).display().to_string();
    let own = shown(NAMES[0]).into_owned();
    let (page, other, tables) = (out("page.html"), out("diff.html"), out("tables"));
    let (ftrace, perf) = (out("ftrace"), out("perf"));
    let all: Vec<String> =
        schedlab_trace::analysis::show::ALL.iter().map(|entry| entry.name.to_owned()).collect();
    for name in &all {
        let takes = schedlab_trace::analysis::show::ALL
            .iter()
            .any(|entry| entry.name == name && entry.takes.is_some());
        let option = if takes { format!("--{name}=3") } else { format!("--{name}") };
        for format in ["table", "json", "markdown", "csv", "ndjson"] {
            let ran = schedlab(&["show", &file, &option, "--format", format]);
            harmless_run(&format!("{option} as {format}"), &ran);
            if format == "csv" {
                no_formulas(&option, &ran.stdout);
            }
        }
    }
    let overview = schedlab(&["show", &file]);
    harmless_run("show", &overview);
    assert!(overview.stdout.contains(&own), "the name is there, escaped: {overview:?}");
    for command in [
        vec!["compare", &file, "--seeds", "1"],
        vec!["compare", &file, "--seeds", "1", "--json"],
        vec!["compare", &file, "--seeds", "1", "--report", &page, "--variant", "\u{1b}[1mx: 10 nice=5"],
        vec!["diff", &file, &file],
        vec!["compare", &file, "--seeds", "1", "--format", "csv"],
        vec!["compare", &file, "--seeds", "1", "--format", "markdown"],
        vec!["diff", &file, &file, "--all", "--format", "csv"],
        vec!["diff", &file, &file, "--all", "--format", "markdown"],
        vec!["diff", &file, &file, "--format", "ndjson"],
        vec!["diff", &file, &file, "--report", &other],
        vec!["export", &file, "--csv", &tables, "--ftrace", &ftrace, "--perf-script", &perf],
        // Messages.
        vec!["compare", &file, "--variant", "x: nobody nice=5"],
        vec!["compare", "\u{1b}[31mnone"],
        vec!["show", &file, "--task", "\u{1b}[31m"],
        vec!["import", "\u{1b}none", "-o", &perf],
        vec!["\u{1b}[31m"],
    ] {
        harmless_run(&format!("{command:?}"), &schedlab(&command));
    }
    for file in [&page, &other, &ftrace, &perf] {
        harmless(file, &std::fs::read_to_string(file).unwrap_or_default());
    }
    assert!(std::fs::read_to_string(&page).unwrap().len() > 10_000, "a page was written");
    for table in ["events.csv", "tasks.csv", "waits.csv"] {
        let text = std::fs::read_to_string(folder.0.join("tables").join(table)).unwrap();
        harmless(table, &text);
        no_formulas(table, &text);
    }
}

#[test]
fn a_scenario_with_control_characters_is_refused() {
    let folder = Folder::new("hostile-scenario");
    let text = "schedulers = [\"linux-6.18\"]\nduration = \"100ms\"\n[machine]\ncpus = 1\n[[task]]\nname = \
                \"a\\u001b[31m\"\nprogram = \"hog\"\n";
    let path = folder.write("s.toml", text);
    let ran = schedlab(&["compare", &path]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains(r"`name` has a control character: a\x1b[31m"), "{ran:?}");
    harmless_run("scenario", &ran);
}

/// A living thread with such a name, in a recording, in `watch` and in `top`.
#[test]
#[allow(clippy::print_stderr)]
fn living_threads_are_escaped() {
    let folder = Folder::new("hostile-live");
    let program = folder.0.join("\u{1b}[31mlive\u{7}");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let script = "i=0; while [ $i -lt 30 ]; do \"$0\" 0.05; i=$((i+1)); done";
    let out = folder.0.join("x.slt").display().to_string();
    let mut record = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    record.args(["record", "--no-calibration", "-o", &out, "--", "sh", "-c", script]).arg(&program);
    let made = ran(record.current_dir(root()).stdin(Stdio::null()));
    harmless_run("record", &made);
    if made.code == 2 {
        assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "recording must work here: {made:?}");
        eprintln!("SKIPPED living_threads_are_escaped: nothing can be recorded here");
        return;
    }
    let show = schedlab(&["show", &out, "--tasks"]);
    harmless_run("show", &show);
    assert!(show.stdout.contains(r"\x1b[31mlive\x07"), "{show:?}");
    let mut child = Command::new("sh").args(["-c", script]).arg(&program).spawn().unwrap();
    for command in [&["watch", "--json", "--for", "1s"][..], &["top", "--json", "--for", "1s"], &["status"]] {
        harmless_run(command[0], &schedlab(command));
    }
    let _ = child.kill();
    let _ = child.wait();
}
