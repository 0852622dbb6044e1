//! The schedulers of the Xen hypervisor: Credit and Credit2.
//!
//! A task is a vCPU (a *unit* in Xen's words), a group is a domain; `weight` is 1 … 65535 (default 256) and
//! `cap_percent` is in per cent of one pCPU. The core of Xen below both (when a unit may be decided upon, what
//! migration means, that a slice timer starts with each decision) is the driver's part of the contract.
//!
//! Releases differ in a few rules: the knob `version` says from which release they are taken.

mod common;
mod credit;
mod credit2;

use crate::{Knob, KnobKind, Knobs, Locks, Needs, Scheduler};
use common::Release;

const VERSIONS: &[&str] = &["4.12", "4.15", "4.17", "4.20", "4.22"];

const VERSION: Knob = Knob {
    name: "version",
    kind: KnobKind::Word(VERSIONS),
    default: "4.20",
    doc: "the Xen release whose rules hold",
};

fn release(knobs: &Knobs) -> Release {
    match knobs.word("version", "4.20") {
        "4.12" => Release::V4_12,
        "4.15" => Release::V4_15,
        "4.17" => Release::V4_17,
        "4.22" => Release::V4_22,
        _ => Release::V4_20,
    }
}

/// What both need of the driver.
fn needs() -> Needs {
    Needs { wakeups: true, exact_slices: true, saved: true, own_marks: true, ..Needs::default() }
}

/// The knobs of `xen-credit`.
pub fn credit_knobs() -> Vec<Knob> {
    let mut knobs = vec![VERSION];
    knobs.extend(credit::knobs());
    knobs
}

/// `xen-credit`: Credit, the default until Xen 4.11.
pub fn build_credit<L: Locks>(cpus: usize, knobs: &Knobs) -> Box<dyn Scheduler + Send> {
    Box::new(credit::Credit::<L>::new(release(knobs), cpus, knobs))
}

/// The knobs of `xen-credit2`.
pub fn credit2_knobs() -> Vec<Knob> {
    let mut knobs = vec![VERSION];
    knobs.extend(credit2::knobs());
    knobs
}

/// `xen-credit2`: Credit2, the default since Xen 4.12.
pub fn build_credit2<L: Locks>(cpus: usize, knobs: &Knobs) -> Box<dyn Scheduler + Send> {
    Box::new(credit2::Credit2::<L>::new(release(knobs), cpus, knobs))
}
