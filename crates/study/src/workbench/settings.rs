//! What can be changed of an input: every setting of variants and every knob of the schedulers,
//! with the values that it may have. A page makes its sliders and lists from this and repeats
//! nothing.

use super::SCHEMA;
use super::named::NamedSchedulers;
use crate::variant::setting::{CAPS, CLIENTS, FACTORS, SLICES, WEIGHTS, XEN_WEIGHTS};
use schedlab_model::Partition;
use schedlab_scheduler::registry::{self, Entry, Family};
use schedlab_scheduler::{Knob, KnobKind};
use schedlab_sim::PreemptModel;
use schemars::JsonSchema;
use serde::Serialize;
use std::borrow::Cow;

/// What can be changed of an input.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct SettingsOutput {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// Settings of tasks, sources, control groups and the machine.
    pub settings: Vec<SettingOutput>,
    /// The schedulers that can be tried, and their knobs.
    pub schedulers: Vec<SchedulerOutput>,
}

/// A scheduler that can be tried.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct SchedulerOutput {
    /// Its name, such as `linux-6.18`.
    pub name: Cow<'static, str>,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Its knobs.
    pub knobs: Vec<SettingOutput>,
}

/// What a setting is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingOf {
    /// A task, or all tasks of a name.
    Task,
    /// A source of requests, of a scenario.
    Source,
    /// A control group, or a domain of Xen.
    Group,
    /// The kernel of the machine.
    Machine,
    /// The scheduler: a knob.
    Scheduler,
}

/// One setting.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct SettingOutput {
    /// What it is of.
    pub of: SettingOf,
    /// Its name in a variant, before the `=`.
    pub key: &'static str,
    /// What it may be.
    pub values: Values,
    /// What holds where nothing is set, in words; empty: as recorded.
    pub default: String,
    /// What it does.
    pub doc: &'static str,
}

/// What a setting may be, and how it is written.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Values {
    /// A whole number.
    Number {
        /// Smallest.
        low: i64,
        /// Largest.
        high: i64,
        /// Its unit; empty for a plain number.
        unit: &'static str,
    },
    /// A time with its unit, such as `3ms`.
    Time {
        /// Shortest, in nanoseconds.
        low_ns: u64,
        /// Longest, in nanoseconds.
        high_ns: u64,
        /// It is a multiple of this, in nanoseconds.
        step_ns: u64,
        /// Whether it may be 0, too, which is off.
        off: bool,
    },
    /// `on` or `off`.
    Flag,
    /// One of these words.
    Words {
        /// The words.
        words: Vec<&'static str>,
        /// Words that are followed by a colon and a priority.
        ranked: Vec<&'static str>,
        /// The lowest priority.
        low: u8,
        /// The highest priority.
        high: u8,
    },
    /// CPUs, such as `0-1,3`.
    Cpus {
        /// How many there are.
        count: usize,
    },
    /// The path of a control group, such as `/batch`.
    Path,
    /// A factor, such as `x2` or `x0.5`.
    Factor {
        /// Smallest, in thousandths.
        low_permille: u64,
        /// Largest, in thousandths.
        high_permille: u64,
    },
    /// CPU time as a part of one CPU, such as `50%`, or `max`.
    Limit {
        /// All CPUs, in per cent of one.
        high_percent: usize,
    },
    /// The name of a scheduler, or `none`.
    Scheduler,
    /// The name of the setting alone: it is set or not.
    Present,
}

/// Which system a setting belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    Any,
    Linux,
    Xen,
}

impl SettingsOutput {
    /// Returns what can be changed of an input with these CPUs that is played under a scheduler of
    /// this family. Without sources there are no settings of sources.
    /// `named`: schedulers that are offered, too.
    pub fn new(
        cpus: usize,
        family: Family,
        sources: bool,
        named: &NamedSchedulers,
    ) -> SettingsOutput {
        let xen = matches!(family, Family::Xen(_));
        let fits = |system: System| match system {
            System::Any => true,
            System::Linux => !xen,
            System::Xen => xen,
        };
        let settings = declared(cpus)
            .filter(|(system, setting)| {
                fits(*system) && (sources || setting.of != SettingOf::Source)
            })
            .map(|(_, setting)| setting)
            .collect();
        let schedulers = registry::all()
            .iter()
            .filter(|entry| xen == matches!(entry.family, Family::Xen(_)))
            .map(SchedulerOutput::from);
        let schedulers = schedulers.chain(named.offered()).collect();
        SettingsOutput { schema: SCHEMA, settings, schedulers }
    }
}

