//! Which task waited for a CPU, and what ran meanwhile: the answer that a recording gives before
//! any table, in two sentences.

use super::blame::{Blame, Culprit};
use super::follow::{Began, Followed, Follower, Listener, Occupant, Span, Wait};
use super::worst::{Case, Worst};
use super::{Analysis, By, Keys, Label, Scope, steal};
use crate::guests::Guests;
use crate::{Header, Recording, TraceError};
use schedlab_model::text::shown;
use schedlab_model::{CpuId, Ns, SchedEvent, TaskId};

/// Wakeups from which on a task counts as one that serves: a task that was never woken is not late.
const SERVES: u64 = 10;

/// Which tasks waited most, and for what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Who waited: a name, a process, a control group or a thread.
    pub waiting: String,
    /// For how long in all.
    pub waited: Ns,
    /// The part that was seen.
    pub of: Ns,
    /// Who was on the CPU for the largest part of it.
    pub running: String,
    /// For how long of it.
    pub meanwhile: Ns,
    /// Its longest wait, with who ran for most of it.
    pub longest: Option<(Case, String)>,
    /// Whether one task or another ran, not an idle CPU or a limit.
    ran: bool,
    /// Whether both are of one line.
    own: bool,
    /// Whether it is about the server that was named ([`Scope::first`]).
    pub of_server: bool,
    /// It is about a guest, with so many virtual CPUs: what these waited is its steal time.
    pub vcpus: Option<u64>,
}

/// For how long each line waited, and how often it was woken.
struct Seen<'a> {
    scope: &'a Scope,
    keys: &'a Keys,
    waited: Vec<Ns>,
    woken: Vec<u64>,
}

impl Listener for Seen<'_> {
    fn span(&mut self, span: &Span) {
        let (from, to) = (span.from.max(self.scope.from), span.to.min(self.scope.to));
        if span.state.waits() && from < to && self.scope.task(span.task) && self.scope.on(span.cpu)
        {
            self.waited[self.keys.line(span.task)] += to - from;
        }
    }

    fn wait(&mut self, wait: &Wait<'_>) {
        if matches!(wait.began, Began::Woken { .. }) {
            self.woken[self.keys.line(wait.task)] += 1;
        }
    }
}

/// Who ran while one line waited, and its longest wait.
struct OfLine {
    blame: Blame,
    longest: Worst,
}

impl Listener for OfLine {
    fn occupied(&mut self, cpu: CpuId, at: Ns, who: Occupant) {
        self.blame.occupied(cpu, at, who);
        self.longest.occupied(cpu, at, who);
    }

    fn span(&mut self, span: &Span) {
        self.blame.span(span);
    }

    fn wait(&mut self, wait: &Wait<'_>) {
        self.longest.wait(wait);
    }

    fn after(&mut self, follower: &Follower, event: &SchedEvent) {
        self.blame.after(follower, event);
        self.longest.after(follower, event);
    }

    fn finished(&mut self, follower: &Follower) {
        self.blame.finished(follower);
        self.longest.finished(follower);
    }
}

impl Answer {
    /// Returns what the recording lacks for an answer, if anything.
    ///
    /// # Errors
    /// The capability that is missing, by name.
    pub fn check(header: &Header) -> Result<(), TraceError> {
        Blame::check(header).and_then(|()| Worst::check(header))
    }

    /// Returns the answer for the part that `scope` shows; `None`: no task waited there. Of the
    /// tasks that are woken again and again it is about the one that waited longest in all; where
    /// there is none, about any. The tasks of the server come before all others, if one waited.
    pub fn from_recording(recording: &Recording, scope: &Scope) -> Option<Answer> {
        let guests = of_guests(recording, scope);
        if guests.is_some() {
            return guests;
        }
        let blame = Blame::new(&recording.header, scope, scope.by.unwrap_or(By::Name));
        let (waited, woken) = (vec![Ns::ZERO; blame.keys.len()], vec![0; blame.keys.len()]);
        let seen = Seen { scope, keys: &blame.keys, waited, woken };
        let Seen { waited, woken, .. } = Followed::over(recording, scope, seen);
        let line = most_waiting(scope, &blame.keys, &waited, &woken)?;
        let of_line = scope_of_line(recording, scope, &blame.keys, line);
        let longest = Worst::new(&recording.header, &of_line, 1);
        // A second reading: to look up who ran during every wait of all takes far longer.
        let found = OfLine { blame: blame.of_line(line), longest };
        let OfLine { blame, longest } = Followed::over(recording, scope, found);
        let longest = longest.cases.first().map(|case| with_cause(&recording.header, case));
        Answer::of_line(recording, scope, &blame, line, longest)
    }

