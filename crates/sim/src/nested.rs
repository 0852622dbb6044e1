//! Nested machines: a vCPU is a task of the hypervisor's scheduler and a CPU of its guest's own
//! scheduler.
//!
//! There is one engine for the hypervisor and one for each guest, all on one clock, each with all
//! of its assertions. They touch in four places only:
//! * a vCPU that the hypervisor runs (or stops running) is a CPU that its guest has (or has not);
//!   what the guest would do there meanwhile (timers, reschedule requests, notifications) waits for
//!   it;
//! * a vCPU whose guest has nothing to do blocks; what waits for it wakes it;
//! * tokens that go into a channel of another domain arrive as an event-channel notification, bound
//!   to one vCPU of the receiver;
//! * what the hypervisor takes away is steal, which the guest's scheduler sees.
//!
//! # Fidelity
//! | rule | Xen with PV or PVH guests | here | test |
//! |---|---|---|---|
//! | a vCPU blocks when its guest idles, an event or a timer wakes it | SCHEDOP_block, singleshot timer | modelled | `tests/it/nested.rs` |
//! | a notification to a running vCPU is an interrupt, to a preempted one it waits | event channels | modelled | `tests/it/nested.rs` |
//! | kicks of one domain's vCPUs go through the hypervisor | IPI event channels | modelled | `tests/it/nested.rs` |
//! | steal: runnable and not running | runstate area | modelled | `tests/it/nested.rs` |
//! | event channels bound to vCPUs in turn | guest's choice (irqbalance) | simplified: fixed at the start | `split.rs` |
//! | the hypervisor's own interrupts under a running vCPU | delay the guest | simplified: only those before it runs | |
//! | PAUSE-loop exits, directed yield, lock-holder preemption hints | SCHEDOP_yield | omitted: guests do not spin | |

mod merge;
mod split;

use crate::engine::vcpu::program;
use crate::engine::{Engine, Step};
use crate::stop::Watch;
use crate::{Machine, Metrics, Outcome, RunOptions, SimError};
use schedlab_model::random::mix;
use schedlab_model::{CpuSet, EventSink, GroupId, TaskId, Workload};
use schedlab_scheduler::Scheduler;
pub use split::places;
use split::{Links, Split, Vcpu};

/// A domain of the hypervisor that has a kernel of its own. Its tasks are those of the workload
/// that belong to [`group`](Domain::group); tasks of groups without such a domain are vCPUs
/// themselves (bare tasks).
pub struct Domain<'a> {
    /// Name, in messages and for its vCPUs (`name:vcpu0`).
    pub name: String,
    /// The hypervisor's group: weight, cap, and the tasks inside.
    pub group: GroupId,
    /// What the guest takes for its machine: one CPU for each vCPU, its own ticks and costs.
    pub machine: Machine,
    /// Where its vCPUs may run (hard affinity).
    pub affinity: CpuSet,
    /// Where they prefer to run (soft affinity).
    pub soft_affinity: CpuSet,
    /// The guest's scheduler.
    pub scheduler: &'a dyn Scheduler,
}

/// What a nested run gives back.
#[derive(Clone, Debug)]
pub struct NestedOutcome {
    /// The tasks of the workload in its order, whatever domain they belong to, then the vCPUs,
    /// which `vcpus` names. CPUs, work conservation and scheduler work are the hypervisor's; each
    /// channel is its receiver's.
    pub outcome: Outcome,
    /// The domain of each vCPU behind the tasks of the workload.
    pub vcpus: Vec<usize>,
    /// What each guest measured by itself; its CPUs are its vCPUs, with the steal that it saw.
    pub guests: Vec<Metrics>,
}

