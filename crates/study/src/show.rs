//! `schedlab show`: analyses of a recording, or of a simulated scenario, over the part that the
//! user asked for.

use crate::StudyError;
use crate::compare::{Around, Ended, Window};
use crate::gallery::Found;
use crate::pieces::Lanes;
use crate::run::RowPlan;
use crate::scenario::{Scenario, task_info};
use crate::serve::{self, Guess, Server};
use schedlab_model::text::{is_in_group, shown};
use schedlab_model::{CpuId, Ns, TaskSpec};
use schedlab_scheduler::{Scheduler, SchedulerSpec};
use schedlab_sim::{Machine, RunOptions, Stop};
use schedlab_trace::analysis::show::{Entry, Found as Shown};
use schedlab_trace::analysis::timehist::{Listed, Listing, Piece, Take};
use schedlab_trace::analysis::{Answer, By, Scope};
use schedlab_trace::import::Purpose;
use schedlab_trace::{
    Blocks, GroupInfo, Header, Incident, Index, Part, ReadLimits, Recording, TaskInfo, TraceError,
    import,
};
use std::cell::Cell;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;

/// Which part of a recording is shown.
#[derive(Clone, Debug, Default)]
pub struct ShowOptions {
    /// A name, a glob, or a number (thread id, or process id for all its threads).
    pub task: Option<String>,
    /// Path of a control group; its children belong to it.
    pub cgroup: Option<String>,
    /// A CPU.
    pub cpu: Option<u32>,
    /// Start of the window.
    pub from: Option<Ns>,
    /// End of the window.
    pub to: Option<Ns>,
    /// What is in the middle of the window, which is then 2 s long, or twice a longer wait.
    pub around: Option<Around>,
    /// Rows at most, where an analysis shows the largest.
    pub top: Option<usize>,
    /// How tasks are taken together.
    pub by: Option<By>,
    /// The server whose rows come first.
    pub serve: Option<String>,
}

/// The server that an answer is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownServer {
    /// Its programs.
    pub programs: Vec<String>,
    /// What it is called in sentences.
    pub name: String,
    /// Where the user named none: what is said of the one that is guessed.
    pub guess: Option<Guess>,
}

/// Puts the rows of the server first: of the one that was named, else of the one that is guessed.
/// Where the user asks for some of the tasks, none is guessed.
///
/// # Errors
/// The server that was named is not in the recording.
pub fn server_first(
    recording: &Recording,
    options: &ShowOptions,
    scope: &mut Scope,
) -> Result<Option<ShownServer>, StudyError> {
    let header = &recording.header;
    let (server, guess) = match &options.serve {
        Some(asked) => (Server::new(asked), None),
        None if options.task.is_some() || options.cgroup.is_some() => return Ok(None),
        None => match serve::guess(recording) {
            Some(guess) => (Server::new(&guess.name), Some(guess)),
            None => return Ok(None),
        },
    };
    let tasks = server.tasks(header)?;
    let programs = Server::programs(header, &tasks);
    scope.first = Some(tasks);
    Ok(Some(ShownServer { name: server.name(&programs), programs, guess }))
}

/// Runs analyses over a recording, those that find all before they show anything on threads of
/// their own, beside `meanwhile`. Returns what each found, in the same order, and what `meanwhile`
/// gave.
pub fn found_beside<'a, T>(
    chosen: &'a [(&'static Entry, Scope)],
    recording: &'a Recording,
    meanwhile: impl FnOnce() -> T,
) -> (Vec<Shown<'a>>, T) {
    std::thread::scope(|threads| {
        let apart = |(entry, scope): &'a (&'static Entry, Scope)| {
            entry.finds_first().then(|| threads.spawn(|| entry.found(recording, scope)))
        };
        let apart: Vec<_> = chosen.iter().map(apart).collect();
        let given = meanwhile();
        let found = chosen.iter().zip(apart).map(|((entry, scope), apart)| match apart {
            Some(apart) => apart.join().unwrap_or_else(|panic| resume_unwind(panic)),
            None => entry.found(recording, scope),
        });
        (found.collect(), given)
    })
}

/// Returns what the part of a recording that is shown says of waiting: what the recording was kept
/// for, then of the server, then of others.
pub fn sentences(
    recording: &Recording,
    scope: &Scope,
    found: Option<&Answer>,
    server: Option<&ShownServer>,
) -> String {
    let answer = of_waiting(found, server);
    match caught(recording, scope) {
        Some(incident) => format!("{} {answer}", incident.sentence(recording)),
        None => answer,
    }
}

