//! A task's program as a list of readable steps.
//!
//! ```toml
//! program = ["receive requests", "run 3us", "done requests"]
//! ```
//! A program starts over when it reaches its end; `exit` ends the task.

use super::document::{Item, ScenarioError};
use super::draw::parse_draw;
use schedlab_model::text::nearest;
use schedlab_model::{
    Amount, ChannelId, CpuId, CpuSet, CpuSetError, Draw, LockId, Nice, Ns, Op, Program, Section,
    TaskId,
};
use toml::de::DeValue;

/// The longest program: more is a mistake, not a scenario.
const MAX_OPS: usize = 1_000_000;
const WORDS: [&str; 18] = [
    "run",
    "kernel",
    "cond_resched",
    "sleep",
    "every",
    "receive",
    "wait",
    "send",
    "wake",
    "done",
    "serve",
    "lock",
    "unlock",
    "yield",
    "spawn",
    "nice",
    "cpus",
    "exec",
];

/// The names that steps may use.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Channels, by id.
    pub(super) channels: Vec<String>,
    /// Locks, by id.
    pub(super) locks: Vec<String>,
    /// Tasks, by id.
    pub(super) tasks: Vec<String>,
}

/// Reads the steps of one task. `number` replaces `{n}` (copies of a task are numbered from 1).
pub(super) struct Reader<'n> {
    pub(super) names: &'n Names,
    pub(super) number: usize,
    program: Program,
}

