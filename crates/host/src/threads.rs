//! Scheduling attributes of other people's threads: read whole, set, and told apart from a later
//! thread of the same number.

use crate::presence;
use crate::proc;
use crate::sys::sched::{self, Attributes};
use rustix::process::Pid;
use schedlab_model::text::shown;
use schedlab_model::{CpuId, CpuSet, Nice, Ns, Policy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::{fs, io};

const RESET_ON_FORK: u64 = 1;

/// Which thread: numbers are used again, so its start time belongs to its name. Two are equal when
/// they mean the same thread; its name and its parent may have changed in between.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// Thread id.
    pub tid: u32,
    /// Process id (thread group).
    pub process: u32,
    /// The process's parent.
    pub parent: u32,
    /// When it started, in clock ticks since boot (field 22 of `/proc/TID/stat`).
    pub started: u64,
    /// A thread of the kernel.
    pub kernel: bool,
    /// Its name (`comm`).
    pub comm: String,
}

/// How a thread is scheduled: all that schedlab ever changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Scheduling {
    /// Policy with its parameters.
    pub policy: Policy,
    /// Nice value; real-time threads have one too, it counts when they return to a fair policy.
    pub nice: Nice,
    /// Custom slice of a fair policy (Linux 6.12 and later); `None`: the kernel's default.
    pub slice: Option<Ns>,
    /// Children begin as `SCHED_OTHER` with nice 0.
    pub reset_on_fork: bool,
    /// The policy is SCHED_EXT (7, Linux 6.12 and later): a sched_ext scheduler may take it. Where
    /// none is loaded it is SCHED_OTHER to the kernel, and so [`policy`](Self::policy) is that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ext: bool,
}

impl Scheduling {
    /// Returns the policy as people read it: `ext` for SCHED_EXT.
    pub fn policy_name(&self) -> String {
        if self.ext { "ext".to_owned() } else { self.policy.to_string() }
    }

    /// This with another policy, and so not SCHED_EXT.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Scheduling {
        Scheduling { policy, ext: false, ..self }
    }
}

/// Reads who thread `tid` is. `None`: there is none, or nothing of it can be read.
pub fn identity(tid: u32) -> Option<Identity> {
    read_identity(tid).ok().flatten()
}

/// As [`identity`], where it matters why nothing was read. `None`: there is no such thread.
///
/// # Errors
/// When `/proc` cannot be read: no descriptor is left, say.
pub fn read_identity(tid: u32) -> io::Result<Option<Identity>> {
    let Some(stat) = presence::read(&format!("/proc/{tid}/stat"))? else { return Ok(None) };
    let Some(status) = presence::read(&format!("/proc/{tid}/status"))? else { return Ok(None) };
    let process = proc::value(&status, "Tgid:").and_then(|text| text.parse().ok());
    // No process has number 0: it ended between two of our looks.
    Ok(process
        .filter(|process| *process != 0)
        .and_then(|process| parse_identity(tid, process, &stat)))
}

