//! One round: the command is started, gets its settings, is recorded for a while and ended.

use super::driver::Driver;
use super::measured::RoundMeasurements;
use super::plan::{COME_UP, ConfirmError, ConfirmPlan, LiveDriver};
use super::settings::{self, RoundSetting};
use crate::record::{RecordPlan, record};
use rustix::fs::{MemfdFlags, memfd_create};
use schedlab_host::threads::{self, Identity};
use schedlab_host::{Messages, OwnCommand, RecordRequest, RecordUntil};
use schedlab_live::status_file::{self, DriverStatus};
use schedlab_live::{Keeper, KeeperOptions, restore};
use schedlab_model::EventKind;
use schedlab_study::compare::ReplayFrom;
use schedlab_trace::{Header, Index, Recording, TraceError};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a driver has to begin to manage the command.
const PATIENCE: Duration = Duration::from_secs(10);
/// The guardian kills an owner whose heartbeats stop for longer; they come every 20 ms while a
/// round is recorded.
const SILENCE: Duration = Duration::from_secs(30);
/// How often a round is begun again whose driver was killed.
const AGAIN: u64 = 2;
/// Above the priorities of usual SCHED_FIFO settings, so that the guardian can put everything back.
const GUARDIAN_PRIORITY: u8 = 60;

/// Runs rounds.
pub(super) struct Rounds<'a> {
    plan: &'a ConfirmPlan,
    /// The command without its output, which would be mixed with the answer.
    command: Vec<String>,
    stop: &'a dyn Fn() -> bool,
    /// The recording of the round that was to be kept.
    kept: Option<NamelessFile>,
}

/// A recording in memory: it has no name, so that it ends with this process.
struct NamelessFile(OwnedFd);

