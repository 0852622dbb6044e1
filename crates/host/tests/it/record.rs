//! Records this machine for real. Where that is not allowed the tests say so by name and pass,
//! except under `CI=true` as root, where it must work.
#![allow(clippy::print_stderr)]

use crate::common::{Kept, Tids, allowed, gettid, kept};
use schedlab_host::{
    Backend, HostError, RecordEnd, RecordFilter, RecordRequest, RecordUntil, TaskFacts, record,
};
use schedlab_model::{CpuId, EventKind, Ns, SchedEvent, Waker};
use schedlab_testing::{settles, turn};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type Keep = Kept<fn(&SchedEvent, &Tids)>;

/// The recording, or `None` (said by name) when this machine does not allow it.
fn recorded(
    test: &str,
    request: &RecordRequest,
    stop: &dyn Fn() -> bool,
) -> Option<(Keep, RecordEnd)> {
    let mut keep = kept();
    let end = allowed(test, record(request, &mut keep, stop))?;
    Some((keep, end))
}

fn request(until: RecordUntil, backend: Backend) -> RecordRequest {
    RecordRequest {
        backend: Some(backend),
        duration: Some(Ns::from_ms(1000)),
        ..RecordRequest::new(until)
    }
}

struct Ended(Vec<Child>);

impl Drop for Ended {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Two endless loops pinned on CPU 0.
fn spinners() -> Ended {
    let spin = || {
        let mut only = rustix::thread::CpuSet::new();
        only.set(0);
        let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::thread::sched_setaffinity(Some(pid), &only).unwrap();
        child
    };
    Ended(vec![spin(), spin()])
}

/// Each task's CPU time in nanoseconds and the number of its slices, from the switches of CPU 0.
fn run_times(events: &[SchedEvent]) -> BTreeMap<u32, (u64, u64)> {
    let mut since: Option<(u32, Ns)> = None;
    let mut times: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for event in events.iter().filter(|event| event.cpu == CpuId(0)) {
        let EventKind::Switch { prev, next, .. } = event.kind else { continue };
        if let (Some((task, from)), Some(prev)) = (since, prev)
            && prev.0 == task
        {
            let entry = times.entry(task).or_default();
            entry.0 += event.at.0 - from.0;
            entry.1 += 1;
        }
        since = next.map(|next| (next.0, event.at));
    }
    times
}

fn two_spinners_share(test: &str, backend: Backend) {
    let children = spinners();
    let pids: Vec<u32> = children.0.iter().map(Child::id).collect();
    // However loaded the machine is: until both have run for a while.
    let used = |pid: &u32| -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
    };
    let before: Vec<u64> = pids.iter().map(used).collect();
    let enough = || {
        pids.iter()
            .zip(&before)
            .all(|(pid, before)| used(pid).saturating_sub(*before) >= 300_000_000)
    };
    let mut wanted = request(RecordUntil::ProcessesEnd(pids.clone()), backend);
    wanted.duration = Some(Ns::from_s(120));
    let Some((keep, _)) = recorded(test, &wanted, &enough) else { return };
    assert!(
        keep.events.windows(2).all(|pair| pair[0].at <= pair[1].at),
        "events are in time order"
    );
    let times = run_times(&keep.events);
    let of = |pid: u32| {
        let task = keep.of_tid(pid).expect("the spinner has facts");
        assert_eq!(task.affinity.to_string(), "0");
        times.get(&task.id.0).copied().unwrap_or_default()
    };
    let (a, b) = (of(pids[0]), of(pids[1]));
    // Whatever else runs on CPU 0 takes its part; the two get equal ones of what is left.
    let sum = a.0 + b.0;
    assert!(sum > 50_000_000, "the spinners ran: {a:?} {b:?}");
    assert!(a.0 * 10 > sum * 4 && b.0 * 10 > sum * 4, "shares {a:?} {b:?}");
    let hz = u64::from(keep.start.as_ref().unwrap().machine.hz);
    let mean_slice = sum / (a.1 + b.1).max(1);
    assert!(mean_slice < 10_000_000_000 / hz, "mean slice {mean_slice} ns is more than ten ticks");
}

#[test]
fn tracepoints_show_how_two_spinners_share() {
    let _turn = turn();
    let test = "tracepoints_show_how_two_spinners_share";
    settles(3, || two_spinners_share(test, Backend::Tracepoints));
}

#[test]
fn switch_records_show_how_two_spinners_share() {
    let _turn = turn();
    let test = "switch_records_show_how_two_spinners_share";
    settles(3, || two_spinners_share(test, Backend::Switches));
}

