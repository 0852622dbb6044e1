//! Pods of Kubernetes as targets: `pod redis requests.cpu=2 limits.cpu=off` makes the control
//! groups that the kubelet would make. A pod is named by its uid (or the first eight digits of it),
//! or by a program: then the pods in which it runs are meant. A program that runs in no pod is put
//! into one.

use super::Subject;
use super::apply::{Applied, make_group};
use super::{PodSetting, VariantError};
use crate::kubernetes::{Conversion, cpus, limit_of_quota, quota_of_limit, shares_of_request};
use crate::scenario::{shares_of_weight, weight_of_shares};
use schedlab_model::{Bandwidth, GroupId, GroupSpec, Workload};
use schedlab_trace::owner;
use std::collections::BTreeMap;

/// With what a target begins that is a pod.
pub(crate) const TARGET: &str = "pod ";
/// Digits of a uid that name a pod.
const DIGITS: usize = 8;

/// What a variant wants of a pod.
#[derive(Clone, Copy, Default)]
struct Wish {
    requests: Option<u64>,
    limits: Option<Option<u64>>,
    conversion: Option<Conversion>,
}

/// A pod of the workload.
struct Pod {
    /// Its control group; `None`: it is to be made.
    group: Option<GroupId>,
    /// Its uid, or the name of a new one.
    name: String,
    class: &'static str,
    tasks: Vec<usize>,
}

impl Applied {
    /// Changes a pod. `target` is its name behind [`TARGET`].
    pub(super) fn change_pod(
        &mut self,
        target: &str,
        settings: &[PodSetting],
        subject: &Subject<'_>,
    ) -> Result<(), VariantError> {
        let mut wish = Wish::default();
        for setting in settings {
            match setting {
                PodSetting::Requests(milli) => wish.requests = Some(*milli),
                PodSetting::Limits(milli) => wish.limits = Some(*milli),
                PodSetting::Conversion(conversion) => wish.conversion = Some(*conversion),
            }
        }
        let name = target.strip_prefix(TARGET).unwrap_or(target).trim();
        let pods = pods(&self.workload, name, subject);
        if pods.is_empty() {
            return Err(subject.unknown(name));
        }
        let conversion =
            wish.conversion.unwrap_or_else(|| recorded(&self.workload.groups, subject.cpus));
        for pod in pods {
            self.set_pod(&pod, wish, conversion, subject.cpus)?;
        }
        Ok(())
    }

    fn set_pod(
        &mut self,
        pod: &Pod,
        wish: Wish,
        conversion: Conversion,
        cpus_here: usize,
    ) -> Result<(), VariantError> {
        let had = pod.group.map(|group| self.workload.groups[group.index()].clone());
        let old_limit = had.as_ref().and_then(|spec| spec.bandwidth);
        let limit = match wish.limits {
            Some(limit) => limit.map(quota_of_limit),
            None => old_limit,
        };
        let old = had.as_ref().map(|spec| shares_of(spec, conversion));
        // The API gives a container without a request its limit as one.
        let as_limit = wish.limits.flatten().filter(|_| pod.group.is_none());
        let shares = wish.requests.or(as_limit).map_or(old.unwrap_or(2), shares_of_request);
        refuse_more(pod, shares, limit)?;
        let class = class_of(pod.class, shares, limit);
        let group = match pod.group {
            Some(group) if class == pod.class => group,
            _ => self.moved(pod, class, conversion, cpus_here),
        };
        if pod.class == "burstable" && pod.group.is_some() {
            self.add_to_class(group, old.unwrap_or(0), shares, conversion);
        } else if class == "burstable" {
            self.add_to_class(group, 0, shares, conversion);
        }
        let limits = wish.limits.is_some() || pod.group != Some(group);
        let spec = &mut self.workload.groups[group.index()];
        if wish.requests.is_some() || pod.group != Some(group) {
            spec.weight = Some(model_weight(shares, conversion));
        }
        if limits {
            spec.bandwidth = limit;
            self.limit_containers(group, limit);
        }
        self.notes.push(self.said(pod, group, (shares, limit), conversion));
        Ok(())
    }

