//! From one workload to the hypervisor's and one for each guest.

use super::{Domain, program};
use crate::SimError;
use schedlab_model::{
    ChannelId, ChannelSpec, CpuSet, Exchange, GroupId, GroupSpec, LockId, Ns, Op, Start, TaskId,
    TaskSpec, Workload,
};
use std::sync::Arc;

/// The workloads, and where everything went.
pub(super) struct Split {
    /// Bare tasks, then vCPUs. All channels of the whole, then one for each vCPU.
    pub(super) host: Workload,
    /// The tasks of each domain; all channels of the whole.
    pub(super) guests: Vec<Workload>,
    /// Engine (`None` = the hypervisor) and id there, by task of the whole.
    pub(super) places: Vec<(Option<usize>, TaskId)>,
    pub(super) vcpus: Vec<Vcpu>,
    pub(super) links: Links,
}

/// One vCPU.
pub(super) struct Vcpu {
    pub(super) domain: usize,
    /// The CPU of its guest.
    pub(super) cpu: usize,
    /// The task of the hypervisor.
    pub(super) task: TaskId,
    /// The channel on which it sleeps.
    pub(super) kicks: ChannelId,
}

/// Channels between domains.
#[derive(Default, Debug)]
pub(super) struct Links {
    /// By channel: the guest that receives, and the vCPU to which the event channel is bound;
    /// `None` = received by a bare task.
    pub(super) receivers: Vec<Option<(usize, usize)>>,
    /// Channels and the engines that send into them without receiving (`None` = hypervisor and
    /// outside).
    pub(super) senders: Vec<(usize, Option<usize>)>,
}

