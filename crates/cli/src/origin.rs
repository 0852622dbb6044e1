//! Where a result comes from: what a page says about this run of the program.

use anyhow::Context;
use schedlab_model::text::shell_word;
use schedlab_study::page::Origin;
use schedlab_trace::Header;
use std::path::Path;

/// Returns this command, this program, this machine, and the header and size of the recording, if
/// there is one.
pub(crate) fn origin(recording: Option<(&Path, &Header)>) -> anyhow::Result<Origin> {
    let recording = match recording {
        None => None,
        Some((path, header)) => {
            let bytes = std::fs::metadata(path).with_context(|| path.display().to_string())?.len();
            Some((header.clone(), bytes))
        }
    };
    Ok(Origin {
        command: command(std::env::args()),
        commit: env!("SCHEDLAB_COMMIT").to_owned(),
        made_on: made_on(),
        recording,
    })
}

/// Returns the machine that the page is made on.
#[cfg(feature = "machine")]
pub(crate) fn made_on() -> String {
    let machine = schedlab_host::machine();
    let virtual_machine = if machine.virtual_machine { ", virtual machine" } else { "" };
    format!("{}{virtual_machine}, Linux {} {}", machine.model, machine.kernel, machine.arch)
}

/// Returns what is known of the machine without asking it.
#[cfg(not(feature = "machine"))]
pub(crate) fn made_on() -> String {
    format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)
}

/// Returns the command as one would type it, the program by its name.
fn command(arguments: impl Iterator<Item = String>) -> String {
    let arguments: Vec<String> = arguments.skip(1).collect();
    format!("schedlab {}", as_typed(&arguments)).trim_end().to_owned()
}

/// Returns `words` as one would type them: quoted where a shell needs it.
pub(crate) fn as_typed(words: &[String]) -> String {
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::command;

    #[test]
    fn a_command_can_be_typed_again() {
        let arguments = ["/usr/bin/schedlab", "compare", "a b.slt", "--variant", "it's: x nice=1"];
        let text = command(arguments.into_iter().map(str::to_owned));
        assert_eq!(text, r"schedlab compare 'a b.slt' --variant 'it'\''s: x nice=1'");
    }
}
