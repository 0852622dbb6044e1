//! A question of the workbench: the options of `schedlab compare`, without those that name files.

use super::SCHEMA;
use super::named::NamedSchedulers;
use crate::StudyError;
use crate::compare::request::{CompareRequest, OPTIONS};
use schedlab_model::text::{quoted, shell_word};
use schedlab_scheduler::{SchedulerSpec, sched_ext};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The option with a kernel's types, which schedulers in BPF need.
const BTF: &str = "kernel-btf";
/// Options that a page may not give, with the reason. A page names no path.
const REFUSED: [(&str, &str); 5] = [
    (BTF, "names a file"),
    ("check", "names a file"),
    ("client-log", "names a file"),
    ("jobs", "is the server's"),
    ("seeds", "is given as the list `seeds`"),
];
/// Options that change no more than the rows of the answer: the input is read once for all of them.
const OF_ROWS: [&str; 5] = ["scheduler", "variant", "scan", "seed", "fail-if"];
/// Seeds of the stages where a question names none: a first answer, that of `schedlab compare`, and
/// one with narrower intervals.
const STAGES: [u32; 3] = [1, 5, 20];
/// Stages of a question at most, and seeds of a stage.
const MOST: (usize, u32) = (5, 100);
/// Options of a question, and variants among them, at most.
const MOST_OPTIONS: usize = 64;

/// Returns why a page may not give this option; `None`: it may.
pub(super) fn refused(flag: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(name, _)| *name == flag).map(|(_, why)| *why)
}

/// Reads an option that `schedlab compare` has, too; `command` has no other of this name.
pub(super) fn set(
    request: &mut CompareRequest,
    command: &str,
    (flag, text): (&str, &str),
    has: &dyn Fn(&str) -> bool,
) -> Result<(), StudyError> {
    let option = OPTIONS.iter().find(|option| option.flag == flag && has(flag));
    let option = option
        .ok_or_else(|| wrong(format!("there is no option `{}` of {command}", quoted(flag))))?;
    request.set(option, text).map_err(|why| wrong(format!("--{flag}: {why}")))
}

/// Returns a command with an input, as a user names it, and these options.
pub(super) fn typed(command: &str, name: &str, options: &[(String, String)]) -> String {
    let options = options.iter().map(|(flag, value)| format!(" --{flag} {}", shell_word(value)));
    format!("{command} {}", shell_word(name)) + &options.collect::<String>()
}

/// Returns what tells apart questions for which an input is read differently: those of its options
/// that count.
pub(super) fn apart(
    input: &str,
    options: &[(String, String)],
    counts: &dyn Fn(&str) -> bool,
) -> String {
    let read = options.iter().filter(|(flag, _)| counts(flag));
    input.to_owned() + &read.map(|(flag, text)| format!("\n--{flag}={text}")).collect::<String>()
}

/// Returns whether a scheduler is the name of a file.
pub(super) fn is_file(spec: &SchedulerSpec) -> bool {
    sched_ext::is_object(&spec.name)
}

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// What is asked about: the `id` of an input.
    pub input: String,
    /// The view that asks. Its next question ends this one.
    #[serde(default)]
    pub tab: String,
    /// Options of `schedlab compare` by their long names, without the dashes, with their values.
    #[serde(default)]
    pub options: Vec<(String, String)>,
    /// How many seeds the first answer has, the next, and so on.
    #[serde(default)]
    pub seeds: Vec<u32>,
}

/// How far the answer to a question is.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Stage {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// Seeds of this stage.
    pub seeds: u32,
    /// Seeds of all stages.
    pub stages: Vec<u32>,
    /// Runs that are finished.
    pub done: usize,
    /// Runs of the stage.
    pub all: usize,
    /// Milliseconds since the question.
    pub after_ms: u64,
    /// The command that gives the answer of this stage.
    pub command: String,
}

impl Stage {
    /// Returns a stage of a question in which no run is finished.
    pub fn new(question: &Question, seeds: u32, name: &str, own: &NamedSchedulers) -> Stage {
        Stage {
            schema: SCHEMA,
            seeds,
            stages: question.stages(),
            done: 0,
            all: 0,
            after_ms: 0,
            command: question.command(name, seeds, own),
        }
    }
}

pub(super) fn wrong(what: String) -> StudyError {
    StudyError::Option(what)
}

impl Question {
    /// Returns the seeds of each stage.
    pub fn stages(&self) -> Vec<u32> {
        if self.seeds.is_empty() { STAGES.to_vec() } else { self.seeds.clone() }
    }

