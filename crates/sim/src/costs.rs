//! The prices of the machine's own work. Every knob is zero by default; a test against a recorded
//! oracle runs on a free machine.

use schedlab_model::Ns;
use serde::{Deserialize, Serialize};

macro_rules! costs {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Named prices of the machine's own work, all zero by [`Default`].
        ///
        /// Two clocks matter. The *decision* is the call of `Scheduler::schedule`: the scheduler
        /// charges the outgoing task up to there. The *switch record* is what a tracer writes:
        /// shares and run lengths of recordings count from record to record. `*_decide_ns` lies
        /// before the decision, `*_switch_ns` between decision and record (so it is charged to the
        /// incoming task by the scheduler and to the outgoing one by the tracer), `*_enter_ns`
        /// after the record, before the program goes on.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Costs {
            $($(#[doc = $doc])+ pub $name: Ns,)+
            /// How many lines of task records a CPU finds in its cache again (a count; comes with
            /// the presets).
            pub hot_lines: u32,
            /// How many CPUs, from 0 on, share a bus to memory; the next ones have another (a
            /// count; comes with the presets; 0 = all share one).
            pub bus_cpus: u32,
        }

        impl Costs {
            /// Returns every knob with its description, in order of declaration.
            pub fn knobs() -> impl Iterator<Item = (&'static str, &'static str)> {
                [$((stringify!($name), concat!($($doc),+).trim_ascii()),)+].into_iter()
            }

            /// Returns the value of a knob.
            pub fn get(&self, name: &str) -> Option<Ns> {
                match name {
                    $(stringify!($name) => Some(self.$name),)+
                    _ => None,
                }
            }

            /// Sets a knob; false when there is none of that name.
            pub fn set(&mut self, name: &str, value: Ns) -> bool {
                match name {
                    $(stringify!($name) => self.$name = value,)+
                    _ => return false,
                }
                true
            }
        }
    };
}

costs! {
    /// From the expiry of a task's timer to its wakeup record.
    timer_to_wake_ns,
    /// From a request's arrival at the machine to the wakeup record.
    arrival_to_wake_ns,
    /// Timer slack: a sleep of a task of a fair policy ends this much later (Linux default 50 us;
    /// RT tasks have none).
    timer_slack_ns,
    /// How late a timer that the scheduler armed fires, slices included (1 ns in the Xen logs).
    timer_late_ns,
    /// A timer that the scheduler arms (slices included) fires no earlier than this after it was
    /// armed (Xen's `timer_slop`, 50 us; 0 in the Xen logs). Not behind agents.
    timer_slop_ns,
    /// Taken from the interrupted task by an interrupt that wakes another task and does not ask for
    /// a switch there (with a switch, `wakeup_decide_ns`, `wakeup_switch_ns` and `wakeup_resume_ns`
    /// say what it costs).
    wake_interrupt_ns,
    /// CPU time of a wakeup, taken from the task that wakes another.
    wake_call_ns,
    /// Taken from the interrupted task by each tick.
    tick_ns,
    /// From a wakeup that asks for preemption to the decision.
    wakeup_decide_ns,
    /// From that decision to the switch record.
    wakeup_switch_ns,
    /// From a tick that asks for preemption to the decision.
    tick_decide_ns,
    /// From that decision to the switch record.
    tick_switch_ns,
    /// From the moment of blocking, exiting or yielding to the decision.
    block_decide_ns,
    /// From that decision to the switch record.
    block_switch_ns,
    /// From the request to the decision on an idle CPU (idle exit).
    idle_decide_ns,
    /// From that decision to the switch record.
    idle_switch_ns,
    /// From any other request (scheduler timer, slice end, call) to the decision.
    other_decide_ns,
    /// From that decision to the switch record.
    other_switch_ns,
    /// After the switch record, for any incoming task: the rest of the context switch.
    switch_enter_ns,
    /// After the switch record, for a task that was preempted by a wakeup: return from the
    /// interrupt.
    wakeup_resume_ns,
    /// The same for a task that was preempted at a tick.
    tick_resume_ns,
    /// The same for a task that was preempted for another reason.
    other_resume_ns,
    /// Start of an activation of a fair task, after its switch record: return from the sleeping
    /// call.
    fair_enter_ns,
    /// End of an activation of a fair task: entry into the sleeping call, before its timer is
    /// armed.
    fair_exit_ns,
    /// Start of an activation of a real-time task.
    rt_enter_ns,
    /// End of an activation of a real-time task.
    rt_exit_ns,
    /// A job of a periodic task that starts late, at once after the one before (the sleeping call
    /// returns immediately).
    late_job_ns,
    /// Taken from the sender of a reschedule interrupt.
    ipi_send_ns,
    /// From sending a reschedule interrupt to its arrival.
    ipi_latency_ns,
    /// Kernel work of a migration, paid by the migrated task after its switch record.
    migration_ns,
    /// Cache refill after a migration to another core below the same last-level cache.
    refill_core_ns,
    /// Cache refill after a migration to another last-level cache of the same node.
    refill_llc_ns,
    /// Cache refill after a migration to another node.
    refill_node_ns,
    /// Cache refill after another task ran on the CPU while this one was away for
    /// `refill_wait_after_ns` or more.
    refill_wait_ns,
    /// See `refill_wait_ns`.
    refill_wait_after_ns,
    /// Fixed part of a call of the scheduler's decision, switch included, with a warm cache.
    decision_ns,
    /// The same after a task that filled the cache with its own data (see `stream_after_ns`).
    decision_cold_ns,
    /// Added to `decision_cold_ns`, times the square root of the number of CPUs that stream memory.
    decision_bus_ns,
    /// Looking at one task of a run queue whose record is in the cache.
    scan_hot_ns,
    /// Looking at one task whose record is not in the cache, or at a line of another CPU.
    line_ns,
    /// Takes the place of `line_ns` while CPUs stream memory, times the square root of their
    /// number.
    line_bus_ns,
    /// A task that ran this long has filled the cache of its CPU, and its CPU counts as one that
    /// streams; 0 = never.
    stream_after_ns,
    /// How long a wakeup (or the second look for a CPU after a switch) holds a run-queue lock,
    /// apart from lines.
    wake_hold_ns,
    /// Handing over a lock that is shared by all CPUs, for each CPU that waits for it.
    handoff_ns,
    /// A thousand instructions of a scheduler in BPF, compiled by the kernel.
    bpf_thousand_ns,
    /// Each kernel function or helper that such a scheduler calls.
    bpf_call_ns,
}

