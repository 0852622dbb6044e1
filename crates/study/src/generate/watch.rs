//! An event sink that trusts no counter: it rebuilds the state of the machine from the events
//! alone, and finds tasks that were forgotten.

use crate::delegation::SchedulerPlace;
use crate::run::RowPlan;
use crate::scenario::Scenario;
use schedlab_model::{
    CpuId, CpuSet, EventKind, EventSink, Ns, PrevState, SchedEvent, Start, TaskId,
};
use schedlab_scheduler::SchedulerSpec;
use schedlab_sim::Failure;

/// A CPU that idles this long while a task of its own run queue waits has lost it. RT throttling
/// idles 50 ms.
const FORGOTTEN: Ns = Ns::from_ms(100);
/// Xen's default for Credit2's `migrate_resist`, which should not be larger (comment beside the
/// constant, 4.4 to 4.22).
const RESIST: Ns = Ns::from_us(500);

/// Whether idle CPUs may leave a task waiting by the scheduler's own rules. In Credit2 an idle pCPU
/// has 1 less than the least credit, -10 ms, and takes from another pCPU only what leads that by
/// `migrate_resist`: with more than 20 ms nothing. A unit that was tickled there, while its own
/// pCPU looked past it, then waits beside two idle pCPUs. Xen's null and ARINC 653 keep a pCPU, or
/// a window of it, for one unit.
fn resists(spec: &SchedulerSpec) -> bool {
    let resist = spec.knobs.iter().filter(|(name, _)| name == "migrate_resist");
    if matches!(spec.name.as_str(), "xen-null" | "xen-arinc653") {
        return true;
    }
    spec.name == "xen-credit2"
        && resist.filter_map(|(_, value)| value.parse().ok()).any(|ns: Ns| ns > RESIST)
}

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
pub(super) struct StateChecker {
    at: Ns,
    current: Vec<Option<TaskId>>,
    idle_since: Vec<Ns>,
    tasks: Vec<Task>,
    /// Whether a CPU may idle beside a waiting task: that of a spinning agent, and all when the
    /// agents hang or the scheduler's rules allow it ([`resists`]).
    excused: CpuSet,
    /// Tasks outside of the enclave, by task.
    outside: Vec<bool>,
    /// By CPU, when a task outside of the enclave ran there last. What the agents have queued there
    /// has to wait for it, and no event says what that is: the queue in which a task waits is that
    /// of the agents' scheduler.
    outside_until: Vec<Ns>,
    /// How long a switch can be under way: decided, and not recorded yet. A task may be throttled
    /// meanwhile.
    under_way: Ns,
    wrong: Option<String>,
}

