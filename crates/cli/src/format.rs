//! The forms in which a command prints its result: one declaration of the option, one list of what
//! the rows of each result are.

mod paragraphs;
mod results;
mod rows;
mod sheet;
mod tree;

use crate::render::Style;
use anyhow::Context as _;
use clap::ValueEnum;
use results::{Markdown, ResultShape};
use serde::Serialize;
use std::ffi::OsString;
use std::path::Path;

pub(crate) use paragraphs::{BOLD, TABLE, paragraphs};
pub(crate) use sheet::Sheet;

/// How a command prints its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ResultFormat {
    /// For people
    Table,
    /// Tables and paragraphs to paste into an issue or a wiki
    Markdown,
    /// Rows with a heading, for spreadsheets
    Csv,
    /// One object with everything
    Json,
    /// An object for each row, one a line
    Ndjson,
    /// A table for data frames: of `show` and `compare`
    #[cfg(feature = "parquet")]
    Parquet,
}

impl ResultFormat {
    /// Whether programs read it: errors are JSON then, too.
    const fn is_json(self) -> bool {
        matches!(self, ResultFormat::Json | ResultFormat::Ndjson)
    }
}

/// The options of every command that prints a result.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct FormatArgs {
    /// Print the result as table, markdown, csv, json or ndjson; `show` and `compare` as parquet,
    /// too (docs/formats.md)
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    format: Option<ResultFormat>,
    /// Print as JSON: short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl FormatArgs {
    /// Returns the format that the options choose.
    pub(crate) fn get(&self) -> ResultFormat {
        if self.json { ResultFormat::Json } else { self.format.unwrap_or(ResultFormat::Table) }
    }

    /// Whether the result is for people at a terminal.
    pub(crate) fn is_table(&self) -> bool {
        self.get() == ResultFormat::Table
    }

    /// Whether a live view prints each of its states, not only the last.
    #[cfg(feature = "machine")]
    pub(crate) fn has_steps(&self) -> bool {
        matches!(self.get(), ResultFormat::Csv | ResultFormat::Json | ResultFormat::Ndjson)
    }

    /// Whether the result is a Parquet file, which is no text.
    pub(crate) fn is_parquet(&self) -> bool {
        #[cfg(feature = "parquet")]
        return self.get() == ResultFormat::Parquet;
        #[cfg(not(feature = "parquet"))]
        false
    }

    /// Returns the result in the chosen format. `value` is what JSON holds, `text` what a terminal
    /// shows; `to` is the file that it is for.
    pub(crate) fn print<T: Serialize>(
        &self,
        to: Option<&Path>,
        value: impl FnOnce() -> anyhow::Result<T>,
        text: impl FnOnce(&Style) -> String,
    ) -> anyhow::Result<String> {
        let format = self.get();
        if format == ResultFormat::Table {
            return Ok(text(&if to.is_some() { Style::plain() } else { Style::of_stdout() }));
        }
        let json = || -> anyhow::Result<String> {
            serde_json::to_string_pretty(&value()?).context("the result cannot be written as JSON")
        };
        if format == ResultFormat::Json {
            return Ok(json()? + "\n");
        }
        let json = json()?;
        let (tree, shape) = shaped(&json)?;
        if format == ResultFormat::Markdown && shape.markdown == Markdown::AsShown {
            return Ok(paragraphs(&text(&Style::markdown())));
        }
        let mut sheet = Sheet::new(Vec::new(), format, shape.schema);
        if format == ResultFormat::Markdown {
            rows::answers(&tree, shape).iter().try_for_each(|line| sheet.paragraph(line))?;
        }
        rows::write(&tree, shape, &mut sheet)?;
        Ok(String::from_utf8(sheet.finish()?)?)
    }
}

fn shaped(json: &str) -> anyhow::Result<(tree::Tree, &'static ResultShape)> {
    let tree: tree::Tree = serde_json::from_str(json).context("the result is no JSON")?;
    let shape = ResultShape::for_schema(tree.text("schema").unwrap_or_default())
        .context("a result without rows")?;
    Ok((tree, shape))
}

/// Prints states of a live view, one after the other.
#[cfg(feature = "machine")]
pub(crate) struct LivePrinter(Option<Sheet<Vec<u8>>>, ResultFormat);

#[cfg(feature = "machine")]
impl LivePrinter {
    /// Returns the printer of a command with these options.
    pub(crate) fn new(format: &FormatArgs) -> LivePrinter {
        LivePrinter(None, format.get())
    }

    /// Returns the text of the next state: a line of JSON, or its rows.
    pub(crate) fn next<T: Serialize>(&mut self, state: &T) -> anyhow::Result<String> {
        let json = serde_json::to_string(state).context("the state cannot be written as JSON")?;
        if self.1 == ResultFormat::Json {
            return Ok(json + "\n");
        }
        let (tree, shape) = shaped(&json)?;
        let sheet = self.0.get_or_insert_with(|| Sheet::new(Vec::new(), self.1, shape.schema));
        rows::write(&tree, shape, sheet)?;
        Ok(String::from_utf8(std::mem::take(sheet.out()))?)
    }
}

/// Whether the command line asks for JSON, before what another program is started with.
pub(crate) fn asks_for_json(arguments: impl Iterator<Item = OsString>) -> bool {
    asks_for(arguments, ResultFormat::is_json)
}

/// Refuses Parquet of a command that has no table, before it begins.
#[cfg(feature = "parquet")]
pub(crate) fn no_parquet(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    if asks_for(arguments, |format| format == ResultFormat::Parquet) {
        anyhow::bail!(
            "--format parquet is a format of `show` and `compare`, and `export --parquet DIR` \
             writes the tables of a recording: use csv or \
             ndjson here"
        );
    }
    Ok(())
}

fn asks_for(arguments: impl Iterator<Item = OsString>, is: fn(ResultFormat) -> bool) -> bool {
    let named = |name: &str| ResultFormat::from_str(name, false).is_ok_and(is);
    let mut after_format = false;
    for word in arguments.take_while(|word| word != "--") {
        let word = word.to_string_lossy();
        let chosen = if after_format { Some(&*word) } else { word.strip_prefix("--format=") };
        if word == "--json" && is(ResultFormat::Json) || chosen.is_some_and(named) {
            return true;
        }
        after_format = word == "--format";
    }
    false
}

#[cfg(test)]
mod tests {
    use super::asks_for_json;

    #[test]
    fn json_is_asked_for_in_three_ways() {
        for (line, json) in [
            ("show x --json", true),
            ("show x --format json", true),
            ("show x --format=ndjson", true),
            ("show x --format csv", false),
            ("show json", false),
            ("run -- ls --json", false),
        ] {
            assert_eq!(asks_for_json(line.split(' ').map(Into::into)), json, "{line}");
        }
    }
}
