//! One change of a variant: `KEY=VALUE`, by what it changes.

use super::{OF_GUEST, OF_POD, VariantError, without_slashes};
use crate::kubernetes::{Conversion, millicores};
use crate::scenario::{Role, SmtYield, bandwidth, not_modelled, parse_model, shares_of_weight};
use schedlab_model::text::{nearest, scaled};
use schedlab_model::{Bandwidth, CpuSet, Nice, Ns, Policy};
use schedlab_scheduler::{SchedulerSpec, registry};
use schedlab_sim::PreemptModel;
use std::fmt::Display;
use std::str::FromStr;

/// One change.
#[derive(Clone, PartialEq, Debug)]
pub enum Setting {
    /// Of tasks.
    Task(TaskSetting),
    /// Of a source of requests.
    Source(SourceSetting),
    /// Of a control group or a Xen domain.
    Group(GroupSetting),
    /// Of a pod of Kubernetes.
    Pod(PodSetting),
    /// Of the machine's kernel.
    Machine(MachineSetting),
    /// Of the delegation, where the scheduler runs: key and value.
    Delegation(String, String),
    /// A knob of the scheduler: name and value.
    Knob(String, String),
}

/// A change of a task.
#[derive(Clone, PartialEq, Debug)]
pub enum TaskSetting {
    /// `policy=idle`
    Policy(Policy),
    /// `nice=5`
    Nice(Nice),
    /// `cpus=0-1`
    Cpus(CpuSet),
    /// `slice=3ms`
    Slice(Ns),
    /// `group=/batch` (made when it does not exist)
    Group(String),
    /// `demand=x2`, `demand=50%`: CPU time of every activation, in thousandths.
    Demand(u64),
    /// `off`: the task is not there.
    Off,
}

/// A change of a source of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceSetting {
    /// `rate=x2`: requests of an open source come that much faster, in thousandths.
    Rate(u64),
    /// `clients=64`
    Clients(u32),
}

/// A change of a control group or a Xen domain.
#[derive(Clone, PartialEq, Debug)]
pub enum GroupSetting {
    /// `cpus=0-1`
    Cpus(CpuSet),
    /// `partition=isolated`, `partition=member`: whether the group has its CPUs to itself,
    /// unbalanced.
    Partition(String),
    /// `cpu.max=50ms/100ms`, `cpu.max=max`
    Max(Option<Bandwidth>),
    /// `cpu.weight=50` or `cpu.shares=512`, as shares.
    Shares(u32),
    /// `cpu.idle=on`
    Idle(bool),
    /// `cap=200`: per cent of one pCPU (Xen), 0 = none.
    Cap(u32),
    /// `weight=512`: Xen's.
    Weight(u32),
    /// `guest=linux-6.1`: another scheduler in the domain; `none`: its tasks are vCPUs themselves.
    Guest(Option<SchedulerSpec>),
}

/// A change of a pod of Kubernetes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PodSetting {
    /// `requests.cpu=500m`, in thousandths of a CPU; `off` is 0.
    Requests(u64),
    /// `limits.cpu=2`, `limits.cpu=off`
    Limits(Option<u64>),
    /// `conversion=linear`: how its request becomes a weight.
    Conversion(Conversion),
}

/// A change of the machine's kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MachineSetting {
    /// `preempt=rt`: how the kernel lets itself be preempted.
    Preempt(PreemptModel),
    /// `threaded_irqs=on`
    ThreadedIrqs(bool),
    /// `isolcpus=3-18`, `nohz_full=1`, `isolcpus=none`: CPUs that the boot line sets apart.
    Cpus(Role, CpuSet),
    /// `smt_yield=0.7`: speed of a hardware thread beside a busy one of its core, in thousandths.
    SmtYield(u16),
}

/// A value that was read, or why it is none.
type Value<T> = Result<T, String>;

/// Between which lengths a task's own slice may be: `sched_runtime` of fair tasks
/// (kernel/sched/syscalls.c, Linux 6.12).
pub(crate) const SLICES: (Ns, Ns) = (Ns::from_us(100), Ns::from_ms(100));
/// Thousandths of a factor.
pub(crate) const FACTORS: (u64, u64) = (1, 1_000_000);
/// Clients of a source.
pub(crate) const CLIENTS: (u32, u32) = (1, 1_000_000);
/// `cpu.weight` (Documentation/admin-guide/cgroup-v2.rst).
pub(crate) const WEIGHTS: (u32, u32) = (1, 10_000);
/// Xen's `cap`, per cent of a pCPU.
pub(crate) const CAPS: (u32, u32) = (0, 51_200);
/// Xen's `weight`.
pub(crate) const XEN_WEIGHTS: (u32, u32) = (1, 65_535);

