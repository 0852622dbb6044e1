//! Wakeups, births and deaths of chosen threads, at once: what a live scheduler must know and
//! cannot see by itself.
//!
//! Tracepoints on every CPU, filtered in the kernel by thread, in rings that wake the thread that
//! polls them. A recording polls its rings now and then and wants everything; this wants little,
//! and now.

use crate::HostError;
use crate::privileges::{Duty, keep_only};
use crate::record::raw::{Records, u32_at, u64_at};
use crate::sys::perf::{Target, What};
use crate::sys::{Event, Ring};
use crate::tracefs::{Field, PseudoFs};
use perf_event_open_sys::bindings as abi;
use schedlab_model::{CpuId, CpuSet};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};

/// More threads than this make filters so long that the kernel's walk through them costs more than
/// a record.
const FILTERED_THREADS: usize = 48;
/// Calls of [`Adder::add`] that are filtered by thread.
const BATCHES: usize = 8;
const RING_BYTES: usize = 64 << 10;

/// What happened to a followed thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Followed {
    /// It became runnable.
    Woken {
        /// The thread.
        tid: u32,
        /// Who did it.
        by: By,
    },
    /// It runs another program now, and may have another name.
    Execed {
        /// The thread.
        tid: u32,
    },
    /// It made a thread (or a process, whose first thread this is).
    Forked {
        /// The thread that did it.
        parent: u32,
        /// The new thread.
        child: u32,
    },
    /// It ended.
    Exited {
        /// The thread.
        tid: u32,
    },
    /// Records were lost: nothing that is known of any followed thread is certain.
    Lost,
}

/// Who woke a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// The thread that ran where the wakeup happened (0: the idle one), in its own context.
    Thread(u32),
    /// A softirq. The record does not tell one inside a system call from one at the exit of an
    /// interrupt.
    SoftIrq,
    /// A hardware interrupt.
    HardIrq,
}

/// Bits of `common_flags` that every trace record of Linux carries: in a hardware interrupt, in a
/// softirq.
const IN_HARDIRQ: i64 = 0x08;
const IN_SOFTIRQ: i64 = 0x10;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Waking { current: Field, flags: Field },
    Exec,
    Fork { child: Field },
    Exit,
}

/// One tracepoint: its id, the field with the followed thread, and that field's name.
#[derive(Clone, Copy, Debug)]
struct Point {
    id: u64,
    kind: Kind,
    thread: Field,
    name: &'static str,
}

/// See the module.
pub struct Follower {
    points: Vec<Point>,
    rings: Vec<CpuRing>,
    bytes: Vec<u8>,
    found: Vec<(u64, Followed)>,
}

struct CpuRing {
    cpu: u32,
    ring: Ring,
    /// Which point a record belongs to, by the event's number.
    ids: Vec<(u64, usize)>,
}

impl Follower {
    /// Opens the tracepoints on `cpus`; nothing is followed yet.
    ///
    /// # Errors
    /// Without tracefs, or without permission to record other people's threads (root, or
    /// CAP_PERFMON and a readable tracefs).
    pub fn open(cpus: &CpuSet) -> Result<Follower, HostError> {
        Follower::listen(Follower::points()?, cpus)
    }

