//! Reading TOML so that every mistake can be named with its place and the nearest right word.
//!
//! Values are taken out of a [`Section`] one by one; a key that the section does not have is an
//! error of its own, so nothing that a user writes is ever ignored.

use schedlab_model::Ns;
use schedlab_model::text::{QUOTED_MAX, is_hostile, nearest, quoted};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Characters of a long line that are shown before a mistake in it.
const BEFORE: usize = 40;

/// What is wrong with a scenario, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScenarioError {
    /// The file as the user named it.
    pub file: String,
    /// Line, from 1; 0 when the problem has no place in the file.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, what is allowed, what to do.
    pub message: String,
    /// The line itself, where there is one; of a long line the part that is meant.
    pub excerpt: String,
    /// Where in the excerpt the mistake begins, in characters.
    pub indent: usize,
    /// How many characters of the excerpt are meant.
    pub width: usize,
}

impl std::error::Error for ScenarioError {}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return write!(f, "{}: {}", self.file, self.message);
        }
        let (line, column) = (self.line, self.column);
        writeln!(f, "{}:{line}:{column}: {}", self.file, self.message)?;
        let margin = line.to_string().len();
        writeln!(f, " {line} | {}", self.excerpt)?;
        let carets = "^".repeat(self.width.max(1));
        write!(f, " {:margin$} | {:indent$}{carets}", "", "", indent = self.indent)
    }
}

/// The text of one scenario, for messages.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    /// The file as the user named it.
    pub(crate) file: &'a str,
    /// Its text.
    pub(crate) text: &'a str,
}

impl Source<'_> {
    /// A mistake at `span` (byte positions).
    pub(crate) fn error(&self, span: Range<usize>, message: impl Into<String>) -> ScenarioError {
        let start = self.text.floor_char_boundary(span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |at| start + at);
        let end = self.text.floor_char_boundary(span.end.clamp(start, line_end));
        // A tab would shift the carets; a control character has no place in a message.
        let clean = |c: char| if is_hostile(c) { ' ' } else { c };
        let before = self.text[line_start..start].chars().count();
        // A line that is too long for a message is shown from some words before the mistake on.
        let long = self.text[line_start..line_end].chars().nth(QUOTED_MAX).is_some();
        let skipped = if long { before.saturating_sub(BEFORE) } else { 0 };
        let line = self.text[line_start..line_end].trim_end().chars();
        let excerpt: String = line.skip(skipped).take(QUOTED_MAX).map(clean).collect();
        let indent = before - skipped;
        let width = self.text[start..end]
            .chars()
            .take(excerpt.chars().count().saturating_sub(indent))
            .count();
        ScenarioError {
            file: self.file.to_owned(),
            line: self.text[..line_start].matches('\n').count() + 1,
            column: before + 1,
            message: message.into(),
            excerpt,
            indent,
            width,
        }
    }

    /// A mistake of the file as a whole.
    pub(crate) fn error_without_place(&self, message: impl Into<String>) -> ScenarioError {
        ScenarioError {
            file: self.file.to_owned(),
            line: 0,
            column: 0,
            message: message.into(),
            excerpt: String::new(),
            indent: 0,
            width: 0,
        }
    }
}

/// A table whose keys are known.
#[derive(Clone, Debug)]
pub(crate) struct Section<'a> {
    source: &'a Source<'a>,
    table: &'a DeTable<'a>,
    /// Where the section is in the file (its header, or the value).
    pub(crate) span: Range<usize>,
    what: &'static str,
}

