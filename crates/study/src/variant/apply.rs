//! Applying a variant to a workload.

use super::scale::{scale, scale_draw};
use super::{
    Clause, GroupSetting, MachineSetting, PodSetting, Setting, SourceSetting, Subject, TaskSetting,
    Variant, VariantError,
};
use crate::delegation::{DelegationSpec, SchedulerPlace};
use crate::scenario::{KernelSpec, Role, SmtYield, VmSpec, absent_cpu, partition};
use schedlab_model::text::glob;
use schedlab_model::{
    Act, Amount, CpuRoles, CpuSet, GroupId, GroupSpec, Ns, Op, Program, SourceKind, Start, Step,
    Workload,
};
use schedlab_scheduler::SchedulerSpec;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A workload with the changes of one variant.
#[derive(Clone, PartialEq, Debug)]
pub struct Applied {
    /// The changed workload.
    pub workload: Workload,
    /// Tasks that were changed, by index.
    pub tasks: BTreeSet<usize>,
    /// Tasks that are off.
    pub off: BTreeSet<usize>,
    /// Knobs to set on the scheduler.
    pub knobs: Vec<(String, String)>,
    /// The domains that still have a kernel of their own.
    pub vms: Vec<VmSpec>,
    /// Where the scheduler runs.
    pub delegation: DelegationSpec,
    /// Preemption model and interrupt threads; `None` for recordings.
    pub kernel: Option<KernelSpec>,
    /// CPUs that the boot line sets apart.
    pub roles: CpuRoles,
    /// What a reader must know of the changes.
    pub notes: Vec<String>,
    /// Speed of a hardware thread beside a busy one of its core.
    pub smt_yield: SmtYield,
}

impl Variant {
    /// The workload of `subject` with this variant's changes.
    pub fn apply(&self, subject: &Subject<'_>) -> Result<Applied, VariantError> {
        let mut applied = Applied {
            workload: subject.workload.clone(),
            tasks: BTreeSet::new(),
            off: BTreeSet::new(),
            knobs: Vec::new(),
            vms: subject.vms.to_vec(),
            delegation: subject.delegation.clone(),
            kernel: subject.kernel.cloned(),
            roles: subject.roles,
            notes: Vec::new(),
            smt_yield: subject.smt_yield,
        };
        // Groups are made first, so that `/batch cpu.max=...` may come before `task group=/batch`.
        for setting in self.clauses.iter().flat_map(|clause| &clause.settings) {
            if let Setting::Task(TaskSetting::Group(path)) = setting {
                make_group(&mut applied.workload, path);
            }
        }
        for clause in &self.clauses {
            applied.clause(clause, subject)?;
        }
        applied.forget_spawns();
        Ok(applied)
    }

    /// Whether this variant is tried with `scheduler`.
    pub fn is_for(&self, scheduler: &SchedulerSpec) -> bool {
        let full = scheduler.to_string();
        self.schedulers.is_empty()
            || self.schedulers.iter().any(|p| glob(p, &full) || glob(p, &scheduler.name))
    }
}

impl Applied {
    /// No task may start one that is off. Once for all of them: a class may have many.
    fn forget_spawns(&mut self) {
        if self.off.is_empty() {
            return;
        }
        let is_off = |op: &Op| matches!(op, Op::Spawn(task) if self.off.contains(&task.index()));
        for task in &mut self.workload.tasks {
            // Programs without such a start stay shared.
            if task.program.ops.iter().any(is_off) {
                let ops = Arc::make_mut(&mut task.program).ops.iter_mut();
                ops.filter(|op| is_off(op)).for_each(|op| *op = Op::Run(Amount::Fixed(Ns::ZERO)));
            }
        }
        let exchange = &mut self.workload.exchange;
        let coroutines =
            exchange.executors.iter_mut().flat_map(|executor| &mut executor.coroutines);
        let steps =
            coroutines.flat_map(|coroutine| &mut coroutine.steps).map(|step| &mut step.step);
        for step in exchange.scripts.iter_mut().flat_map(|script| &mut script.steps).chain(steps) {
            if let Act::Spawn(task) = step.act
                && self.off.contains(&task.index())
            {
                step.act = Act::Nothing;
            }
        }
    }

