//! Random calls against the run queues, with every count checked after each: no task is lost, none
//! is counted twice.

use crate::linux::Linux;
use crate::linux::core::rq::{Class, Entity, NONE, ROOT, Rq};
use crate::linux::fair::FairRules;
use crate::linux::fair::cfs::Cfs;
use crate::linux::fair::eevdf::Eevdf;
use crate::linux::version::{
    V2_6_24, V2_6_32, V3_0, V4_19, V6_1, V6_6, V6_12, V6_18, V7_2, Version,
};
use crate::{
    CellLocks, Change, Cmd, CpuView, Cx, GroupView, Knobs, Lock, Out, Prev, Runnable, Scheduler,
    TaskView, Timer, Wake, WakeKind, World,
};
use proptest::prelude::*;
use schedlab_model::{CpuId, CpuSet, GroupId, Nice, Ns, Policy, TaskId, Topology, Waker};

/// One random step; the numbers are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u64),
    Wake(usize),
    Block(usize),
    Yield(usize),
    Exit(usize),
    Attributes(usize, Policy, i8),
    Affinity(usize, usize),
    Group(usize, usize),
    Shares(usize, u32),
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        5 => Just(Policy::Other),
        1 => Just(Policy::Batch),
        2 => Just(Policy::Idle),
        1 => (1u8..4).prop_map(Policy::Fifo),
        1 => (1u8..4).prop_map(Policy::Rr),
        1 => (1u64..9, 0u64..9, 0u64..9).prop_map(|(runtime, slack, gap)| Policy::Deadline {
            runtime: Ns(runtime * 700_000),
            deadline: Ns((runtime + slack) * 700_000),
            period: Ns((runtime + slack + gap) * 700_000),
        }),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let n = 0usize..64;
    prop_oneof![
        6 => (1u64..9_000_000).prop_map(Step::Wait),
        8 => n.clone().prop_map(Step::Wake),
        4 => n.clone().prop_map(Step::Block),
        2 => n.clone().prop_map(Step::Yield),
        1 => n.clone().prop_map(Step::Exit),
        2 => (n.clone(), any_policy(), -20i8..20).prop_map(|(t, policy, nice)| Step::Attributes(t, policy, nice)),
        1 => (n.clone(), n.clone()).prop_map(|(t, cpu)| Step::Affinity(t, cpu)),
        1 => (n.clone(), n.clone()).prop_map(|(t, group)| Step::Group(t, group)),
        1 => (n, 2u32..5000).prop_map(|(group, shares)| Step::Shares(group, shares)),
    ]
}

struct Chaos<F: FairRules> {
    linux: Linux<CellLocks, F>,
    world: World,
    out: Out,
    now: u64,
    next_tick: u64,
    resched: Vec<CpuId>,
    timers: Vec<(u64, Timer)>,
    displaced: Vec<TaskId>,
}

impl<F: FairRules> Chaos<F> {
    fn new(version: Version, cpus: usize, tasks: usize) -> Chaos<F> {
        Chaos::with_knobs(version, cpus, tasks, &Knobs::default())
    }

    fn with_knobs(version: Version, cpus: usize, tasks: usize, knobs: &Knobs) -> Chaos<F> {
        Chaos::with_groups(version, cpus, tasks, knobs, &[None, Some(0), Some(1), Some(0)])
    }

    /// `groups`: the parent of each.
    fn with_groups(
        version: Version,
        cpus: usize,
        tasks: usize,
        knobs: &Knobs,
        groups: &[Option<u32>],
    ) -> Chaos<F> {
        let world = World {
            roles: Default::default(),
            partitions: Vec::new(),
            tasks: (0..tasks)
                .map(|i| {
                    let mut view = TaskView::default();
                    (view.alive, view.old_sleeper) = (true, i % 2 == 0);
                    view.group = GroupId((i % groups.len()) as u32);
                    view
                })
                .collect(),
            cpus: (0..cpus).map(|_| CpuView::new(Ns(4_000_000))).collect(),
            groups: groups
                .iter()
                .map(|parent| GroupView { parent: parent.map(GroupId), ..GroupView::default() })
                .collect(),
            topology: Topology::flat(cpus),
            hz: 250,
            tick_ns: Ns(4_000_000),
        };
        let linux = Linux::new(version, cpus, knobs);
        let chaos = Chaos {
            linux,
            world,
            out: Out::new(1),
            now: 0,
            next_tick: 4_000_000,
            resched: Vec::new(),
            timers: Vec::new(),
            displaced: Vec::new(),
        };
        chaos.linux.init(&chaos.cx(0));
        chaos
    }