impl From<&Entry> for SchedulerOutput {
    fn from(entry: &Entry) -> SchedulerOutput {
        let knobs = (entry.knobs)().into_iter().map(of_knob).collect();
        SchedulerOutput { name: entry.name.into(), summary: entry.summary, knobs }
    }
}

fn of_knob(knob: Knob) -> SettingOutput {
    let values = match knob.kind {
        KnobKind::Time(low, high) => {
            Values::Time { low_ns: low.0, high_ns: high.0, step_ns: 1, off: false }
        }
        KnobKind::Steps(steps) => Values::Time {
            low_ns: steps.low.0,
            high_ns: steps.high.0,
            step_ns: steps.step.0.max(1),
            off: steps.off,
        },
        KnobKind::Number(low, high) => Values::Number { low, high, unit: knob.unit },
        KnobKind::Flag => Values::Flag,
        KnobKind::Word(words) => words_of(words.to_vec()),
    };
    SettingOutput {
        of: SettingOf::Scheduler,
        key: knob.name,
        values,
        default: knob.default,
        doc: knob.doc,
    }
}

fn words_of(words: Vec<&'static str>) -> Values {
    Values::Words { words, ranked: Vec::new(), low: 0, high: 0 }
}

fn number((low, high): (u32, u32), unit: &'static str) -> Values {
    Values::Number { low: low.into(), high: high.into(), unit }
}

/// Policies without a number, those with a priority, and the priorities (sched(7)).
fn policies() -> Values {
    Values::Words {
        words: vec!["other", "batch", "idle"],
        ranked: vec!["fifo", "rr"],
        low: 1,
        high: 99,
    }
}

/// A setting, without what it may be.
struct Declared {
    system: System,
    of: SettingOf,
    key: &'static str,
    default: &'static str,
    doc: &'static str,
}

const fn row(
    system: System,
    of: SettingOf,
    key: &'static str,
    default: &'static str,
    doc: &'static str,
) -> Declared {
    Declared { system, of, key, default, doc }
}

/// Every setting of variants but `cpu.shares`, which is `cpu.weight` in the unit of cgroup v1.
const DECLARED: &[Declared] = &[
    row(
        System::Linux,
        SettingOf::Task,
        "policy",
        "",
        "Scheduling policy: SCHED_OTHER, BATCH, IDLE, or real-time with a priority",
    ),
    row(
        System::Linux,
        SettingOf::Task,
        "nice",
        "",
        "Weight among tasks of one group: each step is about a tenth of a CPU, 19 yields most",
    ),
    row(System::Any, SettingOf::Task, "cpus", "", "CPUs on which it may run"),
    row(
        System::Linux,
        SettingOf::Task,
        "slice",
        "",
        "Slice of its own (sched_runtime, Linux 6.12): a shorter one is chosen sooner",
    ),
    row(
        System::Linux,
        SettingOf::Task,
        "group",
        "",
        "Control group that it is put into, which is made where there is none",
    ),
    row(
        System::Any,
        SettingOf::Task,
        "demand",
        "x1",
        "CPU time of each of its activations: how much work there is",
    ),
    row(
        System::Any,
        SettingOf::Task,
        "off",
        "",
        "Leave it out: what the others would have without it",
    ),
    row(
        System::Linux,
        SettingOf::Group,
        "cpu.weight",
        "100",
        "Share of the group among its siblings while they compete",
    ),
    row(
        System::Linux,
        SettingOf::Group,
        "cpu.max",
        "max",
        "Limit of the group's CPU time, in per cent of one CPU",
    ),
    row(System::Linux, SettingOf::Group, "cpu.idle", "off", "Serve the whole group as SCHED_IDLE"),
    row(System::Linux, SettingOf::Group, "cpus", "", "CPUs of the group (cpuset.cpus)"),
    row(
        System::Linux,
        SettingOf::Group,
        "partition",
        "member",
        "Whether the group has its CPUs to itself, without load balancing; set its cpus, too",
    ),
    row(
        System::Xen,
        SettingOf::Group,
        "weight",
        "256",
        "Share of the domain while domains compete",
    ),
    row(
        System::Xen,
        SettingOf::Group,
        "cap",
        "0",
        "Limit of the domain in per cent of one pCPU; 0: none",
    ),
    row(
        System::Xen,
        SettingOf::Group,
        "guest",
        "",
        "Scheduler inside the domain; none: its tasks are vCPUs themselves",
    ),
    row(
        System::Linux,
        SettingOf::Machine,
        "preempt",
        "",
        "How the kernel lets itself be preempted (preempt=)",
    ),
    row(
        System::Linux,
        SettingOf::Machine,
        "threaded_irqs",
        "off",
        "Run interrupts in threads (threadirqs)",
    ),
    row(
        System::Linux,
        SettingOf::Machine,
        "isolcpus",
        "none",
        "CPUs without load balancing (isolcpus=)",
    ),
    row(
        System::Linux,
        SettingOf::Machine,
        "nohz_full",
        "none",
        "CPUs without a tick while one task runs (nohz_full=)",
    ),
    row(
        System::Any,
        SettingOf::Machine,
        "smt_yield",
        "1.0",
        "Speed of a hardware thread beside a busy one of its core; of scenarios only",
    ),
    row(System::Any, SettingOf::Source, "rate", "x1", "How fast requests come"),
    row(System::Any, SettingOf::Source, "clients", "", "Clients of a closed loop"),
];

