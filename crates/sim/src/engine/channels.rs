//! Channels: tokens go in, waiting receivers are handed theirs first come first served.

use super::program::Flow;
use super::state::{Origin, Token, Waits, Want};
use super::{Engine, Step};
use crate::SimError;
use schedlab_model::{EventSink, Ns, Op, TaskId, Waker};

/// Sends that may wait in one channel before the run is given up.
const BACKLOG_MAX: usize = 1 << 24;

/// The sender of tokens.
#[derive(Clone, Copy)]
pub(super) enum Sender {
    Task {
        t: usize,
        cpu: usize,
    },
    Outside,
    /// An interrupt that a CPU serves: an event channel.
    Interrupt {
        cpu: usize,
    },
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// Task `t`, which runs on `cpu`, wakes `other` by an operation of its own.
    pub(super) fn wake_by(&mut self, cpu: usize, t: usize, other: usize) -> Step<Flow> {
        self.wake_from(Sender::Task { t, cpu }, other)?;
        Ok(self.after_own_call(cpu))
    }

    fn wake_from(&mut self, sender: Sender, other: usize) -> Step {
        match sender {
            Sender::Outside => self.wake_from_outside(other, Waker::SoftIrq),
            Sender::Interrupt { cpu } => self.interrupt(cpu, other),
            Sender::Task { t, cpu } => {
                if !FREE {
                    self.steal(cpu, self.input.costs.wake_call_ns.0);
                }
                let sync = self.is_about_to_block(t);
                self.wake(other, cpu, Waker::Task(TaskId::from(t)), sync)
            }
        }
    }

    /// Returns whether the operation after the present one of `t` usually blocks (`WF_SYNC`).
    fn is_about_to_block(&self, t: usize) -> bool {
        // The record of the task leads to the operation, which is mostly in the line of the present
        // one; the program is two lines away from it.
        let task = &self.tasks[t];
        let at = |pc| self.ops.get(task.ops, pc);
        let next = at(task.pc).or_else(|| at(task.repeat_from));
        matches!(
            next,
            Some(
                Op::Receive(_)
                    | Op::ReceiveAll(_)
                    | Op::ReceiveCount { .. }
                    | Op::Select
                    | Op::Sleep(_)
                    | Op::Device { .. }
                    | Op::NextPeriod { .. }
                    | Op::Exit
            ) | None
        )
    }

    /// Puts `token.count` tokens in; returns how many found no room.
    pub(super) fn put(&mut self, channel: usize, mut token: Token, sender: Sender) -> Step<u32> {
        let mut count = token.count;
        self.traffic.channels[channel].sent += u64::from(count);
        while count > 0 {
            let Some(&(waiter, want)) = self.traffic.channels[channel].waiters.front() else {
                break;
            };
            // It waits, so at least one is missing.
            let missing =
                u64::from(want.least()).saturating_sub(self.traffic.channels[channel].len).max(1);
            if missing > u64::from(count) {
                break;
            }
            self.traffic.channels[channel].waiters.pop_front();
            token.count = missing as u32;
            self.insert(channel, token)?;
            count -= token.count;
            if let Want::Count(wanted) = want {
                self.take(channel, waiter as usize, wanted.into());
                self.handed_over(channel, waiter as usize);
            }
            self.wake_from(sender, waiter as usize)?;
        }
        let c = &self.traffic.channels[channel];
        let room = match (c.capacity, sender) {
            // The outside world does not wait for room.
            (None, _) | (_, Sender::Outside | Sender::Interrupt { .. }) => count,
            (Some(capacity), _) => {
                u64::from(capacity).saturating_sub(c.len).min(u64::from(count)) as u32
            }
        };
        if room > 0 {
            token.count = room;
            self.insert(channel, token)?;
        }
        self.traffic.channels[channel].sent -= u64::from(count - room);
        Ok(count - room)
    }

    fn insert(&mut self, channel: usize, token: Token) -> Step {
        let c = &mut self.traffic.channels[channel];
        c.len += u64::from(token.count);
        if c.tracked {
            if c.queue.len() >= BACKLOG_MAX {
                let channel = self.input.workload.channels[channel].name.clone();
                return Err(Box::new(SimError::Backlog {
                    channel,
                    at: Ns(self.clock.now),
                    limit: BACKLOG_MAX,
                }));
            }
            c.queue.push_back(token);
        }
        Ok(())
    }

    /// Gives `t` `count` tokens that are there.
    fn take(&mut self, channel: usize, t: usize, mut count: u64) {
        let c = &mut self.traffic.channels[channel];
        c.len -= count;
        while c.tracked && count > 0 {
            let Some(front) = c.queue.front_mut() else { break };
            let part = count.min(u64::from(front.count)) as u32;
            c.taken.push_back((t as u32, Token { count: part, ..*front }));
            front.count -= part;
            count -= u64::from(part);
            if front.count == 0 {
                c.queue.pop_front();
            }
        }
    }

    pub(super) fn send(&mut self, cpu: usize, t: usize, channel: usize, count: u32) -> Step<Flow> {
        self.tasks[t].pc += 1;
        self.tasks[t].fresh = false;
        let token =
            Token { origin: Origin::Inside, sent: self.clock.now, entered: self.clock.now, count };
        let left = self.put(channel, token, Sender::Task { t, cpu })?;
        if left == 0 {
            return Ok(self.after_own_call(cpu));
        }
        self.traffic.channels[channel].senders.push_back((t as u32, left));
        Ok(Flow::Block(Waits::Room(channel as u32)))
    }

