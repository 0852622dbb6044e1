//! `schedlab colocate`: the mildest setting of the stock kernel under which a server beside batch work meets its goal.
//!
//! It records the host as it is, then under one actuator after the other, the mildest first (`search`). The first that meets
//! the goal is confirmed in interleaved rounds, with and without it. Every round begins and ends with the host's default:
//! each has a [`Keeper`] of its own. A second one confines both parties to the managed CPUs throughout.

mod advice;
mod alone;
mod blame;
mod client;
mod elevate;
mod party;
mod round;
mod search;
mod trial;

pub use advice::{Advice, advice};
pub use alone::{Awake, Distance};
pub use blame::{Blamed, over as blame_over};
pub use client::{Client, Seen};
pub use party::Who;
pub(crate) use round::members;
pub use round::{FIGURES, Round, Side};
pub use search::MOST;
pub(crate) use trial::on_this_machine;

use crate::record::RecordError;
use schedlab_live::actuators::{self, Actuator, LADDER};
use schedlab_live::restore::{ItemOutcome as Put, Report};
use schedlab_live::{LiveError, RunDir};
use schedlab_model::{CpuSet, Ns};
use schedlab_stats::Estimate;
use schedlab_study::gate::{Against, Bound, Evidence, Gate, GateOutcome, Op};
use schedlab_study::metric::{Metric, Stat};
use search::search;
use serde::Serialize;
use std::path::PathBuf;
use trial::Trial;

/// Why there is no answer. Nothing is left changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ColocateError {
    /// A thread or group cannot be changed.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// Nothing can be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Something that was given does not fit.
    #[error("{0}")]
    Input(String),
    /// One actuator cannot be tried; the others can.
    #[error("cannot be tried: {0}")]
    Skip(String),
    /// The user ended it.
    #[error("ended before there was an answer; everything is as before")]
    Interrupted,
}

/// Something that shall be: a [`Gate`] read the other way round. A gate fails a build when its condition is true; a goal
/// is met when its condition is true.
#[derive(Clone, PartialEq, Debug)]
pub struct Goal(pub Gate);

impl Goal {
    /// Whether a single stall of the server of this length would miss it, whatever else is measured.
    fn forbids(&self, stall: Ns) -> bool {
        let of_server = self.0.subject.as_deref() != Some("batch");
        let longest = matches!(
            self.0.metric,
            Metric::Latency(Stat::Max) | Metric::Wait(Stat::Max) | Metric::Response(Stat::Max)
        );
        let allows = matches!(self.0.bound, Bound::Value(value) if value > stall.0 as f64);
        of_server && longest && !allows && matches!(self.0.op, Op::Below | Op::AtMost)
    }
}

/// What to try.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Who has the goal.
    pub serve: Who,
    /// Who takes the rest.
    pub batch: Who,
    /// A client that keeps the server busy meanwhile; it is not changed.
    pub load: Option<String>,
    /// Our own client, which measures as well.
    pub client: Option<Client>,
    /// Both parties run on these CPUs only; `None`: where they may run anyway.
    pub cpus: Option<CpuSet>,
    /// All of them must be met.
    pub goals: Vec<Goal>,
    /// Length of a round.
    pub round: Ns,
    /// Rounds with and without the chosen one; goals about the server alone get up to [`MOST`] times as many.
    pub rounds: usize,
    /// Only these actuators; empty: all.
    pub only: Vec<Actuator>,
    /// Keep the chosen one for so long, and watch.
    pub keep_for: Option<Ns>,
    /// Where journals go.
    pub run_dir: RunDir,
    /// The program that becomes the guardian.
    pub program: PathBuf,
}

/// Hears how it goes.
pub trait Watch {
    /// A round begins; `what` it is for.
    fn round(&mut self, _what: &str, _how: Actuator) {}
    /// A round of the server alone begins.
    fn alone(&mut self) {}
    /// The chosen one is set now, and is kept for `time`.
    fn keeping(&mut self, _how: Actuator, _time: Ns) {}
    /// While kept: a round has ended; whether the goal was met.
    fn kept(&mut self, _round: &Round, _met: GateOutcome) {}
}

