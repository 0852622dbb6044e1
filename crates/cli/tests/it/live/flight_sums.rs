//! What the kernel sums up for `schedlab flight` is what the analyses find in the recording of the
//! same time: one meaning of a wait, in two places.

use super::flight_service::Service;
use super::*;
use rustix::process::Signal;
use schedlab_model::{Ns, TaskId};
use schedlab_trace::Recording;
use schedlab_trace::analysis::Scope;
use schedlab_trace::analysis::follow::{Followed, Listener, Span, ThreadState, Wait};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// The threads: one that hands work on, one that takes it, one that computes beside them.
const NAMES: [&str; 3] = ["sl-sums-a", "sl-sums-b", "sl-sums-c"];

/// What the threads are to do.
const WAIT: u8 = 0;
const WORK: u8 = 1;
const END: u8 = 2;

/// Bounds of the classic histogram: powers of two of a microsecond.
const BOUNDS: usize = 25;

#[derive(Clone, Debug, Default)]
struct Sums {
    waits: u64,
    waited: Ns,
    ran: Ns,
    /// By bucket of the classic histogram; the last has what is longer.
    lengths: [u64; BOUNDS + 1],
}

/// The sums of each name, from a recording.
struct Found<'a> {
    recording: &'a Recording,
    by_name: BTreeMap<String, Sums>,
}

impl Found<'_> {
    fn of(&mut self, task: TaskId) -> &mut Sums {
        let name = self.recording.task(task).comm.clone();
        self.by_name.entry(name).or_default()
    }
}

impl Listener for Found<'_> {
    fn span(&mut self, span: &Span) {
        if span.state == ThreadState::Running {
            self.of(span.task).ran += span.length();
        }
    }

    fn wait(&mut self, wait: &Wait<'_>) {
        let length = wait.total();
        let sums = self.of(wait.task);
        sums.waits += 1;
        sums.waited += length;
        let bucket = (0..BOUNDS).find(|octave| length.0 <= 1000 << octave).unwrap_or(BOUNDS);
        sums.lengths[bucket] += 1;
    }
}

fn value(metrics: &str, begin: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(begin));
    line.map_or(0.0, |rest| rest.trim().parse().expect("a number"))
}

/// The sums of a name, from the metrics.
fn told(metrics: &str, name: &str) -> Sums {
    let seconds = |text: &str| Ns((value(metrics, text) * 1e9) as u64);
    let mut below = 0;
    let mut lengths = [0; BOUNDS + 1];
    for (octave, length) in lengths.iter_mut().enumerate() {
        let bound = (1u64 << octave) as f64 / 1e6;
        let bound = if octave == BOUNDS { "+Inf".to_owned() } else { format!("{bound:?}") };
        let begin = format!("schedlab_wait_seconds_bucket{{le=\"{bound}\",command=\"{name}\"}}");
        // Very small ones are written with an exponent.
        let other = format!("{:e}", (1u64 << octave) as f64 / 1e6);
        let other = begin.replace(&bound, &other);
        let all = value(metrics, &begin).max(value(metrics, &other)) as u64;
        *length = all - below;
        below = all;
    }
    Sums {
        waits: value(metrics, &format!("schedlab_wait_seconds_count{{command=\"{name}\"}}")) as u64,
        waited: seconds(&format!("schedlab_wait_seconds_sum{{command=\"{name}\"}}")),
        ran: seconds(&format!("schedlab_run_seconds_total{{command=\"{name}\"}}")),
        lengths,
    }
}

/// Both are as many, but for what happened while one of them was read.
fn agree(what: &str, kernel: u64, recording: u64, slack: u64) {
    let apart = kernel.abs_diff(recording);
    assert!(
        apart <= recording / 50 + slack,
        "{what}: {kernel} in the kernel, {recording} recorded"
    );
}

fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn become_thread(name: &str) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(0);
    rustix::thread::sched_setaffinity(None, &only).expect("its own CPUs");
    rustix::thread::set_name(std::ffi::CString::new(name).expect("no zero").as_c_str())
        .expect("its own name");
}

