//! `schedlab explain`

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::output;
use crate::render::{Style, wrap};
use anyhow::bail;
use schedlab_model::text::nearest;
use schedlab_study::glossary::{ExplainOutput, SCHEMA, Term, find, terms};
use std::fmt::Write as _;

/// `schedlab explain`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab explain                  the words that there are
  schedlab explain response time
  schedlab explain 'cannot tell'
  schedlab explain steal --json")]
pub(crate) struct ExplainArgs {
    /// Explain this word of a table, a verdict or a message
    term: Vec<String>,
    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<Exit> {
    let wanted = args.term.join(" ");
    let found: Vec<Term> = match (wanted.is_empty(), find(&wanted)) {
        (true, _) => terms(),
        (false, Some(term)) => vec![term],
        (false, None) => {
            let all = terms();
            let names = all
                .iter()
                .flat_map(|term| std::iter::once(term.name).chain(term.also.iter().copied()));
            match nearest(&wanted.to_lowercase(), names) {
                Some(right) => bail!("`{wanted}` is not in the list: did you mean `{right}`?"),
                None => bail!("`{wanted}` is not in the list: `schedlab explain` prints it"),
            }
        }
    };
    let value = || Ok(serde_json::to_value(ExplainOutput { schema: SCHEMA, terms: &found })?);
    let text = |style: &Style| {
        let mut text = String::new();
        for term in &found {
            let also = if term.also.is_empty() {
                String::new()
            } else {
                format!(" ({})", term.also.join(", "))
            };
            if wanted.is_empty() {
                let first =
                    term.meaning.split_inclusive(". ").next().unwrap_or_default().trim_end();
                let _ =
                    writeln!(text, "{}\n{}", style.bold(term.name), wrap(first, style.width, 2));
            } else {
                let _ = writeln!(
                    text,
                    "{}{also}\n{}",
                    style.bold(term.name),
                    wrap(term.meaning, style.width, 0)
                );
            }
        }
        text
    };
    output::write(None, &args.format.print(None, value, text)?)?;
    Ok(Exit::Done)
}
