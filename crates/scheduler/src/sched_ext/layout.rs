//! Where the kernel's type information has the fields that the model reads and writes.

use schedlab_bpf::Btf;

/// A field: offset and bytes. A kernel that lacks it has 0 bytes.
pub(super) type Place = (u64, usize);

macro_rules! layout {
    ($($(#[$doc:meta])* $name:ident = $structure:literal . $path:literal;)+) => {
        /// Places of fields, by what they are called here.
        #[derive(Debug, Clone, Copy, Default)]
        pub(super) struct Layout {
            pub(super) task_bytes: usize,
            pub(super) rq_bytes: usize,
            pub(super) cgroup_bytes: usize,
            $($(#[$doc])* pub(super) $name: Place,)+
        }

        impl Layout {
            pub(super) fn of(kernel: &Btf) -> Layout {
                let bytes = |name: &str| kernel.structure(name).map_or(64, |id| kernel.size(id));
                let place = |name: &str, path: &str| {
                    kernel.field(name, path).map_or((0, 0), |(at, bytes)| (at as u64, bytes))
                };
                Layout {
                    task_bytes: bytes("task_struct").max(64) as usize,
                    rq_bytes: bytes("rq").max(64) as usize,
                    cgroup_bytes: bytes("cgroup").max(64) as usize,
                    $($name: place($structure, $path),)+
                }
            }
        }
    };
}

layout! {
    slice = "task_struct"."scx.slice";
    vtime = "task_struct"."scx.dsq_vtime";
    weight = "task_struct"."scx.weight";
    scx_flags = "task_struct"."scx.flags";
    dsq = "task_struct"."scx.dsq";
    selected = "task_struct"."scx.selected_cpu";
    runnable_at = "task_struct"."scx.runnable_at";
    tid = "task_struct"."scx.tid";
    pid = "task_struct"."pid";
    tgid = "task_struct"."tgid";
    comm = "task_struct"."comm";
    flags = "task_struct"."flags";
    nr_cpus = "task_struct"."nr_cpus_allowed";
    cpus_ptr = "task_struct"."cpus_ptr";
    cpus_mask = "task_struct"."cpus_mask";
    cpu = "task_struct"."thread_info.cpu";
    on_cpu = "task_struct"."on_cpu";
    sum_exec = "task_struct"."se.sum_exec_runtime";
    nvcsw = "task_struct"."nvcsw";
    nivcsw = "task_struct"."nivcsw";
    leader = "task_struct"."group_leader";
    parent = "task_struct"."real_parent";
    mm = "task_struct"."mm";
    static_prio = "task_struct"."static_prio";
    prio = "task_struct"."prio";
    policy = "task_struct"."policy";
    rq_curr = "rq"."curr";
    rq_idle = "rq"."idle";
    rq_cpu = "rq"."cpu";
    rq_clock = "rq"."clock";
    queue_id = "scx_dispatch_q"."id";
    queue_length = "scx_dispatch_q"."nr";
    cgroup_kn = "cgroup"."kn";
    cgroup_level = "cgroup"."level";
    cgroup_self = "cgroup"."self";
    cgroup_self_cgroup = "cgroup"."self.cgroup";
    cgroup_ancestors = "cgroup"."ancestors";
    kn_id = "kernfs_node"."id";
    init_cgroup = "scx_init_task_args"."cgroup";
    init_fork = "scx_init_task_args"."fork";
    cgroup_weight = "scx_cgroup_init_args"."weight";
    /// Only a kernel with CONFIG_SCHED_AUTOGROUP has it.
    autogroup = "signal_struct"."autogroup";
    release_reason = "scx_cpu_release_args"."reason";
    release_task = "scx_cpu_release_args"."task";
}
