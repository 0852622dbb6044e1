//! The server that a comparison of a recording is about (`--serve`).
//!
//! A recording of a real machine holds programs that have nothing to do with the question, and some
//! of them do not replay: a compiler that was started once, a package manager that ended. What they
//! miss counts only as far as the server waited behind them.

use super::Errors;
use super::recorded::RecordedInput;
use super::trust::TRUSTED_SHARE;
use crate::StudyError;
use crate::change::apart_from;
use crate::measurements::{Kind, Measured};
use crate::metric::Unit;
use crate::serve::Server;
use schedlab_trace::Recording;
use schedlab_trace::analysis::blame::{Blame, Culprit};
use schedlab_trace::analysis::follow::Followed;
use schedlab_trace::analysis::{Analysis, By, Label, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The server that a comparison is about.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Served {
    /// As asked: a name, a glob, a pid, a control group or a systemd unit.
    pub asked: String,
    /// Its programs.
    pub classes: Vec<String>,
    /// The programs behind which it waited for a CPU, and the part of its waiting that each made:
    /// the largest first. Missing where the recording does not show who ran meanwhile; every
    /// program counts then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_by: Option<Vec<Delay>>,
    /// What of other programs the simulation does not reproduce. It does not count: the server
    /// waited behind them hardly or not at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_doubts: Vec<String>,
    /// The programs of these doubts. What becomes of them cannot be told.
    #[serde(skip)]
    pub left_aside: BTreeSet<String>,
    /// What the simulation does not reproduce of the programs behind which the server waited: it is
    /// in the errors of the server's numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts_behind: Vec<String>,
    /// By program behind which it waited: what is wrong of that in the server's share, in parts of
    /// a CPU, and in its times, as natural logarithms.
    #[serde(skip)]
    pub behind: BTreeMap<String, [f64; 2]>,
}

/// What the simulation has for a program's share in place of what was recorded.
#[derive(Clone, Copy)]
pub(super) struct Wrong<'a> {
    pub(super) class: &'a str,
    pub(super) was: f64,
    pub(super) is: f64,
}

/// A share of a CPU below this is none, when shares are compared as factors. Chosen: a millisecond
/// of each second.
const LEAST_SHARE: f64 = 0.001;

/// A program behind which the server waited.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Delay {
    /// Its name.
    pub name: String,
    /// The part of the server's waiting for a CPU in which it ran.
    pub part: f64,
}

/// Who ran while each program waited, from the recording; `None` where the recording does not show
/// it.
#[derive(Debug, Default)]
pub(super) struct Waits(Option<BTreeMap<String, BTreeMap<String, u64>>>);

impl Waits {
    /// Reads a recording.
    pub(super) fn from_recording(recording: &Recording) -> Waits {
        let scope = Scope::default();
        if Blame::check(&recording.header).is_err() {
            return Waits::default();
        }
        let blame =
            Followed::over(recording, &scope, Blame::new(&recording.header, &scope, By::Name));
        let name = |line: usize| match &blame.keys.labels[line] {
            Label::Name(name) => name.clone(),
            Label::Task(task) => recording.header.tasks[task.index()].comm.clone(),
        };
        let mut waits: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for (line, row) in blame.rows.iter().enumerate() {
            for (culprit, share) in row {
                if let Culprit::Line(other) = culprit {
                    let of = waits.entry(name(line)).or_default();
                    *of.entry(name(*other)).or_default() += share.time.0;
                }
            }
        }
        Waits(Some(waits))
    }

    /// Returns the programs behind which these waited, the largest part first, without themselves.
    fn behind(&self, classes: &[String]) -> Option<Vec<Delay>> {
        let waits = self.0.as_ref()?;
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (other, time) in classes.iter().filter_map(|class| waits.get(class)).flatten() {
            *sums.entry(other).or_default() += time;
        }
        let all: u64 = sums.values().sum();
        let own = |name: &str| classes.iter().any(|class| class == name);
        let of = sums.into_iter().filter(|(name, _)| !own(name));
        let mut delays: Vec<Delay> = of
            .map(|(name, time)| Delay {
                name: name.to_owned(),
                part: time as f64 / all.max(1) as f64,
            })
            .collect();
        delays.sort_by(|a, b| b.part.total_cmp(&a.part).then_with(|| a.name.cmp(&b.name)));
        Some(delays)
    }
}

