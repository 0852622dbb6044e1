//! Soft actuators: settings of the stock kernel that help a server beside batch work, from mild to
//! strong. Each is made through the [`Keeper`] and restored by it.

use crate::journal::Setting;
use crate::{Keeper, LiveError, restore};
use schedlab_host::threads::{self, Identity, Scheduling};
use schedlab_model::{CpuSet, Nice, Ns, Policy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// One setting, in the order in which they are tried.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Actuator {
    /// The host's own settings.
    Default,
    /// SCHED_IDLE for every thread of the batch work.
    Idle,
    /// `cpu.idle` = 1 for its control group.
    GroupIdle,
    /// No `cpu.max` for the control groups of the server (those that have one).
    QuotaOff,
    /// `cpu.weight` = 1 for its control group.
    GroupWeight,
    /// SCHED_BATCH for its threads.
    Batch,
    /// Nice 19 for its threads.
    Nice,
    /// A slice of [`SERVER_SLICE`] for the threads of the server, which gives them early deadlines
    /// (Linux 6.12).
    Slice,
    /// The threads of the batch work keep to the last half of the managed CPUs.
    Apart,
    /// `cpu.max` for its control group: half of each managed CPU.
    GroupMax,
    /// No setting of the kernel's: server and batch work run under the scheduler `layers`
    /// ([`crate::elevation`]), which [`apply`] leaves to the caller.
    Elevation,
    /// SCHED_FIFO, priority 1, for the threads of the server. The last one: see
    /// [`Actuator::stall`].
    Fifo,
}

/// All actuators, the mildest first; what is known to stall the server at times comes last.
pub const LADDER: [Actuator; 12] = [
    Actuator::Default,
    Actuator::Idle,
    Actuator::GroupIdle,
    Actuator::QuotaOff,
    Actuator::GroupWeight,
    Actuator::Batch,
    Actuator::Nice,
    Actuator::Slice,
    Actuator::Apart,
    Actuator::GroupMax,
    Actuator::Elevation,
    Actuator::Fifo,
];

/// Time of each second that the kernel reserves for fair tasks on a CPU of real-time threads, in
/// one piece: the fair server since Linux 6.12 (`sched_init_dl_servers`, kernel/sched/deadline.c:
/// 50 ms of 1 s), throttling before (`sched_rt_runtime_us`, 950 of 1000 ms).
const KEPT_FOR_OTHERS: Ns = Ns::from_ms(50);

/// The shortest slice that the kernel takes (`sched_attr::sched_runtime`, kernel/sched/syscalls.c
/// since Linux 6.12: 0.1 ms).
pub const SERVER_SLICE: Ns = Ns::from_us(100);

/// Period of the limit of [`Actuator::GroupMax`] in us: shorter than the kernel's 100 ms, so that
/// no burst is long.
const MAX_PERIOD_US: usize = 10_000;
/// A stop takes so long at most: else the process is in the kernel, or another process continued
/// it.
const STANDS_STILL: Duration = Duration::from_secs(1);
/// How often new threads are looked for at most.
const ROUNDS: usize = 20;

