//! One schedule as perf, trace-cmd, ftrace and babeltrace print it with each of their options
//! (lines as perf 6.1, trace-cmd 3.1.6, Linux 6.18 and babeltrace 1.5 and 2.0 printed them, cut to
//! what matters): the options change the text, and nothing else.

use schedlab_model::{EventKind, Ns, Waker};
use schedlab_trace::analysis::Summary;
use schedlab_trace::import::{ImportOptions, Imported, read};
use std::fmt::Write as _;

/// A line: microseconds, who was running, whether in an interrupt, the event, its fields.
type Event = (u64, &'static str, u32, bool, &'static str, &'static str);

const HOG: &str = "prev_comm=hog prev_pid=200 prev_prio=120";
/// `hog` runs for a millisecond, interrupted from 150 to 400 us by `srv`, which an interrupt woke
/// at 100 us.
const EVENTS: [Event; 5] = [
    (
        0,
        "swapper/1",
        0,
        false,
        "sched_switch",
        "prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=hog next_pid=200 \
         next_prio=120",
    ),
    (100, "hog", 200, true, "sched_waking", "comm=srv pid=300 prio=120 target_cpu=001"),
    (
        150,
        "hog",
        200,
        false,
        "sched_switch",
        "HOG prev_state=R ==> next_comm=srv next_pid=300 next_prio=120",
    ),
    (
        400,
        "srv",
        300,
        false,
        "sched_switch",
        "prev_comm=srv prev_pid=300 prev_prio=120 prev_state=S ==> next_comm=hog next_pid=200 \
         next_prio=120",
    ),
    (
        1000,
        "hog",
        200,
        false,
        "sched_switch",
        "HOG prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120",
    ),
];

/// The events, each printed by `line`.
fn text(line: impl Fn(&Event, &str) -> String) -> String {
    EVENTS.iter().map(|event| line(event, &event.5.replace("HOG", HOG)) + "\n").collect()
}

fn import(text: &str, options: ImportOptions) -> Imported {
    read(text.as_bytes(), options).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Checks run times, waits and that nothing was left out, lost or repaired.
#[track_caller]
fn is_the_schedule(what: &str, imported: &Imported, by_interrupt: bool) {
    let recording = &imported.recording;
    assert_eq!((imported.summary.odd.count, imported.summary.damaged.count), (0, 0), "{what}");
    assert!(recording.repairs.is_clean(), "{what}: {}", recording.repairs);
    assert_eq!((recording.duration, recording.events.len()), (Ns::from_ms(1), 5), "{what}");
    let tasks = &recording.header.tasks;
    assert_eq!(tasks.len(), 2, "{what}: {tasks:?}");
    let summary = Summary::from_recording(recording).unwrap();
    let of = |comm: &str| {
        let at = tasks
            .iter()
            .position(|task| task.comm == comm)
            .unwrap_or_else(|| panic!("{what}: {tasks:?}"));
        &summary.tasks[at]
    };
    assert_eq!((of("hog").run, of("srv").run), (Ns::from_us(750), Ns::from_us(250)), "{what}");
    assert_eq!(of("srv").wake_latency.max(), Ns::from_us(50), "{what}");
    assert_eq!(of("hog").preempt_wait.max(), Ns::from_us(250), "{what}");
    let wakers = recording.events.iter().filter_map(|event| match event.kind {
        EventKind::Wake { waker, .. } => Some(waker),
        _ => None,
    });
    let expected = if by_interrupt { Waker::HardIrq } else { Waker::Unknown };
    assert_eq!(wakers.collect::<Vec<_>>(), [expected], "{what}");
}

#[track_caller]
fn reads(what: &str, text: &str, by_interrupt: bool) {
    is_the_schedule(what, &import(text, ImportOptions::default()), by_interrupt);
}

fn perf(task: impl Fn(&Event) -> String, between: &str, after: &str) -> String {
    text(|event, fields| {
        let (us, name) = (event.0, event.4);
        format!("{} [001] {between}{}: {name:>24}: {fields}{after}", task(event), seconds(us))
            .replace(" sched_", " sched:sched_")
    })
}

fn seconds(us: u64) -> String {
    format!("{}.{:06}", 100 + us / 1_000_000, us % 1_000_000)
}

#[test]
fn perf_script_with_every_field() {
    let usual = |event: &Event| format!("{:>16} {:>5}", event.1, event.2);
    reads("as it is", &perf(usual, "", ""), false);
    reads("pid/tid", &perf(|e| format!("{} {:>5}/{}", e.1, e.2, e.2), "", ""), false);
    // Some threads of a process: the number is that of the process.
    reads("comm,pid", &perf(|e| format!("{} {:>5}", e.1, e.2.min(7)), "", ""), false);
    reads("tid", &perf(|e| format!("{:>5}", e.2), "", ""), false);
    reads("comm", &perf(|e| format!("{:>16}", e.1), "", ""), false);
    reads("no task", &perf(|_| String::new(), "", ""), false);
    reads("misc", &perf(usual, "K     ", ""), false);
    reads("tod", &perf(usual, "2026-11-25 14:30:30.863209 ", ""), false);
    reads("misc, tod", &perf(usual, "U     2026-11-25 14:30:30.863209 ", ""), false);
    let chain = "\n\tffffffff813a88b4 try_to_wake_up+0x3a4 ([kernel.kallsyms])\n\
                 \t             be1 __vdso_clock_gettime+0xf1 ([vdso])\
                 \n\t               0 [unknown] ([unknown])\n";
    reads("call chains", &perf(usual, "", chain), false);
    let source = "\n\tffffffff813a88b4 try_to_wake_up+0x3a4 ([kernel.kallsyms])\n  core.c:1234\n";
    reads("call chains with the source", &perf(usual, "", source), false);
    let colours = perf(usual, "", "")
        .replace("sched_switch", "\u{1b}[01;31m\u{1b}[Ksched_switch\u{1b}[m\u{1b}[K");
    reads("grep --color", &colours, false);
}

/// Tasks may be called as the lines begin that a tracer writes around its events, or as comments
/// begin.
#[test]
fn tasks_with_the_names_of_other_lines_are_tasks() {
    let usual = |event: &Event| format!("{:>16} {:>5}", event.1, event.2);
    for name in [
        "trace-cmd",
        "TRACE:",
        "Warning:",
        "version = 6",
        "cpus=8",
        "CPU:1",
        "CPU 0 is empty",
        "#1",
        "# x",
        "done",
    ] {
        for form in [perf(usual, "", ""), trace_cmd(ftrace)] {
            let imported = import(&form.replace("hog", name), ImportOptions::default());
            let tasks = imported.recording.header.tasks.iter();
            let index = tasks
                .clone()
                .position(|task| task.comm == name)
                .unwrap_or_else(|| panic!("{name}: {tasks:?}"));
            assert_eq!(imported.recording.events.len(), 5, "{name}: {form}");
            let summary = Summary::from_recording(&imported.recording).unwrap();
            assert_eq!(summary.tasks[index].run, Ns::from_us(750), "{name}");
            assert_eq!(imported.summary.odd.count + imported.summary.losses_in_all, 0, "{name}");
        }
    }
}

/// A line of ftrace and of `trace-cmd report`.
fn ftrace(event: &Event, flags: &str, fields: &str) -> String {
    let (us, name) = (event.0, event.4.to_owned() + ":");
    format!("{:>16}-{:<5} [001] {flags} {:>12}: {name:<20} {fields}", event.1, event.2, seconds(us))
}

fn trace_cmd(line: impl Fn(&Event, &str, &str) -> String) -> String {
    "cpus=2\n".to_owned()
        + &text(|event, fields| {
            let flags = if event.3 { "d.h3." } else { "d..2." };
            line(event, flags, fields)
        })
}

#[test]
fn trace_cmd_report_with_every_option() {
    let usual = ftrace;
    reads("as it is", &trace_cmd(usual), true);
    let with = |after: &str| {
        trace_cmd(|e, flags, fields| {
            usual(e, flags, fields).replace(&format!("{}:", e.4), &format!("{after}{}:", e.4))
        })
    };
    reads("--ts-diff", &with("(+652)   "), true);
    let debug = trace_cmd(|e, flags, fields| {
        let short = fields
            .replace("prev_comm=", "")
            .replace("next_comm=", "")
            .replace(" prev_pid=", ":")
            .replace(" next_pid=", ":");
        let short = short
            .replace(" prev_prio=120 prev_state=", " [120] ")
            .replace(" next_prio=120", " [120]");
        usual(e, flags, &short) + " [9354:0xa4:64]"
    });
    let debug = debug.replacen('\n', "\nCPU:1 [SUBBUFFER START] [1019801300821:0x3000]\n", 1);
    reads("--debug", &debug, true);
    let raw_ts = trace_cmd(|e, _, fields| {
        format!("{:>16}-{:<5} [001]{}: {}: {fields}", e.1, e.2, 100_000_000_000 + e.0 * 1000, e.4)
    });
    assert!(
        read(raw_ts.as_bytes(), ImportOptions::default())
            .unwrap_err()
            .to_string()
            .contains("--clock-hz")
    );
    let hz = ImportOptions { clock_hz: Some(1_000_000_000), ..ImportOptions::default() };
    is_the_schedule("--raw-ts", &import(&raw_ts, hz), false);
    let latency = trace_cmd(|e, flags, fields| {
        format!("{:>8.8}-{:<5}   1{flags} {:>12}: {}: {fields}", e.1, e.2, seconds(e.0), e.4)
    });
    reads("-l", &latency, true);
}

#[test]
fn events_of_several_buffers_count_once() {
    let mut both = "cpus=2\n".to_owned();
    for (us, comm, tid, interrupt, name, fields) in EVENTS {
        let flags = if interrupt { "d.h3." } else { "d..2." };
        let line = format!(
            "{comm:>16}-{tid:<5} [001] {flags} {}: {name}: {}",
            seconds(us),
            fields.replace("HOG", HOG)
        );
        // Only the first buffer has wakeups.
        for buffer in
            ["one: ", "two: "].iter().filter(|buffer| name == "sched_switch" || **buffer == "one: ")
        {
            let _ = writeln!(both, "{buffer}{line}");
        }
    }
    let imported = import(&both, ImportOptions::default());
    is_the_schedule("two buffers", &imported, true);
    let notes = &imported.summary.notes;
    assert!(notes.iter().any(|note| note.contains("`one`") && note.contains("`two`")), "{notes:?}");
    // A task whose name looks like a buffer is a task.
    let colon = both
        .lines()
        .filter(|line| !line.starts_with("two"))
        .map(|line| line.replace("one: ", "") + "\n");
    let colon: String = colon
        .collect::<String>()
        .replace("             hog-", "        hog: hog-")
        .replace("comm=hog", "comm=hog: hog");
    let imported = import(&colon, ImportOptions::default());
    assert!(imported.recording.header.tasks.iter().any(|task| task.comm == "hog: hog"), "{colon}");
    // Two files are two machines, or two moments.
    let files = " a.dat: cpus=2\n b.dat: cpus=2\n".to_owned() + &both;
    let error = read(files.as_bytes(), ImportOptions::default()).unwrap_err().to_string();
    assert!(error.contains("a.dat, b.dat") && error.contains("-i a.dat"), "{error}");
}

/// What ftrace writes above latency-format since Linux 5.15.
const LATENCY_HEADER: &str = "# tracer: nop\n#\n# nop latency trace v1.1.5 on 6.18.44\n\
    #                    _------=> CPU#\n#                   / _-----=> irqs-off/BH-disabled\n\
    #                  | / _----=> need-resched\n\
    #                  || / _---=> hardirq/softirq\n#                  ||| / _--=> preempt-depth\n\
    #                  |||| / _-=> migrate-disable\n#                  ||||| /     delay\n";

#[test]
fn ftrace_with_every_option() {
    let flags = |e: &Event| if e.3 { "d.h3." } else { "d..2." };
    for mark in ['+', '!', '#', ' '] {
        let latency = text(|e, fields| {
            format!(
                "{:>8.8}-{:<7}   1{} {}us{mark}: {}: {fields}",
                e.1,
                e.2,
                flags(e),
                847_191_938 + e.0,
                e.4
            )
        });
        reads("latency-format", &(LATENCY_HEADER.to_owned() + &latency), true);
        let log: String =
            latency.lines().map(|line| format!("[    5.123456][  T200] {line}\n")).collect();
        reads("ftrace_dump_on_oops", &log, true);
    }
    let fields = text(|e, fields| {
        let mut fields = fields
            .replace(" ==>", "")
            .replace("_state=S", "_state=0x1 (1)")
            .replace("_state=R", "_state=0x0 (0)");
        for (number, hex) in [
            ("=200 ", "=0xc8 (200) "),
            ("=300 ", "=0x12c (300) "),
            ("=120", "=0x78 (120)"),
            ("pid=0 ", "pid=0x0 (0) "),
        ] {
            fields = fields.replace(number, hex);
        }
        format!("{:>16}-{:<7} [001] {}  {}: {}: {fields}", e.1, e.2, flags(e), seconds(e.0), e.4)
    });
    reads("fields", &fields, true);
    let graph = text(|e, fields| {
        format!(
            " {} |   1)  {:>8}-{:<5} |               |  /* {}: {fields} */",
            seconds(e.0),
            e.1,
            e.2,
            e.4
        )
    });
    reads("function_graph with funcgraph-abstime and funcgraph-proc", &graph, false);
}

#[test]
fn babeltrace_with_every_option() {
    let lttng = |time: &str, fields: &str| {
        // LTTng's names and priorities.
        let fields: Vec<String> = fields
            .replace(" ==>", "")
            .split(' ')
            .map(|pair| match pair.split_once('=').unwrap() {
                (key, value) if key.ends_with("comm") => format!("{key} = \"{value}\""),
                (key, _) if key.ends_with("prio") => format!("{key} = 20"),
                (key, "R") => format!("{key} = ( \"TASK_RUNNING\" : container = 0 )"),
                (key, "S") => format!("{key} = ( \"TASK_INTERRUPTIBLE\" : container = 1 )"),
                (key, value) => {
                    format!("{} = {}", key.replace("pid", "tid"), value.trim_start_matches("00"))
                }
            })
            .collect();
        (time.to_owned(), fields.join(", "))
    };
    let hms = |us: u64| format!("00:01:40.{:09}", us * 1000);
    for (before, between) in
        [("", " (+0.000001234) host"), ("", ""), ("1970-01-01 ", " (+?.?????????) host")]
    {
        let plain = text(|e, fields| {
            let (time, fields) = lttng(&hms(e.0), fields);
            format!("[{before}{time}]{between} {}: {{ cpu_id = 1 }}, {{ {fields} }}", e.4)
        });
        reads("babeltrace", &plain, false);
    }
    let names = text(|e, fields| {
        let (time, fields) = lttng(&hms(e.0), fields);
        let name = e.4;
        format!(
            "timestamp = {time}, delta = +0.1, trace:hostname = host, name = {name}, \
             stream.packet.context = {{ cpu_id = 1 }}, event.fields = {{ {fields} }}"
        )
    });
    reads("--names all", &names, false);
    let cycles = text(|e, fields| {
        let (time, fields) = lttng(&format!("{:020}", 100_000_000_000 + e.0 * 1000), fields);
        format!("[{time}] (+000000004537) {}: {{ cpu_id = 1 }}, {{ {fields} }}", e.4)
    });
    let error = read(cycles.as_bytes(), ImportOptions::default()).unwrap_err().to_string();
    assert!(error.contains("--clock-cycles"), "{error}");
    let hz = ImportOptions { clock_hz: Some(1_000_000_000), ..ImportOptions::default() };
    is_the_schedule("--clock-cycles", &import(&cycles, hz), false);
}

#[test]
fn texts_without_times_are_refused() {
    // Differences between lines (`--deltatime`), and lines in another order, are no schedule.
    let deltas: String = (0..40)
        .map(|i| {
            let (comm, tid) = if i % 2 == 0 { ("a", 10) } else { ("b", 20) };
            let (next, other) = if i % 2 == 0 { ("b", 20) } else { ("a", 10) };
            format!(
                "{comm} {tid} [000] 0.0000{:02}: sched:sched_switch: prev_comm={comm} \
                 prev_pid={tid} prev_prio=120 prev_state=R ==> next_comm={next} next_pid={other} \
                 next_prio=120\n",
                i * 37 % 41
            )
        })
        .collect();
    let refused = |text: &str| {
        read(text.as_bytes(), ImportOptions::default()).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(&deltas).contains("--deltatime"), "{}", refused(&deltas));
    for (line, part) in [
        ("18887 1 847638746672 type: 372", "options/raw"),
        ("sched_switch: prev_comm=a prev_pid=1", "context-info"),
        ("  17659 805.863209: sched:sched_switch: prev_comm=a", "perf script -F +cpu"),
    ] {
        assert!(refused(line).contains(part), "{line}: {}", refused(line));
    }
}

/// `perf record -p` of two threads that mostly leave the CPU to each other: the switches to them
/// from others are missing.
#[test]
fn events_of_one_program_are_known_by_what_is_missing() {
    let switch = |us: u64, from: &str, to: &str| {
        let tid = |comm: &str| match comm {
            "a" => 10,
            "b" => 20,
            _ => 30,
        };
        format!(
            "{from} {} [000] {}: sched:sched_switch: prev_comm={from} prev_pid={} prev_prio=120 \
             prev_state=R ==> next_comm={to} next_pid={} next_prio=120\n",
            tid(from),
            seconds(us),
            tid(from),
            tid(to)
        )
    };
    let mut text = String::new();
    for round in 0..20 {
        for (at, from, to) in [(10, "a", "b"), (20, "b", "a"), (30, "a", "b"), (40, "b", "other")] {
            text += &switch(round * 100 + at, from, to);
        }
    }
    let imported = import(&text, ImportOptions::default());
    assert!(!imported.recording.header.capabilities.has(schedlab_trace::Capability::AllTasks));
    // With the switch back from the other task it is the whole of a CPU.
    let whole: String = text
        .lines()
        .map(|line| {
            line.to_owned()
                + "\n"
                + &if line.contains("next_comm=other") {
                    let at = line
                        .split_whitespace()
                        .nth(3)
                        .unwrap()
                        .trim_end_matches(':')
                        .rsplit('.')
                        .next()
                        .unwrap()
                        .parse::<u64>()
                        .unwrap();
                    switch(at + 20, "other", "a")
                } else {
                    String::new()
                }
        })
        .collect();
    let imported = import(&whole, ImportOptions::default());
    assert!(
        imported.recording.header.capabilities.has(schedlab_trace::Capability::AllTasks),
        "{whole}"
    );
}
