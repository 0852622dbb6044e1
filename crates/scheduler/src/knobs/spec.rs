//! What a user asks for, a scheduler by name with knobs, and what can be wrong with it.

use schedlab_model::CpuSet;
use std::fmt;
use std::str::FromStr;

/// A scheduler by name, with knobs: `linux-6.18` or
/// `linux-6.18:base_slice_ns=2.8ms,features.RUN_TO_PARITY=off`; of Xen's also with cpupools behind
/// it: `xen-credit:tslice=5ms/2-3:xen-null`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SchedulerSpec {
    /// Name in the registry.
    pub name: String,
    /// Knob settings as text, in the order given.
    pub knobs: Vec<(String, String)>,
    /// Cpupools beside Pool-0: their pCPUs and their schedulers, which have no pools of their own.
    pub pools: Vec<(CpuSet, SchedulerSpec)>,
}

impl SchedulerSpec {
    /// Returns the scheduler of this name as it is by default.
    pub fn named(name: impl Into<String>) -> SchedulerSpec {
        SchedulerSpec { name: name.into(), knobs: Vec::new(), pools: Vec::new() }
    }
}

/// What is wrong with a scheduler's name or knobs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KnobError {
    /// Not `name=value`.
    #[error("`{0}` is not a knob setting: write name=value, several separated by commas")]
    Syntax(String),
    /// A list with nothing between two commas.
    #[error("`{0}`: a comma has no scheduler beside it: write rr,layers or rr:slice_ns=5ms,layers")]
    List(String),
    /// Cpupools that cannot be.
    #[error("cpupools of `{spec}`: {why}; write them as in xen-credit:tslice=5ms/2-3:xen-null")]
    Pool {
        /// As given.
        spec: String,
        /// What is wrong.
        why: String,
    },
    /// A scheduler in BPF that cannot be used so.
    #[error("bpf:{path}: {why}")]
    Object {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// No such scheduler.
    #[error("unknown scheduler `{name}`{}; `schedlab list schedulers` shows all", suggest(.nearest))]
    UnknownScheduler {
        /// As given.
        name: String,
        /// The nearest real one.
        nearest: Option<String>,
    },
    /// No such knob.
    #[error("scheduler {scheduler} has no knob `{name}`{}; it has: {all}", suggest(.nearest))]
    UnknownKnob {
        /// The scheduler.
        scheduler: String,
        /// As given.
        name: String,
        /// The nearest real one.
        nearest: Option<String>,
        /// Every knob it has.
        all: String,
    },
    /// A value of the wrong kind or out of bounds.
    #[error("knob {name}={value}: must be {allowed}")]
    Value {
        /// The knob.
        name: String,
        /// As given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
}

fn suggest(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default()
}

impl FromStr for SchedulerSpec {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<SchedulerSpec, KnobError> {
        if crate::sched_ext::is_object(text) {
            return object(text);
        }
        let wrong = |why: String| KnobError::Pool { spec: text.to_owned(), why };
        let mut parts = text.split('/');
        let mut spec = one(parts.next().unwrap_or_default())?;
        for part in parts {
            let (cpus, pool) = part
                .split_once(':')
                .ok_or_else(|| wrong(format!("`{part}` is not CPUS:SCHEDULER")))?;
            let cpus = cpus.parse().map_err(|error| wrong(format!("{error}")))?;
            spec.pools.push((cpus, one(pool)?));
        }
        Ok(spec)
    }
}

/// Schedulers with a comma between them: `rr:slice_ns=5ms,layers`. A comma before `knob=value`
/// separates the knobs of one scheduler, and one among the CPUs of a pool (`rr/0,2:layers`) those.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchedulerList(pub Vec<SchedulerSpec>);

impl FromStr for SchedulerList {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<SchedulerList, KnobError> {
        let mut specs: Vec<String> = Vec::new();
        for part in text.split(',') {
            let of_object = specs.last().is_some_and(|spec| crate::sched_ext::is_object(spec));
            let is_knob = part.find('=').is_some_and(|at| !part[..at].contains(':'));
            match specs.last_mut() {
                Some(spec)
                    if is_knob
                        || !of_object
                            && spec
                                .rsplit_once('/')
                                .is_some_and(|(_, pool)| !pool.contains(':')) =>
                {
                    spec.push(',');
                    spec.push_str(part);
                }
                _ => specs.push(part.to_owned()),
            }
        }
        if specs.iter().any(|spec| spec.trim().is_empty()) {
            return Err(KnobError::List(text.to_owned()));
        }
        Ok(SchedulerList(specs.iter().map(|spec| spec.parse()).collect::<Result<_, _>>()?))
    }
}

/// A scheduler in BPF with its options: `bpf:FILE.bpf.o?name=value,name=value`.
fn object(text: &str) -> Result<SchedulerSpec, KnobError> {
    let (name, options) = text.split_once('?').unwrap_or((text, ""));
    if name.len() == "bpf:".len() {
        let why = "write the file, as in bpf:./mine.bpf.o".to_owned();
        return Err(KnobError::Object { path: String::new(), why });
    }
    Ok(SchedulerSpec { knobs: knobs(options)?, ..SchedulerSpec::named(name) })
}

/// One scheduler with its knobs.
fn one(text: &str) -> Result<SchedulerSpec, KnobError> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    Ok(SchedulerSpec { knobs: knobs(rest)?, ..SchedulerSpec::named(name.trim()) })
}

/// Settings with a comma between them.
fn knobs(text: &str) -> Result<Vec<(String, String)>, KnobError> {
    text.split(',')
        .filter(|part| !part.trim().is_empty())
        .map(|part| match part.split_once('=') {
            Some((knob, value)) => Ok((knob.trim().to_owned(), value.trim().to_owned())),
            None => Err(KnobError::Syntax(part.to_owned())),
        })
        .collect()
}

impl fmt::Display for SchedulerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let first = if crate::sched_ext::is_object(&self.name) { '?' } else { ':' };
        for (i, (knob, value)) in self.knobs.iter().enumerate() {
            write!(f, "{}{knob}={value}", if i == 0 { first } else { ',' })?;
        }
        self.pools.iter().try_for_each(|(cpus, pool)| write!(f, "/{cpus}:{pool}"))
    }
}