    fn clause(&mut self, clause: &Clause, subject: &Subject<'_>) -> Result<(), VariantError> {
        let target = &clause.target;
        for setting in &clause.settings {
            check_cpus(target, setting, subject.cpus)?;
            match setting {
                Setting::Task(setting) => self.change_tasks(target, setting, subject)?,
                Setting::Source(setting) => self.change_sources(target, *setting, subject)?,
                Setting::Group(setting) => self.change_group(target, setting, subject)?,
                // All of them together, below.
                Setting::Pod(_) => {}
                Setting::Machine(setting) => self.change_machine(*setting, subject)?,
                Setting::Delegation(key, value) => {
                    self.delegation.set(key, value, subject.cpus).map_err(VariantError::Value)?;
                }
                Setting::Knob(name, value) => self.knobs.push((name.clone(), value.clone())),
            }
        }
        let of_pod = |setting: &Setting| match setting {
            Setting::Pod(setting) => Some(*setting),
            _ => None,
        };
        let of_pod: Vec<PodSetting> = clause.settings.iter().filter_map(of_pod).collect();
        if !of_pod.is_empty() {
            self.change_pod(target, &of_pod, subject)?;
        }
        if clause.settings.iter().any(|setting| matches!(setting, Setting::Delegation(..))) {
            self.check_delegation(subject)?;
        }
        Ok(())
    }

    fn check_delegation(&self, subject: &Subject<'_>) -> Result<(), VariantError> {
        for name in &self.delegation.outside {
            if subject.tasks(name).is_empty() {
                return Err(subject.unknown(name));
            }
        }
        if self.delegation.place != SchedulerPlace::Kernel && !self.vms.is_empty() {
            let text = "virtual machines do not run behind agents: mode=kernel, or bare domains"
                .to_owned();
            return Err(VariantError::Value(text));
        }
        Ok(())
    }

    fn change_machine(
        &mut self,
        setting: MachineSetting,
        subject: &Subject<'_>,
    ) -> Result<(), VariantError> {
        if let MachineSetting::Cpus(role, set) = setting {
            *role.of(&mut self.roles) =
                role.check(set, subject.cpus).map_err(VariantError::Value)?;
            if role == Role::NohzFull {
                self.keep_kernel_threads_off(set, subject);
            }
            return Ok(());
        }
        if let MachineSetting::SmtYield(speed) = setting {
            self.smt_yield = self.smt_yield.set(speed).map_err(VariantError::Value)?;
            return Ok(());
        }
        let Some(kernel) = &mut self.kernel else {
            let text = "a recording does not show kernel sections, so the preemption model cannot \
                        be changed";
            return Err(VariantError::Value(text.to_owned()));
        };
        match setting {
            MachineSetting::Preempt(model) => kernel.preempt = model,
            MachineSetting::ThreadedIrqs(on) => {
                kernel.set_threaded(&mut self.workload, on).map_err(VariantError::Value)?;
            }
            MachineSetting::Cpus(..) | MachineSetting::SmtYield(_) => {}
        }
        Ok(())
    }

    /// Threads of the kernel that may run everywhere keep to the housekeeping CPUs
    /// (`kthread_affine_node` and the mask of unbound workqueues, by HK_TYPE_KTHREAD and
    /// HK_TYPE_WQ, which `nohz_full=` sets).
    fn keep_kernel_threads_off(&mut self, set: CpuSet, subject: &Subject<'_>) {
        let everywhere = CpuSet::first(subject.cpus);
        let tasks = self.workload.tasks.iter_mut().zip(subject.kernel_threads);
        for (task, _) in tasks.filter(|(_, kernel)| **kernel) {
            if task.affinity.and(&everywhere) == everywhere {
                task.affinity = everywhere.without(&set);
            }
        }
    }

    fn change_tasks(
        &mut self,
        target: &str,
        setting: &TaskSetting,
        subject: &Subject<'_>,
    ) -> Result<(), VariantError> {
        let tasks = subject.tasks(target);
        if tasks.is_empty() {
            return Err(subject.unknown(target));
        }
        for index in tasks {
            self.change_task(index, setting);
            self.tasks.insert(index);
        }
        Ok(())
    }

