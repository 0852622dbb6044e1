//! Short runs of real threads: structure, never wall time.

use super::*;

fn request(wake: Wake) -> LatencyRequest {
    LatencyRequest {
        cpus: [affinity(0).unwrap().iter().next().unwrap(); 2].to_vec(),
        policy: Policy::Other,
        wake,
        interval: Ns::from_ms(1),
        distance: Ns::from_us(500),
        duration: Some(Ns::from_s(20)),
        loops: Some(20),
        slack: Some(Ns(1)),
        dma_latency_us: None,
        lock: false,
        aligned: false,
        break_above: None,
    }
}

#[test]
fn every_way_to_wake_gives_every_expiry_once() {
    for wake in [Wake::Clock, Wake::Timerfd, Wake::Pipe, Wake::Eventfd, Wake::Futex, Wake::Socket] {
        let report = latency(&request(wake), &mut |_| {}, &|| false).unwrap();
        assert!(!report.stopped);
        for thread in &report.threads {
            assert_eq!(thread.latency.count() + thread.withheld, 20, "{wake:?} {thread:?}");
            assert_eq!(thread.uncorrected.count(), thread.wakes);
            assert_eq!(thread.missed, thread.latency.count() - thread.wakes);
            assert_eq!(thread.latency.max(), thread.uncorrected.max(), "{wake:?}");
            assert_eq!((thread.migrations, thread.withheld * u64::from(!wake.has_waker())), (0, 0));
        }
        assert_eq!(
            report.all().count(),
            report.threads.iter().map(|t| t.latency.count()).sum::<u64>()
        );
    }
}

#[test]
fn it_stops_when_asked() {
    let endless =
        LatencyRequest { duration: Some(Ns::from_s(3000)), loops: None, ..request(Wake::Pipe) };
    let report = latency(&endless, &mut |_| {}, &|| true).unwrap();
    assert!(report.stopped);
}

#[test]
fn the_callers_thread_keeps_its_policy() {
    let before = schedlab_host::threads::scheduling(0).unwrap();
    let batch = LatencyRequest { policy: Policy::Batch, ..request(Wake::Clock) };
    latency(&batch, &mut |_| {}, &|| false).unwrap();
    assert_eq!(schedlab_host::threads::scheduling(0).unwrap(), before);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let base = request(Wake::Clock);
    for (request, expected) in [
        (LatencyRequest { cpus: vec![CpuId(1000)], ..base.clone() }, "CPU 1000"),
        (LatencyRequest { cpus: vec![], ..base.clone() }, "0 threads"),
        (LatencyRequest { interval: Ns(10), ..base.clone() }, "50"),
        (LatencyRequest { distance: Ns::MAX, ..base.clone() }, "--distance"),
        (LatencyRequest { loops: None, duration: None, ..base.clone() }, "must end"),
        (LatencyRequest { loops: Some(0), ..base.clone() }, "no expiry"),
    ] {
        let error = request.check().unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn the_first_worse_one_ends_everybody() {
    // Every wakeup is later than a nanosecond.
    let endless = LatencyRequest {
        break_above: Some(Ns(1)),
        duration: Some(Ns::from_s(3000)),
        loops: None,
        ..request(Wake::Clock)
    };
    for wake in [Wake::Clock, Wake::Pipe] {
        let report =
            latency(&LatencyRequest { wake, ..endless.clone() }, &mut |_| {}, &|| false).unwrap();
        let broke = report.broke.expect("one broke it");
        assert!(!report.stopped && broke.ran_ns > broke.due_ns, "{broke:?}");
        let thread = &report.threads[broke.thread as usize];
        assert_eq!((thread.tid, thread.cpu), (broke.tid, broke.cpu));
        assert!(thread.uncorrected.max() >= broke.ran_ns - broke.due_ns);
    }
    assert!(latency(&request(Wake::Clock), &mut |_| {}, &|| false).unwrap().broke.is_none());
}

#[test]
fn deadline_threads_need_their_whole_root_domain() {
    let policy: Policy = "deadline:100us/1ms/1ms".parse().unwrap();
    let all: Vec<CpuId> = affinity(0).unwrap().iter().collect();
    let on = |cpus: Vec<CpuId>| LatencyRequest { policy, cpus, ..request(Wake::Clock) };
    let whole = latency(&on(all.clone()), &mut |_| {}, &|| false);
    match whole {
        Ok(report) => {
            assert_eq!(report.all().count(), 20 * all.len() as u64);
            assert_eq!(report.slack, Ns::ZERO);
        }
        // An ordinary user, or a cpuset: refused by name.
        Err(error) => assert!(error.to_string().contains("SCHED_DEADLINE"), "{error}"),
    }
    if all.len() > 1 {
        let error = latency(&on(vec![all[0]]), &mut |_| {}, &|| false).unwrap_err().to_string();
        assert!(error.contains("SCHED_DEADLINE") && error.contains("root domain"), "{error}");
    }
}

#[test]
fn memory_that_cannot_be_locked_is_a_doubt_and_no_end() {
    let refused = || Err(std::io::Error::from_raw_os_error(12));
    let (locked, why) = super::lock_memory(true, refused);
    assert!(locked.is_none() && why.is_some_and(|why| why.contains("memory")));
    let (locked, why) = super::lock_memory(false, || panic!("nobody asked"));
    assert!(locked.is_none() && why.is_none());
}
