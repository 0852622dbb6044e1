//! Scenarios: a machine, a workload, schedulers, variants and expectations, written by hand in
//! TOML.
//!
//! The format is described in `docs/scenario-format.md`. [`load`] reads a file, [`parse`] a text;
//! both check everything that can be checked without running, and every mistake comes back as a
//! [`ScenarioError`] with its place.

mod delegation;
mod document;
mod draw;
mod expect;
mod group;
mod headline;
mod kernel;
mod machine;
mod publication;
mod simulated;
mod source;
mod step;
mod sweep;
mod task;
mod vm;
mod waits;

pub use document::ScenarioError;
pub(crate) use document::not_modelled;
pub use draw::{parse_draw, show_draw};
pub use expect::{Bound, Cause, Expectation, PLAIN_TOLERANCE, Publication};
pub(crate) use group::{absent_cpu, bandwidth, partition, shares_of_weight, weight_of_shares};
pub use kernel::{IRQ_CLASS, KernelSpec};
pub(crate) use kernel::{parse_model, sections};
pub use machine::Role;
pub use machine::{MachineSpec, SmtYield, Ticks};
pub(crate) use simulated::task_info;
pub use sweep::Sweep;
pub use vm::VmSpec;

use crate::delegation::{DelegationSpec, SchedulerPlace};
use crate::headline::Wanted;
use crate::variant::Variant;
use document::{Section, Source};
use schedlab_model::text::shown;
use schedlab_model::{GroupSpec, Ns, Op, SourceKind, Workload, WorkloadError};
use schedlab_scheduler::{SchedulerSpec, registry};
use std::path::Path;
use step::Names;
use toml::de::DeTable;

const KEYS: [&str; 23] = [
    "title",
    "about",
    "headline",
    "machine",
    "delegation",
    "schedulers",
    "duration",
    "end",
    "warmup",
    "seed",
    "repetitions",
    "channels",
    "locks",
    "group",
    "task",
    "source",
    "variant",
    "expect",
    "baseline",
    "baseline_set",
    "fitted",
    "published_in",
    "sweep",
];
/// The largest scenario file that is read.
const MAX_BYTES: u64 = 64 << 20;
/// What a run may last: one virtual day.
const MAX_DURATION: Ns = Ns::from_s(86_400);
/// How long a workload that ends by itself may take.
const OPEN_END: Ns = Ns::from_s(3600);

/// Everything that a scenario file says.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Name: the file's name without `.toml`.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it teaches, as text.
    pub about: String,
    /// The numbers that it is about, the most important first; empty: those that change most.
    pub headline: Vec<Wanted>,
    /// Which numbers were fitted, and to what, as text for `--explain`.
    pub fitted: Vec<String>,
    /// The machine.
    pub machine: MachineSpec,
    /// Where the schedulers run.
    pub delegation: DelegationSpec,
    /// The schedulers to compare, unless the user names others.
    pub schedulers: Vec<SchedulerSpec>,
    /// Tasks, groups, channels, sources.
    pub workload: Workload,
    /// Domains with kernels of their own.
    pub vms: Vec<VmSpec>,
    /// The class of each task: its name in the file, which copies share.
    pub classes: Vec<String>,
    /// What is tried beside the unchanged workload.
    pub variants: Vec<Variant>,
    /// Name of the workload without a variant in tables.
    pub baseline: String,
    /// What the baseline leaves out of (or changes in) the tasks of the file; variants begin with
    /// all of them.
    pub baseline_set: Option<Variant>,
    /// Other numbers of CPUs and tasks.
    pub sweep: Option<Sweep>,
    /// How long each run lasts (virtual time).
    pub duration: Ns,
    /// A run ends with its last task, if that is earlier.
    pub end_with_tasks: bool,
    /// What happens before this is not counted.
    pub warmup: Ns,
    /// First seed; the others follow it.
    pub seed: u64,
    /// How many seeds.
    pub repetitions: u32,
    /// What must come out.
    pub expectations: Vec<Expectation>,
    /// What was left out when it was imported; results carry it.
    pub notes: Vec<String>,
}

