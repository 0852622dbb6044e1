//! Tick edges: which are delivered, and what the others cost, in closed form.

use super::slots::NEVER;
use super::slots::OfCpu;
use super::state::Cause;
use super::{Engine, Step};
use crate::Machine;
use schedlab_model::{CpuId, EventSink, Ns};
use schedlab_scheduler::{Cx, World};

/// What became of a debt of kernel work.
pub(super) struct Rest {
    /// Added by the ticks in between.
    pub(super) added: u64,
    /// Not worked off yet.
    pub(super) left: u64,
}

impl Machine {
    /// Returns what is left at `to` of a debt that was `owed` at `from`: it is worked off before
    /// anything else, and every tick edge after `from` and up to `to` adds the `cost` of a tick.
    #[inline]
    pub(super) fn rest_of_debt(
        &self,
        world: &World,
        cpu: usize,
        from: u64,
        to: u64,
        (owed, cost): (u64, u64),
    ) -> Rest {
        let elapsed = to - from;
        let cpu = CpuId(cpu as u32);
        let edges = world.ticks_until(cpu, Ns(to)) - world.ticks_until(cpu, Ns(from));
        if edges == 0 {
            return Rest { added: 0, left: owed.saturating_sub(elapsed) };
        }
        // Each tick costs less than a period, so apart from the debt as a whole only the last can
        // be unfinished.
        let added = edges * cost;
        let last_edge = world.tick_edge(cpu, world.ticks_until(cpu, Ns(to))).0;
        let of_last = cost.saturating_sub(to - last_edge);
        Rest { added, left: (owed + added).saturating_sub(elapsed).max(of_last) }
    }

    /// Returns when `need` of kernel and program work that starts at `from` is done, ticks
    /// included. A tick at the very end comes first.
    #[inline]
    pub(super) fn done_at(
        &self,
        world: &World,
        cpu: usize,
        from: u64,
        (need, cost): (u64, u64),
    ) -> u64 {
        if cost == 0 {
            return from.saturating_add(need);
        }
        let first = world.next_edge(CpuId(cpu as u32), Ns(from)).0;
        let Some(over) = need.checked_sub(first - from) else { return from.saturating_add(need) };
        let period = world.tick_ns.0;
        let (periods, rest) = (over / (period - cost), over % (period - cost));
        first.saturating_add(periods.saturating_mul(period)).saturating_add(cost + rest)
    }
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// Arms the first edge.
    pub(super) fn start_ticks(&mut self, cpu: usize) {
        if self.ticks.wanted && self.input.options.every_tick {
            let at = self.world.cpus[cpu].tick_phase.0;
            self.due.slots.arm_tick(cpu, at);
        } else {
            self.ask_tick(cpu);
        }
    }

    /// An edge that matters, or that is delivered all the same.
    pub(super) fn tick(&mut self, cpu: usize) -> Step {
        if self.defers() && !self.cpus[cpu].tick_sure && self.does_not_matter(cpu) {
            return Ok(());
        }
        let c = &mut self.cpus[cpu];
        c.counted.ticks_delivered += 1;
        c.tick_at = NEVER;
        if self.input.options.every_tick {
            let next = self.world.ticks_until(CpuId(cpu as u32), Ns(self.clock.now)) + 1;
            let at = self.world.tick_edge(CpuId(cpu as u32), next).0;
            self.due.slots.arm_tick(cpu, at);
        }
        self.ticks.handled = Some(cpu);
        let owed = if FREE { None } else { self.set_aside_work() };
        self.input.scheduler.tick(&self.cx(cpu), CpuId(cpu as u32));
        if let Some(owed) = owed {
            self.price_call(cpu, false);
            self.take_up_work(owed);
        }
        let step = self.after_call(cpu, Cause::Tick);
        self.ticks.handled = None;
        step
    }

