//! Facts about what is around a measurement: lockdown, groups, idle states, steal.

use super::{Fact, Level, fact};
use crate::capabilities::Capabilities;
use crate::facts::GroupFacts;

pub(super) fn facts(found: &Capabilities) -> Vec<Fact> {
    let mut facts: Vec<Fact> = lockdown(found).into_iter().collect();
    facts.extend(throttling(found));
    facts.extend(groups(found));
    facts.push(idle(found));
    if found.machine.knobs.iter().all(|(name, _)| name != "governor") {
        facts.push(fact(
            Level::Note,
            "governor",
            "none: the kernel does not set the speed of the CPUs",
            "a hypervisor or the firmware may change it unseen: compare only what was measured \
             interleaved",
            None,
        ));
    }
    if found.machine.virtual_machine {
        let now = found.surroundings.steal_now_permille;
        facts.push(fact(
            if now >= 20 { Level::Limit } else { Level::Good },
            "steal now",
            format!("{}.{} % of the CPUs' time", now / 10, now % 10),
            "stolen time appears as latency that no policy of this kernel can remove; only the \
             hypervisor's owner can (fewer \
             guests, pinned vCPUs). Measure when it is low",
            None,
        ));
    }
    facts
}

fn lockdown(found: &Capabilities) -> Option<Fact> {
    let mode = found.surroundings.lockdown.as_deref()?;
    if mode == "none" {
        return Some(fact(
            Level::Good,
            "kernel lockdown",
            "none",
            "debugfs shows and takes settings",
            None,
        ));
    }
    Some(fact(
        Level::Limit,
        "kernel lockdown",
        mode,
        "debugfs settings can be neither read nor set, by root either: fair server, features, \
         base slice and preemption \
         model are unknown and stay as they are. Only a boot with `lockdown=none` on the kernel's \
         command line (and without \
         secure boot) ends it",
        None,
    ))
}

/// Which of the two mechanisms holds real-time tasks back here.
fn throttling(found: &Capabilities) -> Option<Fact> {
    let (major, minor) = version(&found.machine.kernel)?;
    if (major, minor) < (6, 12) {
        return Some(fact(
            Level::Note,
            "who stops runaway real-time tasks",
            "RT throttling",
            "a FIFO task that never sleeps is stopped for 50 ms of each second, so that fair \
             tasks run; its maximum latency shows it",
            Some("sysctl kernel.sched_rt_runtime_us=-1"),
        ));
    }
    let readable = found.fair_server.is_some();
    Some(fact(
        Level::Note,
        "who stops runaway real-time tasks",
        if readable {
            "the fair server"
        } else {
            "the fair server, whose parameters are hidden here"
        },
        "a FIFO task that never sleeps loses 50 ms of each second to waiting fair tasks, whatever \
         sched_rt_runtime_us says: \
         a maximum near 50 ms is this, and no fault of the machine",
        readable.then_some(super::NO_FAIR_SERVER),
    ))
}

/// "6.18.44-fc" is (6, 18).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn groups(found: &Capabilities) -> Vec<Fact> {
    let v1 = found.cgroup_cpu.starts_with("v1");
    let root = found.cgroup_cpu.split_once(' ').map_or("/sys/fs/cgroup", |(_, root)| root);
    let folder = |group: &GroupFacts| format!("{root}{}", group.path.trim_end_matches('/'));
    let own = &found.surroundings.groups;
    let mut facts = Vec::new();
    if let Some(group) = own.first() {
        let path = if group.path == "/" { "the root group" } else { &group.path };
        let state = match group.weight {
            Some(weight) if group.path != "/" => format!("{path}, weight {weight} (1024 is usual)"),
            _ => path.to_owned(),
        };
        facts.push(fact(
            Level::Note,
            "own control group",
            state,
            "what runs beside in another group shares by the groups' weights first, by nice \
             values only inside of one group: \
             put both contenders into one",
            (group.path != "/").then_some(&*format!(
                "sh -c 'echo $$ > {root}/cgroup.procs; exec \
                                                     schedlab ...'"
            )),
        ));
    }
    for group in own.iter().filter(|group| group.bandwidth.is_some()) {
        let Some(limit) = &group.bandwidth else { continue };
        let lift = match v1 {
            true => format!("sh -c 'echo -1 > {}/cpu.cfs_quota_us'", folder(group)),
            false => format!("sh -c 'echo max > {}/cpu.max'", folder(group)),
        };
        facts.push(fact(
            Level::Limit,
            "CPU quota",
            format!("{} in each {} for {}", limit.quota, limit.period, group.path),
            "beyond it everything in the group stops until the period is over: stalls that look \
             like latency",
            Some(&lift),
        ));
    }
    facts.extend(budget(found, own, &folder));
    facts
}

/// CONFIG_RT_GROUP_SCHED: the smallest budget on the way up.
fn budget(
    found: &Capabilities,
    own: &[GroupFacts],
    folder: &dyn Fn(&GroupFacts) -> String,
) -> Option<Fact> {
    if !found.rt_group_sched {
        return None;
    }
    let group = own
        .iter()
        .find(|group| group.path != "/" && group.rt_runtime_us.is_some())
        .or(own.last())?;
    let runtime = group.rt_runtime_us?;
    let lift = format!("sh -c 'echo 200000 > {}/cpu.rt_runtime_us'", folder(group));
    Some(match (runtime, group.path.as_str()) {
        (0, path) => fact(
            Level::Missing,
            "real-time budget of the own group",
            format!("0 us in {path}"),
            "FIFO and RR are refused here (EPERM) until the group has a budget; the groups above \
             must have as much",
            Some(&lift),
        ),
        (us, "/") => fact(
            Level::Good,
            "real-time budget of the own group",
            format!("{us} us in the root group"),
            "against fair tasks the fair server comes first; groups below have 0 until they are \
             given some",
            None,
        ),
        (us, path) => fact(
            Level::Limit,
            "real-time budget of the own group",
            format!("{us} us of each period in {path}"),
            "a hard limit: FIFO and RR tasks of the group stop beyond it even on an idle CPU",
            Some(&lift),
        ),
    })
}

