//! Random histories as text, in every form that tracers write, and back; and damaged.

use crate::common::header;
use proptest::prelude::*;
use schedlab_model::{CpuId, EventKind, Ns, PrevState, SchedEvent, TaskId, Waker};
use schedlab_trace::analysis::Summary;
use schedlab_trace::export::{self, Exported};
use schedlab_trace::import::{ImportOptions, Imported, Input, KernelVersion, read};
use schedlab_trace::{Recording, TraceError};
use std::fmt::Write as _;

const CPUS: usize = 2;
const TASKS: usize = 4;
/// Time between events: a whole number of microseconds, which every clock can say.
const GAP: u64 = 7_000;

fn switch(prev: Option<u32>, prev_state: PrevState, next: Option<u32>) -> EventKind {
    EventKind::Switch { prev: prev.map(TaskId), prev_state, next: next.map(TaskId) }
}

/// A task wakes, runs and sleeps.
fn once(push: &mut dyn FnMut(usize, EventKind), task: u32) {
    let cpu = task as usize % CPUS;
    push(cpu, EventKind::Wake { task: TaskId(task), waker: Waker::HardIrq });
    push(cpu, switch(None, PrevState::Runnable, Some(task)));
    push(cpu, switch(Some(task), PrevState::Sleeping, None));
}

/// A possible history: tasks wake, run, are preempted and block. `choices` decides what happens.
fn history(choices: &[u8]) -> Vec<SchedEvent> {
    let mut out = Vec::new();
    let mut on_cpu: [Option<u32>; CPUS] = [None; CPUS];
    // 0 blocked, 1 runnable, 2 running.
    let mut state = [0u8; TASKS];
    let mut at = 0;
    let mut push = |cpu: usize, kind: EventKind| {
        out.push(SchedEvent { at: Ns(at), cpu: CpuId(cpu as u32), kind });
        at += GAP;
    };
    // Everything is seen once, so that what is missing later can be known.
    for task in 0..TASKS as u32 {
        once(&mut push, task);
    }
    for choice in choices {
        let cpu = usize::from(choice & 1);
        let task = usize::from(choice >> 1 & 3);
        match (choice >> 3 & 3, state[task], on_cpu[cpu]) {
            (0 | 1, 0, running) => {
                let waker = match (choice >> 5 & 3, running) {
                    (0, _) | (_, None) => Waker::HardIrq,
                    (1, _) => Waker::SoftIrq,
                    (_, Some(by)) => Waker::Task(TaskId(by)),
                };
                push(cpu, EventKind::Wake { task: TaskId(task as u32), waker });
                state[task] = 1;
            }
            (_, 1, running) => {
                let left = if choice >> 5 & 1 == 0 {
                    PrevState::Runnable
                } else {
                    PrevState::RunnableInKernel
                };
                let left = if running.is_none() { PrevState::Runnable } else { left };
                push(cpu, switch(running, left, Some(task as u32)));
                if let Some(prev) = running {
                    state[prev as usize] = 1;
                }
                (on_cpu[cpu], state[task]) = (Some(task as u32), 2);
            }
            (_, _, Some(running)) => {
                let blocked =
                    [PrevState::Sleeping, PrevState::DiskSleep][usize::from(choice >> 5 & 1)];
                push(cpu, switch(Some(running), blocked, None));
                (on_cpu[cpu], state[running as usize]) = (None, 0);
            }
            _ => {}
        }
    }
    // And once more, so that what is missing at the end can be known.
    for (cpu, running) in on_cpu.into_iter().enumerate() {
        if let Some(running) = running {
            push(cpu, switch(Some(running), PrevState::Sleeping, None));
            state[running as usize] = 0;
        }
    }
    for task in 0..TASKS as u32 {
        let cpu = task as usize % CPUS;
        if state[task as usize] == 0 {
            push(cpu, EventKind::Wake { task: TaskId(task), waker: Waker::HardIrq });
        }
        push(cpu, switch(None, PrevState::Runnable, Some(task)));
        push(cpu, switch(Some(task), PrevState::Sleeping, None));
    }
    out
}

