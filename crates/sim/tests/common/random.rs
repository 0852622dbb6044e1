//! Random machines and workloads for property tests.

use super::fixed;
use proptest::prelude::*;
use schedlab_model::{
    Amount, ChannelId, ChannelSpec, CpuId, CpuSet, Draw, LockId, Nice, Ns, Op, Policy, Program,
    SourceKind, SourceSpec, Start, TaskId, TaskSpec, Topology, Workload,
};
use schedlab_sim::{Costs, Delays, Machine, TickSkew};

const CHANNELS: u32 = 3;
const LOCKS: u32 = 2;

/// Lengths around the tick, on round numbers often, so that events meet in one instant.
fn length() -> impl Strategy<Value = Ns> {
    prop_oneof![
        (1u64..20).prop_map(Ns::from_ms),
        (1u64..5_000).prop_map(Ns::from_us),
        (1u64..9_000_000).prop_map(Ns),
    ]
}

fn amount() -> impl Strategy<Value = Amount> {
    prop_oneof![3 => length().prop_map(Amount::Fixed), 1 => Just(Amount::Draw(0))]
}

/// Pieces of programs that are right by themselves.
fn piece() -> impl Strategy<Value = Vec<Op>> {
    let channel = (0..CHANNELS).prop_map(ChannelId);
    prop_oneof![
        4 => amount().prop_map(|a| vec![Op::Run(a)]),
        4 => amount().prop_map(|a| vec![Op::Sleep(a)]),
        1 => (length(), length()).prop_map(|(p, o)| vec![Op::NextPeriod { period: p + Ns::from_us(500), offset: o }]),
        1 => channel.clone().prop_map(|c| vec![Op::Receive(c)]),
        1 => (channel.clone(), amount()).prop_map(|(c, a)| vec![
            Op::ReceiveAll(c),
            Op::Serve { channel: c, per_request: a },
        ]),
        2 => (channel, 1u32..4).prop_map(|(channel, count)| vec![Op::Send { channel, count }]),
        1 => (0..LOCKS, length()).prop_map(|(l, ns)| vec![
            Op::Lock(LockId(l)),
            Op::Run(Amount::Fixed(ns)),
            Op::Unlock(LockId(l)),
        ]),
        1 => Just(vec![Op::Yield]),
    ]
}

