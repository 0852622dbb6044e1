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
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// The threads: one that hands work on, one that takes it, one that computes beside them.
const NAMES: [&str; 3] = ["sl-sums-a", "sl-sums-b", "sl-sums-c"];

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
        let bound = if octave == BOUNDS { "+Inf".to_owned() } else { bound.to_string() };
        let begin = format!("schedlab_wait_seconds_bucket{{le=\"{bound}\",command=\"{name}\"}}");
        let all = value(metrics, &begin) as u64;
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

/// Both have the same waits, but for as many as the reader of recordings has repaired (it knows
/// what came later) and the few that ended between both looks; and the time of the others is the
/// same.
fn agree(name: &str, kernel: &Sums, recorded: &Sums, repaired: u64) {
    let both = kernel.lengths.iter().zip(&recorded.lengths);
    let apart: Vec<u64> = both.map(|(kernel, recorded)| kernel.abs_diff(*recorded)).collect();
    let said =
        || format!("{name}: {kernel:?} in the kernel, {recorded:?} recorded, {repaired} repaired");
    assert!(apart.iter().sum::<u64>() <= repaired + recorded.waits / 200 + 4, "{}", said());
    let longest = apart.iter().enumerate().map(|(octave, count)| count * (1000 << octave));
    let waited = kernel.waited.0.abs_diff(recorded.waited.0);
    assert!(waited <= longest.sum::<u64>() + recorded.waited.0 / 1000 + 1_000_000, "{}", said());
    let ran = kernel.ran.0.abs_diff(recorded.ran.0);
    // A repair decides for how long a task ran that left its CPU unseen.
    assert!(ran <= recorded.ran.0 / 50 + 1_000_000 * (1 + repaired), "{}", said());
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

/// One of the threads: works when it is told to, as long as `busy` says so, and sleeps otherwise.
fn work(at: usize, orders: &Receiver<()>, busy: &AtomicBool, (out, from): &Pipe) {
    become_thread(NAMES[at]);
    while orders.recv().is_ok() {
        while busy.load(Ordering::Relaxed) {
            match at {
                0 => {
                    spin(Duration::from_micros(100));
                    let _ = out.try_send(());
                    std::thread::sleep(Duration::from_micros(200));
                }
                1 => {
                    if from.recv_timeout(Duration::from_millis(20)).is_ok() {
                        spin(Duration::from_micros(50));
                    }
                }
                _ => spin(Duration::from_millis(1)),
            }
        }
    }
}

/// What a thread hands on, and what it takes.
type Pipe = (SyncSender<()>, Receiver<()>);

#[test]
fn the_kernels_sums_are_those_of_the_recording() {
    let name = "the_kernels_sums_are_those_of_the_recording";
    let Some(_turn) = turn(name) else { return };
    let busy = &AtomicBool::new(false);
    std::thread::scope(|threads| {
        // The second hears the first; the third is alone. Without orders they end.
        let ((to_second, of_first), (to_none, of_none)) = (sync_channel(1), sync_channel(1));
        let (third_out, third_from) = sync_channel(1);
        let pipes = [(to_second, of_none), (to_none, of_first), (third_out, third_from)];
        let start = |(at, pipe): (usize, Pipe)| {
            let (order, orders) = sync_channel(1);
            threads.spawn(move || work(at, &orders, busy, &pipe));
            order
        };
        let orders: Vec<SyncSender<()>> = pipes.into_iter().enumerate().map(start).collect();
        let Some((metrics, path, _service)) = summed(name, busy, &orders) else { return };
        drop(orders);
        compare(&metrics, &Recording::open(&path).expect("the ring"));
    });
}

/// Tells the threads to stop, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Lets the threads work for two seconds, and returns the metrics and the recording of that time.
fn summed(
    name: &str,
    busy: &AtomicBool,
    orders: &[SyncSender<()>],
) -> Option<(String, PathBuf, Service)> {
    let rules = "folder = 'OUT'\nring = '60s'\nmetrics = 'unix:OUT/metrics'\nby = 'command'\n";
    let Some(mut service) = Service::start(rules) else {
        crate::skip(name, "no setpriv");
        return None;
    };
    let started = service.line("started");
    let message = started["message"].as_str().unwrap_or_default();
    assert!(message.contains("the kernel sums up"), "{message}");
    busy.store(true, Ordering::Relaxed);
    let stop = Stop(busy);
    orders.iter().for_each(|order| order.send(()).expect("the thread waits for it"));
    std::thread::sleep(Duration::from_secs(2));
    drop(stop);
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
    let of = &recording.repairs;
    let repaired = of.inconsistent_switches + of.early_wakes + of.missing_wakes;
    let found = Found { recording, by_name: BTreeMap::new() };
    let found = Followed::over(recording, &Scope::default(), found);
    for name in NAMES {
        let (kernel, recorded) = (told(metrics, name), &found.by_name[name]);
        assert!(recorded.waits > 20, "{name} waited: {recorded:?}");
        agree(name, &kernel, recorded, repaired);
    }
    // The one that computes delays the others on their CPU.
    let delay = |waited: &str, ran: &str| {
        let labels = format!("command=\"{waited}\",culprit=\"{ran}\"");
        value(metrics, &format!("schedlab_delay_seconds_total{{{labels}}}"))
    };
    let (by_c, waited) = (delay(NAMES[0], NAMES[2]), told(metrics, NAMES[0]).waited.0 as f64 / 1e9);
    assert!(by_c > 0.0 && by_c <= waited * 1.001, "{by_c} of {waited}");
}
