//! One body of checks over the simulator and over real threads under the live driver: the same workload, the same
//! expectations about who runs after whom, for first in first out, round robin, EDF, Shinjuku and layers.
//!
//! This program is the tests, and also the process whose threads play the workload ([`player`]).

mod cases;
mod checks;
mod live;
mod player;

use cases::{CASES, Case};
use checks::{check, order};
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, file] = &arguments[..]
        && word == player::COMMAND
    {
        return player::play(file);
    }
    let mut arguments = Arguments::from_args();
    // The live ones manage the same CPU, and the recorder's CPU time would be somebody else's delay.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    for case in CASES {
        for (scheduler, expected) in case.expected {
            let name = |where_: &str| format!("{where_}::{}::{scheduler}", case.name);
            let (simulated, lived) = (
                move || in_simulator(case, scheduler, expected),
                move || on_threads(case, scheduler, expected),
            );
            trials.push(Trial::test(name("simulator"), simulated));
            trials.push(Trial::test(name("live"), lived).with_ignored_flag(live::missing().is_some()));
        }
    }
    trials.push(
        Trial::test("live::a_starved_thread_is_released", live::starved)
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

fn in_simulator(case: &Case, scheduler: &str, expected: &str) -> Result<(), Failed> {
    let events = checks::simulate(case, scheduler);
    verdict(case, scheduler, expected, &events, schedlab_model::Ns::ZERO)
}

fn on_threads(case: &Case, scheduler: &str, expected: &str) -> Result<(), Failed> {
    let events = live::run(case, scheduler)?;
    // Ticks of agents, interrupts, a hypervisor: bounds of waits may be exceeded by this much.
    verdict(case, scheduler, expected, &events, schedlab_model::Ns::from_ms(15))
}

fn verdict(
    case: &Case,
    scheduler: &str,
    expected: &str,
    events: &[schedlab_model::SchedEvent],
    slack: schedlab_model::Ns,
) -> Result<(), Failed> {
    let names = case.names();
    let got = order(events, &names);
    if got != expected {
        return Err(format!("who ran after whom: wanted {expected}, got {got}").into());
    }
    check(case, scheduler, events, slack).map_err(Failed::from)
}
