//! Variants: what a user wants to try, in one line.
//!
//! ```text
//! batch idle: sysbench policy=idle nice=5 cpus=0-1 ; redis-server policy=fifo:1
//! capped: sysbench group=/batch ; /batch cpu.max=50ms/100ms
//! twice the work: redis-server demand=x2
//! alone: sysbench off
//! no throttling: scheduler sched_rt_runtime_us=999990
//! agents: delegation mode=global costs=ghost-2021
//! ```
//! A target is a task (name, glob such as `worker-*`, class, or pid of a recording), a control group (a path
//! that begins with `/`), a source, the word `scheduler`, whose settings are knobs, `machine`, whose settings are
//! `preempt=` and `threaded_irqs=`, or `delegation`: where the scheduler runs.

mod apply;

pub use apply::{Applied, Subject};

use crate::scenario::{bandwidth, parse_model, shares_of_weight};
use schedlab_model::text::nearest;
use schedlab_model::text::scaled;
use schedlab_model::{Bandwidth, CpuSet, Nice, Ns, Policy};
use schedlab_scheduler::SchedulerSpec;
use schedlab_sim::PreemptModel;

/// One thing to try.
#[derive(Clone, PartialEq, Debug)]
pub struct Variant {
    /// Its name in tables.
    pub name: String,
    /// The schedulers that it is tried with (names or globs); empty = all of them.
    pub schedulers: Vec<String>,
    /// What changes.
    pub clauses: Vec<Clause>,
}

/// The changes of one target.
#[derive(Clone, PartialEq, Debug)]
pub struct Clause {
    /// Who, as written.
    pub target: String,
    /// What, in order.
    pub settings: Vec<Setting>,
}

/// One change.
#[derive(Clone, PartialEq, Debug)]
pub enum Setting {
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
    /// `cpu.max=50ms/100ms`, `cpu.max=max`
    Max(Option<Bandwidth>),
    /// `cpu.weight=50` or `cpu.shares=512`, as shares.
    Shares(u32),
    /// `cpu.idle=on`
    GroupIdle(bool),
    /// `cap=200`: per cent of one pCPU (Xen), 0 = none.
    Cap(u32),
    /// `weight=512`: Xen's.
    Weight(u32),
    /// `guest=linux-6.1`: another scheduler in the domain; `none`: its tasks are vCPUs themselves.
    Guest(Option<SchedulerSpec>),
    /// `rate=x2`: requests of an open source come that much faster, in thousandths.
    Rate(u64),
    /// `clients=64`
    Clients(u32),
    /// A setting of the delegation: where the scheduler runs.
    Delegation(String, String),
    /// `preempt=rt`: how the machine's kernel lets itself be preempted.
    Preempt(PreemptModel),
    /// `threaded_irqs=on`
    ThreadedIrqs(bool),
    /// A knob of the scheduler.
    Knob(String, String),
}

/// What is wrong with a variant.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VariantError {
    /// No `:` after the name, or nothing follows it.
    #[error(
        "`{0}` changes nothing: write 'NAME: TARGET SETTING...', such as 'batch idle: sysbench policy=idle'"
    )]
    Empty(String),
    /// A setting that is not `key=value`.
    #[error(
        "`{0}` is not a setting: write KEY=VALUE, such as policy=idle, nice=5, cpus=0-1, demand=x2, or off"
    )]
    Syntax(String),
    /// An unknown key.
    #[error("`{target}` has no setting `{key}`{hint}")]
    Key {
        /// Of whom.
        target: String,
        /// As given.
        key: String,
        /// The nearest one, or all.
        hint: String,
    },
    /// A bad value.
    #[error("{0}")]
    Value(String),
    /// Nobody is called so.
    #[error("there is no task, group or source `{target}` here{hint}")]
    Target {
        /// As given.
        target: String,
        /// The nearest one, or all.
        hint: String,
    },
    /// A CPU that the machine does not have.
    #[error("`{0}`: {1}")]
    Cpu(String, String),
}

const TASK_KEYS: [&str; 7] = ["policy", "nice", "cpus", "slice", "group", "demand", "off"];
const SOURCE_KEYS: [&str; 2] = ["rate", "clients"];
const MACHINE_KEYS: [&str; 2] = ["preempt", "threaded_irqs"];
const GROUP_KEYS: [&str; 8] =
    ["cpu.max", "cpu.weight", "cpu.shares", "cpu.idle", "cpus", "cap", "weight", "guest"];

