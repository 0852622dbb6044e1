//! `headline = ["clients response p99", "mean", "sysbench share"]`: the numbers that a scenario is
//! about.

use super::Scenario;
use super::document::{ScenarioError, Section};
use crate::headline::Wanted;
use schedlab_model::text::nearest;

/// Reads the headline, whose subjects must be in the scenario.
pub(super) fn read(root: &Section<'_>, scenario: &Scenario) -> Result<Vec<Wanted>, ScenarioError> {
    let Some(list) = root.get("headline") else { return Ok(Vec::new()) };
    let names = names(scenario);
    let mut all: Vec<Wanted> = Vec::new();
    for item in list.list()? {
        let wanted =
            Wanted::parse(item.text()?, all.last()).map_err(|message| item.error(message))?;
        if !names.contains(&wanted.subject.as_str()) {
            let hint = match nearest(&wanted.subject, names.iter().copied()) {
                Some(right) => format!(": did you mean `{right}`?"),
                None => {
                    format!(
                        "; there are: {}",
                        names.iter().take(12).copied().collect::<Vec<_>>().join(", ")
                    )
                }
            };
            return Err(item.error(format!("there is no `{}`{hint}", wanted.subject)));
        }
        if wanted.metric.is_of_machine() && wanted.subject != "machine" {
            return Err(item.error(format!("{} is a metric of `machine`", wanted.metric)));
        }
        all.push(wanted);
    }
    match all.is_empty() {
        true => Err(list.error("name at least one number, such as \"clients response p99\"")),
        false => Ok(all),
    }
}

/// What a headline may be about.
fn names(scenario: &Scenario) -> Vec<&str> {
    let workload = &scenario.workload;
    let mut names = vec!["machine"];
    names.extend(workload.sources.iter().map(|source| source.name.as_str()));
    names.extend(workload.channels.iter().map(|channel| channel.name.as_str()));
    names.extend(scenario.classes.iter().map(String::as_str));
    names.extend(workload.tasks.iter().map(|task| task.name.as_str()));
    names
}