impl Actuator {
    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Actuator::Default => "default",
            Actuator::Idle => "idle",
            Actuator::GroupIdle => "group-idle",
            Actuator::GroupWeight => "group-weight",
            Actuator::Batch => "batch",
            Actuator::Nice => "nice",
            Actuator::QuotaOff => "quota-off",
            Actuator::Slice => "slice",
            Actuator::Apart => "apart",
            Actuator::Elevation => "elevation",
            Actuator::GroupMax => "group-max",
            Actuator::Fifo => "fifo",
        }
    }

    /// Returns whether it writes to files of the control group of the batch work.
    pub const fn acts_on_group(self) -> bool {
        matches!(self, Actuator::GroupIdle | Actuator::GroupWeight | Actuator::GroupMax)
    }

    /// Returns whether it changes the server instead of the batch work.
    pub const fn acts_on_server(self) -> bool {
        matches!(self, Actuator::QuotaOff | Actuator::Slice | Actuator::Fifo)
    }

    /// Returns for how long it is known to stop a server that leaves the CPU less than the kernel
    /// reserves for fair tasks.
    pub const fn stall(self) -> Option<Ns> {
        match self {
            Actuator::Fifo => Some(KEPT_FOR_OTHERS),
            _ => None,
        }
    }

    /// Returns the CPUs on which it keeps the batch work, of the managed ones.
    pub fn batch_cpus(self, managed: &CpuSet) -> Option<CpuSet> {
        let half = managed.count() / 2;
        let last = managed.iter().skip(managed.count() - half);
        (self == Actuator::Apart && half > 0)
            .then(|| last.fold(CpuSet::EMPTY, |all, cpu| all.or(&CpuSet::single(cpu))))
    }

    /// Returns the scheduling that it gives a thread; `None`: it leaves the thread alone, as every
    /// SCHED_DEADLINE one.
    pub fn scheduling_for(self, now: &Scheduling) -> Option<Scheduling> {
        let now = *now;
        if matches!(now.policy, Policy::Deadline { .. }) {
            // Its bandwidth may be gone when it is to get that back (EBUSY), and flags of it are
            // not kept.
            return None;
        }
        match self {
            Actuator::Idle => Some(Scheduling { slice: None, ..now.with_policy(Policy::Idle) }),
            Actuator::Batch => Some(now.with_policy(Policy::Batch)),
            Actuator::Nice => Some(Scheduling { nice: Nice::new(19).unwrap_or(now.nice), ..now }),
            Actuator::Slice if now.policy.is_fair() && now.policy != Policy::Idle => {
                Some(Scheduling { slice: Some(SERVER_SLICE), ..now })
            }
            Actuator::Fifo => Some(Scheduling { slice: None, ..now.with_policy(Policy::Fifo(1)) }),
            _ => None,
        }
    }

    /// Returns the files of `group` that it writes and their content, for `cpus` managed CPUs.
    /// Version 1 of the control groups has other names: `cpu.shares`, of which 2 is the least, and
    /// a quota in two files.
    pub fn files(self, group: &Path, cpus: usize) -> Vec<(PathBuf, String)> {
        let first = group.join("cpu.shares").exists();
        let quota = cpus * MAX_PERIOD_US / 2;
        let all = match self {
            Actuator::GroupIdle => vec![("cpu.idle", "1".to_owned())],
            Actuator::GroupWeight if first => vec![("cpu.shares", "2".to_owned())],
            Actuator::GroupWeight => vec![("cpu.weight", "1".to_owned())],
            Actuator::GroupMax if first => vec![
                ("cpu.cfs_period_us", MAX_PERIOD_US.to_string()),
                ("cpu.cfs_quota_us", quota.to_string()),
            ],
            Actuator::GroupMax => vec![("cpu.max", format!("{quota} {MAX_PERIOD_US}"))],
            _ => Vec::new(),
        };
        all.into_iter().map(|(file, content)| (group.join(file), content)).collect()
    }
}

impl fmt::Display for Actuator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Actuator {
    type Err = String;

    fn from_str(text: &str) -> Result<Actuator, String> {
        let known = || LADDER.map(Actuator::name).join(", ");
        LADDER.into_iter().find(|one| one.name() == text).ok_or_else(|| {
            format!("there is no actuator `{text}`: the ones that can be tried are {}", known())
        })
    }
}

/// The threads of the server, or those of the batch work: whole processes with their descendants,
/// and a control group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Side {
    /// First threads of processes.
    pub processes: Vec<Identity>,
    /// The folder of a control group, below `/sys/fs/cgroup`.
    pub group: Option<PathBuf>,
}

impl Side {
    /// Returns the process ids now, ascending.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.processes.iter().flat_map(restore::family).collect();
        if let Some(group) = &self.group {
            members(group, &mut pids);
        }
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Returns the threads now that are not the kernel's.
    pub fn threads(&self) -> Vec<Identity> {
        let tids = self.pids().into_iter().flat_map(threads::of_process);
        tids.filter_map(threads::identity).filter(|thread| !thread.kernel).collect()
    }

