//! Objects, scripts and executors: what tasks exchange decides when they wait.

use crate::common::{scheduler, simulate};
use proptest::prelude::*;
use schedlab_model::{
    Act, Arrival, Coroutine, CoroutineStep, CpuId, CpuSet, Exchange, Executor, ExecutorId, Holds,
    Ns, ObjectId, ObjectSpec, Op, Price, Prices, Program, Room, Script, ScriptId, Start, Step,
    TaskId, TaskSpec, Workload,
};
use schedlab_sim::{Machine, Outcome, RunOptions, WaitsFor, run};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn object(holds: Holds) -> ObjectSpec {
    ObjectSpec {
        name: "object".to_owned(),
        holds,
        initial: 0,
        room: None,
        sync: true,
        answered_in: None,
    }
}

fn step(before: u64, act: Act) -> Step {
    Step::new(Ns(before), act, Ns::ZERO)
}

fn receive(object: u32, amount: u64) -> Act {
    Act::Receive { object: ObjectId(object), amount, whole: false }
}

fn send(object: u32, amount: u64) -> Act {
    Act::Send { object: ObjectId(object), amount }
}

fn script(steps: impl IntoIterator<Item = Step>) -> Script {
    Script { steps: steps.into_iter().collect(), repeat_from: Some(0), ..Script::default() }
}

fn once(steps: impl IntoIterator<Item = Step>) -> Script {
    Script { repeat_from: None, ..script(steps) }
}

fn on(cpu: u32, op: Op) -> TaskSpec {
    TaskSpec { affinity: CpuSet::single(CpuId(cpu)), ..TaskSpec::new("task", Program::once([op])) }
}

/// A task for each script, on the CPU that is named before it.
fn players(scripts: Vec<(u32, Script)>, objects: Vec<ObjectSpec>) -> Workload {
    let tasks =
        scripts.iter().enumerate().map(|(n, (cpu, _))| on(*cpu, Op::Play(ScriptId::from(n))));
    let tasks = tasks.collect();
    let scripts = scripts.into_iter().map(|(_, script)| script).collect();
    Workload {
        tasks,
        exchange: Exchange { objects, scripts, ..Exchange::default() },
        ..Workload::default()
    }
}

fn outcome(workload: &Workload, cpus: usize, ms: u64) -> Outcome {
    simulate("linux-6.18", cpus, workload, Ns(ms * MS))
}

/// 50 us for a request and 100 us for its answer: 150 us a round. The last answer of 150 ms would
/// come at their end.
#[test]
fn a_closed_loop_goes_as_fast_as_its_work() {
    let mut asked = object(Holds::Stream);
    asked.answered_in = Some(ObjectId(1));
    let workload = players(
        vec![
            (0, script([step(50 * US, send(0, 64)), step(0, receive(1, 1000))])),
            (1, script([step(0, receive(0, 64)), step(100 * US, send(1, 1000))])),
        ],
        vec![asked, object(Holds::Stream)],
    );
    let outcome = outcome(&workload, 2, 150);
    let [requests, answers] = &outcome.metrics.objects[..] else { panic!("two objects") };
    assert_eq!((requests.messages, answers.messages), (1_000, 999));
    assert_eq!((requests.amount, answers.amount), (64_000, 999_000));
    let p50 = requests.response.quantile(0.5);
    assert!(
        (99 * US..=101 * US).contains(&p50.0),
        "100 us from the request to its answer, not {p50}"
    );
}

/// Three sends of 100 bytes are one receive of 300, and one send of 300 three receives of 100.
#[test]
fn a_stream_counts_bytes_and_not_sends() {
    let small = || step(MS, send(0, 100));
    let workload = players(
        vec![
            (0, once([small(), small(), small(), step(MS, send(0, 300))])),
            (1, once([0, 1, 2, 3].map(|n| step(0, receive(0, if n == 0 { 300 } else { 100 }))))),
        ],
        vec![object(Holds::Stream)],
    );
    let outcome = outcome(&workload, 2, 50);
    assert_eq!(outcome.metrics.objects[0].receives, 4);
    assert_eq!(outcome.ended, Ns(4 * MS), "the last three have their bytes at 4 ms");
    assert!(outcome.stuck.is_empty());
}