fn recording(choices: &[u8]) -> Recording {
    let events = history(choices);
    let end = events.last().map_or(Ns::ZERO, |event| event.at);
    let mut header = header(CPUS, TASKS);
    header.clock_start_ns = 100_000_000_000;
    header.tasks[1].comm = "a b:1 [x]".to_owned();
    header.tasks[2].comm = "</script>".to_owned();
    header.tasks[3].comm = "quo\"te-7".to_owned();
    Recording::from_parts(header, events, end).unwrap()
}

/// Events with thread ids instead of numbers; wakers as far as `wakers` says.
fn shown(recording: &Recording, wakers: bool, kernel_tells_preemption: bool) -> Vec<String> {
    let tid = |task: Option<TaskId>| task.map_or(0, |task| recording.task(task).tid);
    let told = |waker: Waker| match waker {
        Waker::Task(task) => format!("{}", tid(Some(task))),
        other => format!("{other:?}"),
    };
    let one = |event: &SchedEvent| match event.kind {
        EventKind::Switch { prev, prev_state, next } => {
            let state = match prev_state {
                _ if prev.is_none() => PrevState::Runnable,
                PrevState::RunnableInKernel if !kernel_tells_preemption => PrevState::Runnable,
                other => other,
            };
            format!("{} {} {} {state:?} {}", event.at, event.cpu, tid(prev), tid(next))
        }
        EventKind::Wake { task, waker } => {
            format!(
                "{} {} wakes {} {}",
                event.at,
                event.cpu,
                tid(Some(task)),
                if wakers { told(waker) } else { String::new() }
            )
        }
        other => format!("{other:?}"),
    };
    recording.events.iter().map(one).collect()
}