fn program() -> impl Strategy<Value = Program> {
    let draw = prop_oneof![
        Just(Draw::Exponential { mean: Ns::from_ms(2) }),
        Just(Draw::Uniform { low: Ns(0), high: Ns::from_ms(4) }),
        Just(Draw::LogNormal { median: Ns::from_us(300), sigma_permille: 900 }),
    ];
    (prop::collection::vec(piece(), 1..5), draw, any::<bool>()).prop_map(|(pieces, draw, ends)| {
        let mut ops: Vec<Op> = pieces.into_iter().flatten().collect();
        // No program may loop without time passing.
        ops.push(Op::Run(fixed(20_000)));
        let repeat_from = (!ends).then_some(0);
        Program { ops, repeat_from, draws: vec![draw], ..Program::default() }
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        6 => Just(Policy::Other),
        1 => Just(Policy::Batch),
        1 => Just(Policy::Idle),
        1 => (1u8..4).prop_map(Policy::Fifo),
        1 => (1u8..4).prop_map(Policy::Rr),
    ]
}

fn task(cpus: usize) -> impl Strategy<Value = TaskSpec> {
    let start = prop_oneof![
        4 => Just(Start::At(Ns::ZERO)),
        1 => length().prop_map(Start::At),
        2 => Just(Start::AsleepUntil(Ns::ZERO)),
        1 => length().prop_map(Start::AsleepUntil),
    ];
    let affinity = prop_oneof![
        2 => Just(CpuSet::ALL),
        1 => (0..cpus).prop_map(|cpu| CpuSet::single(CpuId::from(cpu))),
    ];
    (program(), policy(), -5i8..10, start, affinity).prop_map(
        |(program, policy, nice, start, affinity)| {
            let mut task = TaskSpec::new("t", program);
            (task.policy, task.start, task.affinity) = (policy, start, affinity);
            task.nice = Nice::new(nice).expect("in range");
            task
        },
    )
}

fn source() -> impl Strategy<Value = SourceSpec> {
    let wire =
        prop_oneof![Just(Draw::Fixed(Ns(0))), Just(Draw::Exponential { mean: Ns::from_us(30) })];
    let kind = prop_oneof![
        (200u64..3000).prop_map(|us| SourceKind::Open {
            interarrival: Draw::Exponential { mean: Ns::from_us(us) },
            start: Ns::ZERO
        }),
        prop::collection::vec(0u64..50_000_000, 0..20).prop_map(|mut at| {
            at.sort_unstable();
            SourceKind::Recorded { at: at.into_iter().map(Ns).collect() }
        }),
        (1u32..5).prop_map(|clients| SourceKind::Closed {
            clients,
            think: Draw::Exponential { mean: Ns::from_us(900) }
        }),
    ];
    (0..CHANNELS, wire, kind).prop_map(|(into, one_way, kind)| SourceSpec {
        name: "source".to_owned(),
        into: ChannelId(into),
        kind,
        one_way,
    })
}

fn costs() -> impl Strategy<Value = Costs> {
    let random = prop::collection::vec(
        prop_oneof![2 => Just(0u64), 1 => 1u64..30_000],
        Costs::knobs().count(),
    );
    let random = random.prop_map(|values| {
        let mut costs = Costs::default();
        for ((name, _), value) in Costs::knobs().zip(values) {
            costs.set(name, Ns(value));
        }
        costs
    });
    prop_oneof![2 => Just(Costs::default()), 1 => Just(Costs::oracle_6_12()), 2 => random]
}

fn machine(
    topology: impl Strategy<Value = Topology>,
    costs: impl Strategy<Value = Costs>,
) -> impl Strategy<Value = Machine> {
    let hz = prop_oneof![Just(100u32), Just(250), Just(300), Just(1000)];
    (topology, hz, any::<bool>(), costs).prop_map(|(topology, hz, aligned, costs)| Machine {
        topology,
        hz,
        ticks: if aligned { TickSkew::Aligned } else { TickSkew::Staggered },
        costs,
        delays: Delays::default(),
        ..Machine::flat(1)
    })
}

/// A machine and a workload for it.
pub(crate) fn case() -> impl Strategy<Value = (Machine, Workload)> {
    let topology = prop_oneof![
        3 => Just(Topology::flat(1)),
        1 => Just(Topology::flat(2)),
        1 => Just(Topology::regular(2, 1, 2, 1)),
    ];
    machine(topology, costs()).prop_flat_map(|machine| workload(machine, 8))
}

/// A machine without costs, and a workload for it.
pub(crate) fn free_case() -> impl Strategy<Value = (Machine, Workload)> {
    let topology = prop_oneof![
        2 => (1usize..6).prop_map(Topology::flat),
        1 => Just(Topology::regular(2, 1, 2, 1)),
        1 => Just(Topology::regular(1, 2, 2, 2)),
    ];
    machine(topology, Just(Costs::default())).prop_flat_map(|machine| workload(machine, 20))
}

fn workload(machine: Machine, most: usize) -> impl Strategy<Value = (Machine, Workload)> {
    let cpus = machine.topology.cpus();
    let tasks = prop::collection::vec(task(cpus), 1..most);
    let capacities = prop::collection::vec(prop::option::of(0u32..4), CHANNELS as usize);
    (Just(machine), tasks, prop::collection::vec(source(), 0..2), capacities).prop_map(
        |(machine, mut tasks, sources, capacities)| {
            // The first task starts another one each time round.
            let mut child = TaskSpec::new("child", Program::once([Op::Run(fixed(700_000))]));
            child.start = Start::Spawned;
            let number = TaskId::from(tasks.len());
            std::sync::Arc::make_mut(&mut tasks[0].program).ops.insert(0, Op::Spawn(number));
            tasks.push(child);
            let channels = capacities
                .into_iter()
                .map(|capacity| ChannelSpec { capacity, ..ChannelSpec::default() });
            let workload = Workload {
                tasks,
                sources,
                channels: channels.collect(),
                locks: LOCKS,
                ..Workload::default()
            };
            (machine, workload)
        },
    )
}
