//! Which setting is chosen.
//!
//! The settings are tried in stages: those of the stock kernel, the mildest first; our own scheduler; what is known to stall
//! the server. The first that meets the goals in its interleaved rounds is chosen. Before the next stage, those of which the
//! rounds did not tell get more of them: a setting must not lose to a harsher one only because the machine was noisy. Which
//! of them still cannot be told when all its rounds are used up is not known to miss the goals either: the mildest of those
//! is chosen then, and the answer says that it is not sure.

use super::alone::{self, Distance};
use super::round::Round;
use super::trial::Trial;
use super::{ColocateError, Colocation, Plan, Tried, Watch, advice, judge, unfit, worse};
use schedlab_live::LiveError;
use schedlab_live::actuators::{Actuator, LADDER};
use schedlab_study::gate::{Against, GateOutcome};

/// A setting's pairs of rounds are looked at after so many times the rounds of the plan, until their interval tells: at once ...
const LOOKS: [usize; 2] = [1, 2];
/// ... and when nothing milder than the next stage meets the goals. Each look is one more at the same rounds, which
/// [`alone::distances`] takes off its confidence; so they are few, and each has twice as many.
const LATER_LOOKS: [usize; 2] = [4, MOST];
/// Goals about the server alone get so many times the rounds of the plan at most.
pub const MOST: usize = 8;

/// What can be measured.
pub(super) trait Rounds {
    /// One round under `how`: how much was changed, and what was measured.
    fn round(&mut self, how: Actuator) -> Result<(usize, Round), ColocateError>;
    /// One round in which the batch work stands still.
    fn alone(&mut self) -> Result<Round, ColocateError>;
    /// Why `how` would change nothing.
    fn void(&self, how: Actuator) -> Option<&'static str>;
}

impl Rounds for Trial<'_> {
    fn round(&mut self, how: Actuator) -> Result<(usize, Round), ColocateError> {
        Trial::round(self, how)
    }
    fn alone(&mut self) -> Result<Round, ColocateError> {
        Trial::alone(self)
    }
    fn void(&self, how: Actuator) -> Option<&'static str> {
        Trial::void(self, how)
    }
}

/// When it is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Settings,
    OurScheduler,
    Stalls,
}

impl Stage {
    const ALL: [Stage; 3] = [Stage::Settings, Stage::OurScheduler, Stage::Stalls];