    /// Returns the answer about a line.
    fn of_line(
        recording: &Recording,
        scope: &Scope,
        blame: &Blame,
        line: usize,
        longest: Option<(Case, String)>,
    ) -> Option<Answer> {
        let header = &recording.header;
        let (culprit, share) = blame.rows[line].iter().max_by_key(|(_, share)| share.time)?;
        let running = match culprit {
            Culprit::Line(other) => name(header, &blame.keys.labels[*other]),
            Culprit::Idle => IDLE.to_owned(),
            Culprit::Throttled => "a bandwidth limit held it back".to_owned(),
            Culprit::Unknown => UNKNOWN.to_owned(),
        };
        Some(Answer {
            waiting: name(header, &blame.keys.labels[line]),
            waited: blame.waited(line),
            of: scope.end(recording).saturating_sub(scope.from),
            running,
            meanwhile: share.time,
            longest,
            ran: matches!(culprit, Culprit::Line(_)),
            own: *culprit == Culprit::Line(line),
            of_server: blame.keys.leads(scope)[line],
            vcpus: None,
        })
    }

    /// Returns the sentences as one text, also where no answer was found.
    pub fn text(found: Option<&Answer>) -> String {
        match found {
            Some(answer) => answer.sentences().join(" "),
            None => "No task was seen waiting for a CPU.".to_owned(),
        }
    }

    /// Returns the two sentences.
    pub fn sentences(&self) -> [String; 2] {
        let part = |time: Ns, whole: Ns| time.0 as f64 * 100.0 / whole.0.max(1) as f64;
        let (waiting, running) = (shown(&self.waiting), shown(&self.running));
        let of_it = format!("{:.1} % of it", part(self.meanwhile, self.waited));
        let cause = match (self.own, self.ran) {
            (true, _) if self.vcpus.is_some() => format!("{of_it} while its other threads ran"),
            (true, _) => format!("{of_it} while other threads of {running} ran"),
            (_, true) => format!("{of_it} while {running} ran"),
            _ => format!("{of_it} while {running}"),
        };
        let first = match self.vcpus {
            None => format!("{waiting} waited {} of {} for a CPU, {cause}.", self.waited, self.of),
            Some(vcpus) => {
                let whole = Ns(self.of.0.saturating_mul(vcpus));
                let (lost, of) = (part(self.waited, whole), counted(vcpus, "vCPU"));
                format!(
                    "Guest {waiting} lost {lost:.1} % of the time of its {of} to steal, {cause}."
                )
            }
        };
        let second = match &self.longest {
            None => "No single wait of it ended in that time.".to_owned(),
            Some((case, during)) => {
                let during = if during == IDLE || during == UNKNOWN {
                    format!("while {during}")
                } else {
                    format!("behind {}", shown(during))
                };
                format!(
                    "Its longest wait was {}, from {} on, {during}.",
                    case.length(),
                    seconds(case.from)
                )
            }
        };
        [first, second]
    }
}

const IDLE: &str = "its CPU was idle (slow to wake, or taken by a hypervisor)";
const UNKNOWN: &str = "what ran is not known";

/// Returns `1.451893s`: a moment as the lists of waits have it.
pub(super) fn seconds(at: Ns) -> String {
    format!("{}.{:06}s", at.0 / 1_000_000_000, at.0 % 1_000_000_000 / 1_000)
}

/// Returns `12.3 %`.
pub(super) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
}

/// Returns `1 time`, `12 times`.
pub(super) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

pub(super) fn name(header: &Header, label: &Label) -> String {
    match label {
        Label::Name(name) => name.clone(),
        Label::Task(task) => of_task(header, *task),
    }
}

pub(super) fn of_task(header: &Header, task: TaskId) -> String {
    header
        .tasks
        .get(task.index())
        .map_or("?".to_owned(), |info| format!("{}[{}]", info.comm, info.tid))
}

