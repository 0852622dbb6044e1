//! A recording with messages, replayed from them: what a direct simulation of the change gives is
//! what is predicted.

use schedlab_model::{
    Act, Amount, CpuId, CpuSet, EventSink, Fact, FactKind, Holds, Ns, ObjectId, ObjectInfo,
    ObjectKind, ObjectSpec, Op, Policy, Program, SchedEvent, Script, ScriptId, Step, TaskId,
    TaskSpec, Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, RunOptions};
use schedlab_study::change::Judgement;
use schedlab_study::compare::{
    CLIENT_LOG, ClientLogSpec, Options, RecordedInput, ReplayFrom, compare_recording,
};
use schedlab_study::measurements::Kind;
use schedlab_study::metric::{Metric, Stat};
use schedlab_study::result::{Row, Study};
use schedlab_trace::{Capabilities, Capability, Facts, Header, Recording, TaskInfo, save};
use std::path::{Path, PathBuf};

const DURATION: Ns = Ns::from_s(2);
const SERVICE: &str = "requests at TCP :7000";

/// Keeps events and facts.
#[derive(Default)]
struct Both {
    events: Vec<SchedEvent>,
    facts: Vec<Fact>,
}

impl EventSink for Both {
    fn event(&mut self, event: &SchedEvent) {
        self.events.push(*event);
    }

    fn fact(&mut self, fact: &Fact) {
        self.facts.push(*fact);
    }
}

/// On one CPU: a server, its client, and a hog of this policy.
fn workload(hog: Policy) -> Workload {
    let mut workload = Workload::default();
    let object = |name: &str| ObjectSpec {
        name: name.to_owned(),
        holds: Holds::Stream,
        initial: 0,
        room: None,
        sync: true,
        answered_in: None,
    };
    workload.exchange.objects = vec![object("requests"), object("answers")];
    let send = |object| Act::Send { object: ObjectId(object), amount: 100 };
    let receive = |object| Act::Receive { object: ObjectId(object), amount: 100, whole: false };
    let step = |us, act| Step::new(Ns::from_us(us), act, Ns::from_us(1));
    let play = |steps: Vec<Step>| Script { steps, repeat_from: Some(0), ..Script::default() };
    workload.exchange.scripts = vec![
        play(vec![step(0, receive(0)), step(200, send(1))]),
        play(vec![step(50, send(0)), step(0, receive(1))]),
    ];
    let script = |number| Program::once([Op::Play(ScriptId(number))]);
    workload.tasks = vec![
        TaskSpec::new("server", script(0)),
        TaskSpec::new("client", script(1)),
        TaskSpec {
            policy: hog,
            ..TaskSpec::new("hog", Program::once([Op::Run(Amount::Fixed(Ns::from_s(60)))]))
        },
    ];
    workload.tasks.iter_mut().for_each(|task| task.affinity = CpuSet::single(CpuId(0)));
    workload
}

/// Simulates the workload into a file; `facts`: with what its tasks exchange.
fn record(name: &str, hog: Policy, facts: bool) -> PathBuf {
    let workload = workload(hog);
    let scheduler = registry::build(&"linux-6.18".parse().unwrap(), 1).unwrap();
    let mut both = Both::default();
    schedlab_sim::run(
        &Machine::flat(1),
        &workload,
        &*scheduler,
        &RunOptions::for_time(DURATION),
        &mut both,
    )
    .unwrap();
    let info = |(i, task): (usize, &TaskSpec)| TaskInfo {
        policy: task.policy,
        affinity: task.affinity,
        ..TaskInfo::unknown(i as u32 + 1, i as u32 + 1, task.name.clone())
    };
    let mut capabilities = Capabilities::simulator();
    if facts {
        capabilities.0.insert(Capability::Messages.name().to_owned());
    }
    let header = Header {
        backend: "simulator".to_owned(),
        kernel: "6.18.44".to_owned(),
        hz: 250,
        topology: Machine::flat(1).topology,
        capabilities,
        tasks: workload.tasks.iter().enumerate().map(info).collect(),
        ..Header::default()
    };
    let end = |from: &str, to: &str, peer| ObjectInfo {
        from: from.to_owned(),
        to: to.to_owned(),
        peer: Some(ObjectId(peer)),
        ..ObjectInfo::of_kind(ObjectKind::Tcp)
    };
    let (client, server) = ("127.0.0.1:40000", "127.0.0.1:7000");
    let objects = vec![end(client, server, 1), end(server, client, 0)];
    let facts = if facts { Facts { objects, list: both.facts } } else { Facts::default() };
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let recording = Recording {
        header,
        events: both.events,
        facts,
        duration: DURATION,
        ..Recording::default()
    };
    save(&recording, &path).unwrap();
    path
}