impl NamelessFile {
    fn create() -> Result<NamelessFile, ConfirmError> {
        let made = memfd_create("schedlab-confirm", MemfdFlags::CLOEXEC);
        made.map(NamelessFile)
            .map_err(|error| ConfirmError::Input(format!("no memory for a recording: {error}")))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// What a round leaves.
type Recorded = (NamelessFile, RoundMeasurements);

impl<'a> Rounds<'a> {
    pub(super) fn new(plan: &'a ConfirmPlan, stop: &'a dyn Fn() -> bool) -> Rounds<'a> {
        let silent = ["/bin/sh", "-c", "exec \"$0\" \"$@\" >/dev/null 2>&1"].map(str::to_owned);
        let command = silent.into_iter().chain(plan.command.iter().cloned()).collect();
        Rounds { plan, command, stop, kept: None }
    }

    /// Returns the recording of the round that was to be kept.
    pub(super) fn kept(&self) -> PathBuf {
        self.kept.as_ref().map_or_else(PathBuf::new, NamelessFile::path)
    }

    /// Returns the header of the recording that was to be kept, without reading its events.
    pub(super) fn header(&self) -> Result<Header, ConfirmError> {
        let failed = |error: TraceError| ConfirmError::Input(error.to_string());
        let index = Index::of_headers(self.kept()).map_err(failed)?;
        Ok(Recording::about(self.kept(), &index).map_err(failed)?.header)
    }

    pub(super) fn run(
        &mut self,
        setting: &RoundSetting,
        keep: bool,
    ) -> Result<RoundMeasurements, ConfirmError> {
        let (recording, live) = match setting {
            RoundSetting::Live(driver, spec) => self.driven_again(*driver, &spec.to_string())?,
            RoundSetting::Default => self.soft(None)?,
            RoundSetting::Soft(_) => self.soft(Some(setting))?,
        };
        if keep {
            self.kept = Some(recording);
        }
        Ok(live)
    }

    fn soft(&self, setting: Option<&RoundSetting>) -> Result<Recorded, ConfirmError> {
        let mut keeper = Keeper::start(&KeeperOptions {
            run_dir: self.plan.run_dir.clone(),
            purpose: format!(
                "confirm: {}",
                setting.map_or_else(|| "default".to_owned(), RoundSetting::name)
            ),
            program: self.plan.program.clone(),
            silence: Some(SILENCE),
            priority: Some(GUARDIAN_PRIORITY),
            starve: None,
        })?;
        let started = OwnCommand::start(&self.command, true);
        let mut command =
            Running(Some(started.map_err(|error| ConfirmError::Input(error.to_string()))?));
        command.0.iter().try_for_each(|command| keeper.ends_with(command.mark()))?;
        let first = Keeper::target(command.pid())?;
        keeper.confine(&first, &self.plan.cpus)?;
        command.go_on();
        let variant = match setting {
            Some(RoundSetting::Soft(variant)) => Some(variant),
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
        let recorded = self.record(None, &mut tend)?;
        drop(command);
        keeper.finish()?;
        Ok(recorded)
    }

    /// Runs a round under a scheduler, again when its driver was killed: its guardian does that
    /// when a hypervisor took the CPU away for too long.
    fn driven_again(&self, driver: LiveDriver, spec: &str) -> Result<Recorded, ConfirmError> {
        let mut repeated = 0;
        loop {
            match self.driven(driver, spec) {
                Err(ConfirmError::Driver { killed: true, .. }) if repeated < AGAIN => repeated += 1,
                Err(error) => return Err(error),
                Ok((recording, mut measured)) => {
                    measured.repeated = repeated;
                    return Ok((recording, measured));
                }
            }
        }
    }

    fn driven(&self, by: LiveDriver, spec: &str) -> Result<Recorded, ConfirmError> {
        let failed = |error: std::io::Error| ConfirmError::Input(format!("schedlab run: {error}"));
        let cpu = self.plan.cpus.to_string();
        let mut command = Command::new(&self.plan.program);
        command.args([
            "run",
            "--json",
            "--driver",
            by.word(),
            "--scheduler",
            spec,
            "--cpus",
            &cpu,
            "--",
        ]);
        command.args(&self.command);
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
            if driver.ended() || begun.elapsed() > PATIENCE {
                return Err(driver.failed());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut tend = |processes: &mut BTreeSet<u32>| -> Result<bool, ConfirmError> {
            let threads =
                DriverStatus::read(&journal).map(|status| status.threads).unwrap_or_default();
            processes.extend(threads.iter().map(|taken| taken.thread.process));
            Ok(driver.ended())
        };
        let live =
            self.come_up(&mut tend).and_then(|()| self.record(Some(first.process), &mut tend));
        // When the driver was killed, that is why the round failed.
        let report = driver.end()?;
        let (recording, mut live) = live?;
        let number = |name: &str| report["counts"][name].as_u64().unwrap_or(0);
        let elapsed = report["elapsed_ns"].as_u64().unwrap_or(0).max(1);
        live.agents = Some(number("agent_cpu_ns") as f64 / elapsed as f64);
        live.given_back = number("starved") + number("changed_by_others") + number("refused");
        Ok((recording, live))
    }

    fn come_up(
        &self,
        tend: &mut dyn FnMut(&mut BTreeSet<u32>) -> Result<bool, ConfirmError>,
    ) -> Result<(), ConfirmError> {
        let begun = Instant::now();
        while begun.elapsed() < COME_UP {
            if tend(&mut BTreeSet::new())? {
                return Err(ConfirmError::Input(format!(
                    "`{}` ended within {} ms: give a command that works for longer than a round \
                     (its output is \
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
    ) -> Result<Recorded, ConfirmError> {
        let file = NamelessFile::create()?;
        let mut request = RecordRequest::new(RecordUntil::Stopped);
        request.duration = Some(self.plan.round);
        // In every round: all have the same recorder.
        if self.plan.replay == ReplayFrom::Messages {
            request.messages = Messages::On;
        }
        request.recorder_cpu = schedlab_host::machine().online.without(&self.plan.cpus).lowest();
        let plan = RecordPlan::new(request, file.path(), self.plan.command.join(" "));
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
        let recording = Recording::open(file.path()).map_err(|error| {
            ConfirmError::Input(format!("the round cannot be read back: {error}"))
        })?;
        if recording.events.iter().any(|event| matches!(event.kind, EventKind::Lost { .. })) {
            return Err(ConfirmError::Input(
                "events were lost in a round: make it shorter (--for)".to_owned(),
            ));
        }
        let measured =
            RoundMeasurements::from_recording(&recording, &processes, &self.plan.cpus, driver)?;
        Ok((file, measured))
    }
}

/// Returns the threads of these processes.
fn members(processes: &[u32]) -> Vec<Identity> {
    processes
        .iter()
        .flat_map(|pid| threads::of_process(*pid))
        .filter_map(threads::identity)
        .collect()
}

/// The command of a round, which ends with this.
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
