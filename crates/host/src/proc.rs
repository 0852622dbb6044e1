//! Task facts from /proc and the scheduler's system calls.

use crate::cgroup::Groups;
use crate::facts::{FactSource, TaskFacts};
use crate::sys::sched;
use rustix::process::Pid;
use schedlab_model::text::shown;
use schedlab_model::{CpuId, CpuSet, MAX_CPUS, Nice, Ns, Policy, TaskId};
use std::sync::OnceLock;
use std::{fs, io};

/// Every thread of the machine (or of the processes in `only`): (process, thread), in ascending
/// order.
pub(crate) fn threads(only: Option<&[u32]>) -> Vec<(u32, u32)> {
    let processes = only.map_or_else(|| numbered("/proc"), <[u32]>::to_vec);
    let mut all = Vec::new();
    for process in processes {
        all.extend(
            numbered(&format!("/proc/{process}/task")).into_iter().map(|tid| (process, tid)),
        );
    }
    all.sort_unstable_by_key(|&(_, tid)| tid);
    all
}

/// Every process, in ascending order.
pub(crate) fn processes() -> Vec<u32> {
    numbered("/proc")
}

fn numbered(directory: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<u32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    found.sort_unstable();
    found
}

/// Whether thread ids in /proc are those that tracepoints report (the first PID namespace).
pub(crate) fn in_first_pid_namespace() -> bool {
    // The inode that the kernel gives the initial PID namespace, on every machine.
    fs::read_link("/proc/self/ns/pid")
        .is_ok_and(|link| link.to_string_lossy() == "pid:[4026531836]")
}

/// The slice of a thread that never asked for one: that of the first thread here that asks. It is
/// remembered, because a thread that takes a real-time policy later has none to show.
pub(crate) fn default_slice() -> Option<u64> {
    static FOUND: OnceLock<u64> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Some(*found);
    }
    let own = sched::attributes(0).ok().filter(|own| own.policy == 0 && own.runtime > 0)?;
    Some(*FOUND.get_or_init(|| own.runtime))
}

/// Returns the name of a living thread, as it is shown.
fn name_of(tid: u32) -> Option<String> {
    let comm = text(&format!("/proc/{tid}/comm"))?;
    Some(shown(comm.trim_end_matches('\n')).into_owned())
}

/// Asks the kernel about one living thread. `None` when it is gone.
pub(crate) fn task(
    id: TaskId,
    tid: u32,
    groups: &mut Groups,
    default_slice: Option<u64>,
) -> Option<TaskFacts> {
    let comm = name_of(tid)?;
    let attributes = sched::attributes(tid).ok()?;
    let Origin { process, session, kernel } = origin(tid);
    let process_name = if process == tid || kernel { None } else { name_of(process) };
    let fair = matches!(attributes.policy, 0 | 3 | 5);
    let slice = (fair && attributes.runtime > 0 && Some(attributes.runtime) != default_slice)
        .then_some(Ns(attributes.runtime));
    Some(TaskFacts {
        id,
        tid,
        process,
        session,
        process_name: process_name.filter(|name| *name != comm),
        comm,
        policy: policy(&attributes),
        nice: i8::try_from(attributes.nice).ok().and_then(Nice::new).unwrap_or_default(),
        affinity: affinity(tid).ok()?,
        slice: slice.filter(|_| default_slice.is_some()),
        group: groups.of_thread(tid),
        ext: attributes.policy == sched::EXT,
        kernel,
        vcpu: false,
        stand_in: false,
        from: FactSource::Kernel,
    })
}

pub(crate) fn policy(attributes: &sched::Attributes) -> Policy {
    let priority = attributes.priority.clamp(1, 99) as u8;
    match attributes.policy {
        1 => Policy::Fifo(priority),
        2 => Policy::Rr(priority),
        3 => Policy::Batch,
        5 => Policy::Idle,
        6 => Policy::Deadline {
            runtime: Ns(attributes.runtime),
            deadline: Ns(attributes.deadline),
            period: Ns(attributes.period),
        },
        _ => Policy::Other,
    }
}

/// Where a thread may run.
pub(crate) fn affinity(tid: u32) -> io::Result<CpuSet> {
    let mask = rustix::thread::sched_getaffinity(Pid::from_raw(tid as i32))?;
    let limit = MAX_CPUS.min(rustix::thread::CpuSet::MAX_CPU);
    Ok((0..limit).filter(|&cpu| mask.is_set(cpu)).map(CpuId::from).collect())
}

/// Returns a file of `/proc` that has a name in it: a name may end inside a character, as the
/// kernel cuts it after 15 bytes.
pub(crate) fn text(path: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

/// The flag of a kernel thread in field 9 of `/proc/TID/stat` (include/linux/sched.h).
pub(crate) const PF_KTHREAD: u32 = 0x0020_0000;

/// What a thread belongs to.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// Process id; 0: not known.
    pub(crate) process: u32,
    /// Session id; 0: not known, or a thread of the kernel.
    pub(crate) session: u32,
    /// A thread of the kernel (PF_KTHREAD).
    pub(crate) kernel: bool,
}

