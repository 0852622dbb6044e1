//! The settings of the rounds, and how a variant of `compare` is made on running threads.

use super::plan::{ConfirmError, ConfirmPlan, LiveDriver};
use crate::cpus::check_online;
use schedlab_host::threads::{self, Identity, Scheduling};
use schedlab_live::{Keeper, LiveError};
use schedlab_model::CpuSet;
use schedlab_model::text::glob;
use schedlab_scheduler::SchedulerSpec;
use schedlab_study::StudyError;
use schedlab_study::variant::{Clause, Setting, TaskSetting, Variant};
use schemars::JsonSchema;
use serde::Serialize;

/// How the command is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingKind {
    /// As the host has it.
    Default,
    /// With policies, nice values, slices or CPUs of its threads changed.
    Soft,
    /// By the elevation driver (`schedlab run`).
    Elevation,
    /// By the sched_ext driver (`schedlab run --driver sched-ext`).
    SchedExt,
}

/// The setting of a round.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum RoundSetting {
    Default,
    Soft(Variant),
    Live(LiveDriver, SchedulerSpec),
}

/// Returns the default, the variants and the schedulers of the plan.
pub(super) fn all(plan: &ConfirmPlan) -> Result<Vec<RoundSetting>, ConfirmError> {
    check_online(&plan.cpus).map_err(ConfirmError::Input)?;
    let mut all = vec![RoundSetting::Default];
    for text in &plan.variants {
        let variant = Variant::parse(text)
            .map_err(|source| StudyError::Variant { variant: text.clone(), source })?;
        variant.clauses.iter().try_for_each(|clause| possible(&variant, clause))?;
        all.push(RoundSetting::Soft(variant));
    }
    if !plan.schedulers.is_empty() && plan.cpus.count() != 1 {
        return Err(ConfirmError::Input(format!(
            "--cpus {}: with --scheduler name one CPU, the one that is managed",
            plan.cpus
        )));
    }
    for spec in &plan.schedulers {
        all.extend(plan.drivers.iter().map(|driver| RoundSetting::Live(*driver, spec.clone())));
    }
    if all.len() == 1 {
        return Err(ConfirmError::Input(
            "name what to confirm: --variant 'NAME: TASK policy=idle', --scheduler \
             rr:slice_ns=5ms, or several"
                .to_owned(),
        ));
    }
    Ok(all)
}

/// Refuses settings that cannot be made on a running thread.
fn possible(variant: &Variant, clause: &Clause) -> Result<(), ConfirmError> {
    let refuse = |why: &str| {
        Err(ConfirmError::Input(format!(
            "variant '{}': {why}. confirm can set policy, nice, slice and cpus of tasks",
            variant.name
        )))
    };
    for setting in &clause.settings {
        match setting {
            Setting::Task(
                TaskSetting::Policy(_)
                | TaskSetting::Nice(_)
                | TaskSetting::Slice(_)
                | TaskSetting::Cpus(_),
            ) => {}
            Setting::Knob(name, _) => {
                return refuse(&format!("the knob {name} is the kernel's own and stays as it is"));
            }
            Setting::Task(TaskSetting::Demand(_) | TaskSetting::Off) | Setting::Source(_) => {
                return refuse(&format!(
                    "`{}` would do other work, which the command decides",
                    clause.target
                ));
            }
            Setting::Task(TaskSetting::Group(_)) | Setting::Group(_) | Setting::Pod(_) => {
                return refuse(
                    "control groups are left as the host has them (`schedlab colocate` sets them)",
                );
            }
            Setting::Machine(_) => return refuse("the kernel stays as it is"),
            Setting::Delegation(..) => {
                return refuse("where a scheduler runs is tried with --scheduler");
            }
        }
    }
    Ok(())
}

impl RoundSetting {
    /// Returns its name; of a scheduler with its knobs.
    pub(super) fn name(&self) -> String {
        match self {
            RoundSetting::Default => "default".to_owned(),
            RoundSetting::Soft(variant) => variant.name.clone(),
            RoundSetting::Live(_, spec) => spec.to_string(),
        }
    }

    pub(super) fn kind(&self) -> SettingKind {
        match self {
            RoundSetting::Default => SettingKind::Default,
            RoundSetting::Soft(_) => SettingKind::Soft,
            RoundSetting::Live(LiveDriver::Elevation, _) => SettingKind::Elevation,
            RoundSetting::Live(LiveDriver::SchedExt, _) => SettingKind::SchedExt,
        }
    }
}

/// Makes the settings of `variant` on the threads of `family` that it names, where they differ from
/// the present ones.
pub(super) fn apply(
    keeper: &mut Keeper,
    variant: &Variant,
    family: &[Identity],
) -> Result<(), LiveError> {
    for thread in family {
        let leader = family.iter().find(|one| one.tid == thread.process);
        let meant = |clause: &&Clause| {
            // A process is all of its threads, as in the prediction.
            let mut own = leader.into_iter().chain([thread]);
            own.any(|one| glob(&clause.target, &one.comm) || clause.target == one.tid.to_string())
        };
        for clause in variant.clauses.iter().filter(meant) {
            match set(keeper, thread, &clause.settings) {
                // The thread may end at any time.
                Err(LiveError::NoThread { .. }) => {}
                other => other?,
            }
        }
    }
    Ok(())
}

fn set(keeper: &mut Keeper, thread: &Identity, settings: &[Setting]) -> Result<(), LiveError> {
    let Ok(now) = threads::scheduling(thread.tid) else { return Ok(()) };
    let mut wanted = now;
    let mut cpus: Option<CpuSet> = None;
    for setting in settings {
        match setting {
            Setting::Task(TaskSetting::Policy(policy)) => wanted.policy = *policy,
            Setting::Task(TaskSetting::Nice(nice)) => wanted.nice = *nice,
            Setting::Task(TaskSetting::Slice(slice)) => wanted.slice = Some(*slice),
            Setting::Task(TaskSetting::Cpus(set)) => cpus = Some(*set),
            _ => {}
        }
    }
    // Only the policies other and batch have a slice.
    let wanted = Scheduling { slice: wanted.slice.filter(|_| wanted.policy.is_fair()), ..wanted };
    if wanted != now {
        keeper.schedule(thread, &wanted)?;
    }
    match cpus {
        Some(cpus) if threads::affinity(thread.tid).is_ok_and(|now| now != cpus) => {
            keeper.confine(thread, &cpus)
        }
        _ => Ok(()),
    }
}
