//! Which rules hold, by the change of the kernel that brought them.
//!
//! Read in `kernel/sched*.c` of 2.6.24, 2.6.32 and 3.0.27, and in `kernel/sched/`
//! of 6.1.192, 6.6.9, 6.12.107, 6.12.117 and 6.18.2. A change whose release lies between two of
//! these may be off by one release where no commit is named.

use super::Version;
use crate::linux::fair::weights;

/// CFS and its knobs.
impl Version {
    /// The scaling factor of the defaults counts 8 CPUs at most, and can be chosen
    /// (`sysctl_sched_tunable_scaling`).
    pub(in crate::linux) const fn scaling_counts_eight_cpus(&self) -> bool {
        self.release.since(2, 6, 33)
    }
    /// A new task does not run before its parent (default of `sysctl_sched_child_runs_first`).
    pub(in crate::linux) const fn parent_runs_first(&self) -> bool {
        self.release.since(2, 6, 32)
    }
    /// Returns how many tasks share a period of `latency`, after which it grows by `latency / 5`
    /// each (2.6.24 … 2.6.36); `None`: as many as fit by `min_granularity`, which it grows by.
    pub(in crate::linux) const fn tasks_of_a_period(&self) -> Option<u32> {
        if self.release.since(2, 6, 37) { None } else { Some(5) }
    }
    /// The wakeup granularity is scaled by the weight of the wakee, before by that of the running
    /// task (`wakeup_gran`).
    pub(in crate::linux) const fn wakeup_granularity_of_wakee(&self) -> bool {
        self.release.since(2, 6, 30)
    }
    /// The tick also looks at how far the running task leads (`check_preempt_tick`).
    pub(in crate::linux) const fn tick_checks_lead(&self) -> bool {
        self.release.since(2, 6, 31)
    }
    /// A task that wakes and should have preempted is preferred (the `next` buddy).
    pub(in crate::linux) const fn has_buddies(&self) -> bool {
        self.release.since(2, 6, 28)
    }
    /// `sched_yield` lets the second task go first; before, it only charges ("Use a buddy to
    /// implement yield_task_fair()").
    pub(in crate::linux) const fn yield_skips(&self) -> bool {
        self.release.since(2, 6, 39)
    }
    /// SCHED_IDLE tasks are preempted by any other wakeup (`check_preempt_wakeup`).
    pub(in crate::linux) const fn idle_policy_gives_way(&self) -> bool {
        self.release.since(2, 6, 29)
    }
    /// Returns the weight of SCHED_IDLE (`WEIGHT_IDLEPRIO`).
    pub(in crate::linux) const fn idle_weight(&self) -> u64 {
        if self.release.since(2, 6, 29) { weights::IDLE } else { 2 }
    }
    /// Tunables of CFS are files of debugfs, before sysctls, whose names begin with `sched_`.
    pub(in crate::linux) const fn tunables_in_debugfs(&self) -> bool {
        self.release.has_debugfs_tunables()
    }
    /// The feature of wakeup preemption is called WAKEUP_PREEMPTION, before WAKEUP_PREEMPT.
    pub(in crate::linux) const fn wakeup_preemption_by_its_long_name(&self) -> bool {
        self.release.since(3, 3, 0)
    }
}

/// CPUs without ticks.
impl Version {
    /// CPUs that run one task may have no ticks (CONFIG_NO_HZ_FULL).
    pub(in crate::linux) const fn has_nohz_full(&self) -> bool {
        self.release.since(3, 10, 0)
    }
    /// What keeps the tick depends on the policies (76d92ac305f2), before on how many tasks run.
    pub(in crate::linux) const fn tick_looks_at_policies(&self) -> bool {
        self.release.since(4, 6, 0)
    }
    /// A limit of CPU time keeps the tick (88c56cfeaec4).
    pub(in crate::linux) const fn limits_keep_the_tick(&self) -> bool {
        self.release.since(6, 6, 0)
    }
}

/// Groups and sessions.
impl Version {
    /// Sessions may be groups (`kernel/sched_autogroup.c`).
    pub(in crate::linux) const fn has_autogroup(&self) -> bool {
        self.release.since(2, 6, 38)
    }
    /// Groups may have a limit of CPU time (`cpu.max`, CFS bandwidth control).
    pub(in crate::linux) const fn has_bandwidth(&self) -> bool {
        self.release.since(3, 2, 0)
    }
    /// Run time that a CPU took and did not use is void at the next refill
    /// (`expire_cfs_rq_runtime`, kernel/sched/fair.c). It was so from 3.2 on; 51f2176d74ac (3.16)
    /// compared the wrong way round and nothing expired, until 512ac999d275 (4.18); de53fd7aedb1
    /// (5.4) removed it. Stable releases may have got a correction earlier.
    pub(in crate::linux) const fn voids_slices_at_refill(&self) -> bool {
        let release = self.release;
        self.has_bandwidth()
            && (!release.since(3, 16, 0) || release.since(4, 18, 0) && !release.since(5, 4, 0))
    }
    /// Unused quota may be saved for later (`cpu.max.burst`).
    pub(in crate::linux) const fn has_burst(&self) -> bool {
        self.release.since(5, 14, 0)
    }
    /// Groups may be idle (`cpu.idle`).
    pub(in crate::linux) const fn has_idle_groups(&self) -> bool {
        self.release.since(5, 15, 0)
    }
    /// Bandwidth takes whole queues off, since 6.18 task by task ("Switch to task based throttle
    /// model").
    pub(in crate::linux) const fn throttles_whole_queues(&self) -> bool {
        !self.release.since(6, 18, 0)
    }
}

