//! The server alone: what it can be on these CPUs when the batch work stands still, and how far a setting is from that.
//!
//! The batch processes are stopped (SIGSTOP, in the journal first, so that the guardians let them go on whatever becomes of us).
//! Their CPUs must not fall asleep then: leaving idle costs the server more than the batch did at times. So a SCHED_IDLE
//! thread of ours spins on each of them; where the server is in another group of tasks, that thread would be its group's equal,
//! and the kernel is asked for no latency of idle states instead (`/dev/cpu_dma_latency`, which ends with us).
//!
//! A machine is never the same for long: a round alone stands beside each round of a setting, and what is judged is the
//! median of their distances, pair by pair, with its interval ([`median_interval`]).

use super::round::Round;
use super::{ColocateError, Goal, Plan};
use schedlab_host::threads::{self, Scheduling};
use schedlab_live::actuators::Side;
use schedlab_model::{CpuSet, Policy};
use schedlab_stats::{OrderInterval, median_interval};
use schedlab_study::gate::{Against, Bound, GateOutcome};
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// So many pairs of rounds must say that a goal is missed before a setting is given up. In a round of a second a p99 of some
/// thousand requests differs by a tenth from the next one.
const LOOKS: usize = 3;
/// A setting under which the server is worse than alone by this factor is given up after one pair.
const FAR: f64 = 2.0;

/// How the CPUs were kept awake while the server was alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Awake {
    /// A SCHED_IDLE thread spun on each.
    Spinner,
    /// No latency of idle states was asked of the kernel.
    NoLatency,
    /// They were not: the server's numbers hold the exit from idle.
    Not,
}

/// Holds the CPUs awake.
#[derive(Debug)]
pub(super) struct Watchman {
    pub(super) how: Awake,
    stop: Arc<AtomicBool>,
    spinners: Vec<JoinHandle<()>>,
    _request: Option<File>,
}

impl Watchman {
    pub(super) fn start(server: &Side, cpus: &CpuSet) -> Watchman {
        let stop = Arc::new(AtomicBool::new(false));
        if of_our_group(server) {
            let spin = |cpu| {
                let stop = stop.clone();
                std::thread::spawn(move || spin(&CpuSet::single(cpu), &stop))
            };
            let spinners = cpus.iter().map(spin).collect();
            return Watchman { how: Awake::Spinner, stop, spinners, _request: None };
        }
        let request = no_latency();
        let how = if request.is_some() { Awake::NoLatency } else { Awake::Not };
        Watchman { how, stop, spinners: Vec::new(), _request: request }
    }
}

impl Drop for Watchman {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for spinner in self.spinners.drain(..) {
            // It cannot panic, and there would be nothing to do.
            let _ = spinner.join();
        }
    }
}

fn spin(cpu: &CpuSet, stop: &AtomicBool) {
    // Never as somebody's equal, and never elsewhere: else not at all.
    let idle = threads::scheduling(0)
        .and_then(|now| threads::set_scheduling(0, &Scheduling { policy: Policy::Idle, slice: None, ..now }));
    if idle.and_then(|()| threads::set_affinity(0, cpu)).is_err() {
        return;
    }
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// Whether the server's threads share our group: SCHED_IDLE counts within a group only.
fn of_our_group(server: &Side) -> bool {
    let own = std::process::id();
    let on = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled").is_ok_and(|on| on.trim() == "1");
    let group = |pid: u32| {
        let session = if on { fs::read_to_string(format!("/proc/{pid}/autogroup")).ok() } else { None };
        (schedlab_host::cpu_groups_of(pid), session)
    };
    let ours = group(own);
    server.pids().into_iter().all(|pid| group(pid) == ours)
}

/// The request lasts as long as the file is open.
fn no_latency() -> Option<File> {
    let mut file = OpenOptions::new().write(true).open("/dev/cpu_dma_latency").ok()?;
    file.write_all(&0_i32.to_ne_bytes()).ok()?;
    Some(file)
}

/// How far the rounds of a setting are from those alone.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Distance {
    /// The goal as it was given.
    pub goal: String,
    /// Over the pairs: as a part of the value alone (0.1 is 10 % more), or in the metric's unit.
    pub of: OrderInterval,
    /// Whether it is a part.
    pub relative: bool,
    /// How many pairs.
    pub pairs: usize,
    /// Whether the goal is met; `cannot-say` where the interval holds both.
    pub outcome: GateOutcome,
}

