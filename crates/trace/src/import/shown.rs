//! What a source of events shows of itself, beside what its events say of the schedule.

use crate::Capabilities;
use std::collections::BTreeSet;

/// Whether the thread that runs at this event runs a virtual CPU: KVM enters and leaves the guest
/// (include/trace/events/kvm.h and arch/*/kvm/trace.h, 6.18).
pub(super) fn is_of_vcpu(name: &str) -> bool {
    let name = name.strip_prefix("kvm:").unwrap_or(name);
    matches!(name, "kvm_entry" | "kvm_exit" | "kvm_vcpu_wakeup")
}

/// The contents of `schedlab:` marks (`export/rows.rs` writes them).
#[derive(Default)]
pub(super) struct Marks {
    pub(super) hz: Option<u32>,
    pub(super) sees: Option<Capabilities>,
    /// CPUs whose next softirq wakeup was found to be a task's own doing.
    pub(super) inline: BTreeSet<u32>,
}

#[derive(Default)]
pub(super) struct Has {
    pub(super) switch: bool,
    /// A task left without a word why.
    pub(super) blocked: bool,
    pub(super) flags: bool,
    pub(super) migrate: bool,
    pub(super) fork: bool,
    pub(super) exit: bool,
    pub(super) syscalls: bool,
    pub(super) wakes: bool,
}
