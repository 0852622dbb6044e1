//! What this kernel's tracepoints can be trusted with, measured before each recording (some
//! milliseconds).

use super::raw::Records;
use crate::sys::perf::{Target, What};
use crate::sys::{Event, Ring};
use crate::tracefs::{Field, PseudoFs};
use crate::{HostError, proc};
use perf_event_open_sys::bindings as abi;
use schedlab_model::{CpuId, CpuSet};
use std::time::Duration;

/// Preemption levels in `common_preempt_count`; the upper half counts migration disabling
/// (Linux 5.15+).
pub(crate) const PREEMPT_LEVELS: i64 = 0x0f;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Calibration {
    /// Levels that stand in `common_preempt_count` when the traced code holds none: recording
    /// itself holds one on kernels up to at least 6.18. Measured with the exit of a thread of our
    /// own, which the kernel reports while it holds nothing. `None`: no such record came.
    pub(crate) own_levels: Option<i64>,
    /// CPUs on which a switch away from the idle task was seen. There are virtual machines in which
    /// whatever happens while certain tasks run is not recorded (seen on a Firecracker guest
    /// with 6.18, neither by perf nor by ftrace: the idle task of CPU 1 and the threads of
    /// process 1, from which it was cloned); and a CPU that never idles proves nothing.
    pub(crate) idle_seen: CpuSet,
}

struct Probe {
    switch: u64,
    prev_pid: Field,
    next_pid: Field,
    exit: u64,
    pid: Field,
    preempt_count: Field,
}

/// Lets one thread sleep shortly on each CPU and looks at what its switches and its exit leave in
/// the rings.
pub(crate) fn calibrate(fs: &PseudoFs, cpus: &CpuSet) -> Result<Calibration, HostError> {
    let switch = fs.tracepoint("sched/sched_switch")?;
    let exit = fs.tracepoint("sched/sched_process_exit")?;
    let probe = Probe {
        switch: switch.id,
        prev_pid: switch.field("prev_pid")?,
        next_pid: switch.field("next_pid")?,
        exit: exit.id,
        pid: exit.field("common_pid")?,
        preempt_count: exit.field("common_preempt_count")?,
    };
    let mut result = Calibration { own_levels: None, idle_seen: CpuSet::EMPTY };
    for cpu in cpus.iter() {
        // A CPU that cannot be measured (it went off line, say) counts as not proven.
        let _ = one(&probe, cpu, &mut result);
    }
    Ok(result)
}

fn one(probe: &Probe, cpu: CpuId, result: &mut Calibration) -> std::io::Result<()> {
    let open = |id| Event::open(What::Tracepoint(id), Target::Cpu(cpu.0 as i32));
    let mut ring = Ring::map(open(probe.switch)?, 128 << 10)?;
    let exits = open(probe.exit)?;
    exits.write_into(&ring)?;
    let exit_id = exits.id()?;
    ring.event.enable()?;
    exits.enable()?;
    let thread = std::thread::spawn(move || {
        let mut only = rustix::thread::CpuSet::new();
        only.set(cpu.index());
        let pinned = rustix::thread::sched_setaffinity(None, &only).is_ok();
        for _ in 0..if pinned { 3 } else { 0 } {
            std::thread::sleep(Duration::from_micros(100));
        }
        rustix::thread::gettid().as_raw_nonzero().get()
    });
    let Ok(tid) = thread.join() else { return Ok(()) };
    let mut bytes = Vec::new();
    // `join` returns shortly before or after the thread's exit is reported.
    for _ in 0..20 {
        ring.drain(&mut bytes);
        let mut exited = false;
        for record in Records::new(&bytes) {
            let Some(raw) =
                record.body.get(20..).filter(|_| record.kind == abi::PERF_RECORD_SAMPLE)
            else {
                continue;
            };
            let is = |field: Field, value: i64| field.number(raw) == Some(value);
            if super::raw::u64_at(record.body, 0) == Some(exit_id) {
                if is(probe.pid, i64::from(tid)) {
                    exited = true;
                    result.own_levels =
                        probe.preempt_count.number(raw).map(|count| count & PREEMPT_LEVELS);
                }
            } else if is(probe.prev_pid, 0) && is(probe.next_pid, i64::from(tid)) {
                result.idle_seen.insert(cpu);
            }
        }
        if exited {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// ksoftirqd, and on PREEMPT_RT the timer and interrupt threads: what they run came from
/// interrupts.
pub(crate) fn softirq_threads() -> Vec<u32> {
    let serves = |tid: &u32| {
        let comm = crate::proc::text(&format!("/proc/{tid}/comm")).unwrap_or_default();
        ["ksoftirqd/", "ktimers/", "irq/"].iter().any(|name| comm.starts_with(name))
    };
    proc::processes().into_iter().filter(serves).collect()
}