/// Whether a goal is about the server alone.
pub(super) fn wanted(goals: &[Goal]) -> bool {
    goals.iter().any(|goal| goal.0.against == Against::Alone)
}

/// Distances of the goals that have one; the rounds are pairs. `looked` are those of an earlier look at fewer of these rounds that
/// did not tell: who looks twice is wrong as often as with both looks together at most (the union bound).
pub(super) fn distances(
    goals: &[Goal],
    rounds: &[Round],
    alone: &[Round],
    looked: &[Distance],
) -> Vec<Distance> {
    let of = |(index, goal): (usize, &Goal)| {
        let value = |round: &Round| round.goals.get(index).copied().flatten();
        let pairs = rounds.iter().zip(alone).filter_map(|(a, b)| Some((value(a)?, value(b)?)));
        let found: Vec<(f64, f64)> = pairs.filter_map(|(a, b)| goal.0.distance(a, b)).collect();
        let bound = found.first()?.1;
        let mut of = median_interval(found.iter().map(|pair| pair.0).collect())?;
        let text = goal.0.to_string();
        let earlier = looked.iter().find(|one| one.goal == text);
        of.confidence -= earlier.map_or(0.0, |one| 1.0 - one.of.confidence);
        of.confidence = of.confidence.max(0.0);
        let outcome = match [of.low, of.high].map(|end| goal.0.op.holds(end, bound)) {
            [true, true] => GateOutcome::Met,
            [false, false] => GateOutcome::Not,
            _ => GateOutcome::CannotSay,
        };
        let relative = matches!(goal.0.bound, Bound::Ratio(_));
        Some(Distance { goal: text, of, relative, pairs: found.len(), outcome })
    };
    let against = goals.iter().enumerate().filter(|(_, goal)| goal.0.against == Against::Alone);
    against.filter_map(of).collect()
}

/// One round beside one alone: `cannot-say` when it is as near to the bound as the rounds alone are to each other.
pub(super) fn first_look(goals: &[Goal], index: usize, round: &Round, alone: &[Round]) -> GateOutcome {
    let gate = &goals[index].0;
    let value = |round: &Round| round.goals.get(index).copied().flatten();
    let all: Vec<f64> = alone.iter().filter_map(value).collect();
    let (Some(now), Some(last)) = (value(round), all.last().copied()) else { return GateOutcome::CannotSay };
    let Some((found, bound)) = gate.distance(now, last) else { return GateOutcome::CannotSay };
    let noise = all.iter().filter_map(|one| gate.distance(*one, last)).map(|(off, _)| off.abs());
    let noise = noise.fold(0.0, f64::max);
    match [found, found - noise, found + noise].map(|value| gate.op.holds(value, bound)) {
        [_, true, true] => GateOutcome::Met,
        [_, false, false] => GateOutcome::Not,
        _ => GateOutcome::CannotSay,
    }
}

/// The outcome of a setting's first round, which stands beside the last one alone; and the round that was looked at last. Where one
/// pair says no, but not by far, more are asked of `pair`: a setting is given up when [`LOOKS`] of them agree. Where they
/// do not, that cannot be said yet.
pub(super) fn looks(
    goals: &[Goal],
    mut round: Round,
    before: &[Round],
    alone: &mut Vec<Round>,
    pair: &mut dyn FnMut() -> Result<(Round, Round), ColocateError>,
) -> Result<(Round, GateOutcome), ColocateError> {
    let outcome = super::look(goals, &round, before, alone);
    for _ in 1..LOOKS {
        if outcome != GateOutcome::Not || !near(goals, &round, before, alone) {
            return Ok((round, outcome));
        }
        let (next, beside) = pair()?;
        alone.push(beside);
        round = next;
        if super::look(goals, &round, before, alone) != GateOutcome::Not {
            return Ok((round, GateOutcome::CannotSay));
        }
    }
    Ok((round, outcome))
}

