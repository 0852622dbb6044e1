//! Rounds: an actuator is set, the machine is recorded, the actuator is taken back.

use super::answer::GivenBack;
use super::attach::{self, AttachedDriver};
use super::awake::{AwakeCpus, KeptAwake};
use super::error::ColocateError;
use super::plan::{ColocatePlan, changes_nothing};
use super::pulse::Pulse;
use super::round::{Round, WorkloadProcesses};
use super::workload::{Workload, WorkloadSource};
use crate::cpus::check_online;
use crate::record::{RecordPlan, record};
use schedlab_host::threads::{self, Confined};
use schedlab_host::{RecordRequest, RecordUntil};
use schedlab_live::actuators::{self, Actuator};
use schedlab_live::{Keeper, KeeperOptions};
use schedlab_model::{CpuSet, Ns};
use schedlab_trace::Recording;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The guardian kills an owner whose heartbeats stop for longer. They come from a thread of their
/// own ([`Pulse`]), however long the trial's own thread waits for a CPU.
const SILENCE: Duration = Duration::from_secs(30);
/// Above the server's priority (1), so that the guardian can put everything back whatever the
/// server does.
const GUARDIAN_PRIORITY: u8 = 2;
/// While a setting is kept, this many lengths of a round follow each round unrecorded: recording,
/// and reading it back, costs the measured threads CPU time.
const REST: u64 = 4;
/// Time between two checks of guardians and commands.
const TEND: Duration = Duration::from_millis(20);
/// How long commands have to come up before the first round.
const COME_UP: Duration = Duration::from_millis(300);

/// The workloads of a trial, and what holds them on their CPUs.
pub(super) struct Trial<'a> {
    plan: &'a ColocatePlan,
    stop: &'a dyn Fn() -> bool,
    // Dropped in this order: first everything is put back, then the commands are ended.
    confined: Option<Keeper>,
    pulse: Option<Pulse>,
    server: Workload,
    batch: Workload,
    load: Option<Workload>,
    pub(super) cpus: CpuSet,
    /// The CPUs of this thread before the trial: commands begin on them.
    home: CpuSet,
    given_back: GivenBack,
    /// Rounds so far, which is the seed of the client.
    rounds: u64,
    /// How long the batch work was stopped, and how the CPUs were kept awake then.
    pub(super) stood_still: Duration,
    pub(super) awake: Option<KeptAwake>,
    /// Keeps this thread and the guardians that it starts off the CPUs of the trial: reading a
    /// round back while a setting was kept took 2.3 % of them from server and batch work
    /// (measured).
    _aside: Confined,
}

/// An actuator that is set.
#[derive(Default)]
pub(super) struct AppliedSetting {
    keeper: Option<Keeper>,
    driver: Option<AttachedDriver>,
    changed: usize,
    /// Whether the batch work is stopped.
    frozen: bool,
}

