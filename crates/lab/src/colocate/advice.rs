//! How to make a setting without schedlab, and what to know about it.

use schedlab_live::actuators::Actuator;
use serde::Serialize;

/// A setting for other tools.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Advice {
    /// What is set.
    pub what: &'static str,
    /// What to know about it.
    pub bites: &'static str,
    /// A drop-in for the unit of the workload that it changes.
    pub systemd: &'static str,
    /// What Kubernetes offers.
    pub kubernetes: &'static str,
    /// Commands for a shell: for a new program and for a running one.
    pub shell: &'static str,
}

/// Returns the advice for an actuator.
pub const fn advice(how: Actuator) -> Advice {
    match how {
        Actuator::Default => DEFAULT,
        Actuator::Idle => IDLE,
        Actuator::GroupIdle => GROUP_IDLE,
        Actuator::QuotaOff => QUOTA_OFF,
        Actuator::GroupWeight => GROUP_WEIGHT,
        Actuator::Batch => BATCH,
        Actuator::Nice => NICE,
        Actuator::Slice => SLICE,
        Actuator::Apart => APART,
        Actuator::Elevation => ELEVATION,
        Actuator::GroupMax => GROUP_MAX,
        Actuator::Fifo => FIFO,
    }
}

const DEFAULT: Advice =
    Advice { what: "nothing is changed", bites: "nothing", systemd: "", kubernetes: "", shell: "" };

const IDLE: Advice = Advice {
    what: "the batch threads run under SCHED_IDLE",
    bites: "Beside a server that never sleeps the batch gets almost no CPU time, and holds its locks for long. Policies \
            count within one control group: in different groups, the groups' weights decide.",
    systemd: "# /etc/systemd/system/BATCH.service.d/schedlab.conf\n[Service]\nCPUSchedulingPolicy=idle",
    kubernetes: "no field sets a policy: wrap the batch container, command: [\"chrt\", \"--idle\", \"0\", ...]; \
                 nearest field: no CPU request at all (QoS BestEffort, cpu.weight 1)",
    shell: "chrt --idle 0 COMMAND\nchrt --idle --all-tasks --pid 0 BATCH_PID",
};

const GROUP_IDLE: Advice = Advice {
    what: "cpu.idle = 1 for the control group of the batch",
    bites: "Needs Linux 5.15. It counts against the groups beside it only: within the group nothing changes.",
    systemd: "# no directive yet: ExecStartPost=+/bin/sh -c 'echo 1 > /sys/fs/cgroup/system.slice/BATCH.service/cpu.idle'",
    kubernetes: "no field: QoS BestEffort is nearest (cpu.weight 1); a node agent can write cpu.idle",
    shell: "echo 1 > /sys/fs/cgroup/BATCH/cpu.idle",
};

const QUOTA_OFF: Advice = Advice {
    what: "no cpu.max for the control groups of the server",
    bites: "The server may use whole CPUs then; only weights protect the work that the limit protected.",
    systemd: "# /etc/systemd/system/SERVER.service.d/schedlab.conf\n[Service]\nCPUQuota=",
    kubernetes: "no resources.limits.cpu for the server's container (keep its request)",
    shell: "echo max > /sys/fs/cgroup/SERVER/cpu.max",
};

const GROUP_WEIGHT: Advice = Advice {
    what: "the least weight for the control group of the batch (cpu.weight 1, cpu.shares 2)",
    bites: "A wakeup still waits until the current slice of the batch ends; only the share changes.",
    systemd: "# /etc/systemd/system/BATCH.service.d/schedlab.conf\n[Service]\nCPUWeight=1",
    kubernetes: "resources.requests.cpu: \"0\" for the batch container, a request for the server",
    shell: "echo 1 > /sys/fs/cgroup/BATCH/cpu.weight",
};

const BATCH: Advice = Advice {
    what: "the batch threads run under SCHED_BATCH",
    bites: "Batch threads do not preempt when they wake; a batch thread that runs still runs its whole slice.",
    systemd: "# /etc/systemd/system/BATCH.service.d/schedlab.conf\n[Service]\nCPUSchedulingPolicy=batch",
    kubernetes: "no field sets a policy: command: [\"chrt\", \"--batch\", \"0\", ...]",
    shell: "chrt --batch 0 COMMAND\nchrt --batch --all-tasks --pid 0 BATCH_PID",
};