type Form =
    (&'static str, fn(&Recording, &mut dyn std::io::Write) -> std::io::Result<Exported>, bool);

/// Every form that is written, and whether it shows interrupts.
const FORMS: [Form; 6] = [
    ("ftrace", export::ftrace, true),
    ("trace-cmd", export::trace_cmd, true),
    ("systrace", export::systrace, true),
    ("perfetto", export::perfetto, true),
    ("perf script", export::perf_script, false),
    ("lttng", export::lttng, false),
];

/// Those of them that have lines.
const TEXTS: [usize; 5] = [0, 1, 2, 4, 5];

fn written(recording: &Recording, form: &Form) -> Vec<u8> {
    let mut bytes = Vec::new();
    form.1(recording, &mut bytes).unwrap();
    bytes
}

fn import(bytes: &[u8], kernel: Option<KernelVersion>) -> Result<Imported, TraceError> {
    read(bytes, ImportOptions { kernel, ..ImportOptions::default() })
}

/// A kernel: its version, the bit that says preempted in `prev_state`, and the columns of its
/// flags.
const KERNELS: [(&str, u32, &[&str]); 7] = [
    ("2.6.32", 0, &CLASSIC),
    ("3.4", 0x200, &CLASSIC),
    ("4.1", 0x400, &CLASSIC),
    ("4.4", 0x800, &LAZY),
    ("4.9", 0x1000, &LAZY),
    ("5.15", 0x100, &MIGRATE),
    (
        "6.12",
        0x100,
        &[
            "irqs-off/BH-disabled",
            "need-resched",
            "hardirq/softirq",
            "preempt-depth",
            "migrate-disable",
        ],
    ),
];
const CLASSIC: [&str; 4] = ["irqs-off", "need-resched", "hardirq/softirq", "preempt-depth"];
/// PREEMPT_RT before 5.17.
const LAZY: [&str; 6] = [
    "irqs-off",
    "need-resched",
    "need-resched-lazy",
    "hardirq/softirq",
    "preempt-depth",
    "preempt-lazy-depth",
];
const MIGRATE: [&str; 7] = [
    "irqs-off",
    "need-resched",
    "need-resched-lazy",
    "hardirq/softirq",
    "preempt-depth",
    "preempt-lazy-depth",
    "migrate-disable",
];

/// How a kernel's text is written.
struct Style {
    /// Of [`KERNELS`].
    kernel: usize,
    /// States as letters (0), decimal (1) or hexadecimal numbers (2).
    states: usize,
    /// Digits of a time after the point; `None` = whole numbers of a clock of 1 GHz.
    decimals: Option<usize>,
    /// ftrace's option record-tgid.
    tgid: bool,
}

fn kernels_header(columns: &[&str], tgid: bool) -> String {
    let mut text = "# tracer: nop\n#\n".to_owned();
    for (index, column) in columns.iter().enumerate() {
        let _ = writeln!(
            text,
            "#                              {}_-----=> {column}",
            "| ".repeat(index)
        );
    }
    let process = if tgid { "   TGID" } else { "" };
    let _ = writeln!(text, "#           TASK-PID  {process}   CPU#  |||||  TIMESTAMP  FUNCTION");
    text
}

/// The same as ftrace's text of another kernel: its header and flags, states and times.
fn as_kernel(recording: &Recording, style: &Style) -> String {
    let &Style { kernel, states, decimals, tgid } = style;
    let (_, preempted, columns) = KERNELS[kernel];
    let mut text = kernels_header(columns, tgid);
    let state = |state: PrevState| {
        let (letter, bits) = match state {
            PrevState::RunnableInKernel => ("R+", preempted),
            PrevState::Sleeping => ("S", 1),
            PrevState::DiskSleep => ("D", 2),
            _ => ("R", 0),
        };
        match states {
            0 => if letter == "R+" && preempted == 0 { "R" } else { letter }.to_owned(),
            1 => bits.to_string(),
            _ => format!("{bits:#x}"),
        }
    };
    let context = columns.iter().position(|column| *column == "hardirq/softirq").unwrap();
    let name = |task: Option<TaskId>| match task {
        None => ("swapper/0".to_owned(), 0),
        Some(task) => (recording.task(task).comm.clone(), recording.task(task).tid),
    };
    let mut on_cpu = [None; CPUS];
    for event in &recording.events {
        let cpu = event.cpu.index();
        let mut running = on_cpu[cpu];
        let (letter, fields) = match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                on_cpu[cpu] = next;
                running = prev;
                let ((prev, prev_tid), (next, next_tid)) = (name(prev), name(next));
                let arrow = if states == 0 { "==> " } else { "" };
                let state = state(prev_state);
                (
                    '.',
                    format!(
                        "sched_switch: prev_comm={prev} prev_pid={prev_tid} prev_prio=120 \
                         prev_state={state} {arrow}next_comm={next} next_pid={next_tid} \
                         next_prio=120"
                    ),
                )
            }
            EventKind::Wake { task, waker } => {
                let letter = match waker {
                    Waker::HardIrq => 'h',
                    Waker::SoftIrq => 's',
                    _ => '.',
                };
                let (comm, tid) = name(Some(task));
                (letter, format!("sched_waking: comm={comm} pid={tid} prio=120 target_cpu=000"))
            }
            _ => continue,
        };
        let mut flags = vec!['.'; columns.len()];
        (flags[0], flags[context]) = ('d', letter);
        let at = recording.header.clock_start_ns + event.at.0;
        let time = seconds(at, decimals);
        let (comm, tid) = name(running);
        let flags: String = flags.iter().collect();
        let process = if tgid { format!("({tid:>7}) ") } else { String::new() };
        let _ = writeln!(text, "{comm:>16}-{tid:<7} {process}[{cpu:03}] {flags} {time}: {fields}");
    }
    text
}

/// Writes a time in seconds with so many decimals, or in nanoseconds.
fn seconds(at: u64, decimals: Option<usize>) -> String {
    match decimals {
        Some(decimals) => {
            format!("{}.{}", at / 1_000_000_000, &format!("{:09}", at % 1_000_000_000)[..decimals])
        }
        None => at.to_string(),
    }
}

fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// The fields of a message, each a number or bytes, and as it is written.
fn fields(bytes: &[u8]) -> Vec<(u64, u64, &[u8], &[u8])> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let start = at;
        let key = varint(bytes, &mut at);
        let value = varint(bytes, &mut at);
        let content = if key & 7 == 2 { &bytes[at..at + value as usize] } else { &[] };
        at += content.len();
        all.push((key >> 3, value, content, &bytes[start..at]));
    }
    all
}

