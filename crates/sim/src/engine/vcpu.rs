//! The two ends of a vCPU. In the engine of a guest it is a CPU that does not always run: what
//! would happen on it waits until it runs again ([`GuestCpus`]). In the engine of the hypervisor it
//! is a task that waits for an event and then runs until its guest has nothing to do.
//! `crate::nested` ties both together.

use super::channels::Sender;
use super::layout::Fires;
use super::slots::NEVER;
use super::slots::OfCpu;
use super::state::{Origin, TaskState, Token};
use super::{Engine, Step};
use schedlab_model::{Amount, CpuId, EventSink, Ns, Op, Program, TaskId};

/// A vCPU runs until it is told to stop: longer than any run lasts.
const FOR_EVER: u64 = 1 << 60;

/// Returns the program of a vCPU in the hypervisor's workload: an event on `kicks` starts it.
pub(crate) fn program(kicks: schedlab_model::ChannelId) -> Program {
    Program::forever([Op::Receive(kicks), Op::Run(Amount::Fixed(Ns(FOR_EVER)))])
}

/// What a guest's engine knows of its vCPUs.
#[derive(Debug, Default)]
pub(crate) struct GuestCpus {
    vcpus: Vec<Vcpu>,
}

#[derive(Clone, Debug, Default)]
struct Vcpu {
    /// It executes on a pCPU.
    on: bool,
    /// It would like to execute: the time counts as stolen.
    runnable: bool,
    /// Something waits for it.
    wanted: bool,
    /// What was left of its work when it stopped.
    rest: Option<u64>,
    /// Timers that expired meanwhile: sequence and slot.
    held: Vec<(u64, u32)>,
    /// Function calls of other vCPUs.
    calls: Vec<u64>,
    /// Event-channel notifications: channel and count.
    notices: Vec<(usize, u32)>,
}

