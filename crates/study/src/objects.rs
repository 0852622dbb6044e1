//! Schedulers in BPF that a user names: their files, their profiles, and the kernel's types that
//! they need.

mod profile;

use crate::StudyError;
use schedlab_model::text::shown;
use schedlab_scheduler::sched_ext::{self, Btf, Inspection};
use schedlab_scheduler::{KnobError, SchedulerSpec, registry};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// The largest object that is read: those of scx have one megabyte with all their types.
const OBJECT_MAX: u64 = 64 << 20;
/// The largest file with a kernel's types: a vmlinux with debug information has a gigabyte.
const KERNEL_MAX: u64 = 2 << 30;

/// The largest profile that is read.
const PROFILE_MAX: u64 = 1 << 20;

/// How a kernel's types are had.
const HOW: &str = "--kernel-btf FILE names the kernel's types: /sys/kernel/btf/vmlinux of a machine \
                   whose kernel has sched_ext, or a vmlinux";

/// Reads the objects among `specs`, each once, for the kernel whose types are in `btf`.
///
/// # Errors
/// A file cannot be read or is no scheduler for that kernel, an option of a scheduler is wrong, or
/// the kernel's types are missing, or there for nothing.
pub fn read<'a>(
    specs: impl Iterator<Item = &'a SchedulerSpec>,
    btf: Option<&Path>,
) -> Result<(), StudyError> {
    let specs: Vec<&SchedulerSpec> =
        specs.filter(|spec| sched_ext::is_object(&spec.name)).collect();
    let paths: BTreeSet<&str> =
        specs.iter().filter_map(|spec| sched_ext::path_of(&spec.name)).collect();
    let kernel = match (btf, paths.first()) {
        (Some(btf), Some(_)) => Arc::new(kernel(btf)?),
        (None, None) => return Ok(()),
        (Some(_), None) => {
            let why = "--kernel-btf: no scheduler in BPF is compared; name one with --scheduler \
                       bpf:FILE.bpf.o";
            return Err(StudyError::Option(why.to_owned()));
        }
        (None, Some(path)) => {
            let why = format!("its types are laid out by a kernel's; {HOW}");
            return Err(KnobError::Object { path: (*path).to_owned(), why }.into());
        }
    };
    for path in paths {
        let object = |why: String| KnobError::Object { path: path.to_owned(), why };
        let file = schedlab_files::read_named(Path::new(path), OBJECT_MAX);
        let file = file.map_err(|error| object(error.to_string()))?;
        sched_ext::provide(path, &file, &kernel).map_err(|error| object(error.why()))?;
    }
    profiles(&specs)?;
    for spec in specs {
        registry::check(spec)?;
    }
    Ok(())
}

/// Reads the profiles of schedulers in BPF (`?profile=FILE`), each once.
fn profiles(specs: &[&SchedulerSpec]) -> Result<(), StudyError> {
    let named = specs.iter().flat_map(|spec| {
        let own = spec.knobs.iter().filter(|(name, _)| name == sched_ext::PROFILE);
        own.map(move |(_, file)| (spec, file))
    });
    let mut read = BTreeSet::new();
    for (spec, file) in named {
        if !read.insert(file) {
            continue;
        }
        let path = sched_ext::path_of(&spec.name).unwrap_or_default().to_owned();
        let wrong = |why: String| KnobError::Object {
            path: path.clone(),
            why: format!("profile {}: {why}", shown(file)),
        };
        let bytes = schedlab_files::read_named(Path::new(file), PROFILE_MAX);
        let bytes = bytes.map_err(|error| wrong(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| wrong("it is no text".to_owned()))?;
        sched_ext::provide_profile(file, profile::parse(&text).map_err(wrong)?);
    }
    Ok(())
}

/// What an object is and needs.
///
/// # Errors
/// A file cannot be read, or the object is no scheduler.
pub fn inspect(path: &Path, btf: Option<&Path>) -> Result<Inspection, StudyError> {
    let name = path.display().to_string();
    let wrong = |why: String| StudyError::Option(format!("{}: {why}", shown(&name)));
    let file = schedlab_files::read_named(path, OBJECT_MAX);
    let file = file.map_err(|error| wrong(error.to_string()))?;
    let kernel = btf.map(kernel).transpose()?;
    sched_ext::inspect(&name, &file, kernel.as_ref()).map_err(|error| wrong(error.why()))
}

fn kernel(path: &Path) -> Result<Btf, StudyError> {
    let wrong = |why: String| {
        let name = path.display().to_string();
        StudyError::Option(format!("--kernel-btf {}: {why}", shown(&name)))
    };
    let file = schedlab_files::read_named(path, KERNEL_MAX);
    let file = file.map_err(|error| wrong(error.to_string()))?;
    Btf::of_file(&file).map_err(|error| wrong(error.to_string()))
}
