//! `--dry-run`: what each actuator would change.

use super::advice::advice;
use super::attach;
use super::error::ColocateError;
use super::plan::{ColocatePlan, changes_nothing};
use super::workload::{Workload, WorkloadSource};
use schedlab_host::threads;
use schedlab_live::actuators::{Actuator, LADDER, Side};
use schedlab_model::CpuSet;
use schemars::JsonSchema;
use serde::Serialize;

/// One step of a dry run.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Intent {
    /// The actuator.
    pub actuator: Actuator,
    /// What it would change: a thread with its policy, a file with its content.
    pub changes: Vec<String>,
    /// Why it would not be tried.
    pub skipped: Option<String>,
}

/// Returns what would be changed, in the order of the trial. Starts nothing and changes nothing.
///
/// # Errors
/// When a process or group of the plan does not exist.
pub fn intentions(plan: &ColocatePlan) -> Result<Vec<Intent>, ColocateError> {
    let side = |source: &WorkloadSource| match source {
        WorkloadSource::Command(_) => Ok(Side::default()),
        _ => Workload::start(source, CpuSet::EMPTY).map(|workload| workload.side.clone()),
    };
    let (server, batch) = (side(&plan.serve)?, side(&plan.batch)?);
    let online = schedlab_host::machine().online;
    let cpus = plan.cpus.unwrap_or_else(|| server.cpus(&online));
    let intent = |how: Actuator| {
        let needs_agent =
            || (how == Actuator::Elevation).then(|| attach::unfit(&cpus, &online)).flatten();
        let skipped = plan
            .rules_out(how)
            .or_else(|| changes_nothing(how, &server, &cpus).map(str::to_owned))
            .or_else(needs_agent);
        let changes = match skipped {
            Some(_) => Vec::new(),
            None => changes(plan, how, &server, &batch, &cpus),
        };
        Intent { actuator: how, changes, skipped }
    };
    Ok(LADDER.into_iter().filter(|how| *how != Actuator::Default).map(intent).collect())
}

fn changes(
    plan: &ColocatePlan,
    how: Actuator,
    server: &Side,
    batch: &Side,
    cpus: &CpuSet,
) -> Vec<String> {
    let (source, side) =
        if how.acts_on_server() { (&plan.serve, server) } else { (&plan.batch, batch) };
    let mut changes = Vec::new();
    if let WorkloadSource::Command(command) = source {
        changes.push(format!("every thread of `{command}`: {}", advice(how).what));
    }
    for thread in side.threads() {
        let Ok(now) = threads::scheduling(thread.tid) else { continue };
        if let Some(wanted) = how.scheduling_for(&now).filter(|wanted| *wanted != now) {
            let (tid, comm) = (thread.tid, &thread.comm);
            let (was, will) = (now.policy_name(), wanted.policy_name());
            changes.push(format!(
                "thread {tid} ({comm}): {was} nice {} -> {will} nice {}",
                now.nice.get(),
                wanted.nice.get()
            ));
        }
    }
    if let Some(cpus) = how.batch_cpus(cpus) {
        let threads = side.threads();
        changes.extend(
            threads
                .iter()
                .map(|thread| format!("thread {} ({}): CPUs {cpus}", thread.tid, thread.comm)),
        );
    }
    let mut files =
        batch.group.as_ref().map(|group| how.files(group, cpus.count())).unwrap_or_default();
    if how == Actuator::QuotaOff {
        files.extend(server.limits());
    }
    changes.extend(files.iter().map(|(path, content)| format!("{}: {content}", path.display())));
    changes
}