    pub(super) fn receive(
        &mut self,
        cpu: usize,
        t: usize,
        channel: usize,
        want: Want,
    ) -> Step<Flow> {
        let missing = self.traffic.channels[channel].len < u64::from(want.least());
        if missing && !self.admit_for(cpu, t, channel, want)? {
            if self.pay_exit(t) {
                return Ok(Flow::Cpu);
            }
            self.traffic.channels[channel].waiters.push_back((t as u32, want));
            return Ok(Flow::Block(Waits::Channel(channel as u32)));
        }
        let count = match want {
            Want::All => self.traffic.channels[channel].len,
            Want::Count(count) => count.into(),
        };
        self.take(channel, t, count);
        let task = &mut self.tasks[t];
        task.exit_paid = false;
        task.pc += 1;
        task.fresh = false;
        if want == Want::All {
            self.extras[t].batch = count;
        }
        self.admit(cpu, t, channel, false)?;
        Ok(self.after_own_call(cpu))
    }

    /// Lets blocked senders in until `want` is there; returns whether it is.
    fn admit_for(&mut self, cpu: usize, t: usize, channel: usize, want: Want) -> Step<bool> {
        let came = self.admit(cpu, t, channel, true)?;
        Ok(came && self.traffic.channels[channel].len >= u64::from(want.least()))
    }

    /// A blocked receiver got its token from `channel`: its operation is done.
    fn handed_over(&mut self, channel: usize, t: usize) {
        let task = &mut self.tasks[t];
        if self.ops.get(task.ops, task.pc) != Some(Op::Select) {
            task.pc += 1;
            return;
        }
        let program = self.extras[t].program;
        for (b, branch) in program.branches.iter().enumerate() {
            if branch.channel.index() == channel {
                self.tasks[t].pc = self.extras[t].cursors[b];
            } else {
                self.traffic.channels[branch.channel.index()]
                    .waiters
                    .retain(|(waiter, _)| *waiter != t as u32);
            }
        }
    }

    /// An event loop takes a token from the first of its channels that has one.
    pub(super) fn select(&mut self, cpu: usize, t: usize) -> Step<Flow> {
        let program = self.extras[t].program;
        let branches = &program.branches;
        let pc = self.tasks[t].pc;
        if let Some(b) = branches.iter().position(|branch| (branch.from..branch.to).contains(&pc)) {
            // The branch goes on behind this operation the next time.
            let next = pc + 1;
            self.extras[t].cursors[b] =
                if next == branches[b].to { branches[b].from } else { next };
        }
        for (b, branch) in branches.iter().enumerate() {
            let channel = branch.channel.index();
            if self.traffic.channels[channel].len == 0 && !self.admit(cpu, t, channel, true)? {
                continue;
            }
            self.take(channel, t, 1);
            let task = &mut self.tasks[t];
            task.exit_paid = false;
            task.pc = self.extras[t].cursors[b];
            task.fresh = false;
            self.admit(cpu, t, channel, false)?;
            return Ok(self.after_own_call(cpu));
        }
        if self.pay_exit(t) {
            return Ok(Flow::Cpu);
        }
        for branch in branches {
            self.traffic.channels[branch.channel.index()]
                .waiters
                .push_back((t as u32, Want::Count(1)));
        }
        Ok(Flow::Block(Waits::Select))
    }

    /// Lets blocked senders put in what finds room now, or at least one token when `anyway` (a
    /// channel without room hands over directly). Returns whether something came in. `t` on `cpu`
    /// made the room.
    fn admit(&mut self, cpu: usize, t: usize, channel: usize, anyway: bool) -> Step<bool> {
        let mut came = false;
        while let Some(&(sender, left)) = self.traffic.channels[channel].senders.front() {
            let c = &self.traffic.channels[channel];
            let room = u64::from(c.capacity.unwrap_or(u32::MAX)).saturating_sub(c.len);
            let count = room.max(u64::from(anyway && !came)).min(u64::from(left)) as u32;
            if count == 0 {
                break;
            }
            came = true;
            let token = Token {
                origin: Origin::Inside,
                sent: self.clock.now,
                entered: self.clock.now,
                count,
            };
            self.insert(channel, token)?;
            self.traffic.channels[channel].sent += u64::from(count);
            if count < left {
                self.traffic.channels[channel].senders[0].1 -= count;
                break;
            }
            self.traffic.channels[channel].senders.pop_front();
            self.wake_from(Sender::Task { t, cpu }, sender as usize)?;
        }
        Ok(came)
    }

    /// Ends the oldest unfinished request that `t` received from this channel, or else that any
    /// task did.
    pub(super) fn finish_request(&mut self, t: usize, channel: usize) -> Step {
        let taken = &mut self.traffic.channels[channel].taken;
        let own = taken.iter().position(|(receiver, _)| *receiver == t as u32);
        let Some(at) = own.or(if taken.is_empty() { None } else { Some(0) }) else { return Ok(()) };
        let (_, token) = &mut taken[at];
        let done = *token;
        token.count -= 1;
        if token.count == 0 {
            taken.remove(at);
        }
        let metrics = &mut self.output.metrics.channels[channel];
        metrics.done += 1;
        metrics.response.record(Ns(self.clock.now - done.entered));
        match done.origin {
            Origin::Inside => Ok(()),
            Origin::Open(source) => {
                self.reply(source as usize, None, done.sent);
                Ok(())
            }
            Origin::Client(source, client) => {
                self.reply(source as usize, Some(client as usize), done.sent);
                Ok(())
            }
        }
    }
}