/// RT and deadline class.
impl Version {
    /// RT tasks are pushed and pulled over CPUs (`push_rt_task`, `pull_rt_task`).
    pub(in crate::linux) const fn rt_push_pull(&self) -> bool {
        self.release.since(2, 6, 26)
    }
    /// Any RT task that could be pushed makes its CPU overloaded; before, two RT tasks had to be
    /// there (`enqueue_pushable_task`, `rt_nr_migratory`).
    pub(in crate::linux) const fn pushable_rt_overloads(&self) -> bool {
        self.release.since(6, 7, 0)
    }
    /// The slice of SCHED_RR can be set (`sched_rr_timeslice_ms`).
    pub(in crate::linux) const fn rr_slice_can_be_set(&self) -> bool {
        self.release.since(3, 9, 0)
    }
    /// It has SCHED_DEADLINE (`kernel/sched/deadline.c`).
    pub(in crate::linux) const fn has_deadline(&self) -> bool {
        self.release.since(3, 14, 0)
    }
    /// The fair server protects fair tasks from RT ones (`dl_server`).
    pub(in crate::linux) const fn has_fair_server(&self) -> bool {
        self.release.since(6, 12, 0)
    }
    /// The fair servers count among what deadline tasks reserve. By the rule they do from 6.12 on
    /// (J. Lelli, LKML 2024-11-29: the fair server's 5 % are part of the 95 %), but 6.12.95 was
    /// measured to admit 95 % to tasks alone. Inferred for 7.x from its limit of 1,000,000 us in
    /// 1,000,000.
    pub(in crate::linux) const fn fair_server_counts_in_admission(&self) -> bool {
        self.release.since(7, 2, 0)
    }
}

/// Known faults, which are named and not modelled.
impl Version {
    /// GRUB lets tasks reclaim too much: `extra_bw` is wrong with root domains and the fair server
    /// (LKML 2025-04-28, M. Ziswiler; found with 6.13.6, 6.11 does not have it, L. Abeni and
    /// J. Lelli, June 2025).
    pub(in crate::linux) const fn reclaims_too_much(&self) -> bool {
        self.release.since(6, 12, 0) && !self.release.since(6, 17, 0)
    }
}

/// EEVDF.
impl Version {
    /// Tasks of SCHED_OTHER may ask for a slice ("Use sched_attr::sched_runtime to set
    /// request/slice suggestion").
    pub(in crate::linux) const fn has_custom_slices(&self) -> bool {
        self.release.since(6, 12, 0)
    }
    /// A running fair task is put back before the classes are asked in turn (`put_prev_task` of
    /// `pick_next_task`, up to 6.11).
    pub(in crate::linux) const fn puts_back_first(&self) -> bool {
        !self.release.since(6, 12, 0)
    }
    /// A wakeup over a SCHED_IDLE task ends its protection (`check_preempt_wakeup_fair`).
    pub(in crate::linux) const fn idle_loses_protection(&self) -> bool {
        self.release.since(6, 12, 0)
    }
    /// Yield forfeits the rest of the request; before, the deadline moved by one request
    /// (`yield_task_fair`; in late 6.12.y).
    pub(in crate::linux) const fn yield_forfeits(&self) -> bool {
        self.release.since(6, 12, 0)
    }
    /// Protection of the running entity ends at a vruntime of its own, `vprot`, before with the
    /// request (`set_protect_slice`, `protect_slice`).
    #[inline]
    pub(in crate::linux) const fn eevdf_slice_protection(&self) -> bool {
        self.release.since(6, 17, 0)
    }
    /// Saved lag is bounded by the longest request in the queue and a tick, before by two own
    /// requests or a tick (`entity_lag`).
    pub(in crate::linux) const fn bounds_lag_by_longest(&self) -> bool {
        self.release.since(6, 19, 0)
    }
    /// The lag of a delayed task is saved when it blocks; at its wakeup it is not below that
    /// ("Prevent negative lag increase during delayed dequeue").
    pub(in crate::linux) const fn keeps_delayed_lag(&self) -> bool {
        self.release.since(7, 1, 0)
    }
    /// A wakeup that asks which task should run takes delayed entities off that should ("Fix
    /// wakeup_preempt_fair() vs delayed dequeue").
    pub(in crate::linux) const fn wakeup_takes_delayed_off(&self) -> bool {
        self.release.since(7, 1, 0)
    }
    /// A delayed wakee is placed by a fresh V. Inferred from recorded choices of 7.2.13
    /// (`oracles/linux/`: 40 of 45 scenarios inside and 90.0 % of the replayed choices equal,
    /// without it 34 and 87.9 %), not read in the source.
    pub(in crate::linux) const fn charges_at_delayed_wake(&self) -> bool {
        self.release.since(7, 2, 0)
    }
}

