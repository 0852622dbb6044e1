use super::*;
use schedlab_model::{PrevState, Waker};
use schedlab_trace::{GroupInfo, TaskInfo};

fn recording() -> Recording {
    let tasks = vec![TaskInfo::unknown(11, 11, "hog"), TaskInfo::unknown(22, 22, "server")];
    let (hog, server) = (TaskId(0), TaskId(1));
    let switch = |at: u64, prev, prev_state, next| SchedEvent {
        at: Ns::from_us(at),
        cpu: CpuId(0),
        kind: EventKind::Switch { prev, prev_state, next },
    };
    let kind = EventKind::Wake { task: server, waker: Waker::HardIrq };
    let events = vec![
        switch(0, None, PrevState::Runnable, Some(hog)),
        SchedEvent { at: Ns::from_us(100), cpu: CpuId(0), kind },
        switch(4_100, Some(hog), PrevState::Runnable, Some(server)),
        switch(4_200, Some(server), PrevState::Sleeping, Some(hog)),
        switch(5_000, Some(hog), PrevState::Sleeping, None),
        SchedEvent { at: Ns::from_us(6_000), cpu: CpuId(0), kind: EventKind::Lost { count: 7 } },
    ];
    let header = Header { tasks, ..Header::default() };
    Recording::from_parts(header, events, Ns::from_ms(6)).unwrap()
}

fn seen(recording: &Recording, filter: WatchFilter) -> WatchState {
    replayed(recording, WatchOptions::new(filter))
}

/// Both tasks in groups of their own: a service, and a pod whose name is known.
fn grouped() -> Recording {
    let mut recording = recording();
    let uid = "1f9a6c0e-5b7d-4c3a-9e21-0a1b2c3d4e5f";
    let group = |name: &str, pod: Option<&str>| GroupInfo {
        spec: schedlab_model::GroupSpec { name: name.to_owned(), ..Default::default() },
        pod: pod.map(str::to_owned),
        ..GroupInfo::default()
    };
    recording.header.groups = vec![
        group("/", None),
        group("/system.slice/batch.service", None),
        group(&format!("/kubepods/burstable/pod{uid}/{}", "3f0a9c1b".repeat(8)), Some("shop/cart")),
    ];
    for (task, at) in recording.header.tasks.iter_mut().zip(1..) {
        task.group = schedlab_model::GroupId(at);
    }
    recording
}

#[test]
fn tasks_are_taken_together_by_what_they_belong_to() {
    let rows = |by| {
        let options = WatchOptions { by, ..WatchOptions::new(WatchFilter::All) };
        replayed(&grouped(), options)
    };
    for (by, hog, server) in [
        (By::Name, "hog", "server"),
        (By::Process, "hog (11)", "server (22)"),
        (By::Unit, "batch.service", "(no unit)"),
        (By::Container, "(no container)", "container 3f0a9c1b3f0a"),
        (By::Pod, "(no pod)", "shop/cart (burstable)"),
    ] {
        let state = rows(by);
        assert_eq!(
            state.lines.keys().collect::<BTreeSet<_>>(),
            BTreeSet::from([&hog.to_owned(), &server.to_owned()])
        );
        assert_eq!(state.delays[&(server.to_owned(), hog.to_owned())], Ns::from_ms(4));
        assert_eq!(state.lines[hog].run, Ns::from_us(4_100 + 800));
        // A long wait is one thread's; its row is beside it.
        let worst = &state.worst[0];
        assert_eq!((worst.task.0.as_str(), worst.row.as_str()), ("server", server));
        assert_eq!(worst.culprit.0, "hog");
        assert_eq!(state.by, (by != By::Name).then_some(by));
        let mut part = state.clone();
        part.only(server);
        let found: Vec<&str> = part.worst.iter().map(|worst| worst.row.as_str()).collect();
        assert_eq!((part.lines.len(), found), (1, vec![server]), "{by:?}");
    }
    assert!(rows(By::Unit).guess.is_none());
}

/// A task that moves to another group counts there from then on, and ten thousand units have two
/// thousand rows.
#[test]
fn rows_follow_the_task_and_are_bounded() {
    let shared = SharedState::default();
    let options = WatchOptions { by: By::Cgroup, ..WatchOptions::new(WatchFilter::All) };
    let mut watcher = WatchSink::new(options, shared.clone());
    let cpu = CpuId(0);
    let on = |prev, prev_state, next| EventKind::Switch { prev, prev_state, next };
    for number in 0..10_000u32 {
        let spec = schedlab_model::GroupSpec { name: format!("/g{number}"), ..Default::default() };
        watcher.live.group(schedlab_model::GroupId(number), GroupInfo::from(spec));
        let group = schedlab_model::GroupId(number);
        watcher.live.meet(TaskId(0), TaskInfo { group, ..TaskInfo::unknown(7, 7, "worker") });
        let at = Ns::from_ms(u64::from(number));
        let mut event = |us: u64, kind| {
            watcher.event(&SchedEvent { at: at + Ns::from_us(us), cpu, kind });
        };
        event(10, on(None, PrevState::Runnable, Some(TaskId(0))));
        event(20, on(Some(TaskId(0)), PrevState::Sleeping, None));
        watcher.update();
    }
    let state = shared.lock();
    assert_eq!(state.lines.len(), NAMES + 1);
    assert_eq!(state.lines["/g7"].run, Ns::from_us(10));
    assert_eq!(state.lines[OTHERS].run, Ns::from_us(10 * (10_000 - NAMES as u64)));
}

