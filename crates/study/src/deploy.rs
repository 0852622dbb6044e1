//! A setting without schedlab: the commands, unit files and manifests that make it on a real
//! machine, what it is in words, and what to know about it. `compare` and `colocate` both take them
//! from here.
//!
//! [`Deployment::from_variant`] turns a variant into the texts. Sources: chrt(1), renice(1),
//! taskset(1), systemd.exec(5), systemd.resource-control(5),
//! Documentation/admin-guide/cgroup-v2.rst, xl(1).

mod caveats;
mod kubernetes;
mod shell;
mod systemd;
mod target;
mod words;
mod xl;

use crate::variant::{GroupSetting, PodSetting, Setting, TaskSetting, Variant};
use caveats::caveats;
use schedlab_scheduler::SchedulerSpec;
use schedlab_scheduler::linux::KernelRelease;
use schedlab_scheduler::registry::Family;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::Target;

/// A form in which a setting can be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Commands: chrt, renice, taskset, writes to control groups and sysctls.
    Shell,
    /// Drop-ins for units.
    Systemd,
    /// A fragment of a manifest.
    Kubernetes,
    /// `xl` for Xen.
    Xl,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 4] = [Format::Shell, Format::Systemd, Format::Kubernetes, Format::Xl];

    /// Returns its name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Shell => "shell",
            Format::Systemd => "systemd",
            Format::Kubernetes => "kubernetes",
            Format::Xl => "xl",
        }
    }
}

/// The texts that make one setting.
#[derive(Clone, PartialEq, Eq, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Deployment {
    /// What is set, as a request: `run sysbench under SCHED_IDLE`.
    pub what: String,
    /// Commands for what already runs (and `# at the start:` for a new program); empty: no command
    /// makes it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub shell: String,
    /// Drop-ins, each below a comment with its path.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub systemd: String,
    /// A fragment of a pod's manifest, or which field is nearest.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kubernetes: String,
    /// Commands for Xen's toolstack.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub xl: String,
    /// What to know before it is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caveats: Vec<String>,
}

/// What has the name of a target on the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// No task.
    Nothing,
    /// Processes.
    Processes,
    /// Threads alone, of processes that have other names.
    Threads,
}

impl Deployment {
    /// Returns how `variant` is made on a machine that runs what `scheduler` models. `from` is the
    /// scheduler of the machine as it is: where they differ, another kernel (or hypervisor) is a
    /// part of the setting. `named` says what has a name: a number that nothing has is the id of a
    /// process. A name that no command can carry leaves only a caveat that says so.
    pub fn from_variant(
        variant: &Variant,
        scheduler: &SchedulerSpec,
        from: &SchedulerSpec,
        named: &dyn Fn(&str) -> Named,
    ) -> Deployment {
        let changes = Changes { steps: steps(variant, named), scheduler, from };
        let what = words::what(&changes);
        let refused: Vec<String> = changes.steps.iter().filter_map(Step::refused).collect();
        if !refused.is_empty() {
            return Deployment { what, caveats: refused, ..Deployment::default() };
        }
        Deployment {
            what,
            shell: shell::text(&changes),
            systemd: systemd::text(&changes),
            kubernetes: kubernetes::text(&changes),
            xl: xl::text(&changes),
            caveats: caveats(&changes),
        }
    }

    /// Returns how a setting such as `BATCH policy=idle` is made on Linux of any release. A setting
    /// that cannot be read is none.
    pub fn of_setting(text: &str) -> Deployment {
        let linux = SchedulerSpec::named("linux");
        let variant = Variant::parse_named("", text);
        variant.map_or_else(
            |_| Deployment::default(),
            |variant| Deployment::from_variant(&variant, &linux, &linux, &|_| Named::Nothing),
        )
    }

    /// Returns the text of a format; `None`: this setting has none in it.
    pub fn text(&self, format: Format) -> Option<&str> {
        let text = match format {
            Format::Shell => &self.shell,
            Format::Systemd => &self.systemd,
            Format::Kubernetes => &self.kubernetes,
            Format::Xl => &self.xl,
        };
        (!text.is_empty()).then_some(text.as_str())
    }

    /// Returns the names of the formats that it has.
    pub fn formats(&self) -> Vec<&'static str> {
        let has = |format: &Format| self.text(*format).is_some();
        Format::ALL.into_iter().filter(has).map(Format::name).collect()
    }
}

/// One change of one target.
struct Step<'a> {
    target: Target<'a>,
    setting: &'a Setting,
}

