//! What the simulator predicts from the base recording.

use super::driver_costs::DriverCosts;
use super::plan::{ConfirmError, ConfirmPlan, LiveDriver};
use schedlab_scheduler::SchedulerSpec;
use schedlab_study::compare::{Options, Progress, RecordedInput, compare_recording};
use schedlab_study::result::Study;
use std::collections::BTreeSet;

/// Returns the prediction of the variants under the host's scheduler, and those of the schedulers
/// under each driver of `drivers`.
pub(super) fn predict(
    plan: &ConfirmPlan,
    base: &RecordedInput,
    names: &BTreeSet<String>,
    drivers: &[(LiveDriver, DriverCosts)],
    simulating: Progress<'_>,
) -> Result<(Study, Vec<(LiveDriver, Study)>), ConfirmError> {
    let options = |schedulers: &[SchedulerSpec], variants: Vec<String>| Options {
        schedulers: schedulers.to_vec(),
        variants,
        serve: plan.serve.clone(),
        ..Options::default()
    };
    let under = plan.recorded_under.as_ref();
    let soft = compare_recording(base, under, &options(&[], plan.variants.clone()), simulating)?;
    let mut live = Vec::new();
    for (driver, costs) in drivers {
        let variants = vec![behind_agents(plan, base, names, *costs, &soft)];
        live.push((
            *driver,
            compare_recording(base, under, &options(&plan.schedulers, variants), simulating)?,
        ));
    }
    Ok((soft, live))
}

/// Name of the variant in which an agent schedules the command, and all other tasks run on other
/// CPUs.
pub(super) const BY_AGENTS: &str = "by schedlab run";

/// Returns the variant [`BY_AGENTS`]. Under elevation only the command gets the managed CPU, apart
/// from yield windows: all other tasks are confined to the other CPUs, and the agents do not
/// schedule them. Under sched_ext they would go first there, so `schedlab run` refuses a managed
/// CPU that they use: they are on other CPUs as well.
fn behind_agents(
    plan: &ConfirmPlan,
    base: &RecordedInput,
    names: &BTreeSet<String>,
    driver: DriverCosts,
    soft: &Study,
) -> String {
    let others = schedlab_host::machine().online.without(&plan.cpus);
    let foreign: BTreeSet<&str> =
        base.classes().filter(|name| !names.contains(*name) && !name.is_empty()).collect();
    // Letters that separate in a variant's grammar become `?`, which is any letter in a pattern.
    let pattern = |name: &str| -> String {
        let special =
            |letter: char| letter.is_whitespace() || matches!(letter, '"' | ';' | ',' | '=' | '*');
        let text: String =
            name.chars().map(|letter| if special(letter) { '?' } else { letter }).collect();
        // Words that have a meaning in a variant, and paths of groups.
        let taken = ["scheduler", "delegation", "machine"].contains(&text.as_str())
            || text.starts_with('/');
        if taken {
            text.chars()
                .enumerate()
                .map(|(at, letter)| if at == 0 { '?' } else { letter })
                .collect()
        } else {
            text
        }
    };
    let patterns: BTreeSet<String> = foreign.into_iter().map(pattern).collect();
    let mut text = format!("{BY_AGENTS}: delegation {}", driver.settings());
    // The kernel's own scheduler takes over in yield windows.
    if let Some(replay) = soft.self_replay.as_ref().filter(|replay| {
        replay
            .scheduler
            .parse()
            .is_ok_and(|spec| schedlab_study::delegation::can_be_fallback(&spec))
    }) {
        text += &format!(" fallback={}", replay.scheduler);
    }
    if !patterns.is_empty() {
        text += &format!(" outside={}", patterns.iter().cloned().collect::<Vec<_>>().join(","));
    }
    if !others.is_empty() {
        text.extend(patterns.iter().map(|name| format!(" ; \"{name}\" cpus={others}")));
    }
    text
}
