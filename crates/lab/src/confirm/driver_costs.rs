//! The costs of the driver on this machine, which a prediction under `schedlab run` contains: two
//! threads that wake each other and block are run under the driver for a moment ([`ping_pong`]).
//!
//! The simulator's per-CPU agents ([`schedlab_sim::DelegationCosts`]) get two prices from it. The
//! agent's answer to a wakeup is two messages there (the task that runs is preempted, and the
//! wakeup itself); a block is one message and a transaction:
//!
//! | price | from | |
//! |---|---|---|
//! | `msg_consume_ns` | wakeup / 2 | what a turn takes beside block to next, less the wakeup's own system call (calibrated `wake_call_ns`; 0 without a calibration) |
//! | `txn_local_ns` | block to next - `msg_consume_ns` | switches and system calls are in these two sums, so their own prices are 0 |
//! | `timer_late_ns` | calibrated `timer_fifo_ns` | 0 without a calibration |
//!
//! Nothing is fitted to the workload, of which the two threads are no part. How well two threads
//! with two eventfds represent other programs is part of the error that `confirm` prints.
//!
//! Each driver is measured by itself. Under sched_ext the agent is on another CPU: a block waits
//! for it all the same, and a wakeup takes from the task that runs only what the part in the kernel
//! does.
//!
//! [`ping_pong`]: schedlab_live::elevation::ping_pong

use super::plan::{ConfirmError, ConfirmPlan, LiveDriver};
use schedlab_host::die_with_us;
use schedlab_model::Ns;
use schedlab_study::preset;
use schemars::JsonSchema;
use serde::Serialize;
use std::process::{Command, Stdio};

/// Measurements of the two threads, at least.
const PLAYS: usize = 3;
/// Length of each.
const TIME: Ns = Ns::from_ms(400);
/// The scheduler of the measurement: its own code costs next to nothing.
const SCHEDULER: &str = "fifo-per-cpu";

/// Costs of the driver on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct DriverCosts {
    /// From a block to the next task: p50, median of the measurements.
    pub block_to_next_ns: u64,
    /// What a wakeup takes from the task that runs: p50, median of the measurements.
    pub wakeup_ns: u64,
    /// How late its timers fire.
    pub timer_late_ns: u64,
    /// Whether the machine is calibrated.
    pub calibrated: bool,
}

/// Block to next and a whole turn of each measurement (ns). They are taken between the rounds, so
/// that other load on the machine hits both.
#[derive(Debug)]
pub(super) struct Plays {
    driver: LiveDriver,
    all: Vec<(u64, u64)>,
}

impl Plays {
    /// Returns no measurements of a driver yet.
    pub(super) fn new(driver: LiveDriver) -> Plays {
        Plays { driver, all: Vec::new() }
    }

    /// Measures once, on the CPU of the plan.
    pub(super) fn play(&mut self, plan: &ConfirmPlan) -> Result<(), ConfirmError> {
        self.all.push(play(plan, self.driver)?);
        Ok(())
    }

    /// Returns the costs from all measurements.
    pub(super) fn costs(
        mut self,
        plan: &ConfirmPlan,
    ) -> Result<(LiveDriver, DriverCosts), ConfirmError> {
        while self.all.len() < PLAYS {
            self.play(plan)?;
        }
        let kept = preset::kept()?;
        let known = |name: &str| {
            kept.as_ref()
                .and_then(|preset| preset.costs.get(name))
                .map_or(0, |ns| ns.max(0.0).round() as u64)
        };
        let middle = |of: fn(&(u64, u64)) -> u64| {
            let mut all: Vec<u64> = self.all.iter().map(of).collect();
            all.sort_unstable();
            all[all.len() / 2]
        };
        let wakeup = |play: &(u64, u64)| play.1.saturating_sub(play.0);
        let costs = DriverCosts {
            block_to_next_ns: middle(|play| play.0),
            wakeup_ns: middle(wakeup).saturating_sub(known("wake_call_ns")),
            timer_late_ns: known("timer_fifo_ns"),
            calibrated: kept.is_some(),
        };
        Ok((self.driver, costs))
    }
}

impl DriverCosts {
    /// Returns the costs as settings of a variant's `delegation`.
    pub(super) fn settings(&self) -> String {
        let message = self.wakeup_ns / 2;
        format!(
            "mode=per-cpu costs=free msg_consume_ns={message}ns txn_local_ns={}ns \
             timer_late_ns={}ns",
            self.block_to_next_ns.saturating_sub(message),
            self.timer_late_ns
        )
    }
}

fn play(plan: &ConfirmPlan, driver: LiveDriver) -> Result<(u64, u64), ConfirmError> {
    let mut command = Command::new(&plan.program);
    let cpus = plan.cpus.to_string();
    command.args([
        "run",
        "--json",
        "--driver",
        driver.word(),
        "--scheduler",
        SCHEDULER,
        "--cpus",
        &cpus,
        "--",
    ]);
    command.arg(&plan.program).args(["helper", "ping-pong", "--for", &TIME.to_string()]);
    command.env("SCHEDLAB_RUN_DIR", plan.run_dir.path()).stdin(Stdio::null());
    let failed = |why: &str| {
        ConfirmError::Input(format!(
            "measuring what the driver costs here (schedlab run): {}",
            why.trim()
        ))
    };
    die_with_us(&mut command);
    let output = command.output().map_err(|error| failed(&error.to_string()))?;
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let line = out.lines().next().unwrap_or_default();
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [block, turn] if output.status.success() => Ok((block, turn)),
        _ => Err(failed(error.trim_start_matches("error: "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_study::delegation::DelegationSpec;

    #[test]
    fn the_prices_come_to_what_was_measured() {
        let costs = DriverCosts {
            block_to_next_ns: 12_000,
            wakeup_ns: 5_000,
            timer_late_ns: 30_000,
            calibrated: true,
        };
        let mut spec = DelegationSpec::default();
        for setting in costs.settings().split_whitespace() {
            let (key, value) = setting.split_once('=').expect("KEY=VALUE");
            spec.set(key, value, 2).expect("a setting of delegation");
        }
        let sums = spec.costs;
        // A wakeup on a busy CPU: the message that its task was preempted, and that of the wakeup;
        // waking and switching are in it.
        let message = sums.msg_produce_ns + sums.msg_consume_ns;
        assert_eq!(message + message + sums.agent_wake_ns + sums.ctx_switch_ns * 2, Ns(5_000));
        // A block: its message, the transaction, two switches.
        let block = message
            + sums.agent_wake_ns
            + sums.syscall_ns
            + sums.txn_local_ns
            + sums.ctx_switch_ns * 2;
        assert_eq!((block, sums.timer_late_ns), (Ns(12_000), Ns(30_000)));
    }
}
