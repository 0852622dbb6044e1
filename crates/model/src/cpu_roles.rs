//! Which CPUs the boot line of a Linux machine takes out of the common work.

use crate::CpuSet;

/// CPUs with a role of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuRoles {
    /// The load balancer leaves them alone (`isolcpus=`, cpuset partitions that are `isolated`). A
    /// task that may run everywhere does not run there.
    pub isolated: CpuSet,
    /// They have no ticks while one task runs there alone, and the kernel does its own work
    /// elsewhere (`nohz_full=`).
    pub nohz_full: CpuSet,
}
