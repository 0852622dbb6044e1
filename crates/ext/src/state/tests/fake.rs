//! A kernel that does not exist.

use crate::state::{Described, Threads};
use crate::wire::{Ask, By, Decision, Event, KernelState, Status, What};
use schedlab_model::{CpuId, CpuSet, Nice, Ns, Policy};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

#[derive(Clone, Debug)]
struct Thread {
    state: KernelState,
    cpu: u32,
    seq: u32,
    managed: bool,
    affinity: CpuSet,
    served: Ns,
    since: Ns,
}

#[derive(Clone, Debug, Default)]
struct Cpu {
    running: Option<u32>,
    queue: VecDeque<u32>,
    /// The thread that it takes by itself, with the number that it has to have still.
    ahead: Option<(u32, u32)>,
    /// A thread of a higher class runs there.
    others: bool,
    offline: bool,
}

/// See the module.
pub(super) struct Fake {
    pub(super) now: Ns,
    /// Threads that are woken enter the queue only at the next [`Fake::put_in`].
    pub(super) early: bool,
    /// So many events to come are lost.
    pub(super) lose: u8,
    pub(super) lost: u64,
    threads: Rc<RefCell<BTreeMap<u32, Thread>>>,
    cpus: Vec<Cpu>,
    online: Rc<RefCell<CpuSet>>,
    hold: Vec<u32>,
    on_the_way: Vec<u32>,
    ring: Vec<Event>,
    next: u32,
}

/// What the driver can ask about threads and CPUs.
pub(super) struct Known(Rc<RefCell<BTreeMap<u32, Thread>>>, Rc<RefCell<CpuSet>>);

impl Threads for Known {
    fn describe(&mut self, tid: u32) -> Option<Described> {
        let affinity = self.0.borrow().get(&tid)?.affinity;
        Some(Described {
            process: 1,
            policy: Policy::Other,
            nice: Nice::ZERO,
            affinity,
            comm: format!("t{tid}"),
        })
    }
    fn born(&mut self, _: u32, _: u32) {}
    fn nice(&mut self, _: u32) -> Option<Nice> {
        Some(Nice::ZERO)
    }
    fn affinity(&mut self, tid: u32) -> Option<CpuSet> {
        self.0.borrow().get(&tid).map(|thread| thread.affinity)
    }
    fn online(&mut self) -> CpuSet {
        *self.1.borrow()
    }
}

impl Fake {
    pub(super) fn new(cpus: usize, now: Ns) -> Fake {
        Fake {
            now,
            early: false,
            lose: 0,
            lost: 0,
            threads: Rc::default(),
            cpus: vec![Cpu::default(); cpus],
            online: Rc::new(RefCell::new(CpuSet::first(cpus))),
            hold: Vec::new(),
            on_the_way: Vec::new(),
            ring: Vec::new(),
            next: 100,
        }
    }

    pub(super) fn known(&self) -> Known {
        Known(self.threads.clone(), self.online.clone())
    }

    fn with<R>(&self, tid: u32, work: impl FnOnce(&mut Thread) -> R) -> Option<R> {
        self.threads.borrow_mut().get_mut(&tid).map(work)
    }

    fn get(&self, tid: u32) -> Option<Thread> {
        self.threads.borrow().get(&tid).cloned()
    }

    pub(super) fn add(&mut self, tid: u32) {
        let affinity = (0..self.cpus.len() as u32).map(CpuId).collect();
        let (state, served, since) = (KernelState::Out, Ns::ZERO, Ns::ZERO);
        let thread = Thread { state, cpu: 0, seq: 0, managed: false, affinity, served, since };
        self.threads.borrow_mut().insert(tid, thread);
    }

    fn tell(&mut self, tid: u32, what: What) {
        let Some(thread) = self.get(tid).filter(|thread| thread.managed) else { return };
        self.tell_of(Event { at: self.now, tid, seq: thread.seq, cpu: thread.cpu, what });
    }

    fn tell_of(&mut self, event: Event) {
        if self.lose > 0 {
            self.lose -= 1;
            self.lost += 1;
        } else {
            self.ring.push(event);
        }
    }

