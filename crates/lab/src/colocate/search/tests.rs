//! The search over pretended measurements.

use super::super::plan::Goal;
use super::super::pretended::{goal, rounds};
use super::super::workload::WorkloadSource;
use super::*;
use schedlab_live::RunDir;
use schedlab_model::Ns;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The machine alone gives 100 each time; a setting gives what is written here, in turn and again
/// from the start.
struct Pretended {
    of: BTreeMap<Actuator, Vec<f64>>,
    asked: BTreeMap<Actuator, usize>,
}

impl Rounds for Pretended {
    fn round(&mut self, how: Actuator) -> Result<(usize, Round), ColocateError> {
        let Some(values) = self.of.get(&how) else {
            return Err(ColocateError::Skip("not here".to_owned()));
        };
        let asked = self.asked.entry(how).or_default();
        let value = values[*asked % values.len()];
        *asked += 1;
        // Every goal gets the same value; two are enough.
        let round = rounds(&[value]).remove(0);
        Ok((1, Round { goals: vec![Some(value); 2], lacks: vec![None, None], ..round }))
    }
    fn alone(&mut self) -> Result<Round, ColocateError> {
        let round = rounds(&[100.0]).remove(0);
        Ok(Round { goals: vec![Some(100.0); 2], lacks: vec![None, None], ..round })
    }
    fn changes_nothing(&self, _: Actuator) -> Option<&'static str> {
        None
    }
}

impl Pretended {
    fn asked(&self, how: Actuator) -> usize {
        self.asked.get(&how).copied().unwrap_or(0)
    }
}

fn plan(goals: Vec<Goal>, folder: &std::path::Path) -> ColocatePlan {
    ColocatePlan {
        serve: WorkloadSource::Pids(vec![1]),
        batch: WorkloadSource::Pids(vec![2]),
        load: None,
        client: None,
        cpus: None,
        goals,
        round: Ns::from_s(1),
        rounds: 5,
        only: Vec::new(),
        keep_for: None,
        run_dir: RunDir::at(folder).unwrap(),
        program: "/bin/true".into(),
    }
}

/// What is found where the default misses the goals by far.
fn searched(goals: Vec<Goal>, of: &[(Actuator, &[f64])]) -> (Colocation, Pretended) {
    let mut of: BTreeMap<Actuator, Vec<f64>> =
        of.iter().map(|(how, all)| (*how, all.to_vec())).collect();
    of.insert(Actuator::Default, vec![900.0]);
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let folder =
        schedlab_testing::temp_dir().join(format!("schedlab-search-{}-{run}", std::process::id()));
    let plan = plan(goals, &folder);
    let mut pretended = Pretended { of, asked: BTreeMap::new() };
    let mut found = Colocation::new(&plan, schedlab_model::CpuSet::EMPTY);
    search(&mut pretended, &plan, &mut found, &mut ()).unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    (found, pretended)
}

/// Its first ten pairs hold both answers, all later ones meet the goal.
fn late() -> Vec<f64> {
    let mut values = vec![104.0];
    values.extend([104.0, 113.0, 105.0, 114.0, 103.0, 112.0, 104.0, 113.0, 105.0, 104.0]);
    values.extend([104.0; 30]);
    values
}

#[test]
fn an_undecided_setting_gets_more_rounds_before_a_stalling_one_is_tried() {
    let late = late();
    let (found, asked) =
        searched(goal("p99 < alone + 10%"), &[(Actuator::Idle, &late), (Actuator::Fifo, &[100.0])]);
    assert_eq!((found.chosen, found.outcome), (Some(Actuator::Idle), GateOutcome::Met));
    assert_eq!(asked.asked(Actuator::Fifo), 0);
    assert_eq!(asked.asked(Actuator::Idle), 1 + 4 * 5, "the first try, and four times five pairs");
    assert_eq!((found.distances[0].pairs, found.after.len(), found.alone.len()), (20, 20, 20));
    // What was looked at three times is less sure than what was looked at once.
    let once = distances(&goal("p99 < alone + 10%"), &found.after, &found.alone, &[]).remove(0);
    assert!(found.distances[0].of.confidence < once.of.confidence);
    assert!(found.undecided.is_empty());
}