impl Watch for () {}

/// What came of one actuator in its first round.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Tried {
    /// Which.
    pub actuator: Actuator,
    /// Threads and files that it changed.
    pub changed: usize,
    /// Whether the goals were met.
    pub outcome: Option<GateOutcome>,
    /// What was measured.
    pub round: Option<Round>,
    /// Why it was not tried.
    pub skipped: Option<String>,
}

/// The answer.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Colocation {
    /// The goals as they were given.
    pub goals: Vec<String>,
    /// The managed CPUs.
    pub cpus: CpuSet,
    /// Every actuator, in the order of the trial.
    pub tried: Vec<Tried>,
    /// The mildest that meets the goals; with an outcome of `cannot-say` the mildest that may meet them.
    pub chosen: Option<Actuator>,
    /// Over the confirming rounds of the chosen one, or of the last candidate.
    pub outcome: GateOutcome,
    /// The interleaved rounds under the host's default.
    pub before: Vec<Round>,
    /// Those under the chosen one; of the last candidate when none was chosen.
    pub after: Vec<Round>,
    /// Rounds of the server alone, beside those; empty: no goal asks for it.
    pub alone: Vec<Round>,
    /// How far the last candidate is from that, for each goal that asks.
    pub distances: Vec<Distance>,
    /// Candidates of which all the rounds that they may have do not tell whether they meet the goals.
    pub undecided: Vec<Actuator>,
    /// How the CPUs were kept awake while the server was alone.
    pub awake: Option<Awake>,
    /// For how long the batch work stood still for that, in all (ns).
    pub stood_still_ns: u64,
    /// Rounds while it was kept.
    pub kept: Vec<Round>,
    /// Whether the goals were met while it was kept; nothing when it was not.
    pub kept_outcome: Option<GateOutcome>,
    /// How often the batch work ended and was started again.
    pub batch_restarts: usize,
    /// Setting for other tools.
    pub advice: Option<Advice>,
    /// What is not as before, and why.
    pub given_back: GivenBack,
}

impl Colocation {
    fn nothing_yet(plan: &Plan, cpus: CpuSet) -> Colocation {
        Colocation {
            goals: plan.goals.iter().map(|goal| goal.0.to_string()).collect(),
            cpus,
            tried: Vec::new(),
            chosen: None,
            outcome: GateOutcome::Not,
            before: Vec::new(),
            after: Vec::new(),
            alone: Vec::new(),
            distances: Vec::new(),
            undecided: Vec::new(),
            awake: None,
            stood_still_ns: 0,
            kept: Vec::new(),
            kept_outcome: None,
            batch_restarts: 0,
            advice: None,
            given_back: GivenBack::default(),
        }
    }
}

/// What is not as it was before the trial. Empty: all is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct GivenBack {
    /// Somebody else changed it meanwhile; left as they wanted it.
    pub changed_by_others: Vec<String>,
    /// It could not be put back; `schedlab restore` tries again.
    pub failed: Vec<String>,
}

impl GivenBack {
    fn add(&mut self, report: &Report) {
        for item in &report.items {
            match &item.outcome {
                Put::ChangedByOthers => self.changed_by_others.push(item.what.clone()),
                Put::Failed(why) => self.failed.push(format!("{}: {why}", item.what)),
                Put::Restored | Put::AsBefore | Put::Gone => {}
            }
        }
    }
}

/// One step of a dry run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Intent {
    /// Which actuator.
    pub actuator: Actuator,
    /// What it would change: a thread with its policy, a file with its content.
    pub changes: Vec<String>,
    /// Why it would not be tried.
    pub skipped: Option<String>,
}

