//! Giving up what is not needed any more: capabilities(7) of the calling thread.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::io;

/// What a thread still has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duty {
    /// Sets policies and affinities: CAP_SYS_NICE.
    Schedule,
    /// Opens events about other people's threads: CAP_PERFMON.
    Follow,
    /// The same where the kernel wants more for it: CAP_SYS_ADMIN. See [`least_duty`](crate::follow::least_duty).
    FollowAsAdmin,
    /// Maps memory after `mlockall` has locked all that is to come: CAP_IPC_LOCK.
    LockMemory,
    /// Ends processes of other users: CAP_KILL.
    Kill,
    /// Reads about other users' processes where /proc is mounted with `hidepid`: CAP_SYS_PTRACE.
    See,
    /// Runs BPF programs that were loaded before: CAP_BPF (where kernel.unprivileged_bpf_disabled is set).
    RunBpf,
    /// Writes to files of control groups that belong to other users: CAP_DAC_OVERRIDE.
    WriteGroups,
}

impl Duty {
    const fn capability(self) -> CapabilitySet {
        match self {
            Duty::Schedule => CapabilitySet::SYS_NICE,
            Duty::Follow => CapabilitySet::PERFMON,
            Duty::FollowAsAdmin => CapabilitySet::SYS_ADMIN,
            Duty::LockMemory => CapabilitySet::IPC_LOCK,
            Duty::Kill => CapabilitySet::KILL,
            Duty::See => CapabilitySet::SYS_PTRACE,
            Duty::RunBpf => CapabilitySet::BPF,
            Duty::WriteGroups => CapabilitySet::DAC_OVERRIDE,
        }
    }
}

/// From now on the calling thread, and threads that it makes, have these capabilities at most. What it did not have it
/// does not get. Programs that it starts as root get them all again: exec(2) of root gives them.
///
/// # Errors
/// What `capget(2)` or `capset(2)` answers (a security module may refuse).
pub fn keep_only(duties: &[Duty]) -> io::Result<()> {
    let kept = duties.iter().fold(CapabilitySet::empty(), |all, duty| all | duty.capability());
    let now = capabilities(None)?;
    let sets = CapabilitySets {
        effective: now.effective & kept,
        permitted: now.permitted & kept,
        inheritable: now.inheritable & kept,
    };
    Ok(set_capabilities(None, sets)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_is_gone_for_good() {
        // In a thread of its own: there is no way back.
        let test = std::thread::spawn(|| {
            let before = capabilities(None).expect("readable");
            keep_only(&[Duty::Schedule, Duty::Kill]).expect("less is always allowed");
            let now = capabilities(None).expect("readable");
            let kept = CapabilitySet::SYS_NICE | CapabilitySet::KILL;
            assert_eq!(now.permitted, before.permitted & kept);
            assert_eq!(now.effective, before.effective & kept);
            keep_only(&[Duty::Schedule, Duty::Follow]).expect("less is always allowed");
            assert_eq!(
                capabilities(None).expect("readable").permitted,
                before.permitted & CapabilitySet::SYS_NICE
            );
        });
        test.join().expect("it holds");
    }
}