    fn change_task(&mut self, index: usize, setting: &TaskSetting) {
        let group = match setting {
            TaskSetting::Group(path) => make_group(&mut self.workload, path),
            _ => GroupId::ROOT,
        };
        let task = &mut self.workload.tasks[index];
        match setting {
            TaskSetting::Policy(policy) => task.policy = *policy,
            TaskSetting::Nice(nice) => task.nice = *nice,
            TaskSetting::Cpus(cpus) => task.affinity = *cpus,
            TaskSetting::Slice(slice) => task.slice = Some(*slice),
            TaskSetting::Group(_) => task.group = group,
            TaskSetting::Demand(permille) => {
                scale_program(Arc::make_mut(&mut task.program), *permille);
                scale_exchange(&mut self.workload, index, *permille);
            }
            TaskSetting::Off => {
                task.program = Program::once([Op::Exit]).into();
                task.start = Start::Spawned;
                self.off.insert(index);
            }
        }
    }

    fn change_sources(
        &mut self,
        target: &str,
        setting: SourceSetting,
        subject: &Subject<'_>,
    ) -> Result<(), VariantError> {
        let mut sources =
            self.workload.sources.iter_mut().filter(|source| glob(target, &source.name)).peekable();
        if sources.peek().is_none() {
            return Err(subject.unknown(target));
        }
        for source in sources {
            let refuse =
                |why: &str| Err(VariantError::Value(format!("source `{}` {why}", source.name)));
            match (&mut source.kind, setting) {
                (SourceKind::Open { interarrival, .. }, SourceSetting::Rate(permille)) => {
                    scale_draw(interarrival, 1000, permille);
                }
                (SourceKind::Closed { clients, .. }, SourceSetting::Clients(count)) => {
                    *clients = count
                }
                (_, SourceSetting::Rate(_)) => {
                    return refuse("is not open loop: `rate` has no meaning for it");
                }
                (_, SourceSetting::Clients(_)) => {
                    return refuse("has no clients: it is not closed loop");
                }
            }
        }
        Ok(())
    }

    fn change_group(
        &mut self,
        target: &str,
        setting: &GroupSetting,
        subject: &Subject<'_>,
    ) -> Result<(), VariantError> {
        let group = self.workload.groups.iter_mut().find(|group| group.name == target);
        let group = group.ok_or_else(|| subject.unknown(target))?;
        match setting {
            GroupSetting::Cpus(cpus) => group.cpus = Some(*cpus),
            GroupSetting::Partition(text) => {
                group.partition = partition(text, group.cpus).map_err(|message| {
                    VariantError::Value(format!("{target} partition={text}: {message}"))
                })?;
            }
            GroupSetting::Max(bandwidth) => group.bandwidth = *bandwidth,
            GroupSetting::Shares(shares) => group.weight = Some(*shares),
            GroupSetting::Idle(idle) => group.idle = *idle,
            GroupSetting::Cap(cap) => group.cap_percent = *cap,
            GroupSetting::Weight(weight) => group.weight = Some(*weight),
            GroupSetting::Guest(guest) => change_guest(&mut self.vms, target, guest.as_ref())?,
        }
        Ok(())
    }
}

fn check_cpus(target: &str, setting: &Setting, cpus: usize) -> Result<(), VariantError> {
    let (Setting::Task(TaskSetting::Cpus(set)) | Setting::Group(GroupSetting::Cpus(set))) = setting
    else {
        return Ok(());
    };
    match set.iter().find(|cpu| cpu.index() >= cpus) {
        Some(cpu) if *set != CpuSet::ALL => {
            Err(VariantError::Cpu(format!("{target} cpus={set}"), absent_cpu(cpu.index(), cpus)))
        }
        _ => Ok(()),
    }
}

