//! A search of the workbench: the options of `schedlab tune`, without those that name files, and
//! what is known while it runs. Its answer is that of `schedlab tune`.

use super::SCHEMA;
use super::ask::{apart, is_file, refused, set, typed, wrong};
use crate::StudyError;
use crate::compare::modelled_by;
use crate::compare::request::CompareRequest;
use crate::tune::{Aim, Dimension, Found, TuneOptions};
use schedlab_model::text::quoted;
use schedlab_scheduler::SchedulerSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Options that the search shares with `schedlab compare`, by their long names.
const SHARED: [&str; 7] = ["serve", "from", "to", "around", "by", "replay", "for"];
/// Options of the search itself.
const OWN: [&str; 7] = ["goal", "keep", "space", "scheduler", "seeds", "trials", "seed"];
/// Seeds of the last round and settings that are tried at most: the defaults of `schedlab tune`.
const DEFAULT: (u32, usize) = (5, 100);
/// The same at most: what a page may ask a machine for.
const MOST: (u32, usize) = (100, 1000);
/// Numbers that are kept, at most.
const MOST_KEPT: usize = 4;

/// What is searched.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchQuestion {
    /// What is searched: the `id` of an input.
    pub input: String,
    /// The view that asks. Its next search ends this one.
    #[serde(default)]
    pub tab: String,
    /// Options of `schedlab tune` by their long names, without the dashes, with their values.
    #[serde(default)]
    pub options: Vec<(String, String)>,
}

/// How far a search is.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct SearchProgress {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// Runs that are finished.
    pub done: usize,
    /// All of them.
    pub all: usize,
    /// Milliseconds since the question.
    pub after_ms: u64,
    /// The command that gives the answer.
    pub command: String,
    /// What is to become better, and then what is not to become worse: the order of the figures.
    pub asked: Vec<String>,
    /// The settings of this round, the unchanged row first.
    pub settings: Vec<Found>,
}

/// What a search takes.
#[derive(Clone, Debug)]
pub struct SearchRequest {
    /// What the input is read with.
    pub reading: CompareRequest,
    /// The scheduler that it begins with; `None`: the recorded one, or the first of the scenario.
    pub scheduler: Option<SchedulerSpec>,
    /// Which preset a kernel without one is simulated as.
    pub said: Option<String>,
    /// What is searched.
    pub options: TuneOptions,
}

impl SearchQuestion {
    fn all(&self, flag: &str) -> impl Iterator<Item = &str> {
        self.options.iter().filter(move |(name, _)| name == flag).map(|(_, text)| text.as_str())
    }