const NICE: Advice = Advice {
    what: "the batch threads have nice 19",
    bites: "A nice value counts within one control group (or autogroup) only.",
    systemd: "# /etc/systemd/system/BATCH.service.d/schedlab.conf\n[Service]\nNice=19",
    kubernetes: "no field sets a nice value: command: [\"nice\", \"-n\", \"19\", ...]",
    shell: "nice -n 19 COMMAND\nrenice -n 19 -p BATCH_PID",
};

const SLICE: Advice = Advice {
    what: "the server's threads ask for slices of 0.1 ms: earlier deadlines, the same share",
    bites: "Needs Linux 6.12. A server that uses more than its share still waits for its turn; more switches cost server and \
            batch CPU time.",
    systemd: "# no directive: ExecStartPost=+/usr/bin/chrt --other --sched-runtime 100000 --all-tasks --pid 0 $MAINPID",
    kubernetes: "no field: command: [\"chrt\", \"--other\", \"--sched-runtime\", \"100000\", \"0\", ...] (util-linux 2.42)",
    shell: "chrt --other --sched-runtime 100000 0 COMMAND   # util-linux 2.42; schedtool and older chrt cannot",
};

const APART: Advice = Advice {
    what: "the batch threads keep to the last half of the managed CPUs",
    bites: "The batch cannot use what the server leaves on the other half: this wastes CPU time.",
    systemd: "# /etc/systemd/system/BATCH.service.d/schedlab.conf\n[Service]\nAllowedCPUs=LAST_HALF",
    kubernetes: "kubelet --cpu-manager-policy=static, and whole CPUs as requests = limits for the server",
    shell: "taskset --all-tasks --cpu-list --pid LAST_HALF BATCH_PID",
};

const ELEVATION: Advice = Advice {
    what: "server and batch run under schedlab's own scheduler `layers`: batch runs only when no server thread is runnable",
    bites: "A schedlab agent must run as root and uses CPU time (`schedlab top` shows how much); 6 ms of each 100 ms \
            belong to the kernel's own scheduling, and a second CPU must stay unmanaged.",
    systemd: "# a unit of its own: ExecStart=/usr/bin/schedlab attach --scheduler layers --cpus CPU --pid SERVER_PID,BATCH_PID \
              --task BATCH=batch",
    kubernetes: "a privileged agent on the node (DaemonSet with hostPID)",
    shell: "schedlab attach --scheduler layers --cpus CPU --pid SERVER_PID,BATCH_PID --task BATCH=batch",
};

const GROUP_MAX: Advice = Advice {
    what: "the batch gets half of each managed CPU at most, in periods of 10 ms",
    bites: "The other half is idle when the server does not need it: this wastes CPU time.",
    systemd: "# /etc/systemd/system/BATCH.service.d/schedlab.conf\n[Service]\nCPUQuota=50%\nCPUQuotaPeriodSec=10ms",
    kubernetes: "resources.limits.cpu: \"500m\" for each CPU (its period is 100 ms: longer bursts)",
    shell: "echo '5000 10000' > /sys/fs/cgroup/BATCH/cpu.max   # times the number of CPUs",
};

const FIFO: Advice = Advice {
    what: "the server's threads run under SCHED_FIFO with priority 1",
    bites: "A server that does not sleep keeps all fair tasks off its CPU, this shell too. Since Linux 6.12 the \
            fair server gives fair tasks 50 ms of each second then, in one piece, and the server waits that \
            long; kernels with RT_GROUP_SCHED, and all older ones, stop it for 50 ms of each second \
            (kernel.sched_rt_runtime_us) even when no other task is runnable.",
    systemd: "# /etc/systemd/system/SERVER.service.d/schedlab.conf\n[Service]\nCPUSchedulingPolicy=fifo\n\
              CPUSchedulingPriority=1",
    kubernetes: "no field: securityContext.capabilities.add: [\"SYS_NICE\"] and command: [\"chrt\", \"--fifo\", \"1\", ...]",
    shell: "chrt --fifo 1 COMMAND\nchrt --fifo --all-tasks --pid 1 SERVER_PID",
};