/// A writer of 1,000 bytes at once into 4,096 waits at the fifth, until the reader has emptied what
/// a pipe asks for.
#[test]
fn a_full_object_stops_its_sender() {
    let mut pipe = object(Holds::Stream);
    pipe.room = Some(Room { capacity: 4_096, resume_at: 3_000 });
    let workload = players(
        vec![
            (0, once((0..6).map(|_| step(0, send(0, 1_000))))),
            (1, once((0..6).map(|_| step(10 * MS, receive(0, 1_000))))),
        ],
        vec![pipe],
    );
    let outcome = outcome(&workload, 2, 100);
    let writer = &outcome.metrics.tasks[0];
    assert_eq!(writer.sleep_ns, Ns(20 * MS), "it waits for the first receive, and for the second");
    assert_eq!(outcome.metrics.objects[0].receives, 6);
}

/// A send of 100 us that ends a wait costs 40 us more; one that was recorded with that price, and
/// finds its reader awake, 40 us less.
#[test]
fn a_send_that_ends_a_wait_has_a_price() {
    let rounds = |sends: Step, reads: u64| {
        let sender = Script { wake: Ns(40 * US), ..script([sends]) };
        let reader = script([step(reads, receive(0, 1))]);
        let workload = players(vec![(0, sender), (1, reader)], vec![object(Holds::Stream)]);
        outcome(&workload, 2, 140).metrics.objects[0].messages
    };
    let (calm, asleep, awake) = (step(100 * US, send(0, 1)), 0, 1_000 * US);
    let woke = Step { woke: true, ..step(140 * US, send(0, 1)) };
    assert!((998..=1_000).contains(&rounds(calm, asleep)));
    assert!((998..=1_000).contains(&rounds(woke, asleep)), "its price is in it");
    assert!((1_397..=1_400).contains(&rounds(calm, awake)));
    assert!((1_397..=1_400).contains(&rounds(woke, awake)), "less from the next operation");
}

/// What a recorder does follows from how much is told: a task beside it that wakes twice as often
/// and sends each time keeps it busy for twice as long.
#[test]
fn a_recorder_works_for_what_is_told() {
    let recorder = |pause: u64| {
        let drains = Step::new(Ns::ZERO, Act::Drain { records: 100 }, Ns(MS));
        let sends = script([step(US, send(0, 1)), step(0, Act::Sleep(Ns(pause)))]);
        let drains = script([drains, step(0, Act::Sleep(Ns(10 * MS)))]);
        let workload = players(vec![(0, sends), (1, drains)], vec![object(Holds::Stream)]);
        outcome(&workload, 2, 1_000).metrics.tasks[1].work_ns.0
    };
    let (slow, fast, none) = (recorder(MS), recorder(MS / 2), recorder(10_000 * MS));
    // A send, a sleep, a wakeup and two switches each millisecond: 50 records in 10 ms.
    assert!((45 * MS..=60 * MS).contains(&slow), "{slow} ns in 100 turns");
    assert!((slow * 19..=slow * 21).contains(&(fast * 10)), "{slow} became {fast}");
    assert!(none * 8 < slow, "{none} of its own events, {slow}");
}

/// A message of a queue goes to the reader that is free: two readers share them, none is taken
/// twice.
#[test]
fn readers_of_a_queue_share_its_messages() {
    let reader = || {
        script([
            step(0, Act::Receive { object: ObjectId(0), amount: 1, whole: true }),
            step(MS, Act::Nothing),
        ])
    };
    let workload = players(
        vec![(0, once((1..=20).map(|n| step(MS / 2, send(0, n))))), (1, reader()), (2, reader())],
        vec![object(Holds::Queue)],
    );
    let outcome = outcome(&workload, 3, 100);
    let object = &outcome.metrics.objects[0];
    assert_eq!((object.messages, object.receives), (20, 20));
    let work = [1, 2].map(|t| outcome.metrics.tasks[t].work_ns.0 / MS);
    assert_eq!(work, [10, 10], "a message each 0.5 ms, 1 ms of work for each");
}