/// The group; it and its parents are made where they do not exist.
pub(super) fn make_group(workload: &mut Workload, path: &str) -> GroupId {
    if workload.groups.is_empty() {
        workload.groups.push(GroupSpec { name: "/".to_owned(), ..GroupSpec::default() });
    }
    let mut parent = GroupId::ROOT;
    let mut full = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        full = format!("{full}/{part}");
        parent = match workload.groups.iter().position(|group| group.name == full) {
            Some(index) => GroupId::from(index),
            None => {
                let group =
                    GroupSpec { name: full.clone(), parent: Some(parent), ..GroupSpec::default() };
                workload.groups.push(group);
                GroupId::from(workload.groups.len() - 1)
            }
        };
    }
    parent
}

/// Another kernel for a domain, or none.
fn change_guest(
    vms: &mut Vec<VmSpec>,
    path: &str,
    guest: Option<&SchedulerSpec>,
) -> Result<(), VariantError> {
    let Some(at) = vms.iter().position(|vm| vm.name == path.trim_start_matches('/')) else {
        return Err(VariantError::Value(format!(
            "group `{path}` has no `vm`, so there is no guest to change"
        )));
    };
    match guest {
        Some(spec) => vms[at].guest = spec.clone(),
        None => drop(vms.remove(at)),
    }
    Ok(())
}

/// Multiplies all CPU time of what the task does at objects by `permille` / 1000. Threads that
/// share their work share its CPU time: that of the first of them counts.
fn scale_exchange(workload: &mut Workload, index: usize, permille: u64) {
    let scaled = |step: &mut Step| {
        step.before = scale(step.before, permille, 1000);
        step.after = scale(step.after, permille, 1000);
    };
    for op in &workload.tasks[index].program.ops {
        match *op {
            Op::Play(script) => {
                let script = &mut workload.exchange.scripts[script.index()];
                script.steps.iter_mut().for_each(scaled);
                script.wake = scale(script.wake, permille, 1000);
            }
            Op::Attend(id)
                if !workload.tasks[..index].iter().any(|task| task.program.ops.contains(op)) =>
            {
                let executor = &mut workload.exchange.executors[id.index()];
                let steps =
                    executor.coroutines.iter_mut().flat_map(|coroutine| &mut coroutine.steps);
                steps.for_each(|step| scaled(&mut step.step));
                for (before, after) in &mut executor.looks_asleep {
                    (*before, *after) =
                        (scale(*before, permille, 1000), scale(*after, permille, 1000));
                }
                executor
                    .looks_awake
                    .iter_mut()
                    .for_each(|look| *look = scale(*look, permille, 1000));
                executor.prices.scale(permille);
            }
            _ => {}
        }
    }
}

