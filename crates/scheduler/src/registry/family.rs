//! The system that a scheduler models, which decides what its settings are called and what its
//! tasks stand for.

use crate::linux::KernelRelease;
use crate::{KnobError, SchedulerSpec};

/// The system that a scheduler models.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// The kernel of Linux, as of this release.
    Linux(KernelRelease),
    /// The hypervisor Xen: tasks are vCPUs, groups are domains.
    Xen(XenScheduler),
    /// Written for user-space agents.
    Agent,
    /// A textbook algorithm.
    Textbook,
    /// A sched_ext scheduler in BPF, from a file.
    SchedExt,
}

/// One of Xen's schedulers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XenScheduler {
    /// Credit.
    Credit,
    /// Credit2.
    Credit2,
    /// The null scheduler.
    Null,
    /// RTDS.
    Rtds,
    /// ARINC 653.
    Arinc653,
}

impl XenScheduler {
    /// Returns its word in Xen's `sched=` and in `xl sched-WORD`.
    pub const fn word(self) -> &'static str {
        match self {
            XenScheduler::Credit => "credit",
            XenScheduler::Credit2 => "credit2",
            XenScheduler::Null => "null",
            XenScheduler::Rtds => "rtds",
            XenScheduler::Arinc653 => "arinc653",
        }
    }
    /// Returns whether its domains have weights and caps.
    pub const fn has_shares(self) -> bool {
        matches!(self, XenScheduler::Credit | XenScheduler::Credit2)
    }
}

impl Family {
    /// Returns the family of the scheduler that `text` names, with or without knobs.
    ///
    /// # Errors
    /// When the text is no scheduler of the registry.
    pub fn named_by(text: &str) -> Result<Family, KnobError> {
        text.parse::<SchedulerSpec>()?.family()
    }
    /// Returns the release of a Linux kernel.
    pub const fn linux(self) -> Option<KernelRelease> {
        match self {
            Family::Linux(release) => Some(release),
            _ => None,
        }
    }
    /// Returns which of Xen's schedulers it is.
    pub const fn xen(self) -> Option<XenScheduler> {
        match self {
            Family::Xen(scheduler) => Some(scheduler),
            _ => None,
        }
    }
    /// Returns whether it is one of Xen's schedulers.
    pub const fn is_xen(self) -> bool {
        self.xen().is_some()
    }
}

impl SchedulerSpec {
    /// Returns the family of the scheduler.
    ///
    /// # Errors
    /// When the registry has no scheduler of this name.
    pub fn family(&self) -> Result<Family, KnobError> {
        Ok(super::find(&self.name)?.family)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prefixes of names are for people; the program asks the family. Both must say the same.
    #[test]
    fn a_name_begins_as_its_family_is_called() {
        for entry in super::super::all() {
            let name = entry.name;
            assert_eq!(entry.family.linux().is_some(), name.starts_with("linux-"), "{name}");
            assert_eq!(entry.family.is_xen(), name.starts_with("xen-"), "{name}");
            if let Some(xen) = entry.family.xen() {
                assert_eq!(name, format!("xen-{}", xen.word()));
            }
            if let Some(release) = entry.family.linux() {
                let text = name.trim_start_matches("linux-");
                let named: KernelRelease = text.parse().expect("a release");
                assert_eq!(named, release, "{name}");
            }
        }
    }

    #[test]
    fn a_spec_with_knobs_and_pools_has_the_family_of_its_first_scheduler() {
        let of = |text: &str| Family::named_by(text).expect(text);
        assert_eq!(of("linux-6.18:base_slice_ns=6ms").linux(), Some(KernelRelease::new(6, 18, 0)));
        assert_eq!(of("xen-credit:tslice=5ms/2-3:xen-null").xen(), Some(XenScheduler::Credit));
        assert!(XenScheduler::Credit2.has_shares() && !XenScheduler::Rtds.has_shares());
        assert_eq!((of("layers"), of("edf")), (Family::Agent, Family::Textbook));
        let error = Family::named_by("xen-credit3").unwrap_err().to_string();
        assert!(
            error.contains("did you mean `xen-credit2`?") || error.contains("`xen-credit`"),
            "{error}"
        );
    }
}
