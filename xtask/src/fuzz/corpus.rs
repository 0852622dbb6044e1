//! Where the inputs start: the files of `fuzz/corpus`, the gallery, and small recordings made here.

use anyhow::{Context, Result};
use schedlab_model::{
    Bandwidth, CpuId, EventKind, Fact, FactKind, GroupId, GroupSpec, Limit, Ns, ObjectId,
    ObjectInfo, ObjectKind, Outcome, PrevState, SchedEvent, TaskId, Topology, Transfer, Waker,
};
use schedlab_study::gate::Gate;
use schedlab_trace::import::formats::{self, HEAD, recognise};
use schedlab_trace::{
    Capabilities, Capability, GroupInfo, Header, Recording, TaskInfo, Writer, export,
};
use std::path::Path;

/// Inputs of other targets' corpora are of no use; these are those of one.
pub(super) fn inputs(target: &str) -> Result<Vec<Vec<u8>>> {
    let mut all = files(&format!("fuzz/corpus/{}", target.replace('-', "_")))?;
    match target {
        "recording" => all.extend([recorded(2), recorded(9)]),
        "scenario" => all.extend(files("scenarios")?),
        "variant" => all.extend(lines(VARIANTS)),
        "scheduler" => all.extend(lines(SCHEDULERS)),
        "expression" => {
            let gates = lines(EXPRESSIONS);
            debug_assert!(Gate::parse(&String::from_utf8_lossy(&gates[0])).is_ok());
            all.extend(gates);
        }
        format if formats::all().any(|known| known.name == format) => all.extend(traces(format)?),
        _ => {}
    }
    if all.is_empty() {
        all.push(Vec::new());
    }
    Ok(all)
}

/// Traces of a format: collected ones, and exports.
fn traces(format: &str) -> Result<Vec<Vec<u8>>> {
    let mut all = files("fuzz/corpus/import")?;
    all.extend(files("crates/trace/tests/field")?);
    for write in [
        export::perf_script,
        export::ftrace,
        export::systrace,
        export::trace_cmd,
        export::lttng,
        export::perfetto,
    ] {
        all.push(exported(write)?);
    }
    all.retain(|input| recognise(&input[..input.len().min(HEAD)]).name == format);
    Ok(all)
}

const VARIANTS: &str = "batch idle: sysbench policy=idle
capped: sysbench group=/batch ; /batch cpu.max=50ms/100ms
all: redis-server policy=fifo:1 nice=-5 cpus=0-3 slice=3ms ; worker-* demand=x2 off
knobs: scheduler base_slice_ns=6ms ; /batch cpu.weight=20 cpu.idle=on
xen: /batch cap=200 weight=512 guest=linux-6.18 ; 10 policy=deadline:1ms/10ms/10ms";
const SCHEDULERS: &str = "linux-6.18:base_slice_ns=6ms
linux-2.6.22
xen-credit:tslice_ms=5ms,ratelimit_us=0
shinjuku:quantum=200us
rr:slice_ns=20ms";
const EXPRESSIONS: &str = "redis-server latency p99 > +20%
batch idle: 'Web Content' response p99.9 >= 1ms against as recorded
/batch share < 50%
a switches <= 300/s
p99 > 200us
client response p99 < alone + 10%
a throughput >= alone
redis-server wait > 10ms
ran > 50ms
redis-server x2
cc1 x0.5
1.5ms
0-3,7,9-11
fifo:99
deadline:1ms/10ms/10ms";

fn lines(text: &str) -> Vec<Vec<u8>> {
    text.lines().map(|line| line.as_bytes().to_vec()).collect()
}

fn files(folder: &str) -> Result<Vec<Vec<u8>>> {
    let folder = crate::tree::root().join(folder);
    let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(Vec::new()) };
    let mut paths: Vec<_> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.retain(|path| path.is_file());
    paths.sort();
    let read = |path| {
        std::fs::read(&path)
            .with_context(|| format!("{}: cannot be read", Path::new(&path).display()))
    };
    paths.into_iter().map(read).collect()
}