    /// Where the fields of the tracepoints are.
    fn points() -> Result<Vec<Point>, HostError> {
        let fs = PseudoFs::tracefs().map_err(HostError::io("opening tracefs"))?;
        let point = |path: &str, name: &'static str| -> Result<Point, HostError> {
            let point = fs.tracepoint(path)?;
            Ok(Point { id: point.id, kind: Kind::Exit, thread: point.field(name)?, name })
        };
        let waking = fs.tracepoint("sched/sched_waking")?;
        let fork = fs.tracepoint("sched/sched_process_fork")?;
        let (current, flags) = (waking.field("common_pid")?, waking.field("common_flags")?);
        Ok(vec![
            Point { kind: Kind::Waking { current, flags }, ..point("sched/sched_waking", "pid")? },
            Point {
                kind: Kind::Fork { child: fork.field("child_pid")? },
                ..point("sched/sched_process_fork", "parent_pid")?
            },
            Point { kind: Kind::Exec, ..point("sched/sched_process_exec", "pid")? },
            point("sched/sched_process_exit", "pid")?,
        ])
    }

    fn listen(points: Vec<Point>, cpus: &CpuSet) -> Result<Follower, HostError> {
        let rings = cpus
            .iter()
            .map(|cpu| CpuRing::open(&points, cpu.0))
            .collect::<Result<_, _>>()
            .map_err(refused("opening tracepoints for live scheduling"))?;
        Ok(Follower {
            points,
            rings,
            bytes: Vec::with_capacity(RING_BYTES),
            found: Vec::with_capacity(1024),
        })
    }

    /// Another hand on the rings, which adds threads while this one reads.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn adder(&self) -> Result<Adder, HostError> {
        let rings: std::io::Result<Vec<_>> = self
            .rings
            .iter()
            .map(|ring| Ok((ring.cpu, ring.ring.fd().try_clone_to_owned()?)))
            .collect();
        let rings = rings.map_err(HostError::io("sharing the rings"))?;
        Ok(Adder { points: self.points.clone(), rings, batches: 0, events: Vec::new() })
    }

    /// From now on, the records of these threads are understood.
    pub fn take(&mut self, batch: Batch) {
        for (ring, ids) in self.rings.iter_mut().zip(batch.0) {
            ring.ids.extend(ids);
        }
    }

    /// How many CPUs are listened to.
    pub fn cpus(&self) -> usize {
        self.rings.len()
    }

    /// A descriptor of one of them, in order: readable when something happened there.
    pub fn fd(&self, place: usize) -> Option<BorrowedFd<'_>> {
        self.rings.get(place).map(|ring| ring.ring.fd())
    }

    /// Hands out what has happened, oldest first, and forgets it. Allocates nothing once it is
    /// warm.
    pub fn read(&mut self, mut to: impl FnMut(Followed)) {
        self.found.clear();
        for ring in &mut self.rings {
            self.bytes.clear();
            ring.ring.drain(&mut self.bytes);
            let mut records = Records::new(&self.bytes);
            for record in records.by_ref() {
                if record.kind == abi::PERF_RECORD_LOST {
                    self.found.push((0, Followed::Lost));
                } else if record.kind == abi::PERF_RECORD_SAMPLE {
                    self.found.extend(ring.decode(&self.points, record.body));
                }
            }
            if records.broken() {
                self.found.push((0, Followed::Lost));
            }
        }
        // A stable sort: records of one CPU are in order already, and so stay.
        self.found.sort_by_key(|(at, _)| *at);
        self.found.iter().for_each(|(_, event)| to(*event));
    }
}

/// Returns the least right with which threads can be followed on `cpu` by a thread that gives up
/// the others.
///
/// Upstream kernels ask for CAP_PERFMON. Debian's know a level of `perf_event_paranoid` above 2,
/// their default, at which `perf_event_open(2)` asks for CAP_SYS_ADMIN (Debian's patch
/// "security,perf: Allow further restriction of perf_event_open"); so it is tried, by threads that
/// have no other right.
///
/// # Errors
/// When neither is enough, or this process has neither.
pub fn least_duty(cpu: CpuId) -> Result<Duty, HostError> {
    let fs = PseudoFs::tracefs().map_err(HostError::io("opening tracefs"))?;
    let id = fs.tracepoint("sched/sched_waking")?.id;
    let allowed = |duty: Duty| {
        let open = move || {
            keep_only(&[duty])?;
            Event::open_waking(What::Tracepoint(id), Target::Cpu(cpu.0 as i32)).map(drop)
        };
        std::thread::spawn(open)
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("the trial died")))
    };
    let why = match allowed(Duty::Follow) {
        Ok(()) => return Ok(Duty::Follow),
        Err(error) => error,
    };
    match allowed(Duty::FollowAsAdmin) {
        Ok(()) => Ok(Duty::FollowAsAdmin),
        Err(_) => Err(refused("opening tracepoints without other rights")(why)),
    }
}

/// An error of opening events, with the level that forbids it.
fn refused(what: &str) -> impl FnOnce(std::io::Error) -> HostError {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let needed = match level.trim().parse::<i32>() {
        Ok(level) if level > 2 => format!(
            "{what} (kernel.perf_event_paranoid is {level}: above 2, a level of distributions, \
             that takes CAP_SYS_ADMIN; \
             `sysctl kernel.perf_event_paranoid=2` makes CAP_PERFMON enough)"
        ),
        _ => what.to_owned(),
    };
    let what = what.to_owned();
    move |error| {
        let forbidden = error.kind() == std::io::ErrorKind::PermissionDenied;
        HostError::io(if forbidden { needed } else { what })(error)
    }
}

