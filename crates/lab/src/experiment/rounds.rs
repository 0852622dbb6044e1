//! Rows take turns: each round has every row once, in an order of its own.

use super::figures::Collected;
use super::model::MachineModel;
use super::plan::{ExperimentError, ExperimentObserver, ExperimentPlan};
use super::testbed::Testbed;
use super::window::RecordedWindow;

/// The results of all rounds.
pub(super) struct Rounds {
    /// The values of the figures.
    pub(super) here: Collected,
    /// The model of the machine, as the first recording found it.
    pub(super) model: MachineModel,
    /// Why the numbers should not be trusted.
    pub(super) doubts: Vec<String>,
}

/// One measurement of a row in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Turn {
    /// Index of the row.
    pub(super) row: usize,
    /// Number of the round, from 0.
    pub(super) round: usize,
    /// Seed of all that is random in this round: the same for all its rows.
    pub(super) seed: u64,
}

/// Returns every measurement in its order.
fn turns(rows: usize, rounds: usize, seed: u64) -> Vec<Turn> {
    let orders = schedlab_stats::turns(rows, rounds, seed).into_iter().enumerate();
    let turn = |(round, order): (usize, Vec<usize>)| {
        let seed = seed.wrapping_add(round as u64);
        order.into_iter().map(move |row| Turn { row, round, seed })
    };
    orders.flat_map(turn).collect()
}

/// Measures each of the rows, which have these names, in every round. `measure` notes the values of
/// a measurement, and returns what was recorded.
pub(super) fn in_turns(
    testbed: &Testbed<'_>,
    plan: &ExperimentPlan,
    observer: &mut dyn ExperimentObserver,
    names: &[&str],
    measure: &mut dyn FnMut(Turn, &mut Collected) -> Result<RecordedWindow, ExperimentError>,
) -> Result<Rounds, ExperimentError> {
    let (mut here, mut model, mut lost) = (Collected::default(), None, 0);
    let all = turns(names.len(), plan.rounds, plan.seed);
    for (done, turn) in all.iter().enumerate() {
        observer.step(names[turn.row], done, all.len());
        let window = measure(*turn, &mut here)?;
        lost += window.lost();
        if model.is_none() {
            model = Some(MachineModel::from_header(
                &window.recording.header,
                &testbed.machine,
                &testbed.prices,
            )?);
        }
    }
    let model =
        model.ok_or_else(|| ExperimentError::Input("--rounds 0: give at least 1".to_owned()))?;
    let mut doubts = here.warnings();
    if lost > 0 {
        doubts.push(format!("{lost} events were lost"));
    }
    Ok(Rounds { here, model, doubts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_every_row_and_the_greatest_seed_is_a_seed() {
        let all = turns(3, 2, u64::MAX);
        let of = |round: usize| {
            let mut rows: Vec<usize> =
                all.iter().filter(|turn| turn.round == round).map(|turn| turn.row).collect();
            rows.sort_unstable();
            rows
        };
        assert_eq!((of(0), of(1), all.len()), (vec![0, 1, 2], vec![0, 1, 2], 6));
        assert_eq!((all[0].seed, all[3].seed), (u64::MAX, 0));
    }
}
