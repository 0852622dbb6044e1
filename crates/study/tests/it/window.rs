//! A comparison of the first part of a recording reads that part, and the tasks of later parts cost
//! nothing but their names.

use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId, Waker};
use schedlab_study::StudyError;
use schedlab_study::compare::request::CompareRequest;
use schedlab_study::compare::{Options, RecordedInput, ReplayFrom, compare_recording};
use schedlab_study::gallery::Found;
use schedlab_trace::import;
use schedlab_trace::{Capabilities, Header, Index, Recording, TaskInfo, Writer};
use std::path::{Path, PathBuf};

/// Writes what a recorder sees of a server that creates a thread every millisecond, each for a
/// request; the file's tables grow as its events do.
fn created(name: &str, threads: u32) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let header = Header {
        backend: "bpf".to_owned(),
        kernel: "6.18.44".to_owned(),
        hz: 250,
        capabilities: Capabilities::simulator(),
        tasks: vec![TaskInfo::unknown(1, 1, "server")],
        ..Header::default()
    };
    let file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    let mut writer = Writer::new(file, &header).unwrap();
    let (server, cpu) = (TaskId(0), CpuId(0));
    for number in 1..=threads {
        let at = Ns::from_ms(u64::from(number));
        let thread =
            writer.add_task(TaskInfo::unknown(1, 1 + number, format!("request-{}", number % 10)));
        let on = |prev, prev_state, next| EventKind::Switch { prev, prev_state, next };
        for (us, kind) in [
            (0, EventKind::Wake { task: server, waker: Waker::HardIrq }),
            (2, on(None, PrevState::Runnable, Some(server))),
            (20, EventKind::New { task: thread, parent: Some(server) }),
            (40, on(Some(server), PrevState::Sleeping, Some(thread))),
            (240 + u64::from(number % 7) * 10, EventKind::Exit { task: thread }),
            (245 + u64::from(number % 7) * 10, on(Some(thread), PrevState::Dead, None)),
        ] {
            writer.event(&SchedEvent { at: at + Ns::from_us(us), cpu, kind });
        }
    }
    writer.finish(Ns::from_ms(u64::from(threads) + 1)).unwrap().into_inner().unwrap();
    path
}

fn first_of(path: &Path, length: Option<Ns>) -> Result<RecordedInput, StudyError> {
    RecordedInput::read(path, ReplayFrom::default(), length)
}

const FIRST: Ns = Ns::from_ms(500);

/// All that a comparison says, without the name of its file.
fn compared(input: &RecordedInput, duration: Option<Ns>) -> String {
    let options = Options {
        jobs: 1,
        repetitions: Some(1),
        duration,
        variants: vec!["v: request-3 nice=5".to_owned()],
        ..Options::default()
    };
    let mut study = compare_recording(input, None, &options, &|_, _| {}).unwrap();
    study.input.name = String::new();
    serde_json::to_string(&study).unwrap()
}

/// A file of 600 threads and one of 6,000 say the same of their first half second, from the same
/// number of events and tasks.
#[test]
fn what_comes_later_is_not_read() {
    let (short, long) = (created("window-short.slt", 600), created("window-long.slt", 6_000));
    let [of_short, of_long] = [&short, &long].map(|path| first_of(path, Some(FIRST)).unwrap());
    let tasks = |input: &RecordedInput| input.found().0.tasks.len();
    let read =
        |input: &RecordedInput| (input.found().1.report.activations, input.found().1.duration);
    // The server, and a thread a millisecond.
    assert_eq!((tasks(&of_short), tasks(&of_long)), (500, 500));
    assert_eq!(read(&of_short), read(&of_long));
    let said = compared(&of_long, Some(FIRST));
    assert_eq!(said, compared(&of_short, Some(FIRST)));
    // An input that was read whole is read again for a shorter time.
    assert_eq!(said, compared(&RecordedInput::open(&short).unwrap(), Some(FIRST)));
    // Blocks of later times are not read: one that is damaged does not matter.
    let mut bytes = std::fs::read(&long).unwrap();
    let last =
        Index::open(&long).unwrap().blocks.into_iter().rfind(|block| block.records > 0).unwrap();
    assert!(last.first > FIRST);
    let at = last.offset as usize + 100;
    bytes[at..at + 64].fill(0xff);
    let damaged = long.with_file_name("window-damaged.slt");
    std::fs::write(&damaged, bytes).unwrap();
    assert!(RecordedInput::open(&damaged).is_err(), "the whole is damaged");
    assert_eq!(compared(&first_of(&damaged, Some(FIRST)).unwrap(), Some(FIRST)).len(), said.len());
}