impl<'n> Reader<'n> {
    pub(super) fn new(names: &'n Names, number: usize) -> Reader<'n> {
        Reader { names, number, program: Program::default() }
    }

    /// `first` runs once, `program` for ever (unless it ends with `exit`).
    pub(super) fn read(
        mut self,
        first: Option<&Item<'_>>,
        program: &Item<'_>,
    ) -> Result<Program, ScenarioError> {
        if let Some(first) = first {
            self.steps(first)?;
        }
        let start = self.program.ops.len();
        if program.value.as_str() == Some("hog") {
            self.program.ops.push(Op::Run(Amount::Fixed(Ns::from_s(1))));
        } else if program.value.is_str() {
            return Err(program.error(
                "`program` is a list of steps, such as [\"run 1ms\", \"sleep 9ms\"], or \"hog\", \
                 which runs \
                 for ever",
            ));
        } else {
            self.steps(program)?;
        }
        if self.program.ops.len() == start {
            return Err(program
                .error("the program is empty: give it at least one step, such as \"run 1ms\""));
        }
        self.program.repeat_from = match self.program.ops.last() {
            Some(Op::Exit) => None,
            _ => Some(start as u32),
        };
        Ok(self.program)
    }

    fn steps(&mut self, list: &Item<'_>) -> Result<(), ScenarioError> {
        for step in list.list()? {
            if self.program.ops.len() >= MAX_OPS {
                return Err(step.error(format!("a program may have at most {MAX_OPS} steps")));
            }
            match step.value {
                DeValue::Table(_) => self.repeat(&step)?,
                _ => {
                    let text = step.text()?.replace("{n}", &self.number.to_string());
                    let (text, skips) = without_skip(text.trim());
                    let op = self.step(text).map_err(|message| step.error(message))?;
                    if let (true, Op::NextPeriod { period, offset }) = (skips, op) {
                        self.program.ops.push(Op::SkipMissed { period, offset });
                    }
                    self.program.ops.push(op);
                }
            }
        }
        Ok(())
    }

    /// `{ repeat = 5, steps = [...] }`
    fn repeat(&mut self, item: &Item<'_>) -> Result<(), ScenarioError> {
        let section = item.section("a step", &["repeat", "steps"])?;
        let times = section.need("repeat", "5")?.integer(1, i64::from(u32::MAX))? as u32;
        let to = self.program.ops.len() as u32;
        let steps = section.need("steps", "[\"run 1ms\", \"sleep 1ms\"]")?;
        self.steps(&steps)?;
        if self.program.ops.len() == to as usize {
            return Err(steps.error("nothing to repeat: give it at least one step"));
        }
        if times > 1 {
            self.program.ops.push(Op::Repeat { to, times: times - 1 });
        }
        Ok(())
    }

    fn step(&mut self, text: &str) -> Result<Op, String> {
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        let alone = |op: Op| match rest {
            "" => Ok(op),
            _ => Err(format!("`{word}` takes nothing behind it, so `{rest}` has no meaning there")),
        };
        match word {
            "run" => Ok(Op::Run(self.amount(rest)?)),
            "kernel" => self.kernel(rest),
            "cond_resched" => alone(Op::CondResched),
            "sleep" => match rest.strip_prefix("until ") {
                Some(time) => Ok(Op::SleepUntil(parse_time(time)?)),
                None => Ok(Op::Sleep(self.amount(rest)?)),
            },
            "every" => every(rest),
            "receive" | "wait" => match rest.strip_prefix("all ") {
                Some(channel) => Ok(Op::ReceiveAll(self.channel(channel)?)),
                None => Ok(Op::Receive(self.channel(rest)?)),
            },
            "send" | "wake" => self.send(rest),
            "done" => Ok(Op::Done(self.channel(rest)?)),
            "serve" => {
                let form = "write \"serve CHANNEL LENGTH\", such as \"serve requests 3us\"";
                let (channel, length) = rest.split_once(char::is_whitespace).ok_or(form)?;
                Ok(Op::Serve { channel: self.channel(channel)?, per_request: self.amount(length)? })
            }
            "lock" => Ok(Op::Lock(self.lock(rest)?)),
            "unlock" => Ok(Op::Unlock(self.lock(rest)?)),
            "spawn" => Ok(Op::Spawn(self.task(rest)?)),
            "yield" => alone(Op::Yield),
            "exec" => alone(Op::Exec),
            "nice" => nice(rest),
            "cpus" => cpus(rest),
            "exit" => alone(Op::Exit),
            _ => {
                let hint = nearest(word, WORDS.into_iter().chain(["exit"]))
                    .map(|right| format!(": did you mean `{right}`?"))
                    .unwrap_or_else(|| format!("; steps are {}, exit", WORDS.join(", ")));
                Err(format!("`{word}` is not a step{hint}"))
            }
        }
    }

    /// `kernel 50us`, `kernel spinlock exp 20us`
    fn kernel(&mut self, rest: &str) -> Result<Op, String> {
        let (word, length) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        if let Some(section) = Section::from_name(word) {
            return Ok(Op::Kernel { section, length: self.amount(length)? });
        }
        let length = self.amount(rest).map_err(|error| {
            let names = Section::ALL.map(Section::name);
            match nearest(word, names.into_iter()) {
                Some(right) if !word.is_empty() => {
                    format!("`{word}` is no kind of kernel section: did you mean `{right}`?")
                }
                _ => format!("{error}; before the length there may be {}", names.join(", ")),
            }
        })?;
        Ok(Op::Kernel { section: Section::Preemptible, length })
    }

    fn amount(&mut self, text: &str) -> Result<Amount, String> {
        match parse_draw(text)? {
            Draw::Fixed(length) => Ok(Amount::Fixed(length)),
            _ if self.program.draws.len() > usize::from(u16::MAX) => {
                Err("too many distributions in one program".to_owned())
            }
            draw => Ok(self.program.draw(draw)),
        }
    }

    fn send(&self, rest: &str) -> Result<Op, String> {
        let (channel, count) = match rest.rsplit_once(" x") {
            Some((channel, count)) => {
                let count = count.trim().parse::<u32>().ok().filter(|&c| c > 0);
                (
                    channel,
                    count.ok_or(
                        "write \"send CHANNEL xN\" with N from 1, such as \"send replies x3\"",
                    )?,
                )
            }
            None => (rest, 1),
        };
        Ok(Op::Send { channel: self.channel(channel.trim())?, count })
    }

    fn channel(&self, name: &str) -> Result<ChannelId, String> {
        find("channel", "channels", name, &self.names.channels).map(ChannelId::from)
    }

    fn lock(&self, name: &str) -> Result<LockId, String> {
        find("lock", "locks", name, &self.names.locks).map(LockId::from)
    }

    fn task(&self, name: &str) -> Result<TaskId, String> {
        find("task", "tasks", name, &self.names.tasks).map(TaskId::from)
    }
}

fn parse_time(text: &str) -> Result<Ns, String> {
    text.trim().parse().map_err(|error: schedlab_model::NsError| error.to_string())
}

/// `every 10ms skip` is `every 10ms`, and jobs that are overdue are dropped.
fn without_skip(text: &str) -> (&str, bool) {
    match text.strip_suffix(" skip") {
        Some(rest) if rest.starts_with("every ") => (rest.trim_end(), true),
        _ => (text, false),
    }
}

/// `nice 5`
fn nice(rest: &str) -> Result<Op, String> {
    let value = rest.parse().ok().and_then(Nice::new);
    value.map(Op::SetNice).ok_or_else(|| {
        format!("`{rest}` is no nice value: write one from -20 to 19, such as \"nice 5\"")
    })
}

/// `cpus 2`, `cpus 0-3`
fn cpus(rest: &str) -> Result<Op, String> {
    let set: CpuSet = rest.parse().map_err(|error: CpuSetError| error.to_string())?;
    let first = set.lowest().ok_or("write the CPUs, such as \"cpus 0-3\"")?;
    let last = CpuId(first.0 + set.count() as u32 - 1);
    let op = Op::SetCpus { first, last };
    match op.cpus() == Some(set) {
        true => Ok(op),
        false => {
            Err(format!("`{rest}` has gaps: a task takes one row of CPUs, such as \"cpus 0-3\""))
        }
    }
}

/// `every 10ms`, `every 10ms from 2ms`.
fn every(rest: &str) -> Result<Op, String> {
    let (period, offset) = rest.split_once(" from ").unwrap_or((rest, "0ns"));
    match (parse_time(period)?, parse_time(offset)?) {
        (Ns::ZERO, _) => Err("a period must be longer than 0, such as \"every 10ms\"".to_owned()),
        (period, offset) => Ok(Op::NextPeriod { period, offset }),
    }
}

/// The index of `name` in `list`, or a message with the nearest one.
pub(super) fn find(what: &str, key: &str, name: &str, list: &[String]) -> Result<usize, String> {
    let name = name.trim();
    if let Some(index) = list.iter().position(|known| known == name) {
        return Ok(index);
    }
    let known = list.iter().map(String::as_str);
    Err(match (list.is_empty(), nearest(name, known.clone())) {
        (true, _) if what == "task" => format!("there is no task `{name}`"),
        (true, _) => format!("there is no {what} `{name}`: declare it with {key} = [\"{name}\"]"),
        (false, Some(right)) => format!("there is no {what} `{name}`: did you mean `{right}`?"),
        (false, None) => {
            let all = known.take(12).collect::<Vec<_>>().join(", ");
            format!("there is no {what} `{name}`; there are: {all}")
        }
    })
}
