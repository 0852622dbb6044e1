//! Schedulers that the user named when the workbench was started. A page may ask for these beside
//! those of the registry; it still names no file.

use super::ask::is_file;
use super::settings::SchedulerOutput;
use crate::{StudyError, objects};
use schedlab_scheduler::{SchedulerSpec, registry};
use std::path::PathBuf;

/// Schedulers of the command line.
#[derive(Clone, Debug, Default)]
pub struct NamedSchedulers {
    specs: Vec<SchedulerSpec>,
    btf: Option<PathBuf>,
}

impl NamedSchedulers {
    /// Reads the objects among them, for the kernel whose types are in `btf`.
    ///
    /// # Errors
    /// As for [`objects::read`], or what is wrong with another one.
    pub fn read(
        specs: Vec<SchedulerSpec>,
        btf: Option<PathBuf>,
    ) -> Result<NamedSchedulers, StudyError> {
        objects::read(specs.iter(), btf.as_deref())?;
        specs.iter().try_for_each(registry::check)?;
        Ok(NamedSchedulers { specs, btf })
    }

    /// Whether a page may ask for this one: it needs no file, or was named with all of its options,
    /// one of which can be a file.
    pub(super) fn may_ask(&self, spec: &SchedulerSpec) -> bool {
        !is_file(spec) || self.specs.contains(spec)
    }

    /// The file with the kernel's types, where one of these needs it.
    pub(super) fn btf_of<'a>(
        &self,
        mut specs: impl Iterator<Item = &'a SchedulerSpec>,
    ) -> Option<String> {
        let btf = self.btf.as_ref().filter(|_| specs.any(is_file))?;
        Some(btf.display().to_string())
    }

    /// They as they are offered. Their knobs are as they were named.
    pub fn offered(&self) -> impl Iterator<Item = SchedulerOutput> {
        self.specs.iter().map(|spec| SchedulerOutput {
            name: spec.to_string().into(),
            summary: "named when the workbench was started",
            knobs: Vec::new(),
        })
    }
}