    fn cx(&self, cpu: usize) -> Cx<'_> {
        Cx { now: Ns(self.now), cpu: cpu.into(), world: &self.world, out: &self.out }
    }

    fn step(&mut self, step: Step) {
        let (cpus, tasks) = (self.world.cpus.len(), self.world.tasks.len());
        let running = |this: &Self, n: usize| this.world.cpus[n % cpus].current();
        match step {
            Step::Wait(ns) => self.wait(self.now + ns),
            Step::Wake(t) => self.wake(TaskId::from(t % tasks), WakeKind::Wake),
            Step::Block(n) | Step::Exit(n) => {
                if let Some(task) = running(self, n) {
                    self.world.tasks[task.index()].set_runnable(Runnable::No);
                    let exits = matches!(step, Step::Exit(_));
                    self.world.tasks[task.index()].alive = !exits;
                    self.schedule(
                        (n % cpus).into(),
                        if exits { Prev::Exited } else { Prev::Blocked },
                    );
                }
            }
            Step::Yield(n) => {
                if let Some(task) = running(self, n) {
                    self.linux.yielded(&self.cx(n % cpus), task);
                    self.commands();
                    self.schedule((n % cpus).into(), Prev::Runnable);
                }
            }
            Step::Attributes(t, policy, nice) => {
                let view = &mut self.world.tasks[t % tasks];
                (view.policy, view.nice) = (policy, Nice::new(nice).expect("in range"));
                self.change(t % tasks, Change::Attributes(TaskId::from(t % tasks)));
            }
            Step::Affinity(t, cpu) => {
                let only = CpuSet::single(CpuId::from(cpu % (cpus + 1)));
                let all = cpu % (cpus + 1) == cpus;
                self.world.tasks[t % tasks].affinity = if all { CpuSet::first(cpus) } else { only };
                self.change(t % tasks, Change::Affinity(TaskId::from(t % tasks)));
            }
            Step::Group(t, group) => {
                let view = &mut self.world.tasks[t % tasks];
                let from = std::mem::replace(&mut view.group, GroupId((group % 4) as u32));
                self.change(t % tasks, Change::Regrouped { task: TaskId::from(t % tasks), from });
            }
            Step::Shares(group, shares) => {
                let group = 1 + group % 3;
                self.world.groups[group].weight = Some(shares);
                self.linux.changed(&self.cx(0), Change::Group(GroupId(group as u32)));
            }
        }
        self.settle();
    }

    fn change(&mut self, task: usize, change: Change) {
        if self.world.tasks[task].alive {
            self.linux.changed(&self.cx(0), change);
        }
    }

    fn wake(&mut self, task: TaskId, kind: WakeKind) {
        let view = &self.world.tasks[task.index()];
        if !view.alive || view.runnable() == Runnable::Yes && kind == WakeKind::Wake {
            return;
        }
        view.set_runnable(Runnable::Yes);
        let wake = Wake { kind, sync: false, waker: Waker::HardIrq };
        self.linux.wake(&self.cx(0), task, wake);
    }

    fn wait(&mut self, until: u64) {
        loop {
            let timer = self.timers.iter().map(|t| t.0).min().unwrap_or(u64::MAX);
            let at = self.next_tick.min(timer);
            if at > until {
                break;
            }
            self.now = self.now.max(at);
            if at == self.next_tick {
                self.next_tick += 4_000_000;
                for cpu in 0..self.world.cpus.len() {
                    self.linux.tick(&self.cx(cpu), cpu.into());
                }
            } else if let Some(index) = self.timers.iter().position(|t| t.0 == at) {
                let timer = self.timers.remove(index).1;
                let cpu = if let Timer::Cpu(cpu, _) = timer { cpu.index() } else { 0 };
                self.linux.timer(&self.cx(cpu), timer);
            }
            self.settle();
        }
        self.now = until;
    }

    /// Carries out what was asked for until nothing is left.
    fn settle(&mut self) {
        self.commands();
        while !self.resched.is_empty() || !self.displaced.is_empty() {
            if let Some(task) = self.displaced.pop() {
                if let Some(cpu) = self.world.tasks[task.index()].on_cpu() {
                    self.schedule(cpu, Prev::Migrating);
                    self.linux.saved(&self.cx(cpu.index()), cpu, task);
                    self.wake(task, WakeKind::Migrated);
                    self.commands();
                }
            } else {
                let cpu = self.resched.remove(0);
                self.schedule(cpu, Prev::Runnable);
            }
        }
    }

    fn schedule(&mut self, cpu: CpuId, why: Prev) {
        let prev = self.world.cpus[cpu.index()].current();
        let why = if prev.is_none() { Prev::Idle } else { why };
        let next = self.linux.schedule(&self.cx(cpu.index()), cpu, prev, why).task;
        if next != prev {
            if let Some(prev) = prev {
                self.world.tasks[prev.index()].switched_out(Ns(self.now), Ns(0));
            }
            if let Some(next) = next {
                let view = &self.world.tasks[next.index()];
                assert_eq!((view.on_cpu(), view.runnable()), (None, Runnable::Yes), "{next}");
                assert!(view.affinity.contains(cpu), "{next} may not run on {cpu}");
                view.switched_in(cpu, Ns(self.now));
            }
            self.world.cpus[cpu.index()].set_current(next);
        }
        self.commands();
    }

    fn commands(&mut self) {
        let mut cmds = Vec::new();
        self.out.take_cmds(&mut cmds);
        for cmd in cmds {
            match cmd {
                Cmd::Resched(cpu) if !self.resched.contains(&cpu) => self.resched.push(cpu),
                Cmd::Displace(task) => self.displaced.push(task),
                Cmd::Disarm(timer) => self.timers.retain(|t| t.1 != timer),
                Cmd::Arm(timer, at) => {
                    self.timers.retain(|t| t.1 != timer);
                    self.timers.push((at.0.max(self.now), timer));
                }
                Cmd::Call(cpu, cookie) => {
                    self.linux.call(&self.cx(cpu.index()), cookie);
                    self.commands();
                }
                _ => {}
            }
        }
    }

    /// RT priorities, best first: of the running tasks, and of the best runnable ones that there is
    /// room for.
    fn rt_priorities(&self) -> (Vec<u8>, Vec<u8>) {
        let priority = |t: &TaskView| t.policy.rt_priority();
        let sorted = |mut list: Vec<u8>| {
            list.sort_unstable_by(|a, b| b.cmp(a));
            list.truncate(self.world.cpus.len());
            list
        };
        let real = || self.world.tasks.iter().filter(|t| t.alive && t.policy.is_realtime());
        let runnable = real().filter(|t| t.runnable() == Runnable::Yes).map(priority).collect();
        let running = real().filter(|t| t.on_cpu().is_some()).map(priority).collect();
        (sorted(running), sorted(runnable))
    }

    /// Every runnable task is on exactly one queue, no other is, and all sums are right.
    fn check(&self) {
        for (index, view) in self.world.tasks.iter().enumerate() {
            let task = TaskId::from(index);
            let Some((cpu, id)) = self.linux.index.get(task) else {
                assert!(!view.alive, "{task} has no home");
                continue;
            };
            let rq = self.linux.rqs[cpu.index()].lock();
            let entity = rq.entity(id);
            assert_eq!(entity.task, task.0);
            let queued = entity.on_rq && !entity.delayed;
            assert_eq!(queued, view.alive && view.runnable() == Runnable::Yes, "{task} on {cpu}");
            assert_eq!(rq.curr == id, view.on_cpu() == Some(cpu), "{task} on {cpu}");
        }
        for (cpu, lock) in self.linux.rqs.iter().enumerate() {
            check_counts(&lock.lock(), cpu);
        }
    }
}

