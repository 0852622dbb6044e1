//! One recording as a page: nothing is simulated, nothing is compared.

use super::{Origin, provenance};
use crate::StudyError;
use crate::compare::delays;
use crate::compare::detail::{EVENTS, QUANTITIES};
use crate::compare::observe::{Findings, Focus, Keep, Observer, recorder};
use crate::measurements::{Kind, Measured, SubjectData};
use crate::metric::Metric;
use crate::show::{ShownServer, caught, sentences};
use crate::view::spaced;
use schedlab_model::text::shown;
use schedlab_model::{EventSink, Ns, TaskId};
use schedlab_report::{
    Cdf, Cell, Column, Curve, Facts, Ladders, LaneIncident, LaneRun, LaneSums, LaneTask, LaneWait,
    Lanes, Measure, Page, SWITCHES, Section, Table,
};
use schedlab_trace::analysis::follow::Followed;
use schedlab_trace::analysis::runqueue::RunQueue;
use schedlab_trace::analysis::worst::{Case, Worst};
use schedlab_trace::analysis::{Analysis, Answer, Scope, Summary};
use schedlab_trace::{Header, Incident, Recording, TaskInfo};
use std::collections::BTreeSet;

/// Classes with distributions and in the table.
const CLASSES: usize = 8;
/// Wakeups from which on a program has a line in the ladder.
const LADDER_VALUES: u64 = 10;

/// The page of the part of a recording that `scope` shows. Tables and distributions are by name,
/// over the part, with the server that was asked about first; `name` is the file or the scenario.
///
/// # Errors
/// When the recording cannot tell preemption from blocking.
pub fn of_recording(
    recording: &Recording,
    name: &str,
    (scope, server_named): (&Scope, Option<&ShownServer>),
    origin: &Origin,
) -> Result<Page, StudyError> {
    let header = &recording.header;
    let (from, to) = (scope.from, scope.to.min(recording.duration));
    let Observed { classes, measured, run, findings } = observed(recording, name, scope)?;
    let knows = RunQueue::check(header).is_ok();

    let mut page = Page::new(if header.note.is_empty() { name } else { &header.note });
    let guess = server_named.and_then(|server| server.guess.as_ref());
    page.subtitle(format!(
        "{name} · {} CPUs · {}{}{}",
        header.topology.cpus(),
        part_of(recording, (from, to)),
        only(header, scope),
        super::guessed(guess)
    ));
    let server = served(&classes, scope);
    let answer = Answer::check(header).ok().and_then(|()| Answer::from_recording(recording, scope));
    verdict(&mut page, recording, sentences(recording, scope, answer.as_ref(), server_named));
    if knows {
        let (waits, of_server) = longest(recording, scope, &findings.worst);
        let server = server_named.filter(|_| of_server);
        let of = server.map_or_else(String::new, |one| format!(" of {}", shown(&one.name)));
        page.waits(format!("The longest waits{of}"), waits);
    }
    let own = own_lanes(scope, &findings.worst);
    page.push(schedule(header, run, own));
    ladder(&mut page, &measured, &server);
    tasks(&mut page, &measured, &server);
    if knows {
        delays_of(&mut page, header, findings);
    }
    page.push(origin_of(recording, name, (from, to), origin).folded());
    Ok(page)
}

/// What was seen in the part of a recording that a scope shows.
pub(crate) struct Observed {
    /// The program of each task; those that were not asked for have none.
    pub(crate) classes: Vec<String>,
    /// By program.
    pub(crate) measured: Measured,
    /// The schedule.
    pub(crate) run: LaneRun,
    /// Which task waited for which.
    pub(crate) findings: Findings,
}

