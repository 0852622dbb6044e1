//! `schedlab top`: what a driver does, costs and gains. Its counters are in its status file, the
//! waits of its threads come from the recorder ([`watch`](crate::watch)), and their waits before it
//! are in the kernel's own account (/proc/TID/schedstat).

use crate::watch::{SharedState, TaskWaits, ThreadSet, WatchFilter, WatchOptions, WatchState};
use schedlab_host::privileges::to_write_in;
use schedlab_host::threads::{self, Served};
use schedlab_live::driver::Counts;
use schedlab_live::status_file::{self, DriverStatus};
use schedlab_live::{LiveError, RunDir};
use schedlab_model::{CpuSet, Ns};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Version of the JSON (docs/live-schema.md).
pub const SCHEMA: &str = "schedlab-top/1";
/// Shortest time that rates are over.
const STRETCH: Ns = Ns::from_ms(900);

/// A running driver.
#[derive(Debug)]
pub struct WatchedDriver {
    journal: PathBuf,
    managed: ThreadSet,
    older: DriverStatus,
    newest: DriverStatus,
    rates: Option<Rates>,
}

/// Rates per second, over the last second or so.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Rates {
    /// Decisions.
    pub decisions: f64,
    /// Decisions after which another thread runs.
    pub switches: f64,
    /// Wakeups that events reported.
    pub wakeups: f64,
    /// Commits that found the thread in another state than the agent knew.
    pub stale: f64,
    /// CPU time of the driver's threads, as a part of one CPU.
    pub agents: f64,
}

/// What management changed for the threads of a name: the kernel's account before it and since.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Gain {
    /// The name.
    pub name: String,
    /// Threads that exist.
    pub threads: usize,
    /// Mean wait before each turn on a CPU until schedlab managed the threads; `None`: they had no
    /// turn.
    pub before: Option<Ns>,
    /// Mean wait since then.
    pub now: Option<Ns>,
    /// CPU time since then, as a part of one CPU.
    pub share: f64,
}

/// The state of the driver, without what the recorder sees.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Snapshot {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The driver's process.
    pub owner: u32,
    /// The scheduler with its knobs.
    pub scheduler: String,
    /// The managed CPUs.
    pub cpus: CpuSet,
    /// The first of them.
    pub cpu: u32,
    /// How long it has been managing threads.
    pub elapsed: Ns,
    /// Its counters since the beginning.
    pub counts: Counts,
    /// Rates over the last second; `None`: it has not been watched for so long.
    pub rates: Option<Rates>,
    /// Gains by name.
    pub gains: Vec<Gain>,
}

impl WatchedDriver {
    /// Returns the driver of process `owner`, or the first that is found; `None`: there is none.
    ///
    /// # Errors
    /// When the folder with the journals cannot be read.
    pub fn find(run_dir: &RunDir, owner: Option<u32>) -> Result<Option<WatchedDriver>, LiveError> {
        let fits = |one: &DriverStatus| owner.is_none_or(|owner| one.owner.tid == owner);
        let found = status_file::all(run_dir)?.into_iter().find(|(_, one)| fits(one));
        Ok(found.map(|(journal, status)| {
            let managed = ThreadSet::default();
            let driver = WatchedDriver {
                journal,
                managed,
                older: status.clone(),
                newest: status,
                rates: None,
            };
            driver.follow();
            driver
        }))
    }

    /// Returns the threads whose waits are shown.
    pub fn filter(&self) -> WatchFilter {
        WatchFilter::Threads(self.managed.clone())
    }

    /// Returns the managed CPUs.
    pub fn cpus(&self) -> CpuSet {
        self.newest.cpus
    }

    fn follow(&self) {
        self.managed.set(self.newest.threads.iter().map(|taken| taken.thread.tid).collect());
    }

    /// Reads the status file again; `None`: the driver has ended.
    pub fn look(&mut self) -> Option<Snapshot> {
        let newest = DriverStatus::read(&self.journal).filter(|one| one.owner.lives())?;
        self.newest = newest;
        self.follow();
        let stretch = self.newest.elapsed.saturating_sub(self.older.elapsed);
        if stretch >= STRETCH {
            self.rates = Some(rates(&self.older.counts, &self.newest.counts, stretch));
            self.older = self.newest.clone();
        }
        Some(Snapshot {
            schema: SCHEMA,
            owner: self.newest.owner.tid,
            scheduler: self.newest.scheduler.clone(),
            cpus: self.newest.cpus,
            cpu: self.newest.cpus.lowest().map_or(0, |cpu| cpu.0),
            elapsed: self.newest.elapsed,
            counts: self.newest.counts.clone(),
            rates: self.rates,
            gains: gains(&self.newest, &threads::served),
        })
    }
}

fn rates(older: &Counts, newer: &Counts, stretch: Ns) -> Rates {
    let of = |value: fn(&Counts) -> u64| {
        value(newer).saturating_sub(value(older)) as f64 * 1e9 / stretch.0.max(1) as f64
    };
    Rates {
        decisions: of(|counts| counts.decisions),
        switches: of(|counts| counts.switches),
        wakeups: of(|counts| counts.wakeups),
        stale: of(|counts| counts.stale),
        agents: of(|counts| counts.agent_cpu_ns) / 1e9,
    }
}

