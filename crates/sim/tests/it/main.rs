//! All tests of the simulator but `memory`, in one program.

#[path = "../common/mod.rs"]
mod common;

mod agent_schedulers;
mod ahead;
mod attributes;
mod began_on;
mod delegation;
mod devices;
mod exchange;
mod facts;
mod handoff;
mod idle_takers;
mod isolation;
mod limits;
mod linux_cfs;
mod linux_deadline;
mod linux_eevdf;
mod linux_elision;
mod linux_groups;
mod linux_knobs;
mod linux_nodes;
mod linux_places;
mod linux_pre_cfs;
mod linux_smp;
mod nested;
mod oracles;
mod paths;
mod preemption;
mod properties;
mod sched_ext;
mod search;
mod smp_shapes;
mod smt;
mod stop;
mod views;
mod work_conservation;
mod workloads;
mod xen;
mod xen_pools;
mod xen_small;
