//! `show --messages` on streams of facts whose answer is known.

use crate::common::{header, switch, wake};
use schedlab_model::{
    CpuId, EventSink, Fact, FactKind, Limit, Ns, ObjectId, ObjectInfo, ObjectKind, Outcome,
    PrevState, SchedEvent, TaskId, Transfer, Waker,
};
use schedlab_trace::analysis::messages::{Messages, Unseen};
use schedlab_trace::analysis::show::{ALL, Cell, Output, Table};
use schedlab_trace::analysis::{By, Scope};
use schedlab_trace::{Capability, Recording, Writer};

/// Keeps what an analysis says.
#[derive(Default)]
struct Said {
    answer: String,
    tables: Vec<(&'static str, Vec<Vec<String>>)>,
    notes: Vec<String>,
}

impl Output for Said {
    fn table(&mut self, table: &Table) -> std::io::Result<()> {
        self.tables.push((table.key, Vec::new()));
        Ok(())
    }
    fn row(&mut self, cells: &[Cell<'_>]) -> std::io::Result<()> {
        let cells = cells.iter().map(|cell| format!("{cell:?}")).collect();
        self.tables.last_mut().expect("a table begins first").1.push(cells);
        Ok(())
    }
    fn answer(&mut self, text: &str) -> std::io::Result<()> {
        self.answer = text.to_owned();
        Ok(())
    }
    fn note(&mut self, text: &str) -> std::io::Result<()> {
        self.notes.push(text.to_owned());
        Ok(())
    }
}

fn fact(at: u64, task: u32, kind: FactKind) -> Fact {
    Fact { at: Ns(at), cpu: CpuId(0), task: Some(TaskId(task)), kind }
}

fn sent(at: u64, task: u32, object: u32, bytes: u32, place: Option<u64>) -> Fact {
    fact(at, task, FactKind::Send(Transfer { place, ..Transfer::done(ObjectId(object), bytes) }))
}

fn received(at: u64, task: u32, object: u32, bytes: u32, place: Option<u64>) -> Fact {
    fact(at, task, FactKind::Receive(Transfer { place, ..Transfer::done(ObjectId(object), bytes) }))
}

/// The client is task 0, the server task 1, a hog task 2. Object 0 goes to the server, 1 back, 2 is
/// a pipe, 3 a futex.
fn recording(events: &[SchedEvent], facts: &[Fact]) -> Recording {
    let mut header = header(1, 3);
    header.capabilities.0.insert(Capability::Messages.name().to_owned());
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    let flow = |from: &str, to: &str, peer: u32| ObjectInfo {
        from: from.to_owned(),
        to: to.to_owned(),
        peer: Some(ObjectId(peer)),
        ..ObjectInfo::of_kind(ObjectKind::Tcp)
    };
    let (client, server) = ("127.0.0.1:41230", "127.0.0.1:6379");
    for object in [flow(client, server, 1), flow(server, client, 0)] {
        writer.add_object(object);
    }
    writer.add_object(ObjectInfo::of_kind(ObjectKind::Pipe));
    writer.add_object(ObjectInfo::of_kind(ObjectKind::Futex));
    events.iter().for_each(|event| writer.event(event));
    facts.iter().for_each(|fact| writer.fact(fact));
    Recording::read(&writer.finish(Ns(1_000_000)).unwrap()[..]).unwrap()
}

fn said(recording: &Recording, scope: &Scope) -> Said {
    let entry = ALL.iter().find(|entry| entry.name == "messages").expect("it is on offer");
    entry.check(&recording.header).unwrap();
    let mut said = Said::default();
    entry.run(recording, scope, &mut said).unwrap();
    said
}

/// Two requests of 10,000 ns: in the first the server waits 6,000 ns for the hog.
fn two_requests() -> Recording {
    let sleeps = PrevState::Sleeping;
    let events = [
        switch(0, 0, None, PrevState::Runnable, Some(0)),
        wake(1_000, 0, 1, Waker::Task(TaskId(0))),
        switch(2_000, 0, Some(0), sleeps, Some(2)),
        switch(7_000, 0, Some(2), PrevState::Runnable, Some(1)),
        switch(12_000, 0, Some(1), sleeps, Some(0)),
        wake(101_000, 0, 1, Waker::Task(TaskId(0))),
        switch(101_000, 0, Some(0), sleeps, Some(1)),
        switch(112_000, 0, Some(1), sleeps, None),
    ];
    let p = |place: u64| Some(1_000 + place);
    let facts = [
        sent(1_000, 0, 0, 40, p(40)),
        received(8_000, 1, 0, 40, p(40)),
        sent(11_000, 1, 1, 5, p(5)),
        // A second part of the answer begins no other request.
        sent(11_500, 1, 1, 5, p(10)),
        received(13_000, 0, 1, 10, p(10)),
        sent(101_000, 0, 0, 40, p(80)),
        received(102_000, 1, 0, 40, p(80)),
        sent(111_000, 1, 1, 5, p(15)),
    ];
    recording(&events, &facts)
}

#[test]
fn a_request_lasts_from_its_arrival_to_its_answer() {
    let said = said(&two_requests(), &Scope { by: Some(By::Name), ..Scope::default() });
    let (window, ten) = (Ns(1_000_000), Ns(10_000));
    assert_eq!(
        said.answer,
        format!(
            "t1 answered 2 requests over TCP :6379 in {window}: half of them within {ten}, 99 % \
             within {ten}. 30 % of that \
             time t1 waited for a CPU; of the slowest 1 %, 60 %."
        )
    );
    let (key, rows) = &said.tables[0];
    assert_eq!((*key, rows.len()), ("requests", 1));
    let time = format!("{:?}", Cell::Time(ten));
    let expected = [
        "Text(\"t1\")",
        "Text(\"TCP :6379\")",
        "Count(1)",
        "Count(2)",
        "Milli(2000000)",
        &time,
        &time,
        &time,
    ];
    assert_eq!(rows[0][..8], expected);
    assert_eq!(rows[0][10..], ["Share(300000)", "Share(600000)", "Count(0)"]);
}

#[test]
fn who_sends_to_whom_is_counted_once() {
    let found = Messages::from_recording(&two_requests(), &Scope::default(), By::Name);
    let rows: Vec<_> = found
        .pairs
        .iter()
        .map(|((from, to, over), pair)| {
            (*from, *to, &over[..], pair.messages, pair.bytes, pair.queued.count())
        })
        .collect();
    // The last answer lies in the socket at the end.
    assert_eq!(
        rows,
        [(Some(0), Some(1), "TCP :6379", 2, 80, 2), (Some(1), Some(0), "TCP :6379", 2, 10, 2)]
    );
    assert_eq!(two_requests().facts.loss().sentence(), None);
    let part = Messages::from_recording(
        &two_requests(),
        &Scope { from: Ns(50_000), ..Scope::default() },
        By::Name,
    );
    assert_eq!(part.pairs.values().map(|pair| pair.messages).collect::<Vec<_>>(), [1]);
}

#[test]
fn pipes_futexes_and_clients_elsewhere() {
    let wait = FactKind::FutexWait {
        futex: ObjectId(3),
        expected: 2,
        until: Limit::None,
        outcome: Outcome::Done,
    };
    let facts = [
        sent(10, 0, 2, 7, None),
        received(20, 1, 2, 3, None),
        received(30, 1, 2, 4, None),
        fact(40, 1, FactKind::FutexWake { futex: ObjectId(3), asked: 1, woken: 1, requeue: None }),
        fact(50, 0, wait),
        // Its client is not in the recording.
        received(60, 1, 0, 9, Some(9)),
        sent(90, 1, 1, 9, Some(9)),
        Fact { task: None, ..fact(95, 0, FactKind::Lost { count: 4 }) },
        sent(99, 1, 1, 9, Some(20)),
    ];
    let recording = recording(&[switch(0, 0, None, PrevState::Runnable, Some(0))], &facts);
    let found = Messages::from_recording(&recording, &Scope::default(), By::Name);
    let rows: Vec<_> = found
        .pairs
        .iter()
        .map(|((from, to, over), pair)| (*from, *to, &over[..], pair.messages, pair.bytes))
        .collect();
    let expected = [
        (None, Some(1), "TCP :6379", 1, 9),
        (Some(0), Some(1), "pipe", 1, 7),
        (Some(1), None, "TCP :6379", 2, 18),
        (Some(1), Some(0), "futex", 1, 0),
    ];
    assert_eq!(rows, expected);
    let loss = recording.facts.loss();
    assert_eq!((loss.missing, loss.lost), (2, 4));
    let said = said(&recording, &Scope::default());
    assert!(said.answer.starts_with("t1 answered 1 request over TCP :6379"), "{}", said.answer);
    assert_eq!(said.tables[0].1[0][12], "Count(1)");
    assert!(said.notes.iter().any(|note| note.contains("lost 4 facts")), "{:?}", said.notes);
    assert!(said.notes.iter().any(|note| note.contains("tells of 2 bytes")), "{:?}", said.notes);
}

/// A task that runs all the time without a system call may spin: that is said, of no other task.
#[test]
fn a_task_that_only_runs_is_named() {
    let runs = [
        switch(0, 0, None, PrevState::Runnable, Some(2)),
        switch(400_000, 0, Some(2), PrevState::Runnable, Some(1)),
        switch(450_000, 0, Some(1), PrevState::Sleeping, Some(2)),
        wake(700_000, 0, 1, Waker::HardIrq),
        switch(700_000, 0, Some(2), PrevState::Runnable, Some(1)),
        switch(750_000, 0, Some(1), PrevState::Sleeping, Some(2)),
    ];
    let of = |runs: &[SchedEvent], facts: &[Fact]| {
        let notes = said(&recording(runs, facts), &Scope::default()).notes;
        notes.into_iter().find(|note| note.contains("never blocked"))
    };
    let note = |facts: &[Fact]| of(&runs, facts);
    let preempted = fact(400_000, 2, FactKind::Preempted { call: 24 });
    let named = note(&[preempted]).expect("a sign of what is not seen");
    assert!(named.starts_with("t2 never blocked"), "{named}");
    assert!(named.contains("beside t1, which waited for nothing"), "{named}");
    let goes_on = of(&runs[..3], &[]).expect("t2 only runs");
    assert!(!goes_on.contains("t1"), "a wait that is not over has no fact yet: {goes_on}");
    let receives = received(450_000, 1, 2, 7, None);
    let named = note(&[receives]).expect("one of them only runs still");
    assert!(named.starts_with("t2 never blocked") && !named.contains("t1"), "{named}");
    assert_eq!(note(&[sent(10, 2, 2, 7, None)]), None, "it exchanges something");
}

/// A thread by which the kernel polls a ring is a sure sign.
#[test]
fn a_polled_ring_is_named() {
    let runs = [
        switch(0, 0, None, PrevState::Runnable, Some(2)),
        switch(900_000, 0, Some(2), PrevState::Runnable, Some(1)),
    ];
    let mut recording = recording(&runs, &[]);
    recording.header.tasks[2].comm = "iou-sqp-4711".to_owned();
    let found = Unseen::of(&recording, &Scope::default());
    assert!(found.matters() && found.silent.is_empty(), "{found:?}");
    let said = said(&recording, &Scope::default()).notes.join("\n");
    assert!(said.contains("iou-sqp-4711 polled an io_uring (SQPOLL)"), "{said}");
}

#[test]
fn a_recording_without_facts_is_refused_by_name() {
    let recording = two_requests().without_facts();
    let entry = ALL.iter().find(|entry| entry.name == "messages").expect("it is on offer");
    let text = entry.check(&recording.header).unwrap_err().to_string();
    assert!(text.contains("the list of messages") && text.contains("messages"), "{text}");
}