/// The guest's end.
impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// Makes the CPUs vCPUs; none runs.
    pub(crate) fn become_guest(&mut self) {
        self.features.guest =
            Some(Box::new(GuestCpus { vcpus: vec![Vcpu::default(); self.cpus.len()] }));
    }

    fn vcpu(&mut self, cpu: usize) -> Option<&mut Vcpu> {
        self.features.guest.as_mut().map(|guest| &mut guest.vcpus[cpu])
    }

    /// Returns whether `cpu` is a vCPU that does not run. Asking means that there is something to
    /// do: it is wanted.
    pub(super) fn is_off(&mut self, cpu: usize) -> bool {
        match self.vcpu(cpu) {
            Some(vcpu) if !vcpu.on => {
                vcpu.wanted = true;
                true
            }
            _ => false,
        }
    }

    /// Keeps an expired timer for a vCPU that does not run; returns whether it was kept.
    pub(super) fn hold(&mut self, seq: u64, slot: u32) -> bool {
        let cpu = match self.due.layout.fires(slot as usize) {
            Fires::Work(_)
            | Fires::Warmup
            | Fires::Source(_)
            | Fires::Client(_)
            | Fires::Handoff(_)
            | Fires::Executor(_)
            | Fires::Arrival => return false,
            Fires::Slice(cpu)
            | Fires::Resched(cpu)
            | Fires::Tick(cpu)
            | Fires::CpuTimer(cpu, _) => cpu,
            Fires::Task(t) if self.tasks[t].state != TaskState::Absent => {
                self.tasks[t].home as usize
            }
            Fires::Task(t) | Fires::TaskTimer(t) => self.tasks[t].cpu as usize,
            Fires::Global(n) => self.due.global_armed_on[usize::from(n)] as usize,
        };
        if !self.is_off(cpu) {
            return false;
        }
        if let Some(vcpu) = self.vcpu(cpu) {
            vcpu.held.retain(|(_, other)| *other != slot);
            vcpu.held.push((seq, slot));
        }
        true
    }

    /// Keeps a function call for a vCPU that does not run; returns whether it was kept.
    #[cold]
    pub(super) fn keep_call(&mut self, cpu: CpuId, cookie: u64) -> bool {
        let off = self.is_off(cpu.index());
        if off && let Some(vcpu) = self.vcpu(cpu.index()) {
            vcpu.calls.push(cookie);
        }
        off
    }

    /// The vCPU runs from now on; first it owes `debt` of the hypervisor's work. What waited
    /// happens now.
    pub(crate) fn power_on(&mut self, cpu: usize, debt: u64) -> Step {
        self.count_stolen(cpu);
        self.account(cpu);
        let Some(vcpu) = self.vcpu(cpu) else { return Ok(()) };
        (vcpu.on, vcpu.runnable, vcpu.wanted) = (true, true, false);
        let rest = vcpu.rest.take();
        let held = std::mem::take(&mut vcpu.held);
        let calls = std::mem::take(&mut vcpu.calls);
        let notices = std::mem::take(&mut vcpu.notices);
        let c = &mut self.cpus[cpu];
        c.debt += debt;
        match rest {
            Some(rest) if c.switching.is_some() => self.arm_in(cpu, OfCpu::Work, rest + debt),
            Some(_) => self.arm_work(cpu),
            None => {}
        }
        calls.into_iter().for_each(|cookie| self.queues.calls.push((CpuId(cpu as u32), cookie)));
        for (seq, slot) in held {
            let what = self.due.layout.fires(slot as usize);
            // A tick that was armed anew for a later edge is not due any more.
            let moved =
                matches!(what, Fires::Tick(_)) && self.due.slots.cpu_at(cpu, OfCpu::Tick).is_some();
            if !moved && self.due.slots.is_current(seq, slot as usize) && !self.hold(seq, slot) {
                self.fire(slot as usize)?;
            }
        }
        for (channel, count) in notices {
            self.notify(cpu, channel, count)?;
        }
        if self.cpus[cpu].queued {
            self.queues.resched.push(cpu as u32);
        }
        Ok(())
    }

    /// The vCPU does not run any more: the hypervisor took it away (`stolen`), or it has nothing to
    /// do.
    pub(crate) fn power_off(&mut self, cpu: usize, stolen: bool) -> Step {
        self.account(cpu);
        let rest = self.due.slots.cpu_at(cpu, OfCpu::Work).map(|at| at - self.clock.now);
        self.due.slots.disarm_cpu(cpu, OfCpu::Work);
        if let Some(vcpu) = self.vcpu(cpu) {
            (vcpu.on, vcpu.runnable, vcpu.rest) = (false, stolen, rest);
        }
        Ok(())
    }

    /// A vCPU that slept is runnable from now on: until it runs, its time is stolen.
    pub(crate) fn begin_steal(&mut self, cpu: usize) -> Step {
        self.account(cpu);
        if let Some(vcpu) = self.vcpu(cpu) {
            vcpu.runnable = true;
        }
        Ok(())
    }

    /// Counts what was stolen from a vCPU up to now. The guest sees it.
    pub(super) fn count_stolen(&mut self, cpu: usize) {
        if !self.vcpu(cpu).is_some_and(|vcpu| !vcpu.on && vcpu.runnable) {
            return;
        }
        let c = &mut self.cpus[cpu];
        let stolen = self.clock.now - std::mem::replace(&mut c.accounted, self.clock.now);
        if let Some(task) = c.occupant {
            self.extras[task.index()].stolen += stolen;
        }
        self.output.metrics.cpus[cpu].steal_ns += Ns(stolen);
        let view = &self.world.cpus[cpu].steal;
        view.set(view.get() + Ns(stolen));
    }

    /// Returns whether the vCPU executes.
    pub(crate) fn is_on(&self, cpu: usize) -> bool {
        self.features.guest.as_ref().is_some_and(|guest| guest.vcpus[cpu].on)
    }

    /// Returns whether something waits for a vCPU that does not run.
    pub(crate) fn is_wanted(&self, cpu: usize) -> bool {
        self.features
            .guest
            .as_ref()
            .is_some_and(|guest| !guest.vcpus[cpu].on && guest.vcpus[cpu].wanted)
    }

    /// Returns what a vCPU that executes still has to do before it can sleep; `None`: it is busy.
    pub(crate) fn idle_after(&self, cpu: usize) -> Option<u64> {
        let c = &self.cpus[cpu];
        let settled =
            c.current.is_none() && c.switching.is_none() && !c.queued && c.resched_at == NEVER;
        let passed = self.clock.now - c.accounted;
        settled.then(|| c.debt.saturating_sub(passed))
    }

    /// `count` tokens came for `channel` through an event channel that is bound to `cpu`.
    pub(crate) fn notify(&mut self, cpu: usize, channel: usize, count: u32) -> Step {
        if self.is_off(cpu) {
            if let Some(vcpu) = self.vcpu(cpu) {
                vcpu.notices.push((channel, count));
            }
            return Ok(());
        }
        self.bring(channel, count, Sender::Interrupt { cpu })
    }
}