#[test]
fn the_mildest_is_kept_and_said_when_its_rounds_are_used_up() {
    let (found, asked) = searched(
        goal("p99 < alone + 10%"),
        &[
            (Actuator::Idle, &[105.0, 115.0]),
            (Actuator::Nice, &[104.0, 116.0]),
            (Actuator::Elevation, &[100.0]),
            (Actuator::Fifo, &[100.0]),
        ],
    );
    assert_eq!((found.chosen, found.outcome), (Some(Actuator::Idle), GateOutcome::CannotSay));
    assert_eq!(found.undecided, [Actuator::Idle, Actuator::Nice]);
    assert_eq!([Actuator::Elevation, Actuator::Fifo].map(|how| asked.asked(how)), [0, 0]);
    assert_eq!(asked.asked(Actuator::Idle), 1 + MOST_TIMES * 5);
    let Distance { of, pairs, .. } = &found.distances[0];
    assert!(
        (of.low - 0.05).abs() < 1e-9 && (of.high - 0.15).abs() < 1e-9 && *pairs == 40,
        "{of:?}"
    );
    assert!(found.advice.is_some(), "how to have it without schedlab");
}

#[test]
fn what_is_known_to_meet_the_goal_goes_before_what_is_not() {
    let (found, asked) = searched(
        goal("p99 < alone + 10%"),
        &[(Actuator::Idle, &[105.0, 115.0]), (Actuator::Nice, &[103.0])],
    );
    assert_eq!((found.chosen, found.outcome), (Some(Actuator::Nice), GateOutcome::Met));
    assert_eq!(asked.asked(Actuator::Idle), 1 + 2 * 5, "it got no further rounds");
}

#[test]
fn a_stalling_setting_is_chosen_when_nothing_else_meets_the_goal() {
    let all = [
        (Actuator::Idle, &[150.0][..]),
        (Actuator::Elevation, &[190.0]),
        (Actuator::Fifo, &[100.0]),
    ];
    let (found, _) = searched(goal("p99 < alone + 10%"), &all);
    assert_eq!((found.chosen, found.outcome), (Some(Actuator::Fifo), GateOutcome::Met));
    let order: Vec<Actuator> = found.tried.iter().map(|tried| tried.actuator).collect();
    assert_eq!(order, LADDER);
    // Nor is schedlab's own scheduler given up for it while it is not decided.
    let all = [(Actuator::Elevation, &[105.0, 115.0][..]), (Actuator::Fifo, &[100.0])];
    let (found, asked) = searched(goal("p99 < alone + 10%"), &all);
    assert_eq!((found.chosen, found.outcome), (Some(Actuator::Elevation), GateOutcome::CannotSay));
    assert_eq!(asked.asked(Actuator::Fifo), 0);
}

#[test]
fn a_goal_about_the_longest_wait_rules_a_stall_out() {
    let fifo = [(Actuator::Fifo, &[100.0][..])];
    let with = |text: &str| searched([goal("p99 < alone + 10%"), goal(text)].concat(), &fifo);
    for forbids in ["client response max < 20ms", "latency max < alone + 10%", "wait max <= 50ms"] {
        let (found, asked) = with(forbids);
        assert_eq!((found.chosen, asked.asked(Actuator::Fifo)), (None, 0), "{forbids}");
        let why = found.tried.last().unwrap().skipped.clone().unwrap();
        assert!(why.contains("50.0ms") && why.contains(forbids), "{why}");
    }
    for allows in
        ["latency max < 60ms", "batch wait max < 20ms", "latency max > 1ns", "latency p99.9 < 20ms"]
    {
        let (found, _) = with(allows);
        assert_eq!(found.chosen, Some(Actuator::Fifo), "{allows}");
    }
}