/// Reschedule requests and timers.
impl Version {
    /// A fair task asks lazily for a reschedule, and only a hard request lets `schedule` reuse the
    /// clock of the wakeup: lazy and full preemption are all that is left from 7.0 on, and lazy is
    /// the default.
    pub(in crate::linux) const fn preempts_lazily(&self) -> bool {
        self.release.since(7, 0, 0)
    }
    /// HRTICK is set when a task is switched in, or when others come; `schedule` does not clear it,
    /// and does not set it again when the running task goes on ("sched: Optimize hrtimer handling";
    /// in the recordings of 7.2.13 two equal hogs fall into whole ticks). Only idle clears it. Up
    /// to 7.3, which sets it again.
    pub(in crate::linux) const fn hrtick_at_switch(&self) -> bool {
        self.release.since(7, 1, 0)
    }
}

/// Placement and balancing.
impl Version {
    /// Wakeups choose between the waker's CPU and the last one by three features
    /// (`wake_affine_idle`, `wake_affine_weight`).
    pub(in crate::linux) const fn has_wake_affine_features(&self) -> bool {
        self.release.since(4, 14, 0)
    }
    /// The search for an idle CPU is limited by the use of the last-level cache
    /// (`update_idle_cpu_scan`).
    pub(in crate::linux) const fn searches_by_utilisation(&self) -> bool {
        self.release.since(5, 19, 0)
    }
    /// A CPU with only SCHED_IDLE tasks does not count as idle for a SCHED_IDLE task
    /// ("sched/fair: Skip SCHED_IDLE rq for SCHED_IDLE task", commit fd54d81c2c0e: the policy
    /// counts, not the group's `cpu.idle`).
    pub(in crate::linux) const fn idle_tasks_avoid_each_other(&self) -> bool {
        self.release.since(7, 1, 0)
    }
    /// The cost of balancing when a CPU becomes idle is kept for each domain
    /// (`max_newidle_lb_cost`).
    pub(in crate::linux) const fn has_newidle_cost(&self) -> bool {
        self.release.since(3, 12, 0)
    }
    /// Buddies count as cache hot. Since EEVDF nothing sets the buddies that it looks at
    /// (NEXT_BUDDY is off and not modelled).
    pub(in crate::linux) const fn buddies_are_cache_hot(&self) -> bool {
        self.release.since(2, 6, 28) && !self.release.has_eevdf()
    }
    /// Stable releases of this age got the odds of newidle balancing ("Proportional newidle
    /// balance").
    pub(in crate::linux) const fn may_have_newidle_odds(&self) -> bool {
        self.release.since(5, 0, 0)
    }
    /// Balancing looks at cores: idle ones balance first, siblings are compared by core
    /// (`should_we_balance`, `sibling_imbalance`).
    pub(in crate::linux) const fn balances_by_core(&self) -> bool {
        self.release.since(6, 6, 0)
    }
    /// A new task's first use is at most its weight's part of what its queue uses
    /// (`post_init_entity_util_avg`, commit 72bffbf57c52).
    pub(in crate::linux) const fn starts_by_weight(&self) -> bool {
        self.release.since(6, 10, 0)
    }
    /// Delayed tasks count in `nr_running` where groups are compared, and not among the fair tasks
    /// (`h_nr_runnable`). Read in 7.2.13; when it came is from memory. 6.12.117 counts and moves
    /// delayed tasks like others; here neither is modelled.
    pub(in crate::linux) const fn counts_delayed(&self) -> bool {
        self.release.since(6, 14, 0)
    }
    /// A queue reports its load to its group once a millisecond at most (`update_tg_load_avg`,
    /// 6.7; the preset of 6.6 is that of 6.7 to 6.11, too).
    pub(in crate::linux) const fn reports_once_a_ms(&self) -> bool {
        self.release.since(6, 6, 0)
    }
    /// A group that becomes empty on a CPU keeps its weight there (`update_cfs_group`: "Fix
    /// update_cfs_group() vs DELAY_DEQUEUE", 6.13), since from 6.12 on it may stay queued, delayed.
    /// 6.6 to 6.11 do not keep it; here they do, for an entity is placed by the weight that it has.
    pub(in crate::linux) const fn empty_groups_keep_their_weight(&self) -> bool {
        self.release.has_eevdf()
    }
    /// Tasks that would not be eligible on the target are not moved at once
    /// (`task_is_ineligible_on_dst_cpu`).
    pub(in crate::linux) const fn ineligible_tasks_move_later(&self) -> bool {
        self.release.since(6, 14, 0)
    }
    /// The kernels of some cloud guests have `sched_vcpu_pack` (read in the machine code
    /// of 6.18.44).
    pub(in crate::linux) const fn may_pack_vcpus(&self) -> bool {
        self.release.since(6, 18, 0)
    }
}