    /// Returns where the threads may run, of the CPUs `online`; all of these when there is no
    /// thread yet.
    pub fn cpus(&self, online: &CpuSet) -> CpuSet {
        let of_threads =
            self.threads().into_iter().filter_map(|thread| threads::affinity(thread.tid).ok());
        let all = of_threads.fold(CpuSet::EMPTY, |all, one| all.or(&one)).and(online);
        if all.is_empty() { *online } else { all }
    }

    /// Returns the files that limit the threads, with the content that lifts the limit.
    pub fn limits(&self) -> Vec<(PathBuf, String)> {
        let mut folders: BTreeSet<PathBuf> = self.group.iter().cloned().collect();
        folders.extend(self.pids().into_iter().flat_map(schedlab_host::cpu_groups_of));
        folders.iter().filter_map(|folder| limit(folder)).collect()
    }

    /// Returns the first threads of the processes: threads to come get back what these have.
    fn roots(&self) -> Vec<Identity> {
        let mut roots = self.processes.clone();
        if let Some(group) = &self.group {
            let mut pids = Vec::new();
            members(group, &mut pids);
            roots.extend(
                pids.into_iter().filter_map(threads::identity).filter(|thread| !thread.kernel),
            );
        }
        roots.retain(Identity::lives);
        roots
    }
}

/// Adds the processes of a control group and those below it.
fn members(group: &Path, pids: &mut Vec<u32>) {
    let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|pid| *pid > 0));
    for entry in std::fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            members(&entry.path(), pids);
        }
    }
}

/// Returns the file by which a group is limited, and what lifts that; `None`: it is not limited.
fn limit(folder: &Path) -> Option<(PathBuf, String)> {
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
    if let Some(text) = read("cpu.max") {
        let period =
            text.strip_prefix("max").is_none().then(|| text.split_whitespace().nth(1))??;
        return Some((folder.join("cpu.max"), format!("max {period}")));
    }
    let quota: i64 = read("cpu.cfs_quota_us")?.trim().parse().ok()?;
    (quota > 0).then(|| (folder.join("cpu.cfs_quota_us"), "-1".to_owned()))
}

/// Makes the setting; returns how many threads and files were changed.
///
/// # Errors
/// When the kernel refuses. What was changed until then is restored with the keeper.
pub fn apply(
    keeper: &mut Keeper,
    how: Actuator,
    server: &Side,
    batch: &Side,
    cpus: &CpuSet,
) -> Result<usize, LiveError> {
    let files = match (&batch.group, how) {
        (_, Actuator::QuotaOff) => server.limits(),
        (Some(group), _) => how.files(group, cpus.count()),
        (None, _) => Vec::new(),
    };
    for (path, content) in &files {
        keeper.write_group(path, content)?;
    }
    if how.acts_on_group() || how == Actuator::QuotaOff {
        return Ok(files.len());
    }
    if let Some(some) = how.batch_cpus(cpus) {
        return confine(keeper, batch, &some);
    }
    let side = if how.acts_on_server() { server } else { batch };
    for root in side.roots() {
        let Ok(now) = threads::scheduling(root.tid) else { continue };
        if let Some(wanted) = how.scheduling_for(&now) {
            gone_is_fine(keeper.adopt_process(&root, Setting::To(wanted), None))?;
        }
    }
    every(side, |thread| {
        let Ok(now) = threads::scheduling(thread.tid) else { return Ok(false) };
        match how.scheduling_for(&now) {
            Some(wanted) if wanted != now => keeper.schedule(thread, &wanted).map(|()| true),
            _ => Ok(false),
        }
    })
}

