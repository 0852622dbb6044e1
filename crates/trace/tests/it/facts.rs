//! Facts in a file: what goes in comes out, an older reader skips them, and damage is refused.

use crate::common::{bytes, header, ping_pong};
use proptest::prelude::*;
use schedlab_model::{
    CpuId, EventSink, Fact, FactKind, Limit, Ns, ObjectId, ObjectInfo, ObjectKind, Outcome, TaskId,
    Transfer,
};
use schedlab_trace::{
    Capability, Facts, Header, Index, PackedFacts, ReadLimits, Recording, TraceError, Writer,
    renumber_fact, save,
};
use std::path::PathBuf;

/// Objects that [`any_fact`] names.
const OBJECTS: u32 = 5;
const TASKS: usize = 4;

fn objects() -> Vec<ObjectInfo> {
    let flow = |peer: u32| ObjectInfo {
        from: "127.0.0.1:41230".to_owned(),
        to: "127.0.0.1:6379".to_owned(),
        peer: Some(ObjectId(peer)),
        capacity: Some(2_626_560),
        ..ObjectInfo::of_kind(ObjectKind::Tcp)
    };
    let rest = [ObjectKind::Pipe, ObjectKind::Futex, ObjectKind::Epoll].map(ObjectInfo::of_kind);
    [flow(1), flow(0)].into_iter().chain(rest).collect()
}

/// A file with these events and facts, as a recorder writes it.
fn file(header: &Header, rounds: u64, facts: &[Fact]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    for object in objects() {
        writer.add_object(object);
    }
    ping_pong(rounds).iter().for_each(|event| writer.event(event));
    facts.iter().for_each(|fact| writer.fact(fact));
    writer.finish(Ns(2_000_000)).unwrap()
}

fn any_limit() -> impl Strategy<Value = Limit> {
    prop_oneof![
        Just(Limit::None),
        any::<u64>().prop_map(|ns| Limit::For(Ns(ns))),
        any::<u64>().prop_map(|ns| Limit::At(Ns(ns))),
        Just(Limit::Unknown),
    ]
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    (0..Outcome::ALL.len()).prop_map(|i| Outcome::ALL[i])
}

fn any_transfer() -> impl Strategy<Value = Transfer> {
    let place = prop_oneof![
        Just(None),
        (0u64..100_000).prop_map(Some),
        any::<u64>().prop_map(|place| Some(place >> 1)),
    ];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (0..OBJECTS, any::<u32>(), place, any_outcome(), flags).prop_map(
        |(object, bytes, place, outcome, flags)| {
            let (partial, limited, peek, by_kernel) = flags;
            Transfer {
                object: ObjectId(object),
                bytes,
                place,
                outcome,
                partial,
                limited,
                peek,
                by_kernel,
            }
        },
    )
}