/// Returns the line that an answer is about. `waited`, `woken`: by line.
fn most_waiting(scope: &Scope, keys: &Keys, waited: &[Ns], woken: &[u64]) -> Option<usize> {
    let all = (0..keys.len()).filter(|line| waited[*line] > Ns::ZERO);
    let leads = keys.leads(scope);
    all.max_by_key(|&line| {
        (leads[line], woken[line] >= SERVES, waited[line], std::cmp::Reverse(line))
    })
}

/// Returns the answer about guests, where none is asked about otherwise.
fn of_guests(recording: &Recording, scope: &Scope) -> Option<Answer> {
    let may_be = matches!(scope.by, None | Some(By::Guest)) && scope.first.is_none();
    if !may_be {
        return None;
    }
    of_guest(recording, scope, &Guests::of(&recording.header))
}

/// Returns the answer about the guest that lost most of the time of its virtual CPUs to others;
/// `None`: there is no guest, or none that waited.
fn of_guest(recording: &Recording, scope: &Scope, guests: &Guests) -> Option<Answer> {
    let header = &recording.header;
    let found = steal::Steal::from_recording(recording, scope, guests);
    let lost = found.guests.iter().filter(|guest| guest.stolen > Ns::ZERO);
    // The first of equals.
    let most = lost.rev().max_by_key(|guest| guest.stolen.0 / guest.vcpus.max(1))?;
    let (culprit, time) = *most.by.first()?;
    let running = match culprit {
        Culprit::Line(other) => name(header, &found.keys.labels[other]),
        Culprit::Idle => IDLE.to_owned(),
        Culprit::Throttled => "a bandwidth limit held it back".to_owned(),
        Culprit::Unknown => UNKNOWN.to_owned(),
    };
    let of_vcpus = steal::of_vcpus(header, scope);
    Some(Answer {
        waiting: most.name.clone(),
        waited: most.stolen,
        of: scope.length(recording),
        running,
        meanwhile: time,
        longest: longest(recording, &of_vcpus, &found.keys, most.line),
        ran: matches!(culprit, Culprit::Line(_)),
        own: culprit == Culprit::Line(most.line),
        of_server: false,
        vcpus: Some(most.vcpus),
    })
}

/// The longest wait of a line's tasks, with who ran for most of it.
fn longest(
    recording: &Recording,
    scope: &Scope,
    keys: &Keys,
    line: usize,
) -> Option<(Case, String)> {
    longest_of(recording, &scope_of_line(recording, scope, keys, line))
}

/// Returns the part of a scope that a line's tasks are.
fn scope_of_line(recording: &Recording, scope: &Scope, keys: &Keys, line: usize) -> Scope {
    let tasks = (0..recording.header.tasks.len()).map(TaskId::from);
    let selected = tasks.map(|task| scope.task(task) && keys.line(task) == line).collect();
    Scope { tasks: Some(selected), ..scope.clone() }
}

/// Returns the longest wait in a scope, with who ran for most of it.
fn longest_of(recording: &Recording, scope: &Scope) -> Option<(Case, String)> {
    let header = &recording.header;
    let worst = Followed::over(recording, scope, Worst::new(header, scope, 1));
    worst.cases.first().map(|case| with_cause(header, case))
}

/// Returns a wait with who ran for most of it.
fn with_cause(header: &Header, case: &Case) -> (Case, String) {
    let during = match case.meanwhile.first() {
        Some((Occupant::Task(task), time)) if *time >= case.throttled => of_task(header, *task),
        Some((Occupant::Idle, time)) if *time >= case.throttled => IDLE.to_owned(),
        Some((Occupant::Unknown, time)) if *time >= case.throttled => UNKNOWN.to_owned(),
        _ => "a bandwidth limit".to_owned(),
    };
    (case.clone(), during)
}

/// Returns what the longest wait in a scope was for, and whether that is a task or a limit, not an
/// idle CPU; `None`: no wait ends in it, or the recording cannot tell.
pub(crate) fn longest_wait(recording: &Recording, scope: &Scope) -> Option<(bool, String)> {
    Worst::check(&recording.header).ok()?;
    let (_, during) = longest_of(recording, scope)?;
    Some((during != IDLE && during != UNKNOWN, during))
}