impl Costs {
    /// Returns whether nothing costs anything.
    pub fn is_free(&self) -> bool {
        *self == Costs::default()
    }

    /// Returns the prices of the Linux 6.1.192 virtual machines of `oracles/linux` (QEMU TCG, 1 ns
    /// an instruction, HZ=250).
    ///
    /// Source: docs/sources/linux-facts.md, 4: 4.2 us a job; a tick 2.7; a timer wakeup without
    /// preemption 2.75; with preemption 5.1 in all (record at +1, switch 2 later, 2.1 on resume); a
    /// switch 4.1 after its tick and 1.4 on resume; idle exit 2; a periodic wakeup 2.0 us after its
    /// time; accounting changes hands at the wakeup, 2 us before the switch. Also read off the
    /// recording: a sleep ends 0.15 us early as seen from the switch, so 2.05 us of a job lie
    /// before the work. Where decision and record part at a block and at a tick (0.6 and 0.8 us) is
    /// taken from 6.12.95: 6.1 was not measured.
    pub fn oracle_6_1() -> Costs {
        Costs {
            timer_to_wake_ns: Ns(2_000),
            wake_interrupt_ns: Ns(2_750),
            tick_ns: Ns(2_700),
            wakeup_switch_ns: Ns(2_000),
            wakeup_resume_ns: Ns(3_100),
            tick_decide_ns: Ns(3_300),
            tick_switch_ns: Ns(800),
            tick_resume_ns: Ns(1_400),
            block_decide_ns: Ns(1_550),
            block_switch_ns: Ns(600),
            idle_switch_ns: Ns(2_000),
            fair_enter_ns: Ns(2_050),
            rt_enter_ns: Ns(2_050),
            ..Costs::default()
        }
    }