fn gains(status: &DriverStatus, served: &dyn Fn(u32) -> Option<Served>) -> Vec<Gain> {
    let mut sums: BTreeMap<&str, (usize, Served, Served)> = BTreeMap::new();
    for taken in &status.threads {
        let (Some(before), Some(now)) = (taken.before, served(taken.thread.tid)) else { continue };
        let (threads, sum_before, sum_since) = sums.entry(&taken.thread.comm).or_default();
        *threads += 1;
        add(sum_before, before, Served::default());
        add(sum_since, now, before);
    }
    let mean = |served: &Served| (served.times > 0).then(|| Ns(served.wait.0 / served.times));
    let gain = |(name, (threads, before, since)): (&str, (usize, Served, Served))| Gain {
        name: name.to_owned(),
        threads,
        before: mean(&before),
        now: mean(&since),
        share: since.run.0 as f64 / status.elapsed.0.max(1) as f64,
    };
    sums.into_iter().map(gain).collect()
}

/// Adds the difference of two accounts.
fn add(sum: &mut Served, now: Served, from: Served) {
    sum.run += now.run.saturating_sub(from.run);
    sum.wait += now.wait.saturating_sub(from.wait);
    sum.times += now.times.saturating_sub(from.times);
}

/// The JSON of `top`: a managed machine at one moment, one object each second.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct TopOutput<'a> {
    /// The state of the driver.
    #[serde(flatten)]
    pub snapshot: &'a Snapshot,
    /// Waits of the managed threads, by name.
    pub waits: Vec<ManagedWaits>,
    /// Events that the recorder lost.
    pub lost: u64,
}

/// Waits of all managed threads of a name.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ManagedWaits {
    /// The name.
    pub task: String,
    /// Their CPU time.
    pub cpu_ns: u64,
    /// Number of their waits for a CPU.
    pub waits: u64,
    /// Median of these waits.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Their sum.
    pub waited_ns: u64,
}

impl<'a> TopOutput<'a> {
    /// Returns the state of the driver with what the recorder sees.
    pub fn new(snapshot: &'a Snapshot, state: &WatchState) -> TopOutput<'a> {
        let one = |(name, line): (&String, &TaskWaits)| ManagedWaits {
            task: name.clone(),
            cpu_ns: line.run.0,
            waits: line.waits.count(),
            p50_ns: line.waits.p50().0,
            p99_ns: line.waits.p99().0,
            max_ns: line.waits.max().0,
            waited_ns: line.waits.sum().0,
        };
        TopOutput { snapshot, waits: state.lines.iter().map(one).collect(), lost: state.lost }
    }
}

/// Records for as long as `stop` is false, and keeps the events of the last `keep`; see
/// [`crate::watch::watch`].
///
/// # Errors
/// As for [`schedlab_host::record`].
pub fn record(
    (filter, managed): &(WatchFilter, CpuSet),
    keep: Ns,
    shared: &SharedState,
    stop: &dyn Fn() -> bool,
) -> Result<schedlab_host::RecordEnd, schedlab_host::HostError> {
    let mut request = schedlab_host::RecordRequest::new(schedlab_host::RecordUntil::Stopped);
    // The agents have the managed CPUs.
    request.recorder_cpu = schedlab_host::machine().online.without(managed).lowest();
    let duty = if keep > Ns::ZERO { to_write_in(Path::new(".")) } else { None };
    request.keep = Some(duty.into_iter().collect());
    let options = WatchOptions { keep, ..WatchOptions::new(filter.clone()) };
    crate::watch::watch(&request, options, shared, stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_host::threads::Identity;
    use schedlab_live::status_file::StatusThread;

    fn thread(tid: u32, comm: &str) -> Identity {
        Identity { tid, process: tid, parent: 1, started: 1, kernel: false, comm: comm.to_owned() }
    }

    fn served(run: u64, wait: u64, times: u64) -> Served {
        Served { run: Ns::from_ms(run), wait: Ns::from_ms(wait), times }
    }

    #[test]
    fn gains_compare_the_time_before_with_the_time_since() {
        let taken = |tid, comm, before| StatusThread { thread: thread(tid, comm), before };
        let status = DriverStatus {
            owner: thread(1, "schedlab"),
            scheduler: "layers".to_owned(),
            cpus: CpuSet::first(1),
            elapsed: Ns::from_s(1),
            counts: Counts::default(),
            threads: vec![
                taken(10, "server", Some(served(100, 400, 100))),
                taken(11, "server", Some(served(0, 0, 0))),
                taken(12, "new", None),
            ],
        };
        let now = |tid| match tid {
            10 => Some(served(300, 420, 120)),
            11 => Some(served(100, 10, 10)),
            _ => None,
        };
        let gains = gains(&status, &now);
        let wanted = Gain {
            name: "server".to_owned(),
            threads: 2,
            before: Some(Ns::from_ms(4)),
            now: Some(Ns::from_ms(1)),
            share: 0.3,
        };
        assert_eq!(gains, [wanted]);
    }

    #[test]
    fn rates_are_per_second() {
        let newer =
            Counts { decisions: 500, stale: 10, agent_cpu_ns: 50_000_000, ..Counts::default() };
        let found = rates(&Counts::default(), &newer, Ns::from_ms(500));
        assert_eq!((found.decisions, found.stale, found.agents), (1000.0, 20.0, 0.1));
    }
}
