//! The BPF scheduler in the kernel, by libbpf: loading, the ring of events, and the program that
//! takes decisions. Nothing is mapped: a batch is copied into the kernel and back with its
//! statuses, one system call for up to [`BATCH`](crate::wire::BATCH) decisions.

use crate::ExtError;
use crate::wire::{self, BATCH, BATCH_BYTES, CONTROL, Control, Decision, Event};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, PrintLevel, ProgramInput,
    RingBufferBuilder,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use schedlab_model::Ns;
use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::time::Duration;

/// Aligned, because libbpf looks at its headers in place.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/ext.bpf.o")));

/// After so long without a commit CPUs take waiting threads by themselves: six heartbeats. The part
/// in the kernel looks every quarter of it and at each tick, and a dying process needs tens of
/// milliseconds before the kernel unloads its scheduler: a thread that waits shall have a CPU
/// within 100 ms all the same. (With 100 ms here one gap of 114 ms was measured in a guest, whose
/// cause was not shown; with 60 the longest after 100 kills was 60.)
pub(crate) const SILENCE: Duration = Duration::from_millis(60);

/// The programs, loaded and checked by the kernel, and the scheduler, once it is attached. When it
/// is dropped, the kernel unloads it; also when this process dies, whatever ends it.
pub(crate) struct Kernel {
    object: Object,
    link: Option<Link>,
    events: MapHandle,
    control: MapHandle,
}

/// What libbpf warned of; the last lines are the kernel's reason.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// So many of those lines are told: the verifier writes thousands before it says what is wrong.
const TOLD: usize = 6;

fn warned(_: PrintLevel, text: String) {
    if let Ok(mut lines) = WARNINGS.lock() {
        lines.extend(
            text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()),
        );
        let old = lines.len().saturating_sub(TOLD);
        lines.drain(..old);
    }
}

fn failed(what: &'static str) -> impl Fn(libbpf_rs::Error) -> ExtError {
    move |error| {
        let more = WARNINGS
            .lock()
            .map(|mut lines| lines.drain(..).collect::<Vec<_>>().join("; "))
            .unwrap_or_default();
        ExtError::Load { what, reason: format!("{error:#} ({more})") }
    }
}

impl Kernel {
    /// Loads the programs. No thread is concerned yet.
    ///
    /// # Errors
    /// When the kernel does not take them.
    pub(crate) fn load() -> Result<Kernel, ExtError> {
        libbpf_rs::set_print(Some((PrintLevel::Warn, warned)));
        let mut builder = ObjectBuilder::default();
        let builder = builder.name("schedlab").map_err(failed("naming the object"))?;
        let mut open = builder.open_memory(&OBJECT.0).map_err(failed("reading the object"))?;
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata")
                && let Some(value) = map.initial_value_mut()
                && let Some(silence) = value.get_mut(..8)
            {
                silence.copy_from_slice(&(SILENCE.as_nanos() as u64).to_ne_bytes());
            }
        }
        let object = open.load().map_err(failed("loading the programs"))?;
        let find = |name: &str| {
            let map = object.maps().find(|map| map.name() == name);
            let map =
                map.ok_or(ExtError::Load { what: "finding a map", reason: name.to_owned() })?;
            MapHandle::try_from(&map).map_err(failed("sharing a map"))
        };
        let (events, control) = (find("events")?, find("control")?);
        Ok(Kernel { object, link: None, events, control })
    }

    /// Makes it the kernel's scheduler of SCHED_EXT threads.
    ///
    /// # Errors
    /// When another one is (EBUSY), or the kernel refuses.
    pub(crate) fn attach(&mut self) -> Result<(), ExtError> {
        let ops = self.object.maps_mut().find(|map| map.name() == "schedlab_ops");
        let ops =
            ops.ok_or(ExtError::Load { what: "finding a map", reason: "schedlab_ops".to_owned() });
        let link =
            ops?.attach_struct_ops().map_err(|error| match schedlab_host::sched_ext::here() {
                // One that came between the look before and now.
                Some(state)
                    if error.kind() == libbpf_rs::ErrorKind::Other
                        && state.scheduler().is_some() =>
                {
                    ExtError::Active { name: state.scheduler().unwrap_or_default().to_owned() }
                }
                _ => failed("attaching the scheduler")(error),
            })?;
        self.link = Some(link);
        Ok(())
    }

    /// Unloads the scheduler: its threads are the fair class's from now on.
    pub(crate) fn detach(&mut self) {
        self.link = None;
    }

    /// Returns what the kernel counted, and why it unloaded the scheduler.
    pub(crate) fn control(&self) -> Control {
        control(&self.control)
    }

    /// Calls `work` with the open ends of a loaded scheduler.
    ///
    /// # Errors
    /// When the ring cannot be opened.
    pub(crate) fn with<R>(&mut self, work: impl FnOnce(&mut Ends<'_>) -> R) -> Result<R, ExtError> {
        let heard: RefCell<Vec<Event>> = RefCell::new(Vec::with_capacity(1024));
        let mut builder = RingBufferBuilder::new();
        let keep = |bytes: &[u8]| {
            heard.borrow_mut().extend(Event::decode(bytes));
            0
        };
        builder.add(&self.events, keep).map_err(failed("opening the ring of events"))?;
        let ring = builder.build().map_err(failed("opening the ring of events"))?;
        let commit = self.object.progs_mut().find(|program| program.name() == "commit");
        let commit = commit
            .ok_or(ExtError::Load { what: "finding a program", reason: "commit".to_owned() })?;
        let (events, control) = (&self.events, &self.control);
        let mut ends =
            Ends { events, control, ring, heard: &heard, commit, batch: [0; BATCH_BYTES] };
        Ok(work(&mut ends))
    }
}

