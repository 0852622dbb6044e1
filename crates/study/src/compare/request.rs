//! The options of a comparison, each declared once. The command line (`crates/cli`), the Python
//! function (`python/native`) and its signature (`cargo xtask docs`) are made from [`OPTIONS`].

use super::{ClientLogSpec, Ended, Options, Progress, ReplayFrom, RowGate, Window, modelled_by};
use crate::StudyError;
use crate::gallery::Found;
use crate::input::Input;
use crate::objects;
use crate::preset;
use crate::result::Study;
use crate::scan::Scan;
use schedlab_model::Ns;
use schedlab_model::text::shown;
use schedlab_scheduler::SchedulerSpec;
use schedlab_trace::import::Purpose;
use std::path::PathBuf;

/// One option of `schedlab compare`.
#[derive(Debug)]
pub struct CompareOption {
    /// Its name as a keyword of Python's `compare`.
    pub name: &'static str,
    /// Its long name on the command line, without the dashes.
    pub flag: &'static str,
    /// Its short name there.
    pub short: Option<char>,
    /// The placeholder of its value in help.
    pub value: &'static str,
    /// What is given in Python.
    pub shape: Shape,
    /// The inputs for which it has a meaning.
    pub inputs: Inputs,
    /// What it does: sentences with a verb first.
    pub help: &'static str,
    set: fn(&mut CompareRequest, &str) -> Result<(), String>,
}

/// How often an option is given, and as what in Python.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Several texts.
    Texts,
    /// Texts by name; on the command line the name is before the text, with this between them.
    Named(&'static str),
    /// One text.
    Text,
    /// One whole number.
    Number,
    /// One time with its unit; in Python also a number of nanoseconds.
    Time,
}

impl Shape {
    /// Returns whether the option may be given several times.
    pub const fn many(self) -> bool {
        matches!(self, Shape::Texts | Shape::Named(_))
    }
}

/// The inputs for which an option has a meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inputs {
    /// All.
    Any,
    /// Recordings only.
    Recordings,
    /// Scenarios only.
    Scenarios,
}

