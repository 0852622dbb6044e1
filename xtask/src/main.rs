//! Chores of the workspace: `cargo xtask tidy|ci|deny|bpf|stress|fuzz|disturb|docs|writers|oracle|checked|pairs|same-results|torture-writes|torture-live|broken|watch-flat`. A thin
//! dispatcher; each chore is a module of its own.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr)] // a command-line tool

mod arguments;
mod bpf;
mod broken;
mod built;
mod ci;
mod disturb;
mod docs;
#[cfg(test)]
mod facts;
mod finding;
mod fuzz;
mod guest;
mod guest_oracle;
mod oracle;
mod pairs;
mod picture;
mod reach;
mod same_results;
mod stress;
mod tidy;
mod torture_live;
mod torture_writes;
mod tree;
mod watch_flat;

use anyhow::{Result, bail};
use std::process::ExitCode;

const HELP: &str = "\
Chores of the workspace.

Usage: cargo xtask <chore> [options]

  tidy              check what the compiler does not: floors, lengths, forbidden names, dead files, stale docs
  writers           print every place where the program writes: what it writes, and what protects it
  ci                everything that must hold before a change lands: fmt, clippy, tidy, tests, deny
      --fast        without the tests of the other crates
  deny              licences, sources and known holes of dependencies (cargo-deny); says what it cannot check here
  stress            random machines, workloads, schedulers and agents under every assertion of the engine; what fails is
                    made small and kept in target/stress, as a scenario for `schedlab compare FILE --assert`
      --seed N      first case (default 1); a failure names the case that repeats it
      --for 10s     how long (default 10s; also 10m, 1h); or --runs N: how many
      --scheduler S only this one
      --keep-going  on after a failure
      --case 60s    most CPU time of a case; --shrink 60s, --trials N: most time and trials for making a failure small
      --plant FAULT a fault in a copy of each scheduler, which must be found: forgets, anywhere, tickless, unsteady,
                    spins, panics, overflows
      --file FILE   this scenario instead of random ones
  fuzz              changed inputs for every parser, on a stable compiler; what crashes or hangs is kept in target/fuzz
      --for 60s     how long (default 60s)
      --target T    only this parser (may be given several times; default all)
      --seed N      other changes
      --input T FILE  try one input
  disturb -- CMD    run a command while CPUs are taken away at random moments, as by a hypervisor (root)
      --seed N      other moments
      --share 8     percent of each CPU's time (default 8); --longest 40ms: the longest stall
      --hogs N      and so many endless loops
      --for 60s     no longer than this; without a command: for so long
      --answers 20  the command is `schedlab colocate ... --json`: run it 20 times beside other stalls and judge the answers
      --right NAMES the settings that are right, such as idle,group-idle; the only other good answer is that it cannot be told
      --within 15s  the first line on how a setting does comes within this
  guest [KERNEL...] boot Debian's kernels (6.12, 6.12-rt, ...) in QEMU and test the program inside: docs/guests.md
      --test NAME   only this test (may be given several times); --list: what there is
      --short       three kernels, some minutes
      --table       which ways to record work where: the table of docs/recording.md
      --matrix      `latency --matrix` of several kernels, merged into one table and page
      --script FILE this shell script in place of the tests; --virtual, --cpus N, --memory MiB: on which machine
      --pairs       record servers before and after changes, for `pairs target/guest/pairs`; --server NAME: only this one
      --program P   not the program of this tree, but this one
  guest-oracle [FOLDER]
                    recordings of real kernels on four CPUs beside their replays and predictions: errors of each task's share
                    (default oracles/guest)
      --only TEXT   only kernels and scenarios with this in their name; --each: every task; --seeds N; --jobs N
      --places FILE which tasks ran on which CPU of this recording, and in its replay with --seed N
      --pass 90%    fails when fewer of the recorded shares are inside the stated interval
  bpf               build the BPF object and compare it with the one in bpf/ (needs clang, llvm and libbpf-dev)
      --write       replace it
  docs              write the generated files of docs/ anew, and the output below the commands of every page
  oracle FILE...    compare the Linux presets with what real kernels did; `oracle --help` says more
  checked           count what the oracles compare, for `schedlab published`: writes oracles/checked.json (some minutes)
  pairs [FILE]      predict every pair of recordings of a file (or a folder's pairs.toml; default recordings/pairs), and print
                    prediction, interval and claim beside what was recorded; fails when a certain claim is wrong
      --only TEXT   only pairs with this in their name; --jobs N: simulations at once
      --figures     print the figures of a recording (FILE), as a file of pairs keeps them
      --replay FROM messages or wakeups: what recordings are replayed from; both: beside each other, in one table
  reach [PART -- COMMAND]
                    run a part of the tests, unless no file that counts for it (.ci/reach.toml) has changed since it passed;
                    alone: which parts would run, and why
      --always      run it whatever changed
  same-results OLD NEW [CASE...]
                    run two programs (or those of two checkouts) with the same inputs: every number, name and key that
                    OLD gives must be in what NEW gives; sentences may read differently. CASE: only those that contain it
  torture-writes    kill every command that writes at random moments, and fill its disk: the old file stays, or the whole new one
                    is there; and, as root, let it write where another user prepared links, pipes and modes
      --rounds N    how many (default 500)
  torture-live      attack keepers, drivers and commands at random moments (root): kills, stops, limits, journals that are removed, cut or
                    garbled, numbers that are used again, second instances, full disks; everything is as before, nothing is left
      --rounds N    how many (default 2000; one of eight attacks a whole driver)
      --seed N      other moments
  broken            the cases by which schedlab was broken when it was attacked as root: what was done, what it did, and whether the tests of
                    that hold now
  watch-flat        the memory of `schedlab watch` beside threads that are created and end, minute by minute
      --threads N   how many (default 15000); --minutes N: in which time (default 10)
  help              this text

Exit codes: 0 done, 1 something was found, 2 bad arguments.
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[String]) -> Result<ExitCode> {
    let (chore, rest) = args.split_first().map_or(("help", args), |(first, rest)| (first.as_str(), rest));
    let asks = rest.first().is_some_and(|first| first == "--help" || first == "-h");
    // The oracle has more to say than fits here.
    if asks
        && chore != "oracle"
        && let Some(text) = of_chore(chore)
    {
        print!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    match chore {
        "tidy" => tidy::command(rest),
        "writers" => tidy::writers::command(rest),
        "bpf" => bpf::command(rest),
        "ci" => ci::command(rest),
        "deny" if rest.is_empty() => ci::dependencies(),
        "deny" => bail!("deny takes no options"),
        "oracle" => oracle::command(rest),
        "checked" => oracle::checked::command(rest),
        "docs" => docs::command(rest),
        "stress" => stress::command(rest),
        "disturb" => disturb::command(rest),
        "fuzz" => fuzz::command(rest),
        "guest" => guest::command(rest),
        "guest-oracle" => guest_oracle::command(rest),
        "pairs" => pairs::command(rest),
        "reach" => reach::command(rest),
        "same-results" => same_results::command(rest),
        "torture-writes" => torture_writes::command(rest),
        "torture-live" => torture_live::command(rest),
        "broken" => broken::command(rest),
        "watch-flat" => watch_flat::command(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        other => bail!("no chore `{other}`\n\n{HELP}"),
    }
}

/// What [`HELP`] says of one chore: its line, and those that are indented further.
fn of_chore(chore: &str) -> Option<String> {
    let begins = |line: &&str| line.strip_prefix("  ").and_then(|line| line.split(' ').next()) == Some(chore);
    let mut lines = HELP.lines().skip_while(|line| !begins(line));
    let first = lines.next()?;
    let more = lines.take_while(|line| line.starts_with("   "));
    Some(std::iter::once(first).chain(more).map(|line| format!("{line}\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chore_says_what_it_is() {
        for chore in [
            "tidy",
            "writers",
            "ci",
            "stress",
            "fuzz",
            "disturb",
            "guest",
            "guest-oracle",
            "bpf",
            "docs",
            "checked",
            "pairs",
            "reach",
            "same-results",
            "torture-writes",
            "torture-live",
            "broken",
            "watch-flat",
            "help",
        ] {
            let text = of_chore(chore).unwrap_or_else(|| panic!("{chore}"));
            assert!(text.starts_with(&format!("  {chore} ")), "{text}");
        }
        assert!(
            of_chore("stress").is_some_and(|text| text.contains("--keep-going") && !text.contains("fuzz  "))
        );
        assert_eq!(of_chore("dance"), None);
    }
}