fn control(map: &MapHandle) -> Control {
    let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
    value
        .filter(|bytes| bytes.len() >= CONTROL)
        .and_then(|bytes| Control::decode(&bytes))
        .unwrap_or_default()
}

/// See [`Kernel::with`].
pub(crate) struct Ends<'k> {
    events: &'k MapHandle,
    control: &'k MapHandle,
    ring: libbpf_rs::RingBuffer<'k>,
    heard: &'k RefCell<Vec<Event>>,
    commit: libbpf_rs::ProgramMut<'k>,
    batch: [u8; BATCH_BYTES],
}

impl Ends<'_> {
    /// Sleeps until an event asks for a decision or `bell` is readable, at most for `time`.
    pub(crate) fn wait(&self, bell: BorrowedFd<'_>, time: Ns) {
        let mut fds = [
            PollFd::from_borrowed_fd(self.events.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(bell, PollFlags::IN),
        ];
        let time = Timespec {
            tv_sec: (time.0 / 1_000_000_000) as i64,
            tv_nsec: (time.0 % 1_000_000_000) as i64,
        };
        // An interrupted sleep is a short one.
        let _ = poll(&mut fds, Some(&time));
    }

    /// Puts the events since the last call into `events`, in the order of the ring.
    pub(crate) fn events(&self, events: &mut Vec<Event>) {
        events.clear();
        self.ring.consume_raw();
        events.append(&mut self.heard.borrow_mut());
    }

    /// Carries out decisions and puts the kernel's answers into them. Also without any it tells the
    /// kernel that the agent lives.
    ///
    /// # Errors
    /// When the program does not run.
    pub(crate) fn commit(&mut self, decisions: &mut [Decision]) -> Result<(), ExtError> {
        let mut left = decisions;
        loop {
            let (some, rest) = left.split_at_mut(left.len().min(BATCH));
            wire::encode(some, &mut self.batch);
            let input =
                ProgramInput { context_in: Some(&mut self.batch), ..ProgramInput::default() };
            self.commit.test_run(input).map_err(failed("running the program of decisions"))?;
            wire::answers(&self.batch, some);
            if rest.is_empty() {
                return Ok(());
            }
            left = rest;
        }
    }

    /// See [`Kernel::control`].
    pub(crate) fn control(&self) -> Control {
        control(self.control)
    }
}