/// Confines the threads of a side to `cpus`; returns how many were changed.
///
/// # Errors
/// When the kernel refuses.
pub fn confine(keeper: &mut Keeper, side: &Side, cpus: &CpuSet) -> Result<usize, LiveError> {
    for root in side.roots() {
        let Ok(now) = threads::scheduling(root.tid) else { continue };
        gone_is_fine(keeper.adopt_process(&root, Setting::To(now), Some(*cpus)))?;
    }
    every(side, |thread| match threads::affinity(thread.tid) {
        Ok(now) if now != *cpus => keeper.confine(thread, cpus).map(|()| true),
        _ => Ok(false),
    })
}

/// Stops every process of a side (SIGSTOP), parents before their children, until none is left that
/// runs; returns how many.
///
/// # Errors
/// When the kernel refuses.
pub fn freeze(keeper: &mut Keeper, side: &Side) -> Result<usize, LiveError> {
    let mut stopped = BTreeSet::new();
    for _ in 0..ROUNDS {
        let before = stopped.len();
        // A family comes with its root first: a stopped process makes no more children.
        let roots = side.processes.iter().flat_map(restore::family);
        let firsts =
            roots.chain(side.pids()).filter_map(threads::identity).filter(|one| !one.kernel);
        for thread in firsts.collect::<Vec<_>>() {
            if stopped.contains(&thread) {
                continue;
            }
            match keeper.stop(&thread) {
                Ok(true) => {
                    stopped.insert(thread);
                }
                Ok(false) | Err(LiveError::NoThread { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if stopped.len() == before {
            break;
        }
    }
    // A process that waits for a CPU stops when it gets one.
    let begun = Instant::now();
    let moves = |one: &Identity| one.lives() && !threads::is_stopped(one.tid);
    while stopped.iter().any(moves) && begun.elapsed() < STANDS_STILL {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(stopped.len())
}

/// Changes threads until none is left to change: those that are made meanwhile may have missed it.
fn every(
    side: &Side,
    mut change: impl FnMut(&Identity) -> Result<bool, LiveError>,
) -> Result<usize, LiveError> {
    let mut changed = 0;
    for _ in 0..ROUNDS {
        let before = changed;
        for thread in side.threads() {
            match change(&thread) {
                Ok(done) => changed += usize::from(done),
                Err(LiveError::NoThread { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if changed == before {
            break;
        }
    }
    Ok(changed)
}

fn gone_is_fine(result: Result<(), LiveError>) -> Result<(), LiveError> {
    match result {
        Err(LiveError::NoThread { .. }) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_is_in_order_and_its_names_are_read_back() {
        assert!(LADDER.is_sorted());
        for one in LADDER {
            assert_eq!(one.name().parse(), Ok(one));
        }
        assert!("lottery".parse::<Actuator>().unwrap_err().contains("group-idle"));
    }

    #[test]
    fn apart_leaves_the_server_at_least_half() {
        let cpus = |text: &str| text.parse::<CpuSet>().unwrap();
        assert_eq!(Actuator::Apart.batch_cpus(&cpus("2")), None);
        assert_eq!(Actuator::Apart.batch_cpus(&cpus("0-1")), Some(cpus("1")));
        assert_eq!(Actuator::Apart.batch_cpus(&cpus("0-4")), Some(cpus("3-4")));
        assert_eq!(Actuator::Idle.batch_cpus(&cpus("0-4")), None);
    }

    #[test]
    fn a_limit_is_found_in_both_versions_of_control_groups() {
        let folder =
            schedlab_testing::temp_dir().join(format!("schedlab-limit-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |file: &str, text: &str| std::fs::write(folder.join(file), text).unwrap();
        assert_eq!(limit(&folder), None);
        write("cpu.cfs_quota_us", "-1\n");
        assert_eq!(limit(&folder), None);
        write("cpu.cfs_quota_us", "5000\n");
        assert_eq!(limit(&folder), Some((folder.join("cpu.cfs_quota_us"), "-1".to_owned())));
        write("cpu.max", "max 100000\n");
        assert_eq!(limit(&folder), None);
        write("cpu.max", "50000 100000\n");
        assert_eq!(limit(&folder), Some((folder.join("cpu.max"), "max 100000".to_owned())));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
