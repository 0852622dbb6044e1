//! What is due on a CPU, and when: timers, the tick, the end of the slice.

use super::super::HEARTBEAT;
use super::super::control::{CpuControl, ThreadControl};
use super::AgentState;
use crate::logged_core::{LoggedTimer, StepKind};
use schedlab_model::Ns;
use std::collections::BTreeMap;

impl<T: ThreadControl, C: CpuControl> AgentState<T, C> {
    /// Returns when the agent of a slot must wake at the latest.
    pub(in crate::elevation) fn due(&self, slot: usize) -> Ns {
        let mut until = self.now() + Ns(HEARTBEAT.as_nanos() as u64);
        let one = &self.slots[slot];
        let tick = one.next_tick.filter(|_| self.current(slot).is_some());
        let window = one.window.and_then(|window| window.due());
        for time in [one.slice_ends, tick, one.timers.values().min().copied(), window] {
            until = time.map_or(until, |time| time.min(until));
        }
        until
    }

    /// Arms or stops a timer: a CPU's own in its slot, another one where it was armed last.
    pub(super) fn set_timer(&mut self, timer: LoggedTimer, time: Option<Ns>) {
        self.slots.iter_mut().for_each(|slot| {
            slot.timers.remove(&timer);
        });
        let Some(time) = time else { return };
        let slot = match timer {
            LoggedTimer::Cpu(cpu, _) => cpu as usize,
            LoggedTimer::Task(_) | LoggedTimer::Global(_) => self.acting,
        };
        self.slots[slot].timers.insert(timer, time);
        self.wake_agent(slot);
    }

    /// Serves what is due on a CPU: timers, the tick, the end of the slice.
    pub(in crate::elevation) fn fire_timers(&mut self, slot: usize) {
        let now = self.now();
        let due = |timers: &BTreeMap<LoggedTimer, Ns>| {
            timers.iter().find(|(_, at)| **at <= now).map(|(timer, _)| *timer)
        };
        while let Some(timer) = due(&self.slots[slot].timers) {
            self.slots[slot].timers.remove(&timer);
            self.step(now, StepKind::Timer { timer });
        }
        if self.slots[slot].next_tick.is_some_and(|at| at <= now) {
            self.step(now, StepKind::Tick { cpu: slot as u32 });
            let tick = self.tick_ns();
            self.slots[slot].next_tick = Some(Ns((now.0 / tick.0 + 1) * tick.0));
        }
        let one = &mut self.slots[slot];
        if one.slice_ends.is_some_and(|at| at <= now) {
            one.slice_ends = None;
            one.decide = true;
        }
    }

    fn tick_ns(&self) -> Ns {
        Ns(1_000_000_000 / u64::from(self.rules.hz.max(1)))
    }
}