impl Served {
    /// Finds the server in a recording.
    ///
    /// # Errors
    /// No task is meant; the message names the nearest program.
    pub(super) fn find(asked: &str, input: &RecordedInput) -> Result<Served, StudyError> {
        let tasks = Server::new(asked).tasks(&input.header)?;
        let own = tasks.iter().zip(&input.classes).filter(|(is_own, _)| **is_own);
        let classes: BTreeSet<&String> = own.map(|(_, class)| class).collect();
        let classes: Vec<String> = classes.into_iter().cloned().collect();
        let delayed_by = input.waits.behind(&classes);
        Ok(Served { asked: asked.to_owned(), classes, delayed_by, ..Served::default() })
    }

    /// Whether what the simulation misses of a program speaks against it: it is the server, or
    /// may be what the server waits for.
    pub(super) fn is_one(&self, class: &str) -> bool {
        self.delayed_by.is_none() || self.classes.iter().any(|own| own == class)
    }

    /// Keeps what the simulation misses of another program: where the server waited behind it for
    /// more than the part that may be missed of the server itself, as an error of the server's
    /// numbers, in which it has that part.
    pub(super) fn doubt(&mut self, wrong: Wrong<'_>, why: String) {
        let mut delays = self.delayed_by.iter().flatten();
        let part = delays.find(|delay| delay.name == wrong.class).map_or(0.0, |delay| delay.part);
        if part <= TRUSTED_SHARE {
            self.other_doubts.push(why);
            self.left_aside.insert(wrong.class.to_owned());
            return;
        }
        self.doubts_behind.push(why);
        let factor = apart_from(LEAST_SHARE, wrong.was, wrong.is);
        let error = [part * (wrong.was - wrong.is).abs(), part * factor];
        // Several readings of one program are one error: the largest.
        let known = self.behind.entry(wrong.class.to_owned()).or_default();
        *known = [known[0].max(error[0]), known[1].max(error[1])];
    }

