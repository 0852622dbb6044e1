//! Which setting is chosen.
//!
//! The settings are tried in stages: those of the stock kernel, the mildest first; schedlab's own
//! scheduler; those that are known to stall the server. The first that meets the goals in its
//! interleaved rounds is chosen. Before the next stage, settings that the rounds did not decide get
//! more of them: a setting must not lose to a harsher one only because the machine was noisy. A
//! setting that its last rounds do not decide either is not known to miss the goals: the mildest of
//! those is chosen then, and the answer says that it is not sure. Where nothing can be said of a
//! milder setting, for want of values, no setting that stalls the server is tried unless the user
//! names it.

use super::answer::{ColocateObserver, Colocation, Tried};
use super::distance::{Distance, distances};
use super::error::ColocateError;
use super::judge::{judge, judge_first_pairs, worse};
use super::plan::ColocatePlan;
use super::round::Round;
use super::trial::Trial;
use schedlab_live::LiveError;
use schedlab_live::actuators::{Actuator, LADDER};
use schedlab_study::gate::GateOutcome;

/// A setting's pairs of rounds are judged after so many times the rounds of the plan, until their
/// interval tells: at once ...
const LOOKS: [usize; 2] = [1, 2];
/// ... and when nothing milder than the next stage meets the goals. Each look is one more at the
/// same rounds, which costs it confidence ([`distances`]); so there are few of them, each at twice
/// as many rounds.
const LATER_LOOKS: [usize; 2] = [4, MOST_TIMES];
/// Goals against the server alone get so many times the rounds of the plan at most.
pub const MOST_TIMES: usize = 8;

/// Measures rounds: a [`Trial`], or numbers that a test pretends.
pub(super) trait Rounds {
    /// Measures one round under `how`. Returns how many threads and files were changed, and the
    /// values.
    fn round(&mut self, how: Actuator) -> Result<(usize, Round), ColocateError>;
    /// Measures one round in which the batch work is stopped.
    fn alone(&mut self) -> Result<Round, ColocateError>;
    /// Returns why `how` would change nothing.
    fn changes_nothing(&self, how: Actuator) -> Option<&'static str>;
}

impl Rounds for Trial<'_> {
    fn round(&mut self, how: Actuator) -> Result<(usize, Round), ColocateError> {
        Trial::round(self, how)
    }
    fn alone(&mut self) -> Result<Round, ColocateError> {
        Trial::alone(self)
    }
    fn changes_nothing(&self, how: Actuator) -> Option<&'static str> {
        Trial::changes_nothing(self, how)
    }
}

/// The order in which actuators are tried, in three groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Settings of the stock kernel.
    Settings,
    /// schedlab's own scheduler.
    Elevation,
    /// Settings that stall the server at times.
    Stalls,
}

impl Stage {
    const ALL: [Stage; 3] = [Stage::Settings, Stage::Elevation, Stage::Stalls];

    fn from_actuator(how: Actuator) -> Stage {
        match how {
            _ if how.stall().is_some() => Stage::Stalls,
            Actuator::Elevation => Stage::Elevation,
            _ => Stage::Settings,
        }
    }
}

/// A setting in interleaved rounds.
struct Candidate {
    how: Actuator,
    before: Vec<Round>,
    after: Vec<Round>,
    alone: Vec<Round>,
    distances: Vec<Distance>,
    outcome: GateOutcome,
    /// Whether more rounds may decide.
    open: bool,
}