/// A recording of a kernel that no scheduler models is refused by its header: what is wrong with
/// its events is not met.
#[test]
fn a_kernel_that_is_not_modelled_is_refused_before_the_events_are_read() {
    let path = created("window-kernel.slt", 600);
    let mut whole = Recording::open(&path).unwrap();
    whole.header.kernel = "plan9".to_owned();
    let mut writer = Writer::new(std::fs::File::create(&path).unwrap(), &whole.header).unwrap();
    whole.events.iter().for_each(|event| writer.event(event));
    writer.finish(whole.duration).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let blocks = Index::open(&path).unwrap().blocks;
    let first = blocks.into_iter().find(|block| block.records > 0).unwrap();
    let at = first.offset as usize + 100;
    bytes[at..at + 64].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let arguments = CompareRequest::default();
    let refused = arguments.read(Found::Recording(path)).unwrap_err().to_string();
    assert!(refused.contains("kernel of the recording's header"), "{refused}");
    assert!(refused.contains("--recorded-under"), "{refused}");
}

/// Counts what is read.
struct Counted<'a>(&'a [u8], &'a std::cell::Cell<usize>);
impl std::io::Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = std::io::Read::read(&mut self.0, buffer)?;
        self.1.set(self.1.get() + read);
        Ok(read)
    }
}

/// The text of another tool is read as far as its events can be wanted.
#[test]
fn a_trace_is_read_to_the_end_of_the_window() {
    let path = created("window-text.slt", 20_000);
    let whole = Recording::open(&path).unwrap();
    let mut text = Vec::new();
    schedlab_trace::export::ftrace(&whole, &mut text).unwrap();
    let first = |until: Option<Ns>| {
        let read = std::cell::Cell::new(0);
        let input = std::io::BufReader::with_capacity(1 << 16, Counted(&text, &read));
        let options = import::ImportOptions { until, ..import::ImportOptions::default() };
        let recording = import::read(input, options).unwrap().recording;
        (recording, read.get())
    };
    let (all, read) = first(None);
    assert_eq!(read, text.len());
    // The events that are held back until it is clear what they are, and as many behind the end.
    let (part, read) = first(Some(FIRST));
    assert!(read < text.len() / 2, "{read} of {} bytes", text.len());
    let [some, all_tasks] = [&part, &all].map(|recording| recording.header.tasks.len());
    assert!(all_tasks > 20_000 && some < all_tasks / 5, "{some} of {all_tasks} tasks");
    // Those that are held back until the start is known are there, too.
    assert!(part.duration < all.duration / 5, "{}", part.duration);
    let within = |recording: &Recording| {
        recording.events.iter().filter(|event| event.at <= FIRST).copied().collect::<Vec<_>>()
    };
    assert_eq!(within(&part), within(&all));
}

/// What `show` says of a window is what it says of it in the whole, and its length is that of the
/// whole.
#[test]
fn an_end_takes_nothing_from_what_is_before_it() {
    let path = created("window-show.slt", 3_000);
    let (whole, part) =
        (Recording::open(&path).unwrap(), Recording::open_up_to(&path, FIRST).unwrap());
    assert_eq!((part.duration, &part.header), (whole.duration, &whole.header));
    assert_eq!(part.events, whole.events[..part.events.len()]);
    assert_eq!(part.events.len(), whole.events.iter().filter(|event| event.at <= FIRST).count());
}

/// A task that comes later is named, not unknown.
#[test]
fn a_target_that_comes_later_is_told() {
    let input = first_of(&created("window-later.slt", 600), Some(Ns::from_ms(3))).unwrap();
    let options =
        Options { variants: vec!["v: request-7 nice=5".to_owned()], ..Options::default() };
    let error = compare_recording(&input, None, &options, &|_, _| {}).unwrap_err().to_string();
    assert!(error.contains("`request-7` does nothing in the first 3.00ms"), "{error}");
}

