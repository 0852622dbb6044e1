//! Reads the `[[expect]]` of a scenario.

use super::{Expectation, parse_bound};
use crate::metric::Metric;
use crate::scenario::document::{ScenarioError, Section, Source};
use crate::scenario::{Scenario, publication, sweep};

/// Reads every expectation. What they name must be in the scenario.
pub(in crate::scenario) fn read(
    root: &Section<'_>,
    source: &Source<'_>,
    scenario: &Scenario,
) -> Result<Vec<Expectation>, ScenarioError> {
    let keys = [
        "metric",
        "task",
        "source",
        "channel",
        "machine",
        "scheduler",
        "variant",
        "over",
        "over_scheduler",
        "is",
        "because",
        "published",
        "published_in",
        "figure",
        "fitted",
        "differs",
        "cause",
        "cpus",
    ];
    let sections = root.sections("expect", "[[expect]]", &keys)?;
    sections.iter().map(|section| expectation((root, source), section, scenario)).collect()
}

fn expectation(
    (root, source): (&Section<'_>, &Source<'_>),
    section: &Section<'_>,
    scenario: &Scenario,
) -> Result<Expectation, ScenarioError> {
    let metric: Metric = section.need("metric", "metric = \"share\"")?.parse()?;
    let is = section.need("is", "is = \"0.5 ± 0.005\"")?;
    let text = |key: &'static str| section.optional(key, |item| Ok(item.prose()?.to_owned()));
    let known = |key: &'static str, names: &[&str]| named(section, key, names);
    let variants: Vec<&str> = std::iter::once(scenario.baseline.as_str())
        .chain(scenario.variants.iter().map(|variant| variant.name.as_str()))
        .collect();
    let vcpus = scenario.vcpu_names();
    let tasks: Vec<&str> = scenario
        .classes
        .iter()
        .chain(&vcpus)
        .map(String::as_str)
        .chain(scenario.workload.tasks.iter().map(|task| task.name.as_str()))
        .collect();
    let sources: Vec<&str> = scenario.workload.sources.iter().map(|s| s.name.as_str()).collect();
    let specs: Vec<String> = scenario.schedulers.iter().map(ToString::to_string).collect();
    let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
    let channels: Vec<&str> = scenario.workload.channels.iter().map(|c| c.name.as_str()).collect();
    let (task, from) = (known("task", &tasks)?, known("source", &sources)?);
    let channel = known("channel", &channels)?;
    let machine = section.optional("machine", |item| item.flag())?.unwrap_or(false);
    check_subject(section, metric, [&task, &from, &channel], machine)?;
    let over = known("over", &variants)?;
    let over_scheduler = known("over_scheduler", &specs)?;
    if let Some(item) = section.get("over_scheduler").filter(|_| over.is_none()) {
        return Err(
            item.error("`over_scheduler` says whose row of `over` to divide by: add `over`")
        );
    }
    Ok(Expectation {
        metric,
        task,
        source: from,
        channel,
        machine,
        scheduler: known("scheduler", &specs)?,
        variant: known("variant", &variants)?,
        bound: parse_bound(is.text()?, metric, over.is_some()).map_err(|e| is.error(e))?,
        over,
        over_scheduler,
        is: is.text()?.to_owned(),
        because: text("because")?,
        published: text("published")?,
        differs: text("differs")?,
        publication: publication::read(root, section)?,
        cpus: sweep::point(section, scenario)?,
        line: source.line(section.span.start),
    })
}

/// Refuses an expectation that is about nothing, about more than one thing, or about one that
/// its metric does not measure. `named`: its task, source and channel.
fn check_subject(
    section: &Section<'_>,
    metric: Metric,
    named: [&Option<String>; 3],
    machine: bool,
) -> Result<(), ScenarioError> {
    if named.into_iter().flatten().count() + usize::from(machine) != 1 {
        return Err(section.error(
            "[[expect]] needs `task`, `source`, `channel` or machine = true (one of them), \
             which says what it is about",
        ));
    }
    if machine != metric.is_of_machine() && !(machine && metric == Metric::Switches) {
        return Err(section.error(
            "utilisation, idle-waiting, idle-capped, idle-longest, decision, decision-wait \
             and what agents do (delivery, commit, \
             end-to-end, transactions, failed, messages, agents) are metrics of machine = \
             true, which has \
             only them and switches",
        ));
    }
    if named[0].is_none() && !machine && !matches!(metric, Metric::Throughput | Metric::Response(_))
    {
        return Err(
            section.error("a source or a channel has only the metrics throughput and response")
        );
    }
    Ok(())
}

/// A text (or glob) that must match one of `names`.
fn named(
    section: &Section<'_>,
    key: &'static str,
    names: &[&str],
) -> Result<Option<String>, ScenarioError> {
    let Some(item) = section.get(key) else { return Ok(None) };
    let text = item.text()?;
    if names.iter().any(|name| schedlab_model::text::glob(text, name)) {
        return Ok(Some(text.to_owned()));
    }
    let hint = schedlab_model::text::nearest(text, names.iter().copied())
        .map(|right| format!(": did you mean `{right}`?"))
        .unwrap_or_else(|| match names.is_empty() {
            true => format!("; this scenario has no {key}"),
            false => {
                format!(
                    "; there are: {}",
                    names.iter().take(12).copied().collect::<Vec<_>>().join(", ")
                )
            }
        });
    Err(item.error(format!("there is no {key} `{text}`{hint}")))
}