/// Returns what a flight recorder kept the recording for, where it is in the part that is shown.
pub fn caught(recording: &Recording, scope: &Scope) -> Option<Incident> {
    recording.header.incident().filter(|incident| incident.is_in(&recording.header, scope))
}

fn of_waiting(found: Option<&Answer>, server: Option<&ShownServer>) -> String {
    let of_server = found.is_some_and(|found| found.of_server);
    match server.filter(|server| server.guess.is_none() && !of_server) {
        None => Answer::text(found),
        Some(server) => {
            let others =
                found.map_or_else(String::new, |found| format!(" {}", Answer::text(Some(found))));
            format!("{} was not seen waiting for a CPU.{others}", shown(&server.name))
        }
    }
}

/// What is to be shown: a recording, or the events of a simulated scenario with one of its variants
/// (`None`: as its first row has it). Of a recording no event behind `to` is kept.
///
/// # Errors
/// A file that cannot be read, a scheduler or variant that does not exist, a run that fails; a
/// scheduler or variant for a recording.
pub fn open(
    found: Found,
    scheduler: Option<&SchedulerSpec>,
    variant: Option<&str>,
    to: Option<Ns>,
) -> Result<Recording, StudyError> {
    let path = match found {
        Found::Scenario(scenario) => return simulate(&scenario, scheduler, variant, None),
        Found::Recording(path) => path,
    };
    let option = match (scheduler, variant) {
        (None, None) => return recording(&path, to.unwrap_or(Ns::MAX)),
        (Some(_), _) => "--scheduler",
        (None, Some(_)) => "--variant",
    };
    let path = path.display();
    Err(StudyError::Option(format!(
        "{option} has a meaning only for scenarios, and {path} is a recording (`schedlab compare` \
         plays it under other \
         schedulers)"
    )))
}

fn recording(path: &Path, to: Ns) -> Result<Recording, StudyError> {
    // A pipe can be read once: it is opened once.
    let read = match !path.is_file() || import::is_foreign(path) {
        _ if to < Ns::MAX => Recording::open_up_to(path, to),
        true => Recording::open(path),
        false => std::thread::scope(|threads| {
            Recording::of_blocks(ahead(threads, path), ReadLimits::default())
        }),
    };
    let recording = read.map_err(|error| named(path, error))?;
    not_empty(path, recording.events.len(), &recording)?;
    Ok(recording)
}

/// Reads all of a recording or trace, the blocks of a recording on a thread of their own, until
/// `ended`: that is looked at between blocks.
pub(crate) fn whole(
    path: &Path,
    purpose: Purpose,
    ended: Ended<'_>,
) -> Result<Recording, StudyError> {
    if !path.is_file() || import::is_foreign(path) {
        return Recording::open_for(path, purpose).map_err(|error| named(path, error));
    }
    let read = std::thread::scope(|threads| {
        let blocks = ahead(threads, path).take_while(|_| !ended());
        Recording::of_blocks(blocks, ReadLimits::default())
    });
    // What was read of it then is no recording.
    if ended() {
        return Err(StudyError::Stopped);
    }
    read.map_err(|error| named(path, error))
}

/// What is known of a recording before its events are read.
pub struct About {
    /// The recording without its events.
    pub recording: Recording,
    /// Whether its blocks follow one another in time.
    in_order: bool,
}

/// Returns what is known of a recording without its events; `None` when it cannot be read twice, as
/// a pipe, or is a trace that has to be imported first.
///
/// # Errors
/// A file that cannot be read, that is no recording, or one without events.
pub fn about(path: &Path) -> Result<Option<About>, StudyError> {
    if !std::fs::metadata(path).is_ok_and(|data| data.is_file()) || import::is_foreign(path) {
        return Ok(None);
    }
    let failed = |source| StudyError::trace(path, source);
    let index = Index::of_headers(path).map_err(failed)?;
    let recording = Recording::about(path, &index).map_err(failed)?;
    not_empty(path, index.events() as usize, &recording)?;
    Ok(Some(About { recording, in_order: index.is_in_order() }))
}