/// Every kind of fact with every value that its fields can have.
fn any_fact() -> impl Strategy<Value = Fact> {
    let object = || (0..OBJECTS).prop_map(ObjectId);
    let task = || (0..TASKS as u32).prop_map(TaskId);
    let kind = prop_oneof![
        6 => any_transfer().prop_map(FactKind::Send),
        6 => any_transfer().prop_map(FactKind::Receive),
        2 => (proptest::option::of(object()), any::<u32>(), any_limit(), any_outcome())
            .prop_map(|(selector, ready, until, outcome)| FactKind::Select { selector, ready, until, outcome }),
        1 => (object(), object(), any::<bool>(), any::<u32>()).prop_map(
            |(selector, object, watched, events)| FactKind::Watch { selector, object, watched, events }
        ),
        2 => (object(), any::<u32>(), any_limit(), any_outcome())
            .prop_map(|(futex, expected, until, outcome)| FactKind::FutexWait { futex, expected, until, outcome }),
        2 => (object(), any::<u32>(), any::<u32>(), proptest::option::of(object()))
            .prop_map(|(futex, asked, woken, requeue)| FactKind::FutexWake { futex, asked, woken, requeue }),
        1 => (any_limit(), any_outcome()).prop_map(|(until, outcome)| FactKind::Sleep { until, outcome }),
        1 => (object(), any_limit(), any::<u64>())
            .prop_map(|(timer, first, every)| FactKind::Arm { timer, first, every: Ns(every) }),
        1 => object().prop_map(|object| FactKind::Open { object }),
        1 => object().prop_map(|object| FactKind::Close { object }),
        1 => (object(), object()).prop_map(|(listener, object)| FactKind::Accept { listener, object }),
        1 => (object(), any_outcome()).prop_map(|(object, outcome)| FactKind::Connect { object, outcome }),
        1 => (proptest::option::of(task()), any::<u32>())
            .prop_map(|(from, number)| FactKind::Signal { from, number }),
        1 => proptest::option::of(task()).prop_map(|child| FactKind::Child { child }),
        1 => any::<u32>().prop_map(|call| FactKind::Preempted { call }),
        1 => any::<u64>().prop_map(|count| FactKind::Lost { count }),
    ];
    (0u64..400_000, 0u32..2, 0..TASKS as u32, kind).prop_map(|(at, cpu, task, kind)| {
        let task = (!matches!(kind, FactKind::Lost { .. })).then_some(TaskId(task));
        Fact { at: Ns(at), cpu: CpuId(cpu), task, kind }
    })
}

fn any_facts() -> impl Strategy<Value = Vec<Fact>> {
    proptest::collection::vec(any_fact(), 0..700).prop_map(|mut facts| {
        facts.sort_by_key(|fact| fact.at);
        facts
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(schedlab_testing::cases(128)))]

    #[test]
    fn what_goes_in_comes_out(facts in any_facts()) {
        let header = header(2, TASKS);
        let written = file(&header, 20, &facts);
        let back = Recording::read(&written[..]).unwrap();
        prop_assert_eq!(&back.facts, &Facts { objects: objects(), list: facts.clone() });
        prop_assert_eq!(&back.events, &ping_pong(20));
        prop_assert!(back.repairs.is_clean(), "{}", back.repairs);
        prop_assert_eq!(file(&header, 20, &facts), written, "the same input must give the same \
            bytes");
        let mut unpacked = Vec::new();
        if let Some(packed) = PackedFacts::pack(&facts).unwrap() {
            prop_assert_eq!(packed.facts(), facts.len());
            packed.unpack(&mut unpacked).unwrap();
        }
        prop_assert_eq!(unpacked, facts);
    }

    /// A reader before 1.4 knows no block of facts: to it the block is one of the optional ones,
    /// and everything else is as before.
    #[test]
    fn an_older_reader_skips_them(facts in any_facts()) {
        let with = file(&header(2, TASKS), 20, &facts);
        let mut unknown = with.clone();
        for block in blocks_of(&with, FACTS) {
            set_kind(&mut unknown, block, 0x8000_0077);
        }
        let back = Recording::read(&unknown[..]).unwrap();
        prop_assert_eq!(back.events, ping_pong(20));
        prop_assert_eq!(back.repairs.skipped_blocks, u64::from(!facts.is_empty()));
        // It adds up the records of all blocks, as events.
        let counted: u32 = all_blocks(&with).map(|at| word(&with, at + 16)).sum();
        prop_assert_eq!(counted as usize, ping_pong(20).len());
    }

    /// Numbers that are given anew are given to every task and object of a fact, and to nothing
    /// else.
    #[test]
    fn renumbered_there_and_back_is_the_same(fact in any_fact()) {
        let there = renumber_fact(&fact, |task| TaskId(task.0 + 7), |object| ObjectId(object.0 + 9));
        let back = renumber_fact(&there, |task| TaskId(task.0 - 7), |object| ObjectId(object.0 - 9));
        prop_assert_eq!(back, fact);
    }

    /// Any bytes in a block of facts: an answer or an error, never a panic, and whatever opens
    /// names only what is listed.
    #[test]
    fn any_bytes_are_an_answer(raw in proptest::collection::vec(any::<u8>(), 0..400)) {
        let good = file(&header(2, TASKS), 2, &[sent(10, 0, 3)]);
        let mut bad = forged(&good, FACTS, &raw);
        let block = blocks_of(&bad, FACTS)[0];
        for kind in [FACTS, FACTS_BY_TIME] {
            set_kind(&mut bad, block, kind);
            if let Ok(recording) = Recording::read(&bad[..]) {
                prop_assert!(recording.facts.list.iter().all(|fact| fact.cpu.index() < 2));
            }
        }
    }
}

