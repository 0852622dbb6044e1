//! A scenario as text that can be taken apart: for writing it down, and for finding the smallest
//! one that still fails.

use schedlab_model::Ns;
use std::fmt::Write as _;

/// Text of a TOML value, by key.
type Keys = Vec<(String, String)>;

/// A `[[...]]` section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DraftSection {
    /// `task`, `group`, `source`.
    pub kind: &'static str,
    /// Keys with their values as TOML.
    pub keys: Keys,
    /// The steps of a task's program as TOML; empty for others.
    pub steps: Vec<String>,
}

/// A scenario in parts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Draft {
    /// Comments at the top, one line each.
    pub comments: Vec<String>,
    /// Keys of the file itself.
    pub keys: Keys,
    /// Keys of `[machine]`.
    pub machine: Keys,
    /// Keys of `[machine.cost]`.
    pub costs: Keys,
    /// Keys of `[delegation]`, the mode first; empty = in the kernel.
    pub delegation: Keys,
    /// Groups, tasks, sources, in this order.
    pub parts: Vec<DraftSection>,
}

/// A text as TOML.
pub fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted += &format!("\\u{:04X}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

impl DraftSection {
    /// A section without keys.
    pub fn new(kind: &'static str) -> DraftSection {
        DraftSection { kind, keys: Vec::new(), steps: Vec::new() }
    }

    /// Adds a key with a TOML value.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        self.keys.push((key.to_owned(), value.into()));
    }

    /// Adds a key with a text.
    pub fn text(&mut self, key: &str, value: impl AsRef<str>) {
        self.set(key, quote(value.as_ref()));
    }

    /// Adds a step.
    pub fn step(&mut self, step: impl AsRef<str>) {
        self.steps.push(quote(step.as_ref()));
    }
}

impl Draft {
    /// Adds a key of the file with a TOML value.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        self.keys.push((key.to_owned(), value.into()));
    }

    /// The quoted names of the sections of a kind.
    pub(super) fn names(&self, kind: &str) -> Vec<String> {
        let parts = self.parts.iter().filter(|part| part.kind == kind);
        parts
            .flat_map(|part| &part.keys)
            .filter(|(key, _)| key == "name")
            .map(|(_, name)| name.clone())
            .collect()
    }

    /// The scenario, as a file.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        let lines = |text: &mut String, keys: &Keys| {
            for (key, value) in keys {
                *text += &format!("{key} = {value}\n");
            }
        };
        for comment in &self.comments {
            let _ = writeln!(text, "{}", format!("# {comment}").trim_end());
        }
        lines(&mut text, &self.keys);
        text += "\n[machine]\n";
        lines(&mut text, &self.machine);
        for (name, keys) in [("machine.cost", &self.costs), ("delegation", &self.delegation)] {
            if !keys.is_empty() {
                text += &format!("\n[{name}]\n");
                lines(&mut text, keys);
            }
        }
        for part in &self.parts {
            let _ = writeln!(text, "\n[[{}]]", part.kind);
            lines(&mut text, &part.keys);
            if !part.steps.is_empty() {
                text += &steps(&part.steps);
            }
        }
        text
    }

    /// Every draft with one thing less, the largest things first. Not all of them are scenarios,
    /// nor smaller in every sense: fewer CPUs may need other masks.
    pub fn smaller(&self) -> Vec<Draft> {
        let mut all = Vec::new();
        let mut push = |change: &dyn Fn(&mut Draft)| {
            let mut draft = self.clone();
            change(&mut draft);
            all.push(draft);
        };
        for at in (0..self.parts.len()).rev() {
            push(&|draft| drop(draft.parts.remove(at)));
        }
        if !self.costs.is_empty() {
            push(&|draft| draft.costs.clear());
        }
        if !self.delegation.is_empty() {
            push(&|draft| draft.delegation.clear());
        }
        for at in 1..self.delegation.len() {
            push(&|draft| drop(draft.delegation.remove(at)));
        }
        for at in 0..self.costs.len() {
            push(&|draft| drop(draft.costs.remove(at)));
        }
        for at in 1..self.machine.len() {
            push(&|draft| drop(draft.machine.remove(at)));
        }
        for (index, part) in self.parts.iter().enumerate() {
            for at in 1..part.keys.len() {
                push(&|draft| drop(draft.parts[index].keys.remove(at)));
            }
            for at in (0..part.steps.len()).rev() {
                push(&|draft| drop(draft.parts[index].steps.remove(at)));
            }
        }
        for (at, (key, value)) in self.keys.iter().enumerate() {
            for less in less(key, value) {
                push(&|draft| draft.keys[at].1.clone_from(&less));
            }
            if ["seed", "channels", "locks"].contains(&key.as_str()) {
                push(&|draft| drop(draft.keys.remove(at)));
            }
        }
        for (index, part) in self.parts.iter().enumerate() {
            for (at, step) in part.steps.iter().enumerate() {
                if let Some(once) = unrolled(step) {
                    push(&|draft| drop(draft.parts[index].steps.splice(at..=at, once.clone())));
                }
                if let Some(constant) = constant(step) {
                    push(&|draft| draft.parts[index].steps[at].clone_from(&constant));
                }
            }
        }
        // Fewer CPUs last: most of the other things have to go first.
        if let Some((key, cpus)) = self.machine.first() {
            let flat = if key == "cpus" { cpus.parse().unwrap_or(1) } else { 9 };
            for cpus in (1..flat).take(4) {
                push(&|draft| draft.flatten(cpus));
            }
        }
        all
    }

    /// A machine of so many CPUs below one cache.
    fn flatten(&mut self, cpus: u64) {
        self.machine
            .retain(|(key, _)| !["cpus", "sockets", "cores", "threads"].contains(&key.as_str()));
        self.machine.insert(0, ("cpus".to_owned(), cpus.to_string()));
    }
}

