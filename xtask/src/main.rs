//! Chores of the workspace: `cargo xtask help` lists them. A thin dispatcher; each chore is a
//! module of its own, or is in `guest-lab`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr)] // a command-line tool

mod bench_recordings;
mod bpf;
mod broken;
mod built;
mod ci;
mod dist;
mod disturb;
mod docs;
#[cfg(test)]
mod facts;
mod finding;
mod fuzz;
mod gallery;
mod make_recording;
mod oracle;
mod picture;
mod reach;
mod same_results;
mod stress;
mod tidy;
mod torture_live;
mod torture_writes;
mod tree;
mod ui;
mod watch_flat;

use anyhow::Result;
use clap::{CommandFactory as _, Parser};
use std::process::ExitCode;

/// Chores of the workspace
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    after_help = "Exit codes: 0 done, 1 something was found, 2 bad arguments."
)]
struct CommandLine {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(clap::Subcommand)]
enum Chore {
    /// Checks what the compiler does not: floors, lengths, forbidden names, dead files, stale docs
    Tidy,
    /// Prints every place where the program writes: what it writes, and what protects it
    Writers,
    /// Runs everything that must hold before a change lands: fmt, clippy, tidy, tests, deny
    Ci {
        /// Without the tests of the other crates
        #[arg(long)]
        fast: bool,
    },
    /// Checks licences, sources and known holes of dependencies (cargo-deny); says what it cannot
    /// check here
    Deny,
    Stress(stress::StressArgs),
    Fuzz(fuzz::FuzzArgs),
    Dist(dist::DistArgs),
    Disturb(disturb::DisturbArgs),
    Guest(guest_lab::guest::GuestArgs),
    GuestOracle(guest_lab::guest_oracle::GuestOracleArgs),
    Objects(guest_lab::guest::ObjectsArgs),
    /// Builds the BPF objects and compares them with those in bpf/ (needs clang, llvm and
    /// libbpf-dev)
    Bpf {
        /// Replace them
        #[arg(long)]
        write: bool,
    },
    /// Builds the workbench and the script of static pages from ui/ and compares them with
    /// crates/ui/assets and crates/report/assets (needs npm 11 and node 20)
    Ui {
        /// Replace it
        #[arg(long)]
        write: bool,
    },
    /// Writes the generated files of docs/ anew, and the output below the commands of every page
    Docs,
    /// Plays every scenario of the gallery and writes the hash of its events:
    /// crates/cli/tests/gallery-hashes.txt (a minute)
    Gallery,
    Oracle(oracle::OracleArgs),
    /// Counts what the oracles compare, for `schedlab published`: writes oracles/checked.json (some
    /// minutes)
    Checked,
    MakeRecording(make_recording::MakeRecordingArgs),
    BenchRecordings(bench_recordings::BenchRecordingsArgs),
    Pairs(guest_lab::pairs::chore::PairsArgs),
    Reach(reach::ReachArgs),
    SameResults(same_results::SameResultsArgs),
    /// Kills every command that writes at random moments, and fills its disk: the old file stays,
    /// or the whole new one is there; and, as root, lets it write where another user prepared
    /// links, pipes and modes
    TortureWrites {
        /// How many rounds
        #[arg(long, value_name = "N", default_value_t = 500)]
        rounds: u32,
    },
    /// Attacks keepers, drivers and commands at random moments (root): kills, stops, limits,
    /// journals that are removed, cut or garbled, numbers that are used again, second instances,
    /// full disks; everything is as before, nothing is left
    TortureLive {
        /// How many rounds; one of eight attacks a whole driver
        #[arg(long, value_name = "N", default_value_t = torture_live::ROUNDS)]
        rounds: u64,
        /// Choose other moments
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
    },
    /// Prints the cases by which schedlab was broken when it was attacked as root: what was done,
    /// what it did, and whether the tests of that hold now
    Broken,
    /// Watches the memory of `schedlab watch` beside threads that are created and end, minute by
    /// minute
    WatchFlat {
        /// How many threads
        #[arg(long, value_name = "N", default_value_t = watch_flat::THREADS)]
        threads: u32,
        /// In how many minutes
        #[arg(long, value_name = "N", default_value_t = watch_flat::MINUTES)]
        minutes: u32,
    },
}

fn main() -> ExitCode {
    match run(CommandLine::parse().chore) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(chore: Chore) -> Result<ExitCode> {
    match chore {
        Chore::Tidy => tidy::command(),
        Chore::Writers => tidy::writers::command(),
        Chore::Ci { fast } => ci::command(fast),
        Chore::Deny => ci::dependencies(),
        Chore::Stress(args) => stress::command(&args),
        Chore::Fuzz(args) => fuzz::command(args),
        Chore::Dist(args) => dist::command(&args),
        Chore::Disturb(args) => disturb::command(&args),
        Chore::Guest(args) => guest_lab::guest::command(args),
        Chore::Objects(args) => guest_lab::guest::objects_command(&args),
        Chore::GuestOracle(args) => guest_lab::guest_oracle::command(&args),
        Chore::Bpf { write } => bpf::command(write),
        Chore::Ui { write } => ui::command(write),
        Chore::Docs => docs::command(),
        Chore::Gallery => gallery::command(),
        Chore::Oracle(args) => oracle::command(&args),
        Chore::Checked => oracle::checked::command(),
        Chore::MakeRecording(args) => make_recording::command(&args),
        Chore::BenchRecordings(args) => bench_recordings::command(&args),
        Chore::Pairs(args) => guest_lab::pairs::chore::command(args),
        Chore::Reach(args) => reach::command(&args),
        Chore::SameResults(args) => same_results::command(&args),
        Chore::TortureWrites { rounds } => torture_writes::command(rounds),
        Chore::TortureLive { rounds, seed } => torture_live::command(rounds, seed),
        Chore::Broken => broken::command(),
        Chore::WatchFlat { threads, minutes } => watch_flat::command(threads, minutes),
    }
}

/// Returns the chores, with their options.
fn chores() -> clap::Command {
    CommandLine::command()
}

/// Returns the arguments of a chore.
#[cfg(test)]
fn parsed<A: clap::Args>(words: &str) -> Result<A> {
    #[derive(Parser)]
    struct OneChore<A: clap::Args> {
        #[command(flatten)]
        args: A,
    }
    let words = std::iter::once("chore").chain(words.split_whitespace());
    Ok(OneChore::try_parse_from(words)?.args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chore_says_what_it_is() {
        chores().debug_assert();
        for chore in chores().get_subcommands() {
            assert!(chore.get_about().is_some(), "{}", chore.get_name());
            for option in chore.get_arguments().filter(|option| !option.is_hide_set()) {
                assert!(option.get_help().is_some(), "{} {}", chore.get_name(), option.get_id());
            }
        }
    }
}
