//! Traces that people posted (issue threads, test files of other projects, unusual options of perf
//! and ftrace), cut to what matters, with the right values as independent readers computed them.
//! Each file of `tests/field` is one case.

use schedlab_model::{EventKind, Ns, TaskId, Waker};
use schedlab_trace::analysis::conservation::{Conservation, allowed};
use schedlab_trace::analysis::follow::Followed;
use schedlab_trace::analysis::{Scope, Summary};
use schedlab_trace::import::{ImportOptions, Imported, Input, KernelVersion, read};
use schedlab_trace::{Capability, Recording};

fn place(file: &str) -> String {
    format!("{}/tests/field/{file}", env!("CARGO_MANIFEST_DIR"))
}

fn bytes(file: &str) -> Vec<u8> {
    let path = place(file);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn import(file: &str) -> Imported {
    read(&bytes(file)[..], ImportOptions::default())
        .unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn refusal(file: &str) -> String {
    read(&bytes(file)[..], ImportOptions::default()).map(|_| ()).expect_err(file).to_string()
}

fn task(recording: &Recording, comm: &str) -> TaskId {
    TaskId::from(recording.header.tasks.iter().position(|task| task.comm == comm).expect(comm))
}

/// `hog` runs from the start, `srv` is woken by an interrupt after 100 us, runs from 150 us to 400
/// us, then `hog` to the end at 1 ms.
#[track_caller]
fn is_the_usual_millisecond(file: &str) -> Imported {
    let imported = import(file);
    let recording = &imported.recording;
    assert_eq!(recording.duration, Ns::from_ms(1), "{file}");
    assert_eq!(recording.events.len(), 5, "{file}: {:?}", recording.events);
    assert_eq!(recording.header.tasks.len(), 2, "{file}");
    let (hog, srv) = (task(recording, "hog"), task(recording, "srv"));
    let summary = Summary::from_recording(recording).unwrap();
    assert_eq!(summary.tasks[hog.index()].run, Ns::from_us(750), "{file}");
    assert_eq!(summary.tasks[srv.index()].run, Ns::from_us(250), "{file}");
    assert_eq!(summary.tasks[srv.index()].wake_latency.max(), Ns::from_us(50), "{file}");
    assert_eq!(summary.tasks[hog.index()].preempt_wait.max(), Ns::from_us(250), "{file}");
    imported
}

#[track_caller]
fn is_woken_by_an_interrupt(imported: &Imported) {
    let wakers: Vec<Waker> = imported
        .recording
        .events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Wake { waker, .. } => Some(waker),
            _ => None,
        })
        .collect();
    assert_eq!(wakers, [Waker::HardIrq]);
}

#[test]
fn text_of_every_tracer_gives_the_same_schedule() {
    for file in [
        "atrace-prefix.txt",
        "ftrace-stacktrace.txt",
        "rt-lazy-flags.txt",
        "systemTraceEvents.json",
        "systrace.html",
        "trace-cmd-cpus-line.txt",
        "trace-cmd-latency-format.txt",
        "trace-cmd-raw-state.txt",
        "trace-cmd-version-lines.txt",
        "misordered-false-alarm.txt",
    ] {
        let imported = is_the_usual_millisecond(file);
        is_woken_by_an_interrupt(&imported);
        assert!(imported.recording.repairs.is_clean(), "{file}: {}", imported.recording.repairs);
        assert_eq!((imported.summary.odd.count, imported.summary.damaged.count), (0, 0), "{file}");
    }
    // perf's text does not show interrupts.
    for file in ["perf-event-modifier.txt", "perf-stderr-mixed.txt"] {
        let imported = is_the_usual_millisecond(file);
        assert!(!imported.recording.header.capabilities.has(Capability::Waker), "{file}");
    }
}

#[test]
fn processes_come_from_the_tgid_column() {
    let imported = import("systrace.html");
    let pid = |comm| imported.recording.task(task(&imported.recording, comm)).pid;
    assert_eq!((pid("hog"), pid("srv")), (200, 300));
}

