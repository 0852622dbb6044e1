//! Why a scheduler could not be run inside the kernel's sched_ext class.

use schedlab_host::sched_ext::Unusable;
use schedlab_live::LiveError;
use schedlab_model::CpuId;

/// What went wrong. Everything is restored when an operation returns this.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtError {
    /// As with every driver.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The kernel, or the rights of this process, do not allow it.
    #[error(
        "--driver sched-ext cannot be used here: {0}. `schedlab doctor` shows each limit; \
         --driver elevation works on any kernel"
    )]
    Unusable(#[from] Unusable),
    /// The kernel has one place for schedulers.
    #[error(
        "the sched_ext scheduler {name} is active, and the kernel runs one at a time: end it \
         first (/sys/kernel/sched_ext/root/ops names it), or \
         use --driver elevation"
    )]
    Active {
        /// Its name.
        name: String,
    },
    /// Fair threads go before those of sched_ext.
    #[error(
        "{share} % of CPU {} went to {by}, whose class goes before sched_ext's: managed threads \
         would get what is left there. Move it to other \
         CPUs, manage other CPUs (--cpus), or use --driver elevation", cpu.0
    )]
    FairLoad {
        /// The CPU.
        cpu: CpuId,
        /// Per cent of it.
        share: u64,
        /// The thread that had most of it.
        by: String,
    },
    /// The kernel refused the programs.
    #[error(
        "the kernel did not take the scheduler ({what}): {reason}. Nothing was changed. Please \
         report it with the output of `uname -a` and \
         `schedlab doctor`"
    )]
    Load {
        /// The step that failed.
        what: &'static str,
        /// The kernel's or libbpf's answer.
        reason: String,
    },
    /// The kernel unloaded the scheduler while it ran.
    #[error("the kernel ended the scheduler: {reason}{message}. Everything was put back")]
    Ended {
        /// The kernel's words.
        reason: String,
        /// More of them, after a colon; may be empty.
        message: String,
    },
}
