//! How the machine's kernel lets itself be preempted: `preempt`, `threaded_irqs` and `irq_work` of
//! `[machine]`, and the kernel sections of programs, in words.

use super::document::{Item, ScenarioError, Section};
use super::draw::{parse_draw, show_draw};
use schedlab_model::text::nearest;
use schedlab_model::{
    Amount, CpuId, CpuSet, Draw, Ns, Op, Policy, Program, Start, TaskId, TaskSpec, Workload,
};
use schedlab_sim::{PreemptModel, Preemption};
use std::collections::BTreeMap;

/// The keys of `[machine]` that are read here.
pub(super) const KEYS: [&str; 3] = ["preempt", "threaded_irqs", "irq_work"];
/// The class of the interrupt threads in tables.
pub const IRQ_CLASS: &str = "irq";
/// The priority that Linux gives its interrupt threads.
const IRQ_POLICY: Policy = Policy::Fifo(50);
/// What a handler takes where the scenario does not say. Chosen by us without a source.
const IRQ_WORK: Ns = Ns::from_us(5);

/// Preemption model and interrupt threads.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelSpec {
    /// The preemption model.
    pub preempt: PreemptModel,
    /// Requests from outside go through a thread of each CPU; `None`: the scenario says nothing, so
    /// it has no such threads and no variant can switch them on.
    pub threaded_irqs: Option<bool>,
    /// What the handlers of a batch of interrupts take in the thread.
    pub irq_work: Draw,
}

impl Default for KernelSpec {
    fn default() -> KernelSpec {
        KernelSpec {
            preempt: PreemptModel::Full,
            threaded_irqs: None,
            irq_work: Draw::Fixed(IRQ_WORK),
        }
    }
}

/// Reads the keys of `[machine]`.
pub(super) fn read(section: &Section<'_>) -> Result<KernelSpec, ScenarioError> {
    let preempt = section.optional("preempt", |item| model(&item))?.unwrap_or_default();
    let threaded_irqs = section.optional("threaded_irqs", |item| item.flag())?;
    let irq_work = section.optional("irq_work", |item| {
        if threaded_irqs.is_none() {
            return Err(item.error("`irq_work` has a meaning only with `threaded_irqs`"));
        }
        parse_draw(item.text()?).map_err(|message| item.error(format!("irq_work: {message}")))
    })?;
    Ok(KernelSpec { preempt, threaded_irqs, irq_work: irq_work.unwrap_or(Draw::Fixed(IRQ_WORK)) })
}

/// A preemption model by name.
pub(super) fn model(item: &Item<'_>) -> Result<PreemptModel, ScenarioError> {
    parse_model(item.text()?).map_err(|message| item.error(message))
}

/// A preemption model by name, or what is allowed.
pub(crate) fn parse_model(name: &str) -> Result<PreemptModel, String> {
    PreemptModel::from_name(name).ok_or_else(|| {
        let names = PreemptModel::ALL.map(PreemptModel::name);
        let hint =
            nearest(name, names.into_iter()).map(|right| format!(": did you mean `{right}`?"));
        let hint = hint.unwrap_or_else(|| format!("; there are {}", names.join(", ")));
        format!("there is no preemption model `{name}`{hint}")
    })
}

impl KernelSpec {
    /// Adds the interrupt threads, if the scenario has any, one for each of `cpus` CPUs; gives back
    /// their number.
    pub(super) fn add_threads(&self, workload: &mut Workload, cpus: usize) -> usize {
        let Some(on) = self.threaded_irqs else { return 0 };
        for cpu in 0..cpus {
            let mut program = Program::default();
            let work = match &self.irq_work {
                Draw::Fixed(length) => Amount::Fixed(*length),
                draw => program.draw(draw.clone()),
            };
            (program.ops, program.repeat_from) = (vec![Op::Interrupts(work)], Some(0));
            let mut task = TaskSpec::new(format!("{IRQ_CLASS}/{cpu}"), program);
            (task.policy, task.affinity) = (IRQ_POLICY, CpuSet::single(CpuId(cpu as u32)));
            task.start = start(on);
            workload.tasks.push(task);
        }
        cpus
    }

    /// Switches the interrupt threads on or off.
    pub(crate) fn set_threaded(&mut self, workload: &mut Workload, on: bool) -> Result<(), String> {
        if self.threaded_irqs.is_none() {
            return Err(
                "the scenario has no interrupt threads: write threaded_irqs = false into its \
                 [machine], so \
                        that they exist and variants can switch them on"
                    .to_owned(),
            );
        }
        self.threaded_irqs = Some(on);
        for thread in threads(workload) {
            workload.tasks[thread.index()].start = start(on);
        }
        Ok(())
    }

    /// For the simulator.
    pub(crate) fn preemption(&self, workload: &Workload) -> Preemption {
        let on = self.threaded_irqs == Some(true);
        Preemption {
            model: self.preempt,
            irq_threads: if on { threads(workload) } else { Vec::new() },
        }
    }
}

fn start(on: bool) -> Start {
    if on { Start::AsleepUntil(Ns::ZERO) } else { Start::Spawned }
}

/// The interrupt threads, by CPU.
fn threads(workload: &Workload) -> Vec<TaskId> {
    let serves =
        |task: &TaskSpec| task.program.ops.iter().any(|op| matches!(op, Op::Interrupts(_)));
    let all = workload.tasks.iter().enumerate().filter(|(_, task)| serves(task));
    all.map(|(index, _)| TaskId::from(index)).collect()
}

/// Every distribution of kernel sections of a workload in words, and whose it is.
pub(crate) fn sections(workload: &Workload, classes: &[String]) -> Vec<String> {
    let mut found: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (task, class) in workload.tasks.iter().zip(classes) {
        for op in &task.program.ops {
            let (kind, length) = match op {
                Op::Kernel { section, length } => (section.name(), length),
                Op::Interrupts(length) => ("interrupt handlers, preemptible", length),
                _ => continue,
            };
            let length = match length {
                Amount::Fixed(length) => length.to_string(),
                Amount::Draw(index) => {
                    task.program.draws.get(usize::from(*index)).map(show_draw).unwrap_or_default()
                }
            };
            *found.entry((class.clone(), format!("{kind}: {length}"))).or_default() += 1;
        }
    }
    found.into_keys().map(|(class, text)| format!("{class}, {text}")).collect()
}
