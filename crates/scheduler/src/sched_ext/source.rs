//! Objects by the name that users give them: `bpf:FILE.bpf.o?option=value`.
//!
//! This crate opens no file. A caller gives the bytes ([`provide`]) under the name that specs have
//! for the file; a spec stays plain text, in results too.

use super::{Profile, SchedExt, ops, options, setup};
use crate::{KnobError, SchedulerSpec};
use schedlab_bpf::{BpfError, Btf, Object};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How the name of a scheduler in BPF begins.
const PREFIX: &str = "bpf:";

/// An object and the kernel that it is for, with its options set.
#[derive(Debug)]
pub struct Source {
    pub(super) path: String,
    pub(super) object: Arc<Object>,
    pub(super) kernel: Arc<Btf>,
    /// What its user half sets up.
    pub(super) profile: Option<Arc<Profile>>,
    /// Options that were chosen beside that.
    pub(super) chosen: Vec<(String, String)>,
}

/// Why an object cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The file is not what it should be.
    #[error("{path}: {why}")]
    File {
        /// The object, or the kernel's type information.
        path: String,
        /// What is wrong.
        why: BpfError,
    },
    /// It is no scheduler for this kernel.
    #[error("{path}: {why}")]
    Refused {
        /// The object.
        path: String,
        /// Why not.
        why: String,
    },
}

impl ObjectError {
    /// Returns what is wrong, without the name of the file.
    pub fn why(&self) -> String {
        match self {
            ObjectError::File { why, .. } => why.to_string(),
            ObjectError::Refused { why, .. } => why.clone(),
        }
    }
}

/// Objects that were read, by path. One for a process: what they hold does not change.
static READ: Mutex<BTreeMap<String, Arc<Source>>> = Mutex::new(BTreeMap::new());

/// Profiles that were read, by path.
static PROFILES: Mutex<BTreeMap<String, Arc<Profile>>> = Mutex::new(BTreeMap::new());

/// The option that names a profile.
pub const PROFILE: &str = "profile";

/// Makes a profile known by its path, as specs have it (`?profile=PATH`).
pub fn provide_profile(path: &str, profile: Profile) {
    let mut read = PROFILES.lock().unwrap_or_else(PoisonError::into_inner);
    read.insert(path.to_owned(), Arc::new(profile));
}

/// Returns whether a scheduler's name is that of an object.
pub fn is_object(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Returns the file in a scheduler's name.
pub fn path_of(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)
}

/// Makes the object in `file` known as `bpf:PATH`, for a kernel with the types `kernel`.
///
/// # Errors
/// It is no scheduler in BPF, or not for this kernel.
pub fn provide(path: &str, file: &[u8], kernel: &Arc<Btf>) -> Result<(), ObjectError> {
    let object =
        Object::parse(file).map_err(|why| ObjectError::File { path: path.to_owned(), why })?;
    let mut object = object;
    let refused = |why| ObjectError::Refused { path: path.to_owned(), why };
    ops::scheduler(&object).map_err(refused)?;
    setup::refused(&object, kernel).map_err(refused)?;
    options::fill_enumerators(&mut object, kernel);
    let source = Source {
        path: path.to_owned(),
        object: Arc::new(object),
        kernel: Arc::clone(kernel),
        profile: None,
        chosen: Vec::new(),
    };
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    read.insert(path.to_owned(), Arc::new(source));
    Ok(())
}

/// The object of a spec, with its options.
fn open(spec: &SchedulerSpec) -> Result<Arc<Source>, KnobError> {
    let path = path_of(&spec.name).unwrap_or_default();
    let wrong = |why: String| KnobError::Object { path: path.to_owned(), why };
    let known = READ.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
    let known = known.ok_or_else(|| {
        wrong(
            "this command runs no schedulers in BPF; those with the option --kernel-btf do"
                .to_owned(),
        )
    })?;
    if spec.knobs.is_empty() {
        return Ok(known);
    }
    let mut object = Object::clone(&known.object);
    let (mut profile, mut chosen) = (None, Vec::new());
    for (name, value) in &spec.knobs {
        if name == PROFILE {
            profile = Some(profile_for(&object, value).map_err(wrong)?);
            continue;
        }
        options::set(&mut object, name, value).map_err(wrong)?;
        chosen.push((name.clone(), value.clone()));
    }
    Ok(Arc::new(Source {
        path: known.path.clone(),
        object: Arc::new(object),
        kernel: Arc::clone(&known.kernel),
        profile,
        chosen,
    }))
}

