//! Settings that count against no other task. A nice value and the policies other, batch and idle
//! weigh only among the tasks of one group (`kernel/sched/fair.c`: each group has a queue of its
//! own, since 2.6.24), and a session is a group while `sched_autogroup_enabled` is on. A task that
//! is alone in its group gets nothing from them; the group's weight counts.

use crate::result::Row;
use crate::run::RowPlan;
use crate::scenario::weight_of_shares;
use crate::variant::{Clause, Setting, TaskSetting, quoted_target};
use schedlab_model::text::{shell_word, shown};
use schedlab_model::{CpuSet, GroupId, Nice, Policy, Workload};
use schedlab_scheduler::linux::{KernelRelease, WEIGHT_OF_IDLE, WEIGHT_OF_NICE_0, weight_of_nice};
use schedlab_scheduler::registry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What other tasks may have of one CPU, all together, while a task still counts as alone
/// (a choice).
const ALONE: f64 = 0.01;
/// The release in which control groups became groups of the fair class.
const GROUPS: KernelRelease = KernelRelease::new(2, 6, 24);
/// The release in which a whole group can be idle (`cpu.idle`).
const IDLE_GROUPS: KernelRelease = KernelRelease::new(5, 15, 0);
/// The group that an offered variant makes.
const NEW_GROUP: &str = "/background";

/// A nice value or policy that counts against no other task.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct NoEffect {
    /// The setting, as a variant has it: `sysbench nice=19`.
    pub setting: String,
    /// The control group or the session's autogroup in which nothing else competes.
    pub group: String,
    /// The group whose weight counts: `group`, or one above it; missing: no other group competes
    /// for its CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_of: Option<String>,
    /// A variant that does what was meant, by the weight of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// All of it in words.
    pub sentence: String,
    /// The same in few words.
    pub short: String,
    /// That group is a session's, which has the weights of nice values.
    #[serde(skip)]
    of_session: bool,
}

impl NoEffect {
    /// Returns what is set, without the value: of many values the first speaks for all.
    fn subject(&self) -> (&str, &str) {
        (self.setting.split_once('=').map_or(&self.setting[..], |(key, _)| key), &self.group)
    }

    /// Returns the weight that counts instead, as a dimension of a search.
    pub(crate) fn space(&self) -> Option<String> {
        let path = quoted_target(self.weight_of.as_ref()?);
        self.instead.as_ref()?;
        // The least weight of a session is that of nice 19.
        let values = if self.of_session { "cpu.shares=15..1024" } else { "cpu.weight=1..100" };
        Some(format!("{path} {values}"))
    }
}

/// Returns one of `all` for each setting, whatever its value, and group.
pub(crate) fn of_each<'a>(all: impl Iterator<Item = &'a NoEffect>) -> Vec<&'a NoEffect> {
    let mut seen = BTreeSet::new();
    all.filter(|one| seen.insert(one.subject())).collect()
}

/// What is known of a workload's tasks beside their programs.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    /// Class of each task.
    pub(crate) classes: &'a [String],
    /// The part of one CPU that a task had.
    pub(crate) share: &'a dyn Fn(usize) -> f64,
}

/// Returns the settings of `plan` that count against no other task; `base` is the row without
/// them.
pub(crate) fn of_plan(plan: &RowPlan, base: &RowPlan, known: Known<'_>) -> Vec<NoEffect> {
    let Some(groups) = Groups::new(plan, base, known) else { return Vec::new() };
    let mut all = Vec::new();
    for clause in &plan.set.clauses {
        for setting in clause.settings.iter().filter(|setting| is_weighing(setting)) {
            let of_group = groups.of(clause).into_iter();
            let found = of_group.filter_map(|(group, tasks)| {
                let alone = groups.alone(group, &tasks).filter(|_| groups.share(&tasks) >= ALONE);
                Some(groups.say(clause, setting, &alone?))
            });
            all.extend(found);
        }
    }
    all
}

/// Returns why nothing that `plan` sets, nice values only, counts against another task; `None`:
/// something may.
pub(crate) fn of_whole_plan(plan: &RowPlan, base: &RowPlan, known: Known<'_>) -> Option<NoEffect> {
    let groups = Groups::new(plan, base, known)?;
    let mut first = None;
    for clause in &plan.set.clauses {
        for (group, tasks) in groups.of(clause) {
            let runs = |task: &usize| groups.share(&[*task]) > 0.0;
            if !tasks.iter().any(runs) {
                continue;
            }
            let alone = groups.alone(group, &tasks)?;
            let weighing = clause.settings.iter().find(|setting| is_weighing(setting))?;
            first = first.or_else(|| Some(groups.say(clause, weighing, &alone)));
        }
    }
    first
}