/// What real machines have and no scheduler here models, by the words with which a scenario or a
/// variant may ask for it: refused by name, for a result without it would be of another machine.
const NOT_MODELLED: [(&[&str], &str); 4] = [
    (
        &["core_sched", "core-sched", "cookie", "core_cookie"],
        "core scheduling (tasks of different cookies never share a core) is not modelled: leave it \
         out, or keep the tasks on cores of their own with `cpus`",
    ),
    (
        &["uclamp", "uclamp_min", "uclamp_max", "util_min", "util_max"],
        "utilisation clamps (uclamp) are not modelled, as every CPU has one speed here: leave them \
         out, or say where tasks may run with `cpus`",
    ),
    (
        &["capacity", "capacities", "cpu_capacity"],
        "CPUs of unequal capacity (big.LITTLE) are not modelled, every CPU of a machine has the \
         same speed: leave it out; `smt_yield` is for hardware threads that slow each other. The \
         comparison of a recording from such a machine says so",
    ),
    (
        &["housekeeping", "irqaffinity", "kthread_cpus"],
        "where the kernel does its own work is said otherwise: `nohz_full` takes ticks and recorded \
         kernel threads off CPUs, `isolcpus` takes CPUs out of balancing, and each interrupt source \
         and thread of a scenario says its own `cpu` or `cpus`",
    ),
];

/// Why `key` is refused although it means something; `None`: it is not known at all.
pub(crate) fn not_modelled(key: &str) -> Option<&'static str> {
    let key = key.split('.').next().unwrap_or(key).trim_start_matches("sched_");
    let asked = |(words, why): &(&[&str], &'static str)| words.contains(&key).then_some(*why);
    NOT_MODELLED.iter().find_map(asked)
}

impl<'a> Section<'a> {
    /// Checks that `table` has no key but `keys`. `what` is how messages call it, such as
    /// `[[task]]`.
    pub(crate) fn new(
        source: &'a Source<'a>,
        table: &'a DeTable<'a>,
        span: Range<usize>,
        what: &'static str,
        keys: &[&str],
    ) -> Result<Section<'a>, ScenarioError> {
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if !keys.contains(&name) {
                if let Some(why) = not_modelled(name) {
                    return Err(source.error(key.span(), format!("{what}: {why}")));
                }
                let hint = match nearest(name, keys.iter().copied()) {
                    Some(right) => format!(": did you mean `{right}`?"),
                    None => format!("; it may have: {}", keys.join(", ")),
                };
                return Err(source.error(key.span(), format!("{what} has no key `{name}`{hint}")));
            }
        }
        Ok(Section { source, table, span, what })
    }

    /// The value of `key`, if it is there.
    pub(crate) fn get(&self, key: &'static str) -> Option<Item<'a>> {
        let (_, value) = self.table.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(Item::new(self.source, key, value))
    }

    /// The value of `key`, which must be there; `example` shows how to write it.
    pub(crate) fn need(&self, key: &'static str, example: &str) -> Result<Item<'a>, ScenarioError> {
        self.get(key)
            .ok_or_else(|| self.error(format!("{} needs `{key}`, such as {example}", self.what)))
    }

    /// Reads `key` if it is there.
    pub(crate) fn optional<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(Item<'a>) -> Result<T, ScenarioError>,
    ) -> Result<Option<T>, ScenarioError> {
        self.get(key).map(read).transpose()
    }

    /// The tables of `[[key]]`, which may be missing.
    pub(crate) fn sections(
        &self,
        key: &'static str,
        what: &'static str,
        keys: &[&str],
    ) -> Result<Vec<Section<'a>>, ScenarioError> {
        let Some(item) = self.get(key) else { return Ok(Vec::new()) };
        let DeValue::Array(entries) = item.value else {
            return Err(item.error(format!("write {what} as a header on a line of its own")));
        };
        entries.iter().map(|entry| Item::new(self.source, key, entry).section(what, keys)).collect()
    }

    /// A mistake of the section as a whole.
    pub(crate) fn error(&self, message: impl Into<String>) -> ScenarioError {
        self.source.error(self.span.clone(), message)
    }
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) struct Item<'a> {
    source: &'a Source<'a>,
    /// The key, for messages.
    pub(crate) key: &'a str,
    /// Where the value is in the file.
    pub(crate) span: Range<usize>,
    /// The value.
    pub(crate) value: &'a DeValue<'a>,
}