/// 100 echoes over loopback: the server's wakeups come from softirqs inside the client's system
/// calls.
#[test]
fn loopback_wakes_name_the_sender() {
    let _turn = turn();
    // Softirqs that are too many at once are left to ksoftirqd: the more, the longer the CPU was
    // away.
    settles(3, || echoes_name_the_sender("loopback_wakes_name_the_sender"));
}

fn echoes_name_the_sender(test: &str) {
    let ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ended);
    // The threads begin when the recording does: its first look at the flag lets them go.
    let (go, wait) = std::sync::mpsc::channel();
    let echoes = std::thread::spawn(move || {
        let began = wait.recv().is_ok();
        if began {
            echo_pair();
        }
        flag.store(true, Ordering::Relaxed);
    });
    let go = Cell::new(Some(go));
    let stop = || {
        if let Some(go) = go.take() {
            let _ = go.send(());
        }
        ended.load(Ordering::Relaxed)
    };
    let mut wanted = request(RecordUntil::Stopped, Backend::Tracepoints);
    wanted.duration = Some(Ns::from_s(20));
    let kept = recorded(test, &wanted, &stop);
    drop(go.take());
    echoes.join().unwrap();
    let Some((keep, _)) = kept else { return };
    let named = |name: &str| {
        keep.tasks.values().find(|task| task.comm == name).expect("both ends were seen").id
    };
    let (server, client) = (named("echo-server"), named("echo-client"));
    let wakers: Vec<Waker> = keep
        .events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Wake { task, waker } if task == server => Some(waker),
            _ => None,
        })
        .collect();
    let count = |wanted| wakers.iter().filter(|&&waker| waker == wanted).count();
    let (inline, outside) = (count(Waker::InlineSoftirq(client)), count(Waker::SoftIrq));
    assert!(inline >= 95, "{inline} of {} wakes of the server name the client", wakers.len());
    assert!(outside <= 5, "{outside} of {} wakes look like the outside", wakers.len());
}

/// A server and a client thread that exchange 100 bytes over loopback, one by one.
fn echo_pair() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let serve = move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut byte = [0; 1];
        while stream.read(&mut byte).unwrap() == 1 {
            stream.write_all(&byte).unwrap();
        }
    };
    let ask = move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        for _ in 0..100 {
            // Long enough for the server to block before the next request.
            std::thread::sleep(std::time::Duration::from_millis(2));
            stream.write_all(&[1]).unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }
    };
    let server = named("echo-server").spawn(serve).unwrap();
    named("echo-client").spawn(ask).unwrap().join().unwrap();
    server.join().unwrap();
}

#[test]
fn own_tasks_need_no_privilege() {
    let _turn = turn();
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 0.1".to_owned();
    let command = vec!["sh".to_owned(), "-c".to_owned(), script];
    let mut wanted = request(RecordUntil::CommandEnds(command), Backend::OwnTasks);
    wanted.duration = Some(Ns::from_s(20));
    let Some((keep, end)) = recorded("own_tasks_need_no_privilege", &wanted, &|| false) else {
        return;
    };
    assert!(end.exit.unwrap().success());
    let capabilities = &keep.start.as_ref().unwrap().capabilities;
    assert!(!capabilities.system_wide && !capabilities.wakeups);
    let pid = end.command_pid.unwrap();
    let own = keep.of_tid(pid).expect("the command has facts").id;
    let is_own = |event: &&SchedEvent| matches!(event.kind, EventKind::Switch { next: Some(t), .. } if t == own);
    assert!(keep.events.iter().filter(is_own).count() >= 1);
    let foreign = |task: &TaskFacts| !task.stand_in && task.comm.contains("ksoftirqd");
    assert!(!keep.tasks.values().any(foreign));
}