    /// Adds what is wrong of the programs behind which the server waits to its errors and to those
    /// of requests.
    pub(super) fn add_to(&self, errors: &mut Errors, was: &Measured) {
        let [share, time] =
            self.behind.values().fold([0.0, 0.0], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
        let is_request = |name: &str| was.find(Kind::Channel, name).is_some();
        let concerned = |name: &String| self.classes.contains(name) || is_request(name);
        for ((_, metric), error) in errors.iter_mut().filter(|((name, _), _)| concerned(name)) {
            error.behind = if metric.unit() == Unit::Share { share } else { time };
        }
    }

    /// Returns its name in sentences.
    pub fn name(&self) -> String {
        Server::new(&self.asked).name(&self.classes)
    }

    /// Returns sentences about the programs behind which it waited, and about what was left aside.
    pub(super) fn notes(&self) -> Vec<String> {
        self.delays().into_iter().chain(self.in_errors()).chain(self.not_counted()).collect()
    }

    fn delays(&self) -> Option<String> {
        let delays = self.delayed_by.as_ref()?;
        let part = |delay: &Delay| format!("{} ({:.0} %)", delay.name, delay.part * 100.0);
        let most: Vec<String> =
            delays.iter().filter(|delay| delay.part > TRUSTED_SHARE).map(part).collect();
        let behind = match &most[..] {
            [] => {
                format!(
                    "behind no other program for more than {:.0} % of its waiting",
                    TRUSTED_SHARE * 100.0
                )
            }
            _ => format!("behind {}, in parts of its waiting", most.join(", ")),
        };
        Some(format!("{} waited for a CPU {behind}", self.name()))
    }

    fn in_errors(&self) -> Option<String> {
        let first = self.doubts_behind.first()?;
        let more = match self.doubts_behind.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        Some(format!(
            "what {} waited behind is not reproduced exactly ({first}{more}): that is in the errors \
             of its numbers, in the part that this has of its waiting",
            self.name()
        ))
    }

    fn not_counted(&self) -> Option<String> {
        let all = &self.other_doubts;
        let first = all.first()?;
        let more = match all.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        Some(format!(
            "what other programs did is not reproduced ({first}{more}); {} waited behind them for \
             less than {:.0} % of its waiting, so \
             that it does not count",
            self.name(),
            TRUSTED_SHARE * 100.0
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::MethodError;
    use crate::metric::Metric;

    fn served(delays: &[(&str, f64)]) -> Served {
        let delay = |(name, part): &(&str, f64)| Delay { name: (*name).to_owned(), part: *part };
        Served {
            asked: "web*".to_owned(),
            classes: vec!["web".to_owned()],
            delayed_by: Some(delays.iter().map(delay).collect()),
            ..Served::default()
        }
    }

    fn wrong(class: &str, was: f64, is: f64) -> Wrong<'_> {
        Wrong { class, was, is }
    }

    #[test]
    fn what_delays_the_server_is_an_error_and_the_rest_does_not_count() {
        let mut server = served(&[("hog", 0.5), ("make", 0.25), ("dpkg-deb", 0.01)]);
        assert!(server.is_one("web") && !server.is_one("hog"));
        assert!(Served { delayed_by: None, ..server.clone() }.is_one("hog"), "it is not known");
        server.doubt(wrong("hog", 0.4, 0.8), "hog".to_owned());
        server.doubt(wrong("hog", 0.4, 0.5), "hog, again".to_owned());
        server.doubt(wrong("make", 0.2, 0.1), "make".to_owned());
        server.doubt(wrong("dpkg-deb", 0.0, 0.9), "dpkg-deb".to_owned());
        server.doubt(wrong("elsewhere", 0.0, 0.9), "elsewhere".to_owned());
        assert_eq!(server.doubts_behind, ["hog", "hog, again", "make"]);
        assert_eq!(server.other_doubts, ["dpkg-deb", "elsewhere"]);
        let exact = |name: &str, metric| ((name.to_owned(), metric), MethodError::default());
        let p99 = Metric::Latency(crate::metric::Stat::Percentile(99_000));
        let mut errors: Errors =
            [exact("web", Metric::Share), exact("web", p99), exact("hog", Metric::Share)]
                .into_iter()
                .collect();
        server.add_to(&mut errors, &Measured::default());
        let behind = |name: &str, metric| errors[&(name.to_owned(), metric)].behind;
        assert!((behind("web", Metric::Share) - (0.5 * 0.4 + 0.25 * 0.1)).abs() < 1e-9);
        assert!((behind("web", p99) - 0.75 * 2f64.ln()).abs() < 1e-9);
        assert_eq!(behind("hog", Metric::Share), 0.0);
    }

    #[test]
    fn waits_are_parts_of_all_waiting() {
        let behind = |name: &str, time: u64| (name.to_owned(), time);
        let waits = Waits(Some(BTreeMap::from([(
            "web".to_owned(),
            BTreeMap::from([behind("hog", 60), behind("web", 20), behind("make", 20)]),
        )])));
        let delays = waits.behind(&["web".to_owned()]).expect("known");
        let parts: Vec<(&str, f64)> =
            delays.iter().map(|delay| (delay.name.as_str(), delay.part)).collect();
        assert_eq!(parts, [("hog", 0.6), ("make", 0.2)]);
        assert_eq!(waits.behind(&["other".to_owned()]), Some(Vec::new()));
        assert_eq!(Waits::default().behind(&["web".to_owned()]), None);
    }
}