/// Goes through the events once.
///
/// # Errors
/// When the recording cannot tell preemption from blocking.
pub(crate) fn observed(
    recording: &Recording,
    name: &str,
    scope: &Scope,
) -> Result<Observed, StudyError> {
    let header = &recording.header;
    let (from, to) = (scope.from, scope.to.min(recording.duration));
    Summary::check(header).map_err(|source| StudyError::trace(name, source))?;
    let mut summary = Summary::of_header(header, from);
    let incident = caught(recording, scope);
    let worst = || Followed::over(recording, scope, Worst::new(header, scope, 1)).cases.pop();
    let keep = Keep {
        header: header.clone(),
        from,
        duration: to,
        focus: focused(recording, incident.as_ref(), (from, to), &worst),
        events: EVENTS,
        tasks: scope.tasks.clone(),
        first: scope.first.clone(),
        vcpus: Vec::new(),
    };
    let mut observer = Observer::new(&keep);
    observer.lanes = observer.lanes.caught(incident.map(|incident| marked(&incident, recording)));
    for event in recording.events.iter().take_while(|event| event.at <= to) {
        summary.event(event);
        observer.event(event);
    }
    let (classes, measured) = by_program(summary, header, scope, to);
    let (lanes, findings) = observer.finish();
    Ok(Observed { classes, measured, run: lanes.finish("recorded", 0, to), findings })
}

/// Returns the program of each task, and what was measured of each.
fn by_program(
    mut summary: Summary,
    header: &Header,
    scope: &Scope,
    to: Ns,
) -> (Vec<String>, Measured) {
    summary.finish(to);
    let classes = classes(header, scope);
    let mut measured = Measured::of_summary(&summary, &classes, &|_| None);
    measured.subjects.retain(|subject| subject.name != NOT_ASKED_FOR);
    (classes, measured)
}

/// Measures the part of a recording that a scope shows: the program of each task, and the numbers
/// of each program.
///
/// # Errors
/// When the recording cannot tell preemption from blocking.
pub(crate) fn measured(
    recording: &Recording,
    name: &str,
    scope: &Scope,
) -> Result<(Vec<String>, Measured), StudyError> {
    let header = &recording.header;
    Summary::check(header).map_err(|source| StudyError::trace(name, source))?;
    let mut summary = Summary::of_header(header, scope.from);
    scope.feed(recording, &mut summary);
    Ok(by_program(summary, header, scope, scope.end(recording)))
}

/// Writes down the schedule of the part of a recording that a scope shows, for a reader of this
/// machine. `worst`: the longest wait in it.
pub(crate) fn schedule_of(recording: &Recording, scope: &Scope, worst: Option<&Case>) -> LaneRun {
    let (from, to) = (scope.from, scope.end(recording));
    let incident = caught(recording, scope);
    let focus = focused(recording, incident.as_ref(), (from, to), &|| worst.cloned());
    let lanes = recorder(&recording.header, from, EVENTS, focus).fast();
    let mut lanes = lanes.caught(incident.map(|incident| marked(&incident, recording)));
    scope.feed(recording, &mut lanes);
    lanes.finish("recorded", 0, to)
}

/// Sums the same up for a picture of so many columns; `None`: it is no larger than its summary, or
/// is not shown as a whole.
pub(crate) fn summed_schedule(
    recording: &Recording,
    scope: &Scope,
    columns: usize,
) -> Option<LaneRun> {
    let (from, to) = (scope.from, scope.end(recording));
    let (header, events) = (&recording.header, &recording.events);
    let before = |at: Ns| events.partition_point(|event| event.at <= at);
    let cpus = header.topology.cpus();
    let room = columns.saturating_mul(cpus).saturating_mul(SWITCHES);
    if !(room..=EVENTS as usize).contains(&(before(to) - before(from))) {
        return None;
    }
    let sums = LaneSums::new(cpus, (from, to), columns);
    let mut sums = if header.backend == "simulator" { sums.idle_at_first() } else { sums };
    scope.feed(recording, &mut sums);
    Some(sums.finish("recorded", 0, to))
}