/// Blocks of facts, and those of versions 1.4 and 1.5.
const FACTS: u32 = 0x8000_0007;
const FACTS_BY_TIME: u32 = 0x8000_0006;

fn sent(at: u64, object: u32, bytes: u32) -> Fact {
    let kind = FactKind::Send(Transfer::done(ObjectId(object), bytes));
    Fact { at: Ns(at), cpu: CpuId(0), task: Some(TaskId(0)), kind }
}

fn word(file: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(file[at..at + 4].try_into().unwrap())
}

/// Where the blocks of a file begin.
fn all_blocks(file: &[u8]) -> impl Iterator<Item = usize> + '_ {
    std::iter::successors(Some(16), |at| {
        let next = at + 44 + word(file, at + 8) as usize;
        (next < file.len()).then_some(next)
    })
}

fn blocks_of(file: &[u8], kind: u32) -> Vec<usize> {
    all_blocks(file).filter(|at| word(file, at + 4) == kind).collect()
}

fn set_kind(file: &mut [u8], at: usize, kind: u32) {
    file[at + 4..at + 8].copy_from_slice(&kind.to_le_bytes());
    let check = crc32fast::hash(&file[at..at + 40]);
    file[at + 40..at + 44].copy_from_slice(&check.to_le_bytes());
}

/// The file with the first block of this kind holding `raw`, all checksums right.
fn forged(file: &[u8], kind: u32, raw: &[u8]) -> Vec<u8> {
    let at = blocks_of(file, kind)[0];
    let mut head = file[at..at + 44].to_vec();
    let stored = zstd::bulk::compress(raw, 3).unwrap();
    for (place, value) in
        [(8, stored.len()), (12, raw.len()), (20, crc32fast::hash(&stored) as usize)]
    {
        head[place..place + 4].copy_from_slice(&(value as u32).to_le_bytes());
    }
    let rest = at + 44 + word(file, at + 8) as usize;
    let mut out = [&file[..at], &head, &stored, &file[rest..]].concat();
    set_kind(&mut out, at, kind);
    out
}

#[test]
fn every_flipped_bit_is_noticed() {
    let good = file(&header(2, TASKS), 2, &[sent(10, 0, 3), sent(900, 1, 70_000)]);
    let at = blocks_of(&good, FACTS)[0];
    for bit in at * 8..(at + 44 + word(&good, at + 8) as usize) * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        Recording::read(&bad[..]).expect_err("a changed block");
    }
}

#[test]
fn what_a_fact_names_must_exist() {
    let refused = |fact: Fact| {
        let text =
            Recording::read(&file(&header(2, TASKS), 2, &[fact])[..]).unwrap_err().to_string();
        assert!(text.contains("fact 0"), "{text}");
    };
    refused(sent(10, OBJECTS, 3));
    refused(Fact { cpu: CpuId(2), ..sent(10, 0, 3) });
    let accept = FactKind::Accept { listener: ObjectId(0), object: ObjectId(OBJECTS) };
    refused(Fact { kind: accept, ..sent(10, 0, 3) });
    let mut writer = Writer::new(Vec::new(), &header(1, 1)).unwrap();
    writer
        .add_object(ObjectInfo { peer: Some(ObjectId(1)), ..ObjectInfo::of_kind(ObjectKind::Tcp) });
    let text = Recording::read(&writer.finish(Ns(10)).unwrap()[..]).unwrap_err().to_string();
    assert!(text.contains("peer"), "{text}");
    // A task that was never added is no reason to drop a fact.
    let unnamed = Fact { task: Some(TaskId(9)), ..sent(10, 0, 3) };
    let back = Recording::read(&file(&header(2, TASKS), 2, &[unnamed])[..]).unwrap();
    assert_eq!((back.header.tasks.len(), &back.header.tasks[9].comm[..]), (10, "?"));
}