fn idle(found: &Capabilities) -> Fact {
    let surroundings = &found.surroundings;
    let deep: Vec<String> = surroundings
        .idle_states
        .iter()
        .filter(|state| !state.disabled && !state.name.eq_ignore_ascii_case("poll"))
        .map(|state| format!("{} ({} us)", state.name, state.exit_us))
        .collect();
    let driver = surroundings.idle_driver.as_deref();
    let state = match (driver, deep.is_empty()) {
        (Some(driver), false) => format!("{driver}: {}", deep.join(", ")),
        (Some(driver), true) => format!("{driver}: polling only"),
        (None, _) => "no driver: halt".to_owned(),
    };
    let polls = deep.is_empty() && driver.is_some();
    let lift = "sh -c 'for f in /sys/devices/system/cpu/cpu*/cpuidle/state[1-9]*/disable; do echo \
                1 > $f; done'";
    fact(
        if polls { Level::Good } else { Level::Note },
        "idle states",
        state,
        if found.machine.virtual_machine {
            "leaving idle is part of every wakeup of a sleeping CPU; in a virtual machine each \
             halt gives the CPU to the \
             hypervisor, which the driver's figure does not contain (`schedlab calibrate`: \
             wakeup_idle_cpu_ns)"
        } else {
            "leaving idle is part of every wakeup of a sleeping CPU; holding /dev/cpu_dma_latency \
             at 0 keeps CPUs awake too"
        },
        (!polls && driver.is_some()).then_some(lift),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{Bandwidth, GroupId, Ns};

    fn find(found: &Capabilities, what: &str) -> Option<Fact> {
        facts(found).into_iter().find(|fact| fact.what == what)
    }

    #[test]
    fn a_group_with_limits_is_told_how_to_lift_them() {
        let mut found = crate::probe();
        let bare = |path: &str| GroupFacts {
            id: GroupId::ROOT,
            path: path.to_owned(),
            parent: None,
            weight: Some(512),
            idle: false,
            bandwidth: None,
            rt_runtime_us: Some(0),
            autogroup_nice: None,
            leader: None,
        };
        let limited = GroupFacts {
            bandwidth: Some(Bandwidth {
                quota: Ns::from_ms(50),
                period: Ns::from_ms(100),
                burst: Ns::ZERO,
            }),
            ..bare("/ci")
        };
        found.surroundings.groups =
            vec![limited, GroupFacts { rt_runtime_us: Some(950_000), ..bare("/") }];
        (found.cgroup_cpu, found.rt_group_sched) = ("v1 /cg/cpu".to_owned(), true);
        let quota = find(&found, "CPU quota").unwrap();
        assert_eq!(quota.lift.as_deref(), Some("sh -c 'echo -1 > /cg/cpu/ci/cpu.cfs_quota_us'"));
        let budget = find(&found, "real-time budget of the own group").unwrap();
        assert_eq!(budget.level, Level::Missing);
        assert!(budget.lift.unwrap().contains("/cg/cpu/ci/cpu.rt_runtime_us"));
        assert!(find(&found, "own control group").unwrap().state.contains("weight 512"));
        found.cgroup_cpu = "v2 /sys/fs/cgroup".to_owned();
        assert!(find(&found, "CPU quota").unwrap().lift.unwrap().contains("cpu.max"));
    }

    #[test]
    fn the_kernel_decides_who_stops_real_time_tasks() {
        let mut found = crate::probe();
        let what = "who stops runaway real-time tasks";
        (found.machine.kernel, found.fair_server) = ("6.1.0-33-amd64".to_owned(), None);
        assert_eq!(find(&found, what).unwrap().state, "RT throttling");
        found.machine.kernel = "6.18.44-fc".to_owned();
        let hidden = find(&found, what).unwrap();
        assert!(hidden.state.contains("hidden") && hidden.lift.is_none());
        found.fair_server = Some((Ns::from_ms(50), Ns::from_s(1)));
        assert!(find(&found, what).unwrap().lift.unwrap().contains("fair_server"));
    }

    #[test]
    fn lockdown_idle_states_and_steal_have_their_facts() {
        let mut found = crate::probe();
        found.surroundings.lockdown = Some("integrity".to_owned());
        assert_eq!(find(&found, "kernel lockdown").unwrap().level, Level::Limit);
        found.surroundings.lockdown = Some("none".to_owned());
        assert_eq!(find(&found, "kernel lockdown").unwrap().level, Level::Good);
        let state = |name: &str, disabled| crate::surroundings::IdleState {
            name: name.to_owned(),
            exit_us: 170,
            disabled,
        };
        found.surroundings.idle_driver = Some("intel_idle".to_owned());
        found.surroundings.idle_states = vec![state("POLL", false), state("C6", false)];
        let idle = find(&found, "idle states").unwrap();
        assert!(idle.state.contains("C6 (170 us)") && idle.lift.is_some());
        found.surroundings.idle_states[1].disabled = true;
        assert_eq!(find(&found, "idle states").unwrap().level, Level::Good);
        found.machine.virtual_machine = true;
        found.surroundings.steal_now_permille = 250;
        let steal = find(&found, "steal now").unwrap();
        assert_eq!((steal.level, steal.state.as_str()), (Level::Limit, "25.0 % of the CPUs' time"));
    }
}
