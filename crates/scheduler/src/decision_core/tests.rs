//! A scheduler that does what its test tells it, behind a driver that writes down what it is asked
//! for.

use super::*;
use crate::{CpuView, GroupView, TaskView};
use schedlab_model::Topology;
use std::cell::RefCell;

/// Gives the commands of `next` in its next call, and picks `pick`.
#[derive(Default)]
struct Scripted {
    next: RefCell<Vec<Cmd>>,
    /// Given in every function call.
    in_calls: Option<Cmd>,
    pick: RefCell<Option<u32>>,
    /// What it was called for.
    heard: RefCell<Vec<String>>,
}

impl Scripted {
    fn called(&self, cx: &Cx<'_>, what: String) {
        self.heard.borrow_mut().push(what);
        self.next.borrow_mut().drain(..).for_each(|cmd| cx.push(cmd));
    }
}

impl Scheduler for Scripted {
    fn needs(&self) -> Needs {
        Needs { ticks: true, cpu_timers: 1, global_timers: 1, ..Needs::default() }
    }
    fn init(&self, _: &Cx<'_>) {}
    fn wake(&self, cx: &Cx<'_>, task: TaskId, wake: Wake) {
        self.called(cx, format!("wake {task} {:?}", wake.kind));
    }
    fn leave(&self, _: &Cx<'_>, _: TaskId) {}
    fn yielded(&self, cx: &Cx<'_>, task: TaskId) {
        self.called(cx, format!("yielded {task}"));
    }
    fn schedule(&self, cx: &Cx<'_>, _: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        self.called(cx, format!("schedule {prev:?} {why:?}"));
        Pick { task: self.pick.borrow().map(TaskId), ..Pick::IDLE }
    }
    fn saved(&self, cx: &Cx<'_>, _: CpuId, prev: TaskId) {
        self.called(cx, format!("saved {prev}"));
    }
    fn tick_due(&self, _: &Cx<'_>, _: CpuId) -> u64 {
        2
    }
    fn call(&self, cx: &Cx<'_>, cookie: u64) {
        self.called(cx, format!("call {cookie}"));
        self.in_calls.into_iter().for_each(|cmd| cx.push(cmd));
    }
    fn resync(&self, _: &Cx<'_>) {}
}

#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0)
    }
}

impl AgentDriver for Notes {
    fn decide(&mut self, cpu: CpuId) {
        self.0.push(format!("decide {cpu}"));
    }
    fn arm(&mut self, timer: Timer, at: Ns) {
        self.0.push(format!("arm {timer:?} {}", at.0));
    }
    fn disarm(&mut self, timer: Timer) {
        self.0.push(format!("disarm {timer:?}"));
    }
    fn throttle(&mut self, task: TaskId, throttled: bool) {
        self.0.push(format!("throttle {task} {throttled}"));
    }
    fn next_tick(&mut self, cpu: CpuId, at: Option<Ns>) {
        self.0.push(format!("tick {cpu} {:?}", at.map(|at| at.0)));
    }
}

/// Two CPUs and three tasks that sleep.
fn core(scheduler: &Scripted, ticks: Ticks) -> DecisionCore<&Scripted> {
    let task = |_| {
        let mut view = TaskView::default();
        view.alive = true;
        view
    };
    let world = World {
        roles: Default::default(),
        partitions: Vec::new(),
        tasks: (0..3).map(task).collect(),
        cpus: (0..2).map(|_| CpuView::new(Ns::ZERO)).collect(),
        groups: vec![GroupView::default()],
        topology: Topology::flat(2),
        hz: 1000,
        tick_ns: Ns::from_ms(1),
    };
    DecisionCore::new(scheduler, world, 1, ticks)
}

const NOW: Ns = Ns(1_500_000);
const WOKEN: Wake = Wake { kind: WakeKind::Wake, sync: false, waker: Waker::Unknown };

fn wake(core: &mut DecisionCore<&Scripted>, task: u32, notes: &mut Notes) -> Result<(), Breach> {
    core.wake(NOW, CpuId(0), (TaskId(task), NOW), WOKEN, notes)
}

fn decide(
    core: &mut DecisionCore<&Scripted>,
    cpu: u32,
    why: Prev,
    notes: &mut Notes,
) -> Result<Decided, Breach> {
    core.decide(NOW, CpuId(cpu), why, |_, _| Ns(7), notes)
}

#[test]
fn each_command_is_one_call_of_the_driver() {
    let scheduler = Scripted::default();
    let (mut core, mut notes) = (core(&scheduler, Ticks::Every), Notes::default());
    let (cpu, task) = (CpuId(1), TaskId(2));
    for (cmd, asked) in [
        (Cmd::Resched(cpu), "decide cpu1"),
        (Cmd::Arm(Timer::Global(0), Ns(7)), "arm Global(0) 1500000"),
        (Cmd::Disarm(Timer::Cpu(cpu, 0)), "disarm Cpu(CpuId(1), 0)"),
        (Cmd::Throttled(task), "throttle task2 true"),
        (Cmd::Unthrottled(task), "throttle task2 false"),
    ] {
        scheduler.next.borrow_mut().push(cmd);
        wake(&mut core, 0, &mut notes).expect("it names what exists");
        assert_eq!(notes.take(), [asked]);
    }
    // These ask for nothing where every tick is delivered.
    scheduler.next.borrow_mut().extend([
        Cmd::TickDue(cpu),
        Cmd::Moved(task, cpu),
        Cmd::Call(cpu, 5),
    ]);
    wake(&mut core, 0, &mut notes).expect("it names what exists");
    assert_eq!(notes.take(), [] as [&str; 0]);
    assert_eq!((core.take_call(Some(CpuId(0))), core.take_call(Some(cpu))), (None, Some((cpu, 5))));
}

#[test]
fn ticks_are_asked_for_where_the_call_ran_and_where_it_names_a_cpu() {
    let scheduler = Scripted::default();
    let (mut core, mut notes) = (core(&scheduler, Ticks::Asked), Notes::default());
    scheduler.next.borrow_mut().push(Cmd::TickDue(CpuId(1)));
    wake(&mut core, 0, &mut notes).expect("it names what exists");
    // Edges are at whole milliseconds; the second one after 1.5 ms is at 3 ms.
    assert_eq!(notes.take(), ["tick cpu1 Some(3000000)", "tick cpu0 Some(3000000)"]);
}

#[test]
fn a_displaced_task_leaves_its_cpu_and_wakes_again() {
    let scheduler = Scripted::default();
    let (mut core, mut notes) = (core(&scheduler, Ticks::Every), Notes::default());
    for task in [0, 1] {
        wake(&mut core, task, &mut notes).expect("nothing is asked");
    }
    *scheduler.pick.borrow_mut() = Some(0);
    decide(&mut core, 1, Prev::Idle, &mut notes).expect("it waits");
    scheduler.next.borrow_mut().push(Cmd::Displace(TaskId(0)));
    wake(&mut core, 2, &mut notes).expect("it runs");
    assert_eq!(notes.take(), ["decide cpu1"]);
    scheduler.heard.borrow_mut().clear();
    core.note_yield(CpuId(1));
    *scheduler.pick.borrow_mut() = Some(1);
    let decided = decide(&mut core, 1, Prev::Runnable, &mut notes).expect("the other waits");
    assert_eq!((decided.prev, decided.why), (Some(TaskId(0)), Prev::Migrating));
    let heard = ["schedule Some(TaskId(0)) Migrating", "saved task0", "wake task0 Migrated"];
    assert_eq!(*scheduler.heard.borrow(), heard);
    assert_eq!((core.world().tasks[0].ran(), core.world().tasks[0].on_cpu()), (Ns(7), None));
    assert_eq!(core.world().tasks[1].on_cpu(), Some(CpuId(1)));
    // The flags were about one decision.
    decide(&mut core, 1, Prev::Runnable, &mut notes).expect("it goes on");
    assert_eq!(
        scheduler.heard.borrow().last().map(String::as_str),
        Some("schedule Some(TaskId(1)) Runnable")
    );
}

#[test]
fn a_yield_is_told_before_the_decision() {
    let scheduler = Scripted::default();
    let (mut core, mut notes) = (core(&scheduler, Ticks::Every), Notes::default());
    wake(&mut core, 0, &mut notes).expect("nothing is asked");
    *scheduler.pick.borrow_mut() = Some(0);
    decide(&mut core, 0, Prev::Idle, &mut notes).expect("it waits");
    scheduler.heard.borrow_mut().clear();
    core.note_yield(CpuId(0));
    decide(&mut core, 0, Prev::Runnable, &mut notes).expect("it goes on");
    assert_eq!(*scheduler.heard.borrow(), ["yielded task0", "schedule Some(TaskId(0)) Runnable"]);
}

#[test]
fn a_breach_has_a_name() {
    let (cpu, task) = (CpuId(2), TaskId(3));
    for (cmd, breach) in [
        (Cmd::Resched(cpu), Breach::NoSuchCpu(cpu)),
        (Cmd::TickDue(cpu), Breach::NoSuchCpu(cpu)),
        (Cmd::Call(cpu, 0), Breach::NoSuchCpu(cpu)),
        (Cmd::Moved(TaskId(0), cpu), Breach::NoSuchCpu(cpu)),
        (Cmd::Moved(task, CpuId(0)), Breach::NoSuchTask(task)),
        (Cmd::Throttled(task), Breach::NoSuchTask(task)),
        (Cmd::Unthrottled(task), Breach::NoSuchTask(task)),
        (Cmd::Displace(task), Breach::NoSuchTask(task)),
        (Cmd::Displace(TaskId(1)), Breach::NotRunning(TaskId(1))),
        (Cmd::Arm(Timer::Global(1), NOW), Breach::UndeclaredTimer(Timer::Global(1))),
        (Cmd::Disarm(Timer::Task(TaskId(0))), Breach::UndeclaredTimer(Timer::Task(TaskId(0)))),
        (Cmd::Arm(Timer::Cpu(cpu, 0), NOW), Breach::UndeclaredTimer(Timer::Cpu(cpu, 0))),
    ] {
        let scheduler = Scripted::default();
        let mut core = core(&scheduler, Ticks::Asked);
        scheduler.next.borrow_mut().push(cmd);
        assert_eq!(wake(&mut core, 0, &mut Notes::default()), Err(breach), "{cmd:?}");
    }
}

#[test]
fn a_pick_that_cannot_run_is_a_breach() {
    let scheduler = Scripted::default();
    let (mut core, mut notes) = (core(&scheduler, Ticks::Every), Notes::default());
    *scheduler.pick.borrow_mut() = Some(9);
    assert_eq!(decide(&mut core, 0, Prev::Idle, &mut notes), Err(Breach::PickedUnknown(TaskId(9))));
    *scheduler.pick.borrow_mut() = Some(0);
    let asleep = decide(&mut core, 0, Prev::Idle, &mut notes).expect_err("it sleeps");
    assert!(asleep.to_string().contains("picked task0 (runnable No"), "{asleep}");
    wake(&mut core, 0, &mut notes).expect("nothing is asked");
    decide(&mut core, 0, Prev::Idle, &mut notes).expect("it waits");
    let twice = decide(&mut core, 1, Prev::Idle, &mut notes).expect_err("it runs already");
    assert!(twice.to_string().contains("on Some(CpuId(0))"), "{twice}");
    let left = Breach::PickedLeaver { task: Some(TaskId(0)), why: Prev::Blocked };
    assert_eq!(decide(&mut core, 0, Prev::Blocked, &mut notes), Err(left));
}

#[test]
fn function_calls_come_to_an_end() {
    let mut scheduler = Scripted::default();
    scheduler.next.get_mut().extend([Cmd::Call(CpuId(0), 1), Cmd::Call(CpuId(1), 2)]);
    let (mut quiet, mut notes) = (core(&scheduler, Ticks::Every), Notes::default());
    wake(&mut quiet, 0, &mut notes).expect("CPUs that exist");
    assert_eq!(quiet.finish_calls(NOW, &mut notes), Ok(()));
    assert_eq!(scheduler.heard.borrow()[1..], ["call 1", "call 2"]);

    let mut scheduler = Scripted { in_calls: Some(Cmd::Call(CpuId(0), 1)), ..Scripted::default() };
    scheduler.next.get_mut().push(Cmd::Call(CpuId(0), 1));
    let mut restless = core(&scheduler, Ticks::Every);
    wake(&mut restless, 0, &mut notes).expect("a CPU that exists");
    let endless = restless.finish_calls(NOW, &mut notes);
    assert_eq!(endless, Err(Breach::EndlessCalls { limit: CALLS_MAX }));
}