fn at(at: u64, cpu: u32, kind: EventKind) -> SchedEvent {
    SchedEvent { at: Ns(at), cpu: CpuId(cpu), kind }
}

/// Two tasks that wake each other, a third that is created, throttled, moved and ends; calls, steal
/// and loss.
fn events(rounds: u64) -> Vec<SchedEvent> {
    let task = TaskId;
    let switch = |prev: Option<u32>, prev_state, next: Option<u32>| EventKind::Switch {
        prev: prev.map(task),
        prev_state,
        next: next.map(task),
    };
    let mut out = vec![at(0, 0, switch(None, PrevState::Runnable, Some(0)))];
    for round in 0..rounds {
        let t = 1_000 + round * 100_000;
        out.extend([
            at(t, 0, EventKind::SyscallEnter { task: task(0), number: 1 }),
            at(t + 10, 0, EventKind::Wake { task: task(1), waker: Waker::Task(task(0)) }),
            at(t + 20, 0, EventKind::SyscallExit { task: task(0) }),
            at(t + 1_000, 0, switch(Some(0), PrevState::Sleeping, Some(1))),
            at(t + 1_500, 1, EventKind::New { task: task(2), parent: Some(task(1)) }),
            at(t + 1_600, 1, switch(None, PrevState::Runnable, Some(2))),
            at(
                t + 2_000,
                0,
                EventKind::Wake { task: task(0), waker: Waker::InlineSoftirq(task(1)) },
            ),
            at(t + 3_000, 0, switch(Some(1), PrevState::RunnableInKernel, Some(0))),
            at(t + 3_500, 1, switch(Some(2), PrevState::Runnable, None)),
            at(t + 3_600, 1, EventKind::Throttle { task: task(2) }),
            at(t + 4_000, 1, EventKind::Steal { ns: Ns(300) }),
            at(t + 5_000, 0, switch(Some(0), PrevState::DiskSleep, Some(1))),
            at(t + 6_000, 1, EventKind::Unthrottle { task: task(2) }),
            at(t + 6_100, 1, EventKind::Migrate { task: task(2), from: CpuId(1), to: CpuId(0) }),
            at(t + 7_000, 0, switch(Some(1), PrevState::Blocked, Some(2))),
            at(t + 8_000, 0, EventKind::Regroup { task: task(2), group: GroupId(1) }),
            at(t + 8_500, 1, EventKind::Lost { count: 3 }),
            at(t + 9_000, 0, EventKind::Exit { task: task(2) }),
            at(t + 9_100, 0, switch(Some(2), PrevState::Dead, None)),
            at(t + 20_000, 1, EventKind::Wake { task: task(1), waker: Waker::HardIrq }),
            at(t + 21_000, 1, switch(None, PrevState::Runnable, Some(1))),
            at(t + 25_000, 1, switch(Some(1), PrevState::Sleeping, None)),
            at(t + 40_000, 0, EventKind::Wake { task: task(0), waker: Waker::SoftIrq }),
            at(t + 41_000, 0, switch(None, PrevState::Runnable, Some(0))),
        ]);
    }
    out
}

/// Both directions of a connection, a selector and a futex.
fn objects() -> [ObjectInfo; 4] {
    let flow = |peer: u32| ObjectInfo {
        from: "127.0.0.1:41230".to_owned(),
        to: "127.0.0.1:6379".to_owned(),
        peer: Some(ObjectId(peer)),
        capacity: Some(87_040),
        ..ObjectInfo::of_kind(ObjectKind::Tcp)
    };
    [
        flow(1),
        flow(0),
        ObjectInfo::of_kind(ObjectKind::Epoll),
        ObjectInfo::of_kind(ObjectKind::Futex),
    ]
}

