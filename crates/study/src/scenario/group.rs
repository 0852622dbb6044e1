//! `[[group]]` sections: control groups with the kernel's own names for their limits.

use super::document::{Item, ScenarioError, Section};
use schedlab_model::text::scaled;
use schedlab_model::{Bandwidth, CpuSet, GroupId, GroupSpec, Ns, Partition};

pub(super) const KEYS: [&str; 8] =
    ["name", "cpu", "cpus", "partition", "cap", "weight", "autogroup", "vm"];
const CPU_KEYS: [&str; 5] = ["weight", "shares", "max", "burst", "idle"];

/// The root and the groups of the file, parents first.
pub(super) fn read(root: &Section<'_>, cpus: usize) -> Result<Vec<GroupSpec>, ScenarioError> {
    let mut groups = vec![GroupSpec { name: "/".to_owned(), ..GroupSpec::default() }];
    for section in root.sections("group", "[[group]]", &KEYS)? {
        let group = group(&section, &groups, cpus)?;
        groups.push(group);
    }
    Ok(groups)
}

fn group(
    section: &Section<'_>,
    before: &[GroupSpec],
    cpus: usize,
) -> Result<GroupSpec, ScenarioError> {
    let name = section.need("name", "name = \"/batch\"")?;
    let path = name.text()?;
    if !path.starts_with('/') || path.len() < 2 || path.ends_with('/') {
        return Err(name.error(format!(
            "the name of a group is its path below the root, such as \"/batch\", not \"{path}\""
        )));
    }
    if before.iter().any(|group| group.name == path) {
        return Err(name.error(format!("there are two groups `{path}`")));
    }
    let parent = match path.rfind('/').expect("starts with a slash") {
        0 => "/",
        at => &path[..at],
    };
    let parent = before.iter().position(|group| group.name == parent).ok_or_else(|| {
        name.error(format!("the parent group `{parent}` must be listed before `{path}`"))
    })?;
    let mut group = GroupSpec {
        name: path.to_owned(),
        parent: Some(GroupId::from(parent)),
        ..GroupSpec::default()
    };
    group.cpus = section.optional("cpus", |item| cpu_list(&item, cpus))?;
    group.partition = section
        .optional("partition", |item| {
            partition(item.text()?, group.cpus).map_err(|message| item.error(message))
        })?
        .unwrap_or_default();
    group.cap_percent =
        section.optional("cap", |item| item.integer(0, 51_200))?.unwrap_or(0) as u32;
    // A session (setsid), which is a group only while the scheduler's sched_autogroup_enabled is
    // on.
    group.autogroup = section.optional("autogroup", |item| item.flag())?.unwrap_or(false);
    if let Some(item) = section.get("cpu") {
        limits(&item.section("`cpu`", &CPU_KEYS)?, &mut group)?;
    }
    if let Some(item) = section.get("weight") {
        if group.weight.is_some() {
            return Err(
                item.error("give `weight` (Xen) or cpu.weight and cpu.shares (Linux), not both")
            );
        }
        group.weight = Some(item.integer(1, 65_535)? as u32);
    }
    Ok(group)
}

/// Reads a cpuset.cpus.partition of a group with these CPUs.
pub(crate) fn partition(text: &str, cpus: Option<CpuSet>) -> Result<Partition, String> {
    let known = Partition::ALL.into_iter().find(|kind| kind.name() == text);
    match (known, cpus) {
        (Some(Partition::Member), _) => Ok(Partition::Member),
        (Some(kind), Some(_)) => Ok(kind),
        (Some(kind), None) => Err(format!(
            "partition = \"{}\" needs `cpus`, which the group then has to itself, such as cpus = \
             \"4-7\"",
            kind.name()
        )),
        (None, _) => Err(format!(
            "there is no partition `{text}`: use member (the default), root (its CPUs are balanced \
             among themselves) or isolated (not at all)"
        )),
    }
}

