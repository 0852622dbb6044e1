//! The CPUs of this machine.

use schedlab_model::CpuSet;

/// Refuses CPUs that are not online here, and an empty set.
pub(crate) fn check_online(cpus: &CpuSet) -> Result<(), String> {
    let online = schedlab_host::machine().online;
    if cpus.is_empty() || !cpus.without(&online).is_empty() {
        return Err(format!("--cpus {cpus}: this machine has the CPUs {online}"));
    }
    Ok(())
}
