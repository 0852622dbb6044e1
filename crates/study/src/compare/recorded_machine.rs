//! The machine on which a recording is played: what is known of it, and what was fitted to it.

use super::recorded::RecordedInput;
use crate::scenario::SmtYield;
use schedlab_model::{CpuRoles, CpuSet, Draw, Ns, random};
use schedlab_sim::{Costs, Delays, Machine, TickSkew};
use schedlab_trace::analysis::Durations;
use schedlab_trace::siblings::UNSHOWN;

impl RecordedInput {
    /// The CPUs that the recorded machine had set apart, as far as the recorder wrote them down.
    pub(super) fn roles(&self) -> CpuRoles {
        let here = CpuSet::first(self.replay.topology.cpus());
        let known = |name: &str| {
            let text = self.header.knobs.get(name);
            let set = text.and_then(|text| text.parse::<CpuSet>().ok()).unwrap_or_default();
            let set = set.and(&here);
            if set == here { CpuSet::EMPTY } else { set }
        };
        CpuRoles { isolated: known("isolated_cpus"), nohz_full: known("nohz_full") }
    }

    /// The speed of a hardware thread beside a busy one of its core.
    pub(super) fn smt_yield(&self) -> SmtYield {
        let shown = self.replay.report.siblings.map(|found| found.speed().permille());
        match SmtYield::of(&self.replay.topology, shown.unwrap_or_default()) {
            SmtYield::Speed(_) if shown.is_none() => SmtYield::Unshown,
            known => known,
        }
    }

    /// By what part the speed of a hardware thread beside a busy one may be another; `None`: no
    /// core has two.
    pub(super) fn error_of_siblings(&self) -> Option<f64> {
        let shown = self.replay.report.siblings.map(|found| found.error());
        self.replay.topology.has_siblings().then(|| shown.unwrap_or(UNSHOWN))
    }

    pub(super) fn hz(&self) -> u32 {
        if self.replay.hz == 0 { 250 } else { self.replay.hz }
    }

    /// For the report: the medians of the delays that every wakeup draws from, and what the
    /// recorder costs.
    pub(super) fn costs(&self) -> Costs {
        let delays = &self.replay.report.delays;
        Costs {
            idle_decide_ns: delays.idle_wakes().p50(),
            wakeup_decide_ns: delays.preempting_wakes().p50(),
            ..self.recorder_costs()
        }
    }

    /// The recorder's own cost: taken out of the recorded demand, and charged for the events that
    /// the simulation makes.
    fn recorder_costs(&self) -> Costs {
        let recorder = &self.replay.report.recorder;
        Costs {
            switch_enter_ns: recorder.switch,
            wake_call_ns: recorder.wake,
            wake_interrupt_ns: recorder.wake,
            ..Costs::default()
        }
    }

    /// Costs of the machine, fitted to the recording: how long a wakeup took to become a switch
    /// where no task was in the way.
    fn delays(&self) -> Delays {
        let delays = &self.replay.report.delays;
        let draw = |all: &Durations| (all.count() > 0).then(|| Draw::Empirical(all.sample(1_000)));
        let draws = |cpus: &[Durations]| cpus.iter().map(draw).collect();
        Delays { idle: draws(&delays.idle_wake), wakeup: draws(&delays.preempting_wake) }
    }

    /// The machine for a seed. Ticks come when the recording shows that they came; where it does
    /// not, each seed places them anew.
    pub(super) fn machine(&self, seed: u64) -> Machine {
        let hz = self.hz();
        let period = 1_000_000_000 / u64::from(hz);
        let cpus = self.replay.topology.cpus() as u64;
        let random = |cpu: u64| Ns(1 + mixed(seed.wrapping_mul(0x1_0000_0001) ^ cpu) % period);
        let fitted = |cpu: u64| self.replay.report.ticks.get(cpu as usize).copied().flatten();
        let at = |cpu: u64| fitted(cpu).map_or_else(|| random(cpu), |fit| fit.first);
        Machine {
            topology: self.replay.topology.clone(),
            hz,
            ticks: TickSkew::At((0..cpus).map(at).collect()),
            costs: self.recorder_costs(),
            delays: self.delays(),
            smt_yield: self.replay.report.beside().permille(),
            ..Machine::flat(1)
        }
    }
}

/// Returns a number that has nothing to do with that of the neighbouring seed: neighbouring seeds
/// give unrelated ticks.
fn mixed(seed: u64) -> u64 {
    random::mix(seed.wrapping_add(random::GOLDEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_differ_by_seed_and_cpu() {
        let all: std::collections::BTreeSet<u64> = (0..4).map(mixed).collect();
        assert_eq!(all.len(), 4);
    }
}