/// Returns what a setting may be on a machine with these CPUs.
fn values_of(key: &str, cpus: usize) -> Values {
    match key {
        "policy" => policies(),
        // setpriority(2).
        "nice" => Values::Number { low: -20, high: 19, unit: "" },
        "cpus" | "isolcpus" | "nohz_full" => Values::Cpus { count: cpus },
        "slice" => Values::Time { low_ns: SLICES.0.0, high_ns: SLICES.1.0, step_ns: 1, off: false },
        "group" => Values::Path,
        "demand" | "rate" => Values::Factor { low_permille: FACTORS.0, high_permille: FACTORS.1 },
        "off" => Values::Present,
        "cpu.weight" => number(WEIGHTS, ""),
        "cpu.max" => Values::Limit { high_percent: 100 * cpus },
        "partition" => words_of(Partition::ALL.map(Partition::name).to_vec()),
        "weight" => number(XEN_WEIGHTS, ""),
        "cap" => number(CAPS, "%"),
        "guest" => Values::Scheduler,
        "preempt" => words_of(PreemptModel::ALL.map(PreemptModel::name).to_vec()),
        "clients" => number(CLIENTS, ""),
        "smt_yield" => words_of(vec!["0.5", "0.6", "0.7", "0.8", "0.9", "1.0"]),
        // cpu.idle and threaded_irqs.
        _ => Values::Flag,
    }
}