/// Reads the scenario in `path`.
pub fn load(path: &Path) -> Result<Scenario, ScenarioError> {
    let file = path.display().to_string();
    let source = Source { file: &file, text: "" };
    let fail =
        |error: std::io::Error| source.error_without_place(format!("cannot be read: {error}"));
    let bytes = schedlab_files::read_named(path, MAX_BYTES).map_err(fail)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        source.error_without_place(
            "is not a text file: a scenario is TOML in UTF-8 (see docs/scenario-format.md)",
        )
    })?;
    let name = path
        .file_stem()
        .map(|stem| shown(&stem.to_string_lossy()).into_owned())
        .unwrap_or_default();
    parse(&name, &file, &text)
}

/// Reads a scenario from `text`; `file` is for messages.
pub fn parse(name: &str, file: &str, text: &str) -> Result<Scenario, ScenarioError> {
    let source = Source { file, text };
    let table = DeTable::parse(text).map_err(|error| {
        let message = format!("not valid TOML: {}", error.message().trim_end());
        match error.span() {
            Some(span) => source.error(span, message),
            None => source.error_without_place(message),
        }
    })?;
    let root = Section::new(&source, table.get_ref(), 0..0, "a scenario", &KEYS)?;
    Reader { source: &source, root }.read(name)
}

struct Reader<'a> {
    source: &'a Source<'a>,
    root: Section<'a>,
}

