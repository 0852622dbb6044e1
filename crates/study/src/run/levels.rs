//! One stream of events of a nested machine: the rows of the pCPUs, and behind them a row for each
//! vCPU with the tasks of its guest. A vCPU is a task above and a row below. While it waits for a
//! pCPU a placeholder is on its row, so that what its guest's tasks wait for has a name.

use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId};
use schedlab_sim::{Domain, places};
use schedlab_trace::{Header, TaskInfo, renumber};
use std::cell::RefCell;
use std::rc::Rc;

/// The program name of the placeholders.
pub(crate) const NO_PCPU: &str = "(vCPU waits for a pCPU)";

/// The tasks behind those of a workload: each vCPU, then a placeholder for each. Name and class.
pub(crate) fn tasks_behind(vcpus: &[(String, String)]) -> Vec<(String, String)> {
    let stand_in =
        |(name, _): &(String, String)| (format!("{name} waits for a pCPU"), NO_PCPU.to_owned());
    vcpus.iter().cloned().chain(vcpus.iter().map(stand_in)).collect()
}

/// The header with those tasks.
pub(crate) fn header(header: &Header, vcpus: &[(String, String)]) -> Header {
    let mut whole = header.clone();
    for (_, class) in tasks_behind(vcpus) {
        let tid = whole.tasks.len() as u32 + 1;
        whole.tasks.push(TaskInfo { known: true, ..TaskInfo::unknown(tid, tid, class) });
    }
    whole
}

/// What is on the row of a vCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shown {
    Idle,
    Task(TaskId),
    /// It has work and no pCPU.
    Waits,
}

/// A vCPU.
#[derive(Clone, Debug)]
struct Vcpu {
    /// Its task, and its placeholder.
    task: TaskId,
    stand_in: TaskId,
    row: CpuId,
    on: bool,
    asleep: bool,
    /// Who its guest has there.
    guest: Option<TaskId>,
    shown: Shown,
}

/// Puts the events of all engines together and hands them to `out`.
#[derive(Debug)]
pub(crate) struct Levels<S> {
    vcpus: Vec<Vcpu>,
    /// By domain: its first vCPU.
    first: Vec<usize>,
    /// By task of the hypervisor, and by domain and task of the guest: the task of the whole.
    host: Vec<TaskId>,
    guests: Vec<Vec<TaskId>>,
    out: S,
}

/// The hypervisor's events.
pub(crate) struct Host<S>(Rc<RefCell<Levels<S>>>);

/// The events of one guest.
pub(crate) struct Guest<S>(Rc<RefCell<Levels<S>>>, usize);

