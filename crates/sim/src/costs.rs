//! What the machine's own work costs. Every knob is zero by default; an oracle test runs on a free machine.

use schedlab_model::Ns;
use serde::{Deserialize, Serialize};

macro_rules! costs {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Named prices of the machine's own work, all zero by [`Default`].
        ///
        /// Two clocks matter. The *decision* is the call of `Scheduler::schedule`: the scheduler charges the
        /// outgoing task up to there. The *switch record* is what a tracer writes: shares and run lengths of
        /// recordings count from record to record. `*_decide_ns` lies before the decision, `*_switch_ns`
        /// between decision and record (so it is charged to the incoming task by the scheduler and to the
        /// outgoing one by the tracer), `*_enter_ns` after the record, before the program goes on.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Costs {
            $($(#[doc = $doc])+ pub $name: Ns,)+
        }

        impl Costs {
            /// Every knob with its description, in order of declaration.
            pub fn knobs() -> impl Iterator<Item = (&'static str, &'static str)> {
                [$((stringify!($name), concat!($($doc),+).trim_ascii()),)+].into_iter()
            }

            /// The value of a knob by name.
            pub fn get(&self, name: &str) -> Option<Ns> {
                match name {
                    $(stringify!($name) => Some(self.$name),)+
                    _ => None,
                }
            }

            /// Sets a knob by name; false when there is none of that name.
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
    /// Timer slack: a sleep of a task of a fair policy ends this much later (Linux default 50 us; RT tasks have none).
    timer_slack_ns,
    /// How late a timer that the scheduler armed fires, slices included (1 ns in the Xen logs).
    timer_late_ns,
    /// Taken from the interrupted task by an interrupt that wakes another task.
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
    /// After the switch record, whoever comes: the rest of the context switch.
    switch_enter_ns,
    /// After the switch record, for a task that was preempted: return from the interrupt.
    resume_enter_ns,
    /// Start of an activation of a fair task, after its switch record: return from the sleeping call.
    fair_enter_ns,
    /// End of an activation of a fair task: entry into the sleeping call, before its timer is armed.
    fair_exit_ns,
    /// Start of an activation of a real-time task.
    rt_enter_ns,
    /// End of an activation of a real-time task.
    rt_exit_ns,
    /// A job of a periodic task that starts late, at once after the one before (the sleeping call returns immediately).
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
    /// Cache refill after another task ran on the CPU while this one was away for `refill_wait_after_ns` or more.
    refill_wait_ns,
    /// See `refill_wait_ns`.
    refill_wait_after_ns,
}

impl Costs {
    /// Whether nothing costs anything.
    pub fn is_free(&self) -> bool {
        *self == Costs::default()
    }
}
