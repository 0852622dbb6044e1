//! `--until 'redis-server wait > 10ms'`: the conditions at which a recording stops.
//!
//! `[TASK] wait|run|block > TIME`, several joined by `or`; TASK is what `--serve` takes. A stretch
//! that still goes on counts as soon as it is longer than the limit; the recorder then goes on
//! until the stretch ends (at most a second), so that its whole length is in the recording.

use schedlab_model::Ns;
use schedlab_trace::Incident;
use std::fmt;
use std::str::FromStr;

/// A kind of stretch in the life of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StretchKind {
    /// The task is runnable and does not run, after a wakeup or a preemption.
    Wait,
    /// The task runs without a break.
    Run,
    /// The task is blocked.
    Block,
}

impl StretchKind {
    const WORDS: [(&'static str, StretchKind); 8] = [
        ("wait", StretchKind::Wait),
        ("waited", StretchKind::Wait),
        ("run", StretchKind::Run),
        ("ran", StretchKind::Run),
        ("block", StretchKind::Block),
        ("blocked", StretchKind::Block),
        ("sleep", StretchKind::Block),
        ("slept", StretchKind::Block),
    ];

    /// Returns the kind that a word names.
    pub(crate) fn named(word: &str) -> Option<StretchKind> {
        StretchKind::WORDS.into_iter().find(|(known, _)| *known == word).map(|(_, kind)| kind)
    }

    pub(crate) const fn past(self) -> &'static str {
        match self {
            StretchKind::Wait => "waited",
            StretchKind::Run => "ran",
            StretchKind::Block => "blocked",
        }
    }
}

/// One condition: a stretch of a kind that is longer than a limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StopCondition {
    /// Whose, as [`Server`] reads it; `None`: any task but the recorder.
    pub task: Option<String>,
    /// The kind of stretch.
    pub measure: StretchKind,
    /// The limit.
    pub limit: Ns,
}

/// Conditions of which one has to be met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StopConditions(pub Vec<StopCondition>);

/// Why a condition cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "--until '{text}': {what}. Write [TASK] wait|run|block > TIME, several joined by `or`, such \
     as 'redis-server wait > 10ms' or 'ran > 50ms'"
)]
pub struct StopConditionError {
    text: String,
    what: String,
}

impl FromStr for StopConditions {
    type Err = StopConditionError;

    fn from_str(text: &str) -> Result<StopConditions, StopConditionError> {
        let failed = |what: String| StopConditionError { text: text.to_owned(), what };
        let words = words(text).map_err(failed)?;
        words
            .split(|word| word.is("or") || word.is("||"))
            .map(condition)
            .collect::<Result<_, _>>()
            .map(StopConditions)
            .map_err(failed)
    }
}

/// A word of a condition; in quotes it is a name, whatever it holds.
#[derive(Debug)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) quoted: bool,
}

impl Word {
    /// Whether it is this word of the grammar.
    pub(crate) fn is(&self, word: &str) -> bool {
        !self.quoted && self.text == word
    }
}

/// Splits a condition at blanks and at `>`, which also ends a word. `'...'` and `"..."` are one
/// word each.
pub(crate) fn words(text: &str) -> Result<Vec<Word>, String> {
    let mut words: Vec<Word> = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            '\'' | '"' => {
                let (name, after) = rest[1..]
                    .split_once(first)
                    .ok_or_else(|| format!("the quote {first} has no end"))?;
                (Word { text: name.to_owned(), quoted: true }, after)
            }
            // `>=` counts as `>`: no clock is fine enough for the difference.
            '>' => {
                let after = rest[1..].strip_prefix('=').unwrap_or(&rest[1..]);
                (Word { text: ">".to_owned(), quoted: false }, after)
            }
            _ => {
                let end = rest.find(|c: char| c.is_whitespace() || c == '>').unwrap_or(rest.len());
                (Word { text: rest[..end].to_owned(), quoted: false }, &rest[end..])
            }
        };
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

pub(crate) fn condition(words: &[Word]) -> Result<StopCondition, String> {
    let joined =
        |words: &[Word]| words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
    let at = words.iter().position(|word| word.is(">"));
    let Some(at) = at else {
        let others = ["<", "<=", "=", "=="];
        return Err(match words.iter().find(|word| others.iter().any(|other| word.is(other))) {
            Some(Word { text: word, .. }) => format!(
                "`{word}` is not possible, only `>`: the recorder stops when something takes too \
                 long"
            ),
            None if words.is_empty() => "a condition is missing".to_owned(),
            None => format!("there is no `>` in `{}`", joined(words)),
        });
    };
    let (task, measure) = match &words[..at] {
        [measure] => (None, measure.text.as_str()),
        [task, measure] => (Some(task.text.clone()), measure.text.as_str()),
        [] => return Err("nothing is before `>`: say what is measured".to_owned()),
        more => {
            return Err(format!(
                "`{}` is not TASK MEASURE (write a name with blanks in quotes)",
                joined(more)
            ));
        }
    };
    let measure = StretchKind::named(measure)
        .ok_or_else(|| format!("`{measure}` cannot be measured: use wait, run or block"))?;
    let limit = match &words[at + 1..] {
        [] => return Err("after `>` a time is missing".to_owned()),
        more => more.iter().map(|word| word.text.as_str()).collect::<String>(),
    };
    let limit = limit.parse::<Ns>().map_err(|error| error.to_string())?;
    Ok(StopCondition { task: task.filter(|task| task != "*" && task != "any"), measure, limit })
}