/// Tries, confirms, keeps; afterwards everything is as before. `stop` is asked every 20 ms.
///
/// # Errors
/// See [`ColocateError`].
pub fn colocate(
    plan: &Plan,
    watch: &mut dyn Watch,
    stop: &dyn Fn() -> bool,
) -> Result<Colocation, ColocateError> {
    let mut trial = Trial::start(plan, stop)?;
    let mut found = Colocation::nothing_yet(plan, trial.cpus);
    search(&mut trial, plan, &mut found, watch)?;
    if let (Some(how), Some(time)) = (found.chosen, plan.keep_for) {
        let held = trial.set(how)?;
        watch.keeping(how, time);
        found.kept = trial.keep(how, held, time, &mut |round| {
            let met = judge(&plan.goals, std::slice::from_ref(round), &found.before, &found.alone);
            watch.kept(round, met);
        })?;
        found.kept_outcome = Some(judge(&plan.goals, &found.kept, &found.before, &found.alone));
    }
    (found.awake, found.stood_still_ns) = (trial.awake, trial.stood_still.as_nanos() as u64);
    found.batch_restarts = trial.batch_restarts();
    found.given_back = trial.finish()?;
    Ok(found)
}

/// The outcome of both.
fn worse(one: GateOutcome, other: GateOutcome) -> GateOutcome {
    match (one, other) {
        (GateOutcome::Not, _) | (_, GateOutcome::Not) => GateOutcome::Not,
        (GateOutcome::CannotSay, _) | (_, GateOutcome::CannotSay) => GateOutcome::CannotSay,
        _ => GateOutcome::Met,
    }
}

/// The outcome of one round, beside the last of those alone.
fn look(goals: &[Goal], round: &Round, before: &[Round], alone: &[Round]) -> GateOutcome {
    let mut all = judge(goals, std::slice::from_ref(round), before, &[]);
    for (index, goal) in goals.iter().enumerate() {
        if goal.0.against == Against::Alone {
            all = worse(all, alone::first_look(goals, index, round, alone));
        }
    }
    all
}

/// Why it need not be tried.
fn unfit(plan: &Plan, how: Actuator) -> Option<String> {
    if how != Actuator::Default && !plan.only.is_empty() && !plan.only.contains(&how) {
        return Some("--try does not name it".to_owned());
    }
    if how.acts_on_group() && !matches!(plan.batch, Who::Group(_)) {
        return Some("needs --batch-cgroup".to_owned());
    }
    let stall = how.stall()?;
    let goal = plan.goals.iter().find(|goal| goal.forbids(stall))?;
    Some(format!("the kernel stops the server for {stall} at times then, which '{}' does not allow", goal.0))
}

/// Why it would change nothing.
fn void(how: Actuator, server: &actuators::Side, cpus: &CpuSet) -> Option<&'static str> {
    match how {
        Actuator::QuotaOff => {
            server.limits().is_empty().then_some("no control group of the server has a cpu.max")
        }
        Actuator::Apart => how.batch_cpus(cpus).is_none().then_some("needs two managed CPUs or more"),
        _ => None,
    }
}

/// Whether the medians of the goals' values over these rounds meet all goals. Goals about the server alone are looked at
/// where there are rounds of that.
pub fn judge(goals: &[Goal], rounds: &[Round], before: &[Round], alone: &[Round]) -> GateOutcome {
    let mut all = GateOutcome::Met;
    for (index, goal) in goals.iter().enumerate() {
        let median = |rounds: &[Round]| {
            let values = rounds.iter().filter_map(|round| round.goals.get(index).copied().flatten());
            Estimate::from_values(values.collect()).map(|estimate| estimate.median)
        };
        let lacks = rounds.iter().find_map(|round| round.evidence(index, None).lacks);
        let than = match goal.0.against {
            Against::Before => before,
            Against::Alone if alone.is_empty() && lacks.is_none() => continue,
            Against::Alone => alone,
        };
        let evidence = Evidence { before: median(than), after: median(rounds), told_apart: true, lacks };
        all = worse(all, goal.0.judge(&evidence));
    }
    all
}