/// Absolute times of a task count from its creation, and a life that is asked for while the task
/// lives comes behind the present one: created at 5 ms and asked for again at 6 ms, it sleeps for
/// 10 ms and works for 1 ms, twice.
#[test]
fn a_task_lives_as_often_as_it_is_created() {
    let child = [step(0, Act::SleepUntil(Ns(10 * MS))), step(MS, send(0, 1))];
    let creates = [5 * MS, MS].map(|after| step(after, Act::Spawn(TaskId(1))));
    let mut workload =
        players(vec![(0, once(creates)), (1, once(child))], vec![object(Holds::Tokens)]);
    workload.tasks[1].start = Start::Spawned;
    let outcome = outcome(&workload, 2, 100);
    assert_eq!(outcome.metrics.objects[0].messages, 2);
    let child = &outcome.metrics.tasks[1];
    assert_eq!((child.sleep_ns, child.work_ns), (Ns(20 * MS), Ns(2 * MS)));
    assert_eq!(outcome.ended, Ns(27 * MS));
}

/// The holder of a lock is not recorded while the lock is free: a waiter goes on when it is woken,
/// and also when the only task that could wake it falls asleep.
#[test]
fn a_lock_is_free_when_no_task_that_wakes_there_is_awake() {
    let lock = object(Holds::Lock { wakers: vec![TaskId(0), TaskId(1)] });
    let workload = players(
        vec![
            (0, once([step(5 * MS, send(0, 1)), step(5 * MS, Act::Sleep(Ns(50 * MS)))])),
            (1, once([step(MS, receive(0, 1)), step(0, receive(0, 1)), step(MS, Act::Nothing)])),
        ],
        vec![lock],
    );
    let outcome = outcome(&workload, 2, 100);
    assert_eq!(
        outcome.metrics.tasks[1].sleep_ns,
        Ns(9 * MS),
        "4 ms until the wake, 5 ms until the sleep"
    );
    let alone = players(
        vec![(0, once([step(MS, receive(0, 1)), step(MS, Act::Nothing)]))],
        vec![object(Holds::Lock { wakers: vec![TaskId(0)] })],
    );
    let outcome = self::outcome(&alone, 1, 10);
    assert_eq!(outcome.metrics.tasks[0].sleep_ns, Ns::ZERO);
}

/// An event loop that waits at a lock on its way goes on when it is woken there, and when the only
/// task that could wake it falls asleep. It waited for ever.
#[test]
fn a_loop_that_waits_at_a_lock_goes_on() {
    let done = |holder: Script| {
        let mut workload =
            players(vec![(1, holder)], vec![object(Holds::Lock { wakers: vec![TaskId(0)] })]);
        let steps = vec![turn(step(MS, receive(0, 1)), false), turn(step(MS, Act::Nothing), false)];
        let coroutines = vec![Coroutine::default(), Coroutine { steps, ..Coroutine::default() }];
        let life = Some(Ns(20 * MS));
        workload.exchange.executors.push(Executor { coroutines, life, ..Executor::default() });
        workload.tasks.push(on(0, Op::Attend(ExecutorId(0))));
        outcome(&workload, 2, 20).metrics.tasks[1].work_ns.0 / MS
    };
    let wakes = [step(9 * MS, send(0, 1)), step(MS, Act::Nothing)];
    // Before the holder has begun the lock is free: 2 ms.
    assert_eq!(done(once(wakes)), 2 + 11, "from its wake, and without a stop when it has ended");
    assert_eq!(done(once([step(10 * MS, Act::Sleep(Ns(50 * MS)))])), 2 + 10, "from its sleep");
}