fn marked(incident: &Incident, recording: &Recording) -> LaneIncident {
    LaneIncident {
        from_ns: incident.from(),
        to_ns: incident.to().min(recording.duration),
        text: incident.sentence(recording),
    }
}

/// Returns the longest waits, of the server where it waited; then the second is true.
pub(crate) fn longest(
    recording: &Recording,
    scope: &Scope,
    worst: &Worst,
) -> (Vec<LaneWait>, bool) {
    delays::longest(0, worst, &with_ids(&recording.header), scope.first.as_deref())
}

/// Which task delayed which, and how many waited.
fn delays_of(page: &mut Page, header: &Header, findings: Findings) {
    let mut section = Section::new("Which task delayed which")
        .lead(
            "Every nanosecond in which a task was ready to run and did not is counted for the task \
             that ran on its CPU.",
        )
        .folded();
    delays::matrix("recorded", &findings).into_iter().for_each(|matrix| section.push(matrix));
    section.push(delays::worst("recorded", &findings, header));
    page.push(section);
    let mut section = Section::new("Run-queue length")
        .lead("How many tasks were ready to run and did not, over time.")
        .folded();
    let queue = delays::queue(&[("recorded".to_owned(), 0, findings)]);
    queue.into_iter().for_each(|queue| section.push(queue));
    page.push(section);
}

/// The program of tasks that the page is not asked about.
const NOT_ASKED_FOR: &str = "\0";

/// Returns the program of each task that the page is about.
fn classes(header: &Header, scope: &Scope) -> Vec<String> {
    let of = |(task, info): (usize, &TaskInfo)| match scope.task(TaskId::from(task)) {
        true => info.comm.clone(),
        false => NOT_ASKED_FOR.to_owned(),
    };
    header.tasks.iter().enumerate().map(of).collect()
}

/// Returns the tasks of a recording as sentences name them.
fn with_ids(header: &Header) -> Header {
    let mut header = header.clone();
    for info in &mut header.tasks {
        info.comm = format!("{}[{}]", info.comm, info.tid);
    }
    header
}

/// Returns which part of a recording a page is of.
fn part_of(recording: &Recording, (from, to): (Ns, Ns)) -> String {
    let length = spaced((to - from).to_string());
    match (from, to) == (Ns::ZERO, recording.duration) {
        true => length,
        false => format!("{length} from {} on", spaced(from.to_string())),
    }
}

/// Programs that a subtitle names.
const NAMED: usize = 3;

/// Returns what a subtitle says of the tasks that were asked for.
fn only(header: &Header, scope: &Scope) -> String {
    let Some(tasks) = &scope.tasks else { return String::new() };
    let chosen = header.tasks.iter().zip(tasks).filter(|(_, chosen)| **chosen);
    let names: BTreeSet<&str> = chosen.map(|(info, _)| info.comm.as_str()).collect();
    let more = names.len().saturating_sub(NAMED);
    let first = names.into_iter().take(NAMED).map(|name| shown(name).into_owned());
    let first = first.collect::<Vec<_>>().join(", ");
    match more {
        0 => format!(" · only {first}"),
        more => format!(" · only {first} and {more} more programs"),
    }
}

/// Threads with a lane of their own, where a page is asked about so few.
const OWN_LANES: usize = 3;

/// Returns the threads that have a lane of their own at first.
pub(crate) fn own_lanes(scope: &Scope, worst: &Worst) -> Vec<TaskId> {
    let asked = scope.tasks.iter().flatten().enumerate().filter(|(_, asked)| **asked);
    let asked: Vec<TaskId> = asked.map(|(task, _)| TaskId::from(task)).collect();
    if (1..=OWN_LANES).contains(&asked.len()) {
        return asked;
    }
    delays::own_lanes(worst, scope.tasks.as_ref().or(scope.first.as_ref()).map(Vec::as_slice))
}

