//! The binary `schedlab`: arguments, output, exit codes. What the commands do is in `schedlab_study` (predictions) and
//! `schedlab_lab` (experiments on this machine).
//!
//! Exit codes: 0 done, 1 a stated expectation failed, 2 bad input or not possible here, 3 ran but the result
//! cannot be trusted.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod exit;
mod format;
mod options;
mod origin;
mod output;
mod progress;
mod render;
mod screen;
mod stdin;

use args::{Args, Command};
use clap::Parser;
use schedlab_model::text::shown_lines;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return refused(&error),
    };
    render::use_colors(args.color);
    let result = match &args.command {
        Command::Explain(command) => commands::explain::run(command),
        Command::Completions(command) => commands::completions::run(command),
        Command::Man(command) => commands::man::run(command),
        Command::Record(command) => commands::record::run(command),
        Command::Compare(command) => commands::compare::run(command),
        Command::Bench(command) => commands::bench::run(command),
        Command::Calibrate(command) => commands::calibrate::run(command),
        Command::Published(command) => commands::published::run(command),
        Command::List(command) => commands::list::run(command),
        Command::Show(command) => commands::show::run(command),
        Command::Generate(command) => commands::generate::run(command),
        Command::Import(command) => commands::import::run(command),
        Command::Diff(command) => commands::diff::run(command),
        Command::Export(command) => commands::export::run(command),
        Command::Latency(command) => commands::latency::run(command),
        Command::Watch(command) => commands::watch::run(command),
        Command::Doctor(command) => commands::doctor::run(command),
        Command::Stress(command) => commands::stress::run(command),
        Command::Run(command) => commands::run::run(command),
        Command::Attach(command) => commands::attach::run(command),
        Command::Verify(command) => commands::verify::run(command),
        Command::Colocate(command) => commands::colocate::run(command),
        Command::Experiment(command) => commands::experiment::run(command),
        Command::Confirm(command) => commands::confirm::run(command),
        Command::Top(command) => commands::top::run(command),
        Command::Status(command) => commands::status::run(command),
        Command::Detach(command) => commands::detach::run(command),
        Command::Restore(command) => commands::restore::run(command),
        Command::Helper(command) => commands::helper::run(command),
        Command::Guardian(command) => commands::guardian::run(command),
    };
    match result {
        Ok(exit) => exit.into(),
        // The reader of a pipe has read enough: that is no error.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => failed(&stdin::named(&message(&error)), format::asks_for_json(std::env::args_os())),
    }
}

/// Prints the help that was asked for, or why the arguments were refused. An argument is data: its control characters are escaped.
fn refused(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    if error.use_stderr() && format::asks_for_json(std::env::args_os()) {
        return failed(text.trim_end().trim_start_matches("error: "), true);
    }
    if matches!(shown_lines(&text), std::borrow::Cow::Borrowed(_)) {
        // In colours, to the stream that fits, with the pager's width.
        error.exit();
    }
    // Nothing is left to do when standard error is gone too.
    let _ = write!(std::io::stderr(), "{}", shown_lines(&text));
    ExitCode::from(2)
}

/// Prints why the command failed: as a line, or as JSON where the result would have been JSON. Standard output stays empty.
fn failed(message: &str, json: bool) -> ExitCode {
    let text = if json {
        serde_json::json!({ "schema": "schedlab-error/1", "error": message, "exit_code": 2 }).to_string()
    } else {
        format!("error: {}", shown_lines(message))
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

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    // The pipe to an agent or a guardian is not one from which a reader has read enough.
    !error.is::<schedlab_live::LiveError>()
        && error.chain().any(|cause| {
            cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
        })
}