/// Where each task of the workload is: in which domain (`None`: it is the hypervisor's own), and as
/// which task of that engine. The vCPUs are the hypervisor's tasks behind its own ones, domain by
/// domain.
pub fn places(workload: &Workload, domains: &[Domain<'_>]) -> Vec<(Option<usize>, TaskId)> {
    let mut counts = vec![0; domains.len() + 1];
    let place = |task: &TaskSpec| {
        let home = domains.iter().position(|domain| domain.group == task.group);
        let count = &mut counts[home.unwrap_or(domains.len())];
        *count += 1;
        (home, TaskId::from(*count - 1))
    };
    workload.tasks.iter().map(place).collect()
}

pub(super) fn split(workload: &Workload, domains: &[Domain<'_>]) -> Result<Split, SimError> {
    let places = places(workload, domains);
    let homes: Vec<Option<usize>> = places.iter().map(|place| place.0).collect();
    check_shared(workload, &homes)?;
    let links = links(workload, &homes, domains)?;
    let part = |engine: Option<usize>| -> Vec<TaskSpec> {
        let own = workload.tasks.iter().zip(&homes).filter(|(_, home)| **home == engine);
        own.map(|(task, _)| moved(task, engine.is_some(), &places)).collect()
    };
    let guests = (0..domains.len())
        .map(|d| Workload {
            groups: vec![GroupSpec { name: "/".to_owned(), ..GroupSpec::default() }],
            tasks: part(Some(d)),
            channels: local(workload, &links, Some(d)),
            locks: workload.locks,
            inheriting_locks: workload.inheriting_locks.clone(),
            sources: Vec::new(),
            // Only recordings have these, and no recording is of nested machines.
            handoffs: Vec::new(),
            exchange: Exchange::default(),
        })
        .collect();
    let mut host = Workload {
        tasks: part(None),
        channels: local(workload, &links, None),
        handoffs: Vec::new(),
        exchange: Exchange::default(),
        ..workload.clone()
    };
    let vcpus = add_vcpus(&mut host, domains);
    Ok(Split { host, guests, places, vcpus, links })
}

fn add_vcpus(host: &mut Workload, domains: &[Domain<'_>]) -> Vec<Vcpu> {
    let mut vcpus = Vec::new();
    for (d, domain) in domains.iter().enumerate() {
        for cpu in 0..domain.machine.topology.cpus() {
            let name = format!("{}:vcpu{cpu}", domain.name);
            let kicks = ChannelId::from(host.channels.len());
            host.channels
                .push(ChannelSpec { name: format!("events of {name}"), ..ChannelSpec::default() });
            vcpus.push(Vcpu { domain: d, cpu, task: TaskId::from(host.tasks.len()), kicks });
            let mut task = TaskSpec::new(name, program(kicks));
            task.group = domain.group;
            task.affinity = domain.affinity;
            task.soft_affinity = domain.soft_affinity;
            // It boots at the start: it existed before, and looks what there is to do.
            task.start = Start::AsleepUntil(Ns::ZERO);
            host.tasks.push(task);
            host.channels[kicks.index()].initial = 1;
        }
    }
    vcpus
}

/// The task in its own engine.
fn moved(task: &TaskSpec, inside: bool, places: &[(Option<usize>, TaskId)]) -> TaskSpec {
    let mut task = task.clone();
    if task.program.ops.iter().any(|op| matches!(op, Op::Spawn(_))) {
        for op in &mut Arc::make_mut(&mut task.program).ops {
            if let Op::Spawn(child) = op {
                *child = places[child.index()].1;
            }
        }
    }
    if inside {
        task.group = GroupId::ROOT;
        task.soft_affinity = CpuSet::ALL;
    }
    task
}

/// The channels, with tokens at the start only where they are received.
fn local(workload: &Workload, links: &Links, engine: Option<usize>) -> Vec<ChannelSpec> {
    let mut channels = workload.channels.clone();
    for (channel, receiver) in channels.iter_mut().zip(&links.receivers) {
        if receiver.map(|(d, _)| d) != engine {
            // The other side of an event channel has room of its own: it is emptied at once.
            (channel.initial, channel.capacity) = (0, None);
        }
    }
    channels
}

/// The channels into which an operation of a program looks for tokens.
fn received(task: &TaskSpec) -> impl Iterator<Item = ChannelId> + '_ {
    let from_ops = task.program.ops.iter().filter_map(|op| match op {
        Op::Receive(channel)
        | Op::ReceiveAll(channel)
        | Op::ReceiveCount { channel, .. }
        | Op::Done(channel)
        | Op::Serve { channel, .. } => Some(*channel),
        _ => None,
    });
    from_ops.chain(task.program.branches.iter().map(|branch| branch.channel))
}

fn links(
    workload: &Workload,
    homes: &[Option<usize>],
    domains: &[Domain<'_>],
) -> Result<Links, SimError> {
    let mut receivers: Vec<Option<Option<usize>>> = vec![None; workload.channels.len()];
    for (task, home) in workload.tasks.iter().zip(homes) {
        for channel in received(task) {
            let receiver = receivers[channel.index()].get_or_insert(*home);
            if receiver != home {
                let name = &workload.channels[channel.index()].name;
                let what = format!(
                    "tasks of two domains receive from channel `{name}`; give each its own"
                );
                return Err(SimError::Machine(what));
            }
        }
    }
    let mut links = Links::default();
    // Event channels are bound to the vCPUs of a domain in turn.
    let mut bound = vec![0; domains.len()];
    for receiver in &receivers {
        links.receivers.push(receiver.flatten().map(|d| {
            let cpu = bound[d] % domains[d].machine.topology.cpus();
            bound[d] += 1;
            (d, cpu)
        }));
    }
    for (channel, receiver) in receivers.into_iter().enumerate() {
        let receiver = receiver.flatten();
        let sends = |task: &TaskSpec| {
            let hit = |op: &Op| matches!(op, Op::Send { channel: to, .. } if to.index() == channel);
            task.program.ops.iter().any(hit)
        };
        let mut senders: Vec<Option<usize>> = workload
            .tasks
            .iter()
            .zip(homes)
            .filter(|(task, _)| sends(task))
            .map(|(_, home)| *home)
            .collect();
        if workload.sources.iter().any(|source| source.into.index() == channel) {
            senders.push(None);
        }
        senders.sort_unstable();
        senders.dedup();
        let away = senders.into_iter().filter(|sender| *sender != receiver);
        links.senders.extend(away.map(|sender| (channel, sender)));
    }
    Ok(links)
}

/// Locks and spawned tasks belong to one kernel.
fn check_shared(workload: &Workload, homes: &[Option<usize>]) -> Result<(), SimError> {
    let mut owners: Vec<Option<Option<usize>>> = vec![None; workload.locks as usize];
    for (task, home) in workload.tasks.iter().zip(homes) {
        for op in &task.program.ops {
            let shared = match *op {
                Op::Lock(LockId(lock)) | Op::Unlock(LockId(lock)) => {
                    (owners[lock as usize].get_or_insert(*home) != home).then_some("uses a lock of")
                }
                Op::Spawn(child) => (homes[child.index()] != *home).then_some("spawns a task of"),
                _ => None,
            };
            if let Some(what) = shared {
                let text = format!(
                    "task `{}` {what} another domain: domains share only channels",
                    task.name
                );
                return Err(SimError::Machine(text));
            }
        }
    }
    Ok(())
}