/// Tries and confirms, and fills the answer in.
pub(super) fn search(
    rounds: &mut dyn Rounds,
    plan: &ColocatePlan,
    found: &mut Colocation,
    observer: &mut dyn ColocateObserver,
) -> Result<(), ColocateError> {
    // Whether too little was seen of a setting to say that none meets the goals.
    let mut unseen: Vec<Actuator> = Vec::new();
    let mut alone = Vec::new();
    if plan.needs_alone() {
        observer.alone();
        alone.push(rounds.alone()?);
    }
    for stage in Stage::ALL {
        let mut open: Vec<Candidate> = Vec::new();
        for how in LADDER.into_iter().filter(|how| Stage::from_actuator(*how) == stage) {
            if let Some(tried) = stalls_for_nothing(how, plan, &unseen) {
                found.tried.push(tried);
                continue;
            }
            let tried = attempt(rounds, plan, how, found, &mut alone, observer)?;
            let lacks = tried.round.iter().any(|round| round.lacks.iter().any(Option::is_some));
            // Where rounds alone differ from each other as much as this one from the bound, more of
            // them can decide.
            let near = !alone.is_empty() && !lacks && tried.outcome == Some(GateOutcome::CannotSay);
            let candidate = tried.outcome == Some(GateOutcome::Met) || near;
            if how == Actuator::Default && tried.outcome == Some(GateOutcome::CannotSay) && !near {
                observer.tried(&tried);
                found.outcome = GateOutcome::CannotSay;
                found.before.extend(tried.round.clone());
                found.tried.push(tried);
                return Ok(());
            }
            if tried.outcome == Some(GateOutcome::CannotSay) && !candidate {
                unseen.push(how);
            }
            observer.tried(&tried);
            found.tried.push(tried);
            if !candidate {
                continue;
            }
            let mut candidate = Candidate::new(how);
            let looked = candidate.look(rounds, plan, &LOOKS, "confirming", observer);
            // What was measured is told in any case.
            candidate.tell(found);
            looked?;
            if candidate.outcome == GateOutcome::Met {
                found.choose(how);
                return Ok(());
            }
            if candidate.outcome == GateOutcome::CannotSay && !candidate.open {
                unseen.push(how);
            }
            if candidate.open {
                open.push(candidate);
            }
        }
        decide(open, rounds, plan, found, observer)?;
        if found.chosen.is_some() {
            return Ok(());
        }
    }
    if !unseen.is_empty() {
        found.outcome = GateOutcome::CannotSay;
    }
    Ok(())
}

/// Gives the undecided settings of a stage more rounds. The first that meets the goals is chosen,
/// else the mildest that may.
fn decide(
    mut open: Vec<Candidate>,
    rounds: &mut dyn Rounds,
    plan: &ColocatePlan,
    found: &mut Colocation,
    observer: &mut dyn ColocateObserver,
) -> Result<(), ColocateError> {
    for candidate in &mut open {
        let looked = candidate.look(rounds, plan, &LATER_LOOKS, "not decided yet", observer);
        candidate.tell(found);
        looked?;
        if candidate.outcome == GateOutcome::Met {
            found.choose(candidate.how);
            return Ok(());
        }
    }
    open.retain(|candidate| candidate.outcome == GateOutcome::CannotSay);
    found.undecided.extend(open.iter().map(|candidate| candidate.how));
    if let Some(mildest) = open.first() {
        mildest.tell(found);
        found.choose(mildest.how);
    }
    Ok(())
}

/// Returns that `how`, which stalls the server at times, is not tried: nothing can be said of
/// milder settings, and the user does not name it.
fn stalls_for_nothing(how: Actuator, plan: &ColocatePlan, unseen: &[Actuator]) -> Option<Tried> {
    let stall = how.stall().filter(|_| !unseen.is_empty() && !plan.only.contains(&how))?;
    let milder: Vec<&str> = unseen.iter().map(|how| how.name()).collect();
    let why = format!(
        "it stops the server for {stall} at times, and whether {} would do could not be told: a \
         longer --round may tell, --try {} \
         tries it all the same",
        milder.join(", "),
        how.name()
    );
    Some(Tried { actuator: how, changed: 0, outcome: None, round: None, skipped: Some(why) })
}