/// The scraper's numbers are those of the screen.
#[test]
fn metrics_are_those_of_the_rows() {
    let (meters, registry) = crate::flight::meters::Meters::of_view(By::Pod, 10);
    let options = WatchOptions {
        by: By::Pod,
        metrics: Some(WatchMetrics::of(meters)),
        ..WatchOptions::new(WatchFilter::All)
    };
    replayed(&grouped(), options);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        "schedlab_run_seconds_total{pod=\"(no pod)\"} 0.0049",
        "schedlab_wait_seconds_count{pod=\"shop/cart (burstable)\"} 1",
        "schedlab_delay_seconds_total{pod=\"shop/cart (burstable)\",culprit=\"(no pod)\"} 0.004",
        "schedlab_events_lost_total 7",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} in\n{text}");
    }
    assert!(!text.contains("incidents") && !text.contains("recordings"), "no rules:\n{text}");
}

#[test]
fn a_wait_its_culprit_and_what_was_lost() {
    let state = seen(&recording(), WatchFilter::All);
    assert_eq!(state.worst[0].task, ("server".to_owned(), 22));
    assert_eq!(state.worst[0].length, Ns::from_ms(4));
    assert_eq!(state.worst[0].culprit, ("hog".to_owned(), Ns::from_ms(4)));
    assert_eq!(state.delays[&("server".to_owned(), "hog".to_owned())], Ns::from_ms(4));
    assert_eq!(state.lines["server"].waits.count(), 1);
    assert_eq!(state.lines["hog"].run, Ns::from_us(4_100 + 800));
    assert_eq!(state.lost, 7);
}

#[test]
fn a_wait_that_goes_on_has_an_age_and_is_in_no_sum() {
    let whole = recording();
    let part =
        |events| Recording::from_parts(whole.header.clone(), events, Ns::from_ms(6)).unwrap();
    let mut events = whole.events[..2].to_vec();
    assert!(seen(&part(events.clone()), WatchFilter::All).ongoing.is_empty(), "it has just begun");
    let kind = EventKind::Steal { ns: Ns(1) };
    events.push(SchedEvent { at: Ns::from_us(3_100), cpu: CpuId(0), kind });
    let state = seen(&part(events.clone()), WatchFilter::All);
    let expected = OngoingWait {
        task: ("server".to_owned(), 22),
        row: "server".to_owned(),
        from: Ns::from_us(100),
        age: Ns::from_ms(3),
        cpu: CpuId(0),
        running: Some("hog".to_owned()),
    };
    assert_eq!(state.ongoing, [expected]);
    assert!(
        state.worst.is_empty() && !state.lines.contains_key("server"),
        "it counts when it ends"
    );
    assert!(seen(&part(events.clone()), WatchFilter::Processes(vec![11])).ongoing.is_empty());
    let task = TaskId(1);
    let kind = EventKind::Throttle { task };
    events.push(SchedEvent { at: Ns::from_us(3_200), cpu: CpuId(0), kind });
    assert_eq!(seen(&part(events), WatchFilter::All).ongoing[0].running, None, "a limit");
    assert!(seen(&whole, WatchFilter::All).ongoing.is_empty(), "it is over");
}

