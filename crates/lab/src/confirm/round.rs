//! One round: the command is started, gets its settings, is recorded for a while and ended.

use super::settings::{self, Settings};
use super::{ConfirmError, METRICS, Plan};
use crate::record::{RecordPlan, record};
use rustix::process::{Pid, Signal, kill_process};
use schedlab_host::threads::{self, Identity};
use schedlab_host::{OwnCommand, RecordRequest, RecordUntil};
use schedlab_live::status_file::{self, DriverStatus};
use schedlab_live::{Keeper, KeeperOptions, restore};
use schedlab_model::{CpuId, CpuSet, EventKind, Ns, TaskId};
use schedlab_study::measurements::SubjectData;
use schedlab_study::metric::Metric;
use schedlab_trace::Recording;
use schedlab_trace::analysis::{Summary, TaskSummary};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A command gets so long to come up before it is recorded.
const COME_UP: Duration = Duration::from_millis(300);
/// In the environment of a driver and all that it starts: which round it is.
const MARK: &str = "SCHEDLAB_ROUND";
/// Until the driver has the command, at most.
const PATIENCE: Duration = Duration::from_secs(10);
/// See `KeeperOptions::silence`: beats come every 20 ms while a round is recorded.
const SILENCE: Duration = Duration::from_secs(30);
/// So often is a round begun again whose driver was killed.
const AGAIN: u64 = 2;
/// Above SCHED_FIFO settings of the usual kind, so that the way back stays open.
const GUARDIAN_PRIORITY: u8 = 60;

/// What came of a round.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Live {
    values: BTreeMap<String, Vec<(Metric, f64)>>,
    /// CPU time of agents, as a part of a CPU.
    pub(super) agents: Option<f64>,
    /// Threads that the driver gave back before their time.
    pub(super) given_back: u64,
    /// How often it was begun again because the driver had been killed.
    pub(super) repeated: u64,
    /// What neither the command nor the driver took of the command's CPUs, as a part of one CPU.
    pub(super) others: f64,
}

impl Live {
    pub(super) fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.values.keys().cloned()
    }

    pub(super) fn value(&self, name: &str, metric: Metric) -> Option<f64> {
        self.values.get(name)?.iter().find(|(one, _)| *one == metric).map(|(_, value)| *value)
    }

    #[cfg(test)]
    pub(super) fn of_values(name: &str, values: &[(Metric, f64)]) -> Live {
        Live { values: BTreeMap::from([(name.to_owned(), values.to_vec())]), ..Live::default() }
    }

    /// Of the tasks of these processes, and those that they made, on `cpus`.
    fn of(
        recording: &Recording,
        processes: &BTreeSet<u32>,
        cpus: &CpuSet,
        driver: Option<u32>,
    ) -> Result<Live, ConfirmError> {
        let summary = Summary::of(recording).map_err(|error| ConfirmError::Input(error.to_string()))?;
        let ours = crate::process_tasks::of_processes(recording, processes);
        let mut sums: BTreeMap<String, TaskSummary> = BTreeMap::new();
        for (index, task) in recording.header.tasks.iter().enumerate().filter(|(index, _)| ours[*index]) {
            sums.entry(task.comm.clone()).or_default().merge(&summary.tasks[index]);
        }
        let values = sums.into_iter().map(|(name, sum)| {
            let data = SubjectData::of_tasks(&name, summary.window, sum);
            let value = |metric: &Metric| Some((*metric, data.value(*metric)?));
            (name, METRICS.iter().filter_map(value).collect())
        });
        let known = |index: usize| ours[index] || Some(recording.header.tasks[index].pid) == driver;
        Ok(Live { values: values.collect(), others: others(recording, cpus, known), ..Live::default() })
    }
}

/// Time of tasks on `cpus` for which `known` is false, as a part of one CPU.
fn others(recording: &Recording, cpus: &CpuSet, known: impl Fn(usize) -> bool) -> f64 {
    let mut on: BTreeMap<CpuId, (Ns, Option<TaskId>)> = BTreeMap::new();
    let mut sum = Ns::ZERO;
    let mut add = |task: Option<TaskId>, since: Ns, until: Ns| {
        if task.is_some_and(|task| !known(task.index())) {
            sum += until.saturating_sub(since);
        }
    };
    for event in recording.events.iter().filter(|event| cpus.contains(event.cpu)) {
        let EventKind::Switch { prev, next, .. } = event.kind else { continue };
        // Whoever leaves at the first switch was there from the start.
        let (since, _) = on.insert(event.cpu, (event.at, next)).unwrap_or_default();
        add(prev, since, event.at);
    }
    on.into_values().for_each(|(since, task)| add(task, since, recording.duration));
    sum.0 as f64 / recording.duration.0.max(1) as f64
}