fn check_counts(rq: &Rq, cpu: usize) {
    let tasks = || rq.entities.iter().filter(|e| e.on_rq && e.task != NONE);
    let rt = tasks().filter(|e| e.class == Class::Rt).count() as u32;
    assert_eq!(rq.rt_nr, rt, "RT tasks of CPU {cpu}");
    assert_eq!(rq.rt.waiting().count() as u32, rt, "RT lists of CPU {cpu}");
    let fair = tasks().filter(|e| e.class == Class::Fair).count() as u32;
    assert_eq!(rq.queue(ROOT).h_nr, fair, "fair tasks of CPU {cpu}");
    let dl = tasks().filter(|e| e.class == Class::Deadline).count() as u32;
    assert_eq!(rq.dl_here, dl, "deadline tasks of CPU {cpu}");
    let queued = rq.dl.queued().count() as u32;
    let waiting = |e: &&Entity| e.dl.as_ref().is_some_and(|cbs| cbs.throttled);
    assert_eq!(queued + tasks().filter(waiting).count() as u32, dl, "budgets of CPU {cpu}");
    let rt = if rq.rt.throttled { 0 } else { rt };
    assert_eq!(rq.nr_running, fair + rt + queued, "tasks of CPU {cpu}");
    for id in 0..rq.queues() {
        let queue = rq.queue(id);
        let own =
            || rq.entities.iter().filter(|e| e.on_rq && e.class == Class::Fair && e.queue == id);
        assert_eq!(queue.nr, own().count() as u32, "entities of queue {id} of CPU {cpu}");
        assert_eq!(
            queue.idle_nr,
            own().filter(|e| e.idle).count() as u32,
            "idle ones of queue {id}"
        );
        let weight: u64 = own().map(|e| e.load.weight()).sum();
        assert_eq!(queue.load.weight(), weight, "weight of queue {id} of CPU {cpu}");
        let below: u32 =
            own().map(|e| if e.owns == NONE { 1 } else { rq.queue(e.owns).h_nr }).sum();
        assert_eq!(queue.h_nr, below, "tasks below queue {id} of CPU {cpu}");
        if queue.owner != NONE {
            let delayed = rq.entity(queue.owner).delayed;
            assert_eq!(
                rq.entity(queue.owner).on_rq,
                queue.nr > 0 || delayed,
                "group entity of queue {id}"
            );
        }
    }
}