/// One of the threads.
fn work(at: usize, phase: &AtomicU8, out: &SyncSender<()>, from: &Receiver<()>) {
    become_thread(NAMES[at]);
    loop {
        match phase.load(Ordering::Relaxed) {
            WAIT => std::thread::sleep(Duration::from_millis(50)),
            END => return,
            _ if at == 0 => {
                spin(Duration::from_micros(100));
                let _ = out.try_send(());
                std::thread::sleep(Duration::from_micros(200));
            }
            _ if at == 1 => {
                if from.recv_timeout(Duration::from_millis(20)).is_ok() {
                    spin(Duration::from_micros(50));
                }
            }
            _ => spin(Duration::from_millis(1)),
        }
    }
}

#[test]
fn the_kernels_sums_are_those_of_the_recording() {
    let name = "the_kernels_sums_are_those_of_the_recording";
    let Some(_turn) = turn(name) else { return };
    let phase = &AtomicU8::new(WAIT);
    std::thread::scope(|threads| {
        // The second hears the first; the third is alone.
        let (out, from) = sync_channel(1);
        let (unused, nothing) = sync_channel(1);
        threads.spawn(move || work(0, phase, &out, &nothing));
        threads.spawn(move || work(1, phase, &unused, &from));
        let (unused, nothing) = sync_channel(1);
        threads.spawn(move || work(2, phase, &unused, &nothing));
        let sums = std::panic::catch_unwind(|| summed(name, phase));
        phase.store(END, Ordering::Relaxed);
        let Ok(Some((metrics, path, _folder))) = sums else {
            return assert!(sums.is_ok(), "see above");
        };
        compare(&metrics, &Recording::open(&path).expect("the ring"));
    });
}

/// Lets the threads work for two seconds, and returns the metrics and the recording of that time.
fn summed(name: &str, phase: &AtomicU8) -> Option<(String, std::path::PathBuf, Service)> {
    let rules = "folder = 'OUT'\nring = '60s'\nmetrics = 'unix:OUT/metrics'\nby = 'command'\n";
    let Some(mut service) = Service::start(rules) else {
        crate::skip(name, "no setpriv");
        return None;
    };
    let started = service.line("started");
    let message = started["message"].as_str().unwrap_or_default();
    assert!(message.contains("the kernel sums up"), "{message}");
    phase.store(WORK, Ordering::Relaxed);
    std::thread::sleep(Duration::from_secs(2));
    phase.store(WAIT, Ordering::Relaxed);
    // The sums are read once a second, and the threads sleep by now.
    std::thread::sleep(Duration::from_secs(3));
    let metrics = service.metrics();
    service.signal(Signal::USR1);
    service.line("written");
    let path = service.recording("-asked.slt").expect("it was written");
    Some((metrics, path, service))
}

fn compare(metrics: &str, recording: &Recording) {
    assert_eq!(value(metrics, "schedlab_events_lost_total"), 0.0);
    let found = Found { recording, by_name: BTreeMap::new() };
    let found = Followed::over(recording, &Scope::default(), found);
    for name in NAMES {
        let (kernel, recorded) = (told(metrics, name), &found.by_name[name]);
        assert!(recorded.waits > 20, "{name} waited: {recorded:?}");
        agree(&format!("{name}: waits"), kernel.waits, recorded.waits, 100);
        // A millisecond for those that ended between both looks.
        agree(&format!("{name}: waited"), kernel.waited.0, recorded.waited.0, 1_000_000);
        agree(&format!("{name}: ran"), kernel.ran.0, recorded.ran.0, 1_000_000);
        for (octave, (kernel, recorded)) in kernel.lengths.iter().zip(&recorded.lengths).enumerate()
        {
            agree(&format!("{name}: waits up to 2^{octave} us"), *kernel, *recorded, 100);
        }
    }
    // The one that computes delays the others on their CPU.
    let delay = |waited: &str, ran: &str| {
        let labels = format!("command=\"{waited}\",culprit=\"{ran}\"");
        value(metrics, &format!("schedlab_delay_seconds_total{{{labels}}}"))
    };
    let (by_c, waited) = (delay(NAMES[0], NAMES[2]), told(metrics, NAMES[0]).waited.0 as f64 / 1e9);
    assert!(by_c > 0.0 && by_c <= waited * 1.001, "{by_c} of {waited}");
}