fn limits(cpu: &Section<'_>, group: &mut GroupSpec) -> Result<(), ScenarioError> {
    group.idle = cpu.optional("idle", |item| item.flag())?.unwrap_or(false);
    let weight = cpu.optional("weight", |item| item.integer(1, 10_000))?;
    let shares = cpu.optional("shares", |item| item.integer(2, 262_144))?;
    group.weight = match (weight, shares) {
        (Some(_), Some(_)) => {
            return Err(cpu.error("give cpu.weight (cgroup v2) or cpu.shares (v1), not both"));
        }
        (Some(weight), None) => Some(shares_of_weight(weight as u64)),
        (None, shares) => shares.map(|shares| shares as u32),
    };
    let burst = cpu.optional("burst", |item| item.time())?;
    group.bandwidth = cpu
        .optional("max", |item| bandwidth(item.text()?).map_err(|message| item.error(message)))?
        .flatten();
    match (&mut group.bandwidth, burst) {
        (Some(bandwidth), Some(burst)) => bandwidth.burst = burst,
        (None, Some(_)) => {
            return Err(cpu.error("cpu.burst has no meaning without cpu.max = \"QUOTA/PERIOD\""));
        }
        _ => {}
    }
    Ok(())
}

/// cgroup v2's `cpu.weight` (default 100) as `cpu.shares` (default 1024), rounded as the kernel
/// rounds.
pub(crate) fn shares_of_weight(weight: u64) -> u32 {
    ((weight * 1024 + 50) / 100).clamp(2, 262_144) as u32
}

/// Returns the `cpu.weight` of these shares (cgroup v2: weight 100 is 1024 shares).
pub(crate) const fn weight_of_shares(shares: u32) -> u32 {
    let weight = (shares as u64 * 100 + 512) / 1024;
    if weight < 1 { 1 } else { weight as u32 }
}

/// `50ms/100ms`, `50ms` (of 100 ms), `50%` (of one CPU, as systemd's CPUQuota=), the kernel's own
/// `50000 100000` (microseconds), or `max`.
pub(crate) fn bandwidth(text: &str) -> Result<Option<Bandwidth>, String> {
    const PERIOD: Ns = Ns::from_ms(100);
    let time = |part: &str| part.parse::<Ns>().map_err(|error| format!("cpu.max: {error}"));
    let us = |part: &str| part.parse::<u64>().ok().and_then(|us| us.checked_mul(1000)).map(Ns);
    let trimmed = text.trim();
    let (first, second) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, "100000"));
    if first == "max" {
        return Ok(None);
    }
    let (quota, period) = if let Some(percent) = trimmed.strip_suffix('%') {
        let permille =
            scaled(percent.trim(), 1).filter(|permille| (1..=10_000_000).contains(permille));
        let wanted = || {
            format!("cpu.max `{text}`: give a percentage of one CPU, such as \"25%\" or \"150%\"")
        };
        (Ns(PERIOD.0 / 1000 * permille.ok_or_else(wanted)?), PERIOD)
    } else if let (Some(quota), Some(period)) = (us(first), us(second.trim())) {
        (quota, period)
    } else {
        let (quota, period) = trimmed.split_once('/').unwrap_or((trimmed, "100ms"));
        (time(quota)?, time(period)?)
    };
    if quota < Ns::from_ms(1) || period < Ns::from_ms(1) || period > Ns::from_s(1) {
        return Err(format!(
            "cpu.max `{text}`: the kernel allows a quota of at least 1ms in a period from 1ms to \
             1s, such as \
             \"50ms/100ms\", \"50%\" or \"50000 100000\" (microseconds, as in the kernel's file)"
        ));
    }
    Ok(Some(Bandwidth { quota, period, burst: Ns::ZERO }))
}

/// A CPU list of which every CPU exists.
pub(super) fn cpu_list(item: &Item<'_>, cpus: usize) -> Result<CpuSet, ScenarioError> {
    let set: CpuSet = item.parse()?;
    if set == CpuSet::ALL {
        return Ok(set);
    }
    match set.iter().find(|cpu| cpu.index() >= cpus) {
        Some(cpu) => Err(item.error(absent_cpu(cpu.index(), cpus))),
        None => Ok(set),
    }
}

/// The message for a CPU that the machine does not have.
pub(crate) fn absent_cpu(cpu: usize, cpus: usize) -> String {
    match cpus {
        1 => format!("CPU {cpu} does not exist: the machine has only CPU 0"),
        _ => format!("CPU {cpu} does not exist: the machine has CPUs 0-{}", cpus - 1),
    }
}