    /// Asks the scheduler which edge of `cpu` matters next. Ticks are wanted.
    #[inline(always)]
    pub(super) fn ask_tick(&mut self, cpu: usize) {
        if !FREE && self.features.nohz.is_some() {
            self.follow_tick(cpu);
        }
        if self.defers() && self.ticks.handled.is_none() {
            let c = &mut self.cpus[cpu];
            // What `ask_tick_now` and `ask_later` mostly come to.
            if c.queued {
                return;
            }
            if c.ask_at_once == 0 && self.clock.now < c.next_edge && c.tick_at == c.next_edge {
                c.put_off = c.put_off.saturating_add(1);
                c.tick_sure = false;
                return;
            }
        }
        self.ask_tick_now(cpu);
    }

    /// Whether it may be asked at the edge instead. Where ticks stop the answer is needed at once;
    /// where the scheduler's work has a price, or its CPUs do not always run, asking would be seen.
    #[inline(always)]
    fn defers(&self) -> bool {
        FREE || self.ticks.deferred
            && self.features.guest.is_none()
            && self.features.call_cost.is_none()
    }

    #[inline(never)]
    fn ask_tick_now(&mut self, cpu: usize) {
        // A CPU that is about to decide is asked afterwards.
        if !self.ticks.asked || (self.cpus[cpu].queued && self.ticks.handled.is_none()) {
            return;
        }
        if self.defers()
            && self.ticks.handled.is_none_or(|ticking| ticking >= cpu)
            && self.ask_later(cpu)
        {
            return;
        }
        let id = CpuId(cpu as u32);
        let due = self.input.scheduler.tick_due(&self.cx(cpu), id);
        if self.ticks.handled.is_some_and(|ticking| ticking < cpu) && self.on_edge(id) {
            return self.tick_in_this_instant(cpu);
        }
        let at = match due {
            u64::MAX => NEVER,
            0 | 1 => self.next_edge(cpu),
            due => self.edge_in(id, due),
        };
        self.cpus[cpu].tick_sure = true;
        if at != self.cpus[cpu].tick_at {
            self.cpus[cpu].tick_at = at;
            self.due.slots.arm_tick(cpu, at);
        }
    }

    /// Several calls mostly come between two edges, and only the answer after the last of them
    /// counts: the next edge is armed, and whether it matters is asked when it comes. `false`: few
    /// calls come here, ask at once.
    #[inline]
    fn ask_later(&mut self, cpu: usize) -> bool {
        let c = &mut self.cpus[cpu];
        if c.ask_at_once > 0 {
            c.ask_at_once -= 1;
            return false;
        }
        let next = self.next_edge(cpu);
        let c = &mut self.cpus[cpu];
        c.put_off = c.put_off.saturating_add(1);
        c.tick_sure = false;
        if c.tick_at != next {
            c.tick_at = next;
            self.due.slots.arm_tick(cpu, next);
        }
        true
    }

    /// Returns the time of the first edge of `cpu` after now, without a division until it has come.
    #[inline]
    fn next_edge(&mut self, cpu: usize) -> u64 {
        if self.clock.now >= self.cpus[cpu].next_edge {
            self.find_edge(cpu);
        }
        self.cpus[cpu].next_edge
    }

    #[inline(never)]
    fn find_edge(&mut self, cpu: usize) {
        self.cpus[cpu].next_edge = self.edge_in(CpuId(cpu as u32), 1);
    }

    /// Asks about the edge of this instant, as of just before it; if it does not matter, the one
    /// that does is armed.
    fn does_not_matter(&mut self, cpu: usize) -> bool {
        const FEW: u8 = 3;
        const A_WHILE: u8 = 16;
        let c = &mut self.cpus[cpu];
        let few = std::mem::take(&mut c.put_off) < FEW;
        if few {
            c.ask_at_once = A_WHILE;
        }
        let id = CpuId(cpu as u32);
        let before = Cx { now: Ns(self.clock.now - 1), ..self.cx(cpu) };
        let due = self.input.scheduler.tick_due(&before, id);
        if due <= 1 {
            return false;
        }
        let next = self.clock.now.saturating_add(self.world.tick_ns.0);
        // Where many calls come it will mostly be asked about the next one, whatever the answer is
        // now.
        let at = match due {
            _ if !few => next,
            u64::MAX => NEVER,
            due => self.edge_in(id, due - 1),
        };
        let c = &mut self.cpus[cpu];
        (c.tick_at, c.next_edge, c.tick_sure) = (at, next, few);
        self.due.slots.arm_tick(cpu, at);
        true
    }

