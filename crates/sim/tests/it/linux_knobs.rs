//! Every knob of the Linux presets has an effect: a rich workload runs differently when it is
//! changed.

use crate::common::scheduler;
use schedlab_model::{
    Amount, Bandwidth, ChannelId, ChannelSpec, CpuId, CpuSet, GroupId, GroupSpec, Nice, Ns, Op,
    Policy, Program, Start,
};
use schedlab_model::{TaskId, TaskSpec, Topology, Workload};
use schedlab_scheduler::{Knob, KnobKind, registry};
use schedlab_sim::{Machine, RunOptions, SimError, TickSkew, run};

/// Everything that a knob could touch: nice values, all policies, groups with bandwidth and
/// weights, forks, yields, pinned tasks, wakeups by tasks, custom slices.
fn rich(cpus: u32, tasks: u32) -> Workload {
    let mut workload = crate::common::w2(cpus, tasks);
    for (index, task) in workload.tasks.iter_mut().enumerate() {
        if index % 3 != 0 {
            task.affinity = CpuSet::ALL;
        }
        task.nice = Nice::new((index % 11) as i8 - 5).expect("in range");
        task.slice = (index % 7 == 0).then_some(Ns::from_us(400));
        task.group = GroupId((index % 4) as u32);
        task.policy = match index % 12 {
            3 => Policy::Idle,
            5 => Policy::Batch,
            _ => Policy::Other,
        };
        if index % 4 == 2 {
            std::sync::Arc::make_mut(&mut task.program).ops.push(Op::Yield);
        }
    }
    let hog = |name: &str, policy: Policy| {
        let mut task = TaskSpec::new(name, Program::hog());
        (task.policy, task.start) = (policy, Start::AsleepUntil(Ns::ZERO));
        task
    };
    let mut fifo = hog("fifo", Policy::Fifo(5));
    fifo.affinity = CpuSet::single(CpuId(0));
    let mut beside = hog("beside", Policy::Other);
    beside.affinity = fifo.affinity;
    workload.tasks.extend([fifo, beside]);
    for index in 0..3 {
        let mut rr = hog(&format!("rr{index}"), Policy::Rr(2));
        rr.affinity = CpuSet::single(CpuId(1));
        workload.tasks.push(rr);
    }
    let reserved = "deadline:3ms/11ms/11ms".parse().expect("a policy");
    let mut sleeps = TaskSpec::new("sleeps", Program::closed(Ns::from_us(1_700), Ns::from_ms(7)));
    sleeps.policy = reserved;
    workload.tasks.extend([hog("reserved", reserved), sleeps]);
    let child = TaskId::from(workload.tasks.len() + 1);
    let parent = [
        Op::Run(Amount::Fixed(Ns::from_ms(30))),
        Op::Spawn(child),
        Op::Run(Amount::Fixed(Ns::from_ms(9))),
    ];
    workload.tasks.push(TaskSpec::new("parent", Program::forever(parent)));
    let mut spawned =
        TaskSpec::new("child", Program::once([Op::Run(Amount::Fixed(Ns::from_ms(20)))]));
    spawned.start = Start::Spawned;
    workload.tasks.push(spawned);
    add_pairs(&mut workload, (tasks / 6).max(3));
    let group = |name: &str, weight| GroupSpec {
        name: name.into(),
        parent: (name != "/").then_some(GroupId::ROOT),
        weight: Some(weight),
        ..GroupSpec::default()
    };
    workload.groups =
        vec![group("/", 1024), group("/a", 512), group("/b", 2048), group("/c", 1024)];
    workload.groups[1].autogroup = true;
    let (quota, period) = (Ns::from_ms(60), Ns::from_ms(100));
    workload.groups[3].bandwidth = Some(Bandwidth { quota, period, burst: Ns::ZERO });
    workload
}

/// Adds pairs that wake each other, so that the waker's CPU and the wakee's last one compete.
fn add_pairs(workload: &mut Workload, pairs: u32) {
    for pair in 0..pairs {
        let (there, back) = (ChannelId(2 * pair), ChannelId(2 * pair + 1));
        let work = Op::Run(Amount::Fixed(Ns::from_us(150 + 40 * u64::from(pair))));
        let ping = [work, Op::Send { channel: there, count: 1 }, work, Op::Receive(back)];
        let pong = [Op::Receive(there), work, Op::Send { channel: back, count: 1 }];
        workload.tasks.push(TaskSpec::new(format!("ping{pair}"), Program::forever(ping)));
        workload.tasks.push(TaskSpec::new(format!("pong{pair}"), Program::forever(pong)));
    }
    workload.channels = vec![ChannelSpec::default(); 2 * pairs as usize];
}

