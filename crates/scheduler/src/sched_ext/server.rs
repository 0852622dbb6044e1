//! The class's deadline server of 7.x (`rq->ext_server`): while tasks of the class wait behind
//! real-time ones, it gives them 50 ms of each second. Its rules are those of the fair server.
//!
//! Simplified: every deadline task goes before it, whatever the deadlines, and the time in which
//! the CPU was idle is not counted as served.

use super::above;
use super::kernel::{Kernel, Step};
use crate::linux::{FairServer, Wants};
use crate::{Cmd, Timer, World};
use schedlab_model::{CpuId, Ns};

/// Runtime and period of 7.2 (`sched_ext` server of `dl_server_init`, as the fair server's).
const RUNTIME: Ns = Ns::from_ms(50);
const PERIOD: Ns = Ns::from_s(1);
/// The slot of its timer; the other one is that of programs.
const SLOT: u8 = 1;

/// The server of a CPU, and how many tasks of the class are queued there.
#[derive(Debug)]
pub(super) struct Server {
    server: FairServer,
    queued: usize,
}

impl Kernel {
    /// Makes the servers, where the kernel has them and something is above the class.
    pub(super) fn place_servers(&mut self, world: &World) {
        let above = world.tasks.iter().any(|task| above::level(task.policy) > 0);
        if self.rules.server && above {
            let one = || Server { server: FairServer::new(RUNTIME, PERIOD), queued: 0 };
            self.servers = (0..self.cpus.len()).map(|_| one()).collect();
        }
    }

    /// A task of the class is queued, or no longer.
    pub(super) fn set_queued(&mut self, t: usize, queued: bool) {
        let was = std::mem::replace(&mut self.tasks[t].queued, queued);
        if was != queued {
            self.count(self.tasks[t].cpu, queued);
        }
    }

    /// A task moves to another CPU.
    pub(super) fn served_elsewhere(&mut self, t: usize, cpu: usize) {
        if self.tasks[t].queued {
            self.count(self.tasks[t].cpu, false);
            self.count(cpu, true);
        }
    }

    fn count(&mut self, cpu: usize, more: bool) {
        let now = self.vm.now;
        let Some(own) = self.servers.get_mut(cpu) else { return };
        own.queued = if more { own.queued + 1 } else { own.queued.saturating_sub(1) };
        let wants = match (more, own.queued) {
            (true, 1) => own.server.start(now),
            (false, 0) => own.server.stop(),
            _ => return,
        };
        self.carry_out(cpu, wants);
    }

    fn carry_out(&mut self, cpu: usize, wants: Wants) {
        if wants.resched {
            self.resched(cpu);
        }
        let timer = Timer::Cpu(CpuId::from(cpu), SLOT);
        match wants.timer {
            // Off the edge of a tick, as with the fair server.
            Some(Some(at)) => self.cmds.push(Cmd::Arm(timer, Ns(at.0 + 1))),
            Some(None) => self.cmds.push(Cmd::Disarm(timer)),
            None => {}
        }
    }

    /// A task of the class ran.
    pub(super) fn charge_server(&mut self, cpu: usize, ran: u64) {
        let now = self.vm.now;
        let Some(own) = self.servers.get_mut(cpu) else { return };
        if own.server.spend(ran) {
            let wants = own.server.overdrawn(now);
            self.carry_out(cpu, wants);
        }
    }

    /// A task of the class gave way to one above it.
    pub(super) fn gave_way(&mut self, cpu: usize) {
        let now = self.vm.now;
        let Some(own) = self.servers.get_mut(cpu) else { return };
        let wants = own.server.gave_way(now);
        self.carry_out(cpu, wants);
    }

    /// Its timer.
    pub(super) fn server_due(&mut self, cpu: usize) {
        let now = self.vm.now;
        let Some(own) = self.servers.get_mut(cpu) else { return };
        let wants = own.server.fired(now, own.queued > 0);
        self.carry_out(cpu, wants);
    }

    /// Whether a timer of a CPU is a server's.
    pub(super) fn is_server(slot: u8) -> bool {
        slot == SLOT
    }

    /// What runs on a CPU while the server lets the class go before real-time tasks; `None`: it
    /// does not, or a deadline task goes before both. `goes_on`: the previous task may.
    pub(super) fn decide_served(
        &mut self,
        cpu: usize,
        prev: Option<usize>,
        goes_on: bool,
    ) -> Step<Option<Option<usize>>> {
        let wants = self.servers.get(cpu).is_some_and(|own| own.server.queued() && own.queued > 0);
        if !wants {
            return Ok(None);
        }
        let own = prev.filter(|t| self.above.has(*t));
        if own.is_some() && !goes_on {
            self.above.set_aside(cpu);
        }
        if self.above.has_deadline(cpu) {
            return Ok(None);
        }
        if let Some(t) = self.above.set_aside(cpu) {
            self.above.put_first(cpu, t);
        }
        let next = self.decide_below(cpu, prev.filter(|_| own.is_none()))?;
        if next.is_none() {
            // Nothing of the class can run here: the server waits for its next period, and
            // real-time tasks go on.
            let now = self.vm.now;
            let wants = self.servers[cpu].server.stop();
            self.carry_out(cpu, wants);
            let wants = self.servers[cpu].server.start(now);
            self.carry_out(cpu, wants);
            self.resched(cpu);
        }
        Ok(Some(next))
    }
}