/// Hands on the rows of `--timehist` alone while the recording is read, as far as blocks have
/// events up to `to`. `None`: the reader is gone.
///
/// # Errors
/// A file that cannot be read, or without events. Rows before a fault may have been handed on.
pub fn list(
    path: &Path,
    about: &About,
    to: Ns,
    lanes: &mut Lanes<Piece>,
) -> Result<Option<Listed>, StudyError> {
    let stopped = Cell::new(false);
    let is_over = |part: &Result<Part, TraceError>| {
        about.in_order && part.as_ref().is_ok_and(|part| part.is_behind(to))
    };
    let mut rows = Rows { lanes, stopped: &stopped };
    let mut listing = Listing::new(&mut rows, about.in_order);
    let listed = std::thread::scope(|threads| {
        let wanted = |part: &_| !stopped.get() && !is_over(part);
        listing.all(|| ahead(threads, path).take_while(wanted), ReadLimits::default())
    });
    if stopped.get() {
        return Ok(None);
    }
    let listed = listed.map_err(|error| {
        before_damage(path, &error, &mut listing);
        named(path, error)
    })?;
    not_empty(path, listed.events, &listed.about)?;
    Ok(Some(listed))
}

/// Reads all of a recording, as every command does, and returns it without its events, with what
/// was repaired. Memory does not grow with its length.
///
/// # Errors
/// A file that cannot be read, or without events.
pub fn checked(path: &Path) -> Result<Listed, StudyError> {
    /// Rows that are needed no more; the last piece is used again.
    struct Dropped(Option<Piece>);
    impl Take for Dropped {
        fn take(&mut self, piece: Piece) {
            self.0 = Some(piece);
        }
        fn used(&mut self) -> Option<Piece> {
            self.0.take()
        }
    }
    let in_order = about(path)?.is_some_and(|about| about.in_order);
    let mut rows = Dropped(None);
    let mut listing = Listing::new(&mut rows, in_order);
    let listed =
        std::thread::scope(|threads| listing.all(|| ahead(threads, path), ReadLimits::default()));
    let listed = listed.map_err(|error| named(path, error))?;
    not_empty(path, listed.events, &listed.about)?;
    Ok(listed)
}

/// Hands on the rows of what is before a damaged block, as if the recording had been cut off there.
fn before_damage(path: &Path, error: &TraceError, listing: &mut Listing<'_>) {
    if let TraceError::Damaged { offset, .. } = error {
        let before = |part: &Result<Part, TraceError>| {
            part.as_ref().is_ok_and(|part| part.start() < *offset)
        };
        let read = std::thread::scope(|threads| {
            Recording::of_blocks(ahead(threads, path).take_while(before), ReadLimits::default())
        });
        // What is wrong with the recording is told in any case.
        let _ = read.and_then(|recording| listing.whole(recording));
    }
}

/// Rows on their way to their reader.
struct Rows<'a> {
    lanes: &'a mut Lanes<Piece>,
    stopped: &'a Cell<bool>,
}

impl Take for Rows<'_> {
    fn take(&mut self, piece: Piece) {
        self.lanes.give(piece);
        self.stopped.set(!self.lanes.is_open());
    }

    fn used(&mut self) -> Option<Piece> {
        self.lanes.used()
    }
}

fn not_empty(path: &Path, events: usize, recording: &Recording) -> Result<(), StudyError> {
    match events {
        0 => {
            Err(StudyError::NoEvents { path: path.to_owned(), cut_off: recording.repairs.cut_off })
        }
        _ => Ok(()),
    }
}

/// Blocks that are decompressed and decoded before they are asked for.
const AHEAD: usize = 4;

/// The blocks of the file at `path`, read, decompressed and decoded on a thread of their own.
fn ahead<'scope>(
    threads: &'scope std::thread::Scope<'scope, '_>,
    path: &'scope Path,
) -> impl Iterator<Item = Result<Part, TraceError>> + use<> {
    let (give, blocks_read) = sync_channel(AHEAD);
    threads.spawn(move || {
        let blocks = match Blocks::open(path) {
            Ok(blocks) => blocks,
            Err(error) => {
                // No thread may be left to hear it.
                let _ = give.send(Err(error));
                return;
            }
        };
        for part in blocks {
            part.iter().for_each(Part::decode);
            if give.send(part).is_err() {
                // No thread takes what it reads any more.
                break;
            }
        }
    });
    blocks_read.into_iter()
}

