//! `schedlab published`: every figure of the gallery that somebody published (or measured with the real thing), beside what
//! comes out here, and why it differs. The figures are `published` and `differs` of the scenarios' expectations.

use crate::LabError;
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
    /// The figures, in the order of the file.
    pub figures: Vec<Checked>,
}

/// The scenarios of these names (empty: all of the gallery that have published figures).
///
/// # Errors
/// A name that is no scenario, or a scenario without such figures.
pub fn scenarios(names: &[String]) -> Result<Vec<Scenario>, LabError> {
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
        _ => Err(LabError::Option(format!(
            "{name} has no published figures (`published` of an [[expect]]); `schedlab published` without a name shows all"
        ))),
    };
    names.iter().map(one).collect()
}

/// Runs one scenario as it stands.
///
/// # Errors
/// As [`compare_scenario`].
pub fn figures(scenario: &Scenario, jobs: usize) -> Result<Published, LabError> {
    let study = compare_scenario(scenario, &Options { jobs, ..Options::default() }, &|_, _| ())?;
    Ok(Published {
        scenario: scenario.name.clone(),
        title: scenario.title.clone(),
        fitted: scenario.fitted.clone(),
        figures: study.expectations.into_iter().filter(|one| one.published.is_some()).collect(),
    })
}
