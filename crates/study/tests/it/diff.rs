//! `diff` on simulated recordings: it finds a planted regression of 20 %, and calls equal runs
//! equal, ten times each.

use schedlab_model::{
    Amount, ChannelId, ChannelSpec, Draw, Ns, Op, Program, SchedExt, SourceKind, SourceSpec,
    TaskSpec, Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, RunOptions};
use schedlab_study::StudyError;
use schedlab_study::change::Judgement;
use schedlab_study::diff::{Diff, DiffOptions, Recorded, diff, diff_until};
use schedlab_study::gate::{Gate, GateOutcome};
use schedlab_study::metric::{Metric, Stat};
use schedlab_trace::{Capabilities, Header, Recording, TaskInfo, Writer, save};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

const DURATION: Ns = Ns::from_s(4);

/// A server with random work of `mean` under open-loop requests, and a batch task that sleeps and
/// runs.
fn workload(mean: Ns) -> Workload {
    let random = |ops: Vec<Op>, draw: Draw| Program { draws: vec![draw], ..Program::forever(ops) };
    let serve = vec![Op::Receive(ChannelId(0)), Op::Run(Amount::Draw(0))];
    let batch = vec![Op::Run(Amount::Draw(0)), Op::Sleep(Amount::Fixed(Ns::from_ms(5)))];
    Workload {
        tasks: vec![
            TaskSpec::new(
                "server",
                random(serve, Draw::Uniform { low: Ns(mean.0 / 2), high: Ns(mean.0 * 3 / 2) }),
            ),
            TaskSpec::new("batch", random(batch, Draw::Exponential { mean: Ns::from_ms(2) })),
        ],
        channels: vec![ChannelSpec::default()],
        sources: vec![SourceSpec {
            name: "clients".to_owned(),
            into: ChannelId(0),
            kind: SourceKind::Open {
                interarrival: Draw::Exponential { mean: Ns::from_ms(1) },
                start: Ns::ZERO,
            },
            one_way: Draw::Fixed(Ns::ZERO),
        }],
        ..Workload::default()
    }
}

fn record(folder: &Path, name: &str, mean: Ns, seed: u64) -> PathBuf {
    let workload = workload(mean);
    let info = |(i, task): (usize, &TaskSpec)| {
        TaskInfo::unknown(i as u32 + 1, i as u32 + 1, task.name.clone())
    };
    let header = Header {
        capabilities: Capabilities::simulator(),
        tasks: workload.tasks.iter().enumerate().map(info).collect(),
        topology: Machine::flat(1).topology,
        ..Header::default()
    };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    let scheduler = registry::build(&"linux-6.18".parse().unwrap(), 1).unwrap();
    let options = RunOptions { seed, ..RunOptions::for_time(DURATION) };
    schedlab_sim::run(&Machine::flat(1), &workload, &*scheduler, &options, &mut writer).unwrap();
    let path = folder.join(format!("{name}-{seed}.slt"));
    std::fs::write(&path, writer.finish(DURATION).unwrap()).unwrap();
    path
}

fn response(diff: &Diff) -> Judgement {
    let server = diff.subjects.iter().find(|s| s.name == "server").unwrap();
    let p50 = Metric::Response(Stat::Percentile(50_000));
    server.cells.iter().find(|cell| cell.metric == p50).unwrap().judgement
}