impl StateChecker {
    pub(super) fn new(scenario: &Scenario, plan: &RowPlan) -> StateChecker {
        let cpus = scenario.machine.topology.cpus();
        let agents = &scenario.delegation;
        let excused = match (agents.place, agents.failure) {
            _ if resists(&plan.scheduler) => CpuSet::ALL,
            (SchedulerPlace::Kernel, _) => CpuSet::default(),
            (_, Some((_, Failure::Hang))) => CpuSet::ALL,
            (SchedulerPlace::Global, _) => CpuSet::single(agents.agent),
            (SchedulerPlace::PerCpu, _) => CpuSet::default(),
        };
        let delegated = agents.place != SchedulerPlace::Kernel;
        // No cost of a random machine is larger than 30 us, and no switch has more than six of
        // them.
        let under_way = if delegated || !scenario.machine.costs.is_free() {
            Ns::from_us(180)
        } else {
            Ns::ZERO
        };
        let task = |spec: &schedlab_model::TaskSpec| Task {
            is: if matches!(spec.start, Start::AsleepUntil(_)) { Is::Asleep } else { Is::Absent },
            since: Ns::ZERO,
            throttled: None,
            home: spec.affinity.lowest().map_or(0, CpuId::index),
            mask: spec.affinity,
        };
        StateChecker {
            at: Ns::ZERO,
            current: vec![None; cpus],
            idle_since: vec![Ns::ZERO; cpus],
            tasks: scenario.workload.tasks.iter().map(task).collect(),
            excused,
            outside: plan.delegation.as_ref().map_or(Vec::new(), |agents| agents.outside.clone()),
            outside_until: vec![Ns::ZERO; cpus],
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
        if t.is != Is::Ready
            || t.throttled.is_some()
            || self.current.get(cpu).is_none_or(Option::is_some)
        {
            return;
        }
        if self.excused.contains(CpuId(cpu as u32)) {
            return;
        }
        let since = t.since.max(self.idle_since[cpu]).max(self.taken_until(&t.mask, now));
        if now.saturating_sub(since) > FORGOTTEN && t.mask.contains(CpuId(cpu as u32)) {
            self.say(format!(
                "lost: task{task} waits in the queue of cpu{cpu}, which idles, from {since} to \
                 {now}"
            ));
        }
    }

    fn is_outside(&self, task: TaskId) -> bool {
        self.outside.get(task.index()).copied().unwrap_or(false)
    }

    /// Until when a task outside of the enclave ran on a CPU of `mask`; `now` when one does.
    fn taken_until(&self, mask: &CpuSet, now: Ns) -> Ns {
        let taken = self.current.iter().zip(&self.outside_until).enumerate();
        let taken = taken.filter(|(cpu, _)| mask.contains(CpuId::from(*cpu)));
        let until = |(_, (current, until)): (usize, (&Option<TaskId>, &Ns))| {
            if current.is_some_and(|task| self.is_outside(task)) { now } else { *until }
        };
        taken.map(until).max().unwrap_or(Ns::ZERO)
    }

    fn become_(&mut self, task: TaskId, is: Is) {
        self.forgotten(task.index(), self.at);
        if let Some(t) = self.tasks.get_mut(task.index()) {
            (t.is, t.since) = (is, self.at);
        }
    }

    fn switch(
        &mut self,
        event: &SchedEvent,
        prev: Option<TaskId>,
        state: PrevState,
        next: Option<TaskId>,
    ) {
        let cpu = event.cpu.index();
        if self.current.get(cpu).copied() != Some(prev) || prev == next {
            return self.say(format!("{event:?}, but {:?} ran there", self.current.get(cpu)));
        }
        if prev.is_none() {
            (0..self.tasks.len()).for_each(|task| self.forgotten(task, self.at));
        }
        if prev.is_some_and(|task| self.is_outside(task)) {
            self.outside_until[cpu] = event.at;
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
            if t.is != Is::Ready || !t.throttled.is_none_or(in_time) || !t.mask.contains(event.cpu)
            {
                return self.say(format!("{event:?}, but that task is {t:?}"));
            }
            self.become_(task, Is::On(event.cpu));
        } else {
            self.idle_since[cpu] = event.at;
        }
        self.current[cpu] = next;
    }
}

impl EventSink for StateChecker {
    fn event(&mut self, event: &SchedEvent) {
        if event.at < self.at {
            self.say(format!("time goes back: {event:?} after {}", self.at));
        }
        self.at = event.at;
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                self.switch(event, prev, prev_state, next)
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &str = "[[task]]\nname = \"t\"\nprogram = [\"run 1ms\"]\n";

    fn watch(scheduler: &str, rest: &str) -> (StateChecker, Ns) {
        let text = format!(
            "title = \"x\"\nschedulers = [\"{scheduler}\"]\nduration = \"200ms\"\n[machine]\n\
             cpus = 2\n{TASK}{rest}"
        );
        let scenario = crate::scenario::parse("x", "x.toml", &text).unwrap();
        let plan =
            crate::run::RowPlan::of_scenario(&scenario, &scenario.schedulers[0], None).unwrap();
        (StateChecker::new(&scenario, &plan), scenario.duration)
    }

    fn event(ms: u64, cpu: u32, kind: EventKind) -> SchedEvent {
        SchedEvent { at: Ns::from_ms(ms), cpu: CpuId(cpu), kind }
    }

    /// What is wrong with a task that waits from the start while its CPU idles.
    fn waits(scheduler: &str) -> Option<String> {
        let (mut watch, end) = watch(scheduler, "");
        watch.event(&event(0, 0, EventKind::New { task: TaskId(0), parent: None }));
        watch.finish(end)
    }

    /// A task that waits beside its idle CPU was lost, except where Credit2's own rule keeps idle
    /// pCPUs from it.
    #[test]
    fn who_waits_beside_an_idle_cpu_is_lost() {
        for scheduler in
            ["linux-6.18", "xen-credit", "xen-credit2", "xen-credit2:migrate_resist=500us"]
        {
            assert!(waits(scheduler).is_some_and(|what| what.contains("lost")), "{scheduler}");
        }
        assert_eq!(waits("xen-credit2:migrate_resist=21ms"), None);
    }

    /// Agents may have queued it where a task outside of the enclave runs: then only when that has
    /// gone is it lost.
    #[test]
    fn who_waits_behind_the_kernels_own_tasks_is_not_lost() {
        let rest =
            "[[task]]\nname = \"own\"\nprogram = [\"run 1s\"]\n[delegation]\nmode = \"per-cpu\"\n";
        for (outside, leaves, lost) in
            [("", 200, true), ("own", 200, false), ("own", 90, true), ("own", 110, false)]
        {
            let outside = if outside.is_empty() { "" } else { "outside = [\"own\"]\n" };
            let (mut watch, end) = watch("linux-6.18", &format!("{rest}{outside}"));
            let (task, own) = (TaskId(0), TaskId(1));
            let switch = |prev, prev_state, next| EventKind::Switch { prev, prev_state, next };
            watch.event(&event(0, 1, EventKind::New { task: own, parent: None }));
            watch.event(&event(0, 0, EventKind::New { task, parent: None }));
            watch.event(&event(0, 1, switch(None, PrevState::Unknown, Some(own))));
            if leaves < 200 {
                watch.event(&event(leaves, 1, switch(Some(own), PrevState::Sleeping, None)));
            }
            let wrong = watch.finish(end);
            assert_eq!(wrong.is_some(), lost, "{outside} {leaves}: {wrong:?}");
        }
    }
}