/// Values of a knob that differ from its default.
fn other_values(knob: &Knob) -> Vec<String> {
    match knob.kind {
        KnobKind::Flag => vec!["on".into(), "off".into()],
        KnobKind::Time(low, high) => {
            let fit = |ns: u64| Ns(ns.clamp(low.0, high.0)).0.to_string() + "ns";
            [0, 300_000, 9_000_000, 40_000_000, 500_000_000].map(fit).to_vec()
        }
        KnobKind::Steps(steps) => vec![steps.low.to_string(), steps.high.to_string()],
        KnobKind::Number(low, high) => {
            [0, 1, 2, 5, 40, 30_000, 300_000].map(|n: i64| n.clamp(low, high).to_string()).to_vec()
        }
        KnobKind::Word(words) => words.iter().map(|word| (*word).to_owned()).collect(),
    }
}

fn hash(spec: &str, (topology, tasks): &(Topology, u32)) -> u64 {
    let machine =
        Machine { topology: topology.clone(), ticks: TickSkew::Staggered, ..Machine::flat(1) };
    let workload = rich(topology.cpus() as u32, *tasks);
    let options = RunOptions::for_time(Ns::from_ms(1_200));
    let scheduler = scheduler(spec, topology.cpus());
    match run(&machine, &workload, &*scheduler, &options, &mut ()) {
        Ok(outcome) => outcome.event_hash,
        // Too little for the deadline tasks: an effect too.
        Err(SimError::Admission { .. }) => 0,
        Err(error) => panic!("{spec}: {error}"),
    }
}

#[test]
fn every_knob_has_an_effect() {
    // Crowded, half busy, and mostly idle machines.
    let machines = [
        (Topology::regular(2, 1, 2, 2), 72),
        (Topology::flat(4), 24),
        (Topology::regular(2, 1, 4, 1), 4),
    ];
    let (mut idle, mut bases) = (Vec::new(), Vec::<(String, [u64; 3])>::new());
    // Since 6.12 these limit SCHED_DEADLINE only (kernel/sched/deadline.c, fair server; G18): that
    // FIFO and RR do not feel them is the rule.
    let admission_only = ["sched_rt_runtime_us", "sched_rt_period_us"];
    // What they refuse: `impossible_reservations_are_refused`.
    let parameters_only = ["sched_deadline_period_min_us", "sched_deadline_period_max_us"];
    for name in ["linux-6.1", "linux-6.12", "linux-6.18"] {
        for knob in (registry::find(name).expect("it exists").knobs)() {
            let admits = name != "linux-6.1" && admission_only.contains(&knob.name);
            // EEVDF leaves this workload no group that only its mean load hides (`group_imbalance`
            // has one).
            let hidden = name != "linux-6.1" && knob.name == "defects.GROUP_IMBALANCE";
            if admits || hidden || parameters_only.contains(&knob.name) {
                continue;
            }
            // A switch of HRTICK shows only with HRTICK; the last buddy only where tasks preempt a
            // crowd.
            let base = match knob.name {
                "features.DOUBLE_TICK" => format!("{name}:features.HRTICK=on,"),
                "features.LAST_BUDDY" => {
                    format!(
                        "{name}:latency_ns=2ms,min_granularity_ns=1ms,wakeup_granularity_ns=100us,"
                    )
                }
                // What it decides shows where the weights do not decide it afterwards.
                "features.WA_IDLE" => format!("{name}:features.WA_WEIGHT=off,"),
                "features.CACHE_HOT_BUDDY" => format!(
                    "{name}:migration_cost_ns=0ns,features.NEXT_BUDDY=on,latency_ns=2ms,min_granularity_ns=1ms,"
                ),
                _ => format!("{name}:"),
            };
            if !bases.iter().any(|(known, _)| *known == base) {
                bases.push((base.clone(), machines.each_ref().map(|machine| hash(&base, machine))));
            }
            let default = bases.iter().find(|(known, _)| *known == base).expect("just added").1;
            let effect = other_values(&knob).iter().any(|value| {
                let spec = format!("{base}{}={value}", knob.name);
                machines
                    .iter()
                    .zip(&default)
                    .any(|(machine, default)| hash(&spec, machine) != *default)
            });
            if !effect {
                idle.push(format!("{name}:{}", knob.name));
            }
        }
    }
    assert!(idle.is_empty(), "without effect: {idle:?}");
}