#[test]
fn limits_hold_for_facts_and_objects() {
    let facts: Vec<_> = (0..200).map(|i| sent(i, 0, 1)).collect();
    let written = file(&header(2, TASKS), 2, &facts);
    let few = ReadLimits { events: 100, ..ReadLimits::default() };
    assert!(matches!(Recording::read_limited(&written[..], few), Err(TraceError::TooLarge { .. })));
    let few = ReadLimits { tasks: 4, ..ReadLimits::default() };
    assert!(matches!(Recording::read_limited(&written[..], few), Err(TraceError::TooLarge { .. })));
}

#[test]
fn misordered_facts_are_sorted_and_counted() {
    let facts = [sent(10, 0, 1), sent(30, 0, 2), sent(20, 0, 3)];
    let back = Recording::read(&file(&header(2, TASKS), 2, &facts)[..]).unwrap();
    assert_eq!(back.facts.list, [facts[0], facts[2], facts[1]]);
    assert_eq!(back.repairs.misordered, 1);
}

#[test]
fn a_part_is_read_and_saved_with_its_facts() {
    let path =
        schedlab_testing::temp_dir().join(format!("schedlab-facts-{}.slt", std::process::id()));
    let facts: Vec<_> = (0..40_000).map(|i| sent(i * 40, (i % 2) as u32, 100)).collect();
    std::fs::write(&path, file(&header(2, TASKS), 20, &facts)).unwrap();
    let index = Index::open(&path).unwrap();
    assert_eq!(index.events() as usize, ping_pong(20).len());
    assert_eq!(
        index.totals.as_ref().map(|totals| (totals.facts, totals.facts_lost)),
        Some((40_000, 0))
    );
    let part = Recording::open_between(&path, Ns(100_000), Ns(110_000)).unwrap();
    assert_eq!((part.facts.list.len(), part.facts.list[0].at), (251, Ns(100_000)));
    assert_eq!(part.facts.between(Ns(100_000), Ns(100_100)).len(), 3);
    let cut = part.facts.part(Ns(100_000), Ns(100_100));
    assert_eq!(cut.list.iter().map(|fact| fact.at.0).collect::<Vec<_>>(), [0, 40, 80]);
    let other = path.with_extension("part.slt");
    save(&part, &other).unwrap();
    let again = Recording::open(&other).unwrap();
    assert_eq!(again.facts, part.facts);
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(&other).unwrap();
}

/// What a Redis and its client do on a CPU of their own, with the jitter of a real machine.
fn redis_and_client(cpu: u32) -> Vec<Fact> {
    let (mut facts, mut at, mut random) = (Vec::new(), 0u64, u64::from(cpu) + 1);
    let mut places = [1u64 << 32; 2];
    for round in 0..20_000u64 {
        for step in 0..6u32 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            at += 800 + (random >> 50) % 2_500;
            let flow = ((step / 2) % 2) as usize;
            let bytes = [45, 5][flow];
            let of = Transfer::done(ObjectId(flow as u32 + 2 * cpu), bytes);
            let kind = match step % 3 {
                0 => {
                    places[flow] += u64::from(bytes);
                    FactKind::Send(Transfer { place: Some(places[flow]), ..of })
                }
                1 => FactKind::Receive(Transfer { place: Some(places[flow]), ..of }),
                // Until the next of the server's own timers.
                _ => FactKind::Select {
                    selector: Some(ObjectId(4)),
                    ready: 1,
                    until: Limit::For(Ns::from_ms(100 - round / 60 % 100)),
                    outcome: Outcome::Done,
                },
            };
            let task = Some(TaskId((round % 2) as u32 + 2 * cpu));
            facts.push(Fact { at: Ns(at), cpu: CpuId(cpu), task, kind });
        }
    }
    facts
}