#[test]
fn preambles_tell_cpus_and_losses() {
    assert_eq!(import("trace-cmd-cpus-line.txt").recording.header.topology.cpus(), 8);
    let notes = import("perf-stderr-mixed.txt").summary.notes;
    assert!(notes.iter().any(|note| note.contains("perf lost 1 chunks")), "{notes:?}");
}

#[test]
fn lines_at_time_zero_do_not_set_the_window() {
    let imported = import("perf-task-events-time0.txt");
    let recording = &imported.recording;
    assert_eq!(recording.duration, Ns::from_ms(1));
    assert_eq!(recording.header.clock_start_ns, 100_000_000_000);
    let summary = Summary::from_recording(recording).unwrap();
    assert_eq!(summary.tasks[task(recording, "hog").index()].run, Ns::from_ms(1));
    assert_eq!(imported.summary.ignored["PERF_RECORD_COMM"], 1);
}

#[test]
fn dropped_events_are_told_by_cpu_and_time() {
    let imported = import("trace-cmd-events-dropped.txt");
    let losses = &imported.summary.losses;
    assert_eq!(losses.len(), 1);
    assert_eq!((losses[0].cpu, losses[0].count), (1, 204_600));
    assert_eq!((losses[0].from, losses[0].to), (Ns::from_us(150), Some(Ns::from_us(400))));
    assert_eq!(imported.recording.repairs.lost, 204_600);
    assert_eq!(imported.recording.duration, Ns::from_ms(1));
}

#[test]
fn a_task_that_is_gone_is_not_made_up() {
    let imported = import("perf-exit-minus1.txt");
    let recording = &imported.recording;
    assert_eq!(recording.header.tasks.len(), 2, "{:?}", recording.header.tasks);
    let options = ImportOptions { current_is_waker: true, ..ImportOptions::default() };
    let imported = read(&bytes("perf-exit-minus1.txt")[..], options).unwrap();
    let recording = &imported.recording;
    let last = recording.events.iter().rev().find_map(|event| match event.kind {
        EventKind::Wake { waker, .. } => Some(waker),
        _ => None,
    });
    assert_eq!(last, Some(Waker::Task(task(recording, "hog"))));
}

#[test]
fn one_programs_events_say_nothing_about_the_rest() {
    let imported = import("perf-own-only.txt");
    let recording = &imported.recording;
    assert!(!recording.header.capabilities.has(Capability::AllTasks));
    let summary = Summary::from_recording(recording).unwrap();
    // 1 ms before its first block, 1 ms before its second; what was between them is unknown.
    assert_eq!(summary.tasks[task(recording, "app").index()].run, Ns::from_ms(2));
    assert!(
        imported.summary.notes.iter().any(|note| note.contains("one program")),
        "{:?}",
        imported.summary.notes
    );
    let options = ImportOptions::default();
    // A command line in the header says the same.
    let header = "# cmdline : /usr/bin/perf record -e sched:* -p 300 \n";
    let whole = "a 1 [000] 1.0: sched:sched_switch: prev_comm=a prev_pid=1 prev_prio=120 \
                 prev_state=S ==> next_comm=b next_pid=2 next_prio=120\n";
    let all = |text: String| {
        read(text.as_bytes(), options)
            .unwrap()
            .recording
            .header
            .capabilities
            .has(Capability::AllTasks)
    };
    assert!(all(whole.to_owned()) && !all(format!("{header}{whole}")));
}