/// Multiplies all CPU time that the program asks for by `permille` / 1000.
fn scale_program(program: &mut Program, permille: u64) {
    let mut drawn = BTreeSet::new();
    for op in &mut program.ops {
        if let Op::Run(amount)
        | Op::Kernel { length: amount, .. }
        | Op::Serve { per_request: amount, .. } = op
        {
            match amount {
                Amount::Fixed(ns) => *ns = scale(*ns, permille, 1000),
                Amount::Draw(index) => drop(drawn.insert(*index)),
            }
        }
    }
    // A distribution that a sleep shares with a run gets a copy of its own.
    for index in drawn {
        let mut draw = program.draws[usize::from(index)].clone();
        scale_draw(&mut draw, permille, 1000);
        let shared = program.ops.contains(&Op::Sleep(Amount::Draw(index)));
        if !shared {
            program.draws[usize::from(index)] = draw;
            continue;
        }
        let copy = program.draw(draw);
        for op in &mut program.ops {
            if let Op::Run(amount)
            | Op::Kernel { length: amount, .. }
            | Op::Serve { per_request: amount, .. } = op
                && *amount == Amount::Draw(index)
            {
                *amount = copy;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::subject::tests::bare;
    use super::*;
    use schedlab_model::{Policy, TaskSpec};
    use schedlab_trace::TaskInfo;

    fn subject(
        workload: &Workload,
        classes: &[String],
        text: &str,
    ) -> Result<Applied, VariantError> {
        let threads = [(100, "redis-server"), (200, "sysbench")]
            .map(|(id, name)| TaskInfo::unknown(id, id, name));
        let subject = Subject { threads: &threads, ..bare(workload, classes) };
        Variant::parse(text).unwrap().apply(&subject)
    }

    fn two() -> (Workload, Vec<String>) {
        let tasks = vec![
            TaskSpec::new("redis-server", Program::closed(Ns(1000), Ns(2000))),
            TaskSpec::new("sysbench", Program::hog()),
        ];
        (
            Workload { tasks, ..Workload::default() },
            vec!["redis-server".to_owned(), "sysbench".to_owned()],
        )
    }

    #[test]
    fn changes_only_who_is_named() {
        let (workload, classes) = two();
        let applied = subject(&workload, &classes, "a: sys* policy=idle ; 100 demand=x2").unwrap();
        assert_eq!(applied.workload.tasks[1].policy, Policy::Idle);
        assert_eq!(applied.workload.tasks[0].policy, Policy::Other);
        assert_eq!(applied.workload.tasks[0].program.ops[0], Op::Run(Amount::Fixed(Ns(2000))));
        assert_eq!(applied.workload.tasks[0].program.ops[1], Op::Sleep(Amount::Fixed(Ns(2000))));
    }

    #[test]
    fn makes_groups_and_limits_them() {
        let (workload, classes) = two();
        let applied =
            subject(&workload, &classes, "a: /b/c cpu.max=10ms/100ms ; sysbench group=/b/c")
                .unwrap();
        let names: Vec<&str> =
            applied.workload.groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["/", "/b", "/b/c"]);
        assert_eq!(applied.workload.tasks[1].group, GroupId(2));
        assert_eq!(applied.workload.groups[2].bandwidth.unwrap().quota, Ns::from_ms(10));
        assert_eq!(applied.workload.check(2), Ok(()));
    }

    #[test]
    fn slashes_too_many_name_the_same_group() {
        let (workload, classes) = two();
        let applied =
            subject(&workload, &classes, "a: /b//c/ cpu.weight=20 ; sysbench group=/b/c/").unwrap();
        let group = applied.workload.tasks[1].group;
        assert_eq!(applied.workload.groups[group.index()].name, "/b/c");
        assert_eq!(applied.workload.groups[group.index()].weight, Some(205));
        assert_eq!(
            subject(&workload, &classes, "a: sysbench group=/").unwrap().workload.tasks[1].group,
            GroupId::ROOT
        );
    }

    #[test]
    fn unknown_names_get_the_nearest() {
        let (workload, classes) = two();
        let error = subject(&workload, &classes, "a: sysbnch policy=idle").unwrap_err().to_string();
        assert!(error.contains("did you mean `sysbench`"), "{error}");
        let error = subject(&workload, &classes, "a: sysbench cpus=7").unwrap_err().to_string();
        assert!(error.contains("CPUs 0-1"), "{error}");
        assert!(subject(&workload, &classes, "a: /nobody cpu.max=10ms").is_err());
    }

    #[test]
    fn off_removes_a_task() {
        let (mut workload, classes) = two();
        Arc::make_mut(&mut workload.tasks[0].program)
            .ops
            .push(Op::Spawn(schedlab_model::TaskId(1)));
        let applied = subject(&workload, &classes, "alone: sysbench off").unwrap();
        assert_eq!(applied.workload.tasks[1].start, Start::Spawned);
        assert!(!applied.workload.tasks[0].program.ops.iter().any(|op| matches!(op, Op::Spawn(_))));
    }

    /// Found by fuzzing: 65,535 tasks that three variants leave out. Every program was searched for
    /// each of them.
    #[test]
    fn a_large_class_can_be_off() {
        let hogs = 65_535;
        let mut workload = Workload::default();
        for index in 0..hogs {
            let other = schedlab_model::TaskId::from((index * 7 + 1) % hogs);
            workload.tasks.push(schedlab_model::TaskSpec::new(
                format!("hog-{index}"),
                Program::once([Op::Spawn(other)]),
            ));
        }
        let classes = vec!["hog".to_owned(); hogs];
        let applied = subject(&workload, &classes, "alone: hog off ; hog off").unwrap();
        assert!(applied.workload.tasks.iter().all(|task| task.program.ops == [Op::Exit]));
    }
}