impl Variant {
    /// Reads `NAME: TARGET SETTING... ; TARGET SETTING...`. Without `NAME:` the text is its own name.
    pub fn parse(text: &str) -> Result<Variant, VariantError> {
        let (name, rest) = match text.split_once(':') {
            // `redis policy=fifo:1` has a colon too, but no name.
            Some((name, rest)) if !name.contains('=') && !name.trim().is_empty() => (name.trim(), rest),
            _ => (text.trim(), text),
        };
        Variant::parse_named(name, rest)
    }

    /// Reads `TARGET SETTING... ; TARGET SETTING...`.
    pub fn parse_named(name: &str, text: &str) -> Result<Variant, VariantError> {
        let clauses = text
            .split(';')
            .map(str::trim)
            .filter(|clause| !clause.is_empty())
            .map(clause)
            .collect::<Result<Vec<_>, _>>()?;
        match clauses.is_empty() {
            true => Err(VariantError::Empty(text.trim().to_owned())),
            false => Ok(Variant { name: name.to_owned(), schedulers: Vec::new(), clauses }),
        }
    }
}

fn clause(text: &str) -> Result<Clause, VariantError> {
    let (target, rest) = match text.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
        Some((quoted, rest)) => (quoted, rest),
        None => text.split_once(char::is_whitespace).unwrap_or((text, "")),
    };
    if target.contains('=') {
        return Err(VariantError::Value(format!(
            "`{text}`: say first who changes: TARGET SETTING..., such as \"sysbench policy=idle\""
        )));
    }
    let settings =
        rest.split_whitespace().map(|part| setting(target, part)).collect::<Result<Vec<_>, _>>()?;
    match settings.is_empty() {
        true => Err(VariantError::Empty(text.to_owned())),
        false => Ok(Clause { target: without_slashes(target), settings }),
    }
}

/// `/a//b/` is the group `/a/b`.
fn without_slashes(target: &str) -> String {
    if !target.starts_with('/') {
        return target.to_owned();
    }
    let parts: Vec<&str> = target.split('/').filter(|part| !part.is_empty()).collect();
    format!("/{}", parts.join("/"))
}

fn setting(target: &str, text: &str) -> Result<Setting, VariantError> {
    let (key, value) = match text.split_once('=') {
        Some(pair) => pair,
        None if text == "off" => (text, ""),
        None => return Err(VariantError::Syntax(text.to_owned())),
    };
    if target == "scheduler" {
        return Ok(Setting::Knob(key.to_owned(), value.to_owned()));
    }
    if target == "delegation" {
        return Ok(Setting::Delegation(key.to_owned(), value.to_owned()));
    }
    let keys: Vec<&str> = match target.starts_with('/') {
        true => GROUP_KEYS.to_vec(),
        _ if target == "machine" => MACHINE_KEYS.to_vec(),
        false => TASK_KEYS.into_iter().chain(SOURCE_KEYS).collect(),
    };
    if !keys.contains(&key) {
        let hint = match nearest(key, keys.iter().copied()) {
            Some(right) => format!(": did you mean `{right}`?"),
            None => format!("; it may be {}", keys.join(", ")),
        };
        return Err(VariantError::Key { target: target.to_owned(), key: key.to_owned(), hint });
    }
    value_of(key, value).map_err(|message| VariantError::Value(format!("{text}: {message}")))
}

