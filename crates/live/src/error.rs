//! Why a change of running threads was refused.

use schedlab_model::CpuId;
use std::io;
use std::path::PathBuf;

/// What went wrong. Nothing is changed when an operation that returns this fails, unless the error
/// says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// No such thread.
    #[error("there is no thread {tid}: give the number of a running one (`ps -eL` lists them)")]
    NoThread {
        /// Thread id.
        tid: u32,
    },
    /// A thread of the kernel.
    #[error(
        "thread {tid} ({comm}) belongs to the kernel, which needs it as it is: name a process of \
         yours"
    )]
    KernelThread {
        /// Thread id.
        tid: u32,
        /// Name.
        comm: String,
    },
    /// Another real-time thread keeps a CPU that shall be managed.
    #[error(
        "CPU {} gave a thread of SCHED_FIFO {} nothing for {} ms: {by}. Managed threads would get \
         nothing either: end it, give it another \
         class, or manage other CPUs (--cpus)", cpu.0, crate::driver::GUARDIAN, waited.as_millis()
    )]
    Occupied {
        /// The CPU.
        cpu: CpuId,
        /// How long.
        waited: std::time::Duration,
        /// The threads of higher real-time priorities that want it.
        by: String,
    },
    /// The process is not managed.
    #[error("process {process} is not managed: `schedlab status` lists what is")]
    NotManaged {
        /// Process id.
        process: u32,
    },
    /// The owner is dead, and what it changed is not restored.
    #[error(
        "process {process} was managed by process {owner}, which is dead: `schedlab restore` \
         gives it back"
    )]
    DeadOwner {
        /// Process id.
        process: u32,
        /// The owner.
        owner: u32,
    },
    /// The owner gives back all of its threads or none.
    #[error(
        "process {process} is part of `{purpose}` (process {owner}), which gives back all or \
         nothing: `schedlab detach`"
    )]
    AllOrNothing {
        /// Process id.
        process: u32,
        /// The owner.
        owner: u32,
        /// What its changes are for.
        purpose: String,
    },
    /// The owner was asked and did not answer.
    #[error(
        "process {owner}, which manages process {process}, does not answer: `schedlab detach` \
         ends it"
    )]
    NoAnswer {
        /// Process id.
        process: u32,
        /// The owner.
        owner: u32,
    },
    /// The scheduler cannot serve tasks of a declared policy.
    #[error("{scheduler} cannot serve {name} as {policy}: {reason}")]
    Policy {
        /// The scheduler.
        scheduler: String,
        /// The name of the threads.
        name: String,
        /// The declared policy.
        policy: schedlab_model::Policy,
        /// Why not.
        reason: &'static str,
    },
    /// The kernel refused to tell or to change something of a thread that lives.
    #[error("cannot change {what} of thread {tid} ({comm}): {call}: {source}. {advice}")]
    Refused {
        /// Policy or affinity.
        what: &'static str,
        /// The refused system call.
        call: &'static str,
        /// Thread id.
        tid: u32,
        /// Name.
        comm: String,
        /// What the kernel answered.
        source: io::Error,
        /// What may be the matter.
        advice: &'static str,
    },
    /// A file of a control group could not be read or written.
    #[error(
        "{path}: {source}. Only files of control groups below /sys/fs/cgroup can be changed, and \
         most need root"
    )]
    Group {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The folder for journals is not to be trusted.
    #[error(
        "the folder {path} {fault}: journals must be where only you and root can make and rename \
         entries. Set SCHEDLAB_RUN_DIR to a \
         folder of your own"
    )]
    RunDir {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        fault: &'static str,
    },
    /// A journal that this version cannot read.
    #[error(
        "{path}, line {line}: {fault}. It was written by another version of schedlab, or by \
         something else"
    )]
    Journal {
        /// The journal.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        fault: String,
    },
    /// A journal of another version.
    #[error("{path}, line 1: {fault}: restore with the program that wrote it")]
    JournalVersion {
        /// The journal.
        path: PathBuf,
        /// Which one, and which are known.
        fault: String,
    },
    /// Another schedlab changes it, and two would take each other's settings for what was before.
    #[error("{what} is managed already, by {by}")]
    Taken {
        /// The process or control group.
        what: String,
        /// Who, and what to do.
        by: String,
    },
    /// The guardian could not be started; nothing was changed.
    #[error("the guardian did not start ({reason}), so nothing was changed")]
    Guardian {
        /// Why.
        reason: String,
    },
    /// The guardian is gone; everything was restored.
    #[error(
        "the guardian died ({how}): everything was put back, and nothing more is changed without \
         one"
    )]
    Unguarded {
        /// How it ended, as far as that is known: `signal: 9 (SIGKILL)`.
        how: String,
    },
    /// The scheduler or one of its knobs is unknown.
    #[error(transparent)]
    Scheduler(#[from] schedlab_scheduler::KnobError),
    /// Without wakeups nothing can be scheduled.
    #[error(
        "live scheduling needs the kernel's wakeup events, and they cannot be had here: {reason}. \
         Run as root; `schedlab doctor` shows each limit"
    )]
    NoEvents {
        /// Why.
        reason: String,
    },
    /// Events were promised and do not come.
    #[error(
        "the kernel tells of no wakeup ({what}): nothing can be scheduled so, and everything was \
         put back. Please report it with the output of `uname -a` and `schedlab doctor`"
    )]
    Deaf {
        /// What should have been heard.
        what: String,
    },
    /// A CPU that cannot be managed.
    #[error("CPU {cpu} cannot be managed: this process may use CPUs {allowed}")]
    Cpu {
        /// Number of the CPU.
        cpu: u32,
        /// The CPUs that can be managed.
        allowed: String,
    },
    /// All CPUs were to be managed, which leaves none for the rest of the system.
    #[error(
        "CPUs {managed} cannot all be managed: one CPU must stay unmanaged, for the rest of the \
         system, and this process may use CPUs {allowed} only. Leave one of them out"
    )]
    OneCpu {
        /// The named CPUs.
        managed: String,
        /// The CPUs that this process may use.
        allowed: String,
    },
    /// Another driver manages the CPU.
    #[error(
        "another schedlab, {by}, manages CPU {cpu}, and two would undo each other's turns: name \
         another CPU, or see `schedlab status` (and SCHEDLAB_RUN_DIR) and end it with `schedlab \
         detach`"
    )]
    Claimed {
        /// The CPU.
        cpu: u32,
        /// Which process.
        by: String,
    },
    /// The owner was killed, and has not ended yet.
    #[error(
        "everything was put back, but process {owner}, which made the changes and was killed, has \
         not come to its end: the journal {} stays until `schedlab restore` finds it gone",
        journal.display()
    )]
    StillEnding {
        /// The owner.
        owner: u32,
        /// Its journal.
        journal: PathBuf,
    },
    /// The scheduler asked for what no driver can do, or never came to rest.
    #[error(
        "{scheduler} broke the contract of a scheduler: {breach}. Everything was put back; choose \
         another scheduler, and \
         please report this one"
    )]
    Contract {
        /// The scheduler.
        scheduler: String,
        /// What it did.
        breach: schedlab_scheduler::decision_core::Breach,
    },
    /// An agent ended too early.
    #[error("the agent died ({why}); everything was put back")]
    AgentDied {
        /// Its last message.
        why: String,
    },
    /// A file operation failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system answered.
        source: io::Error,
    },
}

impl LiveError {
    /// Returns what makes the error of a failed file operation; `what`: what was tried.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> LiveError {
        let what = what.into();
        move |source| LiveError::Io { what, source }
    }

    /// Returns the error for changes without a guardian.
    pub(crate) fn no_guardian() -> LiveError {
        LiveError::Unguarded { how: "some time ago".to_owned() }
    }

    /// Returns the error for a thread of this process that ended by a panic, with its message.
    pub fn died(panic: &(dyn std::any::Any + Send)) -> LiveError {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let why = text.or_else(|| panic.downcast_ref::<String>().cloned());
        LiveError::AgentDied { why: why.unwrap_or_else(|| "a panic without words".to_owned()) }
    }
}
