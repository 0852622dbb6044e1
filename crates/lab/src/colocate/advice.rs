//! How to make a setting of `colocate` without schedlab, and what to know about it: the texts of
//! [`schedlab_study::deploy`], where the setting is one that a variant can name.

use schedlab_live::actuators::Actuator;
use schedlab_study::deploy::Deployment;
use schemars::JsonSchema;
use serde::Serialize;

/// A setting for other tools.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Advice {
    /// What is set.
    pub what: &'static str,
    /// What to know about it.
    pub bites: String,
    /// A drop-in for the unit of the workload that it changes.
    pub systemd: String,
    /// What Kubernetes offers.
    pub kubernetes: String,
    /// Commands for a shell: for a new program and for a running one.
    pub shell: String,
}

/// Returns the advice for an actuator. SERVER and BATCH are for the reader to replace.
pub fn advice(how: Actuator) -> Advice {
    let (what, setting) = match how {
        Actuator::Default => ("nothing is changed", ""),
        Actuator::Idle => ("the batch threads run under SCHED_IDLE", "BATCH policy=idle"),
        Actuator::GroupIdle => {
            ("cpu.idle = 1 for the control group of the batch", "/BATCH cpu.idle=on")
        }
        Actuator::QuotaOff => {
            ("no cpu.max for the control groups of the server", "/SERVER cpu.max=max")
        }
        Actuator::GroupWeight => (
            "the least weight for the control group of the batch (cpu.weight 1, cpu.shares 2)",
            "/BATCH cpu.weight=1",
        ),
        Actuator::Batch => ("the batch threads run under SCHED_BATCH", "BATCH policy=batch"),
        Actuator::Nice => ("the batch threads have nice 19", "BATCH nice=19"),
        Actuator::Slice => (
            "the server's threads ask for slices of 0.1 ms: earlier deadlines, the same share",
            "SERVER slice=100us",
        ),
        Actuator::GroupMax => (
            "the batch gets half of each managed CPU at most, in periods of 10 ms",
            "/BATCH cpu.max=5ms/10ms",
        ),
        Actuator::Fifo => {
            ("the server's threads run under SCHED_FIFO with priority 1", "SERVER policy=fifo:1")
        }
        Actuator::Apart => return apart(),
        Actuator::Elevation => return elevation(),
    };
    let deployment = Deployment::of_setting(setting);
    Advice {
        what,
        bites: if setting.is_empty() { "nothing".to_owned() } else { deployment.caveats.join(" ") },
        systemd: deployment.systemd,
        kubernetes: deployment.kubernetes,
        shell: deployment.shell,
    }
}

/// Which CPUs are the last half only the machine says.
fn apart() -> Advice {
    let text = |text: &str| text.to_owned();
    Advice {
        what: "the batch threads keep to the last half of the managed CPUs",
        bites: text(
            "The batch cannot use what the server leaves on the other half: this wastes CPU time.",
        ),
        systemd: text(
            "# /etc/systemd/system/BATCH.service.d/schedlab.conf\n[Service]\nAllowedCPUs=LAST_HALF",
        ),
        kubernetes: text(
            "kubelet --cpu-manager-policy=static, and whole CPUs as requests = limits for the \
             server",
        ),
        shell: text("taskset --all-tasks --cpu-list --pid LAST_HALF BATCH_PID"),
    }
}

/// A setting that schedlab itself makes.
fn elevation() -> Advice {
    let command = "schedlab attach --scheduler layers --cpus CPU --pid SERVER_PID,BATCH_PID \
                   --task BATCH=batch";
    Advice {
        what: "server and batch run under schedlab's own scheduler `layers`: batch runs only when \
               no server thread is runnable",
        bites: "A schedlab agent must run as root and uses CPU time (`schedlab top` shows how \
                much); 6 ms of each 100 ms \
                belong to the kernel's own scheduling, and a second CPU must stay unmanaged."
            .to_owned(),
        systemd: format!("# a unit of its own: ExecStart=/usr/bin/{command}"),
        kubernetes: "a privileged agent on the node (DaemonSet with hostPID)".to_owned(),
        shell: command.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_live::actuators::LADDER;

    #[test]
    fn every_setting_can_be_made_by_hand() {
        for how in LADDER {
            let advice = advice(how);
            let nothing = how == Actuator::Default;
            assert_eq!(advice.shell.is_empty(), nothing, "{how:?}");
            assert_eq!(advice.systemd.is_empty(), nothing, "{how:?}");
            assert_eq!(advice.kubernetes.is_empty(), nothing, "{how:?}");
            assert!(!advice.bites.is_empty(), "{how:?}");
        }
        assert!(
            advice(Actuator::Idle).shell.starts_with("chrt --idle --all-tasks --pid 0 BATCH_PID\n")
        );
    }
}