fn named(path: &Path, error: TraceError) -> StudyError {
    match error {
        // A directory opens but does not read.
        TraceError::Io { source, .. } => {
            StudyError::trace(path, TraceError::File { path: path.to_owned(), source })
        }
        other => StudyError::trace(path, other),
    }
}

/// Returns the events of a scenario's first seed under one scheduler (`None`: its first) with one
/// of its variants (`None`: as its first row has it), as a recording. Of virtual machines it is the
/// hypervisor's view: its tasks are vCPUs.
///
/// # Errors
/// A scheduler or variant that does not exist, a run that fails, or [`StudyError::Stopped`] after
/// `stop` became true.
pub fn simulate(
    scenario: &Scenario,
    scheduler: Option<&SchedulerSpec>,
    variant: Option<&str>,
    stop: Option<&Arc<AtomicBool>>,
) -> Result<Recording, StudyError> {
    Ok(simulated(scenario, scheduler, variant, stop)?.1)
}

/// The events of a scenario's first seed under one scheduler, as a recording. Of virtual machines
/// it is the hypervisor's view: its tasks are vCPUs.
pub(crate) fn simulated(
    scenario: &Scenario,
    scheduler: Option<&SchedulerSpec>,
    variant: Option<&str>,
    stop: Option<&Arc<AtomicBool>>,
) -> Result<(RowPlan, Recording), StudyError> {
    let spec = scheduler.or(scenario.schedulers.first());
    let spec = spec.ok_or_else(|| {
        StudyError::Option("the scenario names no scheduler: use --scheduler".to_owned())
    })?;
    let plan = RowPlan::of_scenario(scenario, spec, variant)?;
    let machine = machine_of(scenario, &plan);
    let built = plan.build(machine.topology.cpus())?;
    let recording = simulated_by(scenario, &plan, &spec.to_string(), &*built, stop)?;
    Ok((plan, recording))
}

/// As [`simulate`], under a scheduler that is in no registry: the recording's header has `name`.
/// Settings of a scenario that it does not know (groups, caps) are refused, or noted, as for the
/// textbook's round robin, which knows none of them either.
///
/// # Errors
/// As for [`simulate`].
pub fn simulate_by(
    scenario: &Scenario,
    name: &str,
    scheduler: &dyn Scheduler,
    variant: Option<&str>,
    stop: Option<&Arc<AtomicBool>>,
) -> Result<Recording, StudyError> {
    let plan = RowPlan::of_scenario(scenario, &SchedulerSpec::named("rr"), variant)?;
    simulated_by(scenario, &plan, name, scheduler, stop)
}

fn machine_of(scenario: &Scenario, plan: &RowPlan) -> Machine {
    let machine = scenario.simulated_machine();
    Machine {
        preemption: plan.preemption.clone(),
        roles: plan.roles,
        smt_yield: plan.smt_yield.speed(),
        ..machine
    }
}

fn simulated_by(
    scenario: &Scenario,
    plan: &RowPlan,
    name: &str,
    scheduler: &dyn Scheduler,
    stop: Option<&Arc<AtomicBool>>,
) -> Result<Recording, StudyError> {
    let machine = machine_of(scenario, plan);
    let mut options = RunOptions::for_time(scenario.duration);
    options.seed = scenario.seed;
    options.end_with_tasks = scenario.end_with_tasks;
    options.stop = stop.cloned().map(Stop::when);
    let mut events = Vec::new();
    let outcome = plan.run(&machine, scheduler, &options, &mut events)?;
    let duration = if scenario.end_with_tasks { outcome.metrics.to } else { scenario.duration };
    let header = Header {
        kernel: name.to_owned(),
        note: format!("simulated: {}, {}, seed {}", scenario.title, plan.variant, options.seed),
        tasks: tasks_of(plan),
        groups: plan.workload.groups.iter().cloned().map(GroupInfo::from).collect(),
        ..scenario.header(&machine)
    };
    let source = |source| StudyError::trace(&scenario.name, source);
    Recording::from_parts(header, events, duration).map_err(source)
}

/// The tasks in the events of a row: those of the workload; or those outside of virtual machines,
/// then the vCPUs.
fn tasks_of(plan: &RowPlan) -> Vec<TaskInfo> {
    let inside = |task: &TaskSpec| plan.vms.iter().any(|vm| vm.group == task.group);
    let mut tasks: Vec<TaskInfo> = Vec::new();
    for task in plan.workload.tasks.iter().filter(|task| !inside(task)) {
        tasks.push(task_info(tasks.len(), task));
    }
    for vm in &plan.vms {
        for name in vm.vcpu_names() {
            let number = tasks.len() as u32 + 1;
            tasks.push(TaskInfo {
                group: vm.group,
                known: true,
                ..TaskInfo::unknown(number, number, name)
            });
        }
    }
    tasks
}