#[test]
fn repairs_of_an_import_are_in_the_file() {
    let imported = import("import-repairs-forgotten.txt");
    assert_eq!(imported.recording.repairs.inconsistent_switches, 2);
    let path =
        schedlab_testing::temp_dir().join(format!("schedlab-field-{}.slt", std::process::id()));
    schedlab_trace::save(&imported.recording, &path).unwrap();
    let saved = Recording::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(saved.repairs.inconsistent_switches, 2);
    let mut written = Vec::new();
    let bytes = bytes("import-repairs-forgotten.txt");
    schedlab_trace::import::write(
        Input::Stream(Box::new(&bytes[..])),
        &mut written,
        3,
        ImportOptions::default(),
    )
    .unwrap();
    let streamed = Recording::read(&written[..]).unwrap();
    assert_eq!(streamed, saved);
}

#[test]
fn old_states_are_those_of_their_kernel() {
    let imported = import("perfetto-kernel-4.9-states.pftrace");
    let recording = &imported.recording;
    assert_eq!(recording.header.kernel, "4.9.76");
    let summary = Summary::from_recording(recording).unwrap();
    let hog = task(recording, "hog");
    assert_eq!(summary.tasks[hog.index()].preempt_wait.max(), Ns::from_us(250));
    use schedlab_model::PrevState::{Dead, Sleeping};
    let left = |comm: &str| {
        let task = task(recording, comm);
        recording.events.iter().find_map(|event| match event.kind {
            EventKind::Switch { prev, prev_state, .. } if prev == Some(task) => Some(prev_state),
            _ => None,
        })
    };
    assert_eq!((left("dying"), left("kworker/0:1")), (Some(Dead), Some(Sleeping)));
    // Told otherwise, the same bits mean something else.
    let options = ImportOptions { kernel: Some(KernelVersion(6, 1)), ..ImportOptions::default() };
    let other = read(&bytes("perfetto-kernel-4.9-states.pftrace")[..], options).unwrap();
    assert_ne!(other.recording.events, recording.events);
}

#[test]
fn numbers_without_a_kernel_say_which_table_was_used() {
    let text = String::from_utf8(bytes("trace-cmd-raw-state.txt"))
        .unwrap()
        .replace("prev_state=0", "prev_state=256");
    let imported = read(text.as_bytes(), ImportOptions::default()).unwrap();
    assert!(
        imported.summary.notes.iter().any(|note| note.contains("4.14 and later")),
        "{:?}",
        imported.summary.notes
    );
}

#[test]
fn what_cannot_be_read_is_named_with_what_to_do() {
    assert!(
        refusal("ftrace-tsc-clock.txt").contains("--clock-hz"),
        "{}",
        refusal("ftrace-tsc-clock.txt")
    );
    assert!(
        refusal("perfetto-zstd.pftrace").contains("zstd"),
        "{}",
        refusal("perfetto-zstd.pftrace")
    );
    // The beginning of a perf.data: known by its first bytes, and cut off.
    assert!(
        refusal("perf-data-binary.data").contains("perf.data"),
        "{}",
        refusal("perf-data-binary.data")
    );
}

#[test]
fn an_integer_clock_is_read_with_its_frequency() {
    let options = ImportOptions { clock_hz: Some(1_000_000_000), ..ImportOptions::default() };
    let imported = read(&bytes("ftrace-tsc-clock.txt")[..], options).unwrap();
    assert_eq!(imported.recording.duration, Ns(1_000));
}

#[test]
fn the_latency_format_is_read_in_microseconds() {
    let imported = import("ftrace-latency-format-us.txt");
    let recording = &imported.recording;
    let summary = Summary::from_recording(recording).unwrap();
    assert_eq!(summary.tasks[task(recording, "srv").index()].run, Ns::from_ms(1));
    assert_eq!(recording.events[0].cpu.index(), 1);
}

/// Events, length, and the time on a CPU of some threads.
fn runs(imported: &Imported, tids: &[u32]) -> (usize, Ns, Vec<Ns>) {
    let recording = &imported.recording;
    let summary = Summary::from_recording(recording).unwrap();
    let run = |tid: &u32| {
        let at = recording.header.tasks.iter().position(|task| task.tid == *tid).unwrap();
        summary.tasks[at].run
    };
    (recording.events.len(), recording.duration, tids.iter().map(run).collect())
}

