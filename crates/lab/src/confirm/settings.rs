//! A variant of `compare`, made on living threads.

use super::{ConfirmError, How, Plan};
use crate::cpus::check_online;
use schedlab_host::threads::{self, Identity, Scheduling};
use schedlab_live::{Keeper, LiveError};
use schedlab_model::CpuSet;
use schedlab_model::text::glob;
use schedlab_scheduler::SchedulerSpec;
use schedlab_study::StudyError;
use schedlab_study::variant::{Clause, Setting, TaskSetting, Variant};

/// What a round is run with.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Settings {
    Default,
    Soft(Variant),
    Elevation(SchedulerSpec),
}

/// The default, the variants, the schedulers.
pub(super) fn all(plan: &Plan) -> Result<Vec<Settings>, ConfirmError> {
    check_online(&plan.cpus).map_err(ConfirmError::Input)?;
    let mut all = vec![Settings::Default];
    for text in &plan.variants {
        let variant =
            Variant::parse(text).map_err(|source| StudyError::Variant { variant: text.clone(), source })?;
        variant.clauses.iter().try_for_each(|clause| possible(&variant, clause))?;
        all.push(Settings::Soft(variant));
    }
    if !plan.schedulers.is_empty() && plan.cpus.count() != 1 {
        return Err(ConfirmError::Input(format!(
            "--cpus {}: with --scheduler name one CPU, the one that is managed",
            plan.cpus
        )));
    }
    all.extend(plan.schedulers.iter().cloned().map(Settings::Elevation));
    if all.len() == 1 {
        return Err(ConfirmError::Input(
            "name what to confirm: --variant 'NAME: TASK policy=idle', --scheduler rr:slice_ns=5ms, or several"
                .to_owned(),
        ));
    }
    Ok(all)
}

/// Refuses what cannot be done to a thread that lives.
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
                TaskSetting::Policy(_) | TaskSetting::Nice(_) | TaskSetting::Slice(_) | TaskSetting::Cpus(_),
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
            Setting::Task(TaskSetting::Group(_)) | Setting::Group(_) => {
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

impl Settings {
    /// With its knobs, when it is a scheduler.
    pub(super) fn name(&self) -> String {
        match self {
            Settings::Default => "default".to_owned(),
            Settings::Soft(variant) => variant.name.clone(),
            Settings::Elevation(spec) => spec.to_string(),
        }
    }

    pub(super) fn how(&self) -> How {
        match self {
            Settings::Default => How::Default,
            Settings::Soft(_) => How::Soft,
            Settings::Elevation(_) => How::Elevation,
        }
    }
}

/// Makes the settings of `variant` on those of `family` that it means; what is so already is left.
pub(super) fn apply(keeper: &mut Keeper, variant: &Variant, family: &[Identity]) -> Result<(), LiveError> {
    for thread in family {
        let meant =
            |clause: &&Clause| glob(&clause.target, &thread.comm) || clause.target == thread.tid.to_string();
        for clause in variant.clauses.iter().filter(meant) {
            match set(keeper, thread, &clause.settings) {
                // It may end at any time.
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
    // A slice is of policy other and batch.
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
