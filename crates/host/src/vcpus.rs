//! Which threads run virtual CPUs of KVM guests: by what the kernel says of them, not by names
//! (QEMU calls them `CPU 0/KVM` only with debug-threads=on, and other programs call them
//! otherwise).
//!
//! A process that runs a guest has a file descriptor for each virtual CPU
//! (`anon_inode:kvm-vcpu:N`). Nothing there says which thread runs which, so each thread is asked,
//! in four ways. The first that answers is enough; what one cannot see another can:
//!
//! | a thread that | is seen by |
//! |---|---|
//! | ever computed in the guest for a tick | its guest time (`/proc/PID/task/TID/stat`, field 43) |
//! | sleeps in a halted virtual CPU | the system call in which it is: KVM_RUN (`.../syscall`) |
//! | waits for a CPU, or computes | its stack in the kernel (`.../stack`, CAP_SYS_ADMIN) |
//! | ever was in KVM_RUN | debugfs (`kvm/PID-FD/vcpuN/pid`, Linux 6.0, where it is mounted) |
//!
//! PF_VCPU is no way: the kernel clears it whenever the thread leaves the guest.

use crate::proc;
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// `_IO(KVMIO, 0x80)` (include/uapi/linux/kvm.h), where _IO has no direction bits, and where it has
/// one (MIPS, PowerPC, SPARC: arch/*/include/uapi/asm/ioctl.h).
const KVM_RUN: [&str; 2] = ["0xae80", "0x2000ae80"];
/// PF_USER_WORKER (include/linux/sched.h, Linux 6.4): a thread of the kernel inside a process, such
/// as kvm-nx-lpage-recovery. It has the registers of the thread that was in KVM_RUN when it began.
const PF_USER_WORKER: u32 = 0x4000;
/// The function in which every architecture's KVM_RUN works (virt/kvm/kvm_main.c, kvm_vcpu_ioctl).
const IN_KVM_RUN: &str = "kvm_arch_vcpu_ioctl_run";
/// A thread that computes shows itself when it waits the next time: so many looks at most, so far
/// apart. Together a tenth of a second, in which each of ten threads on a CPU has a turn.
const LOOKS: u32 = 25;
const APART: Duration = Duration::from_millis(4);
/// Where debugfs is mounted on nearly all systems.
const DEBUGFS: &str = "/sys/kernel/debug/kvm";

/// Returns the threads that run virtual CPUs (of the processes in `only`), ascending.
pub(crate) fn find(only: Option<&[u32]>) -> BTreeSet<u32> {
    // Without KVM nothing is read. A guest is a process of this machine even where the device is
    // out of reach for new ones.
    let mut found = BTreeSet::new();
    if fs::metadata("/dev/kvm").is_err() && fs::metadata("/sys/module/kvm").is_err() {
        return found;
    }
    let all = only.map_or_else(proc::processes, <[u32]>::to_vec);
    let noted = noted_in(DEBUGFS);
    let of = |process: u32| (process, files_of_vcpus(process));
    let mut open: Vec<_> = all.into_iter().map(of).filter(|(_, files)| !files.is_empty()).collect();
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::sleep(APART);
        }
        open.retain(|(process, files)| {
            let threads = proc::threads(Some(&[*process])).into_iter().map(|(_, tid)| tid);
            let is_one = |tid: &u32| {
                found.contains(tid) || noted.contains(tid) || runs_one(*process, *tid, files)
            };
            let own: Vec<u32> = threads.filter(is_one).collect();
            found.extend(&own);
            own.len() < files.len()
        });
        if open.is_empty() {
            break;
        }
    }
    found
}

/// Returns the numbers of a process's file descriptors of virtual CPUs.
fn files_of_vcpus(process: u32) -> BTreeSet<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/fd")) else { return BTreeSet::new() };
    let number = |entry: fs::DirEntry| {
        let link = fs::read_link(entry.path()).ok()?;
        link.to_str()?.strip_prefix("anon_inode:kvm-vcpu:")?;
        entry.file_name().to_str()?.parse().ok()
    };
    entries.filter_map(|entry| number(entry.ok()?)).collect()
}

