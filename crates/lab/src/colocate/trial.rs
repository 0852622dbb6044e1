//! Rounds: an actuator is set, everybody is recorded, the actuator is taken back.

use super::alone::{self, Awake, Watchman};
use super::elevate::{self, Elevated};
use super::party::{Party, Who};
use super::round::{Parties, Round};
use super::{ColocateError, GivenBack, Plan};
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

/// An owner that is silent for longer is killed by its guardian. Beats come every 20 ms while a round is recorded, but
/// not while a recording is analysed.
const SILENCE: Duration = Duration::from_secs(30);
/// Above the server's own priority 1, so that the way back is open whatever the server does.
const GUARDIAN_PRIORITY: u8 = 2;
/// While a setting is kept, this many lengths of a round follow each round unrecorded: to record, and to read it back, costs
/// those who are measured something too.
const REST: u64 = 4;
const TEND: Duration = Duration::from_millis(20);
/// Commands get so long to come up before the first round.
const COME_UP: Duration = Duration::from_millis(300);

/// Both parties, and what holds them.
pub(super) struct Trial<'a> {
    plan: &'a Plan,
    stop: &'a dyn Fn() -> bool,
    // Dropped in this order: first everything is put back, then what we started is ended.
    confined: Option<Keeper>,
    server: Party,
    batch: Party,
    load: Option<Party>,
    pub(super) cpus: CpuSet,
    /// Where this thread might run before: commands begin there.
    home: CpuSet,
    given_back: GivenBack,
    /// Rounds so far: the client's seed.
    rounds: u64,
    /// For how long the batch work stood still, and how the CPUs were kept awake then.
    pub(super) stood_still: Duration,
    pub(super) awake: Option<Awake>,
    /// This thread and the guardians that it starts keep off the CPUs of the trial: to read a round back while the setting is
    /// kept took 2.3 % of them from the server and its batch work.
    _aside: Confined,
}

/// What holds an actuator.
#[derive(Default)]
pub(super) struct Held {
    keeper: Option<Keeper>,
    elevated: Option<Elevated>,
    changed: usize,
    /// The batch work stands still.
    frozen: bool,
}

