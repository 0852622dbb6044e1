//! What the BPF recorder says of limits and system calls, on tasks that this test starts: a spinner
//! in a control group with a small `cpu.max`, and a thread that blocks in calls whose numbers are
//! known. Where that is not allowed the tests say so by name and pass, except under `CI=true` as
//! root.
#![allow(clippy::print_stderr)]

use crate::common::{Kept, Tids, looking, skip};
use schedlab_host::{Backend, HostError, RecordRequest, RecordUntil, record};
use schedlab_model::{EventKind, Ns, SchedEvent, TaskId};
use schedlab_testing::turn;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Records by BPF until `enough` was seen, at most a minute: what was recorded.
fn bpf(
    enough: &mut dyn FnMut(&SchedEvent, &Tids) -> bool,
) -> Result<Kept<impl FnMut(&SchedEvent, &Tids)>, HostError> {
    let over = Rc::new(Cell::new(false));
    let seen_enough = Rc::clone(&over);
    let mut seen = looking(move |event, tids| {
        if enough(event, tids) {
            seen_enough.set(true);
        }
    });
    let duration = Some(Ns::from_ms(60_000));
    let request = RecordRequest {
        backend: Some(Backend::Bpf),
        duration,
        ..RecordRequest::new(RecordUntil::Stopped)
    };
    record(&request, &mut seen, &|| over.get())?;
    Ok(seen)
}

/// Ended and waited for, whatever happens.
struct Spinner(Child);

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn fail(what: &str) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{what}: {error}")
}

/// A control group that goes when it is dropped; no thread may be in it by then.
struct Group(PathBuf);

impl Group {
    /// With 1 ms of CPU time in each 50 ms.
    fn new() -> Result<Group, String> {
        let v1 = Path::new("/sys/fs/cgroup/cpu");
        let (root, v1) = if v1.join("cgroup.procs").exists() {
            (v1, true)
        } else {
            (Path::new("/sys/fs/cgroup"), false)
        };
        let path = root.join(format!("schedlab-limits-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(fail("making a control group"))?;
        let group = Group(path);
        let write =
            |file: &str, text: &str| std::fs::write(group.0.join(file), text).map_err(fail(file));
        if v1 {
            write("cpu.cfs_period_us", "50000")?;
            write("cpu.cfs_quota_us", "1000")?;
        } else {
            write("cpu.max", "1000 50000")?;
        }
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that was just waited for may be in it for another moment.
        for _ in 0..200 {
            if std::fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// The first switch after the first event on its CPU.
fn next_switch(events: &[SchedEvent]) -> Option<EventKind> {
    let switch = |event: &&SchedEvent| {
        event.cpu == events[0].cpu && matches!(event.kind, EventKind::Switch { .. })
    };
    events.iter().find(switch).map(|event| event.kind)
}

#[test]
fn cpu_max_is_seen_to_hold_and_to_release() {
    let _turn = turn();
    const TEST: &str = "cpu_max_is_seen_to_hold_and_to_release";
    let group = match Group::new() {
        Ok(group) => group,
        Err(why) => return skip(TEST, &why),
    };
    let spin = Command::new("sh")
        .args(["-c", "while :; do :; done"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let spinner = Spinner(spin);
    let tid = spinner.0.id();
    if let Err(error) = std::fs::write(group.0.join("cgroup.procs"), tid.to_string()) {
        return skip(TEST, &format!("moving a process: {error}"));
    }
    // Whatever the load: it spins, so its millisecond ends, again and again.
    let mut ended = 0;
    let mut enough = |event: &SchedEvent, tids: &Tids| {
        let of = |task| tids.get(&task) == Some(&tid);
        ended += usize::from(matches!(event.kind, EventKind::Unthrottle { task } if of(task)));
        ended >= 5
    };
    let seen = match bpf(&mut enough) {
        Ok(seen) => seen,
        Err(error) => return skip(TEST, &error.to_string()),
    };
    drop(spinner);
    if !seen.start.as_ref().is_some_and(|start| start.capabilities.limits) {
        // Before Linux 6.18 tasks are not throttled one by one.
        return eprintln!("SKIPPED {TEST}: this kernel does not say which tasks it throttles");
    }
    let of = |task: TaskId| seen.tids.get(&task) == Some(&tid);
    let (mut held, mut times) = (false, 0);
    for (at, event) in seen.events.iter().enumerate() {
        match event.kind {
            EventKind::Throttle { task } if of(task) => {
                assert!(!held, "held twice");
                held = true;
                let next = next_switch(&seen.events[at..]);
                let leaves = matches!(next, Some(EventKind::Switch { prev: Some(prev), prev_state, .. })
                    if prev == task && prev_state.is_runnable() == Some(true));
                assert!(leaves, "it leaves the CPU, runnable: {next:?}");
            }
            EventKind::Unthrottle { task } if of(task) => {
                assert!(held, "nobody held it");
                (held, times) = (false, times + 1);
            }
            EventKind::Switch { next: Some(task), .. } if of(task) => {
                assert!(!held, "it runs while it is held")
            }
            _ => {}
        }
    }
    assert!(times >= 5, "{times} times in {} events", seen.events.len());
}

#[test]
fn a_task_that_blocks_is_in_its_system_call() {
    let _turn = turn();
    const TEST: &str = "a_task_that_blocks_is_in_its_system_call";
    /// Numbers of x86-64.
    const FUTEX: u32 = 202;
    const CLOCK_NANOSLEEP: u32 = 230;
    if !cfg!(target_arch = "x86_64") {
        return eprintln!("SKIPPED {TEST}: the numbers are those of x86-64");
    }
    let over = AtomicBool::new(false);
    let tids = [const { AtomicU32::new(0) }; 2];
    let result = std::thread::scope(|scope| {
        for (index, tid) in tids.iter().enumerate() {
            let over = &over;
            scope.spawn(move || {
                tid.store(
                    rustix::thread::gettid().as_raw_nonzero().get() as u32,
                    Ordering::Release,
                );
                while !over.load(Ordering::Relaxed) {
                    let time = Duration::from_millis(1);
                    if index == 0 {
                        std::thread::sleep(time)
                    } else {
                        std::thread::park_timeout(time)
                    }
                }
            });
        }
        let mut counts = [0; 2];
        let mut enough = |event: &SchedEvent, known: &Tids| {
            if let EventKind::SyscallEnter { task, number } = event.kind {
                for (i, (tid, call)) in tids.iter().zip([CLOCK_NANOSLEEP, FUTEX]).enumerate() {
                    let own = known.get(&task) == Some(&tid.load(Ordering::Acquire));
                    counts[i] += usize::from(own && number == call);
                }
            }
            counts.iter().all(|&count| count >= 20)
        };
        let seen = bpf(&mut enough).map(|seen| (seen.events, seen.tids));
        over.store(true, Ordering::Relaxed);
        seen.map(|seen| (seen, counts))
    });
    let ((events, known), counts) = match result {
        Ok(seen) => seen,
        Err(error) => return skip(TEST, &error.to_string()),
    };
    assert!(counts.iter().all(|&count| count >= 20), "{counts:?} in {} events", events.len());
    // A call is directly before the switch of its task; threads of the kernel have none.
    for (at, event) in events.iter().enumerate() {
        let EventKind::SyscallEnter { task, .. } = event.kind else { continue };
        let next = next_switch(&events[at..]);
        let blocks = matches!(next, Some(EventKind::Switch { prev, prev_state, .. })
            if prev == Some(task) && prev_state.is_runnable() == Some(false));
        assert!(blocks, "{} {:?} is followed by {next:?}", known[&task], event.kind);
    }
}