    pub(super) fn drain(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.ring)
    }

    fn enqueue(&mut self, tid: u32) {
        let managed = self.with(tid, |thread| {
            thread.seq += 1;
            thread.state = KernelState::Held;
            thread.managed
        });
        // One that is not managed is none of the driver's business.
        if managed != Some(true) {
            self.with(tid, |thread| thread.state = KernelState::Out);
            return;
        }
        self.tell(tid, What::Enqueue(By::Unknown));
        if self.early { self.on_the_way.push(tid) } else { self.hold.push(tid) }
    }

    /// Threads whose events were told early are in the queue now.
    pub(super) fn put_in(&mut self) {
        self.hold.append(&mut self.on_the_way);
    }

    pub(super) fn wake(&mut self, tid: u32) {
        if self.get(tid).is_some_and(|thread| thread.managed && thread.state == KernelState::Out) {
            self.enqueue(tid);
        }
    }

    pub(super) fn is_running(&self, tid: u32) -> bool {
        self.get(tid).is_some_and(|thread| thread.state == KernelState::OnCpu)
    }

    pub(super) fn running(&self, cpu: u32) -> Option<u32> {
        self.cpus[cpu as usize].running
    }

    /// Takes a running thread off its CPU; returns that CPU.
    fn stop(&mut self, tid: u32, runnable: bool) -> Option<u32> {
        if !self.is_running(tid) {
            return None;
        }
        let now = self.now;
        let cpu = self.with(tid, |thread| {
            thread.served += now.saturating_sub(thread.since);
            thread.state = if runnable { KernelState::Sent } else { KernelState::Out };
            thread.cpu
        })?;
        self.cpus[cpu as usize].running = None;
        self.tell(tid, What::Stopping { runnable });
        Some(cpu)
    }

    /// A CPU schedules.
    fn dispatch(&mut self, cpu: u32) {
        let one = &mut self.cpus[cpu as usize];
        if one.running.is_some() || one.others || one.offline {
            return;
        }
        let Some(tid) = one.queue.pop_front().or_else(|| self.take_ahead(cpu)) else { return };
        self.cpus[cpu as usize].running = Some(tid);
        let now = self.now;
        self.with(tid, |thread| {
            (thread.state, thread.cpu, thread.since) = (KernelState::OnCpu, cpu, now)
        });
        self.tell(tid, What::Running);
    }

    fn take_ahead(&mut self, cpu: u32) -> Option<u32> {
        let (tid, seq) = self.cpus[cpu as usize].ahead?;
        let fits = |thread: &Thread| {
            thread.managed
                && (thread.seq, thread.state) == (seq, KernelState::Held)
                && thread.affinity.contains(CpuId(cpu))
        };
        self.get(tid).filter(fits)?;
        let at = self.hold.iter().position(|held| *held == tid)?;
        Some(self.hold.remove(at))
    }

    pub(super) fn block(&mut self, tid: u32) {
        if let Some(cpu) = self.stop(tid, false) {
            self.tell(tid, What::Quiescent { ends: false });
            self.dispatch(cpu);
        }
    }

    pub(super) fn sched_yield(&mut self, tid: u32) {
        if self.is_running(tid) {
            self.tell(tid, What::Yield);
            self.put_back(tid);
        }
    }

    fn put_back(&mut self, tid: u32) {
        if let Some(cpu) = self.stop(tid, true) {
            self.enqueue(tid);
            self.dispatch(cpu);
        }
    }

    pub(super) fn exit(&mut self, tid: u32) {
        if let Some(cpu) = self.stop(tid, false) {
            self.tell(tid, What::Quiescent { ends: true });
            self.tell(tid, What::Exit);
            self.threads.borrow_mut().remove(&tid);
            self.dispatch(cpu);
        }
    }

    pub(super) fn fork(&mut self, maker: u32) -> u32 {
        self.next += 1;
        let child = self.next;
        self.add(child);
        let affinity = self.get(maker).map(|thread| thread.affinity).unwrap_or_default();
        self.with(child, |thread| (thread.managed, thread.affinity) = (true, affinity));
        self.tell(child, What::Fork { maker });
        self.enqueue(child);
        child
    }

    pub(super) fn take_by_others(&mut self, cpu: u32, on: bool) {
        self.cpus[cpu as usize].others = on;
        if let Some(tid) = self.cpus[cpu as usize].running.filter(|_| on) {
            self.stop(tid, true);
            self.cpus[cpu as usize].queue.push_front(tid);
        }
        self.dispatch(cpu);
    }

    pub(super) fn set_affinity(&mut self, tid: u32, cpus: CpuSet) {
        let Some(thread) = self.get(tid) else { return };
        self.with(tid, |thread| thread.affinity = cpus);
        self.tell(tid, What::Cpumask);
        if !cpus.contains(CpuId(thread.cpu)) {
            self.leave_queue(tid);
            self.put_back(tid);
        }
    }

    /// A thread in the queue of a CPU where it may not stay waits anew.
    fn leave_queue(&mut self, tid: u32) {
        let found = self.cpus.iter_mut().any(|cpu| {
            let before = cpu.queue.len();
            cpu.queue.retain(|queued| *queued != tid);
            cpu.queue.len() < before
        });
        if found {
            self.enqueue(tid);
        }
    }

    pub(super) fn set_online(&mut self, cpu: u32, online: bool) {
        if self.cpus[cpu as usize].offline != online {
            return;
        }
        self.cpus[cpu as usize].offline = !online;
        *self.online.borrow_mut() = (0..self.cpus.len() as u32)
            .filter(|cpu| !self.cpus[*cpu as usize].offline)
            .map(CpuId)
            .collect();
        if !online {
            for tid in self.cpus[cpu as usize].queue.drain(..).collect::<Vec<_>>() {
                self.enqueue(tid);
            }
            if let Some(tid) = self.cpus[cpu as usize].running {
                self.stop(tid, true);
                self.enqueue(tid);
            }
        }
        let what = if online { What::Online } else { What::Offline };
        self.tell_of(Event { at: self.now, tid: 0, seq: 0, cpu, what });
    }

    /// A CPU takes the oldest waiting thread that may run there.
    pub(super) fn take_alone(&mut self, cpu: u32) {
        let one = &self.cpus[cpu as usize];
        let may =
            |tid: &u32| self.get(*tid).is_some_and(|thread| thread.affinity.contains(CpuId(cpu)));
        if one.running.is_some() || one.others || one.offline || !one.queue.is_empty() {
            return;
        }
        if let Some(at) = self.hold.iter().position(may) {
            let tid = self.hold.remove(at);
            self.cpus[cpu as usize].queue.push_back(tid);
            self.dispatch(cpu);
        }
    }

    /// The agent is silent: the running thread's slice ends, and the CPU takes the next.
    pub(super) fn fall_back(&mut self, cpu: u32) {
        let running = self.cpus[cpu as usize].running.filter(|_| !self.hold.is_empty());
        if let Some(tid) = running {
            self.stop(tid, true);
            self.take_alone(cpu);
            self.enqueue(tid);
        } else {
            self.take_alone(cpu);
        }
    }

    /// The supervisor gave a thread its policy back.
    pub(super) fn give_back(&mut self, tid: u32) {
        self.hold.retain(|held| *held != tid);
        self.on_the_way.retain(|held| *held != tid);
        for cpu in &mut self.cpus {
            cpu.queue.retain(|queued| *queued != tid);
            cpu.running = cpu.running.filter(|running| *running != tid);
        }
        self.threads.borrow_mut().remove(&tid);
        (0..self.cpus.len() as u32).for_each(|cpu| self.dispatch(cpu));
    }

    /// As the program `commit`.
    pub(super) fn commit(&mut self, decisions: &mut [Decision]) {
        for one in decisions {
            one.status = self.decide(one);
        }
    }

    fn decide(&mut self, one: &mut Decision) -> Status {
        if one.ask == Ask::Ahead {
            self.cpus[one.cpu as usize].ahead = (one.tid != 0).then_some((one.tid, one.seq));
            return Status::Done;
        }
        let Some(thread) = self.get(one.tid) else { return Status::Gone };
        match one.ask {
            Ask::Take => {
                self.with(one.tid, |thread| thread.managed = true);
                return Status::Done;
            }
            Ask::Tell => {
                one.seq = thread.seq;
                return Status::State(thread.state, thread.cpu);
            }
            Ask::Free => {
                self.with(one.tid, |thread| thread.managed = false);
                return Status::Done;
            }
            Ask::Displace if thread.state != KernelState::OnCpu || thread.cpu != one.cpu => {
                return Status::Stale;
            }
            Ask::Displace => {
                self.put_back(one.tid);
                return Status::Done;
            }
            Ask::Run | Ask::Ahead => {}
        }
        let cpu = one.cpu as usize;
        if thread.seq != one.seq || thread.state != KernelState::Held {
            return Status::Stale;
        }
        if !thread.affinity.contains(CpuId(one.cpu)) {
            return Status::NotCpu;
        }
        if !self.cpus[cpu].queue.is_empty() || self.cpus[cpu].offline {
            return Status::Busy;
        }
        let Some(at) = self.hold.iter().position(|held| *held == one.tid) else {
            return Status::Early;
        };
        self.hold.remove(at);
        self.with(one.tid, |thread| thread.state = KernelState::Sent);
        self.cpus[cpu].queue.push_front(one.tid);
        match self.cpus[cpu].running {
            Some(running) => self.put_back(running),
            None => self.dispatch(one.cpu),
        }
        Status::Done
    }

    /// CPU time of each thread so far.
    pub(super) fn served(&self) -> BTreeMap<u32, Ns> {
        let now = self.now;
        let served = |thread: &Thread| match thread.state {
            KernelState::OnCpu => thread.served + now.saturating_sub(thread.since),
            _ => thread.served,
        };
        self.threads.borrow().iter().map(|(tid, thread)| (*tid, served(thread))).collect()
    }

    /// The managed threads that run or want to.
    pub(super) fn wanting(&self) -> Vec<u32> {
        let threads = self.threads.borrow();
        let wants = |thread: &Thread| thread.managed && thread.state != KernelState::Out;
        threads.iter().filter(|(_, thread)| wants(thread)).map(|(tid, _)| *tid).collect()
    }

    /// A managed CPU that nothing has, and a thread that waits and may run there.
    pub(super) fn idle_beside_a_waiting_thread(&self) -> Option<(u32, u32)> {
        let idle =
            (1..self.cpus.len() as u32).filter(|cpu| self.cpus[*cpu as usize].running.is_none());
        let waits = |cpu: u32| {
            let mut held = self
                .hold
                .iter()
                .filter(|tid| self.get(**tid).is_some_and(|one| one.affinity.contains(CpuId(cpu))));
            held.next().map(|tid| (cpu, *tid))
        };
        idle.filter_map(waits).next()
    }
}
