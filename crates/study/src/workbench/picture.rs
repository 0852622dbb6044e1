//! A small picture of a scenario: which program ran longest on each CPU, over its first moments.

use super::SCHEMA;
use crate::StudyError;
use crate::scenario::Scenario;
use crate::show::simulate;
use schedlab_model::{EventKind, Ns};
use schemars::JsonSchema;
use serde::Serialize;

/// Columns of a picture, and rows at most.
const SIZE: (usize, usize) = (120, 8);
/// Virtual time of a picture: a hundred turns of a few milliseconds are seen. Where only one
/// program runs in it, the second.
const LENGTHS: [Ns; 2] = [Ns::from_ms(240), Ns::from_ms(2400)];
/// A program is drawn in a column where it ran for one in so many parts of it.
const LEAST: u64 = 20;

/// Which program ran longest on each CPU in each column of time.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct PictureOutput {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// Virtual time of the picture, in nanoseconds.
    pub duration_ns: u64,
    /// The scheduler.
    pub scheduler: String,
    /// The programs, those with most CPU time first.
    pub programs: Vec<String>,
    /// By CPU and column: a place in `programs` and 1, or 0: no task ran for a part of it that
    /// would be seen.
    pub cpus: Vec<Vec<usize>>,
    /// CPUs that ran tasks and are not in the picture.
    pub more_cpus: usize,
}

impl PictureOutput {
    /// Simulates the beginning of a scenario under its first scheduler.
    ///
    /// # Errors
    /// The scenario cannot be simulated.
    pub fn of(scenario: &Scenario) -> Result<PictureOutput, StudyError> {
        let short = PictureOutput::over(scenario, LENGTHS[0])?;
        match short.programs.len() < 2 && LENGTHS[0] < scenario.duration {
            true => PictureOutput::over(scenario, LENGTHS[1]),
            false => Ok(short),
        }
    }

    fn over(scenario: &Scenario, length: Ns) -> Result<PictureOutput, StudyError> {
        let length = length.min(scenario.duration);
        let short = Scenario { duration: length, end_with_tasks: false, ..scenario.clone() };
        let recording = simulate(&short, None, None, None)?;
        let header = &recording.header;
        let mut names: Vec<&str> = header.tasks.iter().map(|task| task.comm.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let program = |task: schedlab_model::TaskId| {
            let name = header.tasks.get(task.index()).map_or("", |task| task.comm.as_str());
            names.iter().position(|other| *other == name).map_or(0, |place| place + 1)
        };
        let mut cpus = vec![Cpu::new(names.len()); header.topology.cpus()];
        for event in &recording.events {
            if let (EventKind::Switch { next, .. }, Some(cpu)) =
                (event.kind, cpus.get_mut(event.cpu.index()))
            {
                cpu.switch(event.at, next.map_or(0, program), length);
            }
        }
        cpus.iter_mut().for_each(|cpu| cpu.switch(length, 0, length));
        Ok(drawn(cpus, &names, length, header.kernel.clone()))
    }
}

fn drawn(cpus: Vec<Cpu>, names: &[&str], length: Ns, scheduler: String) -> PictureOutput {
    let busy = |cpu: &Cpu| cpu.sums.iter().any(|sums| sums[1..].iter().any(|time| *time > 0));
    let mut totals = vec![0_u64; names.len() + 1];
    for sums in cpus.iter().flat_map(|cpu| &cpu.sums) {
        totals.iter_mut().zip(sums).for_each(|(total, time)| *total += time);
    }
    let mut order: Vec<usize> = (1..totals.len()).filter(|&place| totals[place] > 0).collect();
    order.sort_by_key(|&place| (std::cmp::Reverse(totals[place]), place));
    let mut ranks = vec![0; totals.len()];
    order.iter().enumerate().for_each(|(rank, &place)| ranks[place] = rank + 1);
    let used: Vec<&Cpu> = cpus.iter().filter(|cpu| busy(cpu)).collect();
    let least = length.0 / SIZE.0 as u64 / LEAST;
    let column = |sums: &Vec<u64>| {
        let best = (1..sums.len()).max_by_key(|&place| (sums[place], std::cmp::Reverse(place)));
        best.filter(|&place| sums[place] > least).map_or(0, |place| ranks[place])
    };
    PictureOutput {
        schema: SCHEMA,
        duration_ns: length.0,
        scheduler,
        programs: order.iter().map(|&place| names[place - 1].to_owned()).collect(),
        cpus: used.iter().take(SIZE.1).map(|cpu| cpu.sums.iter().map(column).collect()).collect(),
        more_cpus: used.len().saturating_sub(SIZE.1),
    }
}

/// What a CPU ran, by column and program; place 0 is no task.
#[derive(Clone)]
struct Cpu {
    sums: Vec<Vec<u64>>,
    since: Ns,
    who: usize,
}

impl Cpu {
    fn new(programs: usize) -> Cpu {
        Cpu { sums: vec![vec![0; programs + 1]; SIZE.0], since: Ns::ZERO, who: 0 }
    }

    /// From `at` on another program runs.
    fn switch(&mut self, at: Ns, who: usize, length: Ns) {
        let (columns, length) = (self.sums.len() as u64, length.0.max(1));
        let end = at.0.min(length);
        let mut from = self.since.0.min(end);
        while from < end {
            let column = (u128::from(from) * u128::from(columns) / u128::from(length)) as u64;
            // The first nanosecond of the next column.
            let next = (u128::from(column + 1) * u128::from(length)).div_ceil(u128::from(columns));
            let to = end.min(next as u64).max(from + 1);
            self.sums[column as usize][self.who] += to - from;
            from = to;
        }
        (self.since, self.who) = (at, who);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gallery;

    #[test]
    fn two_hogs_share_the_picture() {
        let scenario = gallery::load("two-hogs").unwrap().unwrap();
        let picture = PictureOutput::of(&scenario).unwrap();
        assert_eq!(picture.programs.len(), 2, "{picture:?}");
        assert_eq!((picture.cpus.len(), picture.cpus[0].len()), (1, SIZE.0));
        for rank in 1..=2 {
            let columns = picture.cpus[0].iter().filter(|place| **place == rank).count();
            assert!((SIZE.0 / 3..=SIZE.0 * 2 / 3).contains(&columns), "{rank}: {picture:?}");
        }
    }

    #[test]
    fn every_scenario_of_the_gallery_has_a_picture() {
        for (name, _) in gallery::built_in() {
            let scenario = gallery::load(name).unwrap().unwrap();
            let picture = PictureOutput::of(&scenario).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(!picture.programs.is_empty() && !picture.cpus.is_empty(), "{name}");
        }
    }
}
