//! What `colocate` answers, and what it tells while it works.

use super::advice::{Advice, advice};
use super::awake::KeptAwake;
use super::distance::Distance;
use super::intentions::Intent;
use super::plan::ColocatePlan;
use super::round::Round;
use schedlab_live::actuators::Actuator;
use schedlab_live::restore::{ItemOutcome, Report};
use schedlab_model::{CpuSet, Ns};
use schedlab_study::gate::GateOutcome;
use schemars::JsonSchema;
use serde::Serialize;

/// Version of the JSON: docs/live-schema.md.
pub const SCHEMA: &str = "schedlab-colocate/1";

/// Is told what `colocate` does.
pub trait ColocateObserver {
    /// Called when a round under `how` begins; `what` says what it is for.
    fn round(&mut self, _what: &str, _how: Actuator) {}
    /// Called when a round of the server alone begins.
    fn alone(&mut self) {}
    /// Called when the first rounds of an actuator are judged.
    fn tried(&mut self, _tried: &Tried) {}
    /// Called when the chosen actuator is set, to be kept for `time`.
    fn keeping(&mut self, _how: Actuator, _time: Ns) {}
    /// Called when a round of keeping has ended, with whether the goals were met.
    fn kept(&mut self, _round: &Round, _met: GateOutcome) {}
}

impl ColocateObserver for () {}

/// One actuator in its first round.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Tried {
    /// The actuator.
    pub actuator: Actuator,
    /// Number of threads and files that it changed.
    pub changed: usize,
    /// Whether the goals were met in that round.
    pub outcome: Option<GateOutcome>,
    /// What the round measured; `None`: it was not tried.
    pub round: Option<Round>,
    /// Why it was not tried; `None`: it was.
    pub skipped: Option<String>,
}

/// The answer.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Colocation {
    /// The goals as they were given.
    pub goals: Vec<String>,
    /// The managed CPUs.
    pub cpus: CpuSet,
    /// Every actuator, in the order of the trial.
    pub tried: Vec<Tried>,
    /// The mildest actuator that meets the goals; with an outcome of `cannot-say` the mildest that
    /// may meet them.
    pub chosen: Option<Actuator>,
    /// Whether the goals are met, over the confirming rounds of the chosen actuator, or of the last
    /// candidate.
    pub outcome: GateOutcome,
    /// Whether the user ended it before there was an answer: what is here is of the rounds that
    /// were finished.
    pub partial: bool,
    /// With `partial`: the mildest actuator that met the goals in the rounds that were finished;
    /// `null`: none did.
    pub so_far: Option<Actuator>,
    /// What delays the server most, as a sentence, where that is not the batch work.
    pub not_the_batch: Option<String>,
    /// Actuators that met the goals in their first rounds, and not in the interleaved ones.
    #[serde(skip)]
    pub(super) refuted: Vec<Actuator>,
    /// The interleaved rounds under the host's default.
    pub before: Vec<Round>,
    /// Those under the chosen actuator; of the last candidate when none was chosen.
    pub after: Vec<Round>,
    /// Rounds of the server alone, one beside each of those; empty: no goal asks for it.
    pub alone: Vec<Round>,
    /// The distance of the last candidate from the rounds alone, for each goal that asks.
    pub distances: Vec<Distance>,
    /// Candidates that used up their rounds without an answer whether they meet the goals.
    pub undecided: Vec<Actuator>,
    /// How the CPUs were kept awake while the server was alone.
    pub awake: Option<KeptAwake>,
    /// How long the batch work was stopped for that, in all (ns).
    pub stood_still_ns: u64,
    /// Rounds while the chosen actuator was kept.
    pub kept: Vec<Round>,
    /// Whether the goals were met in those rounds; `None`: it was not kept.
    pub kept_outcome: Option<GateOutcome>,
    /// How often the batch work ended and was started again.
    pub batch_restarts: usize,
    /// The same setting for other tools.
    pub advice: Option<Advice>,
    /// What is not as before, and why.
    pub given_back: GivenBack,
}

impl Colocation {
    /// Returns an answer in which nothing is tried yet.
    pub(super) fn new(plan: &ColocatePlan, cpus: CpuSet) -> Colocation {
        Colocation {
            goals: plan.goals.iter().map(|goal| goal.0.to_string()).collect(),
            cpus,
            tried: Vec::new(),
            chosen: None,
            outcome: GateOutcome::Not,
            partial: false,
            so_far: None,
            not_the_batch: None,
            refuted: Vec::new(),
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

    /// Returns whether a round was finished, of which something can be said.
    pub(super) fn has_rounds(&self) -> bool {
        self.tried.iter().any(|tried| tried.round.is_some())
    }

    /// Makes an answer of the rounds that were finished when the user ended it.
    pub(super) fn end_early(&mut self) {
        (self.partial, self.outcome) = (true, GateOutcome::CannotSay);
        let met = |tried: &&Tried| tried.outcome == Some(GateOutcome::Met);
        let mut met = self.tried.iter().filter(met).map(|tried| tried.actuator);
        self.so_far = met.find(|how| !self.refuted.contains(how));
    }

    /// Returns the rounds under the host's default.
    pub(super) fn by_default(&self) -> Vec<Round> {
        match self.before.is_empty() {
            true => self.tried.iter().take(1).filter_map(|tried| tried.round.clone()).collect(),
            false => self.before.clone(),
        }
    }

    pub(super) fn choose(&mut self, how: Actuator) {
        self.chosen = Some(how);
        self.advice = (how != Actuator::Default).then(|| advice(how));
    }
}

/// The JSON of `colocate`: an answer, or with `--dry-run` what would be tried.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
#[serde(untagged)]
pub enum ColocateOutput<'a> {
    /// The mildest setting under which the server beside the batch work meets its goals.
    Answer(ColocateAnswer<'a>),
    /// What would be tried.
    DryRun(ColocateDryRun<'a>),
}

/// The mildest setting under which the server beside the batch work meets its goals, as JSON.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct ColocateAnswer<'a> {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// Names of the values in `figures` of each round.
    pub figures: Vec<String>,
    /// The answer.
    #[serde(flatten)]
    pub found: &'a Colocation,
}

/// What `colocate --dry-run` would try, as JSON.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct ColocateDryRun<'a> {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// Always true.
    pub dry_run: bool,
    /// The actuators in the order of the trial.
    pub would_try: &'a [Intent],
}

/// What is not as it was before the trial; empty when everything is.
#[derive(Clone, PartialEq, Eq, Debug, Default, JsonSchema, Serialize)]
pub struct GivenBack {
    /// Another program changed it meanwhile: left as that program set it.
    pub changed_by_others: Vec<String>,
    /// It could not be put back; `schedlab restore` tries again.
    pub failed: Vec<String>,
}

impl GivenBack {
    pub(super) fn add(&mut self, report: &Report) {
        for item in &report.items {
            match &item.outcome {
                ItemOutcome::ChangedByOthers => self.changed_by_others.push(item.what.clone()),
                ItemOutcome::Failed(why) => self.failed.push(format!("{}: {why}", item.what)),
                ItemOutcome::Restored | ItemOutcome::AsBefore | ItemOutcome::Gone => {}
            }
        }
    }
}