/// What comes from outside comes at its times, and ends a wait.
#[test]
fn arrivals_come_at_their_times() {
    let mut workload = players(
        vec![(
            0,
            once([step(0, receive(0, 10)), step(MS, receive(0, 10)), step(MS, Act::Nothing)]),
        )],
        vec![object(Holds::Stream)],
    );
    let arrival = |at: u64, amount: u64| Arrival { at: Ns(at * MS), object: ObjectId(0), amount };
    workload.exchange.arrivals = vec![arrival(5, 10), arrival(7, 4), arrival(20, 6)];
    let outcome = outcome(&workload, 1, 50);
    assert_eq!(outcome.ended, Ns(21 * MS));
    assert_eq!(outcome.metrics.tasks[0].sleep_ns, Ns(5 * MS + 14 * MS));
}

#[test]
fn what_waits_for_ever_says_for_what() {
    let workload = players(vec![(0, once([step(MS, receive(0, 1))]))], vec![object(Holds::Tokens)]);
    let outcome = outcome(&workload, 1, 10);
    assert_eq!(outcome.stuck.len(), 1);
    assert_eq!(outcome.stuck[0].waits_for, WaitsFor::Object(ObjectId(0)));
}

/// Absolute times grow with each round, relative ones begin at the sleep.
#[test]
fn sleeps_are_absolute_or_relative() {
    let rounds = |act: Act| {
        let mut script = script([step(3 * MS, act)]);
        script.round = Ns(10 * MS);
        let outcome = outcome(&players(vec![(0, script)], Vec::new()), 1, 100);
        outcome.metrics.tasks[0].work_ns.0 / MS
    };
    assert_eq!(
        rounds(Act::SleepUntil(Ns(9 * MS))),
        3 * 10 + 1,
        "one in each 10 ms, and what was begun at 99 ms"
    );
    assert_eq!(rounds(Act::Sleep(Ns(9 * MS))), 3 * 8 + 3, "one in each 12 ms, and what was begun");
}

#[test]
fn a_child_is_waited_for_at_its_object() {
    let mut workload = players(
        vec![
            (
                0,
                once([
                    step(MS, Act::Spawn(TaskId(1))),
                    step(0, receive(0, 1)),
                    step(MS, Act::Nothing),
                ]),
            ),
            (1, once([step(5 * MS, send(0, 1))])),
        ],
        vec![object(Holds::Tokens)],
    );
    workload.tasks[1].start = schedlab_model::Start::Spawned;
    let outcome = outcome(&workload, 2, 100);
    assert_eq!(outcome.ended, Ns(7 * MS));
}

fn turn(step: Step, later: bool) -> CoroutineStep {
    CoroutineStep { step, later, looked: false, after_others: false, first: 1 }
}

/// An event loop with `lanes` threads that answers each of `clients`, 100 us each, beside what its
/// looks cost.
fn event_loop(clients: u32, lanes: u32, apart: bool) -> Workload {
    let mut objects = Vec::new();
    let mut scripts = Vec::new();
    let mut coroutines = vec![Coroutine::default()];
    for client in 0..clients {
        let (ask, answer) = (2 * client, 2 * client + 1);
        let mut asked = object(Holds::Stream);
        asked.answered_in = Some(ObjectId(answer));
        objects.extend([asked, object(Holds::Stream)]);
        scripts.push((1, script([step(40 * US, send(ask, 32)), step(0, receive(answer, 32))])));
        let steps = vec![
            turn(step(20 * US, receive(ask, 32)), true),
            turn(step(80 * US, send(answer, 32)), false),
        ];
        coroutines.push(Coroutine { steps, ..Coroutine::default() });
    }
    let mut workload = players(scripts, objects);
    workload.exchange.executors.push(Executor {
        name: "loop".to_owned(),
        coroutines,
        looks_awake: vec![Ns(5 * US)],
        looks_asleep: vec![(Ns(10 * US), Ns(15 * US))],
        ..Executor::default()
    });
    for lane in 0..lanes {
        workload.tasks.push(on(if apart { 2 + lane } else { 0 }, Op::Attend(ExecutorId(0))));
    }
    workload
}

