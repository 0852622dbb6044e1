//! The file that `schedlab flight` reads.

use super::FlightError;
use super::metrics::Address;
use super::rule::Rule;
use schedlab_host::{Backend, Messages};
use schedlab_model::Ns;
use schedlab_trace::analysis::By;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A file with every key and its default, with comments.
pub const EXAMPLE: &str = include_str!("example.toml");

/// Where the file is unless a user names another.
pub const PLACE: &str = "/etc/schedlab/flight.toml";

/// Shortest ring: below, a recording would have nothing of what led to an incident.
const SHORTEST_RING: Ns = Ns::from_ms(100);

/// Largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// Least memory for events, in bytes: a block of each kind.
const LEAST_MEMORY: u64 = 1 << 20;

/// What the flight recorder does. [`EXAMPLE`] says what each key means.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlightConfig {
    /// Where recordings go.
    #[serde(default = "folder")]
    pub folder: PathBuf,
    /// What they may take together.
    #[serde(default = "max_total")]
    pub max_total: Size,
    /// Time before an incident.
    #[serde(default = "ring", deserialize_with = "parsed")]
    pub ring: Ns,
    /// Time after it.
    #[serde(default = "after", deserialize_with = "parsed")]
    pub after: Ns,
    /// Memory for events.
    #[serde(default = "memory")]
    pub memory: Size,
    /// Whether messages are recorded.
    #[serde(default = "no_messages", deserialize_with = "parsed")]
    pub messages: Messages,
    /// How it is recorded; `None`: the best that works.
    #[serde(default, deserialize_with = "some_parsed")]
    pub backend: Option<Backend>,
    /// A program that is run after each incident, with its arguments.
    #[serde(default)]
    pub run: Option<Vec<String>>,
    /// How long that may take.
    #[serde(default = "run_timeout", deserialize_with = "parsed")]
    pub run_timeout: Ns,
    /// Where metrics are served; `None`: nowhere.
    #[serde(default, deserialize_with = "some_parsed")]
    pub metrics: Option<Address>,
    /// What the metrics are by.
    #[serde(default)]
    pub by: Grouping,
    /// How many of them have series of their own.
    #[serde(default = "series")]
    pub series: usize,
    /// The rules.
    #[serde(default, rename = "rule")]
    pub rules: Vec<NamedRule>,
}

/// A rule of the file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NamedRule {
    /// Its name, for files, logs and metrics.
    pub name: String,
    /// When something is an incident.
    #[serde(deserialize_with = "parsed")]
    pub when: Rule,
    /// How many recordings it makes.
    #[serde(default, deserialize_with = "parsed")]
    pub at_most: Rate,
    /// A program in place of that of the file.
    #[serde(default)]
    pub run: Option<Vec<String>>,
}

fn folder() -> PathBuf {
    PathBuf::from("/var/lib/schedlab/flight")
}

fn max_total() -> Size {
    Size(1 << 30)
}

fn ring() -> Ns {
    Ns::from_s(10)
}

fn after() -> Ns {
    Ns::from_s(1)
}

fn memory() -> Size {
    Size(32 << 20)
}

fn no_messages() -> Messages {
    Messages::Off
}

fn run_timeout() -> Ns {
    Ns::from_s(30)
}

/// Names that have series of their own unless the file says how many.
pub(crate) const SERIES: usize = 100;

fn series() -> usize {
    SERIES
}

/// Reads what is written as a text.
fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<T, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

fn some_parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    parsed(from).map(Some)
}

/// Bytes, written with K, M, G or T.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        let text = String::deserialize(from)?;
        let read = schedlab_model::text::bytes(&text).map(Size);
        read.ok_or_else(|| D::Error::custom("give bytes with K, M, G or T, such as \"500M\""))
    }
}

/// So many in so long a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// How many.
    pub count: usize,
    /// In how long.
    pub within: Ns,
}

impl Default for Rate {
    fn default() -> Rate {
        Rate { count: 1, within: Ns::from_s(600) }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let read = text.split_once('/').and_then(|(count, within)| {
            let (count, within) = (count.trim().parse().ok()?, within.trim().parse().ok()?);
            (count > 0 && within > Ns::ZERO).then_some(Rate { count, within })
        });
        read.ok_or_else(|| {
            "give a number and a time, such as \"1/10m\": at most one in ten minutes".to_owned()
        })
    }
}

/// What metrics are by, with the name of the label.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grouping {
    /// The name of the task.
    Command,
    /// The systemd unit, or the session.
    #[default]
    Unit,
    /// The container.
    Container,
    /// The pod of Kubernetes.
    Pod,
}

impl Grouping {
    /// Returns the name of the label.
    pub const fn label(self) -> &'static str {
        label(self.by())
    }

    /// Returns it as analyses have it.
    pub const fn by(self) -> By {
        match self {
            Grouping::Command => By::Name,
            Grouping::Unit => By::Unit,
            Grouping::Container => By::Container,
            Grouping::Pod => By::Pod,
        }
    }
}

/// Returns the name of the label of metrics that are by this.
pub(crate) const fn label(by: By) -> &'static str {
    match by {
        By::Thread | By::Name | By::Guest => "command",
        By::Process => "process",
        By::Cgroup => "cgroup",
        By::Unit => "unit",
        By::Container => "container",
        By::Pod => "pod",
    }
}