impl Reader<'_> {
    fn read(&self, name: &str) -> Result<Scenario, ScenarioError> {
        let root = &self.root;
        let machine = machine::read(root)?;
        let cpus = machine.topology.cpus();
        let groups = group::read(root, cpus)?;
        let vms = vm::read(root, &groups, cpus)?;
        let delegation = delegation::read(root, cpus)?;
        if delegation.place != SchedulerPlace::Kernel && !vms.is_empty() {
            return Err(root.error_of_file(
                "virtual machines do not run behind agents: leave out `vm` or [delegation]",
            ));
        }
        let (mut workload, mut classes) = self.workload(&machine, groups)?;
        let threads = machine.kernel.add_threads(&mut workload, cpus);
        classes.extend((0..threads).map(|_| IRQ_CLASS.to_owned()));
        if threads > 0 && !vms.is_empty() {
            return Err(root
                .error_of_file("`threaded_irqs` and `vm` do not go together yet: leave one out"));
        }
        let text =
            |key: &'static str| root.optional(key, |item| Ok(item.text()?.trim().to_owned()));
        let about = root.optional("about", |item| Ok(item.prose()?.trim().to_owned()))?;
        let duration = self.duration(&workload)?;
        let mut scenario = Scenario {
            name: name.to_owned(),
            title: text("title")?.unwrap_or_default(),
            about: about.unwrap_or_default(),
            headline: Vec::new(),
            fitted: self.fitted()?,
            machine,
            delegation,
            schedulers: self.schedulers()?,
            vms,
            classes,
            variants: Vec::new(),
            baseline: text("baseline")?.unwrap_or_else(|| "as it is".to_owned()),
            baseline_set: None,
            sweep: sweep::read(root, workload.tasks.len())?,
            duration,
            end_with_tasks: self.ends_with_tasks(&workload)?,
            warmup: self.warmup(duration)?,
            seed: root.optional("seed", |item| item.integer(0, i64::MAX))?.unwrap_or(1) as u64,
            repetitions: root.optional("repetitions", |item| item.integer(1, 1000))?.unwrap_or(1)
                as u32,
            workload,
            expectations: Vec::new(),
            notes: Vec::new(),
        };
        if scenario.sweep.is_some() && !scenario.stands_alone() {
            let text = "[sweep] is for tasks that need nothing else: leave out channels, sources, \
                        groups, vm and threaded_irqs";
            return Err(root.error_of_file(text));
        }
        scenario.create();
        self.named(scenario)
    }

    /// Reads the tasks and what they use, and checks that they can work together. Returns the class
    /// of each task too.
    fn workload(
        &self,
        machine: &MachineSpec,
        groups: Vec<GroupSpec>,
    ) -> Result<(Workload, Vec<String>), ScenarioError> {
        let root = &self.root;
        let cpus = machine.topology.cpus();
        let mut names = Names::default();
        let channels = source::read_channels(root, &mut names)?;
        let inheriting_locks = source::read_locks(root, &mut names)?;
        let tasks = task::read(root, &groups, &mut names, cpus)?;
        let sources = source::read(root, &names)?;
        let workload = Workload {
            groups,
            tasks: tasks.specs,
            channels,
            sources,
            locks: names.locks.len() as u32,
            inheriting_locks,
            ..Workload::default()
        };
        let at =
            |index: usize, message: String| self.source.error(tasks.places[index].clone(), message);
        waits::check(&workload, &names.locks).map_err(|(index, message)| at(index, message))?;
        workload.check(cpus).map_err(|error| self.misfit(&workload, &error, &at))?;
        if machine.kernel.threaded_irqs.is_some()
            && let Some(index) = names.tasks.iter().position(|name| name.starts_with("irq/"))
        {
            return Err(at(
                index,
                "`irq/N` is the name of an interrupt thread (threaded_irqs)".to_owned(),
            ));
        }
        Ok((workload, tasks.classes))
    }

    /// Reads what names tasks and groups of the scenario, which are all known by now.
    fn named(&self, mut scenario: Scenario) -> Result<Scenario, ScenarioError> {
        let subject = scenario.subject();
        if let Some(name) =
            scenario.delegation.outside.iter().find(|name| subject.tasks(name).is_empty())
        {
            return Err(self
                .root
                .error_of_file(format!("[delegation] outside: {}", subject.unknown(name))));
        }
        scenario.baseline_set = self.baseline_set(&scenario)?;
        scenario.variants = self.variants(&scenario)?;
        scenario.expectations = expect::read(&self.root, self.source, &scenario)?;
        scenario.headline = headline::read(&self.root, &scenario)?;
        Ok(scenario)
    }

    /// What does not fit together, at the task that it is about where it is about one.
    fn misfit(
        &self,
        workload: &Workload,
        error: &WorkloadError,
        at: &dyn Fn(usize, String) -> ScenarioError,
    ) -> ScenarioError {
        let (WorkloadError::Missing { task, .. }
        | WorkloadError::Affinity { task, .. }
        | WorkloadError::Spins { task }) = error
        else {
            return self.source.error_without_place(error.to_string());
        };
        match workload.tasks.iter().position(|other| other.name == *task) {
            Some(index) => at(index, error.to_string()),
            None => self.source.error_without_place(error.to_string()),
        }
    }

    fn fitted(&self) -> Result<Vec<String>, ScenarioError> {
        let Some(list) = self.root.get("fitted") else { return Ok(Vec::new()) };
        list.list()?.iter().map(|item| Ok(item.prose()?.trim().to_owned())).collect()
    }

    fn schedulers(&self) -> Result<Vec<SchedulerSpec>, ScenarioError> {
        let example = "schedulers = [\"linux-6.18\"]";
        let list = self.root.need("schedulers", example)?;
        let mut specs = Vec::new();
        for item in list.list()? {
            let spec: SchedulerSpec = item.parse()?;
            registry::check(&spec).map_err(|error| item.error(error.to_string()))?;
            if specs.contains(&spec) {
                return Err(item.error(format!("`{spec}` is listed twice")));
            }
            specs.push(spec);
        }
        match specs.is_empty() {
            true => Err(list.error(format!("name at least one scheduler: {example}"))),
            false => Ok(specs),
        }
    }

    fn duration(&self, workload: &Workload) -> Result<Ns, ScenarioError> {
        if let Some(item) = self.root.get("duration") {
            let duration = item.positive_time()?;
            if duration > MAX_DURATION {
                return Err(
                    item.error("`duration` is longer than a virtual day (24 hours are 1440m)")
                );
            }
            return Ok(duration);
        }
        let endless = endless(workload);
        match endless {
            Some(what) => Err(self.root.error_of_file(format!(
                "this workload never ends: {what}. Say how long to run it, such as duration = \
                 \"10s\""
            ))),
            None => Ok(OPEN_END),
        }
    }

    /// `end = "tasks"`.
    fn ends_with_tasks(&self, workload: &Workload) -> Result<bool, ScenarioError> {
        let Some(item) = self.root.get("end") else { return Ok(false) };
        match item.text()? {
            "duration" => return Ok(false),
            "tasks" => {}
            other => {
                return Err(item.error(format!(
                    "`{other}`: a run ends with its \"tasks\" or its \"duration\""
                )));
            }
        }
        let elsewhere = ["vm", "delegation"].into_iter().find(|key| self.root.get(key).is_some());
        if let Some(key) = elsewhere {
            return Err(
                item.error(format!("a run with `{key}` ends with its duration: leave out `end`"))
            );
        }
        match endless(workload) {
            Some(what) => Err(item.error(format!("the tasks of this workload never end: {what}"))),
            None => Ok(true),
        }
    }

    fn warmup(&self, duration: Ns) -> Result<Ns, ScenarioError> {
        let Some(item) = self.root.get("warmup") else { return Ok(Ns::ZERO) };
        let warmup = item.time()?;
        if warmup >= duration {
            return Err(
                item.error(format!("`warmup` must be shorter than the duration ({duration})"))
            );
        }
        Ok(warmup)
    }

    fn baseline_set(&self, scenario: &Scenario) -> Result<Option<Variant>, ScenarioError> {
        self.root.optional("baseline_set", |set| {
            let variant = Variant::parse_named(&scenario.baseline, set.prose()?);
            let variant = variant.map_err(|error| set.error(error.to_string()))?;
            let applied = variant.apply(&scenario.subject());
            applied.map_err(|error| set.error(error.to_string()))?;
            Ok(variant)
        })
    }

    fn variants(&self, scenario: &Scenario) -> Result<Vec<Variant>, ScenarioError> {
        let keys = ["name", "set", "schedulers", "about"];
        let mut variants: Vec<Variant> = Vec::new();
        for section in self.root.sections("variant", "[[variant]]", &keys)? {
            let name = section.need("name", "name = \"batch idle\"")?;
            let label = name.text()?.trim();
            if label.is_empty()
                || label == scenario.baseline
                || variants.iter().any(|v| v.name == label)
            {
                return Err(name.error(format!("the name `{label}` is empty or already taken")));
            }
            let set = section.need("set", "set = \"sysbench policy=idle\"")?;
            let mut variant =
                Variant::parse_named(label, set.prose()?).map_err(|e| set.error(e.to_string()))?;
            if let Some(only) = section.get("schedulers") {
                variant.schedulers = only
                    .list()?
                    .iter()
                    .map(|item| Ok(item.text()?.to_owned()))
                    .collect::<Result<_, _>>()?;
            }
            let subject = scenario.subject();
            variant.apply(&subject).map_err(|error| set.error(error.to_string()))?;
            variants.push(variant);
        }
        Ok(variants)
    }
}

