//! Names are data: threads, control groups, programs and files with control characters, markup and
//! formulas in their names, in every view.

use super::{Folder, Ran, ran, root, schedlab};
use schedlab_model::text::{is_hostile, shown};
use schedlab_model::{
    CpuId, EventKind, EventSink, Fact, FactKind, GroupId, GroupSpec, Ns, ObjectInfo, ObjectKind,
    PrevState, SchedEvent, TaskId, Transfer, Waker,
};
use schedlab_trace::{Capabilities, Capability, GroupInfo, Header, TaskInfo, Writer};
use std::process::{Command, Stdio};

const NAMES: [&str; 12] = [
    "\u{1b}[31mred\u{1b}]0;t\u{7}",
    "=1+1\r\n@x",
    "\u{202e}evil|<b>",
    "-\u{9b}2J\u{200b}",
    "x\nFORGED 100 %",
    "y\tz\tFORGED",
    "-u0",
    "$(touch PWN)",
    "`touch PWN`;touch PWN",
    "'\"\\'||touch PWN #",
    "</script><script>alert(1)</script>",
    "{{7*7}}&lt;\u{2028}FORGED",
];

/// Nothing in `text` acts on a terminal, and no name has begun a line.
#[track_caller]
pub(super) fn harmless(what: &str, text: &str) {
    assert!(
        !text.lines().any(|line| line.trim_start().starts_with("FORGED")),
        "{what}: a forged line in {text}"
    );
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

/// A recording of 40 ms in which tasks of such names take turns; the names are written as they are.
fn recording(folder: &Folder) -> String {
    let group = |name: &str, parent| GroupInfo {
        spec: GroupSpec { name: name.to_owned(), parent, ..GroupSpec::default() },
        ..GroupInfo::default()
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
        let next = TaskId((step % NAMES.len() as u64) as u32);
        let at = Ns::from_ms(step);
        let wake = EventKind::Wake { task: next, waker: on.map_or(Waker::Unknown, Waker::Task) };
        writer.event(&SchedEvent { at, cpu: CpuId(0), kind: wake });
        let kind =
            EventKind::Switch { prev: on, prev_state: PrevState::Sleeping, next: Some(next) };
        writer.event(&SchedEvent { at: at + Ns(9_000), cpu: CpuId(0), kind });
        on = Some(next);
    }
    let object = ObjectInfo { to: NAMES[1].to_owned(), ..ObjectInfo::of_kind(ObjectKind::Unix) };
    let object = writer.add_object(ObjectInfo { from: NAMES[0].to_owned(), ..object });
    for (ms, task) in [(1, 0), (2, 1)] {
        let moved = Transfer::done(object, 5);
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
        vec![
            "compare",
            &file,
            "--seeds",
            "1",
            "--report",
            &page,
            "--variant",
            "\u{1b}[1mx: 10 nice=5",
        ],
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
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.len() > 10_000, "a page was written");
    assert!(!text.contains("<script>alert(1)"), "a name is markup");
    for table in ["events.csv", "tasks.csv", "waits.csv"] {
        let text = std::fs::read_to_string(folder.0.join("tables").join(table)).unwrap();
        harmless(table, &text);
        no_formulas(table, &text);
    }
}

#[test]
fn a_scenario_with_control_characters_is_refused() {
    let folder = Folder::new("hostile-scenario");
    let text = "schedulers = [\"linux-6.18\"]\nduration = \"100ms\"\n[machine]\ncpus = 1\n\
                [[task]]\nname = \
                \"a\\u001b[31m\"\nprogram = \"hog\"\n";
    let path = folder.write("s.toml", text);
    let ran = schedlab(&["compare", &path]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains(r"`name` has a control character: a\x1b[31m"), "{ran:?}");
    harmless_run("scenario", &ran);
}

/// Every form into which a recording is exported.
#[test]
fn every_export_escapes_names() {
    let folder = Folder::new("hostile-exports");
    let file = recording(&folder);
    let out = |name: &str| folder.0.join(name).display().to_string();
    for form in ["ftrace", "trace-cmd", "systrace", "lttng", "perf-script", "rt-app"] {
        let to = out(form);
        let ran = schedlab(&["export", &file, &format!("--{form}"), &to]);
        harmless_run(form, &ran);
        // What has a name at all is one line of it.
        let text = std::fs::read_to_string(&to).unwrap_or_default();
        assert!(ran.code == 2 || !text.is_empty(), "{form}: {ran:?}");
        harmless(form, &text);
    }
}

/// What is printed to be pasted, of each name in each form: a shell reads it as it is meant, or
/// there is none.
#[test]
fn deploy_lines_of_every_name_are_safe() {
    let folder = Folder::new("hostile-deploy");
    let file = recording(&folder);
    let bin = folder.0.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    for name in NAMES {
        let own = shown(name).into_owned();
        let variant = format!("v: \"{own}\" nice=19");
        for form in ["shell", "systemd", "kubernetes", "xl"] {
            let arguments =
                ["compare", &file, "--seeds", "1", "--variant", &variant, "--deploy", form];
            let ran = schedlab(&arguments);
            harmless_run(&format!("{own:?} {form}"), &ran);
            assert!(matches!(ran.code, 0 | 2 | 3), "{own:?} {form}: {ran:?}");
            if form == "shell" {
                // Without any tool in its path the shell can do nothing but parse and expand.
                let mut shell = Command::new("/bin/sh");
                shell
                    .args(["-c", &ran.stdout])
                    .env_clear()
                    .env("PATH", &bin)
                    .current_dir(&folder.0);
                let said = shell.stdin(Stdio::null()).output().unwrap();
                assert!(
                    !String::from_utf8_lossy(&said.stderr).contains("touch"),
                    "{own:?}: {said:?}"
                );
            }
        }
    }
    assert!(!folder.0.join("PWN").exists());
}

/// Names in results, logs and workloads that other programs wrote.
#[test]
fn names_in_foreign_files_are_escaped() {
    let folder = Folder::new("hostile-files");
    let hostile = r"\u001b[31mx\nFORGED\u202e";
    let result = schedlab(&["compare", "two-hogs", "--json", "--seeds", "1"]);
    assert!(result.stdout.contains("yes-1"), "{result:?}");
    let result = folder
        .write("a.json", result.stdout.replace("yes-1", hostile).replace("linux-6.18", hostile));
    for format in ["table", "json", "markdown", "csv", "ndjson"] {
        harmless_run(format, &schedlab(&["diff", &result, &result, "--all", "--format", format]));
    }
    let workload = format!(
        "{{\"tasks\": {{\"{hostile}\": {{\"loop\": 5, \"run\": 1000, \"sleep\": 1000}}}}, \"global\": {{\"duration\": 1}}}}"
    );
    let workload = folder.write("w.json", workload);
    harmless_run("rt-app", &schedlab(&["compare", &workload]));
    harmless_run("rt-app", &schedlab(&["show", &workload, "--tasks"]));
    let raw =
        hostile.replace(r"\u001b", "\u{1b}").replace(r"\n", "\n").replace(r"\u202e", "\u{202e}");
    for (name, text) in [
        ("log.calls", format!("schedlab-calls/1 {raw}\n{raw}\n")),
        ("latency.json", format!("{{\"schema\": \"{hostile}\"}}")),
        (
            "cyclic.json",
            format!("{{\"rt_test_version:\": \"{hostile}\", \"thread\": {{\"{hostile}\": {{}}}}}}"),
        ),
        ("costs.toml", format!("{raw} = 1\n")),
        ("x.ftrace", format!("{raw}-1 [000] 1.0: sched_switch: {raw}\n")),
    ] {
        let file = folder.write(name, text);
        let merged = [file.as_str(), file.as_str()];
        harmless_run(name, &schedlab(&["verify", &file]));
        harmless_run(name, &schedlab(&[&["latency", "merge"][..], &merged].concat()));
        harmless_run(
            name,
            &schedlab(&["import", &file, "-o", &folder.0.join("o.slt").display().to_string()]),
        );
        harmless_run(name, &schedlab(&["show", &file]));
        harmless_run(name, &schedlab(&["diff", &file, &file]));
    }
}

/// A file's name that is no UTF-8 is shown, or refused.
#[test]
fn a_name_that_is_no_text_is_refused_or_shown() {
    use std::os::unix::ffi::OsStrExt;
    let bytes = std::ffi::OsStr::from_bytes(b"/tmp/\xff\x1b[31m\nFORGED.slt");
    for command in [
        &["show"][..],
        &["compare"],
        &["import"],
        &["verify"],
        &["record", "--all", "--for", "1ms", "-o"],
    ] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_schedlab"));
        let done = ran(run.args(command).arg(bytes).current_dir(root()).stdin(Stdio::null()));
        harmless_run(&format!("{command:?}"), &done);
        let _ = std::fs::remove_file(bytes);
    }
}