/// What both ends need.
impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// Returns when the next thing happens.
    pub(crate) fn next_at(&mut self) -> u64 {
        self.due.slots.time(self.due.slots.top())
    }

    /// Moves time on to `at`, at which nothing was served yet.
    pub(crate) fn advance_to(&mut self, at: u64) {
        self.go_to(at);
    }

    /// Returns whether something is to be served now.
    pub(crate) fn is_due(&mut self) -> bool {
        !self.queues.are_empty() || self.next_at() <= self.clock.now
    }

    /// Serves everything of now.
    pub(crate) fn serve_instant(&mut self) -> Step {
        self.due.slots.enter(self.clock.now);
        self.due.slots.look_again();
        self.rest_of_instant(None)
    }

    /// Takes the tokens out of a channel that has no receiver in this engine.
    pub(crate) fn take_tokens(&mut self, channel: usize) -> u32 {
        let c = &mut self.traffic.channels[channel];
        c.queue.clear();
        std::mem::take(&mut c.len).min(u64::from(u32::MAX)) as u32
    }

    pub(super) fn bring(&mut self, channel: usize, count: u32, sender: Sender) -> Step {
        let token =
            Token { origin: Origin::Inside, sent: self.clock.now, entered: self.clock.now, count };
        self.put(channel, token, sender).map(drop)
    }
}

/// The hypervisor's end.
impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// Returns the pCPU on which the vCPU `task` executes, and what the hypervisor does there
    /// first; `None`: it does not.
    pub(crate) fn executes(&self, task: TaskId) -> Option<(usize, u64)> {
        let record = &self.tasks[task.index()];
        let c = &self.cpus[record.cpu as usize];
        let here =
            record.state == TaskState::Running && c.occupant == Some(task) && c.switching.is_none();
        let runs = here && !c.stopped && record.left >= FOR_EVER / 2;
        runs.then(|| (record.cpu as usize, self.extras[task.index()].debt + c.debt))
    }

    /// The guest of the vCPU has nothing to do after `rest`: the vCPU blocks.
    pub(crate) fn put_to_sleep(&mut self, cpu: usize, task: TaskId, rest: u64) -> Step {
        self.account(cpu);
        self.tasks[task.index()].left = rest;
        self.arm_work(cpu);
        Ok(())
    }

    /// Puts tokens into a channel, on behalf of the vCPU that executes on `from` or of the outside.
    pub(crate) fn send_in(
        &mut self,
        channel: usize,
        count: u32,
        from: Option<(usize, TaskId)>,
    ) -> Step {
        let sender = match from {
            Some((cpu, task)) => Sender::Task { t: task.index(), cpu },
            None => Sender::Outside,
        };
        self.bring(channel, count, sender)
    }
}