pub(crate) const TASK_KEYS: [&str; 7] =
    ["policy", "nice", "cpus", "slice", "group", "demand", "off"];
pub(crate) const SOURCE_KEYS: [&str; 2] = ["rate", "clients"];
pub(crate) const POD_KEYS: [&str; 3] = ["requests.cpu", "limits.cpu", "conversion"];
pub(crate) const MACHINE_KEYS: [&str; 5] =
    ["preempt", "threaded_irqs", "isolcpus", "nohz_full", "smt_yield"];
pub(crate) const GROUP_KEYS: [&str; 9] = [
    "cpu.max",
    "cpu.weight",
    "cpu.shares",
    "cpu.idle",
    "cpus",
    "partition",
    "cap",
    "weight",
    "guest",
];

/// Of the control group of a guest of KVM.
pub(crate) const GUEST_KEYS: [&str; 5] =
    ["cpu.max", "cpu.weight", "cpu.shares", "cpu.idle", "cpus"];

impl Setting {
    /// Reads `KEY=VALUE` of `target`. What the target is follows from its name: `scheduler`,
    /// `delegation`, `machine`, a path that begins with `/` (a group), anything else a task or a
    /// source.
    pub(super) fn parse(target: &str, text: &str) -> Result<Setting, VariantError> {
        let (key, value) = match text.split_once('=') {
            Some(pair) => pair,
            None if text == "off" => (text, ""),
            None => return Err(VariantError::Syntax(text.to_owned())),
        };
        let (read, keys) = match target {
            "scheduler" => return Ok(Setting::Knob(key.to_owned(), value.to_owned())),
            "delegation" => return Ok(Setting::Delegation(key.to_owned(), value.to_owned())),
            "machine" => {
                (machine(key, value).map(|read| read.map(Setting::Machine)), MACHINE_KEYS.to_vec())
            }
            _ if target.starts_with(OF_POD) => {
                (pod(key, value).map(|read| read.map(Setting::Pod)), POD_KEYS.to_vec())
            }
            _ if target.starts_with(OF_GUEST) => {
                let of_guest = if GUEST_KEYS.contains(&key) { group(key, value) } else { None };
                (of_guest.map(|read| read.map(Setting::Group)), GUEST_KEYS.to_vec())
            }
            _ if target.starts_with('/') => {
                (group(key, value).map(|read| read.map(Setting::Group)), GROUP_KEYS.to_vec())
            }
            _ => {
                let of_task = task(key, value).map(|read| read.map(Setting::Task));
                let read =
                    of_task.or_else(|| source(key, value).map(|read| read.map(Setting::Source)));
                (read, TASK_KEYS.into_iter().chain(SOURCE_KEYS).collect())
            }
        };
        match read {
            Some(read) => read.map_err(|message| VariantError::Value(format!("{text}: {message}"))),
            None => {
                let plain = key.strip_prefix("cpu.").unwrap_or(key);
                if let Some(why) = not_modelled(plain) {
                    return Err(VariantError::Value(format!("{text}: {why}")));
                }
                let hint = match nearest(key, keys.iter().copied()) {
                    Some(right) => format!(": did you mean `{right}`?"),
                    None => format!("; it may be {}", keys.join(", ")),
                };
                Err(VariantError::Key { target: target.to_owned(), key: key.to_owned(), hint })
            }
        }
    }
}

/// Reads a change of a task; `None`: no such key.
fn task(key: &str, value: &str) -> Option<Value<TaskSetting>> {
    Some(match key {
        "policy" => read(value).map(TaskSetting::Policy),
        "nice" => {
            let nice = value.parse().ok().and_then(Nice::new);
            nice.map(TaskSetting::Nice).ok_or("must be a whole number from -20 to 19".to_owned())
        }
        "cpus" => read(value).map(TaskSetting::Cpus),
        "slice" => read(value).and_then(|slice: Ns| match (SLICES.0..=SLICES.1).contains(&slice) {
            true => Ok(TaskSetting::Slice(slice)),
            false => Err(format!("must be from {} to {}", SLICES.0, SLICES.1)),
        }),
        "group" if value.starts_with('/') => Ok(TaskSetting::Group(without_slashes(value))),
        "group" => Err("a group is a path, such as /batch".to_owned()),
        "demand" => factor(value).map(TaskSetting::Demand),
        "off" => Ok(TaskSetting::Off),
        _ => return None,
    })
}

