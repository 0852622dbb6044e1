//! The replay of the first half of a recording against its second half.

use super::limits::record;
use schedlab_model::{
    Amount, ChannelId, ChannelSpec, CpuId, CpuSet, Ns, Op, Program, Start, TaskId, TaskSpec,
    Workload,
};
use schedlab_study::compare::{Options, RecordedInput, compare_recording};
use schedlab_study::metric::Metric;
use schedlab_study::result::SelfReplay;

const TO_SERVER: ChannelId = ChannelId(0);
const TO_CLIENT: ChannelId = ChannelId(1);

/// On one CPU: a server whose requests cost so much, its client, and a hog.
fn workload(requests: impl Iterator<Item = Ns>) -> Workload {
    let run = |ns| Op::Run(Amount::Fixed(ns));
    let send = |channel| Op::Send { channel, count: 1 };
    let server = requests.flat_map(|ns| [Op::Receive(TO_SERVER), run(ns), send(TO_CLIENT)]);
    let client = [send(TO_SERVER), Op::Receive(TO_CLIENT), run(Ns::from_us(100))];
    let mut tasks = vec![
        TaskSpec::new("server", Program::once(server)),
        TaskSpec::new("client", Program::forever(client)),
        TaskSpec::new("hog", Program::hog()),
    ];
    tasks.iter_mut().for_each(|task| task.affinity = CpuSet::single(CpuId(0)));
    let channels = ["to server", "to client"]
        .map(|name| ChannelSpec { name: name.to_owned(), ..ChannelSpec::default() });
    Workload { tasks, channels: channels.into(), ..Workload::default() }
}

fn self_replay(name: &str, requests: impl Iterator<Item = Ns>) -> SelfReplay {
    let input = RecordedInput::open(&record(name, &workload(requests))).unwrap();
    let options = Options { jobs: 1, repetitions: Some(1), ..Options::default() };
    compare_recording(&input, None, &options, &|_, _| {}).unwrap().self_replay.unwrap()
}

#[test]
fn a_load_that_stays_what_it_was_is_trusted() {
    let steady = self_replay("steady.slt", std::iter::repeat_n(Ns::from_us(100), 100_000));
    assert!(steady.trusted, "{:?}", steady.distrust);
    assert_eq!(steady.second_half.len(), 3, "{:?}", steady.second_half);
    for half in &steady.second_half {
        assert!((half.simulated - half.recorded).abs() < 0.02, "{half:?}");
    }
}

/// After half of the recording a request costs thirty times as much. The whole replays itself well,
/// and says nothing of any other time.
#[test]
fn a_load_that_changes_is_not_trusted() {
    let costs = (0..100_000).map(|request| Ns::from_us(if request < 3_750 { 100 } else { 3_000 }));
    let changed = self_replay("changed.slt", costs);
    assert!(!changed.trusted);
    let why = changed.distrust.join("; ");
    assert!(why.contains("in the second half of the recording"), "{why}");
    assert!(!why.contains("of a CPU recorded"), "the self-replay is good: {why}");
}

/// The server is done early in the second half: the hog has all of it.
#[test]
fn of_a_load_that_ends_the_halves_say_nothing() {
    let ends = self_replay("ends.slt", std::iter::repeat_n(Ns::from_us(100), 4_500));
    assert!(
        ends.second_half.is_empty() && ends.trusted,
        "{:?} {:?}",
        ends.second_half,
        ends.distrust
    );
}

/// On one CPU beside a hog: a task that starts one command after the other, each of 50 ms. Nothing
/// in the recording happens twice.
fn commands() -> Workload {
    const MAKE: ChannelId = ChannelId(0);
    let count = 60;
    let begin = |command: u32| [Op::Spawn(TaskId(2 + command)), Op::Receive(MAKE)];
    let mut tasks = vec![
        TaskSpec::new("make", Program::once((0..count).flat_map(begin))),
        TaskSpec::new("hog", Program::hog()),
    ];
    let work = [Op::Run(Amount::Fixed(Ns::from_ms(50))), Op::Send { channel: MAKE, count: 1 }];
    let command = TaskSpec { start: Start::Spawned, ..TaskSpec::new("cc1", Program::once(work)) };
    tasks.extend((0..count).map(|_| command.clone()));
    tasks.iter_mut().for_each(|task| task.affinity = CpuSet::single(CpuId(0)));
    let channels = vec![ChannelSpec { name: "make".to_owned(), ..ChannelSpec::default() }];
    Workload { tasks, channels, ..Workload::default() }
}

#[test]
fn a_build_goes_on_when_its_recorded_commands_are_done() {
    let input = RecordedInput::open(&record("commands.slt", &commands())).unwrap();
    let variants = vec!["hog policy=idle".to_owned()];
    let options = Options { jobs: 1, repetitions: Some(1), variants, ..Options::default() };
    let study = compare_recording(&input, None, &options, &|_, _| {}).unwrap();
    let share = |row: usize| {
        let class = study.rows[row].subjects.iter().find(|subject| subject.name == "cc1").unwrap();
        class.cells.iter().find(|cell| cell.metric == Metric::Share).unwrap().value.median
    };
    let replay = study.self_replay.as_ref().unwrap();
    assert!(replay.trusted, "{:?}", replay.distrust);
    let half = replay.second_half.iter().find(|half| half.name == "cc1").unwrap();
    assert!((half.simulated - half.recorded).abs() < 0.05, "{half:?}");
    // Half of the CPU, and nearly all of it.
    assert!((share(0) - 0.5).abs() < 0.03 && share(1) > 0.95, "{} {}", share(0), share(1));
}
