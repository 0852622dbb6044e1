//! Wakeups, births and deaths of chosen threads, at once: what a live scheduler must know and cannot see by itself.
//!
//! Tracepoints on every CPU, filtered in the kernel by thread, in rings that wake whoever polls them. A recording polls
//! its rings now and then and wants everything; this wants little, and now.

use crate::HostError;
use crate::record::raw::{Records, u32_at, u64_at};
use crate::sys::perf::{Target, What};
use crate::sys::{Event, Ring};
use crate::tracefs::{Field, PseudoFs};
use perf_event_open_sys::bindings as abi;
use schedlab_model::CpuSet;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fmt::Write as _;
use std::os::fd::BorrowedFd;

/// More threads than this make filters so long that the kernel's walk through them costs more than a record.
const FILTERED_THREADS: usize = 48;
const RING_BYTES: usize = 64 << 10;

/// What happened to a followed thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Followed {
    /// It became runnable.
    Woken {
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

#[derive(Clone, Copy, Debug)]
enum Kind {
    Waking,
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
    ring: Ring,
    others: Vec<Event>,
    /// Which point a record belongs to, by the event's number.
    ids: Vec<(u64, usize)>,
}

impl Follower {
    /// Opens the tracepoints on `cpus`; nothing is followed yet.
    ///
    /// # Errors
    /// Without tracefs, or without permission to record other people's threads (root, or CAP_PERFMON and a readable
    /// tracefs).
    pub fn open(cpus: &CpuSet) -> Result<Follower, HostError> {
        let fs = PseudoFs::tracefs().map_err(HostError::io("opening tracefs"))?;
        let point = |path: &str, name: &'static str| -> Result<Point, HostError> {
            let point = fs.tracepoint(path)?;
            Ok(Point { id: point.id, kind: Kind::Waking, thread: point.field(name)?, name })
        };
        let fork = fs.tracepoint("sched/sched_process_fork")?;
        let points = vec![
            point("sched/sched_waking", "pid")?,
            Point {
                kind: Kind::Fork { child: fork.field("child_pid")? },
                ..point("sched/sched_process_fork", "parent_pid")?
            },
            Point { kind: Kind::Exit, ..point("sched/sched_process_exit", "pid")? },
        ];
        let rings = cpus
            .iter()
            .map(|cpu| CpuRing::open(&points, cpu.0))
            .collect::<Result<_, _>>()
            .map_err(HostError::io("opening tracepoints for live scheduling"))?;
        Ok(Follower { points, rings, bytes: Vec::with_capacity(RING_BYTES), found: Vec::with_capacity(1024) })
    }

    /// From now on, exactly these threads are followed. What is in the rings already stays there.
    ///
    /// # Errors
    /// When the kernel refuses a filter.
    pub fn follow(&mut self, threads: &BTreeSet<u32>) -> Result<(), HostError> {
        let filters: Vec<CString> = self.points.iter().map(|point| filter(point.name, threads)).collect();
        for ring in &self.rings {
            ring.apply(&filters).map_err(HostError::io("filtering tracepoints by thread"))?;
        }
        Ok(())
    }

    /// How many CPUs are listened to.
    pub fn cpus(&self) -> usize {
        self.rings.len()
    }

    /// A descriptor of one of them, in order: readable when something happened there.
    pub fn fd(&self, place: usize) -> Option<BorrowedFd<'_>> {
        self.rings.get(place).map(|ring| ring.ring.fd())
    }

    /// Hands out what has happened, oldest first, and forgets it. Allocates nothing once it is warm.
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

impl CpuRing {
    fn open(points: &[Point], cpu: u32) -> std::io::Result<CpuRing> {
        let target = Target::Cpu(cpu as i32);
        let (first, rest) = points.split_first().expect("there are three");
        let ring = Ring::map(Event::open_waking(What::Tracepoint(first.id), target)?, RING_BYTES)?;
        let mut ids = vec![(ring.event.id()?, 0)];
        let mut others = Vec::new();
        for (index, point) in rest.iter().enumerate() {
            let event = Event::open_waking(What::Tracepoint(point.id), target)?;
            event.write_into(&ring)?;
            ids.push((event.id()?, index + 1));
            others.push(event);
        }
        Ok(CpuRing { ring, others, ids })
    }

    fn apply(&self, filters: &[CString]) -> std::io::Result<()> {
        for (event, filter) in std::iter::once(&self.ring.event).chain(&self.others).zip(filters) {
            event.filter(filter)?;
            event.enable()?;
        }
        Ok(())
    }

    /// Body: event number, time, length of the raw part, the raw part.
    fn decode(&self, points: &[Point], body: &[u8]) -> Option<(u64, Followed)> {
        let (number, at) = (u64_at(body, 0)?, u64_at(body, 8)?);
        let raw = body.get(20..20 + u32_at(body, 16)? as usize)?;
        let (_, index) = self.ids.iter().find(|(id, _)| *id == number)?;
        let point = &points[*index];
        let tid = u32::try_from(point.thread.number(raw)?).ok()?;
        let event = match point.kind {
            Kind::Waking => Followed::Woken { tid },
            Kind::Fork { child } => {
                Followed::Forked { parent: tid, child: u32::try_from(child.number(raw)?).ok()? }
            }
            Kind::Exit => Followed::Exited { tid },
        };
        Some((at, event))
    }
}

fn filter(field: &str, threads: &BTreeSet<u32>) -> CString {
    let mut text = String::new();
    if threads.len() <= FILTERED_THREADS {
        for tid in threads {
            let _ = write!(text, "{}{field} == {tid}", if text.is_empty() { "" } else { " || " });
        }
    }
    if text.is_empty() {
        // No thread has number -1; and with too many to name, everything but the idle task.
        let _ = write!(text, "{field} {}", if threads.is_empty() { "== -1" } else { "!= 0" });
    }
    CString::new(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_name_few_threads_and_pass_many() {
        let text = |threads: &[u32]| filter("pid", &threads.iter().copied().collect()).into_string().unwrap();
        assert_eq!(text(&[]), "pid == -1");
        assert_eq!(text(&[7, 9]), "pid == 7 || pid == 9");
        assert_eq!(text(&(1..100).collect::<Vec<_>>()), "pid != 0");
    }
}