/// A request and its answer in each round, a select, a futex, a sleep, a child and loss.
fn facts(rounds: u64) -> Vec<Fact> {
    let moved = |object: u32, place: u64| Transfer {
        place: Some(place),
        ..Transfer::done(ObjectId(object), 40)
    };
    let mut out = Vec::new();
    for round in 0..rounds {
        let (t, place) = (1_000 + round * 100_000, (round + 1) * 40);
        let fact = |at: u64, task: u32, kind| Fact {
            at: Ns(t + at),
            cpu: CpuId(0),
            task: Some(TaskId(task)),
            kind,
        };
        let (until, outcome) = (Limit::For(Ns::from_ms(1)), Outcome::Done);
        let futex = ObjectId(3);
        out.extend([
            fact(15, 0, FactKind::Send(moved(0, place))),
            fact(
                1_100,
                1,
                FactKind::Select { selector: Some(ObjectId(2)), ready: 1, until, outcome },
            ),
            fact(1_200, 1, FactKind::Receive(moved(0, place))),
            fact(2_010, 1, FactKind::Send(moved(1, place))),
            fact(3_100, 0, FactKind::Receive(moved(1, place))),
            fact(4_000, 0, FactKind::FutexWait { futex, expected: 2, until: Limit::None, outcome }),
            fact(5_000, 1, FactKind::FutexWake { futex, asked: 1, woken: 1, requeue: None }),
            fact(6_000, 0, FactKind::Sleep { until: Limit::At(Ns(t + 6_000)), outcome }),
            fact(7_000, 1, FactKind::Child { child: Some(TaskId(2)) }),
            Fact { task: None, ..fact(8_000, 0, FactKind::Lost { count: 2 }) },
        ]);
    }
    out
}

fn header() -> Header {
    let group =
        |name: &str, parent| GroupSpec { name: name.to_owned(), parent, ..GroupSpec::default() };
    let mut limited = group("/batch", Some(GroupId::ROOT));
    limited.bandwidth =
        Some(Bandwidth { quota: Ns::from_ms(5), period: Ns::from_ms(10), burst: Ns::ZERO });
    Header {
        backend: "fuzz".to_owned(),
        kernel: "6.18.44".to_owned(),
        hz: 250,
        topology: Topology::flat(2),
        capabilities: Capabilities(
            Capabilities::simulator()
                .0
                .into_iter()
                .chain([Capability::Messages.name().to_owned()])
                .collect(),
        ),
        tasks: (0..3_u32).map(|i| TaskInfo::unknown(100 + i, 100 + i, format!("t{i}"))).collect(),
        groups: [group("/", None), limited].map(GroupInfo::from).to_vec(),
        ..Header::default()
    }
}

fn recorded(rounds: u64) -> Vec<u8> {
    use schedlab_model::EventSink;
    let mut writer = Writer::new(Vec::new(), &header()).expect("memory can be written");
    events(rounds).iter().for_each(|event| writer.event(event));
    for object in objects() {
        writer.add_object(object);
    }
    facts(rounds).iter().for_each(|fact| writer.fact(fact));
    writer.finish(Ns(rounds * 100_000 + 50_000)).expect("memory can be written")
}

type Export = fn(&Recording, &mut dyn std::io::Write) -> std::io::Result<export::Exported>;

fn exported(write: Export) -> Result<Vec<u8>> {
    let recording = Recording::from_parts(header(), events(4), Ns(500_000))?;
    let mut out = Vec::new();
    write(&recording, &mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_trace::import::{ImportOptions, read};

    /// A parser that starts from nothing is not tried: each has an input that it reads.
    #[test]
    fn every_parser_of_traces_starts_from_a_trace() {
        let names = formats::all().filter(|format| format.is_trace()).map(|format| format.name);
        for name in names.chain(["wrapped"]) {
            let inputs = inputs(name).unwrap();
            let read = |input: &Vec<u8>| read(&input[..], ImportOptions::default()).is_ok();
            assert!(inputs.iter().any(read), "{name}: {} inputs", inputs.len());
        }
    }
}