/// Returns every setting with its system.
fn declared(cpus: usize) -> impl Iterator<Item = (System, SettingOutput)> {
    DECLARED.iter().map(move |declared| {
        let Declared { system, of, key, default, doc } = *declared;
        let values = values_of(key, cpus);
        (system, SettingOutput { of, key, values, default: default.to_owned(), doc })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variant::Variant;
    use crate::variant::setting::{GROUP_KEYS, MACHINE_KEYS, SOURCE_KEYS, TASK_KEYS};

    fn target(of: SettingOf) -> &'static str {
        match of {
            SettingOf::Task => "yes",
            SettingOf::Source => "clients",
            SettingOf::Group => "/batch",
            SettingOf::Machine => "machine",
            SettingOf::Scheduler => "scheduler",
        }
    }

    fn is_read(setting: &SettingOutput, value: &str) -> bool {
        let text = match value {
            "" => setting.key.to_owned(),
            value => format!("{}={value}", setting.key),
        };
        Variant::parse_named("x", &format!("{} {text}", target(setting.of))).is_ok()
    }

    /// Values at the ends, and values beyond them.
    fn samples(values: &Values) -> (Vec<String>, Vec<String>) {
        let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        match values {
            Values::Number { low, high, .. } => {
                let out = [(low - 1).to_string(), (high + 1).to_string()];
                (vec![low.to_string(), high.to_string()], out.to_vec())
            }
            Values::Time { low_ns, high_ns, .. } => (
                vec![format!("{low_ns}ns"), format!("{high_ns}ns")],
                vec![format!("{}ns", low_ns - 1), format!("{}ns", high_ns + 1)],
            ),
            Values::Flag => (texts(&["on", "off"]), texts(&["maybe"])),
            Values::Words { words, ranked, low, high } => {
                let mut good = texts(words);
                good.extend(
                    ranked.iter().flat_map(|w| [format!("{w}:{low}"), format!("{w}:{high}")]),
                );
                let mut bad: Vec<String> =
                    ranked.iter().map(|word| format!("{word}:{}", high + 1)).collect();
                // Which partitions there are is known where the group is.
                if words[0] != "member" {
                    bad.push("unheard-of".to_owned());
                }
                (good, bad)
            }
            Values::Cpus { count } => (vec![format!("0-{}", count - 1)], texts(&["x"])),
            Values::Path => (texts(&["/a/b"]), texts(&["a"])),
            Values::Factor { low_permille, high_permille } => (
                vec![
                    format!("x{}", *low_permille as f64 / 1e3),
                    format!("x{}", high_permille / 1000),
                ],
                vec!["x0".to_owned(), format!("x{}", high_permille / 1000 + 1)],
            ),
            Values::Limit { high_percent } => (
                vec!["1%".to_owned(), format!("{high_percent}%"), "max".to_owned()],
                texts(&["0%"]),
            ),
            Values::Scheduler => (texts(&["linux-6.1", "none"]), texts(&["linux-9"])),
            Values::Present => (texts(&[""]), Vec::new()),
        }
    }

    #[test]
    fn what_is_declared_is_what_variants_read() {
        let all: Vec<(System, SettingOutput)> = declared(4).collect();
        for (_, setting) in &all {
            let (good, bad) = samples(&setting.values);
            for value in good {
                assert!(is_read(setting, &value), "{setting:?} {value}");
            }
            for value in bad {
                assert!(!is_read(setting, &value), "{setting:?} {value}");
            }
        }
        for (of, keys) in [
            (SettingOf::Task, &TASK_KEYS[..]),
            (SettingOf::Source, &SOURCE_KEYS),
            (SettingOf::Group, &GROUP_KEYS),
            (SettingOf::Machine, &MACHINE_KEYS),
        ] {
            for key in keys.iter().filter(|key| **key != "cpu.shares") {
                let known = |(_, setting): &(System, SettingOutput)| {
                    setting.of == of && setting.key == *key
                };
                assert!(all.iter().any(known), "{of:?} {key}");
            }
        }
    }

    #[test]
    fn an_input_has_the_settings_of_its_system() {
        let keys = |name: &str, sources: bool| {
            let family = Family::named_by(name).unwrap();
            let output = SettingsOutput::new(2, family, sources, &NamedSchedulers::default());
            let keys: Vec<&str> = output.settings.iter().map(|setting| setting.key).collect();
            (keys, output.schedulers)
        };
        let (linux, schedulers) = keys("linux-6.18", false);
        assert!(
            linux.contains(&"cpu.weight") && !linux.contains(&"cap") && !linux.contains(&"rate")
        );
        let of = schedulers.iter().find(|entry| entry.name == "linux-6.18").unwrap();
        let slice = of.knobs.iter().find(|knob| knob.key == "base_slice_ns").unwrap();
        assert!(matches!(slice.values, Values::Time { low_ns, high_ns, .. } if low_ns < high_ns));
        let (xen, schedulers) = keys("xen-credit2", true);
        assert!(xen.contains(&"cap") && !xen.contains(&"nice") && xen.contains(&"rate"));
        assert!(schedulers.iter().all(|entry| entry.name.starts_with("xen-")));
    }
}
