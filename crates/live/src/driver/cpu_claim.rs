//! One driver for a CPU: two of them would end each other's turns, and use up each other's yield
//! windows, until the kernel throttles both. The claim is one of [`crate::claims`], and ends with
//! the driver's process, whatever ends that.

use crate::LiveError;
use crate::claims::CpuLink;
use schedlab_model::CpuId;
use std::time::{Duration, Instant};

/// How long to wait for a driver that is about to end: one that was killed takes a while to be
/// gone.
pub const PATIENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(20);

/// No other driver manages this CPU while it lives.
#[derive(Debug)]
pub struct CpuClaim(#[expect(dead_code, reason = "its life is the claim")] CpuLink);

impl CpuClaim {
    /// Claims `cpu`; waits for `patience` when another driver has it.
    ///
    /// # Errors
    /// When another driver still has it.
    pub fn take(cpu: CpuId, patience: Duration) -> Result<CpuClaim, LiveError> {
        let begun = Instant::now();
        loop {
            match CpuLink::take(cpu.0)? {
                Ok(link) => return Ok(CpuClaim(link)),
                Err(by) if begun.elapsed() >= patience => {
                    return Err(LiveError::Claimed { cpu: cpu.0, by });
                }
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
        let says = refused.to_string();
        let by = format!("process {}", std::process::id());
        assert!(says.contains("schedlab status") && says.contains(&by), "{says}");
        assert!(CpuClaim::take(CpuId(cpu.0 + 1), Duration::ZERO).is_ok(), "another CPU is free");
        drop(first);
        assert!(CpuClaim::take(cpu, Duration::ZERO).is_ok());
    }
}