/// Smaller values of a key of the file: fewer knobs, half the time, fewer channels.
fn less(key: &str, value: &str) -> Vec<String> {
    match key {
        "schedulers" => {
            let Some((name, knobs)) = value.trim_matches(['[', ']', '"']).split_once(':') else {
                return Vec::new();
            };
            let knobs: Vec<&str> = knobs.split(',').collect();
            let without = |left_out: usize| {
                let mut knobs = knobs.clone();
                knobs.remove(left_out);
                knobs
            };
            let mut fewer: Vec<Vec<&str>> = vec![Vec::new()];
            fewer.extend((0..knobs.len()).filter(|_| knobs.len() > 1).map(without));
            let spec = |knobs: Vec<&str>| match knobs.is_empty() {
                true => format!("[{}]", quote(name)),
                false => format!("[{}]", quote(&format!("{name}:{}", knobs.join(",")))),
            };
            fewer.into_iter().map(spec).collect()
        }
        "duration" => {
            let time: Option<Ns> = value.trim_matches('"').parse().ok();
            let long = time.filter(|time| *time > Ns::from_ms(1));
            long.map(|time| quote(&Ns(time.0 / 2).exact())).into_iter().collect()
        }
        "channels" => {
            let all: Vec<&str> = value.trim_matches(['[', ']']).split("}, ").collect();
            let without = |left_out: usize| {
                let kept = all.iter().enumerate().filter(|(at, _)| *at != left_out);
                let kept: Vec<String> = kept
                    .map(|(_, channel)| format!("{}}}", channel.trim_end_matches('}')))
                    .collect();
                format!("[{}]", kept.join(", "))
            };
            (0..all.len()).filter(|_| all.len() > 1).map(without).collect()
        }
        _ => Vec::new(),
    }
}

/// The steps of a repetition.
fn unrolled(step: &str) -> Option<Vec<String>> {
    let (_, steps) = step.strip_prefix('{')?.split_once('[')?;
    let steps = steps.rsplit_once(']')?.0.split(", ");
    Some(steps.map(str::to_owned).collect())
}

/// A step with a constant in the place of what is drawn.
fn constant(step: &str) -> Option<String> {
    let words: Vec<&str> = step.trim_matches('"').split(' ').collect();
    let length = match words.get(1..)? {
        ["exp", mean] => mean,
        ["uniform", range] => range.split_once("..")?.0,
        ["lognormal", median, "sigma", _] => median,
        _ => return None,
    };
    Some(quote(&format!("{} {length}", words[0])))
}

/// `program = [...]`, on several lines when it is long.
fn steps(steps: &[String]) -> String {
    let line = format!("program = [{}]\n", steps.join(", "));
    if line.len() <= 100 {
        line
    } else {
        format!("program = [\n    {},\n]\n", steps.join(",\n    "))
    }
}
