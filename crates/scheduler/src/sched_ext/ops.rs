//! The callbacks of `struct sched_ext_ops`, and what of it is refused.

use schedlab_bpf::{Object, Ops};

macro_rules! ops {
    ($($op:ident $name:literal,)+) => {
        /// A callback.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum Op { $($op,)+ }

        impl Op {
            pub(super) const ALL: &'static [Op] = &[$(Op::$op,)+];
            /// Its name in the kernel.
            pub(super) fn name(self) -> &'static str {
                match self { $(Op::$op => $name,)+ }
            }
        }
    };
}

ops! {
    SelectCpu "select_cpu", Enqueue "enqueue", Dequeue "dequeue", Dispatch "dispatch", Tick "tick",
    Runnable "runnable", Running "running", Stopping "stopping", Quiescent "quiescent",
    Yield "yield", SetWeight "set_weight", SetCpumask "set_cpumask", UpdateIdle "update_idle",
    InitTask "init_task", ExitTask "exit_task", Enable "enable", Disable "disable",
    CgroupInit "cgroup_init", CgroupMove "cgroup_move", CgroupPrepMove "cgroup_prep_move",
    CgroupSetWeight "cgroup_set_weight", CpuOnline "cpu_online", CpuOffline "cpu_offline",
    Init "init", CpuAcquire "cpu_acquire", CpuRelease "cpu_release",
}

/// Callbacks for moments that the model does not have, each with the reason. They are never called.
pub(super) const NEVER_CALLED: &[(&str, &str)] = &[
    ("core_sched_before", "core scheduling is not modelled"),
    ("dump", "there is no debug dump"),
    ("dump_cpu", "there is no debug dump"),
    ("dump_cid", "there is no debug dump"),
    ("dump_task", "there is no debug dump"),
    ("exit", "a run that ends reads nothing back from the scheduler"),
    ("cgroup_exit", "control groups stay for a whole run"),
    ("cgroup_cancel_move", "moves of tasks between control groups never fail"),
    ("cgroup_set_bandwidth", "the limits of control groups do not change in a run"),
    ("cgroup_set_idle", "`cpu.idle` of control groups does not change in a run"),
    ("sub_attach", "schedulers below another one are not modelled"),
    ("sub_detach", "schedulers below another one are not modelled"),
    ("sub_cgroup_id", "schedulers below another one are not modelled"),
];

/// The name of a callback in the form for CPUs, of one in the form for CIDs.
pub(super) fn plain(name: &str) -> &str {
    match name {
        "select_cid" => "select_cpu",
        "set_cmask" => "set_cpumask",
        "cid_online" => "cpu_online",
        "cid_offline" => "cpu_offline",
        name => name,
    }
}

/// The scheduler of an object.
///
/// # Errors
/// There is none, or there are several.
pub(super) fn scheduler(object: &Object) -> Result<&Ops, String> {
    let is = |ops: &&Ops| ops.ty.starts_with("sched_ext_ops");
    let all: Vec<&Ops> = object.ops.iter().filter(is).collect();
    match all[..] {
        [one] => Ok(one),
        [] => {
            Err("it has no variable of type `struct sched_ext_ops` in a .struct_ops section: it \
                   is another kind of BPF program, not a scheduler"
                .to_owned())
        }
        _ => Err(format!(
            "it has {} schedulers ({}); a simulation attaches one",
            all.len(),
            all.iter().map(|ops| ops.name.as_str()).collect::<Vec<_>>().join(", ")
        )),
    }
}

/// `SCX_OPS_*` (include/linux/sched/ext.h of 6.12, kernel/sched/ext/internal.h of 7.2).
pub(super) mod flag {
    pub(in super::super) const KEEP_BUILTIN_IDLE: u64 = 1;
    pub(in super::super) const ENQ_LAST: u64 = 2;
    pub(in super::super) const SWITCH_PARTIAL: u64 = 8;
    pub(in super::super) const BUILTIN_IDLE_PER_NODE: u64 = 64;
    pub(in super::super) const ALWAYS_ENQ_IMMED: u64 = 128;
}
/// `SCX_ENQ_*` and `SCX_DEQ_*`.
pub(super) mod enq {
    pub(in super::super) const WAKEUP: u64 = 1;
    /// `ENQUEUE_RESTORE | ENQUEUE_NOCLOCK` of a change of nice value or affinity; the same bits at
    /// its dequeue (`sched_change_begin`; of 6.12, too).
    pub(in super::super) const CHANGED: u64 = 0xa;
    /// The same of a change of group, with `ENQUEUE_MOVE` (`sched_move_task`).
    pub(in super::super) const REGROUPED: u64 = 0xe;
    /// `ENQUEUE_NOCLOCK`, `DEQUEUE_NOCLOCK`: wakeups and blocks have it.
    pub(in super::super) const NOCLOCK: u64 = 8;
    /// `ENQUEUE_MIGRATED`, `ENQUEUE_INITIAL`, `DEQUEUE_SPECIAL` of 7.x, and their bits in 6.12.
    pub(in super::super) const MIGRATED: [u64; 2] = [1 << 18, 0x40];
    pub(in super::super) const INITIAL: [u64; 2] = [1 << 19, 0x80];
    pub(in super::super) const SPECIAL: [u64; 2] = [1 << 16, 0x10];
    pub(in super::super) const HEAD: u64 = 1 << 16;
    pub(in super::super) const CPU_SELECTED: u64 = 1 << 20;
    pub(in super::super) const PREEMPT: u64 = 1 << 32;
    pub(in super::super) const IMMED: u64 = 1 << 33;
    pub(in super::super) const REENQ: u64 = 1 << 40;
    pub(in super::super) const LAST: u64 = 1 << 41;
    /// `SCX_ENQ_CLEAR_OPSS`: the task is not the scheduler's any more.
    pub(in super::super) const CLEAR_OPSS: u64 = 1 << 56;
    /// `SCX_ENQ_DSQ_PRIQ`: ordered by virtual time.
    pub(in super::super) const BY_VTIME: u64 = 1 << 57;
    pub(in super::super) const DEQ_SLEEP: u64 = 1;
    /// `SCX_DEQ_CORE_SCHED_EXEC`: it is about to run.
    pub(in super::super) const DEQ_EXEC: u64 = 1 << 32;
    /// `SCX_DEQ_SCHED_CHANGE`: an attribute changes.
    pub(in super::super) const DEQ_CHANGE: u64 = 1 << 33;
}
/// `SCX_DSQ_*`.
pub(super) mod dsq {
    pub(in super::super) const BUILTIN: u64 = 1 << 63;
    pub(in super::super) const GLOBAL: u64 = 1 << 63 | 1;
    pub(in super::super) const LOCAL: u64 = 1 << 63 | 2;
    pub(in super::super) const LOCAL_ON: u64 = 3 << 62;
}
/// `SCX_SLICE_DFL`: 20 ms.
pub(super) const SLICE_DFL: u64 = 20_000_000;
/// `SCX_SLICE_INF`.
pub(super) const SLICE_INF: u64 = u64::MAX;
/// `SCX_DSP_DFL_MAX_BATCH`.
pub(super) const MAX_BATCH: usize = 32;
/// `SCX_REENQ_LOCAL_MAX_REPEAT`.
pub(super) const MAX_REPEATS: usize = 256;
/// `SCX_DSP_MAX_LOOPS`.
pub(super) const MAX_LOOPS: usize = 32;
/// `SCX_WATCHDOG_MAX_TIMEOUT`: 30 s, also the default.
pub(super) const WATCHDOG: u64 = 30_000_000_000;