impl FlightConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or says what is not possible; the message names the line.
    pub fn open(path: &Path) -> Result<FlightConfig, FlightError> {
        let text = schedlab_files::read_to_string(path, LARGEST)
            .map_err(|source| FlightError::Read { path: path.to_owned(), source })?;
        FlightConfig::read(&text).map_err(|(line, what)| FlightError::Config {
            path: path.to_owned(),
            line,
            what,
        })
    }

    /// Reads a text; an error is a line, if one is to blame, and what is wrong.
    fn read(text: &str) -> Result<FlightConfig, (Option<usize>, String)> {
        let config: FlightConfig = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text[..span.start].matches('\n').count() + 1);
            (line, error.message().to_owned())
        })?;
        config.check().map_err(|what| (None, what))?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.ring < SHORTEST_RING {
            return Err(format!("ring: at least {SHORTEST_RING}"));
        }
        if self.memory.0 < LEAST_MEMORY {
            return Err(format!("memory: at least {}M", LEAST_MEMORY >> 20));
        }
        if self.series == 0 {
            return Err("series: at least 1".to_owned());
        }
        if self.rules.is_empty() && self.metrics.is_none() {
            return Err("there is no [[rule]] and no `metrics`: nothing would come of it \
                        (schedlab flight --example prints a file with rules)"
                .to_owned());
        }
        for (at, rule) in self.rules.iter().enumerate() {
            let name = &rule.name;
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if name.is_empty() || name.len() > 60 || !name.chars().all(allowed) {
                return Err(format!(
                    "rule `{name}`: a name has 1 to 60 letters, digits, `-`, `_` and `.`, because \
                     files are called so"
                ));
            }
            if self.rules[..at].iter().any(|other| other.name == *name) {
                return Err(format!("rule `{name}`: two rules have this name"));
            }
        }
        let runs = self.rules.iter().filter_map(|rule| rule.run.as_ref()).chain(&self.run);
        if runs.into_iter().any(Vec::is_empty) {
            return Err("run: it names no program, such as [\"/usr/local/bin/tell\"]".to_owned());
        }
        Ok(())
    }

    /// Returns how much is kept in memory: a recording is made when the time after its incident is
    /// over, and has the time before it then.
    pub(super) fn kept(&self) -> Ns {
        self.ring.saturating_add(self.after)
    }

    /// Returns the keys in which another file differs that a running recorder cannot change.
    pub fn fixed_differences(&self, other: &FlightConfig) -> Vec<&'static str> {
        let differences = [
            ("folder", self.folder != other.folder),
            ("ring", self.ring != other.ring),
            ("memory", self.memory != other.memory),
            ("messages", self.messages != other.messages),
            ("backend", self.backend != other.backend),
            ("metrics", self.metrics != other.metrics),
            ("by", self.by != other.by),
            ("series", self.series != other.series),
        ];
        differences.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_read_and_shows_the_defaults() {
        let example = FlightConfig::read(EXAMPLE).unwrap();
        let least = FlightConfig::read("[[rule]]\nname = 'x'\nwhen = 'wait > 1ms'").unwrap();
        assert_eq!(least.fixed_differences(&example), Vec::<&str>::new());
        assert_eq!(example.max_total, least.max_total);
        assert_eq!((example.after, example.run_timeout), (least.after, least.run_timeout));
        assert_eq!(example.rules.len(), 3);
        assert_eq!(example.rules[2].at_most, Rate::default());
        // Keys that are commented out are read, too.
        let all: String = EXAMPLE
            .lines()
            .map(|line| {
                let key = line.strip_prefix("# ").filter(|rest| {
                    rest.split_once(" = ").is_some_and(|(key, _)| {
                        key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
                    })
                });
                let twice = line.contains("unix:");
                format!("{}\n", key.filter(|_| !twice).unwrap_or(line))
            })
            .collect();
        let all = FlightConfig::read(&all).unwrap();
        assert!(all.run.is_some() && all.metrics.is_some() && all.backend.is_some());
    }

    #[test]
    fn an_error_names_the_line_and_what_is_allowed() {
        let error = |text: &str| FlightConfig::read(text).unwrap_err();
        let (line, what) = error("ring = '10s'\nmemroy = '1M'\n");
        assert_eq!(line, Some(2));
        assert!(what.contains("memroy") && what.contains("memory"), "{what}");
        let (line, what) = error("\n[[rule]]\nname = 'a'\nwhen = 'redis wait 10ms'\n");
        assert_eq!(line, Some(4));
        assert!(what.contains("no `>`"), "{what}");
        for (text, says) in [
            ("", "[[rule]]"),
            ("ring = '1ms'", "ring: at least"),
            ("metrics = '0.0.0.0:9920'", "loopback"),
            ("max-total = 'big'", "500M"),
            ("[[rule]]\nname = 'a/b'\nwhen = 'wait > 1ms'", "letters"),
            ("[[rule]]\nname = 'a'\nwhen = 'wait > 1ms'\nat-most = 'one'", "1/10m"),
            ("run = []\n[[rule]]\nname = 'a'\nwhen = 'wait > 1ms'", "names no program"),
            ("series = 0\nmetrics = '127.0.0.1:9920'", "series"),
        ] {
            let (_, what) = error(text);
            assert!(what.contains(says), "{text}: {what}");
        }
        let twice = "[[rule]]\nname = 'a'\nwhen = 'wait > 1ms'\n".repeat(2);
        assert!(error(&twice).1.contains("two rules"));
    }
}