/// The scope that `options` describe, or which of them does not fit this recording.
pub fn scope(recording: &Recording, options: &ShowOptions) -> Result<Scope, StudyError> {
    let header = &recording.header;
    let tasks = tasks(header, options)?;
    let (from, to) = match options.around {
        Some(around) => {
            let (from, to) = around_of(recording, around, (options, tasks.as_ref()))?;
            (Some(from), Some(to))
        }
        None => (options.from, options.to),
    };
    let from = from.unwrap_or(Ns::ZERO);
    if from >= recording.duration && from > Ns::ZERO {
        let length = recording.duration;
        return Err(StudyError::Option(format!("--from {from}: the recording is {length} long")));
    }
    if let Some(to) = to.filter(|&to| to <= from) {
        return Err(StudyError::Option(format!("--to {to} must be later than --from {from}")));
    }
    let cpus = header.topology.cpus();
    if let Some(cpu) = options.cpu.filter(|&cpu| cpu as usize >= cpus) {
        let last = cpus - 1;
        return Err(StudyError::Option(format!(
            "--cpu {cpu}: the recording has the CPUs 0 to {last}"
        )));
    }
    Ok(Scope {
        from,
        to: to.unwrap_or(Ns::MAX),
        tasks,
        cpu: options.cpu.map(CpuId),
        top: options.top,
        by: options.by,
        first: None,
    })
}

/// Returns the part around a moment or a wait: of the tasks that were asked for, else of the
/// server.
fn around_of(
    recording: &Recording,
    around: Around,
    (options, tasks): (&ShowOptions, Option<&Vec<bool>>),
) -> Result<(Ns, Ns), StudyError> {
    if options.from.is_some() || options.to.is_some() {
        return Err(StudyError::Option("--around excludes --from and --to".to_owned()));
    }
    let serve = options.serve.clone().filter(|_| tasks.is_none());
    Window { around: Some(around), serve, ..Window::default() }.of(recording, tasks)
}

/// The tasks that --task and --cgroup select.
fn tasks(header: &Header, options: &ShowOptions) -> Result<Option<Vec<bool>>, StudyError> {
    let mut selected: Option<Vec<bool>> = None;
    let mut narrow = |wanted: &dyn Fn(&TaskInfo) -> bool| {
        let now = header.tasks.iter().map(wanted);
        let both = match selected.take() {
            None => now.collect::<Vec<bool>>(),
            Some(before) => before.iter().zip(now).map(|(a, b)| *a && b).collect(),
        };
        let any = both.contains(&true);
        selected = Some(both);
        any
    };
    if let Some(text) = &options.task {
        let number: Option<u32> = text.parse().ok();
        let named = |task: &TaskInfo| {
            number.is_some_and(|n| n == task.tid || n == task.pid) || task.is_named(text)
        };
        if !narrow(&named) {
            return Err(StudyError::Option(format!(
                "--task {text}: no such task; use a name, a glob such as 'redis*', or a pid. \
                 There are: {}",
                names(header.tasks.iter().map(|task| task.comm.as_str()))
            )));
        }
    }
    if let Some(path) = &options.cgroup {
        let inside: Vec<bool> =
            header.groups.iter().map(|group| is_in_group(&group.spec.name, path)).collect();
        if !narrow(&|task| inside.get(task.group.index()).copied().unwrap_or(false)) {
            return Err(StudyError::Option(format!(
                "--cgroup {path}: no task{} is in it; the recording has: {}",
                if options.task.is_some() { " that --task names" } else { "" },
                names(header.groups.iter().map(|group| group.spec.name.as_str()))
            )));
        }
    }
    Ok(selected)
}

/// Some of the names, each once.
fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let all: std::collections::BTreeSet<&str> = names.collect();
    let more =
        if all.len() > 12 { format!(", and {} more", all.len() - 12) } else { String::new() };
    let first: Vec<&str> = all.into_iter().take(12).collect();
    if first.is_empty() { "none".to_owned() } else { first.join(", ") + &more }
}
