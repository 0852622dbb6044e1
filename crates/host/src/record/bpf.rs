//! Tier 1: BPF programs on the scheduler's tracepoints. The object is built from `bpf/sched.bpf.c`
//! and carried in the binary; it is fitted to the running kernel when it is loaded (CO-RE), which
//! needs the kernel's type information (`/sys/kernel/btf/vmlinux`) and Linux 5.18.
//!
//! Each CPU has a ring in one array that user space maps: a record costs one store of 32 bytes and
//! no lock, no reservation and no wakeup. What that costs against other ways:
//! `experiments/recorder_cost.py`.

mod decode;
pub mod made_up;
mod messages;
mod ring;
mod sums;

use super::{MessageHooks, Messages};
use crate::HostError;
use crate::sys::Shared;
use aya::maps::{HashMap, Map, MapData};
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::{BtfTracePoint, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};
use aya_obj::btf::BtfKind;
pub(crate) use decode::OUTSIDE;
use decode::RECORD;
pub(crate) use decode::{Decoder, LOST_HERE, TOLD, Told, kind_of};
use messages::{COUNTED_FOR, COUNTER, FACT, FACT_CALLS, FACT_CONTROL, FACT_PROGRAMS, FactRing};
pub(crate) use ring::BpfRing;
use schedlab_model::CpuSet;
use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::atomic::Ordering;
pub use sums::{BUCKETS, ClassSums, Watch, bucket, bucket_bound};
pub(crate) use sums::{KernelSums, Room};

/// Aligned, because the loader looks at its headers in place.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/sched.bpf.o")));

/// How softirq wakeups are attributed; goes into the header.
pub(crate) const WAKE_RULE: &str = "softirq-raise-context";

/// Bytes of `struct control`.
const CONTROL: usize = 128;

/// Memory of all rings together.
const ALL_RINGS: usize = 1 << 30;

/// Each program and its tracepoint: programs that end a context first, so that none can be entered
/// unseen. Those that the kernel does not have are left out, unless they are needed.
const PROGRAMS: [(&str, &str, bool); 27] = [
    ("irq_handler_exit", "irq_handler_exit", false),
    ("local_timer_exit", "local_timer_exit", false),
    ("reschedule_exit", "reschedule_exit", false),
    ("call_function_exit", "call_function_exit", false),
    ("call_function_single_exit", "call_function_single_exit", false),
    ("x86_platform_ipi_exit", "x86_platform_ipi_exit", false),
    ("irq_work_exit", "irq_work_exit", false),
    ("ipi_exit", "ipi_exit", false),
    ("softirq_exit", "softirq_exit", true),
    ("irq_handler_entry", "irq_handler_entry", false),
    ("local_timer_entry", "local_timer_entry", false),
    ("reschedule_entry", "reschedule_entry", false),
    ("call_function_entry", "call_function_entry", false),
    ("call_function_single_entry", "call_function_single_entry", false),
    ("x86_platform_ipi_entry", "x86_platform_ipi_entry", false),
    ("irq_work_entry", "irq_work_entry", false),
    ("ipi_entry", "ipi_entry", false),
    ("softirq_entry", "softirq_entry", true),
    ("softirq_raise", "softirq_raise", true),
    ("on_attach", "cgroup_attach_task", false),
    ("on_rename", "task_rename", true),
    ("on_exec", "sched_process_exec", true),
    ("on_exit", "sched_process_exit", true),
    ("on_migrate", "sched_migrate_task", true),
    ("on_new", "sched_wakeup_new", true),
    // Before wakeups: a wakeup whose switch went unseen would look like a long wait.
    ("on_switch", "sched_switch", true),
    ("on_waking", "sched_waking", true),
];

/// A function that the kernel has where a throttled task leaves the queue by itself, and says so
/// (Linux 6.18).
const TASKS_ARE_THROTTLED: &str = "throttle_cfs_rq_work";