impl fmt::Display for StopCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let task = self.task.as_deref().unwrap_or("any task");
        write!(f, "{task} {} > {}", self.measure.past(), self.limit)
    }
}

impl StopCondition {
    /// Returns a stretch that met it.
    pub(super) fn caught(&self, task: (String, u32), from: Ns, length: Option<Ns>) -> Caught {
        Caught { condition: self.to_string(), measure: self.measure, task, from, length }
    }
}

/// A stretch that met a condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caught {
    /// The condition, in words.
    pub condition: String,
    /// The kind of stretch.
    pub measure: StretchKind,
    /// Name and thread id of the task.
    pub task: (String, u32),
    /// Its beginning, in the time of the recording.
    pub from: Ns,
    /// Its length; `None`: it still went on when the recorder gave up waiting for its end.
    pub length: Option<Ns>,
}

impl Caught {
    /// Returns it as the header of a recording whose time 0 is `begin` has it.
    pub fn since(&self, begin: Ns) -> Incident {
        Incident {
            condition: self.condition.clone(),
            task: self.task.0.clone(),
            tid: self.task.1,
            did: self.measure.past().to_owned(),
            from_ns: self.from.saturating_sub(begin).0,
            length_ns: self.length.map(|length| length.0),
            before_ns: begin.saturating_sub(self.from).0,
        }
    }

    /// Returns the name of the task, where it is one that waited.
    pub(super) fn server(&self) -> Option<String> {
        (self.measure == StretchKind::Wait).then(|| self.task.0.clone())
    }
}

impl StopConditions {
    /// Returns the task whose waits are the only ones that end the recording.
    pub(super) fn server(&self) -> Option<String> {
        let waits = self.0.iter().filter(|condition| condition.measure == StretchKind::Wait);
        let mut names = waits.map(|condition| condition.task.as_ref());
        let name = names.next()??;
        names.all(|other| other == Some(name)).then(|| name.clone())
    }
}

