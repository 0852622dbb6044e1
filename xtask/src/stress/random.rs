//! Random machines and workloads. Everything follows from one number, so a failure can be repeated.

use schedlab_model::{
    Amount, Bandwidth, ChannelId, ChannelSpec, CpuSet, Draw, GroupId, GroupSpec, LockId, Nice, Ns, Op,
    Policy, Program, SourceKind, SourceSpec, Start, TaskId, TaskSpec, Topology, Workload,
};
use schedlab_sim::{Costs, Machine, TickSkew};

/// A seeded generator (SplitMix64), enough for choosing test cases.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// True in `percent` of 100 throws.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// Below `end`; 0 when that is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end.max(1)
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.next() as usize % from.len()]
    }

    /// A length from 1 us to 20 ms, short ones as likely as long ones; often a round number, because equal
    /// times are where orders go wrong.
    fn length(&mut self) -> Ns {
        let unit = *self.pick(&[1_000, 10_000, 100_000, 1_000_000, 4_000_000]);
        match self.chance(50) {
            true => Ns(unit * self.between(1, 5)),
            false => Ns(self.between(unit, 5 * unit)),
        }
    }
}

/// A machine of 1 to 8 CPUs.
pub(super) fn machine(dice: &mut Dice) -> Machine {
    let topology = match dice.between(0, 4) {
        0 => Topology::flat(1),
        1 => Topology::flat(2),
        2 => Topology::flat(dice.between(3, 8) as usize),
        3 => Topology::regular(2, 1, 2, 1),
        _ => Topology::regular(2, 1, 2, 2),
    };
    let ticks = if dice.chance(50) { TickSkew::Aligned } else { TickSkew::Staggered };
    let mut costs = Costs::default();
    if dice.chance(40) {
        let names: Vec<&'static str> = Costs::knobs().map(|(name, _)| name).collect();
        for _ in 0..dice.between(1, 6) {
            let name = *dice.pick(&names);
            costs.set(name, Ns(dice.between(0, 30_000)));
        }
    }
    Machine { topology, hz: *dice.pick(&[100, 250, 300, 1000]), ticks, costs, ..Machine::flat(1) }
}

/// A workload of 1 to 16 tasks for a machine with `cpus` CPUs.
pub(super) fn workload(dice: &mut Dice, cpus: usize) -> Workload {
    let mut workload = Workload { groups: groups(dice), locks: 1, ..Workload::default() };
    let count = dice.between(1, 12) as usize;
    for index in 0..count {
        let program = program(dice, &mut workload);
        let mut task = TaskSpec::new(format!("t{index}"), program);
        attributes(dice, &mut task, cpus, workload.groups.len());
        workload.tasks.push(task);
    }
    if dice.chance(30) {
        chain(dice, &mut workload, cpus);
    }
    if dice.chance(20) {
        spawner(dice, &mut workload);
    }
    workload
}

fn groups(dice: &mut Dice) -> Vec<GroupSpec> {
    if dice.chance(60) {
        return Vec::new();
    }
    let mut groups = vec![GroupSpec { name: "/".to_owned(), ..GroupSpec::default() }];
    for index in 1..=dice.between(1, 4) as usize {
        let parent = dice.between(0, index as u64 - 1) as usize;
        let bandwidth = dice.chance(30).then(|| Bandwidth {
            quota: Ns::from_ms(dice.between(1, 60)),
            period: Ns::from_ms(dice.between(10, 100)),
            burst: Ns::ZERO,
        });
        groups.push(GroupSpec {
            name: format!("/g{index}"),
            parent: Some(GroupId::from(parent)),
            weight: dice.chance(50).then(|| dice.between(2, 20_000) as u32),
            idle: dice.chance(10),
            bandwidth,
            ..GroupSpec::default()
        });
    }
    groups
}

fn attributes(dice: &mut Dice, task: &mut TaskSpec, cpus: usize, groups: usize) {
    task.policy = match dice.between(0, 11) {
        0 => Policy::Batch,
        1 => Policy::Idle,
        2 => Policy::Fifo(dice.between(1, 99) as u8),
        3 => Policy::Rr(dice.between(1, 3) as u8),
        _ => Policy::Other,
    };
    task.nice = Nice::new(dice.between(0, 39) as i8 - 20).expect("within -20 to 19");
    if dice.chance(40) {
        task.nice = Nice::ZERO;
    }
    if dice.chance(40) {
        let allowed = 1 + dice.between(0, cpus as u64 - 1);
        task.affinity =
            (0..allowed).map(|_| schedlab_model::CpuId(dice.between(0, cpus as u64 - 1) as u32)).collect();
        debug_assert!(task.affinity != CpuSet::default());
    }
    if groups > 0 {
        task.group = GroupId::from(dice.between(0, groups as u64 - 1) as usize);
    }
    task.process = dice.between(0, 3) as u32;
    task.start = match dice.between(0, 2) {
        0 => Start::At(Ns::ZERO),
        1 => Start::At(Ns::from_us(dice.between(0, 50_000))),
        _ => Start::AsleepUntil(Ns::from_us(dice.between(0, 50_000))),
    };
}

