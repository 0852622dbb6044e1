//! `schedlab confirm`: what `compare` predicts beside what is measured, for the same variants and
//! schedulers.
//!
//! The command is started anew for every round: as the host has it, with each variant's settings
//! made on its real threads, and under each scheduler by `schedlab run`, with one driver or both.
//! Rounds are interleaved, all are recorded by the same recorder over the same length, and all
//! confine the command to the same CPUs. The prediction plays the base recording: the file that was
//! given, or the first round under the host's default. Rounds under `schedlab run` are predicted
//! behind a simulated agent with the costs that the driver has on this machine ([`DriverCosts`]).

mod answer;
mod driver;
mod driver_costs;
mod measured;
mod plan;
mod predict;
mod round;
mod settings;

pub use answer::{Confirmed, MetricAnswer, SCHEMA, SettingAnswer, TaskAnswer};
pub use driver_costs::DriverCosts;
pub use measured::METRICS;
pub use plan::{ConfirmError, ConfirmPlan, ConfirmProgress, LiveDriver};
pub use settings::SettingKind;

use driver_costs::Plays;
use measured::RoundMeasurements;
use round::Rounds;
use schedlab_study::compare::{Progress, RecordedInput};
use schedlab_study::serve::Server;
use schedlab_trace::Header;
use settings::RoundSetting;
use std::collections::BTreeSet;
use std::path::Path;

/// Runs, records, predicts. `stop` is asked every 20 ms.
///
/// # Errors
/// See [`ConfirmError`].
pub fn confirm(
    plan: &ConfirmPlan,
    running: ConfirmProgress<'_>,
    simulating: Progress<'_>,
    stop: &dyn Fn() -> bool,
) -> Result<Confirmed, ConfirmError> {
    let settings = settings::all(plan)?;
    schedlab_host::OwnCommand::check(&plan.command)
        .map_err(|error| ConfirmError::Input(error.to_string()))?;
    let mut plays = plays(plan)?;
    let open = |path: &Path| RecordedInput::open_from(path, plan.replay);
    let base = plan.base.as_deref().map(open).transpose()?;
    // Before the rounds, which take long.
    base.iter().try_for_each(|base| is_there(plan, base.found().0))?;
    let mut rounds = Rounds::new(plan, stop);
    let mut measured: Vec<Vec<RoundMeasurements>> = settings.iter().map(|_| Vec::new()).collect();
    let done = measure(
        plan,
        &settings,
        (&mut plays, base.is_none()),
        (&mut rounds, running),
        &mut measured,
    );
    let partial = matches!(done, Err(ConfirmError::Interrupted));
    // Each setting has a round: that is an answer.
    if !(partial && measured.iter().all(|rounds| !rounds.is_empty())) {
        done?;
    }
    let base = match base {
        Some(base) => base,
        None => open(&rounds.kept())?,
    };
    let costs = plays.into_iter().map(|plays| plays.costs(plan)).collect::<Result<Vec<_>, _>>()?;
    let of = |driver| costs.iter().find(|(by, _)| *by == driver).map(|(_, costs)| *costs);
    let names: BTreeSet<String> =
        measured.iter().flatten().flat_map(|round| round.names()).collect();
    let (soft, driven) = predict::predict(plan, &base, &names, &costs, simulating)?;
    let replay = soft.self_replay.as_ref();
    // A guess orders rows, and nothing else follows from it.
    let guessed: Vec<String> = soft.guess.iter().map(|guess| guess.name.clone()).collect();
    let server = soft.served.as_ref().map_or(&guessed[..], |served| &served.classes);
    let finished = measured.iter().map(Vec::len).min().unwrap_or(0);
    let settings = answer::answers(&settings, &measured, &soft, &driven, (&names, server));
    Ok(Confirmed {
        schema: SCHEMA,
        command: plan.command.clone(),
        cpus: plan.cpus,
        kernel: schedlab_host::machine().kernel,
        base: plan
            .base
            .as_ref()
            .map_or("the first round".to_owned(), |path| path.display().to_string()),
        rounds: finished,
        partial,
        round_ns: plan.round.0,
        simulated_as: replay.map_or_else(String::new, |replay| replay.scheduler.clone()),
        replay: base.replayed_from().name(),
        trusted: soft.trusted(),
        distrust: replay.map(|replay| replay.distrust.clone()).unwrap_or_default(),
        driver: of(LiveDriver::Elevation),
        driver_sched_ext: of(LiveDriver::SchedExt),
        verdict: answer::verdict(&settings, soft.served.as_ref()),
        guess: soft.guess.clone(),
        settings,
    })
}

/// Returns the plays that measure what each driver costs here.
fn plays(plan: &ConfirmPlan) -> Result<Vec<Plays>, ConfirmError> {
    let drivers: &[LiveDriver] = if plan.schedulers.is_empty() { &[] } else { &plan.drivers };
    if drivers.contains(&LiveDriver::SchedExt) {
        usable_by_sched_ext()?;
    }
    Ok(drivers.iter().copied().map(Plays::new).collect())
}

/// Measures all rounds, one of each setting after the other, into `measured`; `plays` measure
/// before each what a driver costs, and the first round is kept if it is the base.
fn measure(
    plan: &ConfirmPlan,
    settings: &[RoundSetting],
    (plays, keeps): (&mut [Plays], bool),
    (rounds, running): (&mut Rounds<'_>, ConfirmProgress<'_>),
    measured: &mut [Vec<RoundMeasurements>],
) -> Result<(), ConfirmError> {
    let all = plan.rounds * settings.len();
    for round in 0..plan.rounds {
        for one in &mut *plays {
            running("what the driver costs here", round * settings.len(), all);
            one.play(plan)?;
        }
        for (index, setting) in settings.iter().enumerate() {
            running(&setting.name(), round * settings.len() + index, all);
            let keep = keeps && round == 0 && index == 0;
            measured[index].push(rounds.run(setting, keep)?);
            if keep && plan.serve.is_some() {
                // After the first round, because the others take long.
                is_there(plan, &rounds.header()?)?;
            }
        }
    }
    Ok(())
}

/// Refuses a server that is not in the recording that predictions are made from.
fn is_there(plan: &ConfirmPlan, header: &Header) -> Result<(), ConfirmError> {
    let server = plan.serve.as_deref().map(Server::new);
    Ok(server.map(|server| server.tasks(header)).transpose().map(drop)?)
}

/// Refuses before the first round what `schedlab run --driver sched-ext` would refuse in one of the
/// later ones.
fn usable_by_sched_ext() -> Result<(), ConfirmError> {
    let refuse = |why: String| {
        Err(ConfirmError::Input(format!("--driver sched-ext cannot be used here: {why}")))
    };
    match schedlab_host::sched_ext::usable_here() {
        Ok(class) => match class.scheduler() {
            Some(name) => refuse(format!(
                "the sched_ext scheduler {name} is active, and the kernel runs one at a time"
            )),
            None => Ok(()),
        },
        Err(why) => refuse(format!(
            "{why}. `schedlab doctor` shows each limit; --driver elevation works on any kernel"
        )),
    }
}