fn value(row: &Row, kind: Kind, name: &str, metric: Metric) -> f64 {
    row.find(kind, name).unwrap().cell(metric).unwrap().value.median
}

fn compared(path: &Path) -> Study {
    let input = RecordedInput::open_from(path, ReplayFrom::Messages).unwrap();
    let variants = vec!["batch idle: hog policy=idle".to_owned()];
    let options = Options { jobs: 1, repetitions: Some(1), variants, ..Options::default() };
    compare_recording(&input, None, &options, &|_, _| {}).unwrap()
}

#[test]
fn what_a_change_would_do_is_what_a_direct_simulation_of_it_does() {
    let study = compared(&record("messages-other.slt", Policy::Other, true));
    let replay = study.self_replay.as_ref().unwrap();
    assert_eq!(replay.replay, "messages");
    assert!(replay.trusted, "{:?}", replay.distrust);
    assert!(replay.assumptions.contains("replay by messages"), "{}", replay.assumptions);
    let direct = compared(&record("messages-idle.slt", Policy::Idle, true));
    let (predicted, came) = (&study.rows[1], &direct.rows[0]);
    for task in ["server", "client", "hog"] {
        let of = |row| value(row, Kind::Class, task, Metric::Share);
        assert!(
            (of(predicted) - of(came)).abs() < 0.01,
            "{task}: {} and {}",
            of(predicted),
            of(came)
        );
    }
    for metric in [Metric::Throughput, Metric::Response(Stat::Percentile(50_000))] {
        let of = |row| value(row, Kind::Channel, SERVICE, metric);
        let (predicted, came) = (of(predicted), of(came));
        assert!((predicted / came - 1.0).abs() < 0.02, "{metric}: {predicted} and {came}");
    }
}

/// The requests of the recording itself are those that its simulation has.
#[test]
fn requests_are_measured_alike_in_the_recording_and_in_its_simulation() {
    let path = record("messages-requests.slt", Policy::Other, true);
    let input = RecordedInput::open_from(&path, ReplayFrom::Messages).unwrap();
    let measured = input.measured();
    let recorded = measured.find(Kind::Channel, SERVICE).unwrap();
    let study = compared(&path);
    for metric in [Metric::Throughput, Metric::Response(Stat::Percentile(99_000))] {
        let (was, is) = (
            recorded.value(metric).unwrap(),
            value(&study.rows[0], Kind::Channel, SERVICE, metric),
        );
        assert!((is / was - 1.0).abs() < 0.05, "{metric}: {was} recorded, {is} simulated");
    }
}

/// What the client counts changes as the requests do that a replay by messages has, whatever a
/// request costs the server.
#[test]
fn the_clients_count_follows_the_requests() {
    let path = record("messages-count.slt", Policy::Other, true);
    let input = RecordedInput::open_from(&path, ReplayFrom::Messages).unwrap();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("messages-count.client");
    std::fs::write(&file, "Requests/sec: 1000\n").unwrap();
    let options = Options {
        jobs: 1,
        repetitions: Some(1),
        variants: vec!["idle: hog policy=idle".to_owned()],
        client_log: Some(ClientLogSpec { server: None, file }),
        ..Options::default()
    };
    let study = compare_recording(&input, None, &options, &|_, _| {}).unwrap();
    let grows = |kind, name| {
        let of = |row: usize| value(&study.rows[row], kind, name, Metric::Throughput);
        of(1) / of(0)
    };
    let (counted, answered) = (grows(Kind::Source, CLIENT_LOG), grows(Kind::Channel, SERVICE));
    assert!(answered > 1.2, "{answered}");
    assert!((counted / answered - 1.0).abs() < 1e-6, "{counted} counted, {answered} answered");
    // Requests are requests: that there are more of them is a claim.
    for (kind, name) in [(Kind::Source, CLIENT_LOG), (Kind::Channel, SERVICE)] {
        let cell = *study.rows[1].find(kind, name).unwrap().cell(Metric::Throughput).unwrap();
        let change = cell.change.unwrap();
        assert_eq!(change.judgement, Judgement::Better, "{name}: {change:?}");
    }
}

#[test]
fn a_recording_without_messages_is_refused_by_name() {
    let path = record("messages-none.slt", Policy::Other, false);
    let error = RecordedInput::open_from(&path, ReplayFrom::Messages).unwrap_err().to_string();
    assert!(error.contains("--messages on") && error.contains("--replay wakeups"), "{error}");
    assert!(RecordedInput::open(&path).is_ok());
}