#[test]
fn a_process_that_runs_already_needs_no_privilege_either() {
    let _turn = turn();
    const TEST: &str = "a_process_that_runs_already_needs_no_privilege_either";
    let script = "read go; for i in 1 2 3 4 5; do sleep 0.001; done";
    let mut child = std::process::Command::new("sh")
        .args(["-c", script])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let mut wanted = request(RecordUntil::ProcessesEnd(vec![pid]), Backend::OwnTasks);
    (wanted.filter, wanted.duration) = (RecordFilter::Processes(vec![pid]), Some(Ns::from_s(60)));
    // It goes on when the recording has begun, and ends by itself: closing the pipe is its line.
    let input = std::cell::RefCell::new(child.stdin.take());
    let over = std::cell::Cell::new(false);
    let child = std::cell::RefCell::new(child);
    let stop = || {
        drop(input.borrow_mut().take());
        let ended = child.borrow_mut().try_wait().unwrap().is_some();
        // One more look at the rings after its end.
        over.replace(ended) && ended
    };
    let seen = recorded(TEST, &wanted, &stop);
    drop(input.borrow_mut().take());
    child.borrow_mut().wait().unwrap();
    let Some((keep, _)) = seen else { return };
    let capabilities = &keep.start.as_ref().unwrap().capabilities;
    assert!(
        !capabilities.system_wide
            && !capabilities.wakeups
            && !capabilities.calls
            && !capabilities.limits
    );
    let own = keep.of_tid(pid).expect("it has facts").id;
    let runs = |event: &&SchedEvent| matches!(event.kind, EventKind::Switch { next: Some(t), .. } if t == own);
    assert!(keep.events.iter().filter(runs).count() >= 5, "it waits for each of its children");
    let born = |event: &&SchedEvent| matches!(event.kind, EventKind::New { parent: Some(p), .. } if p == own);
    assert!(keep.events.iter().filter(born).count() >= 5, "its children are recorded");
    let foreign = |task: &TaskFacts| !task.stand_in && task.comm.contains("ksoftirqd");
    assert!(!keep.tasks.values().any(foreign));
}

#[test]
fn a_process_that_does_not_exist_is_refused() {
    let error = record(
        &request(RecordUntil::ProcessesEnd(vec![u32::MAX]), Backend::Tracepoints),
        &mut kept(),
        &|| true,
    );
    assert!(matches!(error, Err(HostError::NoProcess { pid: u32::MAX })), "{error:?}");
    let nothing = RecordUntil::CommandEnds(vec!["/no/such/program".to_owned()]);
    let error = record(&RecordRequest::new(nothing), &mut kept(), &|| true);
    assert!(matches!(error, Err(HostError::Spawn { .. })), "{error:?}");
}

/// A recorder that binds itself is in its recording as bound: replayed, it would wander else.
#[test]
fn the_recorder_stands_in_the_file_as_it_runs() {
    let _turn = turn();
    let test = "the_recorder_stands_in_the_file_as_it_runs";
    for backend in [Backend::Tracepoints, Backend::Switches] {
        let mut wanted = request(RecordUntil::Stopped, backend);
        (wanted.duration, wanted.recorder_cpu) = (Some(Ns::from_ms(100)), Some(CpuId(0)));
        let before = rustix::thread::sched_getaffinity(None).unwrap();
        let Some((keep, _)) = recorded(test, &wanted, &|| false) else { continue };
        let own = gettid();
        let facts = keep.of_tid(own).expect("this thread is in the file");
        assert_eq!(facts.affinity.to_string(), "0", "{backend:?}");
        let raised = rustix::process::geteuid().is_root();
        assert!(!raised || facts.nice.get() == -20, "{backend:?}: nice {}", facts.nice.get());
        assert!(rustix::thread::sched_getaffinity(None).unwrap() == before, "and it is put back");
    }
}

/// The recorder's own cost is known before a recording begins, where it is asked for, and none of
/// the events of measuring it are in the recording.
#[test]
fn the_cost_of_recording_is_measured() {
    let _turn = turn();
    for backend in [Backend::Bpf, Backend::Tracepoints] {
        settles(3, || cost_of_recording("the_cost_of_recording_is_measured", backend));
    }
}

fn cost_of_recording(test: &str, backend: Backend) {
    let mut wanted = request(RecordUntil::Stopped, backend);
    (wanted.duration, wanted.measure_cost) = (Some(Ns::from_ms(50)), true);
    let Some((keep, _)) = recorded(test, &wanted, &|| false) else { return };
    let start = keep.start.unwrap();
    // On a machine full of other work the measurement gives up, and says so by giving nothing.
    eprintln!("{backend:?}: {:?} ns", start.cost_ns_per_switch);
    assert!(start.cost_ns_per_switch.is_none_or(|ns| ns < 50_000));
    assert!(
        keep.events.windows(2).all(|pair| pair[0].at <= pair[1].at),
        "events are in time order"
    );
    wanted.measure_cost = false;
    let Some((keep, _)) = recorded(test, &wanted, &|| false) else { return };
    assert_eq!(keep.start.unwrap().cost_ns_per_switch, None);
}