/// Everything that a setting changes.
struct Changes<'a> {
    steps: Vec<Step<'a>>,
    scheduler: &'a SchedulerSpec,
    from: &'a SchedulerSpec,
}

impl Changes<'_> {
    /// Whether the machine is a Xen host: its groups are domains.
    fn xen(&self) -> bool {
        self.scheduler.family().is_ok_and(Family::is_xen)
    }

    /// Returns the kernel release that the scheduler models: 6.18 of `linux-6.18`.
    fn linux(&self) -> Option<KernelRelease> {
        self.scheduler.family().ok()?.linux()
    }

    /// Whether some step is one of these.
    fn any(&self, is: impl Fn(&Setting) -> bool) -> bool {
        self.steps.iter().any(|step| is(step.setting))
    }
}

fn steps<'a>(variant: &'a Variant, named: &dyn Fn(&str) -> Named) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    for clause in &variant.clauses {
        let target = Target::new(&clause.target, named);
        steps.extend(clause.settings.iter().map(|setting| Step { target, setting }));
    }
    steps
}

impl Step<'_> {
    /// Returns why no command may name what it changes; `None`: commands may.
    fn refused(&self) -> Option<String> {
        let path = match self.setting {
            Setting::Task(TaskSetting::Group(path)) => Target::group(path).refused(),
            _ => None,
        };
        self.target.refused().or(path).or_else(|| self.refused_of_session())
    }

    /// A session has a nice value, and nothing else that a control group has.
    fn refused_of_session(&self) -> Option<String> {
        let is_weight = matches!(self.setting, Setting::Group(GroupSetting::Shares(_)));
        self.target.session().filter(|_| !is_weight).map(|_| {
            format!(
                "No command is given: {} is the autogroup of a session, whose weight is all that                  can be set. Move its tasks to a control group: 'TASK group=/NAME'.",
                self.target
            )
        })
    }
}

/// Target of a setting of a server that the reader names.
pub const SERVER: &str = "SERVER";
/// Target of a setting of batch work that the reader names.
pub const BATCH: &str = "BATCH";

/// The knob that is the release of the system.
const VERSION: &str = "version";

/// The highest mildness of a setting of the system that runs: what is beyond needs another kernel.
pub(crate) const OF_THIS_SYSTEM: u8 = 4;

/// How much a setting asks of the machine's owner: the larger, the more it can disturb. Within a
/// variant the largest counts.
pub(crate) fn mildness(variant: &Variant, scheduler: &SchedulerSpec, from: &SchedulerSpec) -> u8 {
    use schedlab_model::Policy;
    let of = |setting: &Setting| match setting {
        Setting::Task(
            TaskSetting::Nice(_) | TaskSetting::Policy(Policy::Batch | Policy::Other),
        ) => 1,
        Setting::Task(
            TaskSetting::Policy(Policy::Idle) | TaskSetting::Slice(_) | TaskSetting::Group(_),
        ) => 2,
        Setting::Group(
            GroupSetting::Shares(_) | GroupSetting::Idle(_) | GroupSetting::Weight(_),
        ) => 2,
        Setting::Pod(PodSetting::Requests(_) | PodSetting::Conversion(_)) => 2,
        Setting::Pod(PodSetting::Limits(_)) => 3,
        Setting::Task(TaskSetting::Cpus(_))
        | Setting::Group(GroupSetting::Cpus(_) | GroupSetting::Partition(_)) => 3,
        Setting::Group(GroupSetting::Max(_) | GroupSetting::Cap(_)) | Setting::Knob(..) => 3,
        Setting::Task(TaskSetting::Policy(_)) => 4,
        Setting::Machine(_) => 6,
        Setting::Group(GroupSetting::Guest(_)) => 6,
        Setting::Delegation(..) => 7,
        // No setting at all: another load.
        Setting::Task(TaskSetting::Demand(_) | TaskSetting::Off) | Setting::Source(_) => 0,
    };
    let settings =
        variant.clauses.iter().flat_map(|clause| &clause.settings).map(of).max().unwrap_or(0);
    let family = |spec: &SchedulerSpec| spec.name.split('-').next().map(str::to_owned);
    let other = |knob: &&(String, String)| !from.knobs.contains(knob);
    let kernel = match scheduler.name == from.name {
        true if scheduler.knobs.iter().filter(other).any(|(name, _)| name == VERSION) => 5,
        true if scheduler.knobs.iter().any(|knob| other(&knob)) => 3,
        true => 0,
        false if family(scheduler) == family(from) => 5,
        false => 7,
    };
    settings.max(kernel)
}