impl Scenario {
    /// Whether any number of its tasks is a workload too.
    fn stands_alone(&self) -> bool {
        let workload = &self.workload;
        let spawns = |op: &Op| matches!(op, Op::Spawn(_));
        workload.channels.is_empty()
            && workload.sources.is_empty()
            && workload.groups.len() == 1
            && self.vms.is_empty()
            && self.machine.kernel.threaded_irqs.is_none()
            && !workload.tasks.iter().any(|task| task.program.ops.iter().any(spawns))
    }

    /// The classes of vCPUs, and the vCPUs.
    pub(crate) fn vcpu_names(&self) -> Vec<String> {
        self.vms.iter().flat_map(|vm| std::iter::once(vm.class()).chain(vm.vcpu_names())).collect()
    }
}

/// What keeps the workload from ending, in words.
fn endless(workload: &Workload) -> Option<String> {
    let source =
        workload.sources.iter().find(|source| !matches!(source.kind, SourceKind::Recorded { .. }));
    if let Some(source) = source {
        return Some(format!("source `{}` sends for ever", source.name));
    }
    let loops = workload.tasks.iter().find(|task| {
        let waits =
            |op: &Op| matches!(op, Op::Receive(_) | Op::ReceiveAll(_) | Op::ReceiveCount { .. });
        task.program
            .repeat_from
            .is_some_and(|from| !task.program.ops[from as usize..].iter().any(waits))
    });
    loops.map(|task| format!("task `{}` starts its program over and over", task.name))
}

impl Source<'_> {
    fn line(&self, at: usize) -> usize {
        self.text[..self.text.floor_char_boundary(at)].matches('\n').count() + 1
    }
}

impl Section<'_> {
    /// A mistake of the file, not of one of its sections.
    fn error_of_file(&self, message: impl Into<String>) -> ScenarioError {
        ScenarioError { line: 0, ..self.error(message) }
    }
}
