//! One body of checks over the simulator and over real threads under the live driver: the same
//! workload, the same expectations about which task runs after which, for first in first out, round
//! robin, EDF, Shinjuku and layers.
//!
//! This program is the tests, and also the process whose threads play the workload ([`player`]).

mod cases;
mod checks;
mod live;
mod player;

use cases::{CASES, Case};
use checks::{check, order, overrun};
use libtest_mimic::{Arguments, Failed, Trial};
use live::Played;
use schedlab_model::Ns;
use schedlab_testing::{settles, settles_ok};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, file] = &arguments[..]
        && word == player::COMMAND
    {
        return player::play(file);
    }
    let mut arguments = Arguments::from_args();
    // The live ones manage the same CPU, and the recorder's CPU time would delay others.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    for case in CASES {
        for (scheduler, expected) in case.expected {
            let name = |where_: &str| format!("{where_}::{}::{scheduler}", case.name);
            let (simulated, lived) = (
                move || in_simulator(case, scheduler, expected),
                move || judged(|| on_threads(case, scheduler, expected)),
            );
            trials.push(Trial::test(name("simulator"), simulated));
            trials.push(
                Trial::test(name("live"), lived).with_ignored_flag(live::missing().is_some()),
            );
        }
    }
    trials.push(
        Trial::test("live::a_starved_thread_is_released", || judged(live::starved))
            .with_ignored_flag(live::missing().is_some()),
    );
    trials.push(
        Trial::test("live::a_thread_that_is_sent_to_another_cpu_is_given_back", live::sent_away)
            .with_ignored_flag(live::missing().is_some()),
    );
    if let Some(why) = live::missing() {
        assert!(std::env::var_os("CI").is_none(), "the live half cannot run here: {why}");
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// What is seen of a hypervisor's stalls is not all of them: a judgement may be repeated. And a
/// driver that a guardian ended, because no thread could beat for 100 ms, has no report, which is a
/// panic.
fn judged(attempt: impl Fn() -> Result<(), Failed>) -> Result<(), Failed> {
    settles(3, || settles_ok(3, &attempt))
}

fn in_simulator(case: &Case, scheduler: &str, expected: &str) -> Result<(), Failed> {
    let events = checks::simulate(case, scheduler);
    verdict(case, scheduler, expected, &events, Ns::ZERO)
}

/// Ticks of agents, interrupts: bounds of waits may be exceeded by this much.
const SLACK: Ns = Ns::from_ms(15);
/// Slices are wall time, and the expected orders hold where a task has its CPU in it. When a thread
/// that the driver cannot hold off takes more than this, an order says nothing about the driver,
/// and the workload is played again. Each case leaves at least 3 ms.
const DISTURBED: Ns = Ns::from_ms(1);
/// Who takes the CPU in every one of them is no disturbance any more.
const PLAYS: u32 = 25;

fn on_threads(case: &Case, scheduler: &str, expected: &str) -> Result<(), Failed> {
    let mut said = Vec::new();
    for play in 1..=PLAYS {
        let played = live::run(case, scheduler)?;
        let judge = |events: Vec<_>| verdict(case, scheduler, expected, &events, SLACK);
        let overrun = played.events.as_ref().map_or(Ns::ZERO, |events| overrun(case, events));
        let Err(failed) = played.events.and_then(judge) else { return Ok(()) };
        if played.others.max(overrun) <= DISTURBED && played.yield_windows == 0 {
            return Err(failed);
        }
        let why = failed.message().unwrap_or_default();
        let Played { others, yield_windows, .. } = played;
        said.push(format!(
            "{others} taken by others, {overrun} lost on the CPU, {yield_windows} yield windows: \
             {why}"
        ));
        std::thread::sleep(std::time::Duration::from_millis(40) * play);
    }
    Err(format!("CPU 0 was not to be had in any of {PLAYS} plays: {}", said.join("; ")).into())
}

fn verdict(
    case: &Case,
    scheduler: &str,
    expected: &str,
    events: &[schedlab_model::SchedEvent],
    slack: Ns,
) -> Result<(), Failed> {
    let names = case.names();
    let got = order(events, &names);
    if got != expected {
        return Err(format!("order of turns: wanted {expected}, got {got}").into());
    }
    check(case, scheduler, events, slack).map_err(Failed::from)
}
