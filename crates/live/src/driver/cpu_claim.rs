//! One driver for a CPU: two of them would end each other's turns, and use up each other's yield windows, until the
//! kernel throttles both.
//!
//! The claim is an abstract socket name (unix(7)): whatever ends the driver, the kernel takes it back, and no file is
//! left. It holds within a network namespace; a driver in another one is not seen.

use crate::LiveError;
use schedlab_model::CpuId;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// How long to wait for a driver that is about to end: one that was killed takes a while to be gone.
pub const PATIENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(20);

/// No other driver manages this CPU while it lives.
#[derive(Debug)]
pub struct CpuClaim(#[expect(dead_code, reason = "its life is the claim")] UnixDatagram);

impl CpuClaim {
    /// Claims `cpu`; waits for `patience` when another driver has it.
    ///
    /// # Errors
    /// When another driver still has it.
    pub fn take(cpu: CpuId, patience: Duration) -> Result<CpuClaim, LiveError> {
        let failed = LiveError::io("claiming the CPU");
        let address = SocketAddr::from_abstract_name(format!("schedlab-cpu-{}", cpu.0)).map_err(failed)?;
        let begun = Instant::now();
        loop {
            match UnixDatagram::bind_addr(&address) {
                Ok(socket) => return Ok(CpuClaim(socket)),
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    return Err(LiveError::io("claiming the CPU")(error));
                }
                Err(_) if begun.elapsed() >= patience => return Err(LiveError::Claimed { cpu: cpu.0 }),
                Err(_) => std::thread::sleep(STEP),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_has_one_driver() {
        // No machine has this one.
        let cpu = CpuId(1_000_000 + std::process::id());
        let first = CpuClaim::take(cpu, Duration::ZERO).expect("it is free");
        let refused = CpuClaim::take(cpu, Duration::ZERO).expect_err("it is taken");
        assert!(refused.to_string().contains("schedlab status"), "{refused}");
        assert!(CpuClaim::take(CpuId(cpu.0 + 1), Duration::ZERO).is_ok(), "another CPU is free");
        drop(first);
        assert!(CpuClaim::take(cpu, Duration::ZERO).is_ok());
    }
}
