//! Comparing over a recording: first the recording against its own simulation, then the what-ifs.

use super::alone;
use super::assemble::Played;
use super::client_log::{self, ClientLog};
use super::course::Course;
use super::elasticity::{self, Reading};
use super::gates::Gates;
use super::notes::notes;
use super::part::{Read, Window, duration, events_of};
use super::recorded_kernel::{machine_settings, recorded_scheduler};
use super::replaying::{ByMessages, ReplayFrom, replayed};
use super::row_errors::RowErrors;
use super::serve::{Served, Waits};
use super::spread::Spread;
use super::subjects::{Subjects, single};
use super::timing::Timing;
use super::trust::{self, TRUSTED_SHARE};
use super::validation::{self, FirstHalf};
use super::{
    Ended, Options, Point, Progress, check_knobs_exist, check_knobs_of_points, check_names,
    check_schedulers, split_classes,
};
use super::{detail, parse_variants, seeds, verdict};
use crate::StudyError;
use crate::measurements::Measured;
use crate::result::{SecondHalf, SelfReplay, Study};
use crate::run::{Bench, KnownRuns, Measures, Ran, RowPlan, spinning};
use crate::serve::{self, Guess};
use crate::together::Together;
use crate::variant::{Subject, Variant};
use schedlab_model::{EventSink, Ns};
use schedlab_replay::{Stall, stalls};
use schedlab_scheduler::{SchedulerSpec, registry};
use schedlab_sim::{Machine, RunOptions};
use schedlab_trace::analysis::Summary;
use schedlab_trace::guests::Guests;
use schedlab_trace::import::Purpose;
use schedlab_trace::replay::Replay;
use schedlab_trace::{FactLoss, Header, Recording};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// How many seeds when the user does not say. Each moves the ticks of the machine, of which a
/// recording does not know when they came.
const SEEDS: u32 = 5;

/// What a reader must know where the replay by messages was tried first.
const OF_WAKEUPS: &str = "its messages do not reproduce this recording (--replay messages says what \
                          they miss), so it is replayed from its wakeups, which do";

/// A recording ready to be compared.
#[derive(Debug)]
pub struct RecordedInput {
    path: PathBuf,
    pub(super) header: Header,
    pub(super) events: usize,
    pub(super) repairs: schedlab_trace::Repairs,
    /// What is missing among the facts.
    pub(super) fact_loss: FactLoss,
    /// Why neither replay knows which of its datagrams answer which; `None`: nothing is in the way.
    without_addresses: Option<String>,
    /// Waits that timeouts ended.
    stalls: Vec<Stall>,
    pub(super) replay: Replay,
    /// What the replay by messages knows, where that made the workload.
    pub(super) by_messages: Option<ByMessages>,
    /// The replay was chosen by the recording, not by the user.
    chosen: bool,
    pub(super) summary: Summary,
    pub(super) classes: Vec<String>,
    /// How tasks are taken together in these.
    pub(super) by: Together,
    pub(super) subjects: Subjects,
    kernel_threads: Vec<bool>,
    guests: Guests,
    /// The part of the recording that was read; `None`: all of it.
    pub(super) window: Option<(Ns, Ns)>,
    /// Names of tasks that do nothing in the part of the recording that was read.
    pub(super) idle: BTreeSet<String>,
    /// By class: what the recording itself says of how it reacts to others.
    pub(super) readings: Vec<(String, Reading)>,
    /// How steady the tails of its times are.
    pub(super) spread: Spread,
    /// What its tasks had window by window, where they move between CPUs.
    pub(super) course: Course,
    /// Who ran while each program waited.
    pub(super) waits: Waits,
    /// The program that may be the server, where the user names none.
    pub(super) guess: Option<Guess>,
    /// Its first half, where that can be held against the second.
    pub(super) first_half: Option<Box<FirstHalf>>,
    /// Runs of it as it was recorded.
    known: KnownRuns,
    /// What its classes have without tasks that never end, for which scheduler and seed that was
    /// asked first.
    pub(super) alone: OnceLock<(SchedulerSpec, Option<u64>, BTreeMap<String, f64>)>,
}

impl RecordedInput {
    /// Reads and converts a recording.
    pub fn open(path: &Path) -> Result<RecordedInput, StudyError> {
        RecordedInput::read(path, ReplayFrom::default(), None)
    }