/// Two FIFO tasks of one priority wake on CPU 0; the second may run only there, so the first one
/// moves.
#[test]
fn a_pinned_equal_pushes_the_running_task_away() {
    let mut chaos: Chaos<Cfs> = Chaos::new(V6_1, 2, 2);
    for task in 0..2 {
        chaos.step(Step::Attributes(task, Policy::Fifo(5), 0));
    }
    chaos.step(Step::Affinity(1, 0));
    chaos.step(Step::Wake(0));
    assert_eq!(chaos.world.cpus[0].current(), Some(TaskId(0)));
    chaos.step(Step::Wake(1));
    assert_eq!(chaos.world.cpus[0].current(), Some(TaskId(1)));
    assert_eq!(chaos.world.cpus[1].current(), Some(TaskId(0)));
}

/// An RT task does not wait behind another one while a CPU runs only fair tasks.
#[test]
fn a_woken_rt_task_goes_where_no_rt_task_runs() {
    let mut chaos: Chaos<Cfs> = Chaos::new(V6_1, 2, 3);
    chaos.step(Step::Attributes(0, Policy::Fifo(5), 0));
    chaos.step(Step::Attributes(1, Policy::Fifo(5), 0));
    (0..3).for_each(|task| chaos.step(Step::Wake(task)));
    let running: Vec<_> = chaos.world.cpus.iter().map(|cpu| cpu.current()).collect();
    assert_eq!(running, [Some(TaskId(0)), Some(TaskId(1))]);
}