impl<'a> Item<'a> {
    fn new(source: &'a Source<'a>, key: &'a str, value: &'a Spanned<DeValue<'a>>) -> Item<'a> {
        Item { source, key, span: value.span(), value: value.get_ref() }
    }

    /// A mistake at this value.
    pub(crate) fn error(&self, message: impl Into<String>) -> ScenarioError {
        self.source.error(self.span.clone(), message)
    }

    fn wrong(&self, wanted: &str) -> ScenarioError {
        self.error(format!("`{}` must be {wanted}, not {}", self.key, kind(self.value)))
    }

    /// A text of one line: a name, a title, a setting. It goes to terminals, tables and command
    /// lines, so that it has no control character; a line end or a tab in a name would forge lines
    /// and columns.
    pub(crate) fn text(&self) -> Result<&'a str, ScenarioError> {
        self.text_without(is_hostile)
    }

    /// A text that may have several lines: what explains, and the settings of a variant.
    pub(crate) fn prose(&self) -> Result<&'a str, ScenarioError> {
        self.text_without(|c| is_hostile(c) && !matches!(c, '\n' | '\t'))
    }

    fn text_without(&self, refused: impl Fn(char) -> bool) -> Result<&'a str, ScenarioError> {
        let text = self.value.as_str().ok_or_else(|| self.wrong("a text in quotes"))?;
        if text.contains(refused) {
            return Err(self.error(format!(
                "`{}` has a control character: {}",
                self.key,
                quoted(text)
            )));
        }
        Ok(text)
    }

    /// A text that reads as `T`.
    pub(crate) fn parse<T: FromStr>(&self) -> Result<T, ScenarioError>
    where
        T::Err: fmt::Display,
    {
        self.text()?.parse().map_err(|error: T::Err| self.error(format!("{}: {error}", self.key)))
    }

    /// A time with its unit, such as `"30ms"`.
    pub(crate) fn time(&self) -> Result<Ns, ScenarioError> {
        match self.value {
            DeValue::Integer(number) => {
                let example = number.as_str().trim_start_matches(['-', '+']);
                let advice = format!(
                    "`{}` needs a unit: write \"{example}ms\" or \"{example}us\"",
                    self.key
                );
                Err(self.error(advice))
            }
            DeValue::Float(_) => {
                Err(self.error(format!("`{}` needs a unit, such as \"1.5ms\"", self.key)))
            }
            _ => self.parse(),
        }
    }

    /// A time longer than 0.
    pub(crate) fn positive_time(&self) -> Result<Ns, ScenarioError> {
        match self.time()? {
            Ns::ZERO => {
                Err(self.error(format!("`{}` must be longer than 0, such as \"10ms\"", self.key)))
            }
            time => Ok(time),
        }
    }

    /// A whole number from `low` to `high`.
    pub(crate) fn integer(&self, low: i64, high: i64) -> Result<i64, ScenarioError> {
        let wanted = format!("a whole number from {low} to {high}");
        let DeValue::Integer(number) = self.value else { return Err(self.wrong(&wanted)) };
        i64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .filter(|value| (low..=high).contains(value))
            .ok_or_else(|| {
                self.error(format!("`{}` must be {wanted}, not {}", self.key, number.as_str()))
            })
    }

    /// `true` or `false`.
    pub(crate) fn flag(&self) -> Result<bool, ScenarioError> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    /// The entries of a list.
    pub(crate) fn list(&self) -> Result<Vec<Item<'a>>, ScenarioError> {
        match self.value {
            DeValue::Array(entries) => {
                Ok(entries.iter().map(|entry| Item::new(self.source, self.key, entry)).collect())
            }
            _ => Err(self.wrong("a list in square brackets")),
        }
    }

    /// A table with these keys.
    pub(crate) fn section(
        &self,
        what: &'static str,
        keys: &[&str],
    ) -> Result<Section<'a>, ScenarioError> {
        let DeValue::Table(table) = self.value else { return Err(self.wrong("a table")) };
        Section::new(self.source, table, self.span.clone(), what, keys)
    }

    /// The values of a table with keys of any name; each item's `key` is its name.
    pub(crate) fn entries(&self) -> Result<Vec<Item<'a>>, ScenarioError> {
        let DeValue::Table(table) = self.value else { return Err(self.wrong("a table")) };
        Ok(table
            .iter()
            .map(|(key, value)| Item::new(self.source, key.get_ref().as_ref(), value))
            .collect())
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a decimal point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