    /// Reads and converts a recording with the replay that is chosen.
    ///
    /// # Errors
    /// It cannot be read, or has no messages to be replayed from.
    pub fn open_from(path: &Path, from: ReplayFrom) -> Result<RecordedInput, StudyError> {
        RecordedInput::read(path, from, None)
    }

    /// Reads and converts the first part of a recording, as if it had ended there; `None`: all of
    /// it. What comes later is not read.
    ///
    /// # Errors
    /// As for [`RecordedInput::open_from`].
    pub fn read(
        path: &Path,
        from: ReplayFrom,
        length: Option<Ns>,
    ) -> Result<RecordedInput, StudyError> {
        RecordedInput::read_for(path, from, &Window::first(length), Purpose::Replay)
    }

    /// As [`RecordedInput::read`], of any part; a text of another tool that cannot serve `purpose`
    /// is refused at its beginning.
    pub(crate) fn read_for(
        path: &Path,
        from: ReplayFrom,
        window: &Window,
        purpose: Purpose,
    ) -> Result<RecordedInput, StudyError> {
        RecordedInput::read_until(path, from, (window, purpose), &|| false)
    }

    /// As [`RecordedInput::read_for`], until `ended`: it is looked at between the steps.
    pub(crate) fn read_until(
        path: &Path,
        from: ReplayFrom,
        (window, purpose): (&Window, Purpose),
        ended: Ended<'_>,
    ) -> Result<RecordedInput, StudyError> {
        let go_on = || if ended() { Err(StudyError::Stopped) } else { Ok(()) };
        let asked = window.serve.as_deref();
        let (by, unserved) = (window.by, window.unserved);
        let Read { mut recording, idle, window } = events_of(path, window, purpose, ended)?;
        go_on()?;
        let mut input = RecordedInput::from_recording(path, &recording, from, by)?;
        go_on()?;
        input.summary = Summary::from_recording(&recording)
            .map_err(|source| StudyError::trace(path, source))?;
        // The replay needs the programs; from here on tasks are called as their classes are.
        let programs = std::mem::replace(&mut recording.header, by.named(&input.header));
        (input.idle, input.window) = (idle, window);
        input.chosen = from == ReplayFrom::Auto;
        input.guess = if asked.is_some() { None } else { serve::guess(&recording) };
        go_on()?;
        input.readings = elasticity::readings(&recording, &input.replay);
        if !unserved {
            input.waits = Waits::from_recording(&recording);
        }
        let requests = input.by_messages.as_ref().map(|messages| &messages.recorded);
        input.spread = Spread::from_recording(&recording, &input.summary, &input.classes, requests);
        if input.spread.moves {
            let requests = input.by_messages.as_ref().map(|messages| &messages.none_yet);
            input.course = Course::from_recording(&recording, requests);
        }
        go_on()?;
        recording.header = programs;
        // Now, because a pipe is read once.
        input.first_half = FirstHalf::cut(&input, recording).map(Box::new);
        Ok(input)
    }

    /// Converts what was read from `path`, without what `open` adds: what was recorded, and what
    /// finds the errors of predictions.
    pub(super) fn from_recording(
        path: &Path,
        recording: &Recording,
        from: ReplayFrom,
        by: Together,
    ) -> Result<RecordedInput, StudyError> {
        let (replay, by_messages) = replayed(path, recording, from)?;
        let header = recording.header.clone();
        let by = by.of(&header);
        Ok(RecordedInput {
            path: path.to_owned(),
            events: recording.events.len(),
            repairs: recording.repairs.clone(),
            fact_loss: recording.facts.loss(),
            without_addresses: recording.facts.without_addresses(),
            stalls: stalls(&recording.facts.list),
            summary: Summary::new(0, 0, Ns::ZERO),
            kernel_threads: header.tasks.iter().map(|task| task.kernel).collect(),
            guests: Guests::of(&header),
            classes: by.names(&header),
            by,
            subjects: Subjects::default(),
            readings: Vec::new(),
            idle: BTreeSet::new(),
            window: None,
            guess: None,
            waits: Waits::default(),
            spread: Spread::default(),
            course: Course::default(),
            header,
            replay,
            by_messages,
            chosen: false,
            first_half: None,
            known: KnownRuns::default(),
            alone: OnceLock::new(),
        })
    }