    fn number(&self, flag: &str, most: u64) -> Result<Option<u64>, StudyError> {
        let read = |text: &str| {
            let number = text.parse().ok().filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| wrong(format!("--{flag}: must be 1 to {most}")))
        };
        self.all(flag).last().map(read).transpose()
    }

    /// Returns what `schedlab tune` would be asked with these options.
    ///
    /// # Errors
    /// An option that there is not, one that names a file, or what is wrong with a value.
    pub fn request(&self) -> Result<SearchRequest, StudyError> {
        let mut reading = CompareRequest::default();
        for (flag, text) in &self.options {
            if let Some(why) = refused(flag).filter(|_| flag != "seeds") {
                return Err(wrong(format!("--{flag} {why}: a page cannot give it")));
            }
            if flag == "validate" {
                return Err(wrong("--validate names a file: a page cannot give it".to_owned()));
            }
            if OWN.contains(&flag.as_str()) {
                continue;
            }
            set(&mut reading, "schedlab tune", (flag, text), &|flag| SHARED.contains(&flag))?;
        }
        let aim = |flag: &str, text: &str| {
            Aim::parse(text).map_err(|error| wrong(format!("--{flag} {error}")))
        };
        let goal = self.all("goal").last();
        let goal = goal.ok_or_else(|| wrong("--goal: a search needs one".to_owned()))?;
        let keep: Vec<Aim> =
            self.all("keep").map(|text| aim("keep", text)).collect::<Result<_, _>>()?;
        if keep.len() > MOST_KEPT {
            return Err(wrong(format!("--keep: {MOST_KEPT} numbers at most")));
        }
        let (scheduler, said) = self.scheduler()?;
        let space: Vec<String> = self.all("space").map(str::to_owned).collect();
        if let Some(spec) = space.iter().flat_map(|text| Dimension::schedulers(text)).find(is_file)
        {
            return Err(wrong(format!(
                "--space {}: names a file, which a page cannot do",
                quoted(&spec.name)
            )));
        }
        let (seeds, trials) = MOST;
        let options = TuneOptions {
            goal: aim("goal", goal)?,
            keep,
            space,
            seeds: self.number("seeds", u64::from(seeds))?.map_or(DEFAULT.0, |n| n as u32),
            trials: self.number("trials", trials as u64)?.map_or(DEFAULT.1, |n| n as usize),
            seed: self.number("seed", u64::MAX)?,
            duration: reading.options.duration,
            jobs: 0,
            serve: reading.options.serve.clone(),
            stop: None,
            keep_finished: false,
        };
        Ok(SearchRequest { reading, scheduler, said, options })
    }

    fn scheduler(&self) -> Result<(Option<SchedulerSpec>, Option<String>), StudyError> {
        let Some(text) = self.all("scheduler").last() else { return Ok((None, None)) };
        let spec: SchedulerSpec =
            text.parse().map_err(|error| wrong(format!("--scheduler: {error}")))?;
        if is_file(&spec) {
            return Err(wrong(format!(
                "--scheduler {}: names a file, which a page cannot do",
                quoted(&spec.name)
            )));
        }
        let (modelled, said) = modelled_by(&spec);
        Ok((Some(modelled), said))
    }

    /// Returns what tells apart searches for which the input is read differently.
    pub fn reading(&self) -> String {
        apart(&self.input, &self.options, &|flag| SHARED.contains(&flag))
    }

    /// Returns the command that gives the answer. `name`: the input, as a user names it.
    pub fn command(&self, name: &str) -> String {
        typed("schedlab tune", name, &self.options)
    }

    /// Returns how far a search of this question is before its first run.
    pub fn progress(&self, name: &str, request: &SearchRequest) -> SearchProgress {
        let TuneOptions { goal, keep, .. } = &request.options;
        let aims = std::iter::once(goal).chain(keep);
        SearchProgress {
            schema: SCHEMA,
            done: 0,
            all: 0,
            after_ms: 0,
            command: self.command(name),
            asked: aims.map(|aim| aim.text().to_owned()).collect(),
            settings: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(options: &[(&str, &str)]) -> SearchQuestion {
        let owned = |(flag, text): &(&str, &str)| ((*flag).to_owned(), (*text).to_owned());
        SearchQuestion {
            input: "f0".to_owned(),
            options: options.iter().map(owned).collect(),
            ..SearchQuestion::default()
        }
    }

    #[test]
    fn a_search_is_a_command_that_can_be_typed() {
        let asked = question(&[
            ("goal", "redis latency p99"),
            ("keep", "it's share"),
            ("space", "sysbench nice=0,19"),
            ("seeds", "3"),
            ("serve", "redis"),
        ]);
        assert_eq!(
            asked.command("a b.slt"),
            r"schedlab tune 'a b.slt' --goal 'redis latency p99' --keep 'it'\''s share' --space 'sysbench nice=0,19' --seeds 3 --serve redis"
        );
        let request = asked.request().unwrap();
        let TuneOptions { seeds, trials, serve, .. } = request.options;
        assert_eq!((seeds, trials, serve.as_deref()), (3, 100, Some("redis")));
        assert_eq!(asked.reading(), "f0\n--serve=redis");
    }

    /// A page can make the program open no file but those that are open.
    #[test]
    fn what_is_wrong_is_said_and_no_file_is_named() {
        let goal = ("goal", "a share");
        for (option, part) in [
            (("validate", "/etc/passwd"), "names a file"),
            (("check", "a=/etc/passwd"), "names a file"),
            (("kernel-btf", "/etc/passwd"), "names a file"),
            (("scheduler", "bpf:/etc/passwd"), "names a file"),
            (("space", "scheduler=bpf:/etc/passwd,linux-6.1"), "names a file"),
            (("jobs", "9"), "is the server's"),
            (("seeds", "0"), "must be 1 to 100"),
            (("trials", "x"), "must be 1 to 1000"),
            (("goal", "share"), "--goal"),
            (("keep", "a b"), "--keep"),
            (("variant", "a nice=1"), "no option `variant` of schedlab tune"),
            (("from", "5"), "--from:"),
        ] {
            let said = question(&[goal, option]).request().unwrap_err().to_string();
            assert!(said.contains(part), "{option:?}: {said}");
        }
        assert!(question(&[]).request().unwrap_err().to_string().starts_with("--goal"));
    }
}