    /// Puts the tasks of a pod into a new control group of another class, and returns it.
    fn moved(
        &mut self,
        pod: &Pod,
        class: &str,
        conversion: Conversion,
        cpus_here: usize,
    ) -> GroupId {
        let root = self.kubepods(conversion, cpus_here);
        let groups = &self.workload.groups;
        let is_class = |group: &&GroupSpec| {
            let above = group.parent == Some(root) && owner::pod(&group.name).is_none();
            above && is_called(group, class)
        };
        let known = groups.iter().find(is_class).map(|group| group.name.clone());
        let base = groups[root.index()].name.clone();
        let above = match class {
            "guaranteed" => base,
            _ => known.unwrap_or_else(|| format!("{base}/{class}")),
        };
        let group = make_group(&mut self.workload, &format!("{above}/pod{}", pod.name));
        for &task in &pod.tasks {
            self.workload.tasks[task].group = group;
            self.tasks.insert(task);
        }
        group
    }

    /// Returns the control group above all pods, which is made where there is none: with the weight
    /// of all CPUs.
    fn kubepods(&mut self, conversion: Conversion, cpus_here: usize) -> GroupId {
        if let Some(at) = above_pods(&self.workload.groups) {
            return at;
        }
        let group = make_group(&mut self.workload, "/kubepods");
        let shares = shares_of_request(cpus_here as u64 * 1000);
        self.workload.groups[group.index()].weight = Some(model_weight(shares, conversion));
        group
    }

    /// Changes the weight of the class of a pod: the kubelet gives the burstable pods together the
    /// sum of their requests.
    fn add_to_class(&mut self, pod: GroupId, old: u64, new: u64, conversion: Conversion) {
        let Some(parent) = self.workload.groups[pod.index()].parent else { return };
        let spec = &mut self.workload.groups[parent.index()];
        if above_pods(std::slice::from_ref(spec)).is_some() {
            return;
        }
        let sum = if spec.weight.is_some() { shares_of(spec, conversion) } else { 0 };
        let sum = (sum.saturating_sub(old) + new).max(2);
        spec.weight = Some(model_weight(sum, conversion));
    }

    /// Takes the limits of the containers of a pod away, or gives the only one that of the pod.
    fn limit_containers(&mut self, pod: GroupId, limit: Option<Bandwidth>) {
        let busy = |group: GroupId| self.workload.tasks.iter().any(|task| task.group == group);
        let below: Vec<GroupId> = (0..self.workload.groups.len())
            .map(GroupId::from)
            .filter(|group| self.workload.groups[group.index()].parent == Some(pod))
            .collect();
        let of: Vec<GroupId> = below.iter().copied().filter(|group| busy(*group)).collect();
        if limit.is_some() && of.len() != 1 {
            return;
        }
        for group in &below {
            let spec = &mut self.workload.groups[group.index()];
            if spec.bandwidth.is_some() || of.contains(group) {
                spec.bandwidth = limit;
            }
        }
    }

    fn said(
        &self,
        pod: &Pod,
        group: GroupId,
        (shares, limit): (u64, Option<Bandwidth>),
        conversion: Conversion,
    ) -> String {
        let spec = &self.workload.groups[group.index()];
        let weight = match conversion.weight(shares) {
            None => format!("cpu.shares {shares} (cgroup v1)"),
            Some(weight) => {
                let other = match conversion {
                    Conversion::Linear => Conversion::Quadratic,
                    _ => Conversion::Linear,
                };
                let instead = other.weight(shares).unwrap_or_default();
                format!(
                    "cpu.weight {weight} by the {conversion} formula (conversion={other}: {instead})"
                )
            }
        };
        let quota = limit.map_or_else(
            || "no cpu.max".to_owned(),
            |limit| format!("cpu.max {}/{}", limit.quota, limit.period),
        );
        let new = if pod.group == Some(group) { "" } else { ", a control group that is new" };
        format!("pod {}: {weight} and {quota} in {}{new}", pod.name, spec.name)
    }
}