    /// Plays the recording once under the scheduler that it was recorded under, and hands every
    /// simulated event to `sink`: for lining the two streams up, wakeup by wakeup.
    pub fn play(&self, seed: u64, sink: &mut dyn EventSink) -> Result<(), StudyError> {
        let (recorded, _, _) = recorded_scheduler(&self.header, None)?;
        let plan = RowPlan::new(&recorded, &Variant::as_recorded(), &self.subject())?;
        let machine = Machine {
            preemption: plan.preemption.clone(),
            roles: plan.roles,
            ..self.machine(seed)
        };
        let scheduler = registry::build(&plan.scheduler, machine.topology.cpus())?;
        let options = RunOptions {
            seed,
            duration: self.replay.duration,
            midway: true,
            ..RunOptions::default()
        };
        plan.run(&machine, &*scheduler, &options, sink).map(drop)
    }

    /// Returns which replay made its workload.
    pub fn replayed_from(&self) -> ReplayFrom {
        if self.by_messages.is_some() { ReplayFrom::Messages } else { ReplayFrom::Wakeups }
    }

    /// Returns why no replay can be trusted with facts of this kind missing, or none by messages
    /// with so many; `None`: it can, or its workload is not made of facts.
    pub(super) fn without_facts(&self) -> Option<String> {
        if self.without_addresses.is_some() {
            return self.without_addresses.clone();
        }
        let bad = self.by_messages.is_some() && self.fact_loss.is_too_much();
        let missing = self.fact_loss.sentence().filter(|_| bad)?;
        Some(format!(
            "{missing}: a task may wait for a message that is not there; record again, or replay \
             the wakeups, which needs no facts (--replay wakeups)"
        ))
    }

    /// Returns why threads say nothing of a change: so much of the recording passed in waits that
    /// their timeouts ended.
    pub(super) fn stalled(&self) -> impl Iterator<Item = String> {
        let duration = self.replay.duration;
        let long = move |stall: &&Stall| stall.length.0 as f64 > TRUSTED_SHARE * duration.0 as f64;
        self.stalls.iter().filter(long).map(move |stall| {
            let class = &self.classes[stall.task.index()];
            let (times, length, all) = (stall.times, seconds(stall.length), seconds(duration));
            format!(
                "{class}: a timeout ended {times} waits that messages end otherwise, {length} of \
                 {all} in all: whether a wakeup is missed depends on the order in which tasks \
                 run, and no fact tells why it was"
            )
        })
    }

    /// Returns the programs of the server that is asked about, or may be meant.
    pub(super) fn server(&self, served: Option<&Served>) -> Vec<String> {
        match (served, &self.guess) {
            (Some(served), _) => served.classes.clone(),
            (None, guess) => guess.iter().flat_map(|guess| guess.programs.clone()).collect(),
        }
    }

    /// The recorded header and what the conversion found.
    pub fn found(&self) -> (&Header, &Replay) {
        (&self.header, &self.replay)
    }

    /// What was recorded, class by class.
    pub fn measured(&self) -> Measured {
        self.measured_with(&|_| None)
    }

    /// The same with tasks of their own.
    pub(super) fn measured_with(&self, single: &dyn Fn(usize) -> Option<String>) -> Measured {
        let mut measured = Measured::of_summary(&self.summary, &self.classes, single);
        if let Some(messages) = &self.by_messages {
            measured.requests(&messages.recorded, self.summary.window);
        }
        measured
    }

    /// The names of its tasks, with repetitions.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.classes.iter().map(String::as_str)
    }

    /// Returns the row of a point of a search.
    pub(crate) fn plan_of_point(
        &self,
        recorded: &SchedulerSpec,
        point: &Point,
    ) -> Result<RowPlan, StudyError> {
        let (label, spec) = match &point.scheduler {
            None => (recorded.name.clone(), recorded.clone()),
            Some(other) => (other.to_string(), machine_settings(recorded, other)?),
        };
        Ok(RowPlan { label, ..RowPlan::new(&spec, &point.variant, &self.subject())? })
    }

    /// Returns the runs of the first row that are known; `None`: they are measured otherwise. Tasks
    /// of their own are measured beside the classes, and a page needs the events.
    fn known_runs(&self, plans: &[RowPlan], observed: bool) -> Option<&KnownRuns> {
        let is_alike = !observed && split_classes(plans, &self.classes).is_empty();
        is_alike.then_some(&self.known)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What each class has in the second half, recorded and simulated from the first; empty where
    /// that says nothing.
    fn second_half(
        &self,
        recorded: &SchedulerSpec,
        bench: &Bench<'_>,
    ) -> Result<Vec<SecondHalf>, StudyError> {
        self.first_half.as_ref().map_or(Ok(Vec::new()), |half| half.second_half(recorded, bench))
    }

    pub(super) fn subject(&self) -> Subject<'_> {
        Subject {
            workload: &self.replay.workload,
            classes: &self.classes,
            threads: &self.header.tasks,
            cpus: self.replay.topology.cpus(),
            vms: &[],
            delegation: &crate::delegation::IN_KERNEL,
            kernel: None,
            roles: self.roles(),
            smt_yield: self.smt_yield(),
            kernel_threads: &self.kernel_threads,
            guests: Some(&self.guests),
        }
    }
}

