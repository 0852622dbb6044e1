//! The binary `schedlab`: arguments, output, exit codes. What the commands do is in
//! `schedlab_study` (predictions) and `schedlab_lab` (experiments on this machine).
//!
//! Exit codes: 0 done, 1 a stated expectation failed, 2 bad input or not possible here, 3 ran but
//! the result cannot be trusted.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod ending;
mod exit;
mod format;
mod message;
#[cfg(feature = "machine")]
mod options;
mod origin;
mod output;
mod progress;
mod render;
#[cfg(feature = "machine")]
mod screen;
mod stdin;

use args::{Args, Command};
use message::{limited, on_one_line};
use schedlab_study::error_output::ErrorOutput;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match arguments() {
        Ok(args) => args,
        Err(exit) => return exit,
    };
    let result = run(&args.command);
    #[cfg(feature = "machine")]
    let result = all_given_back(result);
    match result {
        Ok(exit) => exit.into(),
        // The reader of a pipe has read enough: that is no error.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            failed(&stdin::named(&message(&error)), format::asks_for_json(std::env::args_os()))
        }
    }
}

/// Runs the command that was asked for.
fn run(command: &Command) -> anyhow::Result<exit::Exit> {
    match command {
        Command::Explain(command) => commands::explain::run(command),
        #[cfg(feature = "machine")]
        Command::Completions(command) => commands::completions::run(command),
        #[cfg(feature = "machine")]
        Command::Man(command) => commands::man::run(command),
        #[cfg(feature = "machine")]
        Command::Record(command) => commands::record::run(command),
        Command::Compare(command) => commands::compare::run(command),
        #[cfg(feature = "ui")]
        Command::Ui(command) => commands::ui::run(command),
        #[cfg(feature = "machine")]
        Command::Bench(command) => commands::bench::run(command),
        #[cfg(feature = "machine")]
        Command::Calibrate(command) => commands::calibrate::run(command),
        Command::Ci(command) => commands::ci::run(command),
        Command::Tune(command) => commands::tune::run(command),
        Command::Published(command) => commands::published::run(command),
        Command::Bpf(command) => commands::bpf::run(command),
        Command::List(command) => commands::list::run(command),
        Command::Show(command) => commands::show::run(command),
        Command::Generate(command) => commands::generate::run(command),
        Command::Import(command) => commands::import::run(command),
        Command::Diff(command) => commands::diff::run(command),
        Command::Export(command) => commands::export::run(command),
        #[cfg(feature = "machine")]
        Command::Latency(command) => commands::latency::run(command),
        #[cfg(feature = "machine")]
        Command::Flight(command) => commands::flight::run(command),
        #[cfg(feature = "machine")]
        Command::Watch(command) => commands::watch::run(command),
        #[cfg(feature = "machine")]
        Command::Doctor(command) => commands::doctor::run(command),
        #[cfg(feature = "machine")]
        Command::Stress(command) => commands::stress::run(command),
        #[cfg(feature = "machine")]
        Command::Run(command) => commands::run::run(command),
        #[cfg(feature = "machine")]
        Command::Attach(command) => commands::attach::run(command),
        #[cfg(feature = "machine")]
        Command::Verify(command) => commands::verify::run(command),
        #[cfg(feature = "machine")]
        Command::Colocate(command) => commands::colocate::run(command),
        #[cfg(feature = "machine")]
        Command::Experiment(command) => commands::experiment::run(command),
        #[cfg(feature = "machine")]
        Command::Confirm(command) => commands::confirm::run(command),
        #[cfg(feature = "machine")]
        Command::Top(command) => commands::top::run(command),
        #[cfg(feature = "machine")]
        Command::Status(command) => commands::status::run(command),
        #[cfg(feature = "machine")]
        Command::Detach(command) => commands::detach::run(command),
        #[cfg(feature = "machine")]
        Command::Restore(command) => commands::restore::run(command),
        #[cfg(feature = "machine")]
        Command::Helper(command) => commands::helper::run(command),
        #[cfg(feature = "machine")]
        Command::Guardian(command) => commands::guardian::run(command),
        #[cfg(not(feature = "machine"))]
        Command::Missing(words) => Err(missing(words)),
    }
}

/// Says what could not be given back, whatever the command did besides: then its exit code is 3.
#[cfg(feature = "machine")]
fn all_given_back(result: anyhow::Result<exit::Exit>) -> anyhow::Result<exit::Exit> {
    let left = schedlab_live::left_behind();
    if left.is_empty() {
        return result;
    }
    if let Err(error) = result {
        // Nothing is left to do when standard error is gone too.
        let _ = writeln!(std::io::stderr(), "error: {}", limited(&message(&error)));
    }
    for one in left {
        let all: Vec<String> =
            one.failures.iter().map(|(what, why)| format!("{what} ({why})")).collect();
        let text = format!(
            "not everything could be given back: {}. The journal {} stays, and `schedlab restore` \
             tries again",
            all.join("; "),
            one.journal.display()
        );
        let _ = writeln!(std::io::stderr(), "error: {}", schedlab_model::text::shown_lines(&text));
    }
    Ok(exit::Exit::Untrusted)
}

