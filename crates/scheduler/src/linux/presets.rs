//! The versions that can be asked for by name.

use crate::linux::fair::cfs::Cfs;
use crate::linux::fair::eevdf::Eevdf;
use crate::linux::version::{self, Version};
use crate::linux::{Linux, fair::FairRules, knobs};
use crate::registry::{Entry, Family};
use crate::{CellLocks, Knobs, Scheduler};

fn make<F: FairRules>(version: Version, cpus: usize, knobs: &Knobs) -> Box<dyn Scheduler + Send> {
    Box::new(Linux::<CellLocks, F>::new(version, cpus, knobs))
}

/// Entries of the registry, each under the name of its version: name, rules of its fair class, one
/// line.
macro_rules! presets {
    ($($version:ident, $name:literal, $rules:ident, $summary:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`.")]
            pub(crate) const $version: Entry = Entry {
                name: $name,
                summary: $summary,
                family: Family::Linux(version::$version.release),
                proposed_live: false,
                knobs: || knobs::rows(&version::$version),
                build: |cpus, knobs| make::<$rules>(version::$version, cpus, knobs),
            };
        )*
    };
}

presets! {
    V2_6_24, "linux-2.6.24", Cfs, "the first CFS by vruntime (Linux 2.6.24 to 2.6.27): latency 20 \
                                   ms, whole sleeper credit";
    V2_6_32, "linux-2.6.32", Cfs, "CFS with latency 5 ms, gentle sleepers, RT throttling that \
                                   borrows (Linux 2.6.32)";
    V3_0, "linux-3.0", Cfs, "CFS with latency 6 ms and 0.75 ms slices (Linux 2.6.37 to 3.1)";
    V3_10, "linux-3.10", Cfs, "CFS with limits (cpu.max) whose slices expire (Linux 3.2 to 3.15)";
    V4_9, "linux-4.9", Cfs, "CFS with limits and SCHED_DEADLINE (Linux 3.16 to 4.17)";
    V4_19, "linux-4.19", Cfs, "CFS with limits whose slices expire (Linux 4.18 to 5.3)";
    V5_10, "linux-5.10", Cfs, "CFS with limits whose slices do not expire (Linux 5.4 to 5.12)";
    V6_1, "linux-6.1", Cfs, "CFS with RT throttling (Linux 5.15 to 6.5)";
    V6_6, "linux-6.6", Eevdf, "the first EEVDF, with RT throttling (Linux 6.6 to 6.11)";
    V6_12, "linux-6.12", Eevdf, "EEVDF with delayed dequeue and the fair server (Linux 6.12 to \
                                 6.16)";
    V6_18, "linux-6.18", Eevdf, "EEVDF with the slice protection of Linux 6.17 and 6.18";
    V7_2, "linux-7.2", Eevdf, "EEVDF whose slices end by a timer (HRTICK) instead of at a tick \
                               (Linux 7.2)";
}