    /// Returns the prices of the Linux 6.12.95 virtual machines of `oracles/linux`.
    ///
    /// Source: docs/sources/linux-facts.md, 4: a fair job 2.1 us before and 2.5 after its work, a
    /// real-time one 1.2 and 3.2; record of a wakeup 2.2 after its timer, switch 2.4 after that; a
    /// tick 3.3; a switch 4.8 after its tick; a late job 1. Also read off the recording: accounting
    /// changes hands 0.1 after the record of a wakeup, 0.6 before a blocking switch, 0.8 before a
    /// tick switch. Taken from 6.1, because 6.12 was not measured: wakeup without preemption,
    /// resume, idle exit, and the 0.15 us of a sleep.
    pub fn oracle_6_12() -> Costs {
        Costs {
            timer_to_wake_ns: Ns(2_200),
            wake_interrupt_ns: Ns(2_750),
            tick_ns: Ns(3_300),
            wakeup_decide_ns: Ns(100),
            wakeup_switch_ns: Ns(2_300),
            wakeup_resume_ns: Ns(3_100),
            tick_decide_ns: Ns(4_000),
            tick_switch_ns: Ns(800),
            tick_resume_ns: Ns(1_400),
            block_decide_ns: Ns(1_750),
            block_switch_ns: Ns(600),
            idle_switch_ns: Ns(2_000),
            fair_enter_ns: Ns(2_100),
            fair_exit_ns: Ns(150),
            rt_enter_ns: Ns(1_200),
            rt_exit_ns: Ns(850),
            late_job_ns: Ns(1_000),
            ..Costs::default()
        }
    }

    /// Returns the prices of the Linux 7.2.13 virtual machines of `oracles/linux`.
    ///
    /// Source: medians of the recording itself, where 6.12.95 measured the same way gives what its
    /// preset says. A fair job takes 5.2 us above its work, one of a real-time task 4.5; a
    /// tick 3.0; a wakeup without preemption 3.5, with 5.6 in all, its switch 2.5 after the record;
    /// a switch 5.2 after its tick; a job that HRTICK interrupts takes 5.3 more. A new slice of 700
    /// us lasts 704.5 from record to record, and one after another 703.4: HRTICK is accounted
    /// for 3.4 us after the end of the slice (1 us of that is the scheduler's own, see
    /// `HRTICK_LATE`) and 1.1 us before the decision, which lies 0.8 us before the record. The
    /// program is taken to run on until HRTICK is accounted for; what it cannot do then is added to
    /// its return.
    pub fn oracle_7_2() -> Costs {
        Costs {
            timer_to_wake_ns: Ns(2_400),
            timer_late_ns: Ns(2_400),
            wake_interrupt_ns: Ns(2_950),
            tick_ns: Ns(3_200),
            wakeup_decide_ns: Ns(1_700),
            wakeup_switch_ns: Ns(800),
            tick_decide_ns: Ns(4_400),
            block_decide_ns: Ns(1_950),
            idle_switch_ns: Ns(2_100),
            other_decide_ns: Ns(1_100),
            other_switch_ns: Ns(800),
            other_resume_ns: Ns(3_400),
            fair_enter_ns: Ns(2_400),
            rt_enter_ns: Ns(1_100),
            bpf_thousand_ns: Ns(1_000),
            bpf_call_ns: Ns(38),
            ..Costs::oracle_6_12()
        }
    }

    /// Returns the prices of a virtual machine of today with a fast core.
    ///
    /// Source: docs/sources/machine-costs.md, 1. Directly from there: IPI to a busy CPU 12 us;
    /// timer slack 50 us (the distance between the sleeps of OTHER and FIFO); tick 0.75 us. Split
    /// by hand so that the sums come out: a wakeup and switch on the same CPU 2.0 us (0.5 call, 0.9
    /// to the record, 0.6 after it); a wakeup of an idle CPU 27 us (12 IPI, 15 idle exit); a FIFO
    /// sleep of 1 ms ends 26 us late (10 timer, 15 idle exit, 1 switch). Cache refill is not
    /// measured there and stays 0. Instructions and calls of BPF: there, 5.
    pub fn modern_vm() -> Costs {
        Costs {
            timer_to_wake_ns: Ns(10_000),
            timer_slack_ns: Ns(50_000),
            wake_interrupt_ns: Ns(1_000),
            wake_call_ns: Ns(500),
            tick_ns: Ns(750),
            wakeup_switch_ns: Ns(900),
            tick_switch_ns: Ns(900),
            block_switch_ns: Ns(900),
            other_switch_ns: Ns(900),
            idle_decide_ns: Ns(15_000),
            idle_switch_ns: Ns(400),
            switch_enter_ns: Ns(600),
            ipi_send_ns: Ns(100),
            ipi_latency_ns: Ns(12_000),
            bpf_thousand_ns: Ns(300),
            bpf_call_ns: Ns(30),
            ..Costs::default()
        }
    }