impl CpuRing {
    /// The ring of an event that records nothing itself.
    fn open(points: &[Point], cpu: u32) -> std::io::Result<CpuRing> {
        let first = points.first().expect("there are four");
        let owner = Event::open_waking(What::Tracepoint(first.id), Target::Cpu(cpu as i32))?;
        Ok(CpuRing { cpu, ring: Ring::map(owner, RING_BYTES)?, ids: Vec::new() })
    }

    /// Body: event number, time, length of the raw part, the raw part.
    fn decode(&self, points: &[Point], body: &[u8]) -> Option<(u64, Followed)> {
        let (number, at) = (u64_at(body, 0)?, u64_at(body, 8)?);
        let raw = body.get(20..20 + u32_at(body, 16)? as usize)?;
        let (_, index) = self.ids.iter().find(|(id, _)| *id == number)?;
        let point = &points[*index];
        let tid = u32::try_from(point.thread.number(raw)?).ok()?;
        let event = match point.kind {
            Kind::Waking { current, flags } => {
                let flags = flags.number(raw)?;
                let by = match flags {
                    _ if flags & IN_HARDIRQ != 0 => By::HardIrq,
                    _ if flags & IN_SOFTIRQ != 0 => By::SoftIrq,
                    _ => By::Thread(u32::try_from(current.number(raw)?).ok()?),
                };
                Followed::Woken { tid, by }
            }
            Kind::Exec => Followed::Execed { tid },
            Kind::Fork { child } => {
                Followed::Forked { parent: tid, child: u32::try_from(child.number(raw)?).ok()? }
            }
            Kind::Exit => Followed::Exited { tid },
        };
        Some((at, event))
    }
}

/// Adds threads to those that a [`Follower`] follows. Opening tracepoints can take the kernel some
/// milliseconds, so the caller that must not wait leaves that to another thread.
pub struct Adder {
    points: Vec<Point>,
    rings: Vec<(u32, OwnedFd)>,
    batches: usize,
    events: Vec<Event>,
}

/// Which records mean what, for [`Follower::take`]: the numbers of new events of each CPU, and
/// their tracepoints.
pub struct Batch(Vec<Vec<(u64, usize)>>);

impl Adder {
    /// From now on, these threads are followed too, until this value is dropped. A tracepoint's
    /// filter can be set only once, so every call opens the tracepoints anew; after [`BATCHES`]
    /// calls, or for many threads at once, everything is followed except the threads in `own`,
    /// which are the caller's: an event for each of its own wakeups would wake it for ever. `None`:
    /// they are followed already.
    ///
    /// # Errors
    /// When the kernel refuses another event or the filter.
    pub fn add(
        &mut self,
        threads: &BTreeSet<u32>,
        own: &BTreeSet<u32>,
    ) -> Result<Option<Batch>, HostError> {
        if threads.is_empty() || self.batches > BATCHES {
            return Ok(None);
        }
        let all = self.batches == BATCHES || threads.len() > FILTERED_THREADS;
        self.batches = if all { BATCHES + 1 } else { self.batches + 1 };
        let filter =
            |point: &Point| if all { but(point.name, own) } else { only(point.name, threads) };
        let filters: Vec<CString> = self.points.iter().map(filter).collect();
        let earlier = self.events.len();
        let batch = self.open(&filters).map_err(refused("following threads by tracepoints"))?;
        if all {
            // They are within the new ones. Closing them would take the kernel long.
            let disabled = self.events[..earlier].iter().try_for_each(Event::disable);
            disabled.map_err(HostError::io("following threads by tracepoints"))?;
        }
        Ok(Some(batch))
    }

    fn open(&mut self, filters: &[CString]) -> std::io::Result<Batch> {
        let mut numbers = Vec::new();
        for (cpu, ring) in &self.rings {
            let mut ids = Vec::new();
            for (index, (point, filter)) in self.points.iter().zip(filters).enumerate() {
                let event =
                    Event::open_waking(What::Tracepoint(point.id), Target::Cpu(*cpu as i32))?;
                event.write_into_fd(ring)?;
                event.filter(filter).map_err(|error| {
                    let filter = filter.to_string_lossy();
                    std::io::Error::new(
                        error.kind(),
                        format!("filter `{filter}` of tracepoint {}: {error}", point.id),
                    )
                })?;
                ids.push((event.id()?, index));
                event.enable()?;
                self.events.push(event);
            }
            numbers.push(ids);
        }
        Ok(Batch(numbers))
    }
}