/// At most three bytes a fact, also where two CPUs have a server each.
#[test]
fn a_fact_takes_less_than_three_bytes() {
    let one = redis_and_client(0);
    let mut two = [redis_and_client(0), redis_and_client(1)].concat();
    two.sort_by_key(|fact| fact.at);
    let events = bytes(&header(2, TASKS), &ping_pong(20), 2_000_000);
    for facts in [one, two] {
        let both = file(&header(2, TASKS), 20, &facts);
        let each = (both.len() - events.len()) as f64 / facts.len() as f64;
        assert!(each < 3.0, "{each:.2} bytes a fact");
        assert_eq!(Recording::read(&both[..]).unwrap().facts.list, facts);
    }
}

/// Written by version 1.4, which had the facts of a block in the order of time; every later version
/// must read it to the same facts.
#[test]
fn a_file_of_version_1_4_reads_for_ever() {
    reads_for_ever("good-1.4-facts.slt", FACTS_BY_TIME, of_every_kind());
}

/// Written by version 1.6, which has them CPU by CPU.
#[test]
fn a_file_of_version_1_6_reads_for_ever() {
    let path = corpus("good-1.6-facts.slt");
    let mut facts = of_every_kind();
    facts.iter_mut().skip(1).step_by(3).for_each(|fact| fact.cpu = CpuId(1));
    if std::env::var_os("SCHEDLAB_WRITE_CORPUS").is_some() {
        let mut header = header(2, TASKS);
        header.capabilities.0.insert(Capability::Messages.name().to_owned());
        std::fs::write(&path, file(&header, 20, &facts)).unwrap();
    }
    reads_for_ever("good-1.6-facts.slt", FACTS, facts);
}

fn corpus(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/recording").join(name)
}

fn reads_for_ever(name: &str, block: u32, list: Vec<Fact>) {
    let path = corpus(name);
    assert_eq!(blocks_of(&std::fs::read(&path).unwrap(), block).len(), 1, "{name}");
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.facts, Facts { objects: objects(), list });
    assert_eq!(recording.facts.loss().lost, 12);
    assert!(recording.header.capabilities.has(Capability::Messages));
    assert!(recording.without_facts().facts.list.is_empty());
}

/// Facts of every kind.
fn of_every_kind() -> Vec<Fact> {
    let mut facts: Vec<_> = (0..30).map(|i| sent(i * 100, (i % 2) as u32, i as u32)).collect();
    let kinds = [
        FactKind::Receive(Transfer {
            place: Some(77),
            limited: true,
            ..Transfer::done(ObjectId(0), 9)
        }),
        FactKind::Select {
            selector: Some(ObjectId(4)),
            ready: 0,
            until: Limit::For(Ns(5)),
            outcome: Outcome::TimedOut,
        },
        FactKind::Watch { selector: ObjectId(4), object: ObjectId(0), watched: true, events: 1 },
        FactKind::FutexWait {
            futex: ObjectId(3),
            expected: 2,
            until: Limit::At(Ns(1 << 40)),
            outcome: Outcome::Done,
        },
        FactKind::FutexWake { futex: ObjectId(3), asked: 1, woken: 1, requeue: None },
        FactKind::Sleep { until: Limit::Unknown, outcome: Outcome::Interrupted },
        FactKind::Arm { timer: ObjectId(2), first: Limit::None, every: Ns(u64::MAX) },
        FactKind::Open { object: ObjectId(2) },
        FactKind::Accept { listener: ObjectId(2), object: ObjectId(1) },
        FactKind::Connect { object: ObjectId(0), outcome: Outcome::WouldBlock },
        FactKind::Close { object: ObjectId(0) },
        FactKind::Signal { from: None, number: 15 },
        FactKind::Child { child: Some(TaskId(1)) },
        FactKind::Preempted { call: 202 },
    ];
    facts.extend(kinds.map(|kind| Fact { kind, ..sent(5_000, 0, 0) }));
    facts.push(Fact { task: None, kind: FactKind::Lost { count: 12 }, ..sent(6_000, 0, 0) });
    facts
}
