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
        assert_eq!(report.all().count(), report.threads.iter().map(|t| t.latency.count()).sum::<u64>());
    }
}

#[test]
fn it_stops_when_asked() {
    let endless = LatencyRequest { duration: Some(Ns::from_s(3000)), loops: None, ..request(Wake::Pipe) };
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
        (LatencyRequest { policy: "deadline:1ms/2ms/2ms".parse().unwrap(), ..base.clone() }, "deadline"),
    ] {
        let error = request.check().unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}