/// A message about a long input is short: it quotes the beginning.
#[test]
fn messages_about_long_inputs_are_short() {
    let folder = Folder::new("long");
    let long = "x".repeat(70_000);
    let scenario = |name: &str, rest: &str| {
        let text = format!(
            "schedulers = [\"linux-6.18\"]\nduration = \"100ms\"\n[machine]\ncpus = 1\n[[task]]\n\
             name = \"{name}\"\nprogram = \
             \"hog\"\n{rest}"
        );
        folder.write("s.toml", text)
    };
    let too_long = |what: &str, ran: &Ran| {
        assert_eq!(ran.code, 2, "{what}: {}", ran.stderr.chars().take(300).collect::<String>());
        assert!(
            ran.stderr.chars().count() < 3_000,
            "{what}: {} characters",
            ran.stderr.chars().count()
        );
    };
    for (what, name, rest) in [
        ("control", format!("{long}\\u0007"), String::new()),
        ("key", "a".to_owned(), format!("{long} = 1\n")),
        ("value", "a".to_owned(), format!("nice = \"{long}\"\n")),
        ("group", "a".to_owned(), format!("group = \"/{long}\"\n")),
        ("not TOML", "a".to_owned(), format!("[[{long} {long}\n")),
    ] {
        too_long(what, &schedlab(&["compare", &scenario(&name, &rest)]));
    }
    let words = "x y ".repeat(20_000);
    for text in [&long, &words] {
        too_long(
            "variant",
            &schedlab(&["compare", "two-hogs", "--variant", &format!("a: {text} nice=5")]),
        );
        too_long("scheduler", &schedlab(&["compare", "two-hogs", "--scheduler", text]));
        too_long("gate", &schedlab(&["compare", "two-hogs", "--fail-if", text]));
        too_long("input", &schedlab(&["compare", text]));
        too_long("command", &schedlab(&[text.as_str()]));
        let file = folder.write("long.txt", text);
        for command in [&["verify"][..], &["latency", "merge"], &["show"], &["compare"]] {
            too_long(command[0], &schedlab(&[command, &[file.as_str()]].concat()));
        }
        too_long(
            "costs",
            &schedlab(&[
                "compare",
                &scenario("a", &format!("[delegation]\ncosts = \"{}\"\n", text.trim())),
            ]),
        );
    }
}