/// Runs `workload` on `machine` under the hypervisor's `scheduler`; the tasks of each domain run
/// under that domain's own scheduler on its vCPUs. `sink` sees the events of the hypervisor, whose
/// tasks are the bare tasks of the workload (in its order) and then the vCPUs.
///
/// # Errors
/// As [`run`](crate::run); and domains that share what only one kernel can have (a lock, the
/// receiving end of a channel, a spawned task).
pub fn run_nested(
    machine: &Machine,
    workload: &Workload,
    scheduler: &dyn Scheduler,
    domains: &[Domain<'_>],
    options: &RunOptions,
    sink: &mut dyn EventSink,
) -> Result<NestedOutcome, SimError> {
    let mut ignored = vec![(); domains.len()];
    let mut seen: Vec<&mut dyn EventSink> =
        ignored.iter_mut().map(|guest| guest as &mut dyn EventSink).collect();
    run_nested_seen(machine, workload, scheduler, domains, options, sink, &mut seen)
}

/// As [`run_nested`]; each of `seen` sees the events of one guest, in the guest's own numbers: its
/// CPUs are its vCPUs, its tasks those of [`places`]. All sinks together hear events in the order
/// of time.
///
/// # Errors
/// As [`run_nested`].
pub fn run_nested_seen(
    machine: &Machine,
    workload: &Workload,
    scheduler: &dyn Scheduler,
    domains: &[Domain<'_>],
    options: &RunOptions,
    mut sink: &mut dyn EventSink,
    seen: &mut [&mut dyn EventSink],
) -> Result<NestedOutcome, SimError> {
    if seen.len() != domains.len() {
        let (sinks, domains) = (seen.len(), domains.len());
        return Err(SimError::Machine(format!("{sinks} sinks for the events of {domains} guests")));
    }
    machine.check()?;
    machine.check_alone("virtual machines")?;
    workload.check(machine.topology.cpus())?;
    domains.iter().try_for_each(|domain| domain.machine.check())?;
    let threaded = |machine: &Machine| !machine.preemption.irq_threads.is_empty();
    if threaded(machine) || domains.iter().any(|domain| threaded(&domain.machine)) {
        return Err(SimError::Machine("nested machines have no interrupt threads".to_owned()));
    }
    let split = split::split(workload, domains)?;
    for (domain, guest) in domains.iter().zip(&split.guests) {
        guest.check(domain.machine.topology.cpus())?;
    }
    // Guests draw from streams of their own.
    let options_of: Vec<RunOptions> = (0..domains.len())
        .map(|d| RunOptions { seed: mix(options.seed ^ mix(d as u64 + 1)), ..options.clone() })
        .collect();
    let mut guests = Vec::new();
    for (d, sink) in seen.iter_mut().enumerate() {
        let (domain, options) = (&domains[d], &options_of[d]);
        let mut guest =
            Engine::new(&domain.machine, &split.guests[d], domain.scheduler, options, sink)?;
        guest.become_guest();
        guests.push(guest);
    }
    let host = Engine::new(machine, &split.host, scheduler, options, &mut sink)?;
    let sleeps = vec![Sleep::Kicked; split.vcpus.len()];
    let nest = Nest {
        host,
        guests,
        split: &split,
        sleeps,
        end: options.duration.0,
        watch: Watch::new(options),
    };
    nest.run().map_err(|error| *error)
}

/// Whether a vCPU sleeps, from the view of its guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sleep {
    /// It runs, or waits for a pCPU.
    Awake,
    /// Its guest has nothing to do.
    Asleep,
    /// It slept, and an event is on its way.
    Kicked,
}

/// All engines of a run.
struct Nest<'a, S, G> {
    host: Engine<'a, S, false>,
    guests: Vec<Engine<'a, G, false>>,
    split: &'a Split,
    sleeps: Vec<Sleep>,
    end: u64,
    watch: Watch<'a>,
}