    /// Returns what `schedlab compare` would be asked with these options. A file is named by none,
    /// but a scheduler of `own` can be one.
    ///
    /// # Errors
    /// An option that there is not, one that names a file, or what is wrong with a value.
    pub fn request(&self, own: &NamedSchedulers) -> Result<CompareRequest, StudyError> {
        let (stages, seeds) = MOST;
        let rising = self.seeds.windows(2).all(|pair| pair[0] < pair[1]);
        let bounds = self.seeds.iter().all(|count| (1..=seeds).contains(count));
        if self.seeds.len() > stages || !rising || !bounds {
            return Err(wrong(format!(
                "seeds: {stages} numbers from 1 to {seeds} at most, each larger than the one before"
            )));
        }
        if self.options.len() > MOST_OPTIONS {
            return Err(wrong(format!("a question has {MOST_OPTIONS} options at most")));
        }
        let mut request = CompareRequest::default();
        for (flag, text) in &self.options {
            if let Some(why) = refused(flag) {
                return Err(wrong(format!("--{flag} {why}: a page cannot give it")));
            }
            set(&mut request, "schedlab compare", (flag, text), &|_| true)?;
        }
        let named = request.options.schedulers.iter().chain(&request.recorded_under);
        if let Some(spec) = named.clone().find(|spec| !own.may_ask(spec)) {
            return Err(wrong(format!(
                "--scheduler {}: names a file, which a page cannot do; start `schedlab ui` with it",
                quoted(&spec.to_string())
            )));
        }
        if let Some(btf) = own.btf_of(named) {
            set(&mut request, "schedlab compare", (BTF, &btf), &|_| true)?;
        }
        Ok(request)
    }

    /// Returns what tells apart questions for which the input is read differently.
    pub fn reading(&self) -> String {
        apart(&self.input, &self.options, &|flag| !OF_ROWS.contains(&flag))
    }

    /// Returns the command that gives the answer with so many seeds. `name`: the input, as a user
    /// names it.
    pub fn command(&self, name: &str, seeds: u32, own: &NamedSchedulers) -> String {
        let names_scheduler = |flag: &str| ["scheduler", "recorded-under"].contains(&flag);
        let asked = self.options.iter().filter(|(flag, _)| names_scheduler(flag));
        let asked: Vec<SchedulerSpec> = asked.filter_map(|(_, text)| text.parse().ok()).collect();
        let mut options = self.options.clone();
        options.extend(own.btf_of(asked.iter()).map(|btf| (BTF.to_owned(), btf)));
        typed("schedlab compare", name, &options) + &format!(" --seeds {seeds}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(options: &[(&str, &str)]) -> Question {
        let owned = |(flag, text): &(&str, &str)| ((*flag).to_owned(), (*text).to_owned());
        Question {
            input: "f0".to_owned(),
            options: options.iter().map(owned).collect(),
            ..Question::default()
        }
    }

    /// Where no scheduler was named when the workbench was started.
    fn read(asked: &Question) -> Result<CompareRequest, String> {
        asked.request(&NamedSchedulers::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_question_is_a_command_that_can_be_typed() {
        let asked = question(&[("variant", "it's idle: sysbench policy=idle"), ("serve", "redis")]);
        assert_eq!(
            asked.command("a b.slt", 5, &NamedSchedulers::default()),
            r"schedlab compare 'a b.slt' --variant 'it'\''s idle: sysbench policy=idle' --serve redis --seeds 5"
        );
        assert_eq!(asked.stages(), [1, 5, 20]);
        let request = read(&asked).unwrap();
        assert_eq!(request.options.serve.as_deref(), Some("redis"));
        assert_eq!(request.options.variants, ["it's idle: sysbench policy=idle"]);
    }

    #[test]
    fn only_what_changes_the_reading_tells_readings_apart() {
        let base = question(&[("serve", "redis")]).reading();
        assert_eq!(base, question(&[("serve", "redis"), ("variant", "a nice=1")]).reading());
        for other in [("serve", "nginx"), ("from", "1s"), ("replay", "wakeups")] {
            assert_ne!(base, question(&[other]).reading(), "{other:?}");
        }
    }

    /// A page can make the program open no file but those that are open.
    #[test]
    fn a_page_names_no_file() {
        for (flag, text) in [
            ("kernel-btf", "/sys/kernel/btf/vmlinux"),
            ("check", "a=/etc/passwd"),
            ("client-log", "/etc/passwd"),
            ("scheduler", "bpf:/etc/passwd"),
            ("recorded-under", "bpf:/etc/passwd"),
        ] {
            let said = read(&question(&[(flag, text)])).unwrap_err();
            assert!(said.contains("names a file"), "{flag}: {said}");
        }
        for option in OPTIONS.iter().filter(|option| option.value.contains("FILE")) {
            assert!(REFUSED.iter().any(|(name, _)| *name == option.flag), "{}", option.flag);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (flag, text, part) in [
            ("colour", "red", "no option `colour`"),
            ("from", "5", "--from:"),
            ("jobs", "9", "is the server's"),
            ("seeds", "9", "given as the list"),
            ("scheduler", "linux-6.1:a", "--scheduler:"),
        ] {
            let said = read(&question(&[(flag, text)])).unwrap_err();
            assert!(said.contains(part), "{flag}: {said}");
        }
        for seeds in [&[5, 1][..], &[0], &[101], &[1, 2, 3, 4, 5, 6]] {
            let asked = Question { seeds: seeds.to_vec(), ..question(&[]) };
            assert!(read(&asked).unwrap_err().starts_with("seeds:"), "{seeds:?}");
        }
        let many = question(&[("variant", "a nice=1"); 65]);
        assert!(read(&many).unwrap_err().contains("64 options"));
    }
}