/// Every option, in the order of the help.
pub const OPTIONS: &[CompareOption] = &[
    CompareOption {
        name: "schedulers",
        flag: "scheduler",
        short: Some('s'),
        value: "SCHEDULER",
        shape: Shape::Texts,
        inputs: Inputs::Any,
        help: "Simulate this scheduler with its knobs, such as linux-6.18:base_slice_ns=6ms",
        set: |request, text| {
            let (scheduler, said) = modelled_by(&parsed(text)?);
            request.options.schedulers.push(scheduler);
            request.said.extend(said);
            Ok(())
        },
    },
    CompareOption {
        name: "kernel_btf",
        flag: "kernel-btf",
        short: None,
        value: "FILE",
        shape: Shape::Text,
        inputs: Inputs::Any,
        help: "Lay out the types of schedulers in BPF (--scheduler bpf:FILE.bpf.o?option=value) as \
               this kernel does: /sys/kernel/btf/vmlinux of a kernel with sched_ext, or a vmlinux",
        set: |request, text| {
            request.kernel_btf = Some(PathBuf::from(text));
            Ok(())
        },
    },
    CompareOption {
        name: "variants",
        flag: "variant",
        short: None,
        value: "VARIANT",
        shape: Shape::Named(": "),
        inputs: Inputs::Any,
        help: "Try this variant: 'NAME: TASK policy=idle'",
        set: |request, text| {
            request.options.variants.push(shown(text).into_owned());
            Ok(())
        },
    },
    CompareOption {
        name: "scans",
        flag: "scan",
        short: None,
        value: "SETTING=VALUES",
        shape: Shape::Texts,
        inputs: Inputs::Any,
        help: "Try a setting with many values, as a table and a curve: 'sysbench nice=0..19', \
               'base_slice_ns=0.7ms,1.4ms'",
        set: |request, text| {
            request.scans.push(Scan::parse(text)?);
            Ok(())
        },
    },
    CompareOption {
        name: "seed",
        flag: "seed",
        short: None,
        value: "N",
        shape: Shape::Number,
        inputs: Inputs::Any,
        help: "Begin with this seed of the random streams",
        set: |request, text| {
            request.options.seed = Some(parsed(text)?);
            Ok(())
        },
    },
    CompareOption {
        name: "seeds",
        flag: "seeds",
        short: None,
        value: "N",
        shape: Shape::Number,
        inputs: Inputs::Any,
        help: "Run this many seeds: more give narrower intervals [default: 5 for recordings, else \
               what the scenario says]",
        set: |request, text| {
            let seeds = parsed(text).ok().filter(|seeds| (1..=MOST_SEEDS).contains(seeds));
            request.options.repetitions =
                Some(seeds.ok_or_else(|| format!("must be 1 to {MOST_SEEDS}"))?);
            Ok(())
        },
    },
    CompareOption {
        name: "duration",
        flag: "for",
        short: None,
        value: "TIME",
        shape: Shape::Time,
        inputs: Inputs::Any,
        help: "Simulate this long, such as 2s; of a recording its first 2s are read, as if it had \
               ended there [default: the whole \
               recording, or what the scenario says]",
        set: |request, text| {
            request.options.duration = Some(parsed::<Ns>(text)?);
            Ok(())
        },
    },
    CompareOption {
        name: "begin",
        flag: "from",
        short: None,
        value: "TIME",
        shape: Shape::Time,
        inputs: Inputs::Recordings,
        help: "Simulate the part of the recording that begins at this time since its start, such as 2s, \
               with what was pending then",
        set: |request, text| {
            request.window.from = Some(parsed(text)?);
            Ok(())
        },
    },
    CompareOption {
        name: "end",
        flag: "to",
        short: None,
        value: "TIME",
        shape: Shape::Time,
        inputs: Inputs::Recordings,
        help: "End the part at this time since the start of the recording [default: its end]",
        set: |request, text| {
            request.window.to = Some(parsed(text)?);
            Ok(())
        },
    },
    CompareOption {
        name: "around",
        flag: "around",
        short: None,
        value: "TIME|WAIT",
        shape: Shape::Text,
        inputs: Inputs::Recordings,
        help: "Simulate the part around this time, or around a wait by its rank in `schedlab show --worst` \
               (worst, worst:3; with --serve of the server); --for is its length [default: 2s]",
        set: |request, text| {
            request.window.around = Some(parsed(text)?);
            Ok(())
        },
    },
    CompareOption {
        name: "costs",
        flag: "costs",
        short: None,
        value: "PRESET",
        shape: Shape::Text,
        inputs: Inputs::Scenarios,
        help: "Use this cost preset instead of the scenario's costs, such as modern-vm or \
               this-machine (`schedlab calibrate`)",
        set: |request, text| {
            request.costs = Some(text.to_owned());
            Ok(())
        },
    },
    CompareOption {
        name: "rows",
        flag: "rows",
        short: None,
        value: "WHICH",
        shape: Shape::Text,
        inputs: Inputs::Scenarios,
        help: "Simulate all rows of the scenario, or only its first one and those of the options \
               (--variant, --scan, --scheduler): all or asked [default: all]",
        set: |request, text| {
            request.only_asked = match text {
                "all" => false,
                "asked" => true,
                _ => return Err("must be all or asked".to_owned()),
            };
            Ok(())
        },
    },
    CompareOption {
        name: "recorded_under",
        flag: "recorded-under",
        short: None,
        value: "SCHEDULER",
        shape: Shape::Text,
        inputs: Inputs::Recordings,
        help: "Represent the recorded kernel by this scheduler [default: by the kernel's version]",
        set: |request, text| {
            request.recorded_under = Some(modelled_by(&parsed(text)?).0);
            Ok(())
        },
    },
    CompareOption {
        name: "replay",
        flag: "replay",
        short: None,
        value: "FROM",
        shape: Shape::Text,
        inputs: Inputs::Recordings,
        help: "Replay the recording from its messages, or from the wakeups between its tasks: \
               messages, wakeups, or auto, which takes the messages of a recording that has lost \
               less than a hundredth of them, where they reproduce it or the wakeups do not \
               [default: auto]",
        set: |request, text| {
            request.replay = Some(parsed(text)?);
            Ok(())
        },
    },
    CompareOption {
        name: "checks",
        flag: "check",
        short: None,
        value: "VARIANT=FILE",
        shape: Shape::Named("="),
        inputs: Inputs::Recordings,
        help: "Print predicted against recorded, with this recording of a variant on the real \
               machine: 'VARIANT=FILE'",
        set: |request, text| {
            request.options.checks.push(check(text)?);
            Ok(())
        },
    },
    CompareOption {
        name: "client_log",
        flag: "client-log",
        short: None,
        value: "[CLASS=]FILE",
        shape: Shape::Text,
        inputs: Inputs::Recordings,
        help: "Read requests a second from what a load generator printed while its server was \
               recorded (wrk, ab, redis-benchmark, \
               pgbench, sysbench and others: docs/exchange-formats.md), and predict them \
               [default: the busiest program that is \
               not an endless loop]",
        set: |request, text| {
            request.options.client_log = Some(ClientLogSpec::parse(text));
            Ok(())
        },
    },
    CompareOption {
        name: "serve",
        flag: "serve",
        short: None,
        value: "SERVER",
        shape: Shape::Text,
        inputs: Inputs::Recordings,
        help: crate::serve::HELP,
        set: |request, text| {
            request.options.serve = Some(text.to_owned());
            Ok(())
        },
    },
    CompareOption {
        name: "by",
        flag: "by",
        short: None,
        value: "WHAT",
        shape: Shape::Text,
        inputs: Inputs::Recordings,
        help: "Take tasks together by this: name, process, cgroup, unit (of systemd), container, pod \
               (of Kubernetes) or guest (of KVM); figures and gates are of these [default: guest in \
               a recording that has some, else name]",
        set: |request, text| {
            request.window.by = parsed(text)?;
            Ok(())
        },
    },
    CompareOption {
        name: "fail_if",
        flag: "fail-if",
        short: None,
        value: "EXPR",
        shape: Shape::Texts,
        inputs: Inputs::Any,
        help: "Fail (exit 1) when this holds: 'redis-server latency p99 > 1ms'",
        set: |request, text| {
            request.options.gates.push(RowGate::parse(text)?);
            Ok(())
        },
    },
    CompareOption {
        name: "jobs",
        flag: "jobs",
        short: Some('j'),
        value: "N",
        shape: Shape::Number,
        inputs: Inputs::Any,
        help: "Use this many worker threads; 0 = one per CPU. The result does not depend on it \
               [default: 0]",
        set: |request, text| {
            request.options.jobs = parsed(text)?;
            Ok(())
        },
    },
];

