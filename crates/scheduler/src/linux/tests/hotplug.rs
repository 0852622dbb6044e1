//! CPUs that come and go, by direct calls.

use crate::{
    Change, Cmd, CpuView, Cx, GroupView, Out, Prev, Runnable, Scheduler, TaskView, Wake, WakeKind,
    World,
};
use schedlab_model::{CpuId, Ns, TaskId, Topology, Waker};

struct Calls {
    scheduler: Box<dyn Scheduler>,
    world: World,
    out: Out,
    now: u64,
}

impl Calls {
    /// `tasks` hogs, awake and running as far as the CPUs reach.
    fn new(spec: &str, cpus: usize, tasks: usize) -> Calls {
        let view = || {
            let mut view = TaskView::default();
            view.alive = true;
            view
        };
        let world = World {
            roles: Default::default(),
            partitions: Vec::new(),
            tasks: (0..tasks).map(|_| view()).collect(),
            cpus: (0..cpus).map(|_| CpuView::new(Ns::from_ms(4))).collect(),
            groups: vec![GroupView::default()],
            topology: Topology::flat(cpus),
            hz: 250,
            tick_ns: Ns::from_ms(4),
        };
        let scheduler = crate::registry::build(&spec.parse().unwrap(), cpus).unwrap();
        let mut calls = Calls { scheduler, world, out: Out::new(1), now: 0 };
        calls.scheduler.init(&calls.cx(0));
        for task in 0..tasks {
            calls.wake(task, WakeKind::New);
            calls.settle();
        }
        calls
    }
    fn cx(&self, cpu: usize) -> Cx<'_> {
        Cx { now: Ns(self.now), cpu: CpuId::from(cpu), world: &self.world, out: &self.out }
    }
    fn wake(&mut self, task: usize, kind: WakeKind) {
        self.world.tasks[task].set_runnable(Runnable::Yes);
        let wake = Wake { kind, sync: false, waker: Waker::HardIrq };
        self.scheduler.wake(&self.cx(0), TaskId::from(task), wake);
    }
    fn schedule(&mut self, cpu: usize, why: Prev) {
        let prev = self.world.cpus[cpu].current();
        let why = if prev.is_none() { Prev::Idle } else { why };
        let next = self.scheduler.schedule(&self.cx(cpu), CpuId::from(cpu), prev, why).task;
        let now = Ns(self.now);
        if let Some(prev) = prev {
            self.world.tasks[prev.index()].switched_out(now, Ns(0));
        }
        if let Some(next) = next {
            assert!(self.world.cpus[cpu].online, "{next} runs on CPU {cpu}, which is offline");
            self.world.tasks[next.index()].switched_in(CpuId::from(cpu), now);
        }
        self.world.cpus[cpu].set_current(next);
    }
    /// Carries out commands until there are none.
    fn settle(&mut self) {
        let mut cmds = Vec::new();
        self.out.take_cmds(&mut cmds);
        while !cmds.is_empty() {
            for cmd in std::mem::take(&mut cmds) {
                match cmd {
                    Cmd::Resched(cpu) => self.schedule(cpu.index(), Prev::Runnable),
                    Cmd::Displace(task) => {
                        let cpu = self.world.tasks[task.index()]
                            .on_cpu()
                            .expect("only running tasks are displaced");
                        self.schedule(cpu.index(), Prev::Migrating);
                        self.scheduler.saved(&self.cx(cpu.index()), cpu, task);
                        self.wake(task.index(), WakeKind::Migrated);
                    }
                    _ => {}
                }
            }
            self.out.take_cmds(&mut cmds);
        }
    }
    fn online(&mut self, cpu: usize, online: bool) {
        self.now += 1_000_000;
        self.world.cpus[cpu].online = online;
        let other = usize::from(cpu == 0);
        self.scheduler.changed(&self.cx(other), Change::Online(CpuId::from(cpu), online));
        self.settle();
    }
    fn running(&self) -> Vec<Option<u32>> {
        self.world.cpus.iter().map(|cpu| cpu.current().map(|t| t.0)).collect()
    }
}

#[test]
fn an_offline_cpu_loses_its_tasks_and_gets_none() {
    for spec in ["linux-6.1", "linux-6.12", "linux-6.18"] {
        let mut calls = Calls::new(spec, 3, 5);
        assert!(calls.running().iter().all(Option::is_some), "{spec}: {:?}", calls.running());
        calls.online(2, false);
        assert_eq!(calls.running()[2], None, "{spec}");
        assert!(calls.running()[..2].iter().all(Option::is_some), "{spec}");
        // Everything is still somewhere: when the running ones end, the others get their turn.
        let mut seen = std::collections::BTreeSet::new();
        while let Some(cpu) = (0..2).find(|&cpu| calls.running()[cpu].is_some()) {
            calls.now += 1_000_000;
            seen.extend(calls.running().into_iter().flatten());
            calls.schedule(cpu, Prev::Exited);
            calls.settle();
        }
        assert_eq!(seen.len(), 5, "{spec}: {seen:?}");
        // Back again, it takes new work.
        calls.online(2, true);
        assert_eq!(calls.running(), [None, None, None]);
    }
}