    fn of(how: Actuator) -> Stage {
        match how {
            _ if how.stall().is_some() => Stage::Stalls,
            Actuator::Elevation => Stage::OurScheduler,
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
    /// More rounds may tell.
    open: bool,
}

/// Tries and confirms; fills in what was found.
pub(super) fn search(
    rounds: &mut dyn Rounds,
    plan: &Plan,
    found: &mut Colocation,
    watch: &mut dyn Watch,
) -> Result<(), ColocateError> {
    // Too little was seen of one of them to say that none meets the goals.
    let mut unseen = false;
    let mut alone = Vec::new();
    if alone::wanted(&plan.goals) {
        watch.alone();
        alone.push(rounds.alone()?);
    }
    for stage in Stage::ALL {
        let mut open: Vec<Candidate> = Vec::new();
        for how in LADDER.into_iter().filter(|how| Stage::of(*how) == stage) {
            let tried = attempt(rounds, plan, how, found, &mut alone, watch)?;
            let lacks = tried.round.iter().any(|round| round.lacks.iter().any(Option::is_some));
            // Where rounds alone were as far from each other as this one from the bound, more of them tell.
            let near = !alone.is_empty() && !lacks && tried.outcome == Some(GateOutcome::CannotSay);
            let candidate = tried.outcome == Some(GateOutcome::Met) || near;
            if how == Actuator::Default && tried.outcome == Some(GateOutcome::CannotSay) && !near {
                found.outcome = GateOutcome::CannotSay;
                found.before.extend(tried.round.clone());
                found.tried.push(tried);
                return Ok(());
            }
            found.tried.push(tried);
            if !candidate {
                continue;
            }
            let mut candidate = Candidate::new(how);
            candidate.look(rounds, plan, &LOOKS, "confirming", watch)?;
            candidate.tell(found);
            if candidate.outcome == GateOutcome::Met {
                found.choose(how);
                return Ok(());
            }
            unseen |= candidate.outcome == GateOutcome::CannotSay && !candidate.open;
            if candidate.open {
                open.push(candidate);
            }
        }
        for candidate in &mut open {
            candidate.look(rounds, plan, &LATER_LOOKS, "not decided yet", watch)?;
            candidate.tell(found);
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
            return Ok(());
        }
    }
    if unseen {
        found.outcome = GateOutcome::CannotSay;
    }
    Ok(())
}

impl Colocation {
    fn choose(&mut self, how: Actuator) {
        self.chosen = Some(how);
        self.advice = (how != Actuator::Default).then(|| advice(how));
    }
}

/// One round under `how`.
fn attempt(
    rounds: &mut dyn Rounds,
    plan: &Plan,
    how: Actuator,
    found: &Colocation,
    alone: &mut Vec<Round>,
    watch: &mut dyn Watch,
) -> Result<Tried, ColocateError> {
    let mut tried = Tried { actuator: how, changed: 0, outcome: None, round: None, skipped: None };
    tried.skipped = unfit(plan, how).or_else(|| rounds.void(how).map(str::to_owned));
    if tried.skipped.is_some() {
        return Ok(tried);
    }
    watch.round("trying", how);
    match rounds.round(how) {
        Ok((changed, round)) => {
            // The first round is the only "before" that there is yet.
            let before = found.tried.first().and_then(|first| first.round.clone());
            let before = before.unwrap_or_else(|| round.clone());
            if !alone.is_empty() {
                watch.alone();
                alone.push(rounds.alone()?);
            }
            let mut pair = || -> Result<(Round, Round), ColocateError> {
                watch.round("once more", how);
                let round = rounds.round(how)?.1;
                watch.alone();
                Ok((round, rounds.alone()?))
            };
            let (round, outcome) = alone::looks(&plan.goals, round, &[before], alone, &mut pair)?;
            (tried.changed, tried.round, tried.outcome) = (changed, Some(round), Some(outcome));
        }
        // What the kernel refuses here may still be followed by something that it allows.
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
        Candidate { how, before, after, alone, distances, outcome: GateOutcome::CannotSay, open: true }
    }

    /// Interleaved rounds, looked at after each of so many times those of the plan, until they tell.
    fn look(
        &mut self,
        rounds: &mut dyn Rounds,
        plan: &Plan,
        times: &[usize],
        what: &str,
        watch: &mut dyn Watch,
    ) -> Result<(), ColocateError> {
        for times in times {
            if !self.open {
                break;
            }
            while self.after.len() < plan.rounds * times {
                self.measure(rounds, plan, what, watch)?;
            }
            self.judge(plan);
        }
        Ok(())
    }

    fn measure(
        &mut self,
        rounds: &mut dyn Rounds,
        plan: &Plan,
        what: &str,
        watch: &mut dyn Watch,
    ) -> Result<(), ColocateError> {
        if alone::wanted(&plan.goals) {
            watch.alone();
            self.alone.push(rounds.alone()?);
        }
        // What decides is the pair; the default stands beside it for the table.
        if self.how == Actuator::Default || self.before.len() < plan.rounds {
            watch.round(what, Actuator::Default);
            self.before.push(rounds.round(Actuator::Default)?.1);
        }
        if self.how == Actuator::Default {
            self.after.clone_from(&self.before);
        } else {
            watch.round(what, self.how);
            self.after.push(rounds.round(self.how)?.1);
        }
        Ok(())
    }

    fn judge(&mut self, plan: &Plan) {
        self.distances = alone::distances(&plan.goals, &self.after, &self.alone, &self.distances);
        let rest = judge(&plan.goals, &self.after, &self.before, &[]);
        let all = plan.goals.iter().filter(|goal| goal.0.against == Against::Alone).count();
        // A goal without a distance was not seen, which no further round would mend.
        let rest = if self.distances.len() < all { worse(rest, GateOutcome::CannotSay) } else { rest };
        self.outcome = self.distances.iter().fold(rest, |all, one| worse(all, one.outcome));
        self.open = self.outcome == GateOutcome::CannotSay && rest == GateOutcome::Met;
    }

    /// What it found stands in the answer, until another one does.
    fn tell(&self, found: &mut Colocation) {
        found.before.clone_from(&self.before);
        found.after.clone_from(&self.after);
        found.alone.clone_from(&self.alone);
        found.distances.clone_from(&self.distances);
        found.outcome = self.outcome;
    }
}

#[cfg(test)]
mod tests;