/// Returns a length in seconds, as verdicts write it.
fn seconds(length: Ns) -> String {
    format!("{:.2}s", length.0 as f64 / 1e9)
}

/// The rows to run: the recording as it was first, then every scheduler with every variant.
fn plans(
    input: &RecordedInput,
    recorded: &SchedulerSpec,
    options: &Options,
) -> Result<Vec<RowPlan>, StudyError> {
    check_schedulers(&options.schedulers)?;
    let variants = parse_variants(&options.variants)?;
    check_names(&variants)?;
    let subject = input.subject();
    let unchanged = Variant::as_recorded();
    let baseline =
        RowPlan { label: recorded.name.clone(), ..RowPlan::new(recorded, &unchanged, &subject)? };
    if !options.points.is_empty() {
        let points = options.points.iter().map(|point| input.plan_of_point(recorded, point));
        let plans = std::iter::once(Ok(baseline)).chain(points).collect::<Result<Vec<_>, _>>()?;
        check_knobs_of_points(&plans, &options.points)?;
        return Ok(plans);
    }
    let named: Vec<(String, SchedulerSpec)> = match options.schedulers.is_empty() {
        true => vec![(recorded.name.clone(), recorded.clone())],
        false => {
            let full =
                |spec: &SchedulerSpec| Ok((spec.to_string(), machine_settings(recorded, spec)?));
            options.schedulers.iter().map(full).collect::<Result<_, StudyError>>()?
        }
    };
    let mut plans = vec![baseline];
    for (label, spec) in &named {
        for variant in std::iter::once(&unchanged).chain(&variants) {
            let plan = RowPlan { label: label.clone(), ..RowPlan::new(spec, variant, &subject)? };
            // The baseline is there already.
            if plan.scheduler != *recorded || variant.name != unchanged.name {
                plans.push(plan);
            }
        }
    }
    check_knobs_exist(&plans, &variants)?;
    Ok(plans)
}

/// What a gate may name: the classes, and a client's own count.
fn gated_names(input: &RecordedInput, counted: bool) -> Vec<String> {
    let mut names = input.classes.clone();
    names.extend(counted.then(|| client_log::SUBJECT.to_owned()));
    names
}

