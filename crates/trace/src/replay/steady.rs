//! How steady the machine was: by how much the CPU time that the same work takes differs from one
//! part of the recording to the next.
//!
//! A task that does one thing over and over needs as long for it in each part, unless the machine
//! differs: clock rates, other users of its caches, other virtual machines. A task whose work
//! itself differs shows more than that. So the steadiest task counts: what it shows is the
//! machine's at most.

use super::timeline::TaskTimeline;
use schedlab_model::Ns;

/// Into so many parts of equal length a recording is cut.
const PARTS: usize = 8;
/// A task with fewer activations in a part says nothing: its median there is chance.
const ENOUGH: usize = 30;

/// What the steadiest task's median activation differs by from part to part of the recording
/// (standard deviation, in millionths of its mean); `None`: no task has 30 activations in each of
/// eight parts.
pub(super) fn spread_of_costs(lines: &[TaskTimeline], duration: Ns) -> Option<u64> {
    let costs = |line: &'_ TaskTimeline| {
        spread(line.activations.iter().map(|one| (one.woken, one.demand)), duration)
    };
    lines.iter().filter_map(costs).min()
}

/// Returns what the median cost of these deeds (when, and how long on a CPU) differs by from part
/// to part of a recording, as [`spread_of_costs`] does; `None`: a part has too few of them.
pub fn spread(deeds: impl Iterator<Item = (Ns, Ns)>, duration: Ns) -> Option<u64> {
    let mut parts: [Vec<u64>; PARTS] = Default::default();
    for (at, cost) in deeds {
        let part = at.0 as u128 * PARTS as u128 / u128::from(duration.0.max(1));
        parts[(part as usize).min(PARTS - 1)].push(cost.0);
    }
    let mut medians = [0u64; PARTS];
    for (median, part) in medians.iter_mut().zip(&mut parts) {
        if part.len() < ENOUGH {
            return None;
        }
        part.sort_unstable();
        *median = part[part.len() / 2];
    }
    let count = PARTS as f64;
    let mean = medians.iter().sum::<u64>() as f64 / count;
    let variance =
        medians.iter().map(|&median| (median as f64 - mean).powi(2)).sum::<f64>() / count;
    (mean > 0.0).then(|| (variance.sqrt() / mean * 1e6).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::super::timeline::{Activation, End, Origin};
    use super::*;
    use schedlab_model::PrevState;

    /// A task that is woken each millisecond of 400 ms for this long.
    fn line(of: impl Fn(u64) -> u64) -> TaskTimeline {
        let activation = |at: u64| Activation {
            origin: Origin::HardIrq,
            woken: Ns::from_ms(at),
            interrupt: None,
            slept: None,
            call: None,
            demand: Ns(of(at)),
            deeds: Vec::new(),
            end: End::Blocked(PrevState::Sleeping),
        };
        let mut line = TaskTimeline::default();
        line.activations = (0..400).map(activation).collect();
        line
    }

    #[test]
    fn the_steadiest_task_says_how_steady_the_machine_was() {
        let duration = Ns::from_ms(400);
        let varied = line(|at| 10_000 + at * 100);
        // Half of the parts on a machine that is 2 % slower.
        let slower = line(|at| if at < 200 { 9_900 } else { 10_100 });
        // What single activations take says nothing of the machine.
        let same = line(|at| if at % 5 == 0 { 90_000 } else { 10_000 });
        assert_eq!(spread_of_costs(&[varied], duration).map(|ppm| ppm > 100_000), Some(true));
        assert_eq!(spread_of_costs(&[line(|at| at * 1_000), slower], duration), Some(10_000));
        assert_eq!(spread_of_costs(&[line(|at| at * 1_000), same], duration), Some(0));
        let mut seldom = line(|_| 1);
        seldom.activations = seldom.activations.into_iter().step_by(4).collect();
        assert_eq!(spread_of_costs(&[seldom], duration), None);
        assert_eq!(spread_of_costs(&[], Ns::ZERO), None);
    }
}
