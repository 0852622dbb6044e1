//! Keeping huge pages away from this process while it measures: khugepaged holds a process's memory
//! lock (`mmap_lock`) while it collapses pages, and a page fault waits for it, for seconds on a
//! slow machine.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many hold it. The flag itself is of the process (PR_SET_THP_DISABLE, prctl(2)).
static HOLDERS: AtomicUsize = AtomicUsize::new(0);

/// While one of these lives, the kernel makes no huge pages of this process's memory. Programs that
/// it starts inherit the flag (prctl(2)): those whose behaviour is measured begin without it
/// ([`begins_without`]).
#[derive(Debug)]
pub struct NoHugePages {
    counted: bool,
}

impl NoHugePages {
    /// Begins. Where the flag was set by another program before, nothing changes.
    pub fn hold() -> NoHugePages {
        if HOLDERS.load(Ordering::Acquire) == 0 && disabled() {
            // It stays so afterwards, for this process and those that it starts.
            return NoHugePages { counted: false };
        }
        if HOLDERS.fetch_add(1, Ordering::AcqRel) == 0 {
            disable(true);
        }
        NoHugePages { counted: true }
    }
}

impl Drop for NoHugePages {
    fn drop(&mut self) {
        if self.counted && HOLDERS.fetch_sub(1, Ordering::AcqRel) == 1 {
            disable(false);
        }
    }
}

/// Lets the program that `command` starts have the huge pages that it would have without schedlab.
pub(crate) fn begins_without(command: &mut Command) {
    let undo = || {
        if HOLDERS.load(Ordering::Acquire) > 0 {
            disable(false);
        }
        io::Result::Ok(())
    };
    // SAFETY: a load and a system call; nothing is allocated and no lock is taken.
    unsafe {
        command.pre_exec(undo);
    }
}

fn disabled() -> bool {
    // SAFETY: reads a flag of this process; no pointer is passed.
    unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1 }
}

/// A kernel without huge pages (EINVAL) needs none of this.
fn disable(on: bool) {
    // SAFETY: sets a flag of this process; no pointer is passed.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, libc::c_ulong::from(on), 0, 0, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the flag is of the whole process.
    #[test]
    fn they_are_off_while_one_holds_it_and_on_in_what_is_started() {
        let says = |command: &mut Command| {
            let out = command.output().expect("grep(1)").stdout;
            String::from_utf8_lossy(&out).trim().replace('\t', " ")
        };
        let grep = || {
            let mut command = Command::new("grep");
            command.args(["THP_enabled", "/proc/self/status"]);
            command
        };
        let before = disabled();
        // Linux 5.0 and later say it.
        let usual = says(&mut grep());
        let one = NoHugePages::hold();
        let two = NoHugePages::hold();
        drop(one);
        assert!(disabled());
        let mut started = grep();
        begins_without(&mut started);
        assert_eq!(says(&mut started), usual);
        drop(two);
        assert_eq!(disabled(), before);
    }
}