/// Writes them to the rows of `plans`, of which the first sets nothing.
pub(crate) fn add_to(rows: &mut [Row], plans: &[RowPlan], known: Known<'_>) {
    for (row, plan) in rows.iter_mut().zip(plans) {
        row.no_effect = of_plan(plan, &plans[0], known);
    }
}

/// Whether a setting is one that counts within a group only.
fn is_weighing(setting: &Setting) -> bool {
    match setting {
        Setting::Task(TaskSetting::Nice(_)) => true,
        Setting::Task(TaskSetting::Policy(policy)) => policy.is_fair(),
        _ => false,
    }
}

/// The groups of a row's workload, as the row's kernel has them.
struct Groups<'a> {
    plan: &'a RowPlan,
    base: &'a Workload,
    known: Known<'a>,
    release: KernelRelease,
    /// Sessions are groups.
    sessions: bool,
}

/// Tasks that have a group for themselves.
struct Alone {
    group: GroupId,
    /// Every task that runs there; the others are changed in the same way.
    tasks: Vec<usize>,
    /// What other fair tasks had there, of one CPU.
    others: f64,
    /// Tasks of other policies run there, too: these weigh against nothing.
    realtime: bool,
}

impl<'a> Groups<'a> {
    /// `None`: the scheduler has no groups that nice values could count in.
    fn new(plan: &'a RowPlan, base: &'a RowPlan, known: Known<'a>) -> Option<Groups<'a>> {
        let release = plan.scheduler.family().ok()?.linux()?;
        let knobs = (registry::find(&plan.scheduler.name).ok()?.knobs)();
        const SESSIONS: &str = "sched_autogroup_enabled";
        let set = plan.scheduler.knobs.iter().rev().find(|(name, _)| name == SESSIONS);
        let has = knobs.iter().any(|knob| knob.name == SESSIONS);
        let off = set.is_some_and(|(_, value)| matches!(value.trim(), "0" | "off" | "false"));
        let bare = plan.vms.is_empty() && plan.delegation.is_none() && release >= GROUPS;
        bare.then_some(Groups { plan, base: &base.workload, known, release, sessions: has && !off })
    }

    /// Returns the group above one; `None`: it is the root.
    fn parent(&self, group: GroupId) -> Option<GroupId> {
        self.plan.workload.groups.get(group.index())?.parent.map(|parent| self.real(parent))
    }

    /// Returns the group that a group is for the kernel: a session is none while they are off.
    fn real(&self, group: GroupId) -> GroupId {
        match self.plan.workload.groups.get(group.index()) {
            Some(spec) if spec.autogroup && !self.sessions => {
                spec.parent.map_or(GroupId::ROOT, |parent| self.real(parent))
            }
            _ => group,
        }
    }

    fn group(&self, task: usize) -> GroupId {
        self.real(self.plan.workload.tasks[task].group)
    }

    fn name(&self, group: GroupId) -> &str {
        self.plan.workload.groups.get(group.index()).map_or("/", |spec| spec.name.as_str())
    }

    fn is_session(&self, group: GroupId) -> bool {
        self.plan.workload.groups.get(group.index()).is_some_and(|spec| spec.autogroup)
    }

    /// Whether `group` is `of`, or below it.
    fn is_in(&self, group: GroupId, of: GroupId) -> bool {
        std::iter::successors(Some(group), |group| self.parent(*group)).any(|group| group == of)
    }

    /// Returns the tasks of a clause, by the group in which they are.
    fn of(&self, clause: &Clause) -> BTreeMap<GroupId, Vec<usize>> {
        let mut all: BTreeMap<GroupId, Vec<usize>> = BTreeMap::new();
        let tasks = self.plan.targets.get(&clause.target).into_iter().flatten();
        for &task in tasks.filter(|task| !self.plan.off.contains(task)) {
            all.entry(self.group(task)).or_default().push(task);
        }
        all
    }

    /// Returns what makes a task's weight, before and after.
    fn weighs(&self, task: usize) -> [(Policy, Nice); 2] {
        [self.base, &self.plan.workload].map(|workload| {
            let task = &workload.tasks[task];
            (task.policy, task.nice)
        })
    }

    /// Returns the tasks in `group` and below that may run on one of `cpus`.
    fn within(&self, group: GroupId, cpus: CpuSet) -> impl Iterator<Item = usize> {
        let runs = move |task: &usize| {
            let allowed = self.plan.allowed(*task).unwrap_or_default();
            let is_there = !self.plan.off.contains(task) && self.is_in(self.group(*task), group);
            is_there && !allowed.and(&cpus).is_empty()
        };
        (0..self.plan.workload.tasks.len()).filter(runs)
    }

    fn is_fair(&self, task: usize) -> bool {
        self.plan.workload.tasks[task].policy.is_fair()
    }

    fn share(&self, tasks: &[usize]) -> f64 {
        tasks.iter().map(|&task| (self.known.share)(task)).sum()
    }

    fn cpus(&self, tasks: &[usize]) -> CpuSet {
        let allowed = tasks.iter().filter_map(|&task| self.plan.allowed(task));
        allowed.fold(CpuSet::default(), |all, one| all.or(&one))
    }

    /// Returns what runs in `group` when no task there weighs against `tasks`: the others are
    /// changed in the same way, or hardly run. `None`: their weights count, or do not change.
    fn alone(&self, group: GroupId, tasks: &[usize]) -> Option<Alone> {
        let most = |a: &&usize, b: &&usize| self.share(&[**a]).total_cmp(&self.share(&[**b]));
        let &first = tasks.iter().max_by(most)?;
        let weighs = self.weighs(first);
        let [before, after] = weighs;
        let counts = before != after && before.0.is_fair() && after.0.is_fair();
        if !counts || group == GroupId::ROOT {
            return None;
        }
        let there: Vec<usize> = self.within(group, self.cpus(tasks)).collect();
        let (fair, rest): (Vec<usize>, Vec<usize>) =
            there.into_iter().partition(|&task| self.is_fair(task));
        let is_alike = |task: usize| self.group(task) == group && self.weighs(task) == weighs;
        let (mut alike, others): (Vec<usize>, Vec<usize>) =
            fair.into_iter().partition(|&task| is_alike(task));
        alike.retain(|&task| self.share(&[task]) > 0.0);
        let others = self.share(&others);
        let realtime = self.share(&rest) >= ALONE;
        (others < ALONE).then_some(Alone { group, tasks: alike, others, realtime })
    }

    /// Returns the lowest group, from that of `alone` upwards, whose weight counts, and the
    /// programs against which it does, those with most CPU time first.
    fn weight_counts(&self, alone: &Alone) -> Option<(GroupId, Vec<&str>)> {
        let cpus = self.cpus(&alone.tasks);
        let mut group = alone.group;
        while let Some(parent) = self.parent(group) {
            let beside =
                |task: &usize| self.is_fair(*task) && !self.is_in(self.group(*task), group);
            let mut shares: BTreeMap<&str, f64> = BTreeMap::new();
            for task in self.within(parent, cpus).filter(beside) {
                *shares.entry(&self.known.classes[task]).or_default() += self.share(&[task]);
            }
            if shares.values().sum::<f64>() >= ALONE {
                let mut names: Vec<(&str, f64)> =
                    shares.into_iter().filter(|(_, share)| *share >= ALONE / 2.0).collect();
                names.sort_by(|a, b| b.1.total_cmp(&a.1));
                return Some((group, names.into_iter().map(|(name, _)| name).collect()));
            }
            group = parent;
        }
        None
    }

    fn say(&self, clause: &Clause, setting: &Setting, alone: &Alone) -> NoEffect {
        let target = quoted_target(&clause.target);
        let (key, why, left) = words(setting);
        let weight = self.weight_counts(alone);
        let instead =
            weight.as_ref().and_then(|(group, _)| self.instead(&target, setting, alone, *group));
        let who = self.who(clause, alone);
        let counting = weight.as_ref().map_or(String::new(), |(group, _)| {
            format!("; the weight of {} does", shown(self.name(*group)))
        });
        let mut sentence = format!(
            "{who}: {key} changes no share of CPU time there, because {why} only among the tasks \
             of one group{left}."
        );
        sentence += &match &weight {
            None => " No other group competes for its CPUs.".to_owned(),
            Some((group, against)) => format!(
                " The weight of {} counts, against {}{}.",
                shown(self.name(*group)),
                some(against),
                instead
                    .as_ref()
                    .map_or(String::new(), |text| format!(": --variant {}", shell_word(text)))
            ),
        };
        NoEffect {
            setting: format!("{target} {key}"),
            group: self.name(alone.group).to_owned(),
            weight_of: weight.as_ref().map(|(group, _)| self.name(*group).to_owned()),
            of_session: weight.is_some_and(|(group, _)| self.is_session(group)),
            instead,
            sentence,
            short: format!("{who}: {key} changes no share there{counting}."),
        }
    }

    /// Returns who is alone, and where.
    fn who(&self, clause: &Clause, alone: &Alone) -> String {
        let place = format!(
            "{}{}",
            shown(self.name(alone.group)),
            if self.is_session(alone.group) { " (the autogroup of a session)" } else { "" }
        );
        let own: BTreeSet<usize> =
            self.plan.targets.get(&clause.target).into_iter().flatten().copied().collect();
        let target = shown(&clause.target);
        let but = match (alone.realtime, alone.others * 100.0) {
            (true, _) => ", but for real-time tasks, which run before it".to_owned(),
            (false, others) if others >= 0.05 => format!(", but for {others:.1} % of a CPU"),
            _ => String::new(),
        };
        match &alone.tasks[..] {
            [_] => format!("{target} is alone in {place}{but}"),
            tasks if tasks.iter().all(|task| own.contains(task)) => {
                format!("the {} tasks of {target} are alone in {place}{but}", tasks.len())
            }
            _ => format!("every task that runs in {place}{but} gets the same as {target}"),
        }
    }

    /// Returns a variant in which the weight of `group` does what `setting` was meant to do.
    fn instead(
        &self,
        target: &str,
        setting: &Setting,
        alone: &Alone,
        group: GroupId,
    ) -> Option<String> {
        let spec = self.plan.workload.groups.get(group.index())?;
        let path = quoted_target(&spec.name);
        let [(policy, nice), _] = self.weighs(*alone.tasks.first()?);
        let (before, wanted) = match (policy, setting) {
            (Policy::Idle, _) => return None,
            (_, Setting::Task(TaskSetting::Nice(new))) => {
                (weight_of_nice(nice), weight_of_nice(*new))
            }
            (_, Setting::Task(TaskSetting::Policy(Policy::Idle))) => match spec.autogroup {
                // A session has a weight only; a control group can be idle as a whole.
                _ if self.release < IDLE_GROUPS => (weight_of_nice(nice), WEIGHT_OF_IDLE),
                false => return Some(format!("idle-group: {path} cpu.idle=on")),
                true => {
                    return Some(format!(
                        "idle-group: {target} group={NEW_GROUP} ; {NEW_GROUP} cpu.idle=on"
                    ));
                }
            },
            _ => return None,
        };
        let now = spec.weight.map_or(WEIGHT_OF_NICE_0, u64::from);
        let shares = (now * wanted / before.max(1)).clamp(2, 262_144);
        Some(match spec.autogroup {
            true => format!("weight: {path} cpu.shares={}", weight_of_nice(nearest(shares))),
            false => {
                // cgroup v2 has no larger weight.
                let weight = weight_of_shares(shares as u32).min(10_000);
                format!("weight: {path} cpu.weight={weight}")
            }
        })
    }
}

/// Returns a setting as written, why it counts within a group only, and what is left of it.
fn words(setting: &Setting) -> (String, &'static str, &'static str) {
    match setting {
        Setting::Task(TaskSetting::Policy(policy)) => (
            format!("policy={policy}"),
            "the policies other, batch and idle weigh",
            match policy {
                Policy::Idle => {
                    " (what SCHED_IDLE still decides is who preempts at a wakeup, and placement)"
                }
                Policy::Batch => " (SCHED_BATCH still keeps a task from preempting when it wakes)",
                _ => "",
            },
        ),
        Setting::Task(TaskSetting::Nice(nice)) => {
            (format!("nice={nice}"), "a nice value counts", "")
        }
        _ => (String::new(), "", ""),
    }
}

/// Returns the nice value whose weight is nearest to these shares, by the ratio: what a session may
/// have (`/proc/PID/autogroup`).
pub(crate) fn nearest(shares: u64) -> Nice {
    let distance = |nice: &Nice| {
        let (a, b) = (weight_of_nice(*nice), shares.max(1));
        // Parts of a thousand of the smaller one.
        a.max(b) * 1000 / a.min(b)
    };
    (-20..20).filter_map(Nice::new).min_by_key(distance).unwrap_or_default()
}

/// Returns the first two names, and how many more there are.
fn some(names: &[&str]) -> String {
    let name = |index: usize| shown(names[index]).into_owned();
    match names.len() {
        0 => "other groups".to_owned(),
        1 => name(0),
        2 => format!("{} and {}", name(0), name(1)),
        count => format!("{}, {} and {} more", name(0), name(1), count - 2),
    }
}

#[cfg(test)]
mod tests;