/// More seeds take hours and narrow an interval no more.
const MOST_SEEDS: u32 = 1000;

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Reads `VARIANT=FILE`; the variant's name may have a `=`, the file's name has none.
fn check(text: &str) -> Result<(String, PathBuf), String> {
    match text.rsplit_once('=') {
        Some((variant, file)) if !variant.trim().is_empty() && !file.is_empty() => {
            Ok((variant.trim().to_owned(), PathBuf::from(file)))
        }
        _ => Err(format!("'{text}': write 'VARIANT=FILE', such as 'batch idle=redis-idle.slt'")),
    }
}

/// Returns the option whose Python name is `name`.
pub fn option(name: &str) -> Option<&'static CompareOption> {
    OPTIONS.iter().find(|option| option.name == name)
}

/// What a user asked a comparison for.
#[derive(Clone, Debug, Default)]
pub struct CompareRequest {
    /// What the comparison takes as it is.
    pub options: Options,
    /// The scheduler that models the kernel of a recording; `None`: by the kernel's version.
    pub recorded_under: Option<SchedulerSpec>,
    /// What the recording is replayed from; `None`: the usual.
    pub replay: Option<ReplayFrom>,
    /// The part of the recording; its length and server are those of `options`.
    window: Window,
    /// Settings with many values; their variants are beside those of `options`.
    pub scans: Vec<Scan>,
    /// The preset of costs. It is looked for when a scenario is read: that of this machine is a
    /// file.
    costs: Option<String>,
    /// Of a scenario only its first row, and those that were asked for.
    only_asked: bool,
    /// The types of the kernel for schedulers in BPF.
    kernel_btf: Option<PathBuf>,
    /// Which preset a kernel without one is simulated as.
    said: Vec<String>,
    /// Options that have a meaning only for some inputs.
    restricted: Vec<&'static CompareOption>,
}