impl<S: EventSink> Levels<S> {
    /// For a workload on `pcpus`. `numbers` are the places of the vCPUs in the list of which `all`
    /// is the length: the vCPUs of all runs that share a list of tasks.
    pub(crate) fn new(
        workload: &schedlab_model::Workload,
        domains: &[Domain<'_>],
        pcpus: usize,
        (numbers, all): (&[usize], usize),
        out: S,
    ) -> Levels<S> {
        let (mut host, mut guests) = (Vec::new(), vec![Vec::new(); domains.len()]);
        for (task, (home, _)) in places(workload, domains).into_iter().enumerate() {
            // In each engine they are in the order of the workload.
            home.map_or(&mut host, |domain| &mut guests[domain]).push(TaskId::from(task));
        }
        let behind = workload.tasks.len();
        let vcpu = |(index, &number): (usize, &usize)| Vcpu {
            task: TaskId::from(behind + number),
            stand_in: TaskId::from(behind + all + number),
            row: CpuId::from(pcpus + index),
            on: false,
            asleep: false,
            guest: None,
            shown: Shown::Idle,
        };
        let vcpus: Vec<Vcpu> = numbers.iter().enumerate().map(vcpu).collect();
        host.extend(vcpus.iter().map(|vcpu| vcpu.task));
        let mut next = 0;
        let first = domains.iter().map(|domain| {
            next += domain.machine.topology.cpus();
            next - domain.machine.topology.cpus()
        });
        Levels { first: first.collect(), vcpus, host, guests, out }
    }

    /// The sinks of the engines, of which `out` hears until [`Levels::end`].
    pub(crate) fn sinks(self) -> (Host<S>, Vec<Guest<S>>) {
        let domains = self.first.len();
        let shared = Rc::new(RefCell::new(self));
        (
            Host(Rc::clone(&shared)),
            (0..domains).map(|domain| Guest(Rc::clone(&shared), domain)).collect(),
        )
    }

    fn of_host(&mut self, event: &SchedEvent) {
        let host = &self.host;
        let event = renumber(event, |task| host.get(task.index()).copied().unwrap_or(task));
        self.out.event(&event);
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                self.moves(event.at, prev, |vcpu| {
                    (vcpu.on, vcpu.asleep) = (false, prev_state.is_runnable() != Some(true));
                });
                self.moves(event.at, next, |vcpu| (vcpu.on, vcpu.asleep) = (true, false));
            }
            EventKind::Wake { task, .. } | EventKind::New { task, .. } => {
                self.moves(event.at, Some(task), |vcpu| vcpu.asleep = false);
            }
            _ => {}
        }
    }

    fn moves(&mut self, at: Ns, task: Option<TaskId>, change: impl FnOnce(&mut Vcpu)) {
        let Some(index) =
            task.and_then(|task| self.vcpus.iter().position(|vcpu| vcpu.task == task))
        else {
            return;
        };
        change(&mut self.vcpus[index]);
        self.show(at, index, PrevState::RunnableInKernel);
    }

    /// Brings the row of a vCPU up to date; `why` a task of the guest leaves it.
    fn show(&mut self, at: Ns, index: usize, why: PrevState) {
        let vcpu = &mut self.vcpus[index];
        let shown = match (vcpu.on, vcpu.asleep, vcpu.guest) {
            (true, _, Some(task)) => Shown::Task(task),
            (true, _, None) | (false, true, _) => Shown::Idle,
            (false, false, _) => Shown::Waits,
        };
        if shown == vcpu.shown {
            return;
        }
        let stand_in = vcpu.stand_in;
        let task = |shown| match shown {
            Shown::Idle => None,
            Shown::Task(task) => Some(task),
            Shown::Waits => Some(stand_in),
        };
        let prev_state = match vcpu.shown {
            Shown::Idle => PrevState::Runnable,
            Shown::Waits => PrevState::Sleeping,
            Shown::Task(_) => why,
        };
        let kind = EventKind::Switch { prev: task(vcpu.shown), prev_state, next: task(shown) };
        vcpu.shown = shown;
        self.out.event(&SchedEvent { at, cpu: vcpu.row, kind });
    }

    fn of_guest(&mut self, domain: usize, event: &SchedEvent) {
        let (tasks, first) = (&self.guests[domain], self.first[domain]);
        let mut event = renumber(event, |task| tasks.get(task.index()).copied().unwrap_or(task));
        let own = first + event.cpu.index();
        let row = |cpu: CpuId| self.vcpus.get(first + cpu.index()).map_or(cpu, |vcpu| vcpu.row);
        event.cpu = row(event.cpu);
        match &mut event.kind {
            EventKind::Switch { prev_state, next, .. } => {
                let (next, why) = (*next, *prev_state);
                if let Some(vcpu) = self.vcpus.get_mut(own) {
                    vcpu.guest = next;
                    self.show(event.at, own, why);
                }
                return;
            }
            // The hypervisor's rows show that better.
            EventKind::Steal { .. } => return,
            EventKind::Migrate { from, to, .. } => (*from, *to) = (row(*from), row(*to)),
            _ => {}
        }
        self.out.event(&event);
    }
}

impl<S: EventSink> EventSink for Host<S> {
    fn event(&mut self, event: &SchedEvent) {
        self.0.borrow_mut().of_host(event);
    }
}

impl<S: EventSink> EventSink for Guest<S> {
    fn event(&mut self, event: &SchedEvent) {
        self.0.borrow_mut().of_guest(self.1, event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PrevState::{Runnable as R, Sleeping as S};

    fn switch(at: u64, prev: Option<u32>, prev_state: PrevState, next: Option<u32>) -> SchedEvent {
        let kind = EventKind::Switch { prev: prev.map(TaskId), prev_state, next: next.map(TaskId) };
        SchedEvent { at: Ns(at), cpu: CpuId(0), kind }
    }

    /// One pCPU, one vCPU (task 2 of the whole, its placeholder task 3), two tasks in its guest.
    #[test]
    fn a_row_below_follows_both_levels() {
        let vcpu = Vcpu {
            task: TaskId(2),
            stand_in: TaskId(3),
            row: CpuId(1),
            on: false,
            asleep: false,
            guest: None,
            shown: Shown::Idle,
        };
        let levels = Levels {
            vcpus: vec![vcpu],
            first: vec![0],
            host: vec![TaskId(2)],
            guests: vec![vec![TaskId(0), TaskId(1)]],
            out: Vec::new(),
        };
        let (mut host, mut guests) = levels.sinks();
        host.event(&switch(10, None, R, Some(0)));
        guests[0].event(&switch(12, None, R, Some(1)));
        host.event(&switch(20, Some(0), R, None));
        host.event(&switch(30, None, R, Some(0)));
        guests[0].event(&switch(35, Some(1), S, None));
        host.event(&switch(36, Some(0), S, None));
        host.event(&SchedEvent {
            at: Ns(50),
            cpu: CpuId(0),
            kind: EventKind::Wake { task: TaskId(0), waker: schedlab_model::Waker::HardIrq },
        });
        let below: Vec<_> =
            host.0.borrow().out.iter().filter(|event| event.cpu == CpuId(1)).copied().collect();
        let on = |at, prev: Option<u32>, state, next: Option<u32>| SchedEvent {
            cpu: CpuId(1),
            ..switch(at, prev, state, next)
        };
        let expected = [
            on(12, None, R, Some(1)),
            on(20, Some(1), PrevState::RunnableInKernel, Some(3)),
            on(30, Some(3), S, Some(1)),
            on(35, Some(1), S, None),
            on(50, None, R, Some(3)),
        ];
        assert_eq!(below, expected);
    }
}
