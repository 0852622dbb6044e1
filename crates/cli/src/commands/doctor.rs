//! `schedlab doctor`

use crate::exit::Exit;
use crate::format::FormatArgs;
use crate::output;
use crate::render::{Style, wrap};
use schedlab_host::doctor::{DoctorOutput, Fact, Level, SCHEMA, answer, facts};
use schedlab_host::probe;
use std::fmt::Write as _;

/// `schedlab doctor`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab doctor
  schedlab doctor --json")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Exit> {
    let found = probe();
    let facts = facts(&found);
    let answer = answer(&found, &facts);
    let value = || {
        let output =
            DoctorOutput { schema: SCHEMA, answer: &answer, capabilities: &found, facts: &facts };
        Ok(serde_json::to_value(output)?)
    };
    let text = |style: &Style| {
        let mut text = format!("{}\n\n", style.bold(&wrap(&answer, style.width, 0)));
        for fact in &facts {
            show(&mut text, fact, style);
        }
        let _ = writeln!(text, "\nsettings of this kernel, as recordings carry them:");
        for (name, value) in &found.machine.knobs {
            let _ = writeln!(text, "  {name} = {value}");
        }
        text
    };
    output::write(None, &args.format.print(None, value, text)?)?;
    Ok(Exit::Done)
}

/// Writes a line for the state, below it the consequence, and the command that removes the limit.
fn show(text: &mut String, fact: &Fact, style: &Style) {
    let mark = match fact.level {
        Level::Good => style.good("good   "),
        Level::Note => "note   ".to_owned(),
        Level::Limit => style.bold("limit  "),
        Level::Missing => style.bad("missing"),
    };
    // Wrapped as it reads, and then made bold: the mark may have colours, which have no width.
    let line = wrap(&format!("{}: {}", fact.what, fact.state), style.width, 9);
    let line = line.trim_start();
    let _ = match line.strip_suffix(fact.state.as_str()) {
        Some(before) => writeln!(text, "{mark}  {before}{}", style.bold(&fact.state)),
        None => writeln!(text, "{mark}  {line}"),
    };
    let _ = writeln!(text, "{}", style.dim(&wrap(&fact.consequence, style.width, 9)));
    if let Some(command) = &fact.lift {
        let _ = writeln!(text, "         lift: {command}");
    }
}
