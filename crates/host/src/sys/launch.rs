//! Starting a program whose process is prepared before its first instruction: it has a holder
//! ([`super::hold`]), and begins with its policy, CPUs, control group and network namespace.

use super::hold::{self, HeldProgram};
use super::sched::{Attributes, set_attributes};
use rustix::thread::LinkNameSpaceType;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::process::Command;

/// Which network the process sees.
#[derive(Debug)]
pub(crate) enum Net {
    /// That of its parent.
    Same,
    /// One of its own, with nothing in it but a loopback device that is down.
    New,
    /// That of an open `/proc/PID/ns/net`.
    Of(File),
}

/// What is done in the child, in this order.
#[derive(Debug)]
pub(crate) struct Preparation {
    pub(crate) net: Net,
    /// Open `cgroup.procs`.
    pub(crate) group: Option<File>,
    pub(crate) cpus: Option<rustix::thread::CpuSet>,
    pub(crate) scheduling: Option<Attributes>,
}

/// Starts `command` in a process group of its own.
pub(crate) fn start(command: &mut Command, preparation: Preparation) -> io::Result<HeldProgram> {
    // Between fork and exec it makes system calls only: it takes no lock and allocates nothing.
    hold::start(command, move || prepare(&preparation))
}

fn prepare(preparation: &Preparation) -> io::Result<()> {
    match &preparation.net {
        Net::Same => {}
        // SAFETY: only this process, which has one thread, gets another network.
        Net::New => check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?,
        Net::Of(file) => {
            rustix::thread::move_into_link_name_space(
                file.as_fd(),
                Some(LinkNameSpaceType::Network),
            )?;
        }
    }
    if let Some(group) = &preparation.group {
        // 0 is the thread that writes.
        rustix::io::write(group, b"0")?;
    }
    if let Some(cpus) = &preparation.cpus {
        rustix::thread::sched_setaffinity(None, cpus)?;
    }
    if let Some(attributes) = preparation.scheduling {
        // sched_setattr(2) looks at the nice value for SCHED_OTHER (0) and SCHED_BATCH (3) only.
        if !matches!(attributes.policy, 0 | 3) {
            rustix::process::setpriority_process(None, attributes.nice)?;
        }
        set_attributes(0, attributes)?;
    }
    Ok(())
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