/// Tries `how` in its first rounds.
fn attempt(
    rounds: &mut dyn Rounds,
    plan: &ColocatePlan,
    how: Actuator,
    found: &Colocation,
    alone: &mut Vec<Round>,
    observer: &mut dyn ColocateObserver,
) -> Result<Tried, ColocateError> {
    let mut tried = Tried { actuator: how, changed: 0, outcome: None, round: None, skipped: None };
    tried.skipped = plan.rules_out(how).or_else(|| rounds.changes_nothing(how).map(str::to_owned));
    if tried.skipped.is_some() {
        return Ok(tried);
    }
    observer.round("trying", how);
    match rounds.round(how) {
        Ok((changed, round)) => {
            // No interleaved rounds exist yet: the first round of the trial is the "before".
            let before = found.tried.first().and_then(|first| first.round.clone());
            let before = before.unwrap_or_else(|| round.clone());
            if !alone.is_empty() {
                observer.alone();
                alone.push(rounds.alone()?);
            }
            let mut pair = || -> Result<(Round, Round), ColocateError> {
                observer.round("once more", how);
                let round = rounds.round(how)?.1;
                observer.alone();
                Ok((round, rounds.alone()?))
            };
            let (round, outcome) =
                judge_first_pairs(&plan.goals, round, &[before], alone, &mut pair)?;
            (tried.changed, tried.round, tried.outcome) = (changed, Some(round), Some(outcome));
        }
        // The kernel may allow another actuator.
        Err(ColocateError::Live(error @ (LiveError::Refused { .. } | LiveError::Group { .. })))
            if how != Actuator::Default =>
        {
            tried.skipped = Some(error.to_string());
        }
        Err(ColocateError::Skip(why)) => tried.skipped = Some(why),
        Err(error) => return Err(error),
    }
    Ok(tried)
}

impl Candidate {
    fn new(how: Actuator) -> Candidate {
        let (before, after, alone, distances) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Candidate {
            how,
            before,
            after,
            alone,
            distances,
            outcome: GateOutcome::CannotSay,
            open: true,
        }
    }

    /// Measures interleaved rounds, and judges them after each of so many times the rounds of the
    /// plan, until they decide.
    fn look(
        &mut self,
        rounds: &mut dyn Rounds,
        plan: &ColocatePlan,
        times: &[usize],
        what: &str,
        observer: &mut dyn ColocateObserver,
    ) -> Result<(), ColocateError> {
        for times in times {
            if !self.open {
                break;
            }
            while self.after.len() < plan.rounds * times {
                self.measure(rounds, plan, what, observer)?;
            }
            self.judge(plan);
        }
        Ok(())
    }

    fn measure(
        &mut self,
        rounds: &mut dyn Rounds,
        plan: &ColocatePlan,
        what: &str,
        observer: &mut dyn ColocateObserver,
    ) -> Result<(), ColocateError> {
        if plan.needs_alone() {
            observer.alone();
            self.alone.push(rounds.alone()?);
        }
        // The pair decides; the default is measured beside it for the table.
        if self.how == Actuator::Default || self.before.len() < plan.rounds {
            observer.round(what, Actuator::Default);
            self.before.push(rounds.round(Actuator::Default)?.1);
        }
        if self.how == Actuator::Default {
            self.after.clone_from(&self.before);
        } else {
            observer.round(what, self.how);
            self.after.push(rounds.round(self.how)?.1);
        }
        Ok(())
    }

    fn judge(&mut self, plan: &ColocatePlan) {
        self.distances = distances(&plan.goals, &self.after, &self.alone, &self.distances);
        let rest = judge(&plan.goals, &self.after, &self.before, &[]);
        let all = plan.goals.iter().filter(|goal| goal.is_against_alone()).count();
        // Nothing was seen of a goal without a distance, which no further round would change.
        let rest =
            if self.distances.len() < all { worse(rest, GateOutcome::CannotSay) } else { rest };
        self.outcome = self.distances.iter().fold(rest, |all, one| worse(all, one.outcome));
        self.open = self.outcome == GateOutcome::CannotSay && rest == GateOutcome::Met;
    }

    /// Copies what was measured into the answer, in place of an earlier candidate's.
    fn tell(&self, found: &mut Colocation) {
        found.before.clone_from(&self.before);
        found.after.clone_from(&self.after);
        found.alone.clone_from(&self.alone);
        found.distances.clone_from(&self.distances);
        found.outcome = self.outcome;
        if self.outcome == GateOutcome::Not {
            found.refuted.push(self.how);
        }
    }
}

#[cfg(test)]
mod tests;