#[test]
fn who_was_not_seen_enough_is_no_proof_that_nothing_helps() {
    struct Unseen(Pretended);
    impl Rounds for Unseen {
        fn round(&mut self, how: Actuator) -> Result<(usize, Round), ColocateError> {
            let (changed, mut round) = self.0.round(how)?;
            if how == Actuator::Idle && self.0.asked(how) > 1 {
                round.lacks = vec![Some("too few".to_owned()); 2];
            }
            Ok((changed, round))
        }
        fn alone(&mut self) -> Result<Round, ColocateError> {
            self.0.alone()
        }
        fn changes_nothing(&self, _: Actuator) -> Option<&'static str> {
            None
        }
    }
    let (mut found, pretended) = searched(goal("p99 < alone + 10%"), &[]);
    assert_eq!((found.chosen, found.outcome), (None, GateOutcome::Not));
    let mut unseen = Unseen(Pretended { asked: BTreeMap::new(), ..pretended });
    unseen.0.of.insert(Actuator::Idle, vec![104.0]);
    found.tried.clear();
    let folder =
        schedlab_testing::temp_dir().join(format!("schedlab-unseen-{}", std::process::id()));
    let plan = plan(goal("p99 < alone + 10%"), &folder);
    search(&mut unseen, &plan, &mut found, &mut ()).unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    assert_eq!((found.chosen, found.outcome), (None, GateOutcome::CannotSay));
    assert!(found.undecided.is_empty(), "more rounds would not tell");
}

#[test]
fn no_stall_is_chosen_because_milder_settings_could_not_be_told() {
    /// Too few wakeups for the goal under these.
    const THIN: [Actuator; 2] = [Actuator::Idle, Actuator::Nice];
    struct Thin(Pretended);
    impl Rounds for Thin {
        fn round(&mut self, how: Actuator) -> Result<(usize, Round), ColocateError> {
            let (changed, mut round) = self.0.round(how)?;
            if THIN.contains(&how) {
                round.lacks = vec![Some("too few".to_owned()); 2];
            }
            Ok((changed, round))
        }
        fn alone(&mut self) -> Result<Round, ColocateError> {
            self.0.alone()
        }
        fn changes_nothing(&self, _: Actuator) -> Option<&'static str> {
            None
        }
    }
    let folder = schedlab_testing::temp_dir().join(format!("schedlab-thin-{}", std::process::id()));
    let of = |fifo: f64| {
        let all = [
            (Actuator::Default, 900.0),
            (Actuator::Idle, 101.0),
            (Actuator::Nice, 101.0),
            (Actuator::Fifo, fifo),
        ];
        let of = all.into_iter().map(|(how, value)| (how, vec![value])).collect();
        Thin(Pretended { of, asked: BTreeMap::new() })
    };
    for (only, chosen, outcome) in [
        (Vec::new(), None, GateOutcome::CannotSay),
        // Who names it knows what it does.
        (vec![Actuator::Idle, Actuator::Fifo], Some(Actuator::Fifo), GateOutcome::Met),
    ] {
        let plan = ColocatePlan { only, ..plan(goal("p99 < 200ns"), &folder) };
        let mut found = Colocation::new(&plan, schedlab_model::CpuSet::EMPTY);
        search(&mut of(101.0), &plan, &mut found, &mut ()).unwrap();
        assert_eq!((found.chosen, found.outcome), (chosen, outcome));
        let fifo = found.tried.iter().find(|tried| tried.actuator == Actuator::Fifo).unwrap();
        assert_eq!(fifo.skipped.is_some(), chosen.is_none(), "{fifo:?}");
        assert!(fifo.skipped.iter().all(|why| why.contains("--try fifo")), "{fifo:?}");
    }
    let _ = std::fs::remove_dir_all(&folder);
}
