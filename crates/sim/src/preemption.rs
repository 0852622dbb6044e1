//! Preemption models: where in kernel code a wakeup can take effect.
//!
//! # Fidelity
//! | rule | Linux | here | test |
//! |---|---|---|---|
//! | user code is preempted at once | return from the interrupt | modelled | every other test |
//! | `none`: kernel code runs to the return to user space or until it blocks | PREEMPT_NONE | modelled; its explicit `cond_resched` points count as voluntary ones | `tests/it/preemption.rs` |
//! | `voluntary`: also at declared points | PREEMPT_VOLUNTARY | modelled | `tests/it/preemption.rs` |
//! | `full`: anywhere but in sections without preemption, and at once when such a section ends | PREEMPT | modelled | `tests/it/preemption.rs` |
//! | `lazy`: the fair class waits for the return to user space or the next tick, real-time tasks do not | PREEMPT_LAZY (6.13) | modelled; a request of another CPU sends no interrupt and waits in user code too | `tests/it/preemption.rs` |
//! | `rt`: spinlocks sleep, so their sections are preemptible | PREEMPT_RT | modelled; waiting for the same lock is not (no priority inheritance) | `tests/it/preemption.rs` |
//! | interrupts off: the interrupt is served when the section ends | local_irq_disable | modelled for wakeups, by timers, from outside and by devices; ticks are accounted at their nominal time, a scheduler's own timers run at theirs | `tests/it/preemption.rs` |
//! | a sleeping call decides at once | schedule() | modelled | `tests/it/preemption.rs` |
//! | threaded interrupts: a real-time thread of each CPU does the waking | `threadirqs`, PREEMPT_RT | modelled for requests from outside and devices; timers wake from the interrupt itself, also those of fair tasks, which PREEMPT_RT serves in a softirq thread | `tests/it/preemption.rs` |
//! | a task whose group has no run time is taken off on its way to user code | task work, 6.18 | modelled: the scheduler is told at the end of a stay in the kernel | `tests/it/linux_groups.rs` |
//! | softirqs that run on exit of an interrupt or in ksoftirqd | | omitted | |

use schedlab_model::{Op, TaskId, Workload};

/// Where a wakeup can take effect while the current task is in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PreemptModel {
    /// At the return to user space, or when the task blocks.
    None,
    /// Also at declared points.
    Voluntary,
    /// Anywhere but where preemption is off.
    #[default]
    Full,
    /// Real-time tasks as `Full`; fair tasks wait for the next tick or the return to user space.
    Lazy,
    /// As `Full`, and spinlocks do not switch preemption off.
    Rt,
}

impl PreemptModel {
    /// All of them.
    pub const ALL: [PreemptModel; 5] = [
        PreemptModel::None,
        PreemptModel::Voluntary,
        PreemptModel::Full,
        PreemptModel::Lazy,
        PreemptModel::Rt,
    ];

    /// Returns its name in scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            PreemptModel::None => "none",
            PreemptModel::Voluntary => "voluntary",
            PreemptModel::Full => "full",
            PreemptModel::Lazy => "lazy",
            PreemptModel::Rt => "rt",
        }
    }

    /// Returns a model by its name.
    pub fn from_name(name: &str) -> Option<PreemptModel> {
        PreemptModel::ALL.into_iter().find(|model| model.name() == name)
    }
}

/// How a machine's kernel lets itself be preempted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Preemption {
    /// The model.
    pub model: PreemptModel,
    /// The interrupt thread of each CPU, which must run [`Op::Interrupts`]; empty: requests from
    /// outside wake their receivers from the interrupt itself.
    pub irq_threads: Vec<TaskId>,
}

impl Preemption {
    /// Returns whether it makes a difference for `workload`.
    pub(crate) fn matters(&self, workload: &Workload) -> bool {
        let ops = || workload.tasks.iter().flat_map(|task| &task.program.ops);
        self.model == PreemptModel::Lazy
            || !self.irq_threads.is_empty()
            || ops().any(|op| matches!(op, Op::Kernel { .. } | Op::Interrupts(_)))
    }

    /// Returns what is wrong with it on a machine with `cpus` CPUs.
    pub(crate) fn check(&self, workload: &Workload, cpus: usize) -> Result<(), String> {
        if self.irq_threads.is_empty() {
            return Ok(());
        }
        if self.irq_threads.len() != cpus {
            return Err(format!(
                "{} interrupt threads for {cpus} CPUs; give one for each",
                self.irq_threads.len()
            ));
        }
        let serves = |thread: &TaskId| {
            let task = workload.tasks.get(thread.index());
            task.is_some_and(|task| {
                task.program.ops.iter().any(|op| matches!(op, Op::Interrupts(_)))
            })
        };
        match self.irq_threads.iter().find(|thread| !serves(thread)) {
            Some(thread) => Err(format!(
                "{thread} is an interrupt thread, but its program serves no interrupts"
            )),
            None => Ok(()),
        }
    }
}