/// What the kernel's side records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Only {
    /// All tasks.
    All,
    /// These processes and the children that they create from now on.
    Processes(Vec<u32>),
    /// The tasks of this control group of the CPU controller (cgroup v1) and of those below it.
    CpuGroup(u64),
    /// The tasks of this control group (cgroup v2) and of those below it.
    UnifiedGroup(u64),
}

impl Only {
    fn number(&self) -> u32 {
        match self {
            Only::All => 0,
            Only::Processes(_) => 1,
            Only::CpuGroup(_) => 2,
            Only::UnifiedGroup(_) => 3,
        }
    }
}

fn failed(what: &str) -> impl FnOnce(&dyn std::error::Error) -> HostError {
    let what = what.to_owned();
    move |error| {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            let more = inner.to_string();
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = inner.source();
        }
        // The verifier's log follows the first line and is of no use to a user.
        let text = text.lines().next().unwrap_or_default().to_owned();
        HostError::Io { what, source: std::io::Error::other(text) }
    }
}

fn read_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// What the kernel answered, or, where its release says enough, which one is needed. (Before 5.18
/// it knows no typed arguments of BPF programs: "arg#0 type is not a struct".)
fn too_old(release: &str, error: HostError) -> HostError {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return error };
    if (major, minor) >= (5, 18) {
        return error;
    }
    let what = format!("the BPF programs need Linux 5.18 or later, and this is {release}");
    HostError::Io { what, source: std::io::Error::other("recording by tracepoints sees as much") }
}