/// Reads a change of a source; `None`: no such key.
fn source(key: &str, value: &str) -> Option<Value<SourceSetting>> {
    Some(match key {
        "rate" => factor(value).map(SourceSetting::Rate),
        "clients" => number(value, CLIENTS).map(SourceSetting::Clients),
        _ => return None,
    })
}

/// Reads a change of a group; `None`: no such key.
fn group(key: &str, value: &str) -> Option<Value<GroupSetting>> {
    Some(match key {
        "cpus" => read(value).map(GroupSetting::Cpus),
        "partition" => Ok(GroupSetting::Partition(value.to_owned())),
        "cpu.max" => bandwidth(value).map(GroupSetting::Max),
        "cpu.weight" => number(value, WEIGHTS)
            .map(|weight| GroupSetting::Shares(shares_of_weight(u64::from(weight)))),
        "cpu.shares" => number(value, (2, 262_144)).map(GroupSetting::Shares),
        "cpu.idle" => flag(value).map(GroupSetting::Idle),
        "cap" => number(value, CAPS).map(GroupSetting::Cap),
        "weight" => number(value, XEN_WEIGHTS).map(GroupSetting::Weight),
        "guest" if value == "none" => Ok(GroupSetting::Guest(None)),
        "guest" => read::<SchedulerSpec>(value).and_then(|spec| {
            registry::check(&spec).map_err(|error| error.to_string())?;
            Ok(GroupSetting::Guest(Some(spec)))
        }),
        _ => return None,
    })
}

/// Reads a change of a pod; `None`: no such key.
fn pod(key: &str, value: &str) -> Option<Value<PodSetting>> {
    let milli = || if value == "off" { Ok(None) } else { millicores(value).map(Some) };
    Some(match key {
        "requests.cpu" => milli().map(|milli| PodSetting::Requests(milli.unwrap_or(0))),
        "limits.cpu" => milli().map(PodSetting::Limits),
        "conversion" => value.parse().map(PodSetting::Conversion),
        _ => return None,
    })
}

/// Reads a change of the machine; `None`: no such key.
fn machine(key: &str, value: &str) -> Option<Value<MachineSetting>> {
    Some(match key {
        "preempt" => parse_model(value).map(MachineSetting::Preempt),
        "threaded_irqs" => flag(value).map(MachineSetting::ThreadedIrqs),
        "smt_yield" => SmtYield::read(value).map(MachineSetting::SmtYield),
        _ => {
            let role = [Role::Isolated, Role::NohzFull].into_iter().find(|r| r.name() == key)?;
            let set = if value == "none" { Ok(CpuSet::EMPTY) } else { read(value) };
            set.map(|set| MachineSetting::Cpus(role, set))
        }
    })
}

fn read<T: FromStr>(value: &str) -> Value<T>
where
    T::Err: Display,
{
    value.parse().map_err(|error: T::Err| error.to_string())
}

fn number(value: &str, (low, high): (u32, u32)) -> Value<u32> {
    let wanted = || format!("must be a whole number from {low} to {high}");
    value.parse().ok().filter(|n| (low..=high).contains(n)).ok_or_else(wanted)
}

fn flag(value: &str) -> Value<bool> {
    match value {
        "on" | "1" | "true" => Ok(true),
        "off" | "0" | "false" => Ok(false),
        _ => Err("must be on or off".to_owned()),
    }
}

/// Returns `x2`, `x1.5` or `50%` in thousandths.
fn factor(text: &str) -> Value<u64> {
    let form = || "must be a factor such as x2 or x0.5, or a percentage such as 50%".to_owned();
    let permille = match (text.strip_prefix('x'), text.strip_suffix('%')) {
        (Some(number), _) => scaled(number, 3),
        (_, Some(number)) => scaled(number, 1),
        _ => None,
    };
    permille.filter(|p| (FACTORS.0..=FACTORS.1).contains(p)).ok_or_else(form)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lists that messages print are the keys that the readers know.
    #[test]
    fn every_listed_key_is_read() {
        for (target, keys) in [
            ("yes", TASK_KEYS.iter().chain(&SOURCE_KEYS).collect::<Vec<_>>()),
            ("/batch", GROUP_KEYS.iter().collect()),
            ("pod redis", POD_KEYS.iter().collect()),
            ("guest web", GUEST_KEYS.iter().collect()),
            ("machine", MACHINE_KEYS.iter().collect()),
        ] {
            for key in keys {
                let read = Setting::parse(target, &format!("{key}=?"));
                assert!(!matches!(read, Err(VariantError::Key { .. })), "{target} {key}");
            }
            assert!(
                matches!(Setting::parse(target, "colour=red"), Err(VariantError::Key { .. })),
                "{target}"
            );
        }
    }
}