/// Replays a recording under the scheduler it was recorded under, then under every scheduler and
/// variant. `recorded_under` overrides the choice by the kernel's version.
pub fn compare_recording(
    input: &RecordedInput,
    recorded_under: Option<&SchedulerSpec>,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Study, StudyError> {
    check_schedulers(recorded_under.map(std::slice::from_ref).unwrap_or_default())?;
    let duration = duration(input, options)?;
    // A replay of the whole knows what came later, and its errors are those of the whole.
    let by = |window: Window| Window { by: input.by, ..window };
    let part = (duration != input.replay.duration).then(|| match input.window {
        None | Some((Ns::ZERO, _)) => by(Window::first(Some(duration))),
        Some((from, _)) => by(Window::between((from, from + duration))),
    });
    let read =
        |from, window: &Window| RecordedInput::read_for(&input.path, from, window, Purpose::Replay);
    let study = match &part {
        None => compare_read(input, recorded_under, options, progress),
        Some(part) => {
            let first = read(input.replayed_from(), part)?;
            compare_read(&first, recorded_under, options, progress)
        }
    }?;
    let is_whole = study.unfinished == 0;
    // Where tasks move, tasks that are taken to be driven from outside reproduce any recording.
    let stays = !input.spread.moves;
    if !input.chosen || !stays || input.by_messages.is_none() || study.trusted() || !is_whole {
        return Ok(study);
    }
    // Messages that do not reproduce the recording are no better than wakeups that do. What cannot
    // be read twice, as a pipe, keeps its first answer.
    let whole = || by(input.window.map_or_else(Window::default, Window::between));
    let Ok(other) = read(ReplayFrom::Wakeups, &part.unwrap_or_else(whole)) else {
        return Ok(study);
    };
    let mut again = match compare_read(&other, recorded_under, options, progress) {
        // The answer from the messages is there already.
        Err(StudyError::Stopped) if options.keep_finished => return Ok(study),
        again => again?,
    };
    if !again.trusted() || again.unfinished > 0 {
        return Ok(study);
    }
    again.notes.insert(0, OF_WAKEUPS.to_owned());
    Ok(again)
}

/// As [`compare_recording`], of all that was read.
fn compare_read(
    input: &RecordedInput,
    recorded_under: Option<&SchedulerSpec>,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Study, StudyError> {
    let duration = input.replay.duration;
    let (recorded, why, left_out) = recorded_scheduler(&input.header, recorded_under)?;
    let planned = self::plans(input, &recorded, options);
    let mut plans = planned.map_err(|error| input.named_in_vain(error))?;
    let mut served =
        options.serve.as_deref().map(|asked| Served::find(asked, input)).transpose()?;
    let client = options.client_log.as_ref().map(|log| ClientLog::open(log, input)).transpose()?;
    let names = gated_names(input, client.is_some());
    let gates = Gates::new(options, &plans, &names)?;
    let seeds = seeds(options.seed.unwrap_or(1), options.repetitions.unwrap_or(SEEDS));
    let single = single(input, &plans);
    let server = input.server(served.as_ref());
    let kept = || detail::keep(&input.header, &input.classes, duration, plans.len(), &server);
    let keep = options.detail.then(kept);
    let bench = Bench {
        machine: &|seed| input.machine(seed),
        classes: &input.classes,
        duration,
        end_with_tasks: false,
        warmup: Ns::ZERO,
        seeds: &seeds,
        keep: keep.as_ref(),
        as_recording: Some(&single),
        requests: input.by_messages.as_ref().map(|messages| &messages.none_yet),
        measures: Measures::all(input.spread.moves),
        jobs: options.jobs,
        progress,
        stop: options.stop.as_ref(),
        keep_finished: options.keep_finished,
        seen: options.seen.as_deref(),
        known: input.known_runs(&plans, keep.is_some()),
    };
    let Ran { mut runs, seeds: of, refused, unfinished } = bench.run(&mut plans)?;
    let timing = Timing::tried(&bench, options, (&plans, &of, unfinished), false)?;
    // How far to trust the rows that were finished is a matter of a few runs more.
    let stop = bench.stop.filter(|_| !options.keep_finished);
    let bench = Bench { stop, seen: None, measures: Measures::All, known: None, ..bench };
    client.iter().for_each(|client| client.add_to(&mut runs));
    let alone = alone::alone(input, &plans[0], &bench)?;
    let was = input.measured_with(&single);
    let first = trust::FirstRow::new(input, &plans[0], &runs[0]);
    let found = trust::self_replay(input, &recorded, why, &first, &alone, &was, &mut served);
    let mut replay = SelfReplay { left_out, ..found };
    let mut errors = trust::method_errors(&replay, input, &was, &first);
    replay.doubt(input.second_half(&recorded, &bench)?, &errors, &mut served);
    validation::widen(&mut errors, &replay.second_half, input);
    client.iter().for_each(|client| client.add_error(&runs[0], input, &mut errors));
    served.iter().for_each(|server| server.add_to(&mut errors, &was));
    let (errors, open) = RowErrors::find(input, &plans, &runs, errors);
    let of_server = served.iter().flat_map(Served::notes);
    let limits = spinning::notes(&plans, Some(&input.replay.workload)).into_iter().chain(refused);
    let notes = notes(input, client.as_ref()).into_iter().chain(of_server).chain(open);
    let played = Played { plans: &plans, runs: &runs, errors: &errors, timing: &timing };
    let head = input.study(&played, options, notes.chain(limits).collect(), of)?;
    let guess = input.guess.clone().filter(|_| served.is_none());
    let mut study = Study { self_replay: Some(replay), served, guess, unfinished, ..head };
    study.gates = gates.judge(&plans, &runs, &errors, &timing, &study)?;
    study.headline = crate::headline::headline(&study, &options.only);
    study.verdict = verdict::verdict(&study);
    if let Some(keep) = &keep {
        study.detail = Some(Box::new(input.detailed(&study, &runs, keep, &was)?));
    }
    Ok(study)
}