/// A path that a file names is read like any other input: no device, no pipe, no end that never
/// comes.
#[test]
fn a_path_that_a_file_names_is_a_small_regular_file() {
    let folder = Folder::new("paths");
    let pipe = folder.0.join("pipe").display().to_string();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let large = folder.write("large.toml", vec![b'#'; (1 << 20) + 1]);
    for (path, why) in [
        ("/dev/zero", "it is a device, and only a regular file is read"),
        (&pipe, "it is a pipe, and only a regular file is read"),
        (&large, "more than the 1048576 bytes that are read"),
    ] {
        let text = format!(
            "schedulers = [\"rr\"]\nduration = \"1s\"\n[machine]\ncpus = 1\n[[task]]\n\
             name = \"a\"\nprogram = \
             \"hog\"\n[delegation]\ncosts = \"{path}\"\n"
        );
        let ran = schedlab(&["compare", &folder.write("s.toml", text)]);
        assert!(ran.code == 2 && ran.stderr.contains(why), "{path}: {ran:?}");
    }
    for path in ["/dev/zero", &pipe] {
        for command in [&["verify"][..], &["latency", "merge"]] {
            let ran = schedlab(&[command, &[path]].concat());
            assert!(
                ran.code == 2 && ran.stderr.contains("only a regular file is read"),
                "{command:?}: {ran:?}"
            );
        }
    }
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
        assert!(
            std::env::var("CI").map_or(true, |ci| ci != "true"),
            "recording must work here: {made:?}"
        );
        eprintln!("SKIPPED living_threads_are_escaped: nothing can be recorded here");
        return;
    }
    let show = schedlab(&["show", &out, "--tasks"]);
    harmless_run("show", &show);
    assert!(show.stdout.contains(r"\x1b[31mlive\x07"), "{show:?}");
    let mut child = Command::new("sh").args(["-c", script]).arg(&program).spawn().unwrap();
    for command in
        [&["watch", "--json", "--for", "1s"][..], &["top", "--json", "--for", "1s"], &["status"]]
    {
        harmless_run(command[0], &schedlab(command));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Commands whose output is looked at with such names, in the tests of this file.
const LOOKED_AT: [&str; 24] = [
    "bpf",
    "ci",
    "flight",
    "record",
    "show",
    "watch",
    "diff",
    "import",
    "export",
    "compare",
    "tune",
    "published",
    "latency",
    "verify",
    "run",
    "attach",
    "top",
    "status",
    "detach",
    "restore",
    "explain",
    "completions",
    "list",
    "doctor",
];

/// Commands whose output is not, with the reason.
const NOT_LOOKED_AT: [(&str, &str); 9] = [
    ("generate", "it reads nothing, and invents its names"),
    ("bench", "it reads nothing; its tasks are its own"),
    ("stress", "it reads nothing; its threads are its own"),
    ("calibrate", "it reads nothing; its threads are its own"),
    ("experiment", "it starts programs that it names itself, and takes minutes"),
    ("man", "it prints the help that is compiled in"),
    ("ui", "prints its own address; names on its page are looked at in `ui/browser.rs`"),
    (
        "colocate",
        "takes minutes; names come from the same journal and thread lists as those of `attach` \
         and `status`",
    ),
    ("confirm", "takes minutes; names come from the recordings that `compare` and `record` show"),
];

/// A command that is added must be looked at here, or have a reason.
#[test]
fn every_command_is_looked_at_or_has_a_reason() {
    let help = schedlab(&["--help"]).stdout;
    // Groups of commands, a line each, and the names of the others in one line.
    let commands = help.split_once("Usage:").unwrap().1.split_once("\nOptions:").unwrap().0;
    let name = |line: &str| {
        line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')).map(str::to_owned)
    };
    let others = commands.lines().find_map(|line| line.strip_prefix("Others: ")).unwrap();
    let others = others.split(" (").next().unwrap_or_default().split(", ").map(str::to_owned);
    let names = commands.lines().filter_map(name);
    let mut found: Vec<String> = names
        .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
        .chain(others)
        .collect();
    let mut listed: Vec<&str> = LOOKED_AT.to_vec();
    listed.extend(NOT_LOOKED_AT.iter().map(|(name, _)| *name));
    found.sort();
    listed.sort_unstable();
    assert_eq!(found, listed);
}

/// Commands that have a name on their command line, or read one from a file, and are in no other
/// test of this file.
#[test]
fn the_other_commands_escape_names() {
    let folder = Folder::new("hostile-others");
    let file = recording(&folder);
    let name = shown(NAMES[0]).into_owned();
    let scenarios = folder.0.join("\u{1b}[31mscenarios");
    std::fs::create_dir_all(&scenarios).unwrap();
    std::fs::write(scenarios.join("\u{1b}[31mx\nFORGED.toml"), "[[\u{1b}[31m\nFORGED").unwrap();
    let rules = folder.0.join("\u{1b}[31mrules\nFORGED.toml");
    let rule = "folder = \"\\u001b[31mx\\nFORGED\"\n[[rule]]\nname = \"x\"\n\
                when = \"'\\u001b[31mFORGED' wait > 1ms\"\nrun = [\"\\u001b[31mFORGED\"]\n";
    std::fs::write(&rules, rule).unwrap();
    // An object whose option has such a name.
    let fair = std::fs::read(root().join("bpf/sim/fair.bpf.o")).unwrap();
    let parts: Vec<&[u8]> = fair.split(|byte| *byte == 0).collect();
    let forged =
        |part: &&[u8]| if *part == b"slice_ns" { b"\x1b[31mabc".to_vec() } else { part.to_vec() };
    let forged: Vec<Vec<u8>> = parts.iter().map(forged).collect();
    let object = folder.0.join("forged.bpf.o");
    std::fs::write(&object, forged.join(&0)).unwrap();
    let (object, named) = (object.display().to_string(), format!("bpf:{}", NAMES[4]));
    let (goal, space) = (format!("\"{name}\" share"), format!("\"{name}\" nice=0,5"));
    for command in [
        vec!["tune", &file, "--goal", &goal, "--space", &space, "--seeds", "1", "--trials", "2"],
        vec!["tune", &file, "--goal", NAMES[4], "--space", NAMES[5]],
        vec!["published", scenarios.to_str().unwrap()],
        vec!["published", NAMES[0]],
        vec!["ci", "run", scenarios.to_str().unwrap(), "--scheduler", "linux-6.1"]
            .into_iter()
            .chain(["--against", "linux-6.12", "--fail-if", NAMES[4]])
            .collect(),
        vec!["ci", "run", scenarios.to_str().unwrap(), "--scheduler", "linux-6.1"]
            .into_iter()
            .chain(["--against", "linux-6.12", "--fail-if", "x share < 1%"])
            .collect(),
        vec!["flight", "--check", rules.to_str().unwrap()],
        vec!["flight", NAMES[4]],
        vec!["explain", NAMES[4]],
        vec!["list", NAMES[4]],
        vec!["completions", NAMES[4]],
        vec!["doctor", NAMES[4]],
        vec!["latency", "--cpus", NAMES[4]],
        vec!["bpf", "inspect", NAMES[4]],
        vec!["bpf", "inspect", &object],
        vec!["compare", "two-hogs", "--scheduler", "bpf:x", "--kernel-btf", NAMES[4]],
        vec!["compare", "two-hogs", "--scheduler", &named, "--kernel-btf", "bpf/sim/kernel.bpf.o"],
    ] {
        harmless_run(&format!("{command:?}"), &schedlab(&command));
    }
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    doctor
        .arg("doctor")
        .env("SCHEDLAB_RUN_DIR", &scenarios)
        .current_dir(root())
        .stdin(Stdio::null());
    harmless_run("doctor", &ran(&mut doctor));
}

/// A managed thread with such a name, in what live commands print.
#[test]
fn managed_threads_are_escaped() {
    let Some(_turn) = super::live::turn("managed_threads_are_escaped") else { return };
    let folder = Folder::new("hostile-managed");
    let program = folder.0.join("\u{1b}[31mm\nFORGED\u{7}");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let mut child = Command::new(&program).arg("600").spawn().unwrap();
    let pid = child.id().to_string();
    let live = |arguments: &[&str]| super::live::command(&folder, arguments);
    let mut attached = live(&["attach", "--scheduler", "rr", "--pid", &pid, "--for", "30s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let is_managed = || ran(&mut live(&["status", "--json"])).stdout.contains(&pid);
    let begun = std::time::Instant::now();
    while !is_managed() && begun.elapsed().as_secs() < 60 && attached.try_wait().unwrap().is_none()
    {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["top", "--json", "--for", "1s"],
        &["attach", "--scheduler", "rr", "--pid", &pid, "--for", "1s"],
        &["restore"],
        &["detach"],
        &["restore"],
    ] {
        harmless_run(&format!("{arguments:?}"), &ran(&mut live(arguments)));
    }
    let said = attached.wait_with_output().unwrap();
    for text in [said.stdout, said.stderr] {
        harmless("attach", &String::from_utf8_lossy(&text));
    }
    let mut run = live(&["run", "--scheduler", "rr", "--for", "2s", "--"]);
    harmless_run("run", &ran(run.arg(&program).arg("0.1")));
    harmless_run(
        "run",
        &ran(live(&["run", "--scheduler", "rr", "--"]).arg(folder.0.join("\u{1b}[31mnone"))),
    );
    child.kill().unwrap();
    child.wait().unwrap();
}
