//! Rounds: an actuator is set, everybody is recorded, the actuator is taken back.

use super::party::{Party, Who};
use super::round::{Parties, Round};
use super::{ColocateError, Plan};
use crate::record::{self, record};
use schedlab_host::{RecordRequest, Scope, threads};
use schedlab_live::soft::{self, Soft};
use schedlab_live::{Keeper, KeeperOptions, LiveError};
use schedlab_model::{CpuSet, Ns};
use schedlab_trace::Recording;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// An owner that is silent for longer is killed by its guardian. Beats come every 20 ms while a round is recorded, but
/// not while a recording is analysed.
const SILENCE: Duration = Duration::from_secs(30);
/// Above the server's own priority 1, so that the way back is open whatever the server does.
const GUARDIAN_PRIORITY: u8 = 2;
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
}

impl<'a> Trial<'a> {
    pub(super) fn start(plan: &'a Plan, stop: &'a dyn Fn() -> bool) -> Result<Trial<'a>, ColocateError> {
        let server = Party::new(&plan.serve)?;
        let batch = Party::new(&plan.batch)?;
        let online = schedlab_host::machine().online;
        let cpus = match plan.cpus {
            Some(cpus) if cpus.is_empty() || !cpus.without(&online).is_empty() => {
                return Err(ColocateError::Input(format!(
                    "--cpus {cpus}: this machine has the CPUs {online}"
                )));
            }
            Some(cpus) => cpus,
            None => server
                .side
                .threads()
                .iter()
                .filter_map(|thread| threads::affinity(thread.tid).ok())
                .fold(CpuSet::EMPTY, |all, one| all.or(&one))
                .and(&online),
        };
        let mut trial = Trial { plan, stop, confined: None, server, batch, load: None, cpus };
        if plan.cpus.is_some() {
            let mut keeper = trial.keeper("the CPUs of both parties")?;
            soft::confine(&mut keeper, &trial.server.side, &cpus)?;
            soft::confine(&mut keeper, &trial.batch.side, &cpus)?;
            trial.confined = Some(keeper);
        }
        trial.load = plan.load.clone().map(|line| Party::new(&Who::Command(line))).transpose()?;
        std::thread::sleep(COME_UP);
        Ok(trial)
    }

    fn keeper(&self, what: &str) -> Result<Keeper, ColocateError> {
        let options = KeeperOptions {
            room: self.plan.room.clone(),
            purpose: format!("colocate: {what}"),
            program: self.plan.program.clone(),
            silence: Some(SILENCE),
            priority: Some(GUARDIAN_PRIORITY),
        };
        Ok(Keeper::start(&options)?)
    }

    /// One round under `how`: how much was changed, and what was measured.
    pub(super) fn round(&mut self, how: Soft) -> Result<(usize, Round), ColocateError> {
        let mut keeper = self.set(how)?;
        let changed = keeper.1;
        let result = self.measure(how, &mut keeper.0);
        if let Some(keeper) = keeper.0 {
            keeper.finish()?;
        }
        Ok((changed, result?.1))
    }

    /// Holds `how` and measures round after round, for `time` or until it is stopped.
    pub(super) fn keep(
        &mut self,
        how: Soft,
        time: Ns,
        each: &mut dyn FnMut(&Round),
    ) -> Result<Vec<Round>, ColocateError> {
        let (mut keeper, _) = self.set(how)?;
        let (mut rounds, mut held) = (Vec::new(), Ns::ZERO);
        while held < time && !(self.stop)() {
            match self.measure(how, &mut keeper) {
                Ok((length, round)) => {
                    held = held.saturating_add(length);
                    each(&round);
                    rounds.push(round);
                }
                // To be stopped is the usual end of keeping.
                Err(ColocateError::Interrupted) => break,
                Err(error) => return Err(error),
            }
        }
        if let Some(keeper) = keeper {
            keeper.finish()?;
        }
        Ok(rounds)
    }

    fn set(&self, how: Soft) -> Result<(Option<Keeper>, usize), ColocateError> {
        if how == Soft::Default {
            return Ok((None, 0));
        }
        let mut keeper = self.keeper(how.name())?;
        let changed = soft::apply(&mut keeper, how, &self.server.side, &self.batch.side, self.cpus.count())?;
        Ok((Some(keeper), changed))
    }

    fn measure(&mut self, how: Soft, keeper: &mut Option<Keeper>) -> Result<(Ns, Round), ColocateError> {
        let file = Recorded(self.plan.room.path().join(format!("colocate-{}.slt", std::process::id())));
        let mut request = RecordRequest::new(Scope::All);
        request.duration = Some(self.plan.round);
        // The recorder itself should not disturb whom it measures.
        request.recorder_cpu = schedlab_host::machine().online.without(&self.cpus).lowest();
        let plan = record::Plan {
            request,
            output: file.0.clone(),
            note: format!("schedlab colocate, {how}"),
            max_bytes: None,
            ring: None,
            until: None,
            after: Ns::ZERO,
        };
        let (stopped, failed) = (Cell::new(false), Cell::new(None));
        let mut seen = Parties {
            server: self.server.side.pids().into_iter().collect(),
            batch: self.batch.side.pids().into_iter().collect(),
        };
        let stop = self.stop;
        {
            let tending = RefCell::new((&mut *self, &mut *keeper, &mut seen.batch));
            record(&plan, &mut (), &|| {
                let (trial, keeper, batch) = &mut *tending.borrow_mut();
                if let Err(error) = trial.tend(how, keeper, batch) {
                    failed.set(Some(error));
                    return true;
                }
                stopped.set(stop());
                stopped.get()
            })?;
        }
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
        let round = Round::of(&recording, &seen, &self.plan.goals, self.cpus.count())?;
        Ok((recording.duration.max(Ns(1)), round))
    }

    /// Every 20 ms: the guardians know that we live, the server lives, batch work and load that ended begin again.
    fn tend(
        &mut self,
        how: Soft,
        keeper: &mut Option<Keeper>,
        batch: &mut BTreeSet<u32>,
    ) -> Result<(), ColocateError> {
        for keeper in [keeper.as_mut(), self.confined.as_mut()].into_iter().flatten() {
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
                soft::confine(confined, &self.batch.side, &self.cpus)?;
            }
            if let Some(keeper) = keeper {
                soft::apply(keeper, how, &self.server.side, &self.batch.side, self.cpus.count())?;
            }
            batch.extend(self.batch.side.pids());
        }
        Ok(())
    }

    pub(super) fn batch_restarts(&self) -> usize {
        self.batch.restarts
    }

    /// Everything back, with the errors that a drop would swallow.
    pub(super) fn finish(mut self) -> Result<(), LiveError> {
        self.confined.take().map_or(Ok(()), |keeper| keeper.finish().map(drop))
    }
}

/// A file that goes.
struct Recorded(PathBuf);

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