impl<'a> Trial<'a> {
    /// Finds or starts the workloads, and confines them to the CPUs of the plan.
    pub(super) fn start(
        plan: &'a ColocatePlan,
        stop: &'a dyn Fn() -> bool,
    ) -> Result<Trial<'a>, ColocateError> {
        RoundFile::sweep(plan.run_dir.path());
        let home = threads::affinity(0).unwrap_or(CpuSet::ALL);
        let server = Workload::start(&plan.serve, home)?;
        let batch = Workload::start(&plan.batch, home)?;
        let online = schedlab_host::machine().online;
        plan.cpus.iter().try_for_each(check_online).map_err(ColocateError::Input)?;
        let cpus = plan.cpus.unwrap_or_else(|| server.side.cpus(&online));
        let mut trial = Trial {
            plan,
            stop,
            confined: None,
            pulse: Pulse::start(),
            server,
            batch,
            load: None,
            cpus,
            home,
            given_back: GivenBack::default(),
            rounds: 0,
            stood_still: Duration::ZERO,
            awake: None,
            _aside: Confined::to(&online.without(&cpus)),
        };
        if let Some(why) = plan.refuses_alone(&trial.server.side, &trial.batch.side) {
            return Err(ColocateError::Input(why));
        }
        if plan.cpus.is_some() {
            let mut keeper = trial.keeper("the CPUs of server and batch work", None)?;
            actuators::confine(&mut keeper, &trial.server.side, &cpus)?;
            actuators::confine(&mut keeper, &trial.batch.side, &cpus)?;
            trial.confined = Some(keeper);
        }
        trial.load = plan
            .load
            .clone()
            .map(|line| Workload::start(&WorkloadSource::Command(line), home))
            .transpose()?;
        std::thread::sleep(COME_UP);
        if let Some(client) = &plan.client {
            client.wait(stop)?;
        }
        Ok(trial)
    }

    fn keeper(&self, what: &str, priority: Option<u8>) -> Result<Keeper, ColocateError> {
        let options = KeeperOptions {
            run_dir: self.plan.run_dir.clone(),
            purpose: format!("colocate: {what}"),
            program: self.plan.program.clone(),
            // Without the right to a real-time heartbeat nothing real-time is set either, and only
            // the end of this process counts.
            silence: self.pulse.as_ref().filter(|pulse| pulse.is_urgent()).map(|_| SILENCE),
            priority,
            starve: None,
        };
        let mut keeper = Keeper::start(&options)?;
        let started = [Some(&self.server), Some(&self.batch), self.load.as_ref()];
        for mark in started.into_iter().flatten().filter_map(Workload::mark) {
            keeper.ends_with(mark)?;
        }
        if let (Some(pulse), Ok(pipe)) = (&self.pulse, keeper.heartbeat_pipe()) {
            pulse.add(pipe);
        }
        Ok(keeper)
    }

    /// Measures one round under `how`. Returns how many threads and files were changed, and the
    /// values.
    pub(super) fn round(&mut self, how: Actuator) -> Result<(usize, Round), ColocateError> {
        let mut held = self.set(how)?;
        let changed = held.changed;
        let result = self.measure(how, &mut held);
        self.release(held)?;
        Ok((changed, result?.1))
    }

    /// Measures one round in which the batch work is stopped and the CPUs are kept awake.
    pub(super) fn alone(&mut self) -> Result<Round, ColocateError> {
        let begun = Instant::now();
        let mut keeper =
            self.keeper("the batch work is stopped while the server is measured alone", None)?;
        actuators::freeze(&mut keeper, &self.batch.side)?;
        let awake = AwakeCpus::start(&self.server.side, &self.cpus);
        self.awake = Some(awake.how);
        let mut held =
            AppliedSetting { keeper: Some(keeper), frozen: true, ..AppliedSetting::default() };
        let result = self.measure(Actuator::Default, &mut held);
        drop(awake);
        self.release(held)?;
        self.stood_still += begun.elapsed();
        Ok(result?.1)
    }

    /// Keeps `how`, which is set, for `time` or until `stop` says so, and measures a round now and
    /// then.
    pub(super) fn keep(
        &mut self,
        how: Actuator,
        mut held: AppliedSetting,
        time: Ns,
        each: &mut dyn FnMut(&Round),
    ) -> Result<Vec<Round>, ColocateError> {
        let (mut rounds, mut passed) = (Vec::new(), Ns::ZERO);
        while passed < time && !(self.stop)() {
            match self.measure(how, &mut held) {
                Ok((length, round)) => {
                    each(&round);
                    rounds.push(round);
                    let rest =
                        Ns(self.plan.round.0 * REST).min(time.saturating_sub(passed + length));
                    passed += length + rest;
                    self.rest(how, &mut held, rest)?;
                }
                // The usual end of keeping.
                Err(ColocateError::Interrupted) => break,
                Err(error) => return Err(error),
            }
        }
        self.release(held)?;
        Ok(rounds)
    }

    /// Records nothing for `time`, and keeps guardians, server and batch work alive.
    fn rest(
        &mut self,
        how: Actuator,
        held: &mut AppliedSetting,
        time: Ns,
    ) -> Result<(), ColocateError> {
        let begun = Instant::now();
        let mut seen = BTreeSet::new();
        while begun.elapsed() < Duration::from_nanos(time.0) && !(self.stop)() {
            self.tend(how, held, &mut seen)?;
            std::thread::sleep(TEND);
        }
        Ok(())
    }

    /// Sets `how`. What it returns holds the setting, and goes to [`Trial::keep`].
    pub(super) fn set(&self, how: Actuator) -> Result<AppliedSetting, ColocateError> {
        let (server, batch) = (&self.server.side, &self.batch.side);
        let mut held = AppliedSetting::default();
        match how {
            Actuator::Default => {}
            Actuator::Elevation => {
                if let Some(why) = attach::unfit(&self.cpus, &schedlab_host::machine().online) {
                    return Err(ColocateError::Skip(why));
                }
                let (program, run_dir) = (&self.plan.program, &self.plan.run_dir);
                held.driver = Some(AttachedDriver::start(
                    program,
                    run_dir,
                    (&self.cpus, &self.home),
                    server,
                    batch,
                )?);
                held.changed = server.threads().len() + batch.threads().len();
            }
            _ => {
                let priority = (how == Actuator::Fifo).then_some(GUARDIAN_PRIORITY);
                let mut keeper = self.keeper(how.name(), priority)?;
                held.changed = actuators::apply(&mut keeper, how, server, batch, &self.cpus)?;
                held.keeper = Some(keeper);
                if how == Actuator::Slice && !has_slice(server) {
                    return Err(ColocateError::Skip(
                        "this kernel has no custom slices (they need Linux 6.12)".to_owned(),
                    ));
                }
            }
        }
        Ok(held)
    }

    fn release(&mut self, held: AppliedSetting) -> Result<(), ColocateError> {
        let ended = held.driver.map_or(Ok(()), AttachedDriver::end);
        if let Some(keeper) = held.keeper {
            self.given_back.add(&keeper.finish()?);
        }
        ended
    }

    fn measure(
        &mut self,
        how: Actuator,
        held: &mut AppliedSetting,
    ) -> Result<(Ns, Round), ColocateError> {
        let file = RoundFile::of_this_process(self.plan.run_dir.path());
        let mut request = RecordRequest::new(RecordUntil::Stopped);
        request.duration = Some(self.plan.round);
        // Recorder and client should not disturb the measured threads.
        let aside = schedlab_host::machine().online.without(&self.cpus);
        request.recorder_cpu = aside.lowest();
        let plan = RecordPlan::new(request, file.0.clone(), format!("schedlab colocate, {how}"));
        let (stopped, failed) = (Cell::new(false), Cell::new(None));
        let mut processes = WorkloadProcesses {
            server: self.server.side.pids().into_iter().collect(),
            batch: self.batch.side.pids().into_iter().collect(),
        };
        let stop = self.stop;
        self.rounds += 1;
        let (length, seed) = (self.plan.round, self.rounds);
        let client = self.plan.client.clone();
        let aside = (!aside.is_empty()).then_some(aside);
        let client =
            client.map(|client| std::thread::spawn(move || client.round(length, aside, seed)));
        {
            let tending = RefCell::new((&mut *self, &mut *held, &mut processes.batch));
            record(&plan, &mut (), &|| {
                let (trial, held, batch) = &mut *tending.borrow_mut();
                if let Err(error) = trial.tend(how, held, batch) {
                    failed.set(Some(error));
                    return true;
                }
                stopped.set(stop());
                stopped.get()
            })?;
        }
        // The client ends with its round, or with the server.
        let client = client.map(|thread| thread.join().unwrap_or(Err(ColocateError::Interrupted)));
        if let Some(error) = failed.take() {
            return Err(error);
        }
        if stopped.get() {
            return Err(ColocateError::Interrupted);
        }
        processes.server.extend(self.server.side.pids());
        processes.batch.extend(self.batch.side.pids());
        let recording = Recording::open(&file.0).map_err(|error| {
            ColocateError::Input(format!("the round cannot be read back: {error}"))
        })?;
        let client = client.transpose()?;
        let round = Round::from_recording(
            &recording,
            &processes,
            client,
            &self.plan.goals,
            self.cpus.count(),
        )?;
        Ok((recording.duration.max(Ns(1)), round))
    }

    /// To be called every 20 ms: checks that guardians and server run, and starts batch work and
    /// load again that ended.
    fn tend(
        &mut self,
        how: Actuator,
        held: &mut AppliedSetting,
        batch: &mut BTreeSet<u32>,
    ) -> Result<(), ColocateError> {
        if held.driver.as_mut().is_some_and(|agent| !agent.runs()) {
            return Err(ColocateError::Input(
                "the agent has ended; see `schedlab status`".to_owned(),
            ));
        }
        self.pulse.iter().for_each(Pulse::word);
        for keeper in [held.keeper.as_mut(), self.confined.as_mut()].into_iter().flatten() {
            keeper.beat()?;
        }
        if let Some(status) = self.server.ended() {
            return Err(ColocateError::Input(format!(
                "the server ended ({status}): give a command that stays in the foreground, and \
                 look at its output above"
            )));
        }
        if let (WorkloadSource::Pids(_), true) =
            (&self.plan.serve, self.server.side.pids().is_empty())
        {
            return Err(ColocateError::Input("the server ended".to_owned()));
        }
        if let Some(load) = &mut self.load {
            load.renew()?;
        }
        if self.batch.renew()? {
            if let Some(confined) = &mut self.confined {
                actuators::confine(confined, &self.batch.side, &self.cpus)?;
            }
            if let Some(keeper) = held.keeper.as_mut().filter(|_| held.frozen) {
                actuators::freeze(keeper, &self.batch.side)?;
            } else if let Some(keeper) = &mut held.keeper {
                actuators::apply(keeper, how, &self.server.side, &self.batch.side, &self.cpus)?;
            }
            batch.extend(self.batch.side.pids());
        }
        Ok(())
    }

    /// Returns why `how` would change nothing.
    pub(super) fn changes_nothing(&self, how: Actuator) -> Option<&'static str> {
        changes_nothing(how, &self.server.side, &self.cpus)
    }

    pub(super) fn batch_restarts(&self) -> usize {
        self.batch.restarts
    }

    /// Puts everything back. Returns what could not be.
    pub(super) fn finish(mut self) -> Result<GivenBack, ColocateError> {
        let mut given_back = std::mem::take(&mut self.given_back);
        if let Some(keeper) = self.confined.take() {
            given_back.add(&keeper.finish()?);
        }
        Ok(given_back)
    }
}

/// Returns whether a thread has the custom slice: kernels before 6.12 accept the value and ignore
/// it.
fn has_slice(server: &actuators::Side) -> bool {
    let has =
        |tid| threads::scheduling(tid).is_ok_and(|now| now.slice == Some(actuators::SERVER_SLICE));
    server.threads().into_iter().any(|thread| has(thread.tid))
}

/// The recording of a round, which is removed with this.
struct RoundFile(PathBuf);

impl RoundFile {
    /// Returns the file of this process, which is not created yet.
    fn of_this_process(run_dir: &Path) -> RoundFile {
        RoundFile(run_dir.join(format!("colocate-{}.slt", std::process::id())))
    }

    /// Removes the files of processes that were killed.
    fn sweep(run_dir: &Path) {
        let names = std::fs::read_dir(run_dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name());
        for name in names.filter_map(|name| name.into_string().ok()) {
            let pid = name.strip_prefix("colocate-").and_then(|rest| rest.strip_suffix(".slt"));
            let dead = |pid: u32| threads::identity(pid).is_none();
            if pid.and_then(|pid| pid.parse().ok()).is_some_and(dead) {
                drop(RoundFile(run_dir.join(name)));
            }
        }
    }
}

impl Drop for RoundFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