fn only(field: &str, threads: &BTreeSet<u32>) -> CString {
    joined(threads.iter().map(|tid| format!("{field} == {tid}")), " || ")
}

fn but(field: &str, own: &BTreeSet<u32>) -> CString {
    joined(std::iter::once(&0).chain(own).map(|tid| format!("{field} != {tid}")), " && ")
}

fn joined(parts: impl Iterator<Item = String>, by: &str) -> CString {
    CString::new(parts.collect::<Vec<_>>().join(by)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn filters_name_who_is_followed_or_who_is_not() {
        let set = BTreeSet::from([7, 9]);
        assert_eq!(only("pid", &set).to_str(), Ok("pid == 7 || pid == 9"));
        assert_eq!(but("pid", &set).to_str(), Ok("pid != 0 && pid != 7 && pid != 9"));
    }

    /// Whatever this machine demands: with the right that is named and no other, an event can be
    /// opened.
    #[test]
    fn the_least_right_is_enough() {
        let cpus = crate::proc::affinity(0).expect("we live");
        let cpu = cpus.lowest().expect("a CPU");
        let Ok(duty) = least_duty(cpu) else {
            assert!(std::env::var_os("CI").is_none(), "CI may record other people's threads");
            return;
        };
        // A machine on which tracefs is not mounted takes another right to look at it.
        let points = Follower::points().expect("the least right was found by one of them");
        let trial = std::thread::spawn(move || {
            keep_only(&[duty]).expect("less is always allowed");
            Follower::listen(points, &CpuSet::single(cpu))
                .map(drop)
                .map_err(|error| error.to_string())
        });
        assert_eq!(trial.join().expect("it holds"), Ok(()));
    }

    /// A child that we wake by a pipe, and that becomes another program then.
    #[test]
    fn wakeups_name_the_waker_and_another_program_is_seen() {
        let Ok(mut follower) = Follower::open(&crate::proc::affinity(0).expect("we live")) else {
            assert!(std::env::var_os("CI").is_none(), "CI may record other people's threads");
            return;
        };
        let mut adder = follower.adder().expect("descriptors");
        let mut shell = Command::new("sh");
        let mut child = shell
            .args(["-c", "read line; exec true"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("sh(1)");
        let tid = child.id();
        let batch = adder.add(&BTreeSet::from([tid]), &BTreeSet::new()).expect("allowed");
        batch.into_iter().for_each(|batch| follower.take(batch));
        // Until it reads.
        while crate::proc::value(
            &std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap(),
            "State:",
        )
        .is_none_or(|state| !state.starts_with('S'))
        {
            std::thread::yield_now();
        }
        use std::io::Write as _;
        child.stdin.take().expect("piped").write_all(b"\n").expect("it reads");
        child.wait().expect("our child");
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let mut seen = Vec::new();
        follower.read(|event| seen.push(event));
        assert!(seen.contains(&Followed::Woken { tid, by: By::Thread(own) }), "{seen:?}");
        assert!(seen.contains(&Followed::Execed { tid }), "{seen:?}");
    }

    /// Wakeups of children of this process that were added one after the other, and the end of
    /// each.
    #[test]
    fn threads_that_are_added_later_are_followed_too() {
        let Ok(mut follower) = Follower::open(&crate::proc::affinity(0).expect("we live")) else {
            assert!(std::env::var_os("CI").is_none(), "CI may record other people's threads");
            return;
        };
        let mut adder = follower.adder().expect("descriptors");
        let mut children: Vec<_> = (0..12)
            .map(|_| {
                let child = Command::new("cat")
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .spawn()
                    .expect("cat(1)");
                let batch =
                    adder.add(&BTreeSet::from([child.id()]), &BTreeSet::new()).expect("allowed");
                batch.into_iter().for_each(|batch| follower.take(batch));
                child
            })
            .collect();
        let mut seen = BTreeSet::new();
        for child in &mut children {
            // The end of its input wakes it, and it ends.
            drop(child.stdin.take());
            child.wait().expect("our child");
        }
        follower.read(|event| {
            if let Followed::Exited { tid } = event {
                seen.insert(tid);
            }
        });
        // (Threads of process 1 and idle CPUs of some machines leave no trace: the exits are by the
        // children themselves.)
        let ours: BTreeSet<u32> = children.iter().map(std::process::Child::id).collect();
        assert!(ours.is_subset(&seen), "{ours:?} {seen:?}");
    }
}