/// Returns the lanes of a schedule.
pub(crate) fn lanes(header: &Header, run: LaneRun, own: Vec<TaskId>) -> Lanes {
    let task = |task: &TaskInfo| LaneTask {
        name: format!("{}-{}", task.comm, task.tid),
        class: task.comm.clone(),
    };
    Lanes { tasks: header.tasks.iter().map(task).collect(), runs: vec![run], own }
}

fn schedule(header: &Header, run: LaneRun, own: Vec<TaskId>) -> Section {
    let mut section = Section::new("Who ran when").lead(
        "What ran on each CPU; the height of a column is how busy it was. Zoom in far enough and \
         waits appear as lines \
         below a lane, wakeups as arrows from the waker.",
    );
    section.push(lanes(header, run, own));
    section
}

/// Returns what the schedule shows at first and where it begins: with an incident in view. Where a
/// page has no room for all events, it has the longest wait.
fn focused(
    recording: &Recording,
    incident: Option<&Incident>,
    (from, to): (Ns, Ns),
    worst: &dyn Fn() -> Option<Case>,
) -> Option<Focus> {
    if let Some(incident) = incident {
        return Some(focus(recording, incident.around(recording.duration), (from, to)));
    }
    let header = &recording.header;
    let events = &recording.events;
    let before = |at: Ns| events.partition_point(|event| event.at <= at);
    if before(to) - before(from) <= EVENTS as usize || Worst::check(header).is_err() {
        return None;
    }
    let worst = worst()?;
    let Focus { begin, .. } = focus(recording, (worst.from, worst.to), (from, to));
    Some(Focus { part: [begin, to], begin })
}

/// Returns where the schedule begins so that a part of it has room among the events of a page.
fn focus(recording: &Recording, part: (Ns, Ns), (from, to): (Ns, Ns)) -> Focus {
    let events = &recording.events;
    let before = |at: Ns| events.partition_point(|event| event.at <= at);
    // A tenth of the room is for what comes after it.
    let room = EVENTS as usize;
    let last = (before(part.1) + room / 10).min(before(to));
    let begin = events.get(last.saturating_sub(room)).map_or(from, |event| event.at);
    // An incident that does not fit begins where it begins.
    let begin = if last > room { begin.min(part.0) } else { from };
    Focus { part: [part.0.max(from), part.1.min(to)], begin: begin.max(from) }
}

fn verdict(page: &mut Page, recording: &Recording, outcome: String) {
    let repairs = &recording.repairs;
    let certainty = format!(
        "{} events in {}; {} were lost, and what had to be repaired: {repairs}.",
        recording.events.len(),
        spaced(recording.duration.to_string()),
        repairs.lost
    );
    page.verdict(outcome, certainty);
}

fn origin_of(recording: &Recording, name: &str, (from, to): (Ns, Ns), origin: &Origin) -> Section {
    let header = &recording.header;
    let mut facts = Facts::default();
    facts.add("command", &origin.command);
    facts.add(
        "program",
        format!("schedlab {}, commit {}", env!("CARGO_PKG_VERSION"), origin.commit),
    );
    facts.add("made on", &origin.made_on);
    facts.add("recording", name);
    facts.add("window", format!("{from} to {to} of {}", recording.duration));
    let bytes = std::fs::metadata(name).map_or(0, |data| data.len());
    let origin = Origin { recording: Some((header.clone(), bytes)), ..origin.clone() };
    provenance::recording(&mut facts, &origin);
    let mut section = Section::new("Where the numbers come from");
    section.push(facts);
    section
}

/// Returns the programs of the server that was asked about. `classes`: the program of each task.
fn served<'a>(classes: &'a [String], scope: &Scope) -> BTreeSet<&'a str> {
    let of_task = |(task, class): (usize, &'a String)| {
        scope.leads(TaskId::from(task)).then_some(class.as_str())
    };
    classes.iter().enumerate().filter_map(of_task).collect()
}