/// `perf record -a -m 64 -e sched:sched_switch,sched:sched_waking,sched:sched_migrate_task -- perf bench sched pipe`
/// of perf 6.1 on 6.18, into a file and into a pipe (`-o -`), without records that say nothing
/// here. The sums are those of `perf script`'s text, made with a script of its own.
#[test]
fn perf_data_of_a_file_and_of_a_pipe() {
    let pipe = import("perf-6.1-pipe.data");
    let run = [Ns(97_769_213), Ns(48_857_186), Ns(47_444_065), Ns(58_967)];
    assert_eq!(runs(&pipe, &[11404, 11544, 11543, 15]), (486, Ns(206_357_752), run.to_vec()));
    assert_eq!(
        pipe.recording.repairs.inconsistent_switches, 1,
        "485 events, and a switch that this machine does not tell"
    );
    assert_eq!((pipe.summary.format, pipe.summary.losses_in_all), ("perf_data", 0));
    assert!(pipe.recording.header.kernel.starts_with("6."), "{}", pipe.recording.header.kernel);
    // Behind a reader that gives what it has, one piece after another, and cut off inside its last
    // record.
    let bytes = bytes("perf-6.1-pipe.data");
    let (head, tail) = bytes.split_at(23);
    let again = read(std::io::Read::chain(head, tail), ImportOptions::default()).unwrap();
    assert_eq!(again.recording, pipe.recording);
    let cut = read(&bytes[..bytes.len() - 20], ImportOptions::default()).unwrap();
    assert!(
        cut.summary.notes.iter().any(|note| note.contains("cut off")),
        "{:?}",
        cut.summary.notes
    );
}

/// A file is read piece by piece, whatever its end says; as a stream it is held in memory. Both
/// give the same.
#[test]
fn perf_data_from_a_file_and_as_a_stream() {
    let stream = import("perf-6.1.data");
    // A switch is missing (threads of process 1 leave no trace on this machine), and was put in.
    assert_eq!(stream.recording.repairs.inconsistent_switches, 1);
    let run = [Ns(4_358_662), Ns(5_434_343), Ns(956_854)];
    assert_eq!(runs(&stream, &[26719, 26721, 26732]), (208, Ns(9_815_458), run.to_vec()));
    let file = std::fs::File::open(place("perf-6.1.data")).unwrap();
    let (mut from_file, mut from_stream) = (Vec::new(), Vec::new());
    let options = ImportOptions::default();
    schedlab_trace::import::write(Input::File(file), &mut from_file, 3, options).unwrap();
    let bytes = bytes("perf-6.1.data");
    schedlab_trace::import::write(
        Input::Stream(Box::new(&bytes[..])),
        &mut from_stream,
        3,
        options,
    )
    .unwrap();
    assert_eq!(from_file, from_stream);
    assert_eq!(Recording::read(&from_file[..]).unwrap(), stream.recording);
    let cut = read(&bytes[..bytes.len() / 2], options).unwrap_err().to_string();
    assert!(cut.contains("cut off"), "{cut}");
}

/// `perf record -z`: the records are one zstd stream in pieces.
#[test]
fn compressed_perf_data() {
    let imported = import("perf-6.1-compressed.data");
    let run = [Ns(31_974_556), Ns(26_664_899), Ns(25_559_666)];
    let (events, _, found) = runs(&imported, &[24514, 24563, 23180]);
    assert_eq!((events, found), (265, run.to_vec()));
    assert_eq!(
        imported.recording.repairs.inconsistent_switches, 2,
        "switches that this machine does not tell"
    );
}