/// Below `/proc/TID` the times are those of the whole process (fs/proc/array.c, do_task_stat),
/// below `task` those of the thread.
fn runs_one(process: u32, tid: u32, files: &BTreeSet<u32>) -> bool {
    let folder = format!("/proc/{process}/task/{tid}");
    let read = |name: &str| proc::text(&format!("{folder}/{name}")).unwrap_or_default();
    let stat = read("stat");
    !is_worker(&stat)
        && (guest_time(&stat) > 0
            || is_in_kvm_run(&read("syscall"), files)
            || read("stack").contains(IN_KVM_RUN))
}

/// Returns a field of `/proc/TID/stat` by its number in proc_pid_stat(5). The name may have spaces
/// and brackets: fields are counted from its last bracket.
fn field(stat: &str, number: usize) -> Option<&str> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number.checked_sub(3)?)
}

fn is_worker(stat: &str) -> bool {
    let flags = field(stat, 9).and_then(|text| text.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & (PF_USER_WORKER | proc::PF_KTHREAD) != 0)
}

/// Ticks for which the thread ran a guest.
fn guest_time(stat: &str) -> u64 {
    field(stat, 43).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Whether `/proc/TID/syscall` (number, arguments, stack, instruction) says that the thread is in
/// ioctl(a virtual CPU, KVM_RUN). The number differs by architecture, the request does not.
fn is_in_kvm_run(syscall: &str, files: &BTreeSet<u32>) -> bool {
    let mut words = syscall.split_whitespace().skip(1);
    let file = words.next().and_then(|word| word.strip_prefix("0x"));
    let file = file.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    file.is_some_and(|file| files.contains(&file))
        && words.next().is_some_and(|request| KVM_RUN.contains(&request))
}

/// Returns the threads that KVM notes below `folder` (`PID-FD/vcpuN/pid`).
fn noted_in(folder: &str) -> BTreeSet<u32> {
    let folders = |path: &std::path::Path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    let guests = folders(std::path::Path::new(folder));
    let vcpus = guests.iter().flat_map(|guest| folders(guest));
    let noted = |path: std::path::PathBuf| {
        fs::read_to_string(path.join("pid")).ok()?.trim().parse::<u32>().ok()
    };
    vcpus.filter_map(noted).filter(|tid| *tid > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads of QEMU 7.2 on Linux 6.18: a virtual CPU that is halted, one that computed, the
    /// thread of the kernel that KVM starts inside the process, and the main loop.
    #[test]
    fn a_thread_is_told_by_what_the_kernel_says() {
        let files = BTreeSet::from([12, 13]);
        let stat = |flags: u32, guest: u32| {
            let rest = (10..43).map(|_| "0").collect::<Vec<_>>().join(" ");
            format!("4162 (CPU 0) R) S 4154 4154 669 0 -1 {flags} {rest} {guest} 0")
        };
        let halted = "16 0xd 0xae80 0x0 0x0 0x55dfdd1d1290 0x0 0x7f4f296ba530 0x7f4f2b449d6b";
        assert!(is_in_kvm_run(halted, &files));
        assert!(!is_in_kvm_run(&halted.replace("0xd ", "0xb "), &files), "another file");
        assert!(!is_in_kvm_run(&halted.replace("0xae80", "0xae01"), &files), "another request");
        assert!(!is_in_kvm_run("running", &files) && !is_in_kvm_run("", &files));
        assert_eq!(guest_time(&stat(138_412_224, 7)), 7);
        assert_eq!(guest_time("4162 (x) S 1"), 0);
        assert!(is_worker(&stat(138_428_608, 0)), "kvm-nx-lpage-recovery");
        assert!(!is_worker(&stat(138_412_224, 0)));
    }

    #[test]
    fn debugfs_is_read_where_it_is() {
        let folder = std::env::temp_dir().join(format!("schedlab-vcpus-{}", std::process::id()));
        for (vcpu, pid) in [("vcpu0", "4161\n"), ("vcpu1", "0\n"), ("vcpu2", "x")] {
            fs::create_dir_all(folder.join("4158-9").join(vcpu)).unwrap();
            fs::write(folder.join("4158-9").join(vcpu).join("pid"), pid).unwrap();
        }
        let found = noted_in(folder.to_str().unwrap());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, BTreeSet::from([4161]));
        assert_eq!(noted_in("/nowhere"), BTreeSet::new());
    }
}