/// After lost events the queues are what the views say, and everything goes on.
#[test]
fn resync_finds_every_task_again() {
    let mut chaos: Chaos<Cfs> = Chaos::new(V6_1, 3, 8);
    chaos.step(Step::Attributes(2, Policy::Fifo(3), 0));
    for task in 0..6 {
        chaos.step(Step::Wake(task));
        chaos.step(Step::Wait(3_000_000));
    }
    // Two events that the scheduler does not hear of: one task stops to be runnable, another
    // starts.
    let waiting = (0..6).find(|&t| chaos.world.tasks[t].on_cpu().is_none()).expect("one waits");
    chaos.world.tasks[waiting].set_runnable(Runnable::No);
    chaos.world.tasks[7].set_runnable(Runnable::Yes);
    chaos.linux.resync(&chaos.cx(0));
    chaos.settle();
    chaos.check();
    // Task 7 may be behind the FIFO task, which RT throttling stops after 950 ms of each second
    // (`sched_rt_runtime_us`).
    chaos.wait(chaos.now + 1_000_000_000);
    chaos.check();
    assert!(chaos.world.tasks[7].entered() > Ns::ZERO, "it ran");
}

fn no_task_is_lost<F: FairRules>(version: Version, cpus: usize, steps: &[Step]) {
    let mut chaos: Chaos<F> = Chaos::new(version, cpus, 10);
    for &step in steps {
        chaos.step(step);
        chaos.check();
    }
    // The task that is runnable gets to run in the end.
    chaos.wait(chaos.now + 2_000_000_000);
    chaos.check();
}

