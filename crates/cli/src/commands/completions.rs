//! `schedlab completions`

use crate::args::Args;
use crate::exit::Exit;
use crate::output;
use clap::CommandFactory as _;
use clap_complete::Shell;

/// `schedlab completions`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  schedlab completions bash > ~/.local/share/bash-completion/completions/schedlab
  schedlab completions zsh > ~/.zfunc/_schedlab
  schedlab completions fish > ~/.config/fish/completions/schedlab.fish")]
pub(crate) struct CompletionsArgs {
    /// Complete the words of this shell
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "schedlab", &mut script);
    output::write(None, &String::from_utf8(script)?)?;
    Ok(Exit::Done)
}