fn amount(dice: &mut Dice, program: &mut Program) -> Amount {
    let length = dice.length();
    match dice.between(0, 4) {
        0 => program.draw(Draw::Exponential { mean: length }),
        1 => program.draw(Draw::Uniform { low: Ns(length.0 / 2), high: length }),
        2 => program.draw(Draw::LogNormal { median: length, sigma_permille: 500 }),
        _ => Amount::Fixed(length),
    }
}

/// One task's program. It may add a channel and a source for itself.
fn program(dice: &mut Dice, workload: &mut Workload) -> Program {
    let mut program = Program::forever([]);
    let (work, rest) = (amount(dice, &mut program), amount(dice, &mut program));
    match dice.between(0, 8) {
        0 | 1 => program.ops = vec![Op::Run(Amount::Fixed(Ns::from_s(1)))],
        2 | 3 => program.ops = vec![Op::Run(work), Op::Sleep(rest)],
        4 => {
            let period = Ns(dice.length().0.max(100_000));
            program.ops = vec![Op::NextPeriod { period, offset: dice.length() }, Op::Run(work)];
        }
        5 => program.ops = vec![Op::Run(work), Op::Yield],
        6 => {
            let lock = LockId(0);
            program.ops = vec![Op::Lock(lock), Op::Run(work), Op::Unlock(lock), Op::Sleep(rest)];
        }
        7 => {
            program.ops = vec![Op::Run(work), Op::Sleep(rest), Op::Repeat { to: 0, times: 20 }];
            program.repeat_from = None;
        }
        _ => {
            let channel = source(dice, workload);
            let per_request = Amount::Fixed(Ns(dice.between(1_000, 50_000)));
            program.ops = vec![Op::ReceiveAll(channel), Op::Serve { channel, per_request }];
        }
    }
    program
}

/// A new channel with a source of requests.
fn source(dice: &mut Dice, workload: &mut Workload) -> ChannelId {
    let channel = ChannelId::from(workload.channels.len());
    workload.channels.push(ChannelSpec { name: format!("c{}", channel.0), ..ChannelSpec::default() });
    let kind = if dice.chance(50) {
        SourceKind::Closed {
            clients: dice.between(1, 40) as u32,
            think: Draw::Exponential { mean: dice.length() },
        }
    } else {
        let interarrival = Draw::Exponential { mean: Ns(dice.between(50_000, 2_000_000)) };
        SourceKind::Open { interarrival, start: Ns::ZERO }
    };
    let one_way = Draw::Fixed(Ns(dice.between(0, 100_000)));
    workload.sources.push(SourceSpec { name: format!("s{}", channel.0), into: channel, kind, one_way });
    channel
}

/// Tasks that wake each other in a circle through channels.
fn chain(dice: &mut Dice, workload: &mut Workload, cpus: usize) {
    let length = dice.between(2, 4) as usize;
    let first = workload.channels.len();
    for index in 0..length {
        let initial = u32::from(index == 0) * dice.between(1, 3) as u32;
        let name = format!("ring{index}");
        workload.channels.push(ChannelSpec { name: name.clone(), initial, capacity: None });
        let mut program = Program::forever([]);
        let work = amount(dice, &mut program);
        let next = ChannelId::from(first + (index + 1) % length);
        program.ops = vec![
            Op::Receive(ChannelId::from(first + index)),
            Op::Run(work),
            Op::Send { channel: next, count: 1 },
        ];
        let mut task = TaskSpec::new(name, program);
        attributes(dice, &mut task, cpus, workload.groups.len());
        workload.tasks.push(task);
    }
}

/// A task that starts others, which end.
fn spawner(dice: &mut Dice, workload: &mut Workload) {
    let child = TaskId::from(workload.tasks.len());
    let mut task = TaskSpec::new("child", Program::once([Op::Run(Amount::Fixed(dice.length()))]));
    task.start = Start::Spawned;
    workload.tasks.push(task);
    let pause = Amount::Fixed(dice.length());
    workload.tasks.push(TaskSpec::new("parent", Program::forever([Op::Spawn(child), Op::Sleep(pause)])));
}