/// `switches` switches between two tasks, which wake each other, as `perf script` prints them or as
/// ftrace does.
fn text_of(switches: usize, ftrace: bool) -> String {
    let (flags, event) = if ftrace { (" d.h3.", "sched_") } else { ("", "sched:sched_") };
    let mut text = String::from(if ftrace { "# tracer: nop\n#\n" } else { "" });
    for at in 0..switches {
        let (own, other) = if at % 2 == 0 { ("a", "b") } else { ("b", "a") };
        let (own_tid, tid) = if at % 2 == 0 { (100, 200) } else { (200, 100) };
        let head = |us: usize| {
            let time = format!("{}.{:06}:", 10 + us / 1_000_000, us % 1_000_000);
            match ftrace {
                true => format!("{own:>16}-{own_tid:<5} [000]{flags} {time} {event}"),
                false => format!("{own:>16} {own_tid:>5} [000] {time} {event}"),
            }
        };
        text +=
            &format!("{}waking: comm={other} pid={tid} prio=120 target_cpu=000\n", head(at * 10));
        text += &format!(
            "{}switch: prev_comm={own} prev_pid={own_tid} prev_prio=120 prev_state=S ==> \
             next_comm={other} next_pid={tid} next_prio=120\n",
            head(at * 10 + 5)
        );
    }
    text
}

/// What a text says of itself at its beginning decides whether it can be replayed: the rest of a
/// large one is not read, and the sentence says what the file is good for nevertheless.
#[test]
fn a_text_that_cannot_be_replayed_is_refused_from_its_beginning() {
    use import::{ImportOptions, Purpose};
    let outcome = |text: &str, purpose: Purpose| {
        let read = std::cell::Cell::new(0);
        let input = std::io::BufReader::with_capacity(1 << 14, Counted(text.as_bytes(), &read));
        let options = ImportOptions { purpose, ..ImportOptions::default() };
        let said = import::read(input, options).map(|_| ()).map_err(|error| error.to_string());
        (said, read.get() as f64 / text.len() as f64)
    };
    let [perf, ftrace] = [false, true].map(|ftrace| text_of(20_000, ftrace));
    for purpose in [Purpose::Replay, Purpose::ReplayOfKernel] {
        let (said, part) = outcome(&perf, purpose);
        let said = said.unwrap_err();
        assert!(said.contains("replay needs waker, irq-context"), "{said}");
        assert!(said.contains("--current-is-waker"), "{said}");
        assert!(said.contains("`schedlab show`, `diff` and `export` read the file"), "{said}");
        assert!(part < 0.05, "{part}");
    }
    let (said, part) = outcome(&ftrace, Purpose::ReplayOfKernel);
    let said = said.unwrap_err();
    assert!(said.contains("does not name its kernel") && said.contains("--recorded-under"));
    assert!(said.contains("`schedlab show`, `diff` and `export` read the file"), "{said}");
    assert!(part < 0.05, "{part}");
    // What can be done is done: any other purpose, and a scheduler that is named.
    for (text, purpose) in [(&perf, Purpose::Any), (&ftrace, Purpose::Replay)] {
        assert_eq!(outcome(text, purpose), (Ok(()), 1.0));
    }
    let named = ftrace.replacen("# tracer: nop\n", "# nop latency trace v1.1.5 on 6.1.0\n", 1);
    assert_eq!(outcome(&named, Purpose::ReplayOfKernel), (Ok(()), 1.0));
}

/// `compare` asks so, whatever the length: a line behind the beginning that is no text of a tracer
/// is not reached.
#[test]
fn compare_refuses_a_text_before_it_has_read_it() {
    use schedlab_study::compare::request::{CompareRequest, option};
    use schedlab_study::gallery::Found;
    let said = |name: &str, text: &str, under: Option<&str>| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, text).unwrap();
        let mut request = CompareRequest::default();
        under.iter().for_each(|under| {
            request.set(option("recorded_under").unwrap(), under).unwrap();
        });
        request.read(Found::Recording(path)).map(|_| ()).map_err(|error| error.to_string())
    };
    let unreadable = "x".repeat(2 << 20);
    for (switches, end) in [(100, ""), (2_000, &*unreadable)] {
        let [perf, ftrace] = [false, true].map(|ftrace| text_of(switches, ftrace) + end);
        let of_perf = said("refused-perf.txt", &perf, Some("linux-6.18")).unwrap_err();
        assert!(of_perf.contains("replay needs waker, irq-context"), "{of_perf}");
        if switches > 1_000 {
            let of_ftrace = said("refused-ftrace.txt", &ftrace, None).unwrap_err();
            assert!(of_ftrace.contains("does not name its kernel"), "{of_ftrace}");
        }
    }
    assert_eq!(said("taken.txt", &text_of(100, true), Some("linux-6.18")), Ok(()));
}