impl<S: EventSink, G: EventSink> Nest<'_, S, G> {
    fn run(mut self) -> Step<NestedOutcome> {
        self.host.start()?;
        for guest in &mut self.guests {
            guest.start()?;
        }
        loop {
            let at = self.guests.iter_mut().map(Engine::next_at).min().unwrap_or(u64::MAX);
            let at = at.min(self.host.next_at());
            if at >= self.end {
                break;
            }
            self.watch.instant()?;
            self.go_to(at);
            self.instant()?;
        }
        self.go_to(self.end);
        merge::merge(self.host, self.guests, self.split)
    }

    fn go_to(&mut self, at: u64) {
        self.host.advance_to(at);
        self.guests.iter_mut().for_each(|guest| guest.advance_to(at));
    }

    /// Everything that happens now: the hypervisor first, then the guests in order, until nothing
    /// is left.
    fn instant(&mut self) -> Step {
        loop {
            if self.host.is_due() {
                self.host.serve_instant()?;
            }
            self.follow_host()?;
            for guest in &mut self.guests {
                if guest.is_due() {
                    guest.serve_instant()?;
                }
            }
            let moved = self.exchange()?;
            if !moved && !self.host.is_due() && !self.guests.iter_mut().any(Engine::is_due) {
                return Ok(());
            }
        }
    }

    /// vCPUs start and stop as the hypervisor decided.
    fn follow_host(&mut self) -> Step {
        for (v, vcpu) in self.split.vcpus.iter().enumerate() {
            let guest = &mut self.guests[vcpu.domain];
            match (self.host.executes(vcpu.task), guest.is_on(vcpu.cpu)) {
                (Some((_, debt)), false) if self.sleeps[v] != Sleep::Asleep => {
                    self.sleeps[v] = Sleep::Awake;
                    guest.power_on(vcpu.cpu, debt)?;
                }
                (None, true) => guest.power_off(vcpu.cpu, true)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Notifications, sleeping vCPUs, and those that something wakes. True: something changed.
    fn exchange(&mut self) -> Step<bool> {
        let mut moved = self.carry_tokens()?;
        for (v, vcpu) in self.split.vcpus.iter().enumerate() {
            let guest = &mut self.guests[vcpu.domain];
            if self.sleeps[v] == Sleep::Asleep {
                if guest.is_wanted(vcpu.cpu) {
                    self.kick(v, vcpu)?;
                    moved = true;
                }
                continue;
            }
            let running = guest.is_on(vcpu.cpu).then(|| self.host.executes(vcpu.task)).flatten();
            if let Some((cpu, _)) = running
                && let Some(rest) = guest.idle_after(vcpu.cpu)
            {
                guest.power_off(vcpu.cpu, false)?;
                self.host.put_to_sleep(cpu, vcpu.task, rest)?;
                self.sleeps[v] = Sleep::Asleep;
                moved = true;
            }
        }
        Ok(moved)
    }

    /// An event for a sleeping vCPU.
    fn kick(&mut self, v: usize, vcpu: &Vcpu) -> Step {
        self.sleeps[v] = Sleep::Kicked;
        self.guests[vcpu.domain].begin_steal(vcpu.cpu)?;
        // An IPI comes from a vCPU of the same domain that executes; timers and others from
        // outside.
        let from = self.some_vcpu(vcpu.domain);
        self.host.send_in(vcpu.kicks.index(), 1, from)
    }

    /// The first vCPU of a domain that executes, and where.
    fn some_vcpu(&self, domain: usize) -> Option<(usize, TaskId)> {
        let own = self.split.vcpus.iter().filter(|vcpu| vcpu.domain == domain);
        let mut running =
            own.filter_map(|vcpu| self.host.executes(vcpu.task).map(|(cpu, _)| (cpu, vcpu.task)));
        running.next()
    }

    /// Tokens for channels whose receiver is in another engine.
    fn carry_tokens(&mut self) -> Step<bool> {
        let Links { receivers, senders } = &self.split.links;
        let mut moved = false;
        for &(channel, from) in senders {
            let count = match from {
                Some(d) => self.guests[d].take_tokens(channel),
                None => self.host.take_tokens(channel),
            };
            if count == 0 {
                continue;
            }
            moved = true;
            match receivers[channel] {
                Some((d, cpu)) => self.guests[d].notify(cpu, channel, count)?,
                None => {
                    let sender = from.and_then(|d| self.some_vcpu(d));
                    self.host.send_in(channel, count, sender)?;
                }
            }
        }
        Ok(moved)
    }
}