/// The programs in the kernel.
struct Loaded {
    ebpf: Ebpf,
    links: Vec<(&'static str, BtfTracePointLinkId)>,
    /// The kernel says which tasks limits hold back.
    limits: bool,
    /// How messages are seen; `None`: they are not.
    messages: Option<MessageHooks>,
    /// The links of the programs that see them.
    fact_links: Vec<(&'static str, BtfTracePointLinkId)>,
    /// How often the kernel left out one of those programs, as far as no recording says so yet.
    left_out: u64,
}

impl Loaded {
    fn load(
        cpus: u32,
        (slots, fact_slots): (u32, u32),
        only: &Only,
        room: Option<Room>,
    ) -> Result<Loaded, HostError> {
        let btf = Btf::from_sys_fs().map_err(|e| failed("reading the kernel's types (BTF)")(&e))?;
        let group: u64 = match only {
            Only::CpuGroup(id) | Only::UnifiedGroup(id) => *id,
            _ => 0,
        };
        let filter = only.number();
        let sockets_by_calls = !messages::has_socket_tracepoints(&btf);
        let (calls, by_calls) =
            (messages::interesting_calls(sockets_by_calls), u8::from(sockets_by_calls));
        // Seeded by the system.
        let salt: u64 = RandomState::new().hash_one(cpus);
        let (classes, lives) = room.map_or((0, 1), |room| (room.classes, room.lives));
        let mut loader = EbpfLoader::new();
        loader
            .btf(Some(&btf))
            .map_max_entries("rings", cpus * slots)
            .map_max_entries("controls", cpus)
            .map_max_entries("lives", room.map_or(1, |room| room.lives))
            .map_max_entries("sums", room.map_or(1, |room| room.classes * cpus))
            .map_max_entries("pasts", room.map_or(1, |_| cpus))
            .map_max_entries("fact_rings", (cpus * fact_slots).max(1))
            .map_max_entries("fact_controls", cpus)
            .override_global("fact_slots", &fact_slots, true)
            .override_global("salt", &salt, true)
            .override_global("interesting_calls", &calls, true)
            .override_global("sockets_by_calls", &by_calls, true)
            .override_global("slots", &slots, true)
            .override_global("classes", &classes, true)
            .override_global("life_slots", &lives, true)
            .override_global("cpus", &cpus, true)
            .override_global("filter", &filter, true)
            .override_global("group_id", &group, true);
        let release = read_release();
        let ebpf = loader
            .load(&OBJECT.0)
            .map_err(|e| too_old(&release, failed("loading BPF programs")(&e)))?;
        let limits = btf.id_by_type_name_kind(TASKS_ARE_THROTTLED, BtfKind::Func).is_ok();
        let hooks = if sockets_by_calls {
            MessageHooks::SystemCalls
        } else {
            MessageHooks::SocketTracepoints
        };
        let messages = (fact_slots > 0).then_some(hooks);
        let mut loaded = Loaded {
            ebpf,
            links: Vec::new(),
            limits,
            messages,
            fact_links: Vec::new(),
            left_out: 0,
        };
        loaded.prepare(only, &btf, &release)?;
        Ok(loaded)
    }

    /// Fills the maps, and has the kernel check the programs.
    fn prepare(&mut self, only: &Only, btf: &Btf, release: &str) -> Result<(), HostError> {
        if let Only::Processes(list) = only {
            self.fill("processes", list)?;
        }
        self.fill("softirq_threads", &super::calibrate::softirq_threads())?;
        for (name, tracepoint, needed) in PROGRAMS {
            match self.program(name)?.load(tracepoint, btf) {
                Ok(()) => {}
                Err(ProgramError::Btf(_)) if !needed => {}
                Err(error) => {
                    let what = format!("loading the BPF program on {tracepoint}");
                    return Err(too_old(release, failed(&what)(&error)));
                }
            }
        }
        for (name, tracepoint) in self.fact_programs().chain(self.messages.map(|_| COUNTER)) {
            let what = format!("loading the BPF program for messages on {tracepoint}");
            self.program(name)?.load(tracepoint, btf).map_err(|e| failed(&what)(&e))?;
        }
        Ok(())
    }

    /// The programs that see messages here.
    fn fact_programs(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        let hooks = self.messages;
        let sockets = |name: &str| matches!(name, "on_send" | "on_receive");
        FACT_PROGRAMS.into_iter().filter(move |(name, _)| {
            hooks.is_some_and(|hooks| hooks == MessageHooks::SocketTracepoints || !sockets(name))
        })
    }

    /// Attaches the programs that see messages.
    fn attach_facts(&mut self) -> std::io::Result<()> {
        if !self.fact_links.is_empty() {
            return Ok(());
        }
        for (name, tracepoint) in self.fact_programs() {
            let link = self.program(name).map_err(std::io::Error::other)?.attach();
            let link = link.map_err(|error| {
                std::io::Error::other(format!("attaching to {tracepoint}: {error}"))
            })?;
            self.fact_links.push((name, link));
        }
        Ok(())
    }

    /// Returns how many system calls the machine made in [`COUNTED_FOR`].
    fn count_calls(&mut self, controls: &Shared, cpus: usize) -> Result<u64, HostError> {
        let (name, tracepoint) = COUNTER;
        let program = self.program(name)?;
        let link =
            program.attach().map_err(|e| failed(&format!("attaching to {tracepoint}"))(&e))?;
        let sum = || -> u64 {
            let calls =
                |cpu: usize| controls.long(cpu * FACT_CONTROL + FACT_CALLS).load(Ordering::Relaxed);
            (0..cpus).map(calls).sum()
        };
        let before = sum();
        std::thread::sleep(COUNTED_FOR);
        let calls = sum() - before;
        // Attached before the counter goes: a tracepoint whose last program went gets another one
        // only after a grace period.
        self.attach_facts().map_err(HostError::io("attaching the programs for messages"))?;
        self.program(name)?
            .detach(link)
            .map_err(|e| failed(&format!("leaving {tracepoint}"))(&e))?;
        Ok(calls)
    }

    /// Returns how often the kernel has not run a program because a task that it had interrupted
    /// was in it (Linux 5.12; on 7.2, which lets tasks be preempted there, that is often).
    fn left_out_of(&mut self, name: &str) -> u64 {
        let fd = self.program(name).ok().and_then(|program| program.fd().ok());
        let path = fd.map(|fd| format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd()));
        let text = path.and_then(|path| std::fs::read_to_string(path).ok());
        text.map_or(0, |text| messages::recursion_misses(&text))
    }

    fn program(&mut self, name: &str) -> Result<&mut BtfTracePoint, HostError> {
        let missing = || HostError::Form {
            what: "the BPF object".to_owned(),
            detail: format!("no program {name}"),
        };
        let program = self.ebpf.program_mut(name).ok_or_else(missing)?;
        program.try_into().map_err(|_| missing())
    }

    fn fill(&mut self, map: &str, keys: &[u32]) -> Result<(), HostError> {
        let full = |e: &dyn std::error::Error| failed(&format!("filling the BPF map {map}"))(e);
        let Some(found) = self.ebpf.map_mut(map) else { return Ok(()) };
        let mut found: HashMap<&mut MapData, u32, u8> =
            HashMap::try_from(found).map_err(|e| full(&e))?;
        keys.iter().try_for_each(|key| found.insert(key, 1, 0)).map_err(|e| full(&e))
    }

    fn shared(&self, map: &str, bytes: usize) -> Result<Shared, HostError> {
        let Some(Map::Array(data)) = self.ebpf.map(map) else {
            return Err(HostError::Form {
                what: "the BPF object".to_owned(),
                detail: format!("no array {map}"),
            });
        };
        Shared::map(data.fd().as_fd(), bytes)
            .map_err(HostError::io(format!("mapping the BPF array {map}")))
    }

    fn attach(&mut self) -> std::io::Result<()> {
        if !self.links.is_empty() {
            return Ok(());
        }
        for (name, tracepoint, needed) in PROGRAMS {
            let program = self.program(name).map_err(std::io::Error::other)?;
            match program.attach() {
                Ok(link) => self.links.push((name, link)),
                Err(ProgramError::NotLoaded) if !needed => {}
                Err(error) => {
                    return Err(std::io::Error::other(format!(
                        "attaching to {tracepoint}: {error}"
                    )));
                }
            }
        }
        Ok(())
    }

    fn detach(&mut self) {
        let names: Vec<&str> = self.fact_links.iter().map(|(name, _)| *name).collect();
        self.left_out += names.into_iter().map(|name| self.left_out_of(name)).sum::<u64>();
        let links = std::mem::take(&mut self.links).into_iter();
        for (name, link) in links.chain(std::mem::take(&mut self.fact_links)).rev() {
            if let Ok(program) = self.program(name) {
                // A link that is gone already records nothing either.
                let _ = program.detach(link);
            }
        }
    }
}

/// What was opened.
pub(crate) struct OpenedBpf {
    /// A ring for each CPU, in their order.
    pub(crate) rings: Vec<BpfRing>,
    /// The kernel says which tasks limits hold back.
    pub(crate) limits: bool,
    /// How messages are seen, or why they are not.
    pub(crate) messages: Result<MessageHooks, String>,
    /// What the kernel sums up, where that was asked for.
    pub(crate) sums: Option<KernelSums>,
}

/// Loads the programs and opens a ring for each CPU of `cpus`, in their order. `count`: where
/// [`Messages::Auto`] depends on how many system calls there are.
pub(crate) fn open(
    cpus: &CpuSet,
    ring_bytes: usize,
    only: &Only,
    messages: Messages,
    count: bool,
) -> Result<OpenedBpf, HostError> {
    let with = if messages == Messages::Off {
        Err("they were not asked for".to_owned())
    } else {
        match open_with(cpus, ring_bytes, only, true, None) {
            Ok(opened) if messages == Messages::Auto && count => match opened.too_many_calls()? {
                None => Ok(opened),
                Some(why) => Err(why),
            },
            Err(error) if messages == Messages::Auto => Err(error.to_string()),
            other => Ok(other?),
        }
    };
    match with {
        Ok(opened) => Ok(opened),
        Err(why) => {
            let opened = open_with(cpus, ring_bytes, only, false, None)?;
            Ok(OpenedBpf { messages: Err(why), ..opened })
        }
    }
}

/// Opens them for all tasks, without messages, with what the kernel sums up.
pub(crate) fn open_summing(cpus: &CpuSet, ring_bytes: usize) -> Result<OpenedBpf, HostError> {
    open_with(cpus, ring_bytes, &Only::All, false, Some(Room::on(cpus)))
}

fn open_with(
    cpus: &CpuSet,
    ring_bytes: usize,
    only: &Only,
    facts: bool,
    room: Option<Room>,
) -> Result<OpenedBpf, HostError> {
    let count = cpus.iter().last().map_or(1, |last| last.index() + 1);
    let bytes = ring_bytes.clamp(64 << 10, ALL_RINGS / count);
    // The largest power of two that fits.
    let slots = 1usize << (bytes / RECORD).ilog2();
    let fact_slots = if facts { 1usize << (bytes / FACT).ilog2() } else { 0 };
    let loaded = Loaded::load(count as u32, (slots as u32, fact_slots as u32), only, room)?;
    let sums = room.map(|room| KernelSums::map(&loaded, room, count)).transpose()?;
    let rings = Rc::new(loaded.shared("rings", count * slots * RECORD)?);
    let controls = Rc::new(loaded.shared("controls", count * CONTROL)?);
    let fact_rings = match loaded.messages {
        Some(_) => Some((
            Rc::new(loaded.shared("fact_rings", count * fact_slots * FACT)?),
            Rc::new(loaded.shared("fact_controls", count * FACT_CONTROL)?),
        )),
        None => None,
    };
    let (limits, messages) = (loaded.limits, loaded.messages);
    let loaded = Rc::new(RefCell::new(loaded));
    let ring = |cpu: usize| {
        let facts = fact_rings.as_ref();
        let facts = facts.map(|(rings, controls)| FactRing::new(rings, controls, fact_slots));
        BpfRing::new(&loaded, (&rings, &controls), (cpu, slots), facts)
    };
    let rings = cpus.iter().map(|cpu| ring(cpu.index())).collect();
    let messages = messages.ok_or_else(String::new);
    Ok(OpenedBpf { rings, limits, messages, sums })
}

/// Returns how messages would be seen here, or why not, when the programs can be loaded (they are
/// unloaded again).
pub(crate) fn probe(cpus: &CpuSet) -> Result<Result<MessageHooks, String>, HostError> {
    open(cpus, 0, &Only::All, Messages::Auto, false).map(|opened| opened.messages)
}

impl OpenedBpf {
    /// Why the machine makes too many system calls to look at all of them, if it does.
    fn too_many_calls(&self) -> Result<Option<String>, HostError> {
        let Some((ring, facts)) = self.rings.first().and_then(|ring| Some((ring, ring.facts()?)))
        else {
            return Ok(None);
        };
        let cpus = self.rings.iter().map(|ring| ring.cpu() + 1).max().unwrap_or_default();
        let calls = ring.loaded().borrow_mut().count_calls(&facts.controls, cpus)?;
        Ok(messages::too_many(calls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kernel_is_told_which_one_is_needed() {
        let answer = || HostError::Io {
            what: "loading BPF programs".to_owned(),
            source: std::io::Error::other("arg#0 type is not a struct"),
        };
        let old = too_old("5.10.0-36-amd64", answer()).to_string();
        assert!(
            old.contains("5.18") && old.contains("5.10.0-36-amd64") && !old.contains("arg#0"),
            "{old}"
        );
        for release in ["5.18.0", "6.1.0-56-amd64", "unknown"] {
            assert!(too_old(release, answer()).to_string().contains("arg#0"), "{release}");
        }
    }
}