#[test]
fn finds_a_planted_regression_and_calls_equal_runs_equal() {
    let folder = schedlab_testing::temp_dir().join(format!("schedlab-diff-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let gates = vec![
        Gate::parse("server response p50 > +10%").unwrap(),
        Gate::parse("server share > 90%").unwrap(),
    ];
    let options = DiffOptions { gates, ..DiffOptions::default() };
    for round in 0..10u64 {
        let before = record(&folder, "before", Ns::from_us(100), 2 * round + 1);
        let equal = record(&folder, "equal", Ns::from_us(100), 2 * round + 2);
        let slower = record(&folder, "slower", Ns::from_us(120), 2 * round + 2);
        let same = diff(&before, &equal, &options).unwrap();
        assert!(!same.told_apart() && !same.failed(), "round {round}: {}", same.verdict.outcome);
        let worse = diff(&before, &slower, &options).unwrap();
        assert_eq!(response(&worse), Judgement::Worse, "round {round}: {}", worse.verdict.outcome);
        assert!(worse.verdict.outcome.contains("server"), "{}", worse.verdict.outcome);
        assert_eq!(
            worse.gates[0].outcome,
            GateOutcome::Met,
            "round {round}: {}",
            worse.gates[0].got
        );
        assert_eq!(worse.gates[1].outcome, GateOutcome::Not);
        assert_eq!(
            diff(&before, &slower, &options).unwrap(),
            worse,
            "equal seeds give equal intervals"
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// What is needed no more ends before it is done.
#[test]
fn a_diff_that_is_ended_stops() {
    let folder =
        schedlab_testing::temp_dir().join(format!("schedlab-ended-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = record(&folder, "one", Ns::from_us(100), 1);
    let options = DiffOptions::default();
    let asked = AtomicUsize::new(0);
    let whole = diff_until(&file, &file, &options, &|| {
        asked.fetch_add(1, Ordering::Relaxed);
        false
    });
    assert!(whole.is_ok());
    let all = asked.load(Ordering::Relaxed);
    assert!(all > 80, "it looks in each window of both: {all}");
    for end in [1, all / 2, all] {
        let looks = AtomicUsize::new(0);
        let ended = || looks.fetch_add(1, Ordering::Relaxed) + 1 >= end;
        let found = diff_until(&file, &file, &options, &ended);
        assert!(matches!(found, Err(StudyError::Stopped)), "at look {end} of {all}: {found:?}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Says in the file of a recording which sched_ext scheduler was loaded at its beginning and at its
/// end.
fn made_under(path: &Path, begin: Option<&str>, end: Option<&str>) {
    let mut recording = Recording::open(path).unwrap();
    let at = |ops: Option<&str>| {
        let state = if ops.is_some() { "enabled" } else { "disabled" };
        Some(SchedExt {
            state: state.to_owned(),
            ops: ops.map(str::to_owned),
            enable_seq: Some(u64::from(ops.is_some())),
            switch_all: Some(ops.is_some()),
        })
    };
    recording.header.sched_ext = at(begin);
    recording.header.sched_ext_end = at(end);
    // What was read is not written over: the new one is another file.
    std::fs::remove_file(path).unwrap();
    save(&recording, path).unwrap();
}

#[test]
fn a_diff_says_under_which_schedulers_its_sides_were_recorded() {
    let all =
        schedlab_testing::temp_dir().join(format!("schedlab-diff-ext-{}", std::process::id()));
    let (own, ext) =
        (folder(&all.join("own"), &[100; 3], 1), folder(&all.join("lavd"), &[100; 3], 11));
    let of = |seed: u64| ext.join(format!("run-{seed}.slt"));
    let notes = || diff(&own, &ext, &DiffOptions::default()).unwrap().notes.join("\n");
    // Nothing is said where it is the kernel's own everywhere.
    assert_eq!(notes(), "");
    (11..14).for_each(|seed| made_under(&of(seed), Some("lavd"), Some("lavd")));
    assert_eq!(
        notes(),
        "Before was recorded under the kernel's own scheduler, after under the sched_ext \
         scheduler lavd."
    );
    let both = diff(&ext, &ext, &DiffOptions::default()).unwrap();
    assert_eq!(both.notes, ["Both were recorded under the sched_ext scheduler lavd."]);
    let known = Recorded { sched_ext: Some("lavd".to_owned()), recordings: 3, changed: 0 };
    assert_eq!(both.after.schedulers, [known]);
    made_under(&of(12), None, None);
    made_under(&of(13), Some("lavd"), None);
    let mixed = notes();
    assert!(
        mixed.contains("2 under the sched_ext scheduler lavd, 1 under the kernel's own scheduler"),
        "{mixed}"
    );
    assert!(mixed.contains("in 1 of 3 recordings a sched_ext scheduler came or went"), "{mixed}");
    std::fs::remove_dir_all(&all).unwrap();
}

/// A folder with recordings of servers that need so many microseconds.
fn folder(path: &Path, means: &[u64], seed: u64) -> PathBuf {
    std::fs::create_dir_all(path).unwrap();
    for (mean, seed) in means.iter().zip(seed..) {
        record(path, "run", Ns::from_us(*mean), seed);
    }
    path.to_owned()
}

#[test]
fn folders_know_how_much_recordings_of_one_setup_differ() {
    let all =
        schedlab_testing::temp_dir().join(format!("schedlab-diff-folders-{}", std::process::id()));
    // A machine that is up to a tenth slower or faster from one recording to the next, taken in
    // turns.
    let before = folder(&all.join("before"), &[92, 108, 100, 95, 104, 98], 1);
    let equal = folder(&all.join("equal"), &[107, 93, 101, 103, 96, 99], 11);
    let slower = folder(&all.join("slower"), &[112, 129, 121, 114, 126, 118], 21);
    let gates = vec![Gate::parse("server response p50 > +10%").unwrap()];
    let options = DiffOptions { gates, ..DiffOptions::default() };
    let file = |folder: &Path, seed: u64| folder.join(format!("run-{seed}.slt"));
    let one = diff(&file(&before, 1), &file(&equal, 11), &options).unwrap();
    assert!(one.failed(), "one recording each does not know it: {}", one.verdict.outcome);
    let same = diff(&before, &equal, &options).unwrap();
    assert!(!same.told_apart() && !same.failed(), "{}", same.verdict.outcome);
    assert_eq!((same.before.recordings, same.after.recordings), (6, 6));
    assert_eq!(same.before.duration_ns, 6 * DURATION.0);
    assert!(same.verdict.certainty.contains("between the recordings of each side (6 and 6)"));
    let worse = diff(&before, &slower, &options).unwrap();
    assert!(worse.failed(), "{}: {}", worse.verdict.outcome, worse.gates[0].got);
    assert_eq!(response(&worse), Judgement::Worse);
    assert_eq!(
        diff(&before, &slower, &options).unwrap(),
        worse,
        "equal seeds give equal intervals"
    );

    // Sides of different size: what the second has more of counts too.
    let more = folder(&all.join("more"), &[102, 97, 104, 96, 101, 99, 103, 98], 41);
    let (few, many) =
        (diff(&before, &more, &options).unwrap(), diff(&more, &before, &options).unwrap());
    assert!(!few.told_apart() && !many.told_apart(), "{}", few.verdict.outcome);
    let values = |diff: &Diff| {
        let cells = diff.subjects.iter().flat_map(|subject| &subject.cells);
        cells.map(|cell| (cell.before, cell.after)).collect::<Vec<_>>()
    };
    assert_eq!(values(&few), values(&many).into_iter().map(|(a, b)| (b, a)).collect::<Vec<_>>());

    let two = folder(&all.join("two"), &[100, 101], 31);
    let why = diff(&before, &two, &options).unwrap_err().to_string();
    assert!(why.contains("at least 3 recordings") && why.contains("it holds 2"), "{why}");
    let why = diff(&before, &file(&two, 31), &options).unwrap_err().to_string();
    assert!(why.contains("two recordings, or two folders"), "{why}");
    std::fs::remove_dir_all(&all).unwrap();
}