/// Where nothing is said, a recording is replayed from its messages if hardly any of them was lost.
#[test]
fn messages_are_taken_where_hardly_any_is_lost() {
    let path = record("messages-auto.slt", Policy::Other, true);
    let taken = |path: &Path| RecordedInput::open(path).unwrap().replayed_from();
    assert_eq!(taken(&path), ReplayFrom::Messages);
    assert_eq!(taken(&record("messages-auto-none.slt", Policy::Other, false)), ReplayFrom::Wakeups);
    let recording = Recording::open(&path).unwrap();
    let changed = |name: &str, change: &dyn Fn(&mut Recording)| {
        let mut recording = recording.clone();
        change(&mut recording);
        let path = path.with_file_name(name);
        save(&recording, &path).unwrap();
        path
    };
    let lost = changed("messages-auto-lost.slt", &|recording| {
        let count = recording.facts.list.len() as u64 / 20;
        let last = *recording.facts.list.last().unwrap();
        recording.facts.list.push(Fact { task: None, kind: FactKind::Lost { count }, ..last });
    });
    let two = changed("messages-auto-two.slt", &|recording| {
        recording.header.topology = Machine::flat(2).topology;
    });
    let empty = changed("messages-auto-empty.slt", &|recording| recording.facts.list.clear());
    assert_eq!(taken(&two), ReplayFrom::Messages, "on several CPUs, too");
    for path in [lost.clone(), empty] {
        assert_eq!(taken(&path), ReplayFrom::Wakeups, "{}", path.display());
    }
    let asked = RecordedInput::open_from(&lost, "messages".parse().unwrap()).unwrap();
    assert_eq!(asked.replayed_from(), ReplayFrom::Messages);
}

/// Returns a comparison of one row.
fn compared_from(path: &Path, from: ReplayFrom) -> Study {
    let input = RecordedInput::open_from(path, from).unwrap();
    let options = Options { jobs: 1, repetitions: Some(1), ..Options::default() };
    compare_recording(&input, None, &options, &|_, _| {}).unwrap()
}

/// Returns a recording of a server, of one CPU of Linux 6.12.
fn server(name: &str) -> PathBuf {
    let pairs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/pairs/messages/6.12");
    pairs.join(name)
}

/// Threads that take turns at the lock of their interpreter: each reads from one connection, and
/// the lock is handed to it before it reads and before it answers.
#[test]
fn threads_that_take_turns_at_a_lock_are_reproduced() {
    let found = compared_from(&server("ruby-1/base.slt"), ReplayFrom::Messages);
    assert!(found.trusted(), "{:?}", found.self_replay.unwrap().distrust);
}

/// A client over UDP asks as often as it is answered. Where a timeout of 100 ms ended most of its
/// waits no replay says anything of a change, and the reason has a name.
#[test]
fn a_client_over_udp_waits_for_its_answers() {
    let found = compared_from(&server("nsd-1/idle.slt"), ReplayFrom::Messages);
    assert!(found.trusted(), "{:?}", found.self_replay.unwrap().distrust);
    for from in [ReplayFrom::Messages, ReplayFrom::Auto] {
        let replay = compared_from(&server("nsd-1/base.slt"), from).self_replay.unwrap();
        let named = |why: &String| why.starts_with("perf-recv-0000: a timeout ended 21 waits");
        assert!(replay.distrust.iter().any(named), "{:?}", replay.distrust);
    }
}

/// Without the wakes at that lock the replay by messages comes to a halt: the one by wakeups is
/// taken, with a word.
#[test]
fn wakeups_are_taken_where_messages_do_not_reproduce_the_recording() {
    let mut recording = Recording::open(server("ruby-1/base.slt")).unwrap();
    recording
        .facts
        .list
        .retain(|fact| fact.at < Ns::from_s(1) || !matches!(fact.kind, FactKind::FutexWake { .. }));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("messages-without-wakes.slt");
    save(&recording, &path).unwrap();
    let compared = |from: ReplayFrom| compared_from(&path, from);
    let by = |study: &Study| study.self_replay.as_ref().unwrap().replay.clone();
    let messages = compared(ReplayFrom::Messages);
    assert_eq!((by(&messages).as_str(), messages.trusted()), ("messages", false));
    let chosen = compared(ReplayFrom::Auto);
    assert_eq!((by(&chosen).as_str(), chosen.trusted()), ("wakeups", true));
    assert!(chosen.notes[0].contains("--replay messages"), "{:?}", chosen.notes);
    assert!(!compared(ReplayFrom::Wakeups).notes[0].contains("--replay messages"));
}