    /// Returns the prices of an 8-way Pentium III Xeon, 700 MHz, under Linux 2.4: the machine of
    /// Taniguchi, Ishikawa and Hiraki (docs/sources/linux-facts.md, 5.1 and 5.3).
    ///
    /// **Fitted** to the six numbers of the paper's Table 1, which are times from entry to return
    /// and so hold the wait for the lock: `line_bus_ns` (545 ns with an assumed square-root law),
    /// `decision_cold_ns` and `decision_bus_ns` (10 us and 4.1 such lines). Fitted to Molnar's and
    /// IBM's figures for 2 and 8 CPUs (5.2 there): `handoff_ns` (0.4 and 2.7 us). Measured by
    /// others (5.2): `scan_hot_ns` 14-33 ns, `line_ns` 200-400 ns without streaming, `hot_lines`
    /// 128-256. `bus_cpus`: 8-way machines of this processor have the Profusion chipset, with two
    /// processor buses of four CPUs each; that the paper's machine is one of them is inferred.
    /// `stream_after_ns`: 2 MB at the 350 MB/s that the kernel assumes for its cache flush time
    /// (`smp_tune_scheduling`, arch/i386/kernel/smpboot.c of 2.4). Chosen, no source:
    /// `wake_hold_ns`.
    pub fn p3_xeon_700() -> Costs {
        Costs {
            tick_ns: Ns(5_000),
            ipi_send_ns: Ns(300),
            ipi_latency_ns: Ns(2_000),
            decision_ns: Ns(1_300),
            decision_cold_ns: Ns(10_000),
            decision_bus_ns: Ns(2_235),
            scan_hot_ns: Ns(20),
            line_ns: Ns(300),
            line_bus_ns: Ns(545),
            stream_after_ns: Ns(6_000_000),
            wake_hold_ns: Ns(1_000),
            handoff_ns: Ns(386),
            hot_lines: 160,
            bus_cpus: 4,
            ..Costs::default()
        }
    }

    /// Returns the prices of a machine of today without virtualisation:
    /// docs/sources/machine-costs.md, 2. Nothing is fitted; `stream_after_ns` (32 MB at 20 GB/s)
    /// and `wake_hold_ns` are chosen without a source.
    pub fn modern() -> Costs {
        Costs {
            tick_ns: Ns(750),
            ipi_send_ns: Ns(100),
            ipi_latency_ns: Ns(1_500),
            decision_ns: Ns(600),
            decision_cold_ns: Ns(2_000),
            scan_hot_ns: Ns(3),
            line_ns: Ns(100),
            stream_after_ns: Ns(1_600_000),
            wake_hold_ns: Ns(100),
            handoff_ns: Ns(100),
            hot_lines: 4_096,
            bpf_thousand_ns: Ns(300),
            bpf_call_ns: Ns(30),
            ..Costs::default()
        }
    }

    /// Returns whether the work that schedulers count has a price.
    pub fn prices_work(&self) -> bool {
        [
            self.decision_ns,
            self.decision_cold_ns,
            self.scan_hot_ns,
            self.line_ns,
            self.line_bus_ns,
            self.wake_hold_ns,
        ]
        .iter()
        .any(|price| *price > Ns::ZERO)
    }

    /// Returns whether the instructions and calls of a scheduler in BPF have a price.
    pub fn prices_code(&self) -> bool {
        self.bpf_thousand_ns > Ns::ZERO || self.bpf_call_ns > Ns::ZERO
    }

    /// Returns a preset by name.
    pub fn preset(name: &str) -> Option<Costs> {
        PRESETS.iter().find(|(known, _)| *known == name).map(|(_, costs)| costs())
    }

    /// Returns the names of the presets.
    pub fn presets() -> impl Iterator<Item = &'static str> + Clone {
        PRESETS.iter().map(|(name, _)| *name)
    }
}

type Preset = (&'static str, fn() -> Costs);

/// Every preset by its name.
const PRESETS: &[Preset] = &[
    ("free", Costs::default),
    ("oracle-6.1", Costs::oracle_6_1),
    ("oracle-6.12", Costs::oracle_6_12),
    ("oracle-7.2", Costs::oracle_7_2),
    ("modern-vm", Costs::modern_vm),
    ("p3-xeon-700", Costs::p3_xeon_700),
    ("modern", Costs::modern),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_by_name() {
        let mut costs = Costs::default();
        for (i, (name, doc)) in Costs::knobs().enumerate() {
            assert!(!doc.is_empty() && doc.ends_with('.'), "{name}: {doc}");
            assert!(costs.set(name, Ns(i as u64 + 1)), "{name}");
        }
        for (i, (name, _)) in Costs::knobs().enumerate() {
            assert_eq!(costs.get(name), Some(Ns(i as u64 + 1)), "{name}");
        }
        assert!(!costs.set("tick", Ns(1)));
    }
}