impl CompareRequest {
    /// Takes one value of an option.
    ///
    /// # Errors
    /// What is wrong with the value, and what is allowed.
    pub fn set(&mut self, option: &'static CompareOption, text: &str) -> Result<(), String> {
        (option.set)(self, text)?;
        if option.inputs != Inputs::Any {
            self.restricted.push(option);
        }
        Ok(())
    }

    /// Returns the first option that has no meaning for the input, with the reason. `name`: the
    /// input as its user knows it.
    pub fn without_meaning(
        &self,
        found: &Found,
        name: &str,
    ) -> Option<(&'static CompareOption, String)> {
        let (here, why) = match found {
            Found::Scenario(_) => (
                Inputs::Scenarios,
                format!("has a meaning only for recordings, and {name} is a scenario"),
            ),
            Found::Recording(_) => (
                Inputs::Recordings,
                format!(
                    "has a meaning only for scenarios, and {name} is a recording, which knows its \
                     machine's delays and has no rows of its own"
                ),
            ),
        };
        let option = self.restricted.iter().find(|option| option.inputs != here)?;
        Some((option, why))
    }

    /// Reads the schedulers in BPF among `specs`, of a command that is no comparison.
    ///
    /// # Errors
    /// See [`objects::read`].
    pub fn read_schedulers<'a>(
        &self,
        specs: impl Iterator<Item = &'a SchedulerSpec>,
    ) -> Result<(), StudyError> {
        objects::read(specs, self.kernel_btf.as_deref())
    }

    /// Returns the part of a recording that is simulated.
    pub fn window(&self) -> Window {
        let Options { duration: length, serve, .. } = &self.options;
        let (serve, unserved) = (serve.clone(), serve.is_none());
        Window { length: *length, serve, unserved, ..self.window.clone() }
    }

    /// Reads what was found, as it is to be compared.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn read(&self, found: Found) -> Result<Input, StudyError> {
        self.read_until(found, &|| false)
    }

    /// As [`CompareRequest::read`], until `ended`: then it is [`StudyError::Stopped`].
    ///
    /// # Errors
    /// As for [`CompareRequest::read`].
    pub fn read_until(&self, found: Found, ended: Ended<'_>) -> Result<Input, StudyError> {
        let purpose = match self.recorded_under {
            None => Purpose::ReplayOfKernel,
            Some(_) => Purpose::Replay,
        };
        let window = self.window();
        let mut input = Input::read_until(found, self.replay, (&window, purpose), ended)?;
        if let (Input::Scenario(scenario), Some(name)) = (&mut input, &self.costs) {
            let costs = preset::costs(name)
                .map_err(|error| StudyError::Option(format!("costs: {error}")))?;
            scenario.machine.costs = costs;
        }
        if let (Input::Scenario(scenario), true) = (&mut input, self.only_asked) {
            scenario.schedulers.truncate(1);
            scenario.variants.clear();
            // They are about rows that are not simulated.
            scenario.expectations.clear();
        }
        self.read_objects(&input)?;
        Ok(input)
    }

    /// Reads the schedulers in BPF that are compared.
    fn read_objects(&self, input: &Input) -> Result<(), StudyError> {
        let asked = &self.options.schedulers;
        let of_scenario = match input {
            Input::Scenario(scenario) if asked.is_empty() => &scenario.schedulers[..],
            _ => &[],
        };
        let all = asked.iter().chain(of_scenario).chain(&self.recorded_under);
        objects::read(all, self.kernel_btf.as_deref())
    }

    /// Compares.
    ///
    /// # Errors
    /// What is wrong with the options, or what failed.
    pub fn compare(&self, input: &Input, progress: Progress<'_>) -> Result<Study, StudyError> {
        let mut options = self.options.clone();
        options.variants.extend(self.scans.iter().flat_map(Scan::variants));
        let mut study = input.compare(self.recorded_under.as_ref(), &options, progress)?;
        study.notes.extend(self.said.iter().cloned());
        Ok(study)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, text: &str) -> Result<CompareRequest, String> {
        let mut request = CompareRequest::default();
        request.set(option(name).expect(name), text)?;
        Ok(request)
    }

    #[test]
    fn each_option_takes_its_value_or_says_what_is_allowed() {
        for (name, right, wrong) in [
            ("schedulers", "linux-6.18:base_slice_ns=6ms", "rr:x"),
            ("scans", "sysbench nice=0..19", "nice"),
            ("seed", "7", "-7"),
            ("seeds", "1000", "1001"),
            ("duration", "2s", "2"),
            ("recorded_under", "linux-4.19", "rr:x"),
            ("checks", "a=b=file.slt", "file.slt"),
            ("fail_if", "redis-server latency p99 > 1ms", "redis-server"),
            ("replay", "messages", "letters"),
            ("jobs", "2", "two"),
            ("begin", "2s", "2"),
            ("around", "worst:3", "best"),
            ("around", "1.5s", "worst:0"),
            ("by", "pod", "pods"),
            ("rows", "asked", "mine"),
        ] {
            assert!(set(name, right).is_ok(), "{name} {right}");
            assert!(set(name, wrong).is_err_and(|why| !why.is_empty()), "{name} {wrong}");
        }
        let kernel = set("schedulers", "linux-4.14").unwrap();
        assert!(kernel.said[0].contains("linux-4.14 is simulated as"), "{:?}", kernel.said);
        assert_eq!(set("checks", "a=b=file.slt").unwrap().options.checks[0].0, "a=b");
        let read = |costs: &str| {
            set("costs", costs).unwrap().read(crate::gallery::find("two-hogs").unwrap())
        };
        assert!(read("modern-vm").is_ok());
        assert!(read("modern-wm").unwrap_err().to_string().contains("did you mean"));
    }

    /// A scenario with one's own row alone has two rows, and none of its expectations.
    #[test]
    fn only_the_rows_that_were_asked_for_are_simulated() {
        let mut request = set("rows", "asked").unwrap();
        request.set(option("variants").unwrap(), "mine: yes-2 nice=10").unwrap();
        request.options.duration = Some(Ns::from_ms(1_200));
        let found = crate::gallery::find("two-hogs").unwrap();
        let study = request.compare(&request.read(found).unwrap(), &|_, _| {}).unwrap();
        let names: Vec<&str> = study.rows.iter().map(|row| row.variant.as_str()).collect();
        assert_eq!(names, ["as it is", "mine"]);
        assert!(study.expectations.is_empty());
    }

    #[test]
    fn names_are_unique() {
        for (at, one) in OPTIONS.iter().enumerate() {
            let other = |other: &CompareOption| other.name == one.name || other.flag == one.flag;
            assert!(!OPTIONS[..at].iter().any(other), "{}", one.name);
        }
    }

    #[test]
    fn an_option_for_another_kind_of_input_is_refused() {
        let found = crate::gallery::find("two-hogs").expect("a scenario");
        let request = set("checks", "idle=redis.slt").unwrap();
        let (option, why) = request.without_meaning(&found, "two-hogs").expect("refused");
        assert_eq!(option.flag, "check");
        assert!(why.contains("only for recordings, and two-hogs is a scenario"), "{why}");
        assert!(set("costs", "free").unwrap().without_meaning(&found, "two-hogs").is_none());
    }
}