/// Four clients keep a loop busy: one look for four requests, or one for each when requests come
/// one by one.
#[test]
fn a_loop_takes_all_that_is_ready_with_one_look() {
    let outcome = outcome(&event_loop(4, 1, false), 2, 1_000);
    let answered: u64 = outcome.metrics.objects.iter().skip(1).step_by(2).map(|o| o.messages).sum();
    // 100 us of work each, and between a quarter of a look and a whole one.
    assert!((9_400..=9_900).contains(&answered), "{answered}");
    let each: Vec<u64> = outcome.metrics.objects.iter().step_by(2).map(|o| o.receives).collect();
    assert!(each.iter().all(|n| n.abs_diff(each[0]) <= 1), "in turns: {each:?}");
}

/// With one client the loop sleeps after each answer, and then comes back in 15 us, beside 100 us
/// of work and 40 us of the client's; the 10 us before the sleep pass while the client works.
#[test]
fn a_loop_that_finds_nothing_sleeps() {
    let outcome = outcome(&event_loop(1, 1, false), 2, 1_550);
    let answered = outcome.metrics.objects[1].messages;
    assert!((9_990..=10_000).contains(&answered), "{answered}");
    assert!(outcome.metrics.tasks[1].sleep_ns > Ns::ZERO);
}

/// Beside the 155 us of a round of one client: what grows with the messages of an activation and
/// with what its look finds, and what its first send costs more.
#[test]
fn operations_of_a_loop_have_the_prices_of_their_activation() {
    let answered = |prices: Prices, first: u32| {
        let mut workload = event_loop(1, 1, false);
        let executor = &mut workload.exchange.executors[0];
        executor.prices = prices;
        for step in executor.coroutines.iter_mut().flat_map(|coroutine| &mut coroutine.steps) {
            step.first = first;
        }
        outcome(&workload, 2, 1_550).metrics.objects[1].messages
    };
    let near = |rounds: u64, us: u64| (rounds * us).abs_diff(1_550_000) <= 2 * us;
    let none = Prices::default();
    let found = Prices { look_found: Ns(5 * US), ..none };
    assert!(near(answered(found, 1), 160));
    let price = Price { fixed: -2_000, each: Ns(12 * US) };
    let first = Prices { first_send: price, ..none };
    assert!(near(answered(first, 0), 165), "-2 us, and 12 for its one receive");
    assert!(near(answered(first, 1), 155), "so it was recorded");
    assert!(near(answered(first, 2), 143), "behind two receives it was recorded");
    // Behind the send, while the client works for 40 us, before the look with its 10. What takes
    // longer than the client finds its request at once, for 5 us.
    let wake = |first| Prices { wake: [Ns(90 * US), Ns(first * US)], ..none };
    assert!(near(answered(wake(30), 0), 155));
    assert!(near(answered(wake(47), 0), 152));
    // 2 messages: before the sleep too.
    let behind = |us| Prices { look_behind: Ns(us * US), ..none };
    assert!(near(answered(behind(10), 1), 155));
    assert!(near(answered(behind(40), 1), 205));
}

/// Two lanes on two CPUs serve twice as much as one.
#[test]
fn lanes_share_what_is_ready() {
    let answered = |lanes: u32| {
        let outcome = outcome(&event_loop(8, lanes, true), 4, 500);
        outcome.metrics.objects.iter().skip(1).step_by(2).map(|o| o.messages).sum::<u64>()
    };
    let (one, two) = (answered(1), answered(2));
    assert!(two * 10 > one * 17, "{one} and {two}");
}