/// Facts that are missing are said with number and part; with more than a hundredth of them a
/// replay by messages is not trusted, and one by wakeups is as before.
#[test]
fn lost_facts_are_a_reason_not_to_trust_a_replay_by_messages() {
    let whole = Recording::open(record("messages-whole.slt", Policy::Other, true)).unwrap();
    let without = |part: usize| {
        let mut recording = whole.clone();
        let mut number = 0;
        recording.facts.list.retain(|_| {
            number += 1;
            number % part != 0
        });
        let count = (whole.facts.list.len() - recording.facts.list.len()) as u64;
        let at = recording.facts.list.last().unwrap().at;
        let kind = FactKind::Lost { count };
        recording.facts.list.push(Fact { at, cpu: CpuId(0), task: None, kind });
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("messages-{part}.slt"));
        save(&recording, &path).unwrap();
        path
    };
    let study = |path: &Path, from| {
        let input = RecordedInput::open_from(path, from).unwrap();
        let options = Options { jobs: 1, repetitions: Some(1), ..Options::default() };
        compare_recording(&input, None, &options, &|_, _| {}).unwrap()
    };
    let says = |notes: &[String], what: &str| notes.iter().any(|note| note.contains(what));
    let (many, few) = (without(30), without(300));
    let found = study(&many, ReplayFrom::Messages);
    let replay = found.self_replay.as_ref().unwrap();
    assert!(!replay.trusted && says(&replay.distrust, "the recorder lost"), "{replay:?}");
    assert!(says(&replay.distrust, "--replay wakeups"), "{:?}", replay.distrust);
    let found = study(&few, ReplayFrom::Messages);
    let replay = found.self_replay.as_ref().unwrap();
    assert!(!says(&replay.distrust, "the recorder lost"), "{:?}", replay.distrust);
    assert!(says(&found.notes, "goes on without them"), "{:?}", found.notes);
    let found = study(&many, ReplayFrom::Wakeups);
    let replay = found.self_replay.as_ref().unwrap();
    assert!(!says(&replay.distrust, "the recorder lost"), "{:?}", replay.distrust);
    assert!(says(&found.notes, "the replay by wakeups uses no facts"), "{:?}", found.notes);
}

/// Where the addresses of datagrams were not read neither replay knows who waits for which: no
/// trust, and a reason.
#[test]
fn datagrams_without_addresses_are_a_reason_not_to_trust_any_replay() {
    let mut recording = Recording::open(record("messages-udp.slt", Policy::Other, true)).unwrap();
    let facts = &mut recording.facts;
    facts.objects.iter_mut().for_each(|object| object.kind = ObjectKind::Udp);
    assert_eq!(facts.without_addresses(), None, "each is sent and received");
    let nowhere = ObjectId(facts.objects.len() as u32);
    facts.objects.push(ObjectInfo::of_kind(ObjectKind::Udp));
    for fact in &mut facts.list {
        if let FactKind::Send(sent) = &mut fact.kind {
            sent.object = nowhere;
        }
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("messages-udp-nowhere.slt");
    save(&recording, &path).unwrap();
    for from in [ReplayFrom::Messages, ReplayFrom::Wakeups, ReplayFrom::Auto] {
        let replay = compared_from(&path, from).self_replay.unwrap();
        let why = &replay.distrust;
        assert!(!replay.trusted && why.iter().any(|why| why.contains("datagrams")), "{why:?}");
    }
}

/// A task that only runs beside one that waits for nothing recorded may exchange over memory: a
/// replay by messages says so, and says nothing where each wait is recorded.
#[test]
fn signs_of_what_is_not_seen_are_noted() {
    let path = record("messages-seen.slt", Policy::Other, true);
    let mut recording = Recording::open(&path).unwrap();
    let notes = |path: &Path| {
        let notes = compared(path).notes;
        notes.into_iter().filter(|note| note.contains("over memory")).collect::<Vec<_>>()
    };
    assert_eq!(notes(&path), [] as [String; 0]);
    let client = TaskId(1);
    recording.facts.list.retain(|fact| fact.task != Some(client));
    let path = path.with_file_name("messages-unseen.slt");
    save(&recording, &path).unwrap();
    let noted = notes(&path);
    assert!(noted.len() == 1 && noted[0].starts_with("hog never blocked"), "{noted:?}");
    assert!(noted[0].contains("beside client, which waited"), "{noted:?}");
    assert!(noted[0].contains("may differ from what is predicted"), "{noted:?}");
}