/// A record of a perf.data behind whose own fields `sample_id` says when it was written and on
/// which CPU.
fn lost_record(kind: u32, own: &[u64], sample_type: u64, at: u64, cpu: u64) -> Vec<u8> {
    // PERF_SAMPLE_TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER, in the order of the trailer.
    let parts = [(1 << 1, 0), (1 << 2, at), (1 << 6, 0), (1 << 9, 0), (1 << 7, cpu), (1 << 16, 0)];
    let trailer = parts.iter().filter(|(part, _)| sample_type & part != 0).map(|(_, value)| *value);
    let words: Vec<u64> = own.iter().copied().chain(trailer).collect();
    let mut record = kind.to_le_bytes().to_vec();
    record.extend([0, 0]);
    record.extend((8 + 8 * words.len() as u16).to_le_bytes());
    record.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    record
}

/// perf 6.1 and later write the sum of all losses when they end: it is not lost once more.
#[test]
fn losses_of_perf_data_count_once() {
    let mut bytes = bytes("perf-6.1-pipe.data");
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    // The first record is an attribute; behind its header is the perf_event_attr.
    let sample_type = number(16 + 8 + 24);
    let start = import("perf-6.1-pipe.data").recording.header.clock_start_ns;
    let told = lost_record(2, &[0, 367], sample_type, start + 1_000_000, 1);
    let sum = |count| lost_record(13, &[count], sample_type, 0, 0);
    bytes.extend(told);
    bytes.extend(sum(300));
    let summed = read(&[&bytes[..], &sum(67)].concat()[..], ImportOptions::default()).unwrap();
    assert_eq!((summed.recording.repairs.lost, summed.summary.losses_in_all), (367, 1));
    let loss = summed.summary.losses[0];
    assert_eq!((loss.cpu, loss.count, loss.from), (1, 367, Ns::from_ms(1)));
    assert!(summed.summary.notes.is_empty(), "{:?}", summed.summary.notes);
    // More than was told: perf could not write where.
    let more = read(&[&bytes[..], &sum(100)].concat()[..], ImportOptions::default()).unwrap();
    assert_eq!(more.recording.repairs.lost, 367);
    assert!(
        more.summary.notes.iter().any(|note| note.contains("lost 33 events")),
        "{:?}",
        more.summary.notes
    );
}

/// Without tracefs (hardened hosts, containers):
/// `perf record --switch-events -a -e dummy; perf script --show-switch-events`.
#[test]
fn switches_without_tracepoints_are_read() {
    let imported = import("perf-switch-events.txt");
    let recording = &imported.recording;
    assert_eq!(recording.duration, Ns::from_ms(1));
    let (hog, pool) = (task(recording, "hog"), task(recording, "pool"));
    let tasks = &recording.header.tasks;
    assert_eq!((tasks[pool.index()].pid, tasks[pool.index()].tid), (300, 301));
    assert_eq!((tasks[hog.index()].pid, tasks[hog.index()].tid), (200, 200));
    let summary = Summary::from_recording(recording).unwrap();
    assert_eq!(summary.tasks[hog.index()].run, Ns::from_us(750));
    assert_eq!(summary.tasks[pool.index()].run, Ns::from_us(250));
    assert_eq!(summary.tasks[hog.index()].preempt_wait.max(), Ns::from_us(250));
    let has = |capability| recording.header.capabilities.has(capability);
    assert!(
        has(Capability::Preempted) && !has(Capability::WakeTimes) && !has(Capability::PrevState)
    );
}

/// Once a second RT throttling keeps two FIFO tasks off a CPU that idles for 50 ms (Red Hat,
/// 2025-03-26). Before, `--conservation` said nothing of it: it counts waits on other CPUs.
#[test]
fn waits_on_a_cpu_that_idles_are_told_apart() {
    let recording = import("ftrace-rt-throttle-idle.txt").recording;
    let scope = Scope::default();
    let (where_to, _) = allowed(&recording);
    let found = Conservation::new(&recording.header, &scope, where_to, 5);
    let found = Followed::over(&recording, &scope, found);
    assert_eq!(found.lengths.count(), 0);
    assert_eq!((found.kept.count(), found.kept.sum()), (2, Ns::from_ms(100)));
    let longest = found.kept_longest.unwrap();
    assert_eq!((longest.task, longest.cpu.0), (task(&recording, "logger"), 4));
    assert_eq!((longest.from, longest.to), (Ns::from_ms(950), Ns::from_ms(1_000)));
}