/// Reads what thread `tid` belongs to.
pub(crate) fn origin(tid: u32) -> Origin {
    let status = text(&format!("/proc/{tid}/status")).unwrap_or_default();
    let process = value(&status, "Tgid:").and_then(|text| text.parse().ok()).unwrap_or(0);
    let stat = text(&format!("/proc/{tid}/stat")).unwrap_or_default();
    // The name may contain spaces and brackets; the fields after it are counted from its last
    // bracket: 3 is the state, 6 the session, 9 the flags.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let mut number = |skipped| fields.nth(skipped)?.parse::<u32>().ok();
    let session = number(3).unwrap_or(0);
    let kernel = number(2).is_some_and(|flags| flags & PF_KTHREAD != 0);
    Origin { process, session, kernel }
}

/// The word after `key` in a text of `Key: value` lines.
pub(crate) fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

/// Policy and nice as far as the priority of a switch record tells them: 100 … 139 are the fair
/// policies with nice −20 … 19; 0 … 98 are FIFO or RR (treated as FIFO) of priority 99 … 1.
pub(crate) fn from_kernel_priority(priority: i32) -> (Policy, Nice) {
    match priority {
        0..=98 => (Policy::Fifo((99 - priority) as u8), Nice::ZERO),
        100..=139 => (Policy::Other, Nice::new((priority - 120) as i8).unwrap_or_default()),
        _ => (Policy::Other, Nice::ZERO),
    }
}

/// Time stolen by the hypervisor so far, of each CPU, in nanoseconds (grain: 1/USER_HZ, 10 ms).
pub(crate) fn steal() -> Vec<(CpuId, u64)> {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    steal_from(&text)
}

/// Returns the time that the hypervisor gave to others so far, all CPUs together (grain: 10 ms a
/// CPU).
pub fn stolen() -> Ns {
    Ns(steal().iter().map(|(_, ns)| ns).sum())
}

/// Time in which the CPUs were neither idle nor stolen so far, all together, in nanoseconds (grain
/// 10 ms a CPU).
pub(crate) fn busy() -> u64 {
    busy_from(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

fn busy_from(text: &str) -> u64 {
    let words = text.lines().next().unwrap_or_default().split_whitespace().skip(1).take(7);
    // user nice system idle iowait irq softirq
    let ticks = words.enumerate().filter(|(column, _)| !matches!(column, 3 | 4));
    ticks.filter_map(|(_, word)| word.parse::<u64>().ok()).sum::<u64>() * STEAL_GRAIN.0
}

/// USER_HZ is 100 on every architecture of this project.
pub(crate) const STEAL_GRAIN: Ns = Ns(10_000_000);

fn steal_from(text: &str) -> Vec<(CpuId, u64)> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("cpu")?.split_whitespace();
            let cpu = words.next()?.parse().ok()?;
            // user nice system idle iowait irq softirq steal
            let steal: u64 = words.nth(7)?.parse().ok()?;
            Some((CpuId(cpu), steal * STEAL_GRAIN.0))
        })
        // The first line, "cpu  ...", is the sum: its first word is a number of ticks, not a CPU.
        .skip(usize::from(text.starts_with("cpu ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_column_of_each_cpu() {
        let text = "cpu  1 2 3 4 5 6 7 30 0 0\ncpu0 1 2 3 4 5 6 7 10 0 0\n\
                    cpu1 1 2 3 4 5 6 7 20 0 0\nintr 5\n";
        assert_eq!(steal_from(text), [(CpuId(0), 100_000_000), (CpuId(1), 200_000_000)]);
    }

    #[test]
    fn busy_is_what_is_neither_idle_nor_stolen() {
        assert_eq!(busy_from("cpu  1 2 4 100 200 8 16 400 0 0\ncpu0 7\n"), 31 * 10_000_000);
        assert_eq!(busy_from(""), 0);
    }

    #[test]
    fn a_thread_belongs_to_a_process_and_a_session() {
        // The session of this test may be 0: that of processes that nothing put into one.
        let program = std::process::Command::new("setsid")
            .args(["sh", "-c", "echo; read end"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        let mut program = program.expect("util-linux is essential");
        let said = program.stdout.as_mut().expect("a pipe");
        std::io::Read::read_exact(said, &mut [0]).expect("the shell runs");
        let own = program.id();
        assert_eq!(origin(own), Origin { process: own, session: own, kernel: false });
        drop(program.stdin.take());
        program.wait().expect("it ends with its input");
        assert_eq!(origin(u32::MAX), Origin::default());
        if in_first_pid_namespace() {
            assert_eq!(origin(2), Origin { process: 2, session: 0, kernel: true }, "kthreadd");
        }
    }

    #[test]
    fn kernel_priorities_become_policies() {
        assert_eq!(from_kernel_priority(98), (Policy::Fifo(1), Nice::ZERO));
        assert_eq!(from_kernel_priority(0), (Policy::Fifo(99), Nice::ZERO));
        assert_eq!(from_kernel_priority(139), (Policy::Other, Nice::new(19).unwrap()));
        assert_eq!(from_kernel_priority(120), (Policy::Other, Nice::ZERO));
    }
}
