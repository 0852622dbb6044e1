//! Where tasks of a run that begins in the middle of a machine's life are, and what balancing and
//! placement count there.

use crate::common::scheduler;
use schedlab_model::{
    Amount, CpuId, CpuSet, EventKind, Nice, Ns, Op, Program, SchedEvent, Start, TaskId, TaskSpec,
    Workload,
};
use schedlab_sim::{Machine, RunOptions, run};

fn events(spec: &str, cpus: usize, tasks: Vec<TaskSpec>, time: Ns) -> Vec<SchedEvent> {
    let workload = Workload { tasks, ..Workload::default() };
    let mut events: Vec<SchedEvent> = Vec::new();
    let options = RunOptions::for_time(time);
    run(&Machine::flat(cpus), &workload, &*scheduler(spec, cpus), &options, &mut events).unwrap();
    events
}

/// When and where tasks that `counts` take a CPU.
fn starts(events: &[SchedEvent], counts: impl Fn(u32) -> bool) -> Vec<(Ns, CpuId)> {
    let start = |event: &SchedEvent| match event.kind {
        EventKind::Switch { next: Some(TaskId(task)), .. } if counts(task) => {
            Some((event.at, event.cpu))
        }
        _ => None,
    };
    events.iter().filter_map(start).collect()
}

fn hog(cpu: u32) -> TaskSpec {
    TaskSpec { began_on: Some(CpuId(cpu)), ..TaskSpec::new("hog", Program::hog()) }
}

fn pinned(cpu: u32, task: TaskSpec) -> TaskSpec {
    TaskSpec { affinity: CpuSet::single(CpuId(cpu)), ..task }
}

fn fixed(us: u64) -> Amount {
    Amount::Fixed(Ns::from_us(us))
}

#[test]
fn a_task_begins_where_it_is_known_to_have_been() {
    for spec in ["linux-6.1", "linux-6.18", "linux-7.2"] {
        let events = events(spec, 3, [2, 2, 2, 0].map(hog).to_vec(), Ns::from_us(100));
        let on_two = starts(&events, |task| task < 3);
        assert_eq!(on_two.len(), 1, "{spec}: {on_two:?}");
        assert_eq!(on_two[0].1, CpuId(2), "{spec}");
        assert_eq!(starts(&events, |task| task == 3)[0].1, CpuId(0), "{spec}");
    }
    // Where it may not run, its scheduler places it.
    let elsewhere = pinned(1, hog(0));
    assert_eq!(
        starts(&events("linux-6.1", 2, vec![elsewhere], Ns::from_ms(1)), |_| true)[0].1,
        CpuId(1)
    );
}

/// `detach_tasks` puts a task that may not go before the others, so that the next attempt sees
/// another one first.
#[test]
fn a_pinned_task_is_looked_at_once() {
    // One task is looked at per attempt, and none counts as cache hot: the one that waits has just
    // been preempted when an idle CPU looks. The pinned one of nice 19 ran early, and is due again
    // after half a second. The other CPU has more load for 300 ms, then nothing.
    let light = TaskSpec { nice: Nice::new(19).unwrap(), ..pinned(0, hog(0)) };
    let leaves = TaskSpec::new("leaves", Program::once([Op::Run(fixed(300_000)), Op::Exit]));
    let leaves =
        TaskSpec { nice: Nice::new(-10).unwrap(), began_on: Some(CpuId(1)), ..pinned(1, leaves) };
    let spec = "linux-6.1:nr_migrate=1,migration_cost_ns=0";
    let events = events(spec, 2, vec![light, hog(0), hog(0), leaves], Ns::from_ms(400));
    let there = starts(&events, |task| task == 1 || task == 2);
    let first = there.iter().find(|(_, cpu)| *cpu == CpuId(1)).map(|(at, _)| *at);
    assert!(first.is_some_and(|at| at >= Ns::from_ms(300) && at < Ns::from_ms(316)), "{first:?}");
}

/// CPU 1: a hog and, every 9 ms, a server that works for 20 us and blocks; CPU 0: a hog. 150 us
/// after the server a task is created on CPU 1: how many of a hundred are placed on CPU 0.
fn moved_on(spec: &str, server: bool) -> usize {
    let mut tasks = vec![pinned(0, hog(0)), pinned(1, hog(1))];
    for i in 0..100 {
        let at = 20_000 + 9_137 * i;
        let once = Program::once([Op::Run(fixed(20)), Op::Sleep(fixed(100_000_000))]);
        let mut other = pinned(1, TaskSpec::new("server", once));
        other.start = Start::AsleepUntil(Ns::from_us(if server { at } else { 100_000_000 }));
        let mut created = TaskSpec::new("created", Program::once([Op::Run(fixed(5)), Op::Exit]));
        created.start = Start::At(Ns::from_us(at + 150));
        tasks.extend([other, created]);
    }
    let events = events(spec, 2, tasks, Ns::from_s(1));
    let there = starts(&events, |task| task > 1 && task % 2 == 1);
    there.iter().filter(|(_, cpu)| *cpu == CpuId(0)).count()
}

/// `rq->nr_running` counts a delayed task, so that its CPU is overloaded
/// (`update_sg_wakeup_stats`, 7.2.13).
#[test]
fn a_delayed_task_counts_where_new_tasks_are_placed() {
    for spec in ["linux-6.18", "linux-7.2"] {
        let (without, with) = (moved_on(spec, false), moved_on(spec, true));
        let gone = moved_on(&format!("{spec}:features.DELAY_DEQUEUE=off"), true);
        let all = format!("{spec}: {without} without, {with} delayed, {gone} gone");
        assert!(without < 20 && gone < 50 && with > gone + 30, "{all}");
    }
}