    /// The tick of a lower CPU changed this one's queue in an instant in which this one has an edge
    /// too: with every tick delivered, that edge would still come.
    fn tick_in_this_instant(&mut self, cpu: usize) {
        let entry = (cpu as u64, self.due.layout.tick(cpu) as u32);
        let at = self.due.batch_at
            + self.due.batch[self.due.batch_at..].partition_point(|other| *other < entry);
        if self.due.batch.get(at) != Some(&entry) {
            self.due.batch.insert(at, entry);
        }
        self.due.slots.disarm_cpu(cpu, OfCpu::Tick);
        (self.cpus[cpu].tick_at, self.cpus[cpu].tick_sure) = (NEVER, true);
    }

    /// Returns whether `cpu` has a tick edge now.
    fn on_edge(&self, cpu: CpuId) -> bool {
        let edges = self.world.ticks_until(cpu, Ns(self.clock.now));
        edges > 0 && self.world.tick_edge(cpu, edges).0 == self.clock.now
    }

    /// Returns the time of the `due`-th edge from now, `NEVER` when it is beyond the end of time.
    #[inline]
    pub(super) fn edge_in(&self, cpu: CpuId, due: u64) -> u64 {
        let edge = self.world.ticks_until(cpu, Ns(self.clock.now)).saturating_add(due);
        let offset = self.world.tick_ns.0.checked_mul(edge - 1);
        offset
            .and_then(|ns| ns.checked_add(self.world.cpus[cpu.index()].tick_phase.0))
            .unwrap_or(NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use schedlab_model::Topology;
    use schedlab_scheduler::CpuView;

    fn machine(cost: u64) -> (Machine, World) {
        let mut machine = Machine::flat(1);
        (machine.hz, machine.costs.tick_ns) = (1_000_000, Ns(cost));
        let world = World {
            roles: Default::default(),
            partitions: Vec::new(),
            tasks: Vec::new(),
            cpus: vec![CpuView::new(Ns(700))],
            groups: Vec::new(),
            topology: Topology::flat(1),
            hz: machine.hz,
            tick_ns: machine.tick_ns(),
        };
        (machine, world)
    }

    proptest! {
        /// Nanosecond by nanosecond: the debt is worked off first, an edge adds to it, then the
        /// program runs.
        #[test]
        fn closed_forms_agree_with_counting(
            cost in 0u64..999, from in 0u64..5_000, owed in 0u64..3_000, left in 0u64..4_000, cut in 0u64..9_000,
        ) {
            let (machine, world) = machine(cost);
            let edge = |t: u64| t >= 700 && (t - 700).is_multiple_of(1_000);
            let (mut debt, mut work, mut now, mut edges) = (owed, left, from, 0);
            let end = machine.done_at(&world, 0, from, (owed + left, cost));
            let mut at_cut = None;
            loop {
                if now > from && edge(now) {
                    debt += cost;
                    edges += 1;
                }
                if now == from + cut {
                    at_cut = Some((edges * cost, debt));
                }
                if debt + work == 0 && (at_cut.is_some() || now == end) {
                    break;
                }
                if debt > 0 { debt -= 1 } else { work = work.saturating_sub(1) }
                prop_assert!(now <= end + cut + 10_000);
                if debt + work == 0 && now < end {
                    // Done, unless an edge comes at that very moment.
                    prop_assert!(now + 1 == end || edge(now + 1), "done at {}, closed form {end}", now + 1);
                }
                now += 1;
            }
            if let Some((added, rest)) = at_cut {
                let closed = machine.rest_of_debt(&world, 0, from, from + cut, (owed, cost));
                prop_assert_eq!((closed.added, closed.left), (added, rest));
            }
        }
    }
}
