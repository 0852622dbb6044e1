//! An event sink that rebuilds the state from the events alone and checks every one.

use schedlab_model::{CpuId, CpuSet, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Is {
    Absent,
    Asleep,
    Ready,
    On(CpuId),
}

/// Rebuilt state.
pub(crate) struct Checker {
    at: Ns,
    current: Vec<Option<TaskId>>,
    tasks: Vec<Is>,
    /// Since when, and on which CPU.
    throttled: Vec<Option<(Ns, CpuId)>>,
    /// How long a switch can be under way: decided, and not recorded yet.
    under_way: Ns,
    masks: Vec<CpuSet>,
    exiting: Vec<bool>,
    /// CPU time of every task, and the same from the CPUs' side.
    pub(crate) ran: Vec<Ns>,
    since: Vec<Ns>,
    pub(crate) events: Vec<SchedEvent>,
}

impl Checker {
    pub(crate) fn new(workload: &schedlab_model::Workload, cpus: usize) -> Checker {
        let asleep = |task: &schedlab_model::TaskSpec| match task.start {
            schedlab_model::Start::AsleepUntil(_) => Is::Asleep,
            _ => Is::Absent,
        };
        let tasks = workload.tasks.len();
        Checker {
            at: Ns::ZERO,
            current: vec![None; cpus],
            tasks: workload.tasks.iter().map(asleep).collect(),
            throttled: vec![None; tasks],
            under_way: Ns::ZERO,
            masks: workload.tasks.iter().map(|task| task.affinity).collect(),
            exiting: vec![false; tasks],
            ran: vec![Ns::ZERO; tasks],
            since: vec![Ns::ZERO; cpus],
            events: Vec::new(),
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
        assert_eq!(self.current[cpu], prev, "{event:?}");
        assert_ne!(prev, next, "a switch to itself: {event:?}");
        if let Some(task) = prev {
            let t = task.index();
            assert_eq!(self.tasks[t], Is::On(event.cpu), "{event:?}");
            self.ran[t] += event.at - self.since[cpu];
            self.tasks[t] = match state.is_runnable() {
                Some(true) => Is::Ready,
                _ if state == PrevState::Dead => Is::Absent,
                _ => Is::Asleep,
            };
            assert_eq!(self.exiting[t], state == PrevState::Dead, "{event:?}");
            self.exiting[t] = false;
        }
        if let Some(task) = next {
            let t = task.index();
            assert_eq!(self.tasks[t], Is::Ready, "{event:?}");
            assert!(self.masks[t].contains(event.cpu), "off its mask: {event:?}");
            // The budget of a deadline task counts from the decision for it, as the kernel's does:
            // it may end while the switch to it is under way.
            let in_time =
                |(since, cpu): (Ns, CpuId)| cpu == event.cpu && event.at <= since + self.under_way;
            assert!(
                self.throttled[t].is_none_or(in_time),
                "throttled at {:?}: {event:?}",
                self.throttled[t]
            );
            self.tasks[t] = Is::On(event.cpu);
        }
        self.since[cpu] = event.at;
        self.current[cpu] = next;
    }

    /// Switches of this machine take time: no cost is larger than 30 us, and no switch has more
    /// than six of them.
    pub(crate) fn with_costs(self, costs: &schedlab_sim::Costs) -> Checker {
        let free = *costs == schedlab_sim::Costs::default();
        Checker { under_way: if free { Ns::ZERO } else { Ns::from_us(180) }, ..self }
    }

    /// CPU time up to the end of the run.
    pub(crate) fn finish(&mut self, end: Ns) {
        for cpu in 0..self.current.len() {
            if let Some(task) = self.current[cpu] {
                self.ran[task.index()] += end - self.since[cpu];
            }
        }
    }
}

impl EventSink for Checker {
    fn event(&mut self, event: &SchedEvent) {
        assert!(event.at >= self.at, "time goes back: {event:?} after {}", self.at.0);
        self.at = event.at;
        self.events.push(*event);
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                self.switch(event, prev, prev_state, next)
            }
            EventKind::New { task, .. } => {
                assert_eq!(self.tasks[task.index()], Is::Absent, "{event:?}");
                self.tasks[task.index()] = Is::Ready;
            }
            EventKind::Wake { task, .. } => match self.tasks[task.index()] {
                Is::Asleep => self.tasks[task.index()] = Is::Ready,
                // Its program has blocked and the switch is not recorded yet: it stays.
                Is::On(_) => {}
                other => panic!("{event:?} of a task that is {other:?}"),
            },
            EventKind::Exit { task } => {
                assert!(matches!(self.tasks[task.index()], Is::On(_)), "{event:?}");
                self.exiting[task.index()] = true;
            }
            EventKind::Throttle { task } => {
                self.throttled[task.index()] = Some((event.at, event.cpu))
            }
            EventKind::Unthrottle { task } => self.throttled[task.index()] = None,
            _ => {}
        }
    }
}
