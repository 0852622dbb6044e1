//! What-if for limits: from a recording under `cpu.max`, what the workload does without it, and the
//! other way round, through the file and `compare`. Held against the direct simulation of the other
//! setting.

use schedlab_model::{
    Amount, Bandwidth, CpuId, CpuSet, GroupId, GroupSpec, Ns, Op, Program, SchedEvent, SchedExt,
    TaskId, TaskSpec, Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, RunOptions};
use schedlab_study::compare::{Options, RecordedInput, compare_recording};
use schedlab_study::measurements::Kind;
use schedlab_study::metric::Metric;
use schedlab_trace::{Capabilities, GroupInfo, Header, Recording, TaskInfo, save};
use std::path::{Path, PathBuf};

const DURATION: Ns = Ns::from_s(3);
const NAMES: [&str; 3] = ["server", "hog", "worker"];
const LIMIT: Bandwidth =
    Bandwidth { quota: Ns::from_ms(20), period: Ns::from_ms(100), burst: Ns::ZERO };

/// On one CPU: a server that wants a tenth of it; in group `/batch` a hog, and a worker that pauses
/// for 5 ms after each 5 ms of work.
fn workload(limit: Option<Bandwidth>) -> Workload {
    let in_turn = |run, sleep| {
        Program::forever([Op::Run(Amount::Fixed(run)), Op::Sleep(Amount::Fixed(sleep))])
    };
    let mut tasks = vec![
        TaskSpec::new(NAMES[0], in_turn(Ns::from_us(100), Ns::from_us(900))),
        TaskSpec::new(NAMES[1], Program::hog()),
        TaskSpec::new(NAMES[2], in_turn(Ns::from_ms(5), Ns::from_ms(5))),
    ];
    for (index, task) in tasks.iter_mut().enumerate() {
        task.affinity = CpuSet::single(CpuId(0));
        task.group = if index == 0 { GroupId::ROOT } else { GroupId(1) };
    }
    let group = |name: &str, parent, bandwidth| GroupSpec {
        name: name.to_owned(),
        parent,
        bandwidth,
        ..GroupSpec::default()
    };
    let groups = vec![group("/", None, None), group("/batch", Some(GroupId::ROOT), limit)];
    Workload { groups, tasks, ..Workload::default() }
}

fn simulate(workload: &Workload) -> (Vec<SchedEvent>, [f64; 3]) {
    let scheduler = registry::build(&"linux-6.18".parse().unwrap(), 1).unwrap();
    let mut events: Vec<SchedEvent> = Vec::new();
    let options = RunOptions::for_time(DURATION);
    let outcome =
        schedlab_sim::run(&Machine::flat(1), workload, &*scheduler, &options, &mut events).unwrap();
    (events, [0, 1, 2].map(|task| outcome.metrics.share(TaskId(task))))
}

/// Writes a recording of the workload.
pub(crate) fn record(name: &str, workload: &Workload) -> PathBuf {
    let info = |(i, task): (usize, &TaskSpec)| TaskInfo {
        affinity: task.affinity,
        group: task.group,
        ..TaskInfo::unknown(i as u32 + 1, i as u32 + 1, task.name.clone())
    };
    let header = Header {
        backend: "simulator".to_owned(),
        kernel: "6.18.44".to_owned(),
        hz: 250,
        topology: Machine::flat(1).topology,
        capabilities: Capabilities::simulator(),
        tasks: workload.tasks.iter().enumerate().map(info).collect(),
        groups: workload.groups.iter().cloned().map(GroupInfo::from).collect(),
        ..Header::default()
    };
    let (events, _) = simulate(workload);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    save(&Recording { header, events, duration: DURATION, ..Recording::default() }, &path).unwrap();
    path
}

/// The shares of the three tasks as recorded and with the variant, from the file.
fn predicted(path: &Path, variant: &str) -> [[f64; 3]; 2] {
    let input = RecordedInput::open(path).unwrap();
    let options = Options { jobs: 1, variants: vec![variant.to_owned()], ..Options::default() };
    let study = compare_recording(&input, None, &options, &|_, _| {}).unwrap();
    assert_eq!(study.rows.len(), 2);
    [0, 1].map(|row| {
        NAMES.map(|name| {
            let all = &study.rows[row].subjects;
            let subject = all.iter().find(|s| s.kind == Kind::Class && s.name == name).unwrap();
            subject.cells.iter().find(|cell| cell.metric == Metric::Share).unwrap().value.median
        })
    })
}

fn within_a_point(what: &str, is: [f64; 3], should: [f64; 3]) {
    for (task, (is, should)) in is.into_iter().zip(should).enumerate() {
        assert!((is - should).abs() < 0.01, "{what}, {}: {is:.3}, direct {should:.3}", NAMES[task]);
    }
}

#[test]
fn a_limit_can_be_taken_away() {
    let (limited, free) = (workload(Some(LIMIT)), workload(None));
    let (_, with) = simulate(&limited);
    let (_, without) = simulate(&free);
    // The limit binds, and taking it away matters to both of the group.
    assert!(
        (with[1] + with[2] - 0.2).abs() < 0.01 && without[1] > with[1] + 0.2,
        "{with:?} {without:?}"
    );
    let [own, lifted] = predicted(&record("limited.slt", &limited), "no limit: /batch cpu.max=max");
    within_a_point("as recorded", own, with);
    within_a_point("no limit", lifted, without);
}

#[test]
fn a_limit_can_be_set() {
    let (_, with) = simulate(&workload(Some(LIMIT)));
    let path = record("unlimited.slt", &workload(None));
    let [_, limited] = predicted(&path, "limit: /batch cpu.max=20ms/100ms");
    within_a_point("limit", limited, with);
}

#[test]
fn a_recording_of_a_sched_ext_scheduler_is_not_trusted() {
    let path = record("sched_ext.slt", &workload(None));
    let distrust = |path: &Path| {
        let options = Options { jobs: 1, ..Options::default() };
        let study =
            compare_recording(&RecordedInput::open(path).unwrap(), None, &options, &|_, _| {})
                .unwrap();
        let replay = study.self_replay.unwrap();
        assert_eq!(replay.trusted, replay.distrust.is_empty());
        replay.distrust.join("; ")
    };
    assert_eq!(distrust(&path), "");
    let mut recording = Recording::open(&path).unwrap();
    recording.header.sched_ext = Some(SchedExt {
        state: "enabled".to_owned(),
        ops: Some("lavd".to_owned()),
        enable_seq: Some(1),
        switch_all: Some(true),
    });
    save(&recording, &path).unwrap();
    let why = distrust(&path);
    assert!(
        why.contains("under the sched_ext scheduler lavd, for which there is no model"),
        "{why}"
    );
    // What it offers can be asked for.
    let offered: Vec<&str> = why.split("--scheduler ").skip(1).collect();
    assert_eq!(offered.len(), 4, "{why}");
    for name in offered {
        registry::find(name.split([' ', '`']).next().unwrap()).unwrap();
    }
}