/// A field of bytes that are shorter than 16 KiB.
fn field_of(number: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    [&[number << 3 | 2, (length & 0x7f) as u8 | 0x80, (length >> 7) as u8], content].concat()
}

/// A Perfetto trace with each of its events in a packet of its own, in order of time: time (0
/// without an event) and packet.
fn packets(trace: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    for (_, _, packet, whole) in fields(trace) {
        let Some((_, _, bundle, _)) = fields(packet).into_iter().find(|field| field.0 == 1) else {
            all.push((0, whole.to_vec()));
            continue;
        };
        let inside = fields(bundle);
        let cpu = inside.iter().find(|field| field.0 == 1).unwrap().3;
        for (_, _, event, whole) in inside.iter().filter(|field| field.0 == 2) {
            let time = fields(event)[0].1;
            all.push((time, field_of(1, &field_of(1, &[cpu, whole].concat()))));
        }
    }
    all.sort_by_key(|(time, _)| *time);
    all
}

/// What an import says: the numbers of every task, and whether anything is said to be wrong. A
/// trace that is refused is said to be.
fn numbers_and_counts(found: Result<Imported, TraceError>) -> (Option<String>, bool) {
    let Ok(found) = found else { return (None, true) };
    let (repairs, summary) = (&found.recording.repairs, &found.summary);
    let counted = !repairs.is_clean()
        || repairs.early_wakes > 0
        || summary.odd.count > 0
        || summary.damaged.count > 0;
    (Some(format!("{:?}", Summary::from_recording(&found.recording).unwrap())), counted)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: schedlab_testing::cases(96), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_form_comes_back(choices in proptest::collection::vec(any::<u8>(), 0..80)) {
        let recording = recording(&choices);
        for form in &FORMS {
            let back = import(&written(&recording, form), None).unwrap();
            prop_assert_eq!(shown(&recording, form.2, true), shown(&back.recording, form.2, true), "{}", form.0);
            prop_assert!(back.recording.repairs.is_clean(), "{}: {}", form.0, back.recording.repairs);
            prop_assert_eq!((back.summary.odd.count, back.summary.damaged.count), (0, 0), "{}", form.0);
            prop_assert_eq!(recording.duration, back.recording.duration, "{}", form.0);
        }
    }

    #[test]
    fn every_kernels_text_says_the_same(
        choices in proptest::collection::vec(any::<u8>(), 0..60),
        kernel in 0..KERNELS.len(), states in 0..3usize, decimals in 5..=9usize, tgid in any::<bool>(),
    ) {
        let recording = recording(&choices);
        let decimals = Some(decimals).filter(|decimals| *decimals > 5);
        let text = as_kernel(&recording, &Style { kernel, states, decimals, tgid });
        let (version, preempted, _) = KERNELS[kernel];
        let clock_hz = decimals.is_none().then_some(1_000_000_000);
        let options = ImportOptions { kernel: version.parse().ok(), clock_hz, ..ImportOptions::default() };
        let back = read(text.as_bytes(), options).unwrap();
        let tells = preempted != 0;
        prop_assert_eq!(shown(&recording, true, tells), shown(&back.recording, true, true), "{}", version);
        prop_assert!(back.recording.repairs.is_clean(), "{}", back.recording.repairs);
    }

    /// What is told of a recording when it is written is what a reader of its file finds, whatever
    /// is wrong with it: wakeups before their task has left, switches that are missing.
    #[test]
    fn what_was_repaired_is_known_without_reading_the_file(
        choices in proptest::collection::vec(any::<(u8, u8)>(), 4..120), wakes in any::<bool>(),
    ) {
        let task = |number: u8| TaskId(u32::from(number) % TASKS as u32);
        let event = |(at, (choice, who)): (usize, &(u8, u8))| {
            let (first, second) = (task(who & 7), task(who >> 3));
            let some = |bit: u8, task: TaskId| (choice >> bit & 1 == 0).then_some(task.0);
            let kind = match choice & 3 {
                0 | 1 => EventKind::Wake { task: first, waker: Waker::HardIrq },
                2 => switch(some(2, first), PrevState::Sleeping, some(3, second)),
                _ => switch(some(2, first), PrevState::Runnable, some(3, second)),
            };
            SchedEvent { at: Ns(at as u64 * GAP), cpu: CpuId(u32::from(who >> 7)), kind }
        };
        let mut events: Vec<SchedEvent> = choices.iter().enumerate().map(event).collect();
        events.retain(|event| wakes || matches!(event.kind, EventKind::Switch { .. }));
        prop_assume!(events.iter().any(|event| matches!(event.kind, EventKind::Switch { .. })));
        // As it is, without a repair.
        let recording = Recording { events, ..recording(&[]) };
        let text = as_kernel(&recording, &Style { kernel: 6, states: 0, decimals: Some(9), tgid: false });
        let mut file = Vec::new();
        let input = Input::Stream(Box::new(text.as_bytes()));
        let written = schedlab_trace::import::write(input, &mut file, 3, ImportOptions::default()).unwrap();
        let (told, events) = written.recording.unwrap();
        let read = Recording::read(&file[..]).unwrap();
        prop_assert_eq!(events, read.events.len());
        prop_assert_eq!(&told.repairs, &read.repairs);
        prop_assert_eq!(&written.summary.repairs, &read.repairs);
        prop_assert_eq!(Recording { events: read.events.clone(), ..told }, read);
    }

    /// What can be known to be missing is counted. Nothing can tell that the first and last lines
    /// of a text are missing, so these stay as they are.
    #[test]
    fn no_damage_changes_a_number_without_a_count(
        choices in proptest::collection::vec(any::<u8>(), 8..60),
        at in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(), kind in 0..4u8, form in 0..TEXTS.len(),
    ) {
        let recording = recording(&choices);
        let text = String::from_utf8(written(&recording, &FORMS[TEXTS[form]])).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let is_event = |line: &&str| line.contains("sched_");
        let first = lines.iter().position(is_event).unwrap() + 3 * TASKS;
        let last = lines.iter().rposition(is_event).unwrap() - 3 * TASKS;
        prop_assume!(first < last);
        let (at, to) = (first + at.index(last - first), first + to.index(last - first));
        let mut damaged: Vec<&str> = lines.clone();
        match kind {
            0 => drop(damaged.remove(at)),
            1 => damaged.insert(at, lines[at]),
            2 => {
                let line = damaged.remove(at);
                damaged.insert(to, line);
            }
            _ => {
                let mut end = to.saturating_mul(7) % lines[at].len();
                while !lines[at].is_char_boundary(end) {
                    end -= 1;
                }
                damaged[at] = &lines[at][..end];
            }
        }
        let (before, _) = numbers_and_counts(import(text.as_bytes(), None));
        let (after, counted) = numbers_and_counts(import(damaged.join("\n").as_bytes(), None));
        prop_assert!(after.is_some() && (after == before || counted), "line {at}: {:?} became {:?}", lines[at], damaged.get(at));
    }
    /// The same of Perfetto's packets, each with one event.
    #[test]
    fn no_damage_of_packets_changes_a_number_without_a_count(
        choices in proptest::collection::vec(any::<u8>(), 8..60),
        at in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>(), kind in 0..4u8,
    ) {
        let recording = recording(&choices);
        let whole: Vec<Vec<u8>> = packets(&written(&recording, &FORMS[3])).into_iter().map(|(_, packet)| packet).collect();
        // The process list and the marks of schedlab around the events are not damaged, and the
        // first and last events neither.
        let (first, last) = (2 + 3 * TASKS, whole.len() - 2 - 3 * TASKS);
        prop_assume!(first < last);
        let (at, to) = (first + at.index(last - first), first + to.index(last - first));
        let mut damaged = whole.clone();
        match kind {
            0 => drop(damaged.remove(at)),
            1 => damaged.insert(at, whole[at].clone()),
            2 => {
                let packet = damaged.remove(at);
                damaged.insert(to, packet);
            }
            _ => damaged[at].truncate(cut.index(whole[at].len())),
        }
        let (before, counted) = numbers_and_counts(import(&whole.concat(), None));
        prop_assert!(!counted && before.is_some());
        let (after, counted) = numbers_and_counts(import(&damaged.concat(), None));
        prop_assert!(after == before || counted, "packet {at} of {}, kind {kind}: {:?}", whole.len(), whole[at]);
    }
}
