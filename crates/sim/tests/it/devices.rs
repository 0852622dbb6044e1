//! The work of devices: one interrupt, on the device's own CPU, wakes every task that waits for it.

use crate::common::{fixed, scheduler};
use schedlab_model::{
    ChannelId, ChannelSpec, CpuId, CpuSet, EventKind, Ns, Op, Program, SchedEvent, Section, TaskId,
    TaskSpec, Waker, Workload,
};
use schedlab_sim::{Machine, RunOptions, run};

const DEVICE: ChannelId = ChannelId(0);
const MS: u64 = 1_000_000;

/// Returns the tasks that a softirq woke, where and when.
fn woken(cpu: u32) -> Vec<(u32, u32, u64)> {
    let start = Op::Device { length: fixed(5 * MS), cpu: CpuId(cpu), channel: DEVICE, count: 3 };
    let wait = Op::Receive(DEVICE);
    let asks = Program::once([Op::Run(fixed(MS)), start, wait, Op::Run(fixed(MS))]);
    let waits = Program::once([Op::Run(fixed(MS)), wait, Op::Run(fixed(MS))]);
    let late =
        Program::once([Op::Run(fixed(MS)), Op::Sleep(fixed(20 * MS)), wait, Op::Run(fixed(MS))]);
    let task = |(name, program): (&str, Program)| TaskSpec {
        affinity: CpuSet::single(CpuId(0)),
        ..TaskSpec::new(name, program)
    };
    let workload = Workload {
        tasks: [("asks", asks), ("waits", waits), ("late", late)].map(task).to_vec(),
        channels: vec![ChannelSpec { name: "device".to_owned(), ..ChannelSpec::default() }],
        ..Workload::default()
    };
    let mut events: Vec<SchedEvent> = Vec::new();
    let options = RunOptions::for_time(Ns::from_ms(50));
    let scheduler = scheduler("fifo-per-cpu", 2);
    run(&Machine::flat(2), &workload, &*scheduler, &options, &mut events).expect("a clean run");
    let ended = events.iter().filter(|event| matches!(event.kind, EventKind::Exit { .. })).count();
    assert_eq!(ended, 3, "{events:?}");
    let softirq = |event: &SchedEvent| match event.kind {
        EventKind::Wake { task: TaskId(task), waker: Waker::SoftIrq } => {
            Some((task, event.cpu.0, event.at.0))
        }
        _ => None,
    };
    events.iter().filter_map(softirq).collect()
}

/// Both that wait are woken when the device is done, 5 ms after it was asked at 1 ms; a later task
/// finds its token.
#[test]
fn an_interrupt_wakes_all_waiting_tasks() {
    assert_eq!(woken(1), [(0, 1, 6 * MS), (1, 1, 6 * MS)]);
}

#[test]
fn where_the_cpu_is_not_there_it_comes_to_the_tasks_own() {
    assert_eq!(woken(7), [(0, 0, 6 * MS), (1, 0, 6 * MS)]);
}

/// While a task of its CPU has interrupts off, a device waits: the section of 1 to 9 ms holds up
/// the interrupt of 6 ms. On another CPU nothing does.
#[test]
fn an_interrupt_waits_until_interrupts_are_on() {
    let woken = |cpu: u32| {
        let start =
            Op::Device { length: fixed(5 * MS), cpu: CpuId(cpu), channel: DEVICE, count: 1 };
        let asks =
            Program::once([Op::Run(fixed(MS)), start, Op::Receive(DEVICE), Op::Run(fixed(MS))]);
        let off = Op::Kernel { length: fixed(8 * MS), section: Section::IrqsOff };
        let blocks = Program::once([Op::Run(fixed(MS)), off, Op::Run(fixed(5 * MS))]);
        let task = |cpu: u32, program: Program| TaskSpec {
            affinity: CpuSet::single(CpuId(cpu)),
            ..TaskSpec::new("task", program)
        };
        let workload = Workload {
            tasks: vec![task(0, asks), task(1, blocks)],
            channels: vec![ChannelSpec { name: "device".to_owned(), ..ChannelSpec::default() }],
            ..Workload::default()
        };
        let mut events: Vec<SchedEvent> = Vec::new();
        let scheduler = scheduler("fifo-per-cpu", 3);
        let options = RunOptions::for_time(Ns::from_ms(50));
        run(&Machine::flat(3), &workload, &*scheduler, &options, &mut events).expect("a clean run");
        let wakes = |event: &&SchedEvent| {
            matches!(event.kind, EventKind::Wake { task: TaskId(0), waker: Waker::SoftIrq })
        };
        events.iter().find(wakes).map(|event| (event.cpu.0, event.at.0 / MS))
    };
    assert_eq!(woken(1), Some((1, 9)));
    assert_eq!(woken(2), Some((2, 6)));
}