impl fmt::Display for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((name, tid), past) = (&self.task, self.measure.past());
        match self.length {
            Some(length) => write!(f, "{name} ({tid}) {past} {length} from {} on", self.from),
            None => write!(
                f,
                "{name} ({tid}) {past} from {} on, and longer than was recorded",
                self.from
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stop_watcher::StopWatcher;
    use super::*;
    use schedlab_model::{CpuId, EventKind, PrevState, SchedEvent, TaskId, Waker};
    use schedlab_trace::TaskInfo;

    fn watcher(text: &str) -> StopWatcher {
        let mut watcher = StopWatcher::new(&text.parse().unwrap(), 99);
        for (id, name, pid) in [(0, "redis-server", 10), (1, "batch-7", 11), (2, "schedlab", 99)] {
            watcher.task(TaskId(id), &TaskInfo::unknown(pid, pid, name), false);
        }
        watcher
    }

    fn switch(ms: u64, prev: Option<u32>, prev_state: PrevState, next: Option<u32>) -> SchedEvent {
        let kind = EventKind::Switch { prev: prev.map(TaskId), prev_state, next: next.map(TaskId) };
        SchedEvent { at: Ns::from_ms(ms), cpu: CpuId(0), kind }
    }

    fn wake(ms: u64, task: u32) -> SchedEvent {
        let kind = EventKind::Wake { task: TaskId(task), waker: Waker::HardIrq };
        SchedEvent { at: Ns::from_ms(ms), cpu: CpuId(0), kind }
    }

    /// Redis sleeps, batch runs from 10 ms; redis is woken at 12 ms and runs at 30 ms.
    fn events() -> [SchedEvent; 4] {
        [
            switch(1, None, PrevState::Runnable, Some(0)),
            switch(10, Some(0), PrevState::Sleeping, Some(1)),
            wake(12, 0),
            switch(30, Some(1), PrevState::RunnableInKernel, Some(0)),
        ]
    }

    fn caught(text: &str) -> Option<(String, u32)> {
        let mut watcher = watcher(text);
        events().iter().for_each(|event| watcher.event(event));
        watcher
            .caught()
            .map(|caught| (caught.task.0.clone(), (caught.length.unwrap().0 / 1_000_000) as u32))
    }

    #[test]
    fn catches_what_was_asked_for() {
        assert_eq!(caught("redis-server wait > 10ms"), Some(("redis-server".to_owned(), 18)));
        assert_eq!(caught("redis-server wait>18ms"), None);
        assert_eq!(caught("redis-server wait>=17.9 ms"), Some(("redis-server".to_owned(), 18)));
        assert_eq!(caught("batch-* ran > 19ms"), Some(("batch-7".to_owned(), 20)));
        assert_eq!(caught("ran > 19ms"), Some(("batch-7".to_owned(), 20)));
        assert_eq!(caught("10 block > 1ms"), Some(("redis-server".to_owned(), 2)));
        assert_eq!(caught("11 block > 1ms"), None);
        assert_eq!(
            caught("redis-server wait > 1s or batch-7 run > 15ms"),
            Some(("batch-7".to_owned(), 20))
        );
        assert_eq!(caught("schedlab wait > 0ms"), None);
        assert_eq!(caught("'redis-server' wait>10ms"), Some(("redis-server".to_owned(), 18)));
        let parsed = |text: &str| text.parse::<StopConditions>().map(|found| found.0);
        let named = |text: &str| parsed(text).unwrap().remove(0).task;
        assert_eq!(named("\"a > b\" wait > 1ms"), Some("a > b".to_owned()));
        assert_eq!(named("'it is \"or\"' run > 1ms or ran > 2ms"), Some("it is \"or\"".to_owned()));
        assert!(parsed("'a wait > 1ms").unwrap_err().to_string().contains("has no end"));
    }

    #[test]
    fn a_stretch_without_an_end_is_caught_too() {
        let mut watcher = watcher("redis-server wait > 10ms");
        events()[..3].iter().for_each(|event| watcher.event(event));
        watcher.look(Ns::from_ms(20));
        watcher.look(Ns::from_ms(23));
        assert_eq!(watcher.caught(), None, "its end is waited for");
        let mut ends = watcher.clone();
        ends.event(&events()[3]);
        assert_eq!(ends.caught().unwrap().length, Some(Ns::from_ms(18)));
        watcher.look(Ns::from_ms(1100));
        let caught = watcher.caught().unwrap();
        assert_eq!((caught.from, caught.length), (Ns::from_ms(12), None));
    }

    #[test]
    fn lost_events_end_what_is_known() {
        let mut watcher = watcher("redis-server wait > 10ms");
        events()[..3].iter().for_each(|event| watcher.event(event));
        watcher.event(&SchedEvent {
            at: Ns::from_ms(20),
            cpu: CpuId(0),
            kind: EventKind::Lost { count: 5 },
        });
        watcher.event(&events()[3]);
        assert_eq!(watcher.caught(), None);
    }

    #[test]
    fn a_recording_is_made_for_the_task_whose_waits_end_it() {
        let server = |text: &str| text.parse::<StopConditions>().expect(text).server();
        assert_eq!(
            server("redis-server wait > 10ms or batch ran > 1s").as_deref(),
            Some("redis-server")
        );
        for text in ["wait > 10ms", "batch ran > 1s", "redis-server wait > 1s or nginx wait > 1s"] {
            assert_eq!(server(text), None, "{text}");
        }
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, wanted) in [
            ("", "a condition is missing"),
            ("redis-server wait", "no `>`"),
            ("redis-server wait < 10ms", "only `>`"),
            ("redis-server latency > 10ms", "`latency` cannot be measured: use wait, run or block"),
            ("redis-server wait > 10", "10"),
            ("wait >", "a time is missing"),
            ("> 10ms", "say what is measured"),
            ("my long name wait > 1ms", "in quotes"),
            ("wait > 1ms or", "a condition is missing"),
        ] {
            let error = text.parse::<StopConditions>().unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains("such as"), "{text}: {error}");
        }
    }

    #[test]
    fn the_next_stretch_is_caught_too() {
        let mut watcher = watcher("redis-server wait > 10ms");
        let from = |watcher: &StopWatcher| watcher.caught().map(|caught| caught.from);
        let sleeping = PrevState::Sleeping;
        let all = [
            switch(0, None, sleeping, Some(1)),
            wake(1, 0),
            switch(21, Some(1), PrevState::Runnable, Some(0)),
            switch(22, Some(0), sleeping, Some(1)),
        ];
        all.iter().for_each(|event| watcher.event(event));
        assert_eq!(from(&watcher), Some(Ns::from_ms(1)));
        watcher.again();
        assert_eq!(from(&watcher), None);
        watcher.event(&wake(30, 0));
        watcher.look(Ns::from_ms(2_000));
        watcher.look(Ns::from_ms(2_001));
        assert_eq!(from(&watcher), Some(Ns::from_ms(30)), "it goes on");
        watcher.again();
        watcher.look(Ns::from_ms(4_000));
        watcher.look(Ns::from_ms(4_001));
        assert_eq!(from(&watcher), None, "it was caught");
    }
}