impl<'a> Trial<'a> {
    pub(super) fn start(plan: &'a Plan, stop: &'a dyn Fn() -> bool) -> Result<Trial<'a>, ColocateError> {
        Recorded::sweep(plan.run_dir.path());
        let home = threads::affinity(0).unwrap_or(CpuSet::ALL);
        let server = Party::new(&plan.serve, home)?;
        let batch = Party::new(&plan.batch, home)?;
        let online = schedlab_host::machine().online;
        plan.cpus.iter().try_for_each(on_this_machine).map_err(ColocateError::Input)?;
        let cpus = plan.cpus.unwrap_or_else(|| server.side.cpus(&online));
        let mut trial = Trial {
            plan,
            stop,
            confined: None,
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
        if let Some(why) = alone::refuse(plan, &trial.server.side, &trial.batch.side) {
            return Err(ColocateError::Input(why));
        }
        if plan.cpus.is_some() {
            let mut keeper = trial.keeper("the CPUs of both parties", None)?;
            actuators::confine(&mut keeper, &trial.server.side, &cpus)?;
            actuators::confine(&mut keeper, &trial.batch.side, &cpus)?;
            trial.confined = Some(keeper);
        }
        trial.load = plan.load.clone().map(|line| Party::new(&Who::Command(line), home)).transpose()?;
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
            silence: Some(SILENCE),
            priority,
            starve: None,
        };
        Ok(Keeper::start(&options)?)
    }

    /// One round under `how`: how much was changed, and what was measured.
    pub(super) fn round(&mut self, how: Actuator) -> Result<(usize, Round), ColocateError> {
        let mut held = self.set(how)?;
        let changed = held.changed;
        let result = self.measure(how, &mut held);
        self.release(held)?;
        Ok((changed, result?.1))
    }

    /// One round in which the batch work stands still and the CPUs are kept awake.
    pub(super) fn alone(&mut self) -> Result<Round, ColocateError> {
        let begun = Instant::now();
        let mut keeper =
            self.keeper("the batch work stands still while the server is measured alone", None)?;
        actuators::freeze(&mut keeper, &self.batch.side)?;
        let watchman = Watchman::start(&self.server.side, &self.cpus);
        self.awake = Some(watchman.how);
        let mut held = Held { keeper: Some(keeper), frozen: true, ..Held::default() };
        let result = self.measure(Actuator::Default, &mut held);
        drop(watchman);
        self.release(held)?;
        self.stood_still += begun.elapsed();
        Ok(result?.1)
    }

    /// Keeps `how`, which `held` holds, for `time` or until it is stopped, and measures a round every so often.
    pub(super) fn keep(
        &mut self,
        how: Actuator,
        mut held: Held,
        time: Ns,
        each: &mut dyn FnMut(&Round),
    ) -> Result<Vec<Round>, ColocateError> {
        let (mut rounds, mut passed) = (Vec::new(), Ns::ZERO);
        while passed < time && !(self.stop)() {
            match self.measure(how, &mut held) {
                Ok((length, round)) => {
                    each(&round);
                    rounds.push(round);
                    let rest = Ns(self.plan.round.0 * REST).min(time.saturating_sub(passed + length));
                    passed += length + rest;
                    self.rest(how, &mut held, rest)?;
                }
                // To be stopped is the usual end of keeping.
                Err(ColocateError::Interrupted) => break,
                Err(error) => return Err(error),
            }
        }
        self.release(held)?;
        Ok(rounds)
    }

    /// Nothing is recorded for `time`: keeps guardians, server and batch work alive.
    fn rest(&mut self, how: Actuator, held: &mut Held, time: Ns) -> Result<(), ColocateError> {
        let begun = Instant::now();
        let mut seen = BTreeSet::new();
        while begun.elapsed() < Duration::from_nanos(time.0) && !(self.stop)() {
            self.tend(how, held, &mut seen)?;
            std::thread::sleep(TEND);
        }
        Ok(())
    }

    /// Sets `how`; what is returned must be given to [`Trial::keep`].
    pub(super) fn set(&self, how: Actuator) -> Result<Held, ColocateError> {
        let (server, batch) = (&self.server.side, &self.batch.side);
        let mut held = Held::default();
        match how {
            Actuator::Default => {}
            Actuator::Elevation => {
                if let Some(why) = elevate::unfit(&self.cpus, &schedlab_host::machine().online) {
                    return Err(ColocateError::Skip(why));
                }
                let (program, run_dir) = (&self.plan.program, &self.plan.run_dir);
                held.elevated =
                    Some(Elevated::start(program, run_dir, (&self.cpus, &self.home), server, batch)?);
                held.changed = server.threads().len() + batch.threads().len();
            }
            _ => {
                let priority = (how == Actuator::Fifo).then_some(GUARDIAN_PRIORITY);
                let mut keeper = self.keeper(how.name(), priority)?;
                held.changed = actuators::apply(&mut keeper, how, server, batch, &self.cpus)?;
                held.keeper = Some(keeper);
                if how == Actuator::Slice && !has_slice(server) {
                    return Err(ColocateError::Skip(
                        "this kernel has no custom slices: Linux 6.12 has".to_owned(),
                    ));
                }
            }
        }
        Ok(held)
    }

    fn release(&mut self, held: Held) -> Result<(), ColocateError> {
        let elevated = held.elevated.map_or(Ok(()), Elevated::end);
        if let Some(keeper) = held.keeper {
            self.given_back.add(&keeper.finish()?);
        }
        elevated
    }

    fn measure(&mut self, how: Actuator, held: &mut Held) -> Result<(Ns, Round), ColocateError> {
        let file = Recorded::here(self.plan.run_dir.path());
        let mut request = RecordRequest::new(RecordUntil::Stopped);
        request.duration = Some(self.plan.round);
        // Recorder and client should not disturb whom they measure.
        let aside = schedlab_host::machine().online.without(&self.cpus);
        request.recorder_cpu = aside.lowest();
        let plan = RecordPlan::new(request, file.0.clone(), format!("schedlab colocate, {how}"));
        let (stopped, failed) = (Cell::new(false), Cell::new(None));
        let mut seen = Parties {
            server: self.server.side.pids().into_iter().collect(),
            batch: self.batch.side.pids().into_iter().collect(),
        };
        let stop = self.stop;
        self.rounds += 1;
        let (length, seed) = (self.plan.round, self.rounds);
        let client = self.plan.client.clone();
        let aside = (!aside.is_empty()).then_some(aside);
        let client = client.map(|client| std::thread::spawn(move || client.round(length, aside, seed)));
        {
            let tending = RefCell::new((&mut *self, &mut *held, &mut seen.batch));
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
        // It ends with its round, or when the server does.
        let client = client.map(|thread| thread.join().unwrap_or(Err(ColocateError::Interrupted)));
        if let Some(error) = failed.take() {
            return Err(error);
        }
        if stopped.get() {
            return Err(ColocateError::Interrupted);
        }
        seen.server.extend(self.server.side.pids());
        seen.batch.extend(self.batch.side.pids());
        let recording = Recording::open(&file.0)
            .map_err(|error| ColocateError::Input(format!("the round cannot be read back: {error}")))?;
        let client = client.transpose()?;
        let round = Round::of(&recording, &seen, client, &self.plan.goals, self.cpus.count())?;
        Ok((recording.duration.max(Ns(1)), round))
    }

    /// Every 20 ms: the guardians know that we live, the server lives, batch work and load that ended begin again.
    fn tend(
        &mut self,
        how: Actuator,
        held: &mut Held,
        batch: &mut BTreeSet<u32>,
    ) -> Result<(), ColocateError> {
        if held.elevated.as_mut().is_some_and(|agent| !agent.works()) {
            return Err(ColocateError::Input("the agent has ended; see `schedlab status`".to_owned()));
        }
        for keeper in [held.keeper.as_mut(), self.confined.as_mut()].into_iter().flatten() {
            keeper.beat()?;
        }
        if let Some(status) = self.server.ended() {
            return Err(ColocateError::Input(format!(
                "the server ended ({status}): give a command that stays in the foreground, and look at its output above"
            )));
        }
        if let (Who::Pids(_), true) = (&self.plan.serve, self.server.side.pids().is_empty()) {
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

    /// Why `how` would change nothing.
    pub(super) fn void(&self, how: Actuator) -> Option<&'static str> {
        super::void(how, &self.server.side, &self.cpus)
    }

    pub(super) fn batch_restarts(&self) -> usize {
        self.batch.restarts
    }

    /// Everything back, and what could not be.
    pub(super) fn finish(mut self) -> Result<GivenBack, ColocateError> {
        let mut given_back = std::mem::take(&mut self.given_back);
        if let Some(keeper) = self.confined.take() {
            given_back.add(&keeper.finish()?);
        }
        Ok(given_back)
    }
}

/// Refuses CPUs that are not there.
pub(crate) fn on_this_machine(cpus: &CpuSet) -> Result<(), String> {
    let online = schedlab_host::machine().online;
    if cpus.is_empty() || !cpus.without(&online).is_empty() {
        return Err(format!("--cpus {cpus}: this machine has the CPUs {online}"));
    }
    Ok(())
}

/// Whether a thread has the slice: older kernels take the value and forget it.
fn has_slice(server: &actuators::Side) -> bool {
    let has = |tid| threads::scheduling(tid).is_ok_and(|now| now.slice == Some(actuators::SERVER_SLICE));
    server.threads().into_iter().any(|thread| has(thread.tid))
}

/// A file that goes.
struct Recorded(PathBuf);

impl Recorded {
    /// The recording of a round of this process.
    fn here(run_dir: &Path) -> Recorded {
        Recorded(run_dir.join(format!("colocate-{}.slt", std::process::id())))
    }

    /// Removes those of processes that were killed.
    fn sweep(run_dir: &Path) {
        let names = std::fs::read_dir(run_dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
        for name in names.filter_map(|name| name.into_string().ok()) {
            let pid = name.strip_prefix("colocate-").and_then(|rest| rest.strip_suffix(".slt"));
            let dead = |pid: u32| threads::identity(pid).is_none();
            if pid.and_then(|pid| pid.parse().ok()).is_some_and(dead) {
                drop(Recorded(run_dir.join(name)));
            }
        }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
