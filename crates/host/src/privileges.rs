//! What recording needs, and giving up what is not needed any more: capabilities(7) of the calling
//! thread.

use rustix::fs::{Access, AtFlags, CWD};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};
use std::io;
use std::path::Path;

/// What a user needs to record every task of a machine. Measured as user 65534 with these
/// capabilities alone (docs/security.md). `doctor`, errors and documents say it with this sentence.
pub const RECORDING_NEEDS: &str = "recording the whole machine needs no root: CAP_BPF and \
                                   CAP_PERFMON are enough (Linux 5.8 and later; \
     before 5.18, whose kernels do not load the BPF programs, CAP_PERFMON and a tracefs that the \
     user can read see as much)";

/// Gives the program what [`RECORDING_NEEDS`] says.
pub const RECORDING_SETCAP: &str = "setcap cap_bpf,cap_perfmon+ep \"$(command -v schedlab)\"";

/// What a thread still has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duty {
    /// Sets policies and affinities: CAP_SYS_NICE.
    Schedule,
    /// Opens events about other people's threads: CAP_PERFMON.
    Follow,
    /// The same where the kernel wants more for it: CAP_SYS_ADMIN. See
    /// [`least_duty`](crate::follow::least_duty).
    FollowAsAdmin,
    /// Maps memory after `mlockall` has locked all that is to come: CAP_IPC_LOCK.
    LockMemory,
    /// Ends processes of other users: CAP_KILL.
    Kill,
    /// Reads about other users' processes where /proc is mounted with `hidepid`: CAP_SYS_PTRACE.
    See,
    /// Runs BPF programs that were loaded before: CAP_BPF (where kernel.unprivileged_bpf_disabled
    /// is set).
    RunBpf,
    /// Writes to files of control groups that belong to other users: CAP_DAC_OVERRIDE.
    WriteGroups,
    /// Writes a result into a folder of another user: CAP_DAC_OVERRIDE. See [`to_write_in`].
    WriteOutput,
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
            Duty::WriteGroups | Duty::WriteOutput => CapabilitySet::DAC_OVERRIDE,
        }
    }
}

/// From now on the calling thread, and threads that it makes, have these capabilities at most. What
/// it did not have it does not get. Programs that it starts as root get them all again: exec(2) of
/// root gives them.
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

/// As [`keep_only`], for good: programs that the calling thread starts get no other capabilities
/// and no other user either, not even from a setuid file (`no_new_privs`, prctl(2)).
///
/// # Errors
/// As for [`keep_only`].
pub fn give_up_all_but(duties: &[Duty]) -> io::Result<()> {
    set_no_new_privs(true)?;
    keep_only(duties)
}

/// Returns what is needed to write in `folder` when all capabilities are given up; `None`: nothing,
/// the folder is the user's.
pub fn to_write_in(folder: &Path) -> Option<Duty> {
    // Asked in a thread that has given them up, which is the only certain answer.
    let asked = std::thread::scope(|threads| {
        let ask = || {
            keep_only(&[])?;
            let wanted = Access::WRITE_OK | Access::EXEC_OK;
            Ok(rustix::fs::accessat(CWD, folder, wanted, AtFlags::EACCESS)?)
        };
        threads
            .spawn(ask)
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the asking thread failed")))
    });
    let asked: io::Result<()> = asked;
    asked.is_err().then_some(Duty::WriteOutput)
}

/// Returns what is needed to read about other users' tasks in /proc; `None`: nothing, it is not
/// mounted with `hidepid`.
pub(crate) fn to_see_tasks() -> Option<Duty> {
    hides_tasks(&std::fs::read_to_string("/proc/self/mounts").unwrap_or_default())
        .then_some(Duty::See)
}

/// Whether /proc is mounted with `hidepid` (proc(5): 0 or `off` hides nothing).
fn hides_tasks(mounts: &str) -> bool {
    mounts.lines().any(|line| {
        let mut words = line.split(' ').skip(1);
        let here = words.next() == Some("/proc") && words.next() == Some("proc");
        let options = words.next().unwrap_or_default().split(',');
        here && options
            .filter_map(|option| option.strip_prefix("hidepid="))
            .any(|how| !matches!(how, "0" | "off"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documents say what is needed with the sentence of `doctor` and of errors.
    #[test]
    fn the_documents_have_the_sentence() {
        for (file, page) in [
            ("security.md", include_str!("../../../docs/security.md")),
            ("recording.md", include_str!("../../../docs/recording.md")),
        ] {
            let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(RECORDING_NEEDS), "docs/{file} lacks: {RECORDING_NEEDS}");
            assert!(page.contains(RECORDING_SETCAP), "docs/{file} lacks: {RECORDING_SETCAP}");
        }
    }

    #[test]
    fn proc_may_hide_tasks() {
        assert!(!hides_tasks("proc /proc proc rw,nosuid,relatime 0 0\n"));
        assert!(!hides_tasks(
            "proc /proc proc rw,hidepid=off 0 0\nproc /x/proc proc rw,hidepid=2 0 0\n"
        ));
        assert!(hides_tasks("proc /proc proc rw,gid=4,hidepid=invisible 0 0\n"));
        assert!(hides_tasks("proc /proc proc rw,hidepid=2 0 0\n"));
    }

    /// The folder of another user asks for a capability, a folder of one's own does not.
    #[test]
    fn a_folder_of_ones_own_needs_no_capability() {
        let own = schedlab_testing::temp_dir().join(format!("schedlab-own-{}", std::process::id()));
        std::fs::create_dir_all(&own).expect("a folder");
        assert_eq!(to_write_in(&own), None);
        // Of another user: only root may make one.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&own, Some(65_534), None).expect("root may");
            assert_eq!(to_write_in(&own), Some(Duty::WriteOutput));
        }
        assert_eq!(to_write_in(&own.join("missing")), Some(Duty::WriteOutput));
        std::fs::remove_dir_all(&own).expect("removed");
    }

    #[test]
    fn what_a_thread_gave_up_its_programs_do_not_get_either() {
        let test = std::thread::spawn(|| {
            give_up_all_but(&[]).expect("less is always allowed");
            let said = std::process::Command::new("cat")
                .arg("/proc/self/status")
                .output()
                .expect("cat(1)");
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            assert_eq!(crate::proc::value(&said, "NoNewPrivs:"), Some("1"));
            assert_eq!(crate::proc::value(&said, "CapEff:"), Some("0000000000000000"));
        });
        test.join().expect("it holds");
    }

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