fn parse_identity(tid: u32, process: u32, stat: &str) -> Option<Identity> {
    let (name, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let kernel = fields.nth(4)?.parse::<u32>().ok()? & proc::PF_KTHREAD != 0;
    let started = fields.nth(12)?.parse().ok()?;
    let comm = name.split_once('(').map_or_else(String::new, |(_, comm)| shown(comm).into_owned());
    Some(Identity { tid, process, parent, started, kernel, comm })
}

impl Identity {
    fn key(&self) -> (u32, u32, u64) {
        (self.tid, self.process, self.started)
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Identity {}

impl PartialOrd for Identity {
    fn partial_cmp(&self, other: &Identity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Identity {
    fn cmp(&self, other: &Identity) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Identity {
    /// Whether it runs or wants to, by one read where [`lives`](Self::lives) and [`is_runnable`]
    /// take four. `None`: it is gone, or dead but not reaped.
    pub fn runnable(&self) -> Option<bool> {
        let (state, started) = state_and_start(self.tid)?;
        (started == self.started && !is_dead(state)).then_some(state == 'R')
    }

    /// Whether it still lives. A thread that is dead but not reaped counts as gone.
    pub fn lives(&self) -> bool {
        self.is_same() && !is_zombie(self.tid)
    }

    /// Whether its process is at its end for certain: killed, or ending by itself. No thread of it
    /// runs a line of its own code any more, apart from the system call in which it is; when it
    /// leaves that is up to the scheduler.
    pub fn is_ending(&self) -> bool {
        let of_process = of_process(self.process);
        self.is_same()
            && (is_exiting(self.tid) || of_process.iter().any(|&tid| has_fatal_signal(tid)))
    }

    /// Whether any thread of its process is left, be it only one that has not got to its end yet.
    pub fn process_lives(&self) -> bool {
        self.is_same() && of_process(self.process).into_iter().any(|tid| !is_zombie(tid))
    }

    fn is_same(&self) -> bool {
        self.exists().unwrap_or(false)
    }
}

fn is_zombie(tid: u32) -> bool {
    state(tid).is_none_or(is_dead)
}

fn is_dead(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

/// Whether thread `tid` runs or wants to.
pub fn is_runnable(tid: u32) -> bool {
    state(tid) == Some('R')
}

/// Whether thread `tid` is stopped by a signal (or a debugger).
pub fn is_stopped(tid: u32) -> bool {
    matches!(state(tid), Some('T' | 't'))
}

/// The letter in `/proc/TID/stat`. `None`: it is gone.
fn state(tid: u32) -> Option<char> {
    state_and_start(tid).map(|(state, _)| state)
}

/// That letter, and when the thread started.
fn state_and_start(tid: u32) -> Option<(char, u64)> {
    let stat = proc::text(&format!("/proc/{tid}/stat"))?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Whether SIGKILL waits for it. The kernel gives it to every thread of a process that ends by a
/// fatal signal.
fn has_fatal_signal(tid: u32) -> bool {
    let status = proc::text(&format!("/proc/{tid}/status")).unwrap_or_default();
    let pending = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    pending.fold(0, |all, mask| all | mask) & 1 << (libc::SIGKILL - 1) != 0
}

/// Whether it is on its way through the kernel's exit (PF_EXITING in field 9 of `/proc/TID/stat`),
/// or dead.
fn is_exiting(tid: u32) -> bool {
    const PF_EXITING: u64 = 4;
    let stat = proc::text(&format!("/proc/{tid}/stat")).unwrap_or_default();
    let flags = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().nth(6)?.parse::<u64>().ok());
    flags.is_none_or(|flags| flags & PF_EXITING != 0)
}

/// The threads of process `pid`, ascending; empty when it is gone.
pub fn of_process(pid: u32) -> Vec<u32> {
    proc::threads(Some(&[pid])).into_iter().map(|(_, tid)| tid).collect()
}

/// Returns whether process `pid` has a thread that is not dead: a process that was killed has its
/// number until its parent asks for its end.
pub fn has_living_thread(pid: u32) -> bool {
    of_process(pid).into_iter().any(|tid| !is_zombie(tid))
}

/// The living children of process `pid`, of all its threads (needs CONFIG_PROC_CHILDREN, which
/// distributions set; empty without).
pub fn children(pid: u32) -> Vec<u32> {
    let of = |tid: u32| {
        fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default()
    };
    let texts: Vec<String> = of_process(pid).into_iter().map(of).collect();
    texts
        .iter()
        .flat_map(|text| text.split_whitespace())
        .filter_map(|number| number.parse().ok())
        .collect()
}

/// Every process of this machine that can be seen, ascending.
pub fn processes() -> Vec<u32> {
    proc::processes()
}

/// How thread `tid` is scheduled (0: the calling thread).
///
/// # Errors
/// `ESRCH` when it is gone, `EPERM` where a security module forbids the question.
pub fn scheduling(tid: u32) -> io::Result<Scheduling> {
    let raw = sched::attributes(tid)?;
    let policy = proc::policy(&raw);
    // sched_getattr gives no nice value for real-time threads.
    let nice = match policy.is_fair() {
        true => raw.nice,
        false => rustix::process::getpriority_process(Pid::from_raw(tid as i32))?,
    };
    let default = proc::default_slice();
    let slice = (policy.is_fair()
        && raw.runtime > 0
        && default.is_some_and(|default| default != raw.runtime))
    .then_some(Ns(raw.runtime));
    Ok(Scheduling {
        policy,
        nice: i8::try_from(nice).ok().and_then(Nice::new).unwrap_or_default(),
        slice,
        reset_on_fork: raw.flags & RESET_ON_FORK != 0,
        ext: raw.policy == sched::EXT,
    })
}

/// Makes thread `tid` scheduled as `wanted` (0: the calling thread). One system call for
/// SCHED_OTHER and SCHED_BATCH, else two or three (its nice value goes first).
///
/// # Errors
/// `ESRCH`: gone. `EPERM`: no CAP_SYS_NICE, or a control group without real-time budget
/// (CONFIG_RT_GROUP_SCHED). `EBUSY`: no bandwidth left for a deadline task. `EINVAL`: the kernel
/// does not know the parameters.
pub fn set_scheduling(tid: u32, wanted: &Scheduling) -> io::Result<()> {
    let raw = raw(wanted);
    // sched_setattr(2) looks at the nice value for SCHED_OTHER and SCHED_BATCH only.
    if !matches!(wanted.policy, Policy::Other | Policy::Batch) {
        let pid = Pid::from_raw(tid as i32);
        // An unchanged value needs no permission, and asking for less than one has can need it.
        if rustix::process::getpriority_process(pid).is_ok_and(|nice| nice != raw.nice) {
            rustix::process::setpriority_process(pid, raw.nice)?;
        }
    }
    sched::set_attributes(tid, raw)
}

/// As [`set_scheduling`] for a thread that has this nice value already: one system call, whatever
/// the policy.
///
/// # Errors
/// As [`set_scheduling`].
pub fn set_policy(tid: u32, wanted: &Scheduling) -> io::Result<()> {
    sched::set_attributes(tid, raw(wanted))
}

/// `wanted` as the kernel takes it.
pub(crate) fn raw(wanted: &Scheduling) -> Attributes {
    let mut raw = Attributes {
        flags: u64::from(wanted.reset_on_fork) * RESET_ON_FORK,
        ..Attributes::default()
    };
    raw.nice = i32::from(wanted.nice.get());
    match wanted.policy {
        Policy::Other => raw.policy = if wanted.ext { sched::EXT } else { 0 },
        Policy::Batch => raw.policy = 3,
        Policy::Idle => raw.policy = 5,
        Policy::Fifo(priority) => (raw.policy, raw.priority) = (1, u32::from(priority)),
        Policy::Rr(priority) => (raw.policy, raw.priority) = (2, u32::from(priority)),
        Policy::Deadline { runtime, deadline, period } => {
            raw.policy = 6;
            (raw.runtime, raw.deadline, raw.period) = (runtime.0, deadline.0, period.0);
        }
    }
    if wanted.policy.is_fair() {
        raw.runtime = wanted.slice.map_or(0, |slice| slice.0);
    }
    raw
}

/// Makes thread `tid` SCHED_FIFO of `priority`, with children that begin unmanaged: one system
/// call, for an agent's loop. The nice value stays (the kernel keeps it beside a real-time policy).
///
/// # Errors
/// As [`set_scheduling`].
pub fn set_fifo(tid: u32, priority: u8) -> io::Result<()> {
    let raw = Attributes {
        policy: 1,
        flags: RESET_ON_FORK,
        priority: u32::from(priority),
        ..Attributes::default()
    };
    sched::set_attributes(tid, raw)
}

/// The SCHED_FIFO priority of thread `tid`; `None`: it has another policy. One system call, no
/// allocation.
///
/// # Errors
/// `ESRCH`: gone.
pub fn fifo_priority(tid: u32) -> io::Result<Option<u8>> {
    let raw = sched::attributes(tid)?;
    Ok((raw.policy == 1).then_some(raw.priority.min(99) as u8))
}

/// The nice value of thread `tid`, which a real-time thread has too. One system call, no
/// allocation.
///
/// # Errors
/// `ESRCH`: gone.
pub fn nice(tid: u32) -> io::Result<Nice> {
    let nice = rustix::process::getpriority_process(Pid::from_raw(tid as i32))?;
    Ok(i8::try_from(nice).ok().and_then(Nice::new).unwrap_or_default())
}

/// What a thread has had of the CPU since it was born (`/proc/TID/schedstat`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Served {
    /// Time on a CPU.
    pub run: Ns,
    /// Time in which it was runnable and did not run.
    pub wait: Ns,
    /// How often it got a CPU.
    pub times: u64,
}

/// Reads what thread `tid` has had of the CPU. `None`: it is gone, or the kernel keeps no such
/// account (CONFIG_SCHED_INFO, which distributions set).
pub fn served(tid: u32) -> Option<Served> {
    let text = fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    Some(Served { run: Ns(next()?), wait: Ns(next()?), times: next()? })
}

/// The CPU on which thread `tid` ran last (field 39 of `/proc/TID/stat`). `None`: it is gone.
pub fn last_cpu(tid: u32) -> Option<u32> {
    let stat = proc::text(&format!("/proc/{tid}/stat"))?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(36)?.parse().ok()
}

/// Whether thread `tid` sleeps and can be woken by what it waits for (state S of `/proc/TID/stat`).
pub fn is_asleep(tid: u32) -> bool {
    // The name before the state may hold anything, a parenthesis too.
    fs::read_to_string(format!("/proc/{tid}/stat"))
        .is_ok_and(|text| text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')))
}

/// Where thread `tid` may run.
///
/// # Errors
/// `ESRCH`: gone. `EPERM`: a security module forbids the question.
pub fn affinity(tid: u32) -> io::Result<CpuSet> {
    proc::affinity(tid)
}

/// Returns whether `cpus` are all that the cpuset of thread `tid` allows: such a thread has no
/// affinity of its own as a rule, and follows its cpuset. False where the cpuset cannot be read.
pub fn follows_cpuset(tid: u32, cpus: &CpuSet) -> bool {
    cpuset(tid).is_some_and(|allowed| !allowed.is_empty() && allowed.without(cpus).is_empty())
}

/// Returns the online CPUs of the cpuset of a thread: `/proc/TID/cpuset` names it, below the mount
/// point of either version.
fn cpuset(tid: u32) -> Option<CpuSet> {
    let name = presence::read(&format!("/proc/{tid}/cpuset")).ok().flatten()?;
    let name = name.trim_end_matches('\n').trim_start_matches('/');
    let places = [
        ("/sys/fs/cgroup/cpuset", "cpuset.effective_cpus"),
        ("/sys/fs/cgroup", "cpuset.cpus.effective"),
    ];
    let read = |(root, file): (&str, &str)| {
        fs::read_to_string(std::path::Path::new(root).join(name).join(file)).ok()
    };
    // Version 2 has no file in its root, where every CPU that is online can be used.
    let text = places
        .into_iter()
        .find_map(read)
        .or_else(|| fs::read_to_string("/sys/devices/system/cpu/online").ok())?;
    text.trim().parse().ok()
}

/// Returns the timer slack of thread `tid` in nanoseconds; 0: a real-time thread has none.
///
/// # Errors
/// `EPERM`: no CAP_SYS_NICE, for another process's thread.
pub fn timer_slack(tid: u32) -> io::Result<Ns> {
    let text = fs::read_to_string(format!("/proc/{tid}/timerslack_ns"))?;
    text.trim().parse().map(Ns).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

/// Sets the timer slack of thread `tid`; 0 means the thread's default.
///
/// # Errors
/// `EPERM`: no CAP_SYS_NICE, for another process's thread.
pub fn set_timer_slack(tid: u32, slack: Ns) -> io::Result<()> {
    fs::write(format!("/proc/{tid}/timerslack_ns"), slack.0.to_string())
}

/// Sets where thread `tid` may run (0: the calling thread).
///
/// # Errors
/// `ESRCH`: gone. `EINVAL`: none of the CPUs is online and in its cpuset. `EPERM`: a thread of
/// another user.
pub fn set_affinity(tid: u32, cpus: &CpuSet) -> io::Result<()> {
    Ok(rustix::thread::sched_setaffinity(Pid::from_raw(tid as i32), &mask(cpus))?)
}

/// Lets every thread of process `pid` run on every CPU, as far as its cpuset allows. For a process
/// that was killed: a thread dies when it gets a CPU, and on one that a thread of a higher
/// real-time priority keeps it gets none.
pub fn let_die(pid: u32) {
    for tid in of_process(pid) {
        // Gone meanwhile, or of another user, which a process that we may kill is not.
        let _ = set_affinity(tid, &CpuSet::ALL);
    }
}

/// The calling thread keeps to some CPUs until this is dropped, on that thread; then it may run
/// where it might before.
#[derive(Debug)]
pub struct Confined {
    before: Option<rustix::thread::CpuSet>,
    /// It means the thread that made it.
    _here: std::marker::PhantomData<*const ()>,
}

impl Confined {
    /// To `cpus`; not at all where there are none, or where the kernel refuses.
    pub fn to(cpus: &CpuSet) -> Confined {
        let before = rustix::thread::sched_getaffinity(None).ok();
        let before = before.filter(|_| !cpus.is_empty() && set_affinity(0, cpus).is_ok());
        Confined { before, _here: std::marker::PhantomData }
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        if let Some(mask) = &self.before {
            let _ = rustix::thread::sched_setaffinity(None, mask);
        }
    }
}

/// `cpus` as the kernel takes them.
pub(crate) fn mask(cpus: &CpuSet) -> rustix::thread::CpuSet {
    let mut mask = rustix::thread::CpuSet::new();
    for cpu in 0..rustix::thread::CpuSet::MAX_CPU {
        if cpus.contains(CpuId::from(cpu)) {
            mask.set(cpu);
        }
    }
    mask
}

/// A word that changes with every boot: what was noted before says nothing about the threads of
/// now.
pub fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Sleeper {
            Sleeper(Command::new("sleep").arg("60").spawn().expect("sleep(1)"))
        }
        fn tid(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_thread_is_known_by_its_start() {
        let mut sleeper = Sleeper::start();
        let identity = identity(sleeper.tid()).expect("it lives");
        assert_eq!((identity.process, identity.parent), (sleeper.tid(), std::process::id()));
        assert!(identity.lives());
        let another = Identity { started: identity.started + 1, ..identity.clone() };
        assert!(!another.lives() && another.runnable().is_none());
        assert!(identity.runnable().is_some());
        sleeper.0.kill().expect("our child");
        // Not reaped yet: dead all the same.
        while !is_zombie(sleeper.tid()) {
            std::thread::yield_now();
        }
        assert!(identity.runnable().is_none());
        assert!(!identity.lives());
    }

    #[test]
    fn what_is_set_is_read_back() {
        let sleeper = Sleeper::start();
        let before = scheduling(sleeper.tid()).expect("readable");
        for policy in ["idle", "batch", "other"] {
            let wanted = Scheduling {
                policy: policy.parse().unwrap(),
                nice: Nice::new(7).unwrap(),
                slice: None,
                reset_on_fork: true,
                ext: false,
            };
            set_scheduling(sleeper.tid(), &wanted).expect("our own child");
            assert_eq!(scheduling(sleeper.tid()).unwrap(), wanted);
        }
        assert_ne!(scheduling(sleeper.tid()).unwrap(), before);
        // Kernels without CONFIG_SCHED_CLASS_EXT refuse it (EINVAL).
        let ext = Scheduling { ext: true, ..before };
        match set_scheduling(sleeper.tid(), &ext) {
            Ok(()) => assert_eq!(scheduling(sleeper.tid()).unwrap(), ext),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EINVAL)),
        }
        assert_eq!((raw(&ext).policy, raw(&ext.with_policy(Policy::Batch)).policy), (7, 3));
        let only = CpuSet::single(affinity(sleeper.tid()).unwrap().iter().next().unwrap());
        set_affinity(sleeper.tid(), &only).unwrap();
        assert_eq!(affinity(sleeper.tid()).unwrap(), only);
    }

    #[test]
    fn short_cuts_read_what_the_long_way_says() {
        let sleeper = Sleeper::start();
        let wanted =
            Scheduling { nice: Nice::new(5).unwrap(), ..scheduling(sleeper.tid()).unwrap() };
        set_scheduling(sleeper.tid(), &wanted).expect("our own child");
        assert_eq!(nice(sleeper.tid()).unwrap().get(), 5);
        assert_eq!(fifo_priority(sleeper.tid()).unwrap(), None);
        assert!(served(sleeper.tid()).is_none_or(|served| served.times > 0));
        // Ordinary users may not.
        if set_fifo(sleeper.tid(), 1).is_ok() {
            assert_eq!(fifo_priority(sleeper.tid()).unwrap(), Some(1));
            let now = scheduling(sleeper.tid()).unwrap();
            assert!(now.reset_on_fork && now.nice.get() == 5 && now.policy == Policy::Fifo(1));
        }
    }

    #[test]
    fn a_missing_thread_is_an_error() {
        // Larger than any pid (the limit is 2^22).
        assert!(identity(1 << 23).is_none());
        assert_eq!(scheduling(1 << 23).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert_eq!(affinity(1 << 23).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
