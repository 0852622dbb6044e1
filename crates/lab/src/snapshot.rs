//! `schedlab bpf snapshot`: the profile of a scheduler that this kernel runs.

use schedlab_host::{HostError, loaded, sched_ext as class};
use schedlab_scheduler::sched_ext::{self, Btf, Running, RunningMap};
use std::path::Path;

/// Where a kernel has its type information.
const TYPES: &str = "/sys/kernel/btf/vmlinux";
const TYPES_MAX: u64 = 256 << 20;

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// This kernel runs no schedulers in BPF, or this process may not look.
    #[error("{0}")]
    Unusable(#[from] class::Unusable),
    /// The kernel refused.
    #[error("{0}")]
    Host(#[from] HostError),
    /// The kernel's types.
    #[error("{TYPES}: {0}")]
    Types(String),
    /// The scheduler does not run.
    #[error("{0}")]
    Snapshot(#[from] sched_ext::SnapshotError),
}

/// Writes the profile of the scheduler that is called `wanted`; `state`: with the variables that
/// its programs write.
///
/// # Errors
/// The kernel has no sched_ext, this process may not look, or the scheduler does not run.
pub fn snapshot(wanted: &str, state: bool) -> Result<String, SnapshotError> {
    class::usable_here()?;
    let types = schedlab_files::read_named(Path::new(TYPES), TYPES_MAX);
    let types = types.map_err(|error| SnapshotError::Types(error.to_string()))?;
    let kernel = Btf::of_file(&types).map_err(|error| SnapshotError::Types(error.to_string()))?;
    let map = |map: loaded::LoadedMap| RunningMap {
        name: map.name,
        kind: map.kind,
        max: map.max,
        value_type: map.value_type,
        value: map.value,
    };
    let one = |ops: loaded::LoadedOps| Running {
        value: ops.value,
        kernel_type: ops.kernel_type,
        types: ops.types,
        maps: ops.maps.into_iter().map(map).collect(),
    };
    let running: Vec<Running> = loaded::loaded()?.into_iter().map(one).collect();
    Ok(sched_ext::snapshot(&running, &kernel, wanted, state)?)
}
