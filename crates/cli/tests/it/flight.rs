//! The flight recorder on the built binary: a real-time hog of 60 ms, planted on threads of this
//! test, is caught. Machines that do not allow the recording or the policy skip by name; with
//! `CI=true` that is a failure.
#![allow(clippy::print_stderr)]

use schedlab_model::{EventKind, Ns};
use schedlab_testing::{settles, turn};
use schedlab_trace::Recording;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Longer than what a hypervisor usually takes at once, so that the wait that is caught is the
/// hog's doing.
const HOG: Duration = Duration::from_millis(60);
const CAUGHT: Duration = Duration::from_millis(45);
/// The hog rests this long, so that real-time throttling has no part in it.
const BETWEEN: Duration = Duration::from_millis(400);

fn skip(why: &str) {
    assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "it must work here: {why}");
    eprintln!("SKIPPED a_planted_hog_is_caught: {why}");
}

fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What this thread has had of the CPU.
fn cpu_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Bound to CPU 0, under `name`; its thread id.
fn become_thread(name: &str) -> u32 {
    let mut only = rustix::thread::CpuSet::new();
    only.set(0);
    rustix::thread::sched_setaffinity(None, &only).unwrap();
    rustix::thread::set_name(std::ffi::CString::new(name).unwrap().as_c_str()).unwrap();
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// Tells the victim to end, also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Makes one thread of this test real-time until it ends.
fn make_fifo(tid: &AtomicU64, priority: &str) -> bool {
    while tid.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let tid = tid.load(Ordering::SeqCst).to_string();
    let mut chrt = Command::new("chrt");
    chrt.args(["--fifo", "-p", priority, &tid]).stderr(Stdio::null());
    chrt.status().is_ok_and(|status| status.success())
}

/// Sleeps a millisecond again and again, until it is told to end. It is real-time too, below the
/// hog: whatever else this machine does, only the hog makes it wait.
fn victim(tid: &AtomicU64, over: &AtomicBool) {
    tid.store(u64::from(become_thread("sl-victim")), Ordering::SeqCst);
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One time that the hog had CPU 0, on the monotonic clock in nanoseconds, and what of it the hog
/// used by its own account (without what a hypervisor took).
#[derive(Clone, Copy, Debug)]
struct Spin {
    begin: u64,
    end: u64,
    used: u64,
}

/// From its order on, takes CPU 0 again and again until it is over: a hypervisor that has the CPU
/// itself when the hog begins makes the victim wake late, and its wait short, once or twice, but
/// not for all that time.
fn hog(tid: &AtomicU64, order: &AtomicBool, over: &AtomicBool) -> Vec<Spin> {
    tid.store(u64::from(become_thread("sl-hog")), Ordering::SeqCst);
    while !order.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut spins = Vec::new();
    while !over.load(Ordering::SeqCst) {
        let (begin, before) = (now(), cpu_time());
        while now() - begin < HOG.as_nanos() as u64 {
            std::hint::spin_loop();
        }
        spins.push(Spin { begin, end: now(), used: cpu_time() - before });
        std::thread::sleep(BETWEEN);
    }
    spins
}

#[test]
fn a_planted_hog_is_caught() {
    let _turn = turn();
    // A hypervisor may take the CPU just when the hog gives it away.
    settles(3, planted_hog_is_caught);
}

fn planted_hog_is_caught() {
    let path =
        schedlab_testing::temp_dir().join(format!("schedlab-incident-{}.slt", std::process::id()));
    let (over, order) = (AtomicBool::new(false), AtomicBool::new(false));
    let (tid, victim_tid) = (AtomicU64::new(0), AtomicU64::new(0));
    let (mut spins, mut out) = (Vec::new(), None);
    std::thread::scope(|scope| {
        let _end = End(&over);
        scope.spawn(|| victim(&victim_tid, &over));
        let mut fifo = make_fifo(&victim_tid, "1");
        let spinner = scope.spawn(|| hog(&tid, &order, &over));
        let mut recorder = Command::new(env!("CARGO_BIN_EXE_schedlab"))
            .args([
                "record",
                "--ring",
                "3s",
                "--until",
                "sl-victim wait > 45ms",
                "--for",
                "20s",
                "--json",
            ])
            .args(["--backend", "bpf", "-o"])
            .arg(&path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It says first what it sees, and is ready then. (Or it ends: then there is no line.)
        let mut said = BufReader::new(recorder.stderr.take().unwrap());
        let mut first = String::new();
        said.read_line(&mut first).unwrap();
        fifo &= make_fifo(&tid, "2");
        order.store(true, Ordering::SeqCst);
        let mut done = recorder.wait_with_output().unwrap();
        over.store(true, Ordering::SeqCst);
        spins = spinner.join().unwrap();
        done.stderr = first.into_bytes();
        said.read_to_end(&mut done.stderr).unwrap();
        out = fifo.then_some(done);
    });
    let Some(out) = out else { return skip("chrt --fifo is not allowed") };
    if out.status.code() == Some(2) {
        return skip(&String::from_utf8_lossy(&out.stderr));
    }
    let told: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(told["caught"]["task"], "sl-victim", "{told}");
    assert_eq!(told["caught"]["condition"], "sl-victim waited > 45.0ms");
    let recording = Recording::open(&path).unwrap();
    let server = schedlab_study::serve::guess(&recording).expect("the header names it");
    assert_eq!((&*server.name, &*server.why), ("sl-victim", "the recording was made for it"));
    let shown = super::schedlab(&["show", &path.display().to_string()]);
    assert!(shown.stdout.starts_with("sl-victim["), "{shown:?}");
    check(&recording, &told, &spins, tid.into_inner() as u32);
    std::fs::remove_file(path).unwrap();
}

/// The recording has the whole wait, and the task that ran meanwhile.
fn check(recording: &Recording, told: &serde_json::Value, spins: &[Spin], hog: u32) {
    assert!(recording.duration <= Ns::from_ms(3000));
    let (from, length) = (
        told["caught"]["from_ns"].as_u64().unwrap(),
        told["caught"]["length_ns"].as_u64().unwrap(),
    );
    let clock = recording.header.clock_start_ns;
    let mut ran = 0;
    let mut since = None;
    for event in recording.events.iter().filter(|event| event.cpu.0 == 0) {
        let EventKind::Switch { prev, next, .. } = event.kind else { continue };
        let is_hog = |task: Option<schedlab_model::TaskId>| {
            task.is_some_and(|task| recording.task(task).tid == hog)
        };
        if let Some(begin) = since.take().filter(|_| is_hog(prev)) {
            let (begin, end) = (from.max(begin), (from + length).min(event.at.0));
            ran += end.saturating_sub(begin);
        }
        since = is_hog(next).then_some(event.at.0);
    }
    let woken = clock + from;
    // The hog is on the CPU some microseconds before it looks at the clock.
    let spin = spins.iter().find(|spin| spin.begin < woken + length && woken < spin.end);
    let spin = spin.unwrap_or_else(|| panic!("the victim woke at {woken}, in none of {spins:?}"));
    eprintln!("the victim waited {length} ns, {ran} ns of them for the hog: {spin:?}");
    // From the victim's wakeup to the hog's end: the recording has between what the hog used of it
    // and what passed.
    let (passed, before) = (spin.end - woken, woken.saturating_sub(spin.begin));
    assert!(ran + 100_000 > spin.used.saturating_sub(before), "{ran} and {spin:?}");
    assert!(ran < passed + 100_000, "{ran} and {passed}");
    assert!(ran <= length && length >= CAUGHT.as_nanos() as u64);
}
