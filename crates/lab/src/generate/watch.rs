//! An event sink that trusts nobody: it rebuilds the state of the machine from the events alone, and finds tasks that
//! were forgotten.

use crate::delegation::Place;
use crate::scenario::Scenario;
use schedlab_model::{CpuId, CpuSet, EventKind, EventSink, Ns, PrevState, SchedEvent, Start, TaskId};
use schedlab_sim::Failure;

/// A CPU that idles this long while a task of its own run queue waits has lost it. RT throttling idles 50 ms.
const FORGOTTEN: Ns = Ns::from_ms(100);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Is {
    Absent,
    Asleep,
    Ready,
    On(CpuId),
}

#[derive(Clone, Debug)]
struct Task {
    is: Is,
    since: Ns,
    /// Since when it is throttled.
    throttled: Option<Ns>,
    home: usize,
    mask: CpuSet,
}

/// Rebuilt state, and the first thing that was wrong.
pub(super) struct Watch {
    at: Ns,
    current: Vec<Option<TaskId>>,
    idle_since: Vec<Ns>,
    tasks: Vec<Task>,
    /// Whether a CPU may idle beside a waiting task: that of a spinning agent, and all when the agents hang.
    excused: CpuSet,
    /// How long a switch can be under way: decided, and not recorded yet. A task may be throttled meanwhile.
    under_way: Ns,
    wrong: Option<String>,
}

impl Watch {
    pub(super) fn new(scenario: &Scenario) -> Watch {
        let cpus = scenario.machine.topology.cpus();
        let agents = &scenario.delegation;
        let excused = match (agents.place, agents.failure) {
            (Place::Kernel, _) => CpuSet::default(),
            (_, Some((_, Failure::Hang))) => CpuSet::ALL,
            (Place::Global, _) => CpuSet::single(agents.agent),
            (Place::PerCpu, _) => CpuSet::default(),
        };
        let delegated = agents.place != Place::Kernel;
        // No cost of a random machine is larger than 30 us, and no switch has more than six of them.
        let under_way =
            if delegated || !scenario.machine.costs.is_free() { Ns::from_us(180) } else { Ns::ZERO };
        let task = |spec: &schedlab_model::TaskSpec| Task {
            is: if matches!(spec.start, Start::AsleepUntil(_)) { Is::Asleep } else { Is::Absent },
            since: Ns::ZERO,
            throttled: None,
            home: spec.affinity.lowest().map_or(0, CpuId::index),
            mask: spec.affinity,
        };
        Watch {
            at: Ns::ZERO,
            current: vec![None; cpus],
            idle_since: vec![Ns::ZERO; cpus],
            tasks: scenario.workload.tasks.iter().map(task).collect(),
            excused,
            under_way,
            wrong: None,
        }
    }

    /// What was wrong first, up to the end of the run.
    pub(super) fn finish(mut self, end: Ns) -> Option<String> {
        (0..self.tasks.len()).for_each(|task| self.forgotten(task, end));
        self.wrong
    }

    fn say(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// Whether `task` waited for a CPU that had nothing to do.
    fn forgotten(&mut self, task: usize, now: Ns) {
        let Some(t) = self.tasks.get(task) else { return };
        let cpu = t.home;
        if t.is != Is::Ready || t.throttled.is_some() || self.current.get(cpu).is_none_or(Option::is_some) {
            return;
        }
        if self.excused.contains(CpuId(cpu as u32)) {
            return;
        }
        let since = t.since.max(self.idle_since[cpu]);
        if now.saturating_sub(since) > FORGOTTEN && t.mask.contains(CpuId(cpu as u32)) {
            self.say(format!(
                "lost: task{task} waits in the queue of cpu{cpu}, which idles, from {since} to {now}"
            ));
        }
    }

    fn become_(&mut self, task: TaskId, is: Is) {
        self.forgotten(task.index(), self.at);
        if let Some(t) = self.tasks.get_mut(task.index()) {
            (t.is, t.since) = (is, self.at);
        }
    }

    fn switch(&mut self, event: &SchedEvent, prev: Option<TaskId>, state: PrevState, next: Option<TaskId>) {
        let cpu = event.cpu.index();
        if self.current.get(cpu).copied() != Some(prev) || prev == next {
            return self.say(format!("{event:?}, but {:?} ran there", self.current.get(cpu)));
        }
        if prev.is_none() {
            (0..self.tasks.len()).for_each(|task| self.forgotten(task, self.at));
        }
        if let Some(task) = prev {
            let is = match state.is_runnable() {
                Some(true) => Is::Ready,
                _ if state == PrevState::Dead => Is::Absent,
                _ => Is::Asleep,
            };
            self.become_(task, is);
        }
        if let Some(task) = next {
            let t = &self.tasks[task.index()];
            let in_time = |since: Ns| event.at <= since + self.under_way;
            if t.is != Is::Ready || !t.throttled.is_none_or(in_time) || !t.mask.contains(event.cpu) {
                return self.say(format!("{event:?}, but that task is {t:?}"));
            }
            self.become_(task, Is::On(event.cpu));
        } else {
            self.idle_since[cpu] = event.at;
        }
        self.current[cpu] = next;
    }
}

impl EventSink for Watch {
    fn event(&mut self, event: &SchedEvent) {
        if event.at < self.at {
            self.say(format!("time goes back: {event:?} after {}", self.at));
        }
        self.at = event.at;
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => self.switch(event, prev, prev_state, next),
            EventKind::New { task, .. } => {
                let allowed = self.tasks[task.index()].mask.contains(event.cpu);
                if allowed {
                    self.tasks[task.index()].home = event.cpu.index();
                }
                self.become_(task, Is::Ready);
            }
            EventKind::Wake { task, .. } => match self.tasks[task.index()].is {
                Is::Asleep => self.become_(task, Is::Ready),
                // Its program has blocked and the switch is not recorded yet: it stays.
                Is::On(_) => {}
                other => self.say(format!("{event:?} of a task that is {other:?}")),
            },
            EventKind::Migrate { task, to, .. } => {
                self.forgotten(task.index(), self.at);
                self.tasks[task.index()].home = to.index();
                self.tasks[task.index()].since = self.at;
            }
            EventKind::Throttle { task } => self.tasks[task.index()].throttled = Some(event.at),
            EventKind::Unthrottle { task } => {
                self.tasks[task.index()].throttled = None;
                self.tasks[task.index()].since = self.at;
            }
            _ => {}
        }
    }
}