/// What would be changed. Starts nothing and changes nothing.
///
/// # Errors
/// When a process or group that was named does not exist.
pub fn intentions(plan: &Plan) -> Result<Vec<Intent>, ColocateError> {
    let side = |who: &Who| match who {
        Who::Command(_) => Ok(actuators::Side::default()),
        _ => party::Party::new(who, CpuSet::EMPTY).map(|party| party.side.clone()),
    };
    let (server, batch) = (side(&plan.serve)?, side(&plan.batch)?);
    let online = schedlab_host::machine().online;
    let cpus = plan.cpus.unwrap_or_else(|| server.cpus(&online));
    let one = |how: Actuator| {
        let (who, side) = if how.acts_on_server() { (&plan.serve, &server) } else { (&plan.batch, &batch) };
        let mut changes = Vec::new();
        if let Who::Command(command) = who
            && !matches!(how, Actuator::Default)
        {
            changes.push(format!("every thread of `{command}`: {}", advice(how).what));
        }
        for thread in side.threads() {
            let Ok(now) = schedlab_host::threads::scheduling(thread.tid) else { continue };
            if let Some(wanted) = how.scheduling_for(&now).filter(|wanted| *wanted != now) {
                let (tid, comm) = (thread.tid, &thread.comm);
                let (was, will) = (now.policy, wanted.policy);
                changes.push(format!(
                    "thread {tid} ({comm}): {was} nice {} -> {will} nice {}",
                    now.nice.get(),
                    wanted.nice.get()
                ));
            }
        }
        if let Some(cpus) = how.batch_cpus(&cpus) {
            changes.extend(
                side.threads()
                    .iter()
                    .map(|thread| format!("thread {} ({}): CPUs {cpus}", thread.tid, thread.comm)),
            );
        }
        let mut files = batch.group.as_ref().map(|group| how.files(group, cpus.count())).unwrap_or_default();
        if how == Actuator::QuotaOff {
            files.extend(server.limits());
        }
        changes.extend(files.iter().map(|(path, content)| format!("{}: {content}", path.display())));
        let unfit = unfit(plan, how).or_else(|| void(how, &server, &cpus).map(str::to_owned));
        let agent = || (how == Actuator::Elevation).then(|| elevate::unfit(&cpus, &online)).flatten();
        let skipped = unfit.or_else(agent);
        let changes = if skipped.is_some() { Vec::new() } else { changes };
        Intent { actuator: how, changes, skipped }
    };
    Ok(LADDER.into_iter().filter(|how| *how != Actuator::Default).map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn goal(text: &str) -> Vec<Goal> {
        vec![Goal(Gate::parse_with(text, Some("latency")).unwrap())]
    }

    pub(super) fn rounds(values: &[f64]) -> Vec<Round> {
        let round = |value: &f64| Round { goals: vec![Some(*value)], lacks: vec![None], ..Round::default() };
        values.iter().map(round).collect()
    }

    #[test]
    fn a_goal_is_met_when_its_condition_is_true() {
        let goals = goal("p99 < 1ms");
        assert_eq!(judge(&goals, &rounds(&[2e5, 3e5, 9e6]), &[], &[]), GateOutcome::Met);
        assert_eq!(judge(&goals, &rounds(&[2e5, 3e6, 9e6]), &[], &[]), GateOutcome::Not);
        let half = goal("p99 < -50%");
        assert_eq!(judge(&half, &rounds(&[4e5]), &rounds(&[1e6]), &[]), GateOutcome::Met);
        assert_eq!(judge(&half, &rounds(&[6e5]), &rounds(&[1e6]), &[]), GateOutcome::Not);
        assert_eq!(judge(&half, &rounds(&[6e5]), &[], &[]), GateOutcome::CannotSay);
    }

    #[test]
    fn too_few_values_cannot_say() {
        let few = Round { goals: vec![Some(1.0)], lacks: vec![Some("few".to_owned())], ..Round::default() };
        assert_eq!(judge(&goal("p99 < 1ms"), &[few], &[], &[]), GateOutcome::CannotSay);
    }
}