/// Two schedulers that hear the same, one of them without the path for the common case.
fn plain_and_general_paths_agree<F: FairRules>(version: Version, cpus: usize, steps: &[Step]) {
    let make = |plain| {
        let mut chaos: Chaos<F> = Chaos::with_groups(version, cpus, 10, &Knobs::default(), &[None]);
        chaos.linux.plain = plain;
        chaos
    };
    let (mut plain, mut general) = (make(true), make(false));
    for &step in steps {
        if matches!(step, Step::Group(..) | Step::Shares(..)) {
            continue;
        }
        plain.step(step);
        general.step(step);
        for cpu in 0..cpus {
            let states = [&plain, &general].map(|chaos| {
                let at = CpuId::from(cpu);
                let signals =
                    chaos.linux.smp.get().map(|smp| smp.summary.signals(at, Ns(chaos.now)));
                let due = chaos.linux.tick_due(&chaos.cx(cpu), at);
                (chaos.linux.explain(&chaos.cx(cpu), at), signals, due, chaos.timers.clone())
            });
            assert_eq!(states[0], states[1], "CPU {cpu} after {step:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(schedlab_testing::cases(48)))]

    #[test]
    fn plain_and_general_paths_agree_in_6_1(cpus in 1usize..4, steps in prop::collection::vec(any_step(), 1..160)) {
        plain_and_general_paths_agree::<Cfs>(V6_1, cpus, &steps);
    }

    #[test]
    fn plain_and_general_paths_agree_in_6_12(cpus in 1usize..4, steps in prop::collection::vec(any_step(), 1..160)) {
        plain_and_general_paths_agree::<Eevdf>(V6_12, cpus, &steps);
    }

    #[test]
    fn plain_and_general_paths_agree_in_6_18(cpus in 1usize..4, steps in prop::collection::vec(any_step(), 1..160)) {
        plain_and_general_paths_agree::<Eevdf>(V6_18, cpus, &steps);
    }

    #[test]
    fn plain_and_general_paths_agree_in_7_2(cpus in 1usize..4, steps in prop::collection::vec(any_step(), 1..160)) {
        plain_and_general_paths_agree::<Eevdf>(V7_2, cpus, &steps);
    }

    #[test]
    fn no_task_is_lost_in_6_1(cpus in 1usize..4, steps in prop::collection::vec(any_step(), 1..120)) {
        no_task_is_lost::<Cfs>(V6_1, cpus, &steps);
    }

    #[test]
    fn no_task_is_lost_in_other_versions(
        version in 0usize..6, cpus in 1usize..4, steps in prop::collection::vec(any_step(), 1..120),
    ) {
        match version {
            0 => no_task_is_lost::<Cfs>(V2_6_24, cpus, &steps),
            1 => no_task_is_lost::<Cfs>(V2_6_32, cpus, &steps),
            2 => no_task_is_lost::<Cfs>(V3_0, cpus, &steps),
            3 => no_task_is_lost::<Cfs>(V4_19, cpus, &steps),
            4 => no_task_is_lost::<Eevdf>(V6_6, cpus, &steps),
            _ => no_task_is_lost::<Eevdf>(V7_2, cpus, &steps),
        }
    }

    #[test]
    fn plain_and_general_paths_agree_in_other_versions(
        version in 0usize..5, cpus in 1usize..4, steps in prop::collection::vec(any_step(), 1..160),
    ) {
        match version {
            0 => plain_and_general_paths_agree::<Cfs>(V2_6_24, cpus, &steps),
            1 => plain_and_general_paths_agree::<Cfs>(V2_6_32, cpus, &steps),
            2 => plain_and_general_paths_agree::<Cfs>(V3_0, cpus, &steps),
            3 => plain_and_general_paths_agree::<Cfs>(V4_19, cpus, &steps),
            _ => plain_and_general_paths_agree::<Eevdf>(V6_6, cpus, &steps),
        }
    }

    /// Without pinned tasks and throttling, the best RT tasks of the machine run.
    #[test]
    fn the_best_rt_tasks_run(
        cpus in 1usize..5,
        priorities in prop::collection::vec(1u8..9, 3..9),
        steps in prop::collection::vec((0usize..64, any::<bool>()), 1..80),
    ) {
        let spec = "linux-6.1:sched_rt_runtime_us=-1".parse().expect("a spec");
        let knobs = Knobs::check(&spec, &crate::linux::knobs::rows(&V6_1)).expect("a knob");
        let mut chaos: Chaos<Cfs> = Chaos::with_knobs(V6_1, cpus, priorities.len() + 2, &knobs);
        for (task, &priority) in priorities.iter().enumerate() {
            chaos.step(Step::Attributes(task, Policy::Fifo(priority), 0));
        }
        for (n, wakes) in steps {
            chaos.step(if wakes { Step::Wake(n) } else { Step::Block(n) });
            chaos.step(Step::Wait(100_000));
            chaos.check();
            let (running, best) = chaos.rt_priorities();
            prop_assert_eq!(running, best);
        }
    }

    /// No task runs ahead of the leftmost by more than a slice and the two ticks in which its end
    /// is noticed.
    #[test]
    fn vruntimes_stay_together(nices in prop::collection::vec(-20i8..20, 2..10), ms in 1u64..3_000) {
        let mut chaos: Chaos<Cfs> = Chaos::new(V6_1, 1, nices.len());
        for (task, &nice) in nices.iter().enumerate() {
            chaos.step(Step::Group(task, 0));
            chaos.step(Step::Attributes(task, Policy::Other, nice));
            chaos.step(Step::Wake(task));
        }
        chaos.wait(ms * 1_000_000);
        let rq = chaos.linux.rqs[0].lock();
        let queue = rq.queue(ROOT);
        let least = rq.entities.iter().filter(|e| e.on_rq && e.owns == NONE).map(|e| e.vruntime).min();
        for entity in rq.entities.iter().filter(|e| e.on_rq && e.owns == NONE) {
            let ahead = (entity.vruntime - least.expect("some run")) as u64;
            let share = 6_000_000 * entity.load.weight() / queue.load.weight();
            let mut load = entity.load;
            // At the start: new tasks up to a period behind, old ones half a period before.
            let bound = load.virt(share.max(750_000) + 8_000_000) + 9_000_000;
            prop_assert!(ahead <= bound, "{} ns ahead, bound {}", ahead, bound);
        }
    }

    #[test]
    fn no_task_is_lost_in_6_12(cpus in 1usize..4, steps in prop::collection::vec(any_step(), 1..120)) {
        no_task_is_lost::<Eevdf>(V6_12, cpus, &steps);
    }

    #[test]
    fn no_task_is_lost_in_6_18(cpus in 1usize..4, steps in prop::collection::vec(any_step(), 1..120)) {
        no_task_is_lost::<Eevdf>(V6_18, cpus, &steps);
    }
}