/// Runs rounds.
pub(super) struct Rounds<'a> {
    plan: &'a Plan,
    /// The command, silent: its words in every round would stand between those of the answer.
    command: Vec<String>,
    stop: &'a dyn Fn() -> bool,
    files: Files,
}

/// Recordings that go.
struct Files {
    round: PathBuf,
    kept: PathBuf,
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in [&self.round, &self.kept] {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl<'a> Rounds<'a> {
    pub(super) fn new(plan: &'a Plan, stop: &'a dyn Fn() -> bool) -> Rounds<'a> {
        let file =
            |what: &str| plan.run_dir.path().join(format!("confirm-{}-{what}.slt", std::process::id()));
        let silent = ["/bin/sh", "-c", "exec \"$0\" \"$@\" >/dev/null 2>&1"].map(str::to_owned);
        let command = silent.into_iter().chain(plan.command.iter().cloned()).collect();
        Rounds { plan, command, stop, files: Files { round: file("round"), kept: file("base") } }
    }

    /// The recording of the round that was to be kept.
    pub(super) fn kept(&self) -> &Path {
        &self.files.kept
    }

    pub(super) fn run(&mut self, setting: &Settings, keep: bool) -> Result<Live, ConfirmError> {
        let (recording, live) = match setting {
            Settings::Elevation(spec) => self.elevated_again(&spec.to_string())?,
            Settings::Default => self.soft(None)?,
            Settings::Soft(_) => self.soft(Some(setting))?,
        };
        if keep {
            std::fs::rename(&recording, &self.files.kept)
                .map_err(|error| ConfirmError::Input(format!("{}: {error}", self.files.kept.display())))?;
        }
        Ok(live)
    }

    fn soft(&self, setting: Option<&Settings>) -> Result<(PathBuf, Live), ConfirmError> {
        let mut keeper = Keeper::start(&KeeperOptions {
            run_dir: self.plan.run_dir.clone(),
            purpose: format!("confirm: {}", setting.map_or_else(|| "default".to_owned(), Settings::name)),
            program: self.plan.program.clone(),
            silence: Some(SILENCE),
            priority: Some(GUARDIAN_PRIORITY),
            starve: None,
        })?;
        let started = OwnCommand::start(&self.command, true);
        let mut command = Running(Some(started.map_err(|error| ConfirmError::Input(error.to_string()))?));
        let first = Keeper::target(command.pid())?;
        keeper.confine(&first, &self.plan.cpus)?;
        command.go_on();
        let variant = match setting {
            Some(Settings::Soft(variant)) => Some(variant),
            _ => None,
        };
        let mut tend = |processes: &mut BTreeSet<u32>| -> Result<bool, ConfirmError> {
            keeper.beat()?;
            let family = restore::family(&first);
            processes.extend(&family);
            if let Some(variant) = variant {
                settings::apply(&mut keeper, variant, &members(&family))?;
            }
            Ok(command.ended())
        };
        self.come_up(&mut tend)?;
        let live = self.record(None, &mut tend)?;
        drop(command);
        keeper.finish()?;
        Ok((self.files.round.clone(), live))
    }

    /// Who kills the driver (its guardian, when a hypervisor took the CPU from it for too long) spoils one round, not the
    /// answer.
    fn elevated_again(&self, spec: &str) -> Result<(PathBuf, Live), ConfirmError> {
        let mut repeated = 0;
        loop {
            match self.elevated(spec) {
                Err(ConfirmError::Driver { killed: true, .. }) if repeated < AGAIN => repeated += 1,
                ended => return ended.map(|(path, live)| (path, Live { repeated, ..live })),
            }
        }
    }

    fn elevated(&self, spec: &str) -> Result<(PathBuf, Live), ConfirmError> {
        let failed = |error: std::io::Error| ConfirmError::Input(format!("schedlab run: {error}"));
        let cpu = self.plan.cpus.to_string();
        let mut command = std::process::Command::new(&self.plan.program);
        command.args(["run", "--json", "--scheduler", spec, "--cpus", &cpu, "--"]).args(&self.command);
        command.env("SCHEDLAB_RUN_DIR", self.plan.run_dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut driver = Driver::start(&mut command).map_err(failed)?;
        let first = Keeper::target(driver.pid())?;
        let begun = Instant::now();
        let journal = loop {
            let all = status_file::all(&self.plan.run_dir)?;
            if let Some((journal, _)) = all.into_iter().find(|(_, one)| one.owner == first) {
                break journal;
            }
            driver.manages(&first);
            if driver.ended() || begun.elapsed() > PATIENCE {
                return Err(driver.failed());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut tend = |processes: &mut BTreeSet<u32>| -> Result<bool, ConfirmError> {
            let threads = DriverStatus::read(&journal).map(|status| status.threads).unwrap_or_default();
            processes.extend(threads.iter().map(|taken| taken.thread.process));
            driver.manages(&first);
            Ok(driver.ended())
        };
        let live = self.come_up(&mut tend).and_then(|()| self.record(Some(first.process), &mut tend));
        // A driver that was killed is why a round failed.
        let report = driver.end()?;
        let mut live = live?;
        let number = |name: &str| report["counts"][name].as_u64().unwrap_or(0);
        let elapsed = report["elapsed_ns"].as_u64().unwrap_or(0).max(1);
        live.agents = Some(number("agent_cpu_ns") as f64 / elapsed as f64);
        live.given_back = number("starved") + number("changed_by_others") + number("refused");
        Ok((self.files.round.clone(), live))
    }

    fn come_up(
        &self,
        tend: &mut dyn FnMut(&mut BTreeSet<u32>) -> Result<bool, ConfirmError>,
    ) -> Result<(), ConfirmError> {
        let begun = Instant::now();
        while begun.elapsed() < COME_UP {
            if tend(&mut BTreeSet::new())? {
                return Err(ConfirmError::Input(format!(
                    "`{}` ended within {} ms: give a command that works for longer than a round (its output is \
                     not shown: try it by itself first)",
                    self.plan.command.join(" "),
                    COME_UP.as_millis()
                )));
            }
            if (self.stop)() {
                return Err(ConfirmError::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn record(
        &self,
        driver: Option<u32>,
        tend: &mut dyn FnMut(&mut BTreeSet<u32>) -> Result<bool, ConfirmError>,
    ) -> Result<Live, ConfirmError> {
        let mut request = RecordRequest::new(RecordUntil::Stopped);
        request.duration = Some(self.plan.round);
        request.recorder_cpu = schedlab_host::machine().online.without(&self.plan.cpus).lowest();
        let plan = RecordPlan::new(request, self.files.round.clone(), self.plan.command.join(" "));
        let state = RefCell::new((tend, BTreeSet::new(), None));
        record(&plan, &mut (), &|| {
            let (tend, processes, failed) = &mut *state.borrow_mut();
            match tend(processes) {
                Ok(ended) if !ended && !(self.stop)() => false,
                Ok(ended) => {
                    *failed = (!ended).then_some(ConfirmError::Interrupted);
                    true
                }
                Err(error) => {
                    *failed = Some(error);
                    true
                }
            }
        })?;
        let (_, processes, failed) = state.into_inner();
        if let Some(error) = failed {
            return Err(error);
        }
        let recording = Recording::open(&self.files.round)
            .map_err(|error| ConfirmError::Input(format!("the round cannot be read back: {error}")))?;
        if recording.events.iter().any(|event| matches!(event.kind, EventKind::Lost { .. })) {
            return Err(ConfirmError::Input(
                "events were lost in a round: make it shorter (--for)".to_owned(),
            ));
        }
        Live::of(&recording, &processes, &self.plan.cpus, driver)
    }
}

/// The threads of these processes.
fn members(processes: &[u32]) -> Vec<Identity> {
    processes.iter().flat_map(|pid| threads::of_process(*pid)).filter_map(threads::identity).collect()
}

/// A command that ends with us.
struct Running(Option<OwnCommand>);

impl Running {
    fn pid(&self) -> u32 {
        self.0.as_ref().map_or(0, OwnCommand::pid)
    }
    fn go_on(&self) {
        self.0.iter().for_each(OwnCommand::go_on);
    }
    fn ended(&mut self) -> bool {
        self.0.as_mut().is_none_or(OwnCommand::ended)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.take().map(OwnCommand::end);
    }
}

/// `schedlab run`, which ends its command and gives everything back when it is asked to. When it is killed, its guardian gives the
/// threads back and the command goes on: of a round nothing may go on, so that it is ended here.
struct Driver {
    child: Option<Child>,
    /// What its first thread is called.
    name: String,
    /// The entry of the environment that it has, and all that it starts.
    mark: String,
    /// First threads of the processes that came of it, its guardians left out.
    managed: BTreeMap<u32, Identity>,
}

impl Driver {
    /// What comes of it bears a mark in its environment, so that nothing gets away that was started since we looked last.
    fn start(command: &mut std::process::Command) -> std::io::Result<Driver> {
        static ROUNDS: AtomicU64 = AtomicU64::new(0);
        let mark = format!("{}-{}", std::process::id(), ROUNDS.fetch_add(1, Relaxed));
        let child = command.env(MARK, &mark).spawn()?;
        // As its guardians are called.
        let name = threads::identity(child.id()).map(|first| first.comm).unwrap_or_default();
        Ok(Driver { child: Some(child), name, mark: format!("{MARK}={mark}"), managed: BTreeMap::new() })
    }

    fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    fn ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Notes what came of it so far.
    fn manages(&mut self, driver: &Identity) {
        let family = restore::family(driver).into_iter().filter(|pid| !self.managed.contains_key(pid));
        let others = family.filter_map(threads::identity).filter(|one| one.comm != driver.comm);
        self.managed.extend(others.map(|one| (one.process, one)).collect::<Vec<_>>());
    }

    /// Notes what bears the mark, the driver and its guardians left out: those are at work, and end by themselves.
    fn marked(&mut self) {
        let bears = |pid: u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == self.mark.as_bytes())
        };
        let all = threads::processes().into_iter().filter(|pid| bears(*pid));
        let ours = |one: &Identity| one.comm != self.name && !self.managed.contains_key(&one.process);
        let new: Vec<_> =
            all.filter_map(threads::identity).filter(ours).map(|one| (one.process, one)).collect();
        self.managed.extend(new);
    }

    /// Ends what it managed, and waits until it is gone.
    fn end_managed(&mut self) {
        let begun = Instant::now();
        loop {
            self.marked();
            let left = self.managed.values().filter(|thread| thread.lives());
            let left: BTreeSet<u32> = left.flat_map(restore::family).collect();
            if left.is_empty() || begun.elapsed() > PATIENCE {
                return;
            }
            for pid in left {
                // It may have ended in this moment.
                let _ = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, Signal::KILL));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it said against it.
    fn failed(&mut self) -> ConfirmError {
        let (mut text, mut killed) = (String::new(), false);
        if let Some(child) = &mut self.child
            && let Ok(Some(status)) = child.try_wait()
        {
            killed = is_killed(status);
            // What cannot be read says nothing.
            let _ = child.stderr.take().map(|mut error| error.read_to_string(&mut text));
        }
        let said = match text.trim() {
            "" => "schedlab run did not begin to manage the command".to_owned(),
            words => words.trim_start_matches("error: ").to_owned(),
        };
        ConfirmError::Driver { said, killed }
    }

    fn end(mut self) -> Result<serde_json::Value, ConfirmError> {
        let Some(child) = self.child.as_mut() else { return Ok(serde_json::Value::Null) };
        ask_to_end(child);
        let (mut text, mut said) = (String::new(), String::new());
        // What cannot be read is no report, and says nothing.
        let _ = child.stdout.take().map(|mut out| out.read_to_string(&mut text));
        let _ = child.stderr.take().map(|mut out| out.read_to_string(&mut said));
        serde_json::from_str(&text).map_err(|_| {
            let status = child.wait();
            let how = status.as_ref().map_or_else(ToString::to_string, ToString::to_string);
            let said = said.trim();
            let killed = status.is_ok_and(is_killed);
            let said = format!("schedlab run ended without a report ({how}); it said: {said}");
            ConfirmError::Driver { said, killed }
        })
    }
}

fn is_killed(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::KILL.as_raw())
}

fn ask_to_end(child: &Child) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        // It may have ended in this moment.
        let _ = kill_process(pid, Signal::TERM);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            ask_to_end(&child);
            let begun = Instant::now();
            while begun.elapsed() < PATIENCE && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
            // Its guardian gives back what it left.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.end_managed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{PrevState, SchedEvent, Topology};
    use schedlab_trace::{Header, TaskInfo};

    #[test]
    fn what_others_take_is_counted_on_the_commands_cpus() {
        let task = |pid: u32| TaskInfo::unknown(pid, pid, format!("t{pid}"));
        let tasks = vec![task(1), task(2), task(3)];
        let header = Header { topology: Topology::flat(2), tasks, ..Header::default() };
        let switch = |at: u64, cpu: u32, prev: Option<u32>, next: Option<u32>| {
            let (prev, next) = (prev.map(TaskId), next.map(TaskId));
            let kind = EventKind::Switch { prev, prev_state: PrevState::Runnable, next };
            SchedEvent { at: Ns(at), cpu: CpuId(cpu), kind }
        };
        // On CPU 1: task 2 (others) for 100, then ours until 400, the driver until 500, nobody until 600, others until 700, and ours until 950.
        let events = vec![
            switch(50, 0, Some(1), None),
            switch(100, 1, Some(1), Some(0)),
            switch(400, 1, Some(0), Some(2)),
            switch(500, 1, Some(2), None),
            switch(600, 1, None, Some(1)),
            switch(700, 1, Some(1), Some(0)),
            switch(950, 1, Some(0), Some(1)),
        ];
        let recording = Recording::from_parts(header, events, Ns(1_000)).unwrap();
        let cpus = CpuSet::single(CpuId(1));
        let part = others(&recording, &cpus, |task| task != 1);
        assert!((part - 0.25).abs() < 1e-9, "{part}");
    }
}
