//! How a setting is made without schedlab: under the verdict of `compare`, and alone with
//! `--deploy FORMAT`.

use super::style::{Style, wrap};
use schedlab_study::deploy::{Deployment, Format};
use schedlab_study::result::Study;
use std::fmt::Write as _;

/// Returns the lines under the verdict: what is beside it, the commands, what to know.
pub(super) fn block(study: &Study, style: &Style) -> String {
    let mut text = String::new();
    for sentence in &study.verdict.beside {
        let _ = writeln!(text, "{}", wrap(sentence, style.width, 0));
    }
    study.recommended().map_or(text.clone(), |deployment| text + &commands(deployment, style))
}

/// Returns the commands that make a setting, and what to know; empty where there are none.
pub(super) fn commands(deployment: &Deployment, style: &Style) -> String {
    let mut text = String::new();
    let Some((format, commands)) = first(deployment) else { return text };
    let others: Vec<&str> =
        deployment.formats().into_iter().filter(|name| *name != format.name()).collect();
    let more = if others.is_empty() {
        String::new()
    } else {
        format!(" (--deploy {})", others.join(", "))
    };
    let _ = writeln!(text, "\n{}{}", style.bold("To set it without schedlab"), style.dim(&more));
    for line in commands.lines() {
        let _ = writeln!(text, "  {line}");
    }
    for caveat in &deployment.caveats {
        let _ = writeln!(text, "{}", wrap(&format!("to know: {caveat}"), style.width, 0));
    }
    text
}

/// Returns the command that sets it, in one line.
pub(super) fn line(study: &Study) -> Option<String> {
    let (_, commands) = first(study.recommended()?)?;
    let mut lines = commands.lines().filter(|line| !line.starts_with('#'));
    let first = lines.next()?;
    Some(if lines.next().is_some() { format!("{first} ...") } else { first.to_owned() })
}

/// The format that a user of this machine types: `xl` on Xen.
fn first(deployment: &Deployment) -> Option<(Format, &str)> {
    let of = |format| deployment.text(format).map(|text| (format, text));
    of(Format::Xl).or_else(|| of(Format::Shell)).or_else(|| of(Format::Systemd))
}

/// Returns the text of one format, to be written to a file: what it does and what to know are
/// comments.
pub(crate) fn file(deployment: Option<&Deployment>, format: Format) -> Result<String, String> {
    let deployment = deployment
        .ok_or_else(|| "no setting that was tried gains anything for certain".to_owned())?;
    let text = deployment.text(format).ok_or_else(|| match deployment.formats()[..] {
        [] => {
            let why = deployment.caveats.iter().map(|why| format!(". {why}")).collect::<String>();
            format!("nothing but schedlab makes this setting: {}{why}", deployment.what)
        }
        ref formats => format!("this setting ({}) has {}", deployment.what, formats.join(", ")),
    })?;
    let mut file = String::new();
    for comment in std::iter::once(&deployment.what).chain(&deployment.caveats) {
        for line in wrap(comment, 98, 0).lines() {
            let _ = writeln!(file, "# {line}");
        }
    }
    let _ = writeln!(file, "{text}");
    Ok(file)
}