/// Returns the tasks by name: those of the server first, then those that used most CPU time.
fn by_share<'a>(measured: &'a Measured, server: &BTreeSet<&str>) -> Vec<&'a SubjectData> {
    let share = |subject: &SubjectData| subject.value(Metric::Share).unwrap_or(0.0);
    let mut subjects: Vec<&SubjectData> =
        measured.subjects.iter().filter(|subject| subject.kind == Kind::Class).collect();
    subjects.sort_by(|a, b| share(b).total_cmp(&share(a)).then(a.name.cmp(&b.name)));
    subjects.sort_by_key(|subject| !server.contains(subject.name.as_str()));
    subjects
}

/// How late the tasks ran, a line for each name.
fn ladder(page: &mut Page, measured: &Measured, server: &BTreeSet<&str>) {
    let (quantity, name, about) = QUANTITIES[0];
    let curve = |(style, subject): (usize, &SubjectData)| {
        Curve::of_buckets(&subject.name, style + 2, &subject.buckets(quantity))
    };
    // A percentile of a few values is a line that says nothing.
    let enough = |curve: &Curve| curve.count >= LADDER_VALUES;
    let curves: Vec<Curve> = by_share(measured, server)
        .into_iter()
        .take(CLASSES)
        .enumerate()
        .filter_map(curve)
        .collect();
    let curves = curves.into_iter().filter(enough).collect();
    let measure = Measure { name: name.to_owned(), about: about.to_owned(), curves };
    let mut section = Section::new("From the median to the maximum").lead(
        "How late tasks ran after a wakeup: lower is sooner, on a logarithmic axis. The name of \
         each program is at the end of its line.",
    );
    Ladders::of_measure("By program", &measure)
        .into_iter()
        .for_each(|ladders| section.push(ladders));
    page.push(section);
}

fn tasks(page: &mut Page, measured: &Measured, server: &BTreeSet<&str>) {
    let subjects = by_share(measured, server);
    let row = |subject: &&SubjectData| {
        let mut cells = vec![Cell::head(super::named(Kind::Class, &subject.name, subject.tasks))];
        cells.extend(crate::view::TASK_COLUMNS.iter().map(|metric| match subject.value(*metric) {
            Some(value) => Cell::number(super::show(*metric, value), value),
            None => Cell::text("–"),
        }));
        cells
    };
    let heads = crate::view::TASK_COLUMNS.iter().map(|metric| Column::number(metric.heading()));
    let table = |caption: &str, rows: Vec<Vec<Cell>>, fold: Option<String>| Table {
        caption: caption.to_owned(),
        columns: std::iter::once(Column::text("tasks")).chain(heads.clone()).collect(),
        rows,
        fold,
    };
    let (main, rest) = subjects.split_at(subjects.len().min(CLASSES));
    let mut section = Section::new("Tasks by name")
        .lead("Latency: wakeup to running. Response: wakeup to blocking again.");
    section.push(table("The names that used most CPU time", main.iter().map(row).collect(), None));
    if !rest.is_empty() {
        let fold = Some(format!("{} more names", rest.len()));
        section.push(table("All others", rest.iter().map(row).collect(), fold));
    }
    page.push(section);
    let mut section = Section::new("Distributions").lead(
        "How large a part of all values took longer than a time; further left is faster, and the \
         lower end is the tail. \
         Both axes are logarithmic.",
    )
    .folded();
    for subject in main {
        let measure = |&(quantity, name, about): &(_, &str, &str)| {
            let curve = Curve::of_buckets("recorded", 0, &subject.buckets(quantity))?;
            Measure { name: name.to_owned(), about: about.to_owned(), curves: vec![curve] }
                .worth_drawing()
        };
        let measures: Vec<Measure> = QUANTITIES.iter().filter_map(measure).collect();
        if !measures.is_empty() {
            section.push(Cdf { title: subject.name.clone(), measures });
        }
    }
    page.push(section);
}