fn value_of(key: &str, value: &str) -> Result<Setting, String> {
    fn read<T: std::str::FromStr>(value: &str) -> Result<T, String>
    where
        T::Err: std::fmt::Display,
    {
        value.parse().map_err(|error: T::Err| error.to_string())
    }
    let number = |low: u64, high: u64| {
        let wanted = || format!("must be a whole number from {low} to {high}");
        value.parse::<u64>().ok().filter(|n| (low..=high).contains(n)).ok_or_else(wanted)
    };
    match key {
        "policy" => Ok(Setting::Policy(read(value)?)),
        "nice" => {
            let nice = value.parse().ok().and_then(Nice::new);
            Ok(Setting::Nice(nice.ok_or("must be a whole number from -20 to 19")?))
        }
        "cpus" => Ok(Setting::Cpus(read(value)?)),
        "slice" => {
            let slice: Ns = read(value)?;
            match slice >= Ns::from_us(100) && slice <= Ns::from_ms(100) {
                true => Ok(Setting::Slice(slice)),
                false => Err("must be from 100us to 100ms".to_owned()),
            }
        }
        "group" if value.starts_with('/') => Ok(Setting::Group(without_slashes(value))),
        "group" => Err("a group is a path, such as /batch".to_owned()),
        "demand" => Ok(Setting::Demand(factor(value)?)),
        "off" => Ok(Setting::Off),
        "rate" => Ok(Setting::Rate(factor(value)?)),
        "clients" => Ok(Setting::Clients(number(1, 1_000_000)? as u32)),
        "cpu.max" => Ok(Setting::Max(bandwidth(value)?)),
        "cpu.weight" => Ok(Setting::Shares(shares_of_weight(number(1, 10_000)?))),
        "cpu.shares" => Ok(Setting::Shares(number(2, 262_144)? as u32)),
        "cap" => Ok(Setting::Cap(number(0, 51_200)? as u32)),
        "weight" => Ok(Setting::Weight(number(1, 65_535)? as u32)),
        "guest" if value == "none" => Ok(Setting::Guest(None)),
        "guest" => {
            let spec = read::<SchedulerSpec>(value)?;
            crate::scenario::check_scheduler(&spec)?;
            Ok(Setting::Guest(Some(spec)))
        }
        "preempt" => Ok(Setting::Preempt(parse_model(value)?)),
        "threaded_irqs" => Ok(Setting::ThreadedIrqs(flag(value)?)),
        "cpu.idle" => Ok(Setting::GroupIdle(flag(value)?)),
        _ => unreachable!("checked against the list of keys"),
    }
}

fn flag(value: &str) -> Result<bool, String> {
    match value {
        "on" | "1" | "true" => Ok(true),
        "off" | "0" | "false" => Ok(false),
        _ => Err("must be on or off".to_owned()),
    }
}

/// `x2`, `x1.5` or `50%`, in thousandths.
fn factor(text: &str) -> Result<u64, String> {
    let form = || "must be a factor such as x2 or x0.5, or a percentage such as 50%".to_owned();
    let permille = match (text.strip_prefix('x'), text.strip_suffix('%')) {
        (Some(number), _) => scaled(number, 3),
        (_, Some(number)) => scaled(number, 1),
        _ => None,
    };
    permille.filter(|p| (1..=1_000_000).contains(p)).ok_or_else(form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_line_of_the_issue() {
        let variant = Variant::parse("NAME: TASK policy=idle nice=5 cpus=0-1 ; OTHER policy=fifo:1").unwrap();
        assert_eq!(variant.name, "NAME");
        assert_eq!(variant.clauses.len(), 2);
        assert_eq!(variant.clauses[0].settings.len(), 3);
        assert_eq!(variant.clauses[1].settings, [Setting::Policy(Policy::Fifo(1))]);
    }

    #[test]
    fn a_colon_in_a_value_is_not_a_name() {
        let variant = Variant::parse("redis policy=fifo:1").unwrap();
        assert_eq!(variant.name, "redis policy=fifo:1");
        assert_eq!(variant.clauses[0].target, "redis");
    }

    #[test]
    fn reads_every_setting() {
        let text = "x: /g cpu.max=50ms/100ms cpu.weight=200 cpu.idle=on cpus=0 ; t demand=x1.5 slice=3ms \
                    group=/g ; s rate=50% clients=3 ; u off ; scheduler a=b ; \"two words\" nice=-5";
        let variant = Variant::parse(text).unwrap();
        assert_eq!(variant.clauses[0].settings[1], Setting::Shares(2048));
        assert_eq!(variant.clauses[1].settings[0], Setting::Demand(1500));
        assert_eq!(variant.clauses[2].settings, [Setting::Rate(500), Setting::Clients(3)]);
        assert_eq!(variant.clauses[3].settings, [Setting::Off]);
        assert_eq!(variant.clauses[5].target, "two words");
    }

    #[test]
    fn refusals_teach() {
        for (text, part) in [
            ("x: ", "changes nothing"),
            ("x: yes", "changes nothing"),
            ("x: yes polisy=idle", "did you mean `policy`"),
            ("x: yes policy=idel", "use other, batch, idle"),
            ("x: yes nice=40", "-20 to 19"),
            ("x: yes demand=2", "x2 or x0.5"),
            ("x: policy=idle", "say first who"),
            ("x: /g cpu.mx=1ms", "did you mean `cpu.max`"),
            ("x: /g cpu.max=10us/100ms", "at least 1ms"),
            ("x: yes quickly", "KEY=VALUE"),
        ] {
            let error = Variant::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