/// 100,000 tasks that end, a hundred at a time, beside a server that lives: the tables are as large
/// as the tasks that live or ended in the last seconds, and the sums are those of all.
#[test]
fn tables_do_not_grow_with_the_tasks_that_ended() {
    const ENDED: u32 = 100_000;
    let shared = SharedState::default();
    let mut watcher = WatchSink::new(WatchOptions::new(WatchFilter::All), shared.clone());
    let server = TaskId(0);
    watcher.live.meet(server, TaskInfo::unknown(1, 1, "server"));
    let cpu = CpuId(0);
    let mut largest = 0;
    for number in 1..=ENDED {
        let (id, at) = (TaskId(number), Ns::from_ms(u64::from(number)));
        watcher.live.meet(id, TaskInfo::unknown(100 + number % 30_000, 100 + number, "cc1"));
        let mut event =
            |us: u64, kind| watcher.event(&SchedEvent { at: at + Ns::from_us(us), cpu, kind });
        event(0, EventKind::New { task: id, parent: Some(server) });
        let on = |prev, prev_state, next| EventKind::Switch { prev, prev_state, next };
        event(10, on(Some(server), PrevState::Sleeping, Some(id)));
        event(400, EventKind::Exit { task: id });
        event(410, on(Some(id), PrevState::Dead, None));
        event(500, EventKind::Wake { task: server, waker: Waker::HardIrq });
        event(520, on(None, PrevState::Runnable, Some(server)));
        if number % 20 == 0 {
            watcher.update();
        }
        largest = largest.max(watcher.live.listener().header.tasks.len());
    }
    assert!(largest < 2_100, "{largest} places for tasks of two seconds");
    assert!(watcher.live.both().1.places() < 2_100);
    let state = shared.lock();
    assert_eq!(state.lines["cc1"].waits.count(), u64::from(ENDED));
    assert_eq!(state.lines["cc1"].run, Ns::from_us(400 * u64::from(ENDED)));
    assert_eq!(state.lines["server"].waits.count(), u64::from(ENDED));
    assert!(
        !state.lines.contains_key("?") && state.delays.keys().all(|(task, _)| task != "?"),
        "{:?}",
        state.delays
    );
}

/// A task that waits for ever keeps neither all switches nor all tasks that ended.
#[test]
fn a_starving_task_does_not_make_the_tables_grow() {
    let mut watcher = WatchSink::new(WatchOptions::new(WatchFilter::All), SharedState::default());
    watcher.live.listener().occupancy = schedlab_trace::analysis::Occupancy::bounded(10_000);
    watcher.live.meet(TaskId(0), TaskInfo::unknown(1, 1, "starving"));
    let cpu = CpuId(0);
    let wake = EventKind::Wake { task: TaskId(0), waker: Waker::HardIrq };
    watcher.event(&SchedEvent { at: Ns(1), cpu, kind: wake });
    for number in 1..=100_000_u32 {
        let (id, at) = (TaskId(number), Ns::from_ms(u64::from(number)));
        watcher.live.meet(id, TaskInfo::unknown(100 + number % 30_000, 100 + number, "cc1"));
        let before = (number > 1).then(|| TaskId(number - 1));
        let kind = EventKind::Switch { prev: before, prev_state: PrevState::Dead, next: Some(id) };
        watcher.event(&SchedEvent { at, cpu, kind });
        watcher.event(&SchedEvent { at: at + Ns(1), cpu, kind: EventKind::Exit { task: id } });
        if number % 200 == 0 {
            watcher.update();
        }
    }
    let places = watcher.live.both().1.places();
    assert!(
        places < 90_000,
        "{places}: the last 10,000 switches, and what comes between two looks"
    );
    let state = watcher.shared.lock();
    assert_eq!(state.ongoing[0].task.0, "starving");
}

#[test]
fn a_filter_leaves_out_waiting_tasks_and_not_running_ones() {
    let state = seen(&recording(), WatchFilter::Processes(vec![22]));
    assert_eq!(state.lines.keys().collect::<Vec<_>>(), ["server"]);
    assert_eq!(state.worst[0].culprit.0, "hog");
    assert!(seen(&recording(), WatchFilter::Processes(vec![1])).worst.is_empty());
}

#[test]
fn a_server_and_a_group_select_the_same_tasks_as_elsewhere() {
    let mut recording = recording();
    let group = |name: &str| schedlab_trace::GroupInfo {
        spec: schedlab_model::GroupSpec { name: name.to_owned(), ..Default::default() },
        ..schedlab_trace::GroupInfo::default()
    };
    recording.header.groups = vec![group("/"), group("/system.slice/web.service")];
    recording.header.tasks[1].group = schedlab_model::GroupId(1);
    let served = |name: &str| WatchFilter::Server(Server::new(name));
    for filter in [
        served("server"),
        served("22"),
        served("web.service"),
        served("/system.slice/"),
        WatchFilter::Group("/system.slice/".to_owned()),
        WatchFilter::Group("/system.slice/web.service".to_owned()),
    ] {
        let state = seen(&recording, filter.clone());
        assert_eq!(state.lines.keys().collect::<Vec<_>>(), ["server"], "{filter:?}");
    }
    assert!(seen(&recording, served("ser")).worst.is_empty());
}

#[test]
fn a_reset_forgets_sums_and_keeps_the_clock() {
    let mut state = seen(&recording(), WatchFilter::All);
    state.reset();
    assert!(state.lines.is_empty() && state.worst.is_empty());
    assert_eq!((state.window(), state.lost), (Ns::ZERO, 7));
}