/// A loop with a timer of 10 ms does its 1 ms of work a hundred times a second.
#[test]
fn a_timer_of_a_loop_fires_beside_its_requests() {
    let mut workload = event_loop(1, 1, false);
    let timer = &mut workload.exchange.executors[0].coroutines[0];
    timer.steps = vec![
        turn(step(0, Act::SleepUntil(Ns(10 * MS))), true),
        turn(step(MS, Act::Nothing), false),
    ];
    let with = outcome(&workload, 2, 1_000).metrics.objects[1].messages;
    let without = outcome(&event_loop(1, 1, false), 2, 1_000).metrics.objects[1].messages;
    let lost = 1.0 - with as f64 / without as f64;
    assert!((0.08..0.13).contains(&lost), "{with} of {without}");
}

#[test]
fn a_workload_that_names_what_is_not_there_is_refused() {
    let lost = |workload: Workload| workload.check(2).is_err();
    assert!(lost(players(vec![(0, once([step(0, send(3, 1))]))], Vec::new())));
    assert!(lost(Workload { tasks: vec![on(0, Op::Play(ScriptId(0)))], ..Workload::default() }));
    assert!(lost(Workload {
        tasks: vec![on(0, Op::Attend(ExecutorId(0)))],
        ..Workload::default()
    }));
    let spins = players(vec![(0, script([step(0, Act::Nothing)]))], Vec::new());
    assert!(lost(spins));
}

/// A ring of scripts that hand a token on, beside random pairs that ask and answer, all with random
/// work.
fn random_exchange() -> impl Strategy<Value = Workload> {
    let pair = (1u64..200, 1u64..200, 1u64..5_000, 0u32..3, 0u32..3, 1usize..4);
    prop::collection::vec(pair, 1..6).prop_map(|pairs| {
        let mut objects = Vec::new();
        let mut scripts = Vec::new();
        for (asks, works, bytes, cpu, other, parts) in pairs {
            let number = objects.len() as u32;
            objects.extend([object(Holds::Stream), object(Holds::Stream)]);
            let part = bytes.div_ceil(parts as u64);
            let sends = (0..parts).map(|_| step(asks * US, send(number, part)));
            scripts.push((cpu, script(sends.chain([step(0, receive(number + 1, bytes))]))));
            let takes = [
                step(0, receive(number, part * parts as u64)),
                step(works * US, send(number + 1, bytes)),
            ];
            scripts.push((other, script(takes)));
        }
        players(scripts, objects)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    /// What is taken was sent, no loop is stuck, and three times the time has three times the
    /// messages.
    #[test]
    fn a_closed_loop_never_stands_still(workload in random_exchange()) {
        let short = outcome(&workload, 3, 40);
        let long = outcome(&workload, 3, 120);
        prop_assert!(short.stuck.is_empty() && long.stuck.is_empty());
        for (once, thrice) in short.metrics.objects.iter().zip(&long.metrics.objects) {
            prop_assert!(thrice.receives <= thrice.messages);
            prop_assert!(once.messages > 0);
            let ratio = thrice.messages as f64 / once.messages as f64;
            prop_assert!((1.5..6.0).contains(&ratio), "{} and {}", once.messages, thrice.messages);
        }
        let again = outcome(&workload, 3, 40);
        prop_assert_eq!(short.event_hash, again.event_hash);
    }

    /// Under every kind of scheduler.
    #[test]
    fn a_loop_completes_under_each(workload in random_exchange(), which in 0usize..4) {
        let name = ["fifo-per-cpu", "linux-7.2", "linux-2.6.22", "edf"][which];
        let options = RunOptions::for_time(Ns(30 * MS));
        let outcome = run(&Machine::flat(3), &workload, &*scheduler(name, 3), &options, &mut ());
        let outcome = outcome.expect("a clean run");
        prop_assert!(outcome.stuck.is_empty());
        prop_assert!(outcome.metrics.objects.iter().all(|object| object.receives > 0));
    }
}