/// What holds for the whole run: whether there are colours, and which file standard output goes to.
fn prepare(args: &Args) {
    render::use_colors(args.color);
    // A closed standard output is nothing that an input could be.
    let _ = schedlab_files::claim_stdout();
}

/// Reads the arguments; else what the program ends with.
fn arguments() -> Result<Args, ExitCode> {
    let args = Args::read().map_err(|error| refused(&error))?;
    #[cfg(feature = "parquet")]
    if !matches!(args.command, Command::Show(_) | Command::Compare(_)) {
        format::no_parquet(std::env::args_os()).map_err(|error| failed(&message(&error), false))?;
    }
    prepare(&args);
    Ok(args)
}

/// Prints the help that was asked for, or why the arguments were refused. An argument is data: its
/// control characters are escaped.
fn refused(error: &clap::Error) -> ExitCode {
    #[cfg(not(feature = "parquet"))]
    if error.use_stderr() && wants_parquet(std::env::args_os()) {
        let why = "this program was built without Parquet, as `make demo` does. `make build` \
                   builds all of schedlab";
        return failed(why, format::asks_for_json(std::env::args_os()));
    }
    let text = error.render().to_string();
    if error.use_stderr() && format::asks_for_json(std::env::args_os()) {
        return failed(text.trim_end().trim_start_matches("error: "), true);
    }
    let shown = limited(&on_one_line(&text, std::env::args_os()));
    // Help that was asked for is no message, and may be long.
    if !error.use_stderr() || shown == text {
        // In colours, to the stream that fits, with the pager's width.
        error.exit();
    }
    // Nothing is left to do when standard error is gone too.
    let _ = write!(std::io::stderr(), "{shown}");
    ExitCode::from(2)
}

/// Prints why the command failed: as a line, or as JSON where the result would have been JSON.
/// Standard output stays empty.
fn failed(message: &str, json: bool) -> ExitCode {
    let message = limited(&on_one_line(message, std::env::args_os()));
    let text = if json {
        serde_json::to_string(&ErrorOutput::new(&message)).unwrap_or(message)
    } else {
        format!("error: {message}")
    };
    // Nothing is left to do when standard error is gone too.
    let _ = writeln!(std::io::stderr(), "{text}");
    ExitCode::from(2)
}

/// Returns the error and its causes, without those whose text is already in it.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text += ": ";
            text += &cause;
        }
    }
    text
}

/// Says that a command is not in this program.
#[cfg(not(feature = "machine"))]
fn missing(words: &[String]) -> anyhow::Error {
    let all = args::command();
    let known: Vec<&str> = all.get_subcommands().map(clap::Command::get_name).collect();
    anyhow::anyhow!(not_among(words.first().map(String::as_str).unwrap_or_default(), &known))
}

/// Whether the arguments ask for what a build without Parquet refuses.
#[cfg(any(test, not(feature = "parquet")))]
fn wants_parquet(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> bool {
    arguments.any(|word| {
        let word = word.to_string_lossy();
        word == "parquet"
            || word == "--format=parquet"
            || word.split('=').next() == Some("--parquet")
    })
}

/// Says that a command is not among those of a build without the machine. A misspelt one is no
/// command of another build.
#[cfg(any(test, not(feature = "machine")))]
fn not_among(name: &str, known: &[&str]) -> String {
    let near = schedlab_model::text::nearest(name, known.iter().copied());
    let it = near.map_or_else(|| ": it".to_owned(), |near| format!(": did you mean `{near}`? It"));
    format!(
        "`{name}` is not in this program{it} was built without the commands that touch the \
         machine, as `make demo` does, and has \
         {}. `make build` builds all of schedlab",
        known.join(", ")
    )
}

/// Whether an error is about an agent or a guardian: the pipe to it is not one from which a reader
/// has read enough.
#[cfg(feature = "machine")]
fn is_live(error: &anyhow::Error) -> bool {
    error.is::<schedlab_live::LiveError>()
}

#[cfg(not(feature = "machine"))]
fn is_live(_: &anyhow::Error) -> bool {
    false
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    !is_live(error)
        && error.chain().any(|cause| {
            cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_parquet_knows_what_is_asked_of_it() {
        let wants = |text: &str| wants_parquet(text.split(' ').map(Into::into));
        for text in [
            "show a.slt --format parquet",
            "show a.slt --format=parquet",
            "export a --parquet x",
            "export a --parquet=x",
        ] {
            assert!(wants(text), "{text}");
        }
        assert!(!wants("export parquet.slt --csv --parket x"));
    }

    #[test]
    fn a_misspelt_command_is_not_one_of_another_build() {
        let known = [
            "show",
            "diff",
            "generate",
            "import",
            "export",
            "compare",
            "published",
            "list",
            "explain",
        ];
        let misspelt = not_among("compar", &known);
        assert!(
            misspelt.starts_with("`compar` is not in this program: did you mean `compare`?"),
            "{misspelt}"
        );
        for other in ["record", "doctor", "latency", "run", "watch", "top", "colocate", "bench"] {
            let said = not_among(other, &known);
            assert!(
                said.contains("program: it was built without") && !said.contains("did you mean"),
                "{said}"
            );
        }
    }
}
