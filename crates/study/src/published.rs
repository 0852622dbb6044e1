//! `schedlab published`: every figure of the gallery that was published (or measured with the real system), beside what
//! comes out here, and why it differs. The figures are `published` and `differs` of the scenarios' expectations.

use crate::StudyError;
use crate::compare::{Options, compare_scenario};
use crate::gallery::{self, Found};
use crate::result::Checked;
use crate::scenario::Scenario;
use serde::Serialize;

/// Version of the JSON form.
pub const SCHEMA: &str = "schedlab-published/1";

/// A scenario with its published figures.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Published {
    /// Its name.
    pub scenario: String,
    /// Its title.
    pub title: String,
    /// What of it was fitted, and to what.
    pub fitted: Vec<String>,
    /// Number of seeds, over which ours are medians.
    pub seeds: usize,
    /// How many figures are near, differ, and are words.
    pub tally: Tally,
    /// The figures, in the order of the file.
    pub figures: Vec<Checked>,
}

/// How many figures are how far off.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Tally {
    /// Within 10 %, shares within 0.5 points.
    pub near: usize,
    /// Farther off, and the scenario says why.
    pub explained: usize,
    /// Farther off without a reason.
    pub unexplained: usize,
    /// Published in words, not as a number of this metric.
    pub words: usize,
}

impl Tally {
    /// Of these figures.
    pub fn count(figures: &[Checked]) -> Tally {
        let mut tally = Tally::default();
        for figure in figures {
            *match (figure.deviation.map(|one| one.near), &figure.differs) {
                (None, _) => &mut tally.words,
                (Some(true), _) => &mut tally.near,
                (Some(false), Some(_)) => &mut tally.explained,
                (Some(false), None) => &mut tally.unexplained,
            } += 1;
        }
        tally
    }

    /// Both together.
    pub fn and(self, other: Tally) -> Tally {
        Tally {
            near: self.near + other.near,
            explained: self.explained + other.explained,
            unexplained: self.unexplained + other.unexplained,
            words: self.words + other.words,
        }
    }
}

/// The scenarios of these names (empty: all of the gallery that have published figures).
///
/// # Errors
/// A name that is no scenario, or a scenario without such figures.
pub fn scenarios(names: &[String]) -> Result<Vec<Scenario>, StudyError> {
    let has = |scenario: &Scenario| scenario.expectations.iter().any(|one| one.published.is_some());
    if names.is_empty() {
        let mut all = Vec::new();
        for (name, _) in gallery::built_in() {
            if let Found::Scenario(scenario) = gallery::find(name)?
                && has(&scenario)
            {
                all.push(*scenario);
            }
        }
        return Ok(all);
    }
    let one = |name: &String| match gallery::find(name)? {
        Found::Scenario(scenario) if has(&scenario) => Ok(*scenario),
        _ => Err(StudyError::Option(format!(
            "{name} has no published figures (`published` of an [[expect]]); `schedlab published` without a name shows all"
        ))),
    };
    names.iter().map(one).collect()
}

/// Runs one scenario unchanged.
///
/// # Errors
/// As [`compare_scenario`].
pub fn figures(scenario: &Scenario, jobs: usize) -> Result<Published, StudyError> {
    let study = compare_scenario(scenario, &Options { jobs, ..Options::default() }, &|_, _| ())?;
    let figures: Vec<Checked> =
        study.expectations.into_iter().filter(|one| one.published.is_some()).collect();
    Ok(Published {
        scenario: scenario.name.clone(),
        title: scenario.title.clone(),
        fitted: scenario.fitted.clone(),
        seeds: study.seeds.len(),
        tally: Tally::count(&figures),
        figures,
    })
}