/// Whether only goals about the server alone are missed, and all of them by less than [`FAR`].
fn near(goals: &[Goal], round: &Round, before: &[Round], alone: &[Round]) -> bool {
    let value = |round: &Round, index: usize| round.goals.get(index).copied().flatten();
    let far = |index: usize| {
        let (Some(now), Some(last)) = (value(round, index), alone.last().and_then(|one| value(one, index)))
        else {
            return true;
        };
        now > last * FAR || last > now * FAR
    };
    let against = (0..goals.len()).filter(|index| goals[*index].0.against == Against::Alone);
    let mut missed = against.filter(|index| first_look(goals, *index, round, alone) == GateOutcome::Not);
    super::judge(goals, std::slice::from_ref(round), before, &[]) == GateOutcome::Met && !missed.any(far)
}

/// What cannot be alone, and parties that are one.
pub(super) fn refuse(plan: &Plan, server: &Side, batch: &Side) -> Option<String> {
    if !wanted(&plan.goals) {
        return None;
    }
    let of_batch =
        |goal: &&Goal| goal.0.against == Against::Alone && goal.0.subject.as_deref() == Some("batch");
    if let Some(goal) = plan.goals.iter().find(of_batch) {
        return Some(format!(
            "--goal '{}': alone, the batch work stands still; `alone` is about the server",
            goal.0
        ));
    }
    let (server, batch) = (server.pids(), batch.pids());
    if batch.contains(&std::process::id()) {
        return Some(
            "the batch work would be stopped to see the server alone, and schedlab itself is part of it: \
                     start schedlab elsewhere, or name fewer processes"
                .to_owned(),
        );
    }
    let both = server.iter().find(|pid| batch.contains(pid))?;
    Some(format!(
        "process {both} belongs to the server and to the batch work, which is stopped to see the server alone"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{goal, rounds};
    use super::*;

    #[test]
    fn pairs_are_judged_by_their_interval() {
        let goals = goal("p99 < alone + 10%");
        // The machine became twice as slow meanwhile, for both.
        let alone = rounds(&[100.0, 110.0, 200.0, 210.0, 190.0]);
        let judged = |factors: [f64; 5]| {
            let values: Vec<f64> =
                alone.iter().zip(factors).map(|(round, factor)| round.goals[0].unwrap() * factor).collect();
            distances(&goals, &rounds(&values), &alone, &[]).remove(0)
        };
        let near = judged([1.05, 1.02, 1.07, 0.99, 1.03]);
        assert_eq!((near.outcome, near.pairs), (GateOutcome::Met, 5));
        assert!((near.of.median - 0.03).abs() < 1e-9 && (near.of.high - 0.07).abs() < 1e-9, "{near:?}");
        assert!((near.of.confidence - 0.9375).abs() < 1e-9, "all of five: 1 - 2/2^5");
        assert_eq!(judged([1.05, 1.02, 1.17, 0.99, 1.03]).outcome, GateOutcome::CannotSay);
        assert_eq!(judged([1.5, 1.2, 1.7, 1.3, 1.2]).outcome, GateOutcome::Not);
        // Goals of other kinds have no distance, and values that were not seen make no pair.
        assert!(distances(&goal("p99 < 1ms"), &alone, &alone, &[]).is_empty());
        let unseen = Round { goals: vec![None], ..Round::default() };
        assert!(distances(&goals, std::slice::from_ref(&unseen), &alone, &[]).is_empty());
        assert!(distances(&goals, &alone[..1], &[unseen], &[]).is_empty());
    }

    #[test]
    fn a_second_look_costs_confidence() {
        let goals = goal("p99 < alone + 10%");
        let alone = rounds(&[100.0; 10]);
        let values = [105.0, 102.0, 117.0, 99.0, 103.0, 101.0, 104.0, 100.0, 98.0, 102.0];
        let first = distances(&goals, &rounds(&values[..5]), &alone[..5], &[]);
        let second = distances(&goals, &rounds(&values), &alone, &first).remove(0);
        let once = distances(&goals, &rounds(&values), &alone, &[]).remove(0);
        assert_eq!((first[0].outcome, second.outcome), (GateOutcome::CannotSay, GateOutcome::Met));
        // All of five; all of ten but one at each end: 2/2^5 and 2 (1 + 10)/2^10.
        assert!((once.of.confidence - (1.0 - 22.0 / 1024.0)).abs() < 1e-9);
        assert!((second.of.confidence - (once.of.confidence - 2.0 / 32.0)).abs() < 1e-9, "{second:?}");
        assert_eq!((second.of.low, second.of.high), (once.of.low, once.of.high));
    }

    #[test]
    fn a_first_look_knows_the_noise() {
        let goals = goal("p99 < alone + 10%");
        let look = |value: f64, alone: &[f64]| first_look(&goals, 0, &rounds(&[value])[0], &rounds(alone));
        assert_eq!(look(105.0, &[99.0, 100.0]), GateOutcome::Met);
        assert_eq!(look(105.0, &[80.0, 100.0]), GateOutcome::CannotSay, "rounds alone differ by 20 %");
        assert_eq!(look(115.0, &[80.0, 100.0]), GateOutcome::CannotSay);
        assert_eq!(look(140.0, &[80.0, 100.0]), GateOutcome::Not);
        assert_eq!(look(140.0, &[]), GateOutcome::CannotSay);
        let more = goal("throughput > alone - 5%");
        let look = |value: f64| first_look(&more, 0, &rounds(&[value])[0], &rounds(&[99.0, 100.0]));
        assert_eq!(
            [look(100.0), look(80.0), look(95.5)],
            [GateOutcome::Met, GateOutcome::Not, GateOutcome::CannotSay]
        );
    }

    /// What each further pair would be; how many were asked for, and what came of it.
    fn looked(goals: &[Goal], first: f64, pairs: &[(f64, f64)]) -> (usize, GateOutcome) {
        let mut alone = rounds(&[99.0, 100.0]);
        let mut left = pairs.iter();
        let mut pair = || -> Result<(Round, Round), ColocateError> {
            let (now, beside) = left.next().expect("no more pairs are asked for");
            Ok((rounds(&[*now]).remove(0), rounds(&[*beside]).remove(0)))
        };
        let first = rounds(&[first]).remove(0);
        let (_, outcome) = looks(goals, first, &[], &mut alone, &mut pair).unwrap();
        assert_eq!(alone.len(), 2 + pairs.len() - left.len());
        (pairs.len() - left.len(), outcome)
    }

    #[test]
    fn one_bad_pair_gives_nobody_up_who_is_near() {
        let goals = goal("p99 < alone + 10%");
        assert_eq!(looked(&goals, 125.0, &[(104.0, 100.0)]), (1, GateOutcome::CannotSay));
        assert_eq!(looked(&goals, 125.0, &[(120.0, 100.0), (104.0, 100.0)]), (2, GateOutcome::CannotSay));
        assert_eq!(looked(&goals, 125.0, &[(120.0, 100.0), (130.0, 100.0)]), (2, GateOutcome::Not));
        // By far, or met at once: one is enough.
        assert_eq!(looked(&goals, 205.0, &[]), (0, GateOutcome::Not));
        assert_eq!(looked(&goals, 105.0, &[]), (0, GateOutcome::Met));
        // Another goal is missed for good.
        let both = [goals, goal("p99 < 50ns")].concat();
        let mut alone = rounds(&[99.0, 100.0]);
        let round = Round { goals: vec![Some(125.0); 2], lacks: vec![None, None], ..Round::default() };
        let mut never = || -> Result<(Round, Round), ColocateError> { panic!("nothing more is asked for") };
        assert_eq!(looks(&both, round, &[], &mut alone, &mut never).unwrap().1, GateOutcome::Not);
    }
}