/// What people paste and no event is in: each is named, with what it can tell and the way out.
#[test]
fn reports_without_events_are_named() {
    for (file, words) in [
        ("bcc-runqslower.txt", "runqslower"),
        ("bpftrace-runqlat.txt", "a histogram of bpftrace"),
        ("cyclictest-hist.txt", "schedlab latency merge"),
        ("mpstat-steal.txt", "the output of mpstat"),
        ("perf-sched-latency.txt", "perf script -i perf.data"),
        ("proc-schedstat.txt", "/proc/schedstat"),
        ("rtla-timerlat-hist.txt", "schedlab latency merge"),
        ("xl-sched-credit2.txt", "[[vm]]"),
    ] {
        let said = refusal(file);
        assert!(said.starts_with("this is ") && said.contains(words), "{file}: {said}");
    }
    let said = refusal("trace-cmd-two-files.txt");
    assert!(said.contains("several files (trace.dat, guest.dat)"), "{said}");
}

/// What `perf sched timehist` prints, as people paste it: runs, waits and delays are in it.
#[test]
fn timehist_is_read() {
    let imported = import("perf-sched-timehist.txt");
    let recording = &imported.recording;
    let of = |comm: &str| task(recording, comm);
    let summary = Summary::from_recording(recording).unwrap();
    let [hog, srv, pool] = ["hog", "srv", "pool-2"].map(|comm| &summary.tasks[of(comm).index()]);
    assert_eq!(
        (hog.run, srv.run, pool.run),
        (Ns::from_us(750), Ns::from_us(250), Ns::from_us(700))
    );
    assert_eq!((hog.preemptions, hog.preempt_wait.max()), (1, Ns::from_us(250)));
    assert_eq!(srv.wake_latency.max(), Ns::from_us(50));
    assert_eq!(pool.wake_latency.max(), Ns::from_us(20));
    let pool = recording.task(of("pool-2"));
    assert_eq!((pool.pid, pool.tid), (300, 310));
    assert_eq!(recording.header.tasks.len(), 3, "<idle> is no task");
    let has = |capability| recording.header.capabilities.has(capability);
    assert!(has(Capability::Preempted) && has(Capability::WakeTimes));
    assert!(!has(Capability::Waker) && !has(Capability::IrqContext));
    assert!(recording.repairs.is_clean(), "{}", recording.repairs);
    assert_eq!((imported.summary.odd.count, imported.summary.damaged.count), (0, 0));
    let said = |note: &String| note.contains("not which task woke another");
    assert!(imported.summary.notes.iter().any(said), "{:?}", imported.summary.notes);
}

/// Rows of other options (-s, -w, -M, --ns) and rows that are none.
#[test]
fn timehist_of_other_options_is_read() {
    let head = "           time    cpu  task name    wait time  sch delay   run time\n";
    let rows = "  1.000100000 [0000]  a b [x][7/6]       0.000000   0.000000   0.100000  S\n\
                  1.000100000 [0000]  awakened: c[8]\n\
                  1.000300500 [0000]  c[8]               0.000000   0.000500   0.200500  R  f <- g\n\
                  1.000400000 [0000]  nobody             0.000   0.000   0.100\n";
    let imported = read(format!("{head}{rows}").as_bytes(), ImportOptions::default()).unwrap();
    let summary = Summary::from_recording(&imported.recording).unwrap();
    let run = |comm: &str| summary.tasks[task(&imported.recording, comm).index()].run;
    assert_eq!((run("a b [x]"), run("c")), (Ns::from_us(100), Ns(200_500)));
    assert_eq!(imported.summary.odd.count, 1);
}