/// Refuses a request above the limit, as the API does.
fn refuse_more(pod: &Pod, shares: u64, limit: Option<Bandwidth>) -> Result<(), VariantError> {
    let Some(limit) = limit else { return Ok(()) };
    let milli = limit_of_quota(&limit);
    // What was recorded is known to a share only.
    if shares <= shares_of_request(milli) + shares_of_request(milli) / 20 + 2 {
        return Ok(());
    }
    Err(VariantError::Value(format!(
        "pod {}: its CPU request ({}) would be above its limit ({}), which Kubernetes refuses: set \
         both, such as requests.cpu=2 limits.cpu=2, or limits.cpu=off",
        pod.name,
        cpus(shares * 1000 / 1024),
        cpus(milli)
    )))
}

/// Returns the class of service that a pod has, as far as its CPUs decide that: what it has of
/// memory is not recorded.
fn class_of(was: &'static str, shares: u64, limit: Option<Bandwidth>) -> &'static str {
    let milli = limit.as_ref().map(limit_of_quota);
    let equal = milli.is_some_and(|milli| shares_of_request(milli).abs_diff(shares) <= shares / 20);
    match was {
        "guaranteed" if !equal => "burstable",
        "besteffort" if shares > 2 || limit.is_some() => "burstable",
        was => was,
    }
}

/// Returns the shares that a group's weight was made of.
fn shares_of(spec: &GroupSpec, conversion: Conversion) -> u64 {
    let weight = spec.weight.unwrap_or(1024);
    match conversion {
        Conversion::Shares => u64::from(weight),
        _ => conversion.shares_of_weight(u64::from(weight_of_shares(weight))),
    }
}

/// Returns shares as the model has a group's weight.
fn model_weight(shares: u64, conversion: Conversion) -> u32 {
    conversion.weight(shares).map_or(shares as u32, shares_of_weight)
}

/// Returns the group that holds all pods.
fn above_pods(groups: &[GroupSpec]) -> Option<GroupId> {
    groups.iter().position(|group| is_called(group, "kubepods")).map(GroupId::from)
}

/// Whether this is the last word of a group's name, as a folder or as a slice of systemd.
fn is_called(group: &GroupSpec, word: &str) -> bool {
    let last = group.name.rsplit('/').next().unwrap_or_default();
    last.trim_end_matches(".slice").rsplit('-').next() == Some(word)
}

/// Returns the conversion with which the recorded groups were made: the weight of the group above
/// all pods is that of the CPUs that pods may have, which are those of the machine at most. Where
/// there is none it is that of the newest Kubernetes.
fn recorded(groups: &[GroupSpec], cpus_here: usize) -> Conversion {
    let above = above_pods(groups).and_then(|at| groups[at.index()].weight);
    let Some(weight) = above.map(|shares| u64::from(weight_of_shares(shares))) else {
        return Conversion::Quadratic;
    };
    let all = shares_of_request(cpus_here as u64 * 1000);
    let at_most = |conversion: Conversion| conversion.weight(all).unwrap_or(u64::MAX);
    [Conversion::Linear, Conversion::Quadratic]
        .into_iter()
        .find(|conversion| weight <= at_most(*conversion))
        .unwrap_or(Conversion::Shares)
}

/// Returns the pods that are meant.
fn pods(workload: &Workload, name: &str, subject: &Subject<'_>) -> Vec<Pod> {
    let groups = &workload.groups;
    let is_uid = name.len() >= DIGITS && name.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    let mut all: BTreeMap<Option<GroupId>, Vec<usize>> = BTreeMap::new();
    let mut named = subject.tasks(name);
    for (task, spec) in workload.tasks.iter().enumerate() {
        let path = groups.get(spec.group.index()).map_or("/", |group| group.name.as_str());
        if is_uid && owner::pod(path).is_some_and(|pod| pod.uid.starts_with(name)) {
            named.push(task);
        }
    }
    let roots: Vec<Option<GroupId>> =
        named.iter().map(|&task| root(groups, workload.tasks[task].group)).collect();
    for (&task, root) in named.iter().zip(&roots) {
        let own = all.entry(*root).or_default();
        if root.is_none() {
            own.push(task);
        }
    }
    // All of a pod moves, not only the program that named it.
    for (task, spec) in workload.tasks.iter().enumerate() {
        let at = root(groups, spec.group);
        if at.is_some()
            && let Some(own) = all.get_mut(&at)
        {
            own.push(task);
        }
    }
    let pod = |(group, tasks): (Option<GroupId>, Vec<usize>)| {
        let known = group.and_then(|group| owner::pod(&groups[group.index()].name));
        let class = known.as_ref().map_or("besteffort", |pod| pod.qos);
        Pod { group, name: known.map_or_else(|| plain(name), |pod| pod.uid), class, tasks }
    };
    all.into_iter().map(pod).collect()
}

/// Returns the control group of the pod in which a group is.
fn root(groups: &[GroupSpec], group: GroupId) -> Option<GroupId> {
    let is_pod = |group: GroupId| {
        groups.get(group.index()).is_some_and(|spec| owner::pod(&spec.name).is_some())
    };
    let mut at = Some(group).filter(|group| is_pod(*group))?;
    while let Some(parent) = groups[at.index()].parent.filter(|parent| is_pod(*parent)) {
        at = parent;
    }
    Some(at)
}

/// Returns a name that a part of a path may have.
fn plain(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delegation::DelegationSpec;
    use crate::scenario::SmtYield;
    use crate::variant::Variant;
    use schedlab_model::{Ns, Program, TaskSpec};

    const UID: [&str; 2] =
        ["1f9a6c0e-5b7d-4c3a-9e21-0a1b2c3d4e5f", "2f9a6c0e-5b7d-4c3a-9e21-0a1b2c3d4e5f"];

    /// Four CPUs; a burstable pod with a request of half a CPU and a limit of one (`web` in one of
    /// two containers), a guaranteed one with two CPUs, and a program beside them.
    fn node(conversion: Conversion) -> (Workload, Vec<String>) {
        let weight = |milli| Some(model_weight(shares_of_request(milli), conversion));
        let group = |name: String, parent: Option<u32>, weight, limit: Option<u64>| GroupSpec {
            name,
            parent: parent.map(GroupId),
            weight,
            bandwidth: limit.map(quota_of_limit),
            ..GroupSpec::default()
        };
        let id = "3f0a9c1b".repeat(8);
        let (web, db) =
            (format!("/kubepods/burstable/pod{}", UID[0]), format!("/kubepods/pod{}", UID[1]));
        let groups = vec![
            group("/".into(), None, None, None),
            group("/kubepods".into(), Some(0), weight(4000), None),
            group("/kubepods/burstable".into(), Some(1), weight(600), None),
            group(web.clone(), Some(2), weight(500), Some(1000)),
            group(format!("{web}/{id}"), Some(3), weight(500), Some(1000)),
            group(db.clone(), Some(1), weight(2000), Some(2000)),
            group(format!("{db}/{id}"), Some(5), weight(2000), Some(2000)),
        ];
        let task = |name: &str, group| TaskSpec {
            group: GroupId(group),
            ..TaskSpec::new(name, Program::hog())
        };
        let tasks = vec![task("web", 4), task("db", 6), task("batch", 0)];
        let classes = tasks.iter().map(|task| task.name.clone()).collect();
        (Workload { tasks, groups, ..Workload::default() }, classes)
    }

    fn apply(conversion: Conversion, text: &str) -> Result<Applied, VariantError> {
        let (workload, classes) = node(conversion);
        let subject = Subject {
            workload: &workload,
            classes: &classes,
            threads: &[],
            cpus: 4,
            vms: &[],
            delegation: &DelegationSpec::default(),
            kernel: None,
            roles: Default::default(),
            smt_yield: SmtYield::OneThread,
            kernel_threads: &[],
            guests: None,
        };
        let applied = Variant::parse(text).unwrap().apply(&subject)?;
        assert_eq!(applied.workload.check(4), Ok(()), "{text}");
        Ok(applied)
    }

    fn weight(applied: &Applied, group: &str) -> u64 {
        let spec = applied.workload.groups.iter().find(|spec| spec.name == group).expect(group);
        u64::from(weight_of_shares(spec.weight.unwrap()))
    }

    #[test]
    fn a_request_is_the_weight_that_the_kubelet_writes() {
        let pod = format!("/kubepods/burstable/pod{}", UID[0]);
        for conversion in [Conversion::Linear, Conversion::Quadratic] {
            // Which formula made the groups is told by their weights.
            let applied = apply(conversion, "k8s: pod web requests.cpu=1").unwrap();
            assert_eq!(Some(weight(&applied, &pod)), conversion.weight(1024));
            // Of 600m for the class 500m were the pod's: now it is 1100m, to a weight's precision.
            let class = weight(&applied, "/kubepods/burstable");
            let wanted = conversion.weight(shares_of_request(1100)).unwrap();
            assert!(class.abs_diff(wanted) <= 1, "{conversion}: {class} {wanted}");
            assert_eq!(applied.workload.groups[3].bandwidth, Some(quota_of_limit(1000)));
            assert!(applied.notes[0].contains(conversion.name()), "{:?}", applied.notes);
        }
        let v1 = apply(Conversion::Shares, "k8s: pod web requests.cpu=1").unwrap();
        assert_eq!(v1.workload.groups[3].weight, Some(1024));
        let told = apply(Conversion::Linear, "x: pod web requests.cpu=1 conversion=quadratic");
        assert_eq!(weight(&told.unwrap(), &pod), 100);
    }

    #[test]
    fn a_limit_is_a_quota_of_100_ms_of_pod_and_container() {
        let limited = apply(Conversion::Quadratic, "x: pod web limits.cpu=1500m").unwrap();
        for group in [3, 4] {
            let limit = limited.workload.groups[group].bandwidth.unwrap();
            assert_eq!((limit.quota, limit.period), (Ns::from_ms(150), Ns::from_ms(100)));
        }
        let free = apply(Conversion::Quadratic, "x: pod web limits.cpu=off").unwrap();
        assert!([3, 4].iter().all(|group| free.workload.groups[*group].bandwidth.is_none()));
        assert_eq!(free.workload.groups[5].bandwidth, Some(quota_of_limit(2000)), "another pod");
        let by_uid = apply(Conversion::Quadratic, "x: pod 1f9a6c0e limits.cpu=off").unwrap();
        assert_eq!(by_uid.workload.groups, free.workload.groups);
    }

    /// A guaranteed pod without its limit is burstable, and so in another group.
    #[test]
    fn the_class_of_service_follows() {
        let applied =
            apply(Conversion::Quadratic, "k8s: pod db requests.cpu=2 limits.cpu=off").unwrap();
        let task = &applied.workload.tasks[1];
        let group = &applied.workload.groups[task.group.index()];
        assert_eq!(group.name, format!("/kubepods/burstable/pod{}", UID[1]));
        assert_eq!(group.bandwidth, None);
        let class = weight(&applied, "/kubepods/burstable");
        let wanted = Conversion::Quadratic.weight(shares_of_request(2600)).unwrap();
        assert!(class.abs_diff(wanted) <= 1, "{class} {wanted}");
        let same = apply(Conversion::Quadratic, "x: pod db requests.cpu=1 limits.cpu=1").unwrap();
        assert_eq!(same.workload.tasks[1].group, GroupId(6), "still guaranteed");
    }

    #[test]
    fn a_program_outside_is_put_into_a_pod() {
        let applied = apply(Conversion::Quadratic, "x: pod batch limits.cpu=500m").unwrap();
        let group = &applied.workload.groups[applied.workload.tasks[2].group.index()];
        assert_eq!(group.name, "/kubepods/burstable/podbatch");
        assert_eq!(group.bandwidth, Some(quota_of_limit(500)));
        // The API makes a request of the limit where there is none.
        assert_eq!(weight(&applied, &group.name.clone()), 59);
        assert!(applied.tasks.contains(&2));
    }

    #[test]
    fn refusals_teach() {
        for (text, part) in [
            ("x: pod web requests.cpu=2", "above its limit (1)"),
            ("x: pod wbe limits.cpu=1", "did you mean `web`"),
            ("x: pod ffffffff limits.cpu=1", "there is no task"),
        ] {
            let error = apply(Conversion::Quadratic, text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