/// A profile that was read, for this object.
fn profile_for(object: &Object, path: &str) -> Result<Arc<Profile>, String> {
    let known = PROFILES.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
    let profile = known.ok_or_else(|| format!("profile {path} was not read"))?;
    let own = &ops::scheduler(object)?.text;
    if *own != profile.scheduler {
        return Err(format!(
            "profile {path} is for the scheduler `{}`, and this one is `{own}`",
            profile.scheduler
        ));
    }
    Ok(profile)
}

/// Checks the options of a scheduler in BPF. Where its file was not read yet, as in a scenario that
/// is being read, they are checked later, when it is.
pub(crate) fn check(spec: &SchedulerSpec) -> Result<(), KnobError> {
    let path = path_of(&spec.name).unwrap_or_default();
    let known = READ.lock().unwrap_or_else(PoisonError::into_inner).contains_key(path);
    if known { open(spec).map(drop) } else { Ok(()) }
}

/// Whether the object behind a scheduler's name has an option of this name.
///
/// # Errors
/// It has none, with those that there are; or its file was not read.
pub fn check_option(name: &str, option: &str) -> Result<(), String> {
    let path = path_of(name).unwrap_or_default();
    let known = READ.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
    let known = known.ok_or_else(|| format!("{name} was not read"))?;
    options::check(&known.object, option).map_err(|why| format!("{name}: {why}"))
}

/// Makes the scheduler of a spec, and where the texts go that its programs print
/// (`bpf_trace_printk`).
///
/// # Errors
/// It is no scheduler in BPF, or an option of it is wrong.
pub fn build_printing(
    spec: &SchedulerSpec,
) -> Result<(Box<dyn crate::Scheduler>, Prints), KnobError> {
    let prints = Prints::default();
    let scheduler = SchedExt { prints: Some(Arc::clone(&prints)), ..build(spec)? };
    Ok((Box::new(scheduler), prints))
}

/// A text that a program printed: when, on which CPU, what.
pub type Printed = (u64, usize, String);

/// Texts that programs print, in order.
pub type Prints = Arc<Mutex<Vec<Printed>>>;

/// Makes the scheduler of a spec.
pub(crate) fn build(spec: &SchedulerSpec) -> Result<SchedExt, KnobError> {
    open(spec).map(SchedExt::new)
}

impl Source {
    /// What a reader of results must know.
    pub(super) fn remarks(&self) -> Vec<String> {
        let rules = setup::rules(&self.kernel);
        let release = match (rules.dequeue_always, rules.idle_topology) {
            (true, _) => "7.2",
            (false, true) => "6.13 to 7.1, as far as they differ from 7.2 in what is modelled",
            (false, false) => "6.12",
        };
        let mut remarks = vec![format!(
            "run by a model of sched_ext with the rules of Linux {release}; decisions cost what \
             the machine's costs say (`bpf_thousand_ns`, `bpf_call_ns` for the program's own), and \
             the kernel's verifier was not asked"
        )];
        let Ok(scheduler) = ops::scheduler(&self.object) else { return remarks };
        if scheduler.values.get("flags").is_some_and(|f| f & ops::flag::SWITCH_PARTIAL != 0) {
            let partial = "it takes SCHED_EXT threads only (SCX_OPS_SWITCH_PARTIAL); here every \
                           fair task counts as one";
            remarks.push(partial.to_owned());
        }
        if let Some(profile) = self.profile.as_ref().filter(|one| !one.not_played.is_empty()) {
            remarks.push(format!("its user half is not played: {}", profile.not_played));
        }
        let runs = self.profile.as_ref().is_some_and(|profile| !profile.calls.is_empty());
        let mut idle = setup::programs_not_run(&self.object);
        idle.retain(|section| !(runs && section == "syscall"));
        if !idle.is_empty() {
            remarks.push(format!("its programs {} are not run", idle.join(", ")));
        }
        remarks
    }
}
