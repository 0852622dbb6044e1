//! `schedlab man`

use crate::args::Args;
use crate::exit::Exit;
use crate::output;
use anyhow::{Context as _, anyhow};
use clap::{Command, CommandFactory as _};
use schedlab_model::text::nearest;
use std::path::PathBuf;

/// `schedlab man`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab man | man -l -                      the page of schedlab
  schedlab man compare | man -l -              the page of a command
  schedlab man --all ~/.local/share/man/man1   all pages: `man schedlab-compare`")]
pub(crate) struct ManArgs {
    /// Print the page of this command [default: of schedlab itself]
    #[arg(conflicts_with = "all")]
    command: Option<String>,
    /// Write the pages of all commands into this folder
    #[arg(long, value_name = "DIR")]
    all: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs) -> anyhow::Result<Exit> {
    let mut whole = Args::command();
    whole.build();
    if let Some(folder) = &args.all {
        schedlab_files::make_folder(folder).with_context(|| folder.display().to_string())?;
        let commands = whole.get_subcommands().filter(|command| !command.is_hide_set());
        for command in std::iter::once(&whole).chain(commands) {
            let (name, text) = page(command)?;
            output::write(Some(&folder.join(name)), &text)?;
        }
        return Ok(Exit::Done);
    }
    let command = match &args.command {
        None => &whole,
        Some(name) => whole.find_subcommand(name).ok_or_else(|| {
            let names = whole.get_subcommands().map(Command::get_name);
            let hint = nearest(name, names)
                .map_or(String::new(), |right| format!(": did you mean `{right}`?"));
            anyhow!("there is no command `{name}`{hint}")
        })?,
    };
    output::write(None, &page(command)?.1)?;
    Ok(Exit::Done)
}

/// Returns the name of a command's page (`schedlab-compare.1`), and the page.
fn page(command: &Command) -> anyhow::Result<(String, String)> {
    let name = match command.get_name() {
        "schedlab" => "schedlab".to_owned(),
        inner => format!("schedlab-{inner}"),
    };
    let man = clap_mangen::Man::new(command.clone()).title(name.to_uppercase()).section("1");
    let mut text = Vec::new();
    man.render(&mut text)?;
    Ok((format!("{name}.1"), String::from_utf8(text)?))
}
