//! The arguments of `cargo xtask guest`.

use super::catalogue::TESTS;
use super::kernels::USUAL;
use super::machine::{Clock, Machine};
use super::objects::held::TESTS as OBJECTS;
use anyhow::{Result, ensure};
use std::path::PathBuf;

/// What is asked for.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Options {
    pub(super) kernels: Vec<String>,
    /// Names of tests; empty: all.
    pub(super) tests: Vec<String>,
    pub(super) short: bool,
    pub(super) list: bool,
    /// Print which kernels would be booted.
    pub(super) versions: bool,
    /// Write the tables of docs/recording.md of what the kernels answer.
    pub(super) table: bool,
    /// Merge what `latency --matrix` measured in each kernel into one page.
    pub(super) matrix: bool,
    /// A script to run in place of the tests, on this machine.
    pub(super) script: Option<(PathBuf, Machine)>,
    /// Servers to record before and after changes, in place of the tests.
    pub(super) pairs: Option<Pairs>,
    /// The program to test; `None`: that of this tree, built anew.
    pub(super) program: Option<PathBuf>,
    /// Judge what the last boots left, and boot nothing.
    pub(super) again: bool,
    /// CPUs of guests run beside each other: QEMU is built for that.
    pub(super) lockstep: bool,
    /// Keep what objects of sched_ext gave, and write its page.
    pub(super) objects: bool,
}

/// What `--pairs` records.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Pairs {
    /// Names of servers; none: all.
    pub(super) servers: Vec<String>,
    /// Names of changes; none: all.
    pub(super) changes: Vec<String>,
    /// Machines of so many CPUs; `None`: one and four.
    pub(super) cpus: Option<u32>,
    /// Loads last twenty seconds, not three.
    pub(super) long: bool,
    /// The clock of the guests.
    pub(super) clock: Clock,
    /// Hardware threads of a core, and at what part of their speed they run beside each other, in
    /// thousandths.
    pub(super) threads: u32,
    pub(super) smt_yield: u16,
}

/// Kernels of the short set: CFS, EEVDF with PREEMPT_RT, and the newest generation that was
/// studied.
const SHORT: [&str; 3] = ["6.1", "6.12-rt", "7.2"];

/// Kernels of the pairs: CFS, and the newest EEVDF.
const PAIRS: [&str; 2] = ["6.1", "7.2"];

/// Kernels of the merged matrix: two standard kernels, each beside its PREEMPT_RT build. The first
/// is what the others are compared with.
const MATRIX: [&str; 4] = ["6.12", "6.12-rt", "7.2", "7.2-rt"];

/// Tests the program on kernels that this machine does not run: boots Debian's kernels in QEMU,
/// docs/guests.md
#[derive(clap::Args, Clone, Debug)]
pub struct GuestArgs {
    /// Boot these kernels, such as 6.12 or 6.12-rt [default: six of several generations]
    #[arg(value_name = "KERNEL", value_parser = kernel)]
    kernels: Vec<String>,
    /// Run only this test (may be given several times)
    #[arg(long = "test", value_name = "NAME")]
    tests: Vec<String>,
    /// Run what takes some minutes, on three kernels
    #[arg(long)]
    short: bool,
    /// List the tests
    #[arg(long)]
    list: bool,
    /// Print the versions of the kernels that would be booted
    #[arg(long)]
    versions: bool,
    /// Ask each kernel which ways to record work and what messages cost, and write the tables of
    /// docs/recording.md
    #[arg(long)]
    table: bool,
    /// Merge what `latency --matrix` measures in each kernel into one table and page
    #[arg(long)]
    matrix: bool,
    /// Hold objects of sched_ext schedulers against 7.2 on three machines, and write the tables of
    /// docs/sched-ext-objects.md
    #[arg(long)]
    objects: bool,
    /// Run this shell script in place of the tests
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Run the script under a virtual clock
    #[arg(long = "virtual")]
    virtual_clock: bool,
    /// Run the script, or record pairs, under a virtual clock and with CPUs beside each other, each
    /// at full speed (builds QEMU, once)
    #[arg(long)]
    lockstep: bool,
    /// Give the machine of the script, or of the pairs, so many CPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: Option<u32>,
    /// Give each core of the machine of the script, or of the pairs, so many hardware threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8))]
    threads: Option<u32>,
    /// Let a hardware thread run at this part of its speed, such as 0.6, while another one of its
    /// core is busy (with --lockstep and --threads)
    #[arg(long, value_name = "PART", value_parser = part_of_speed)]
    smt_yield: Option<u16>,
    /// Give the machine of the script so much memory
    #[arg(long, value_name = "MiB", value_parser = clap::value_parser!(u32).range(256..=16_384))]
    memory: Option<u32>,
    /// Record servers before and after changes, for `cargo xtask pairs target/guest/pairs`
    #[arg(long)]
    pairs: bool,
    /// Record only this server (may be given several times)
    #[arg(long = "server", value_name = "NAME")]
    servers: Vec<String>,
    /// Record only this change and what it starts from (may be given several times)
    #[arg(long = "change", value_name = "NAME")]
    changes: Vec<String>,
    /// Record loads of twenty seconds, not of three
    #[arg(long)]
    long: bool,
    /// Test this program, not that of this tree
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Judge what the last boots of these tests left, and boot nothing
    #[arg(long)]
    again: bool,
}

fn kernel(text: &str) -> Result<String, String> {
    let version = text.starts_with(|c: char| c.is_ascii_digit());
    version
        .then(|| text.to_owned())
        .ok_or_else(|| "kernels are versions such as 6.12 or 6.12-rt".to_owned())
}

/// Reads a part of a CPU's speed, in thousandths.
fn part_of_speed(text: &str) -> Result<u16, String> {
    let part = text.parse().ok().filter(|part: &f64| (0.1..=1.0).contains(part));
    part.map(|part| (part * 1000.0).round() as u16)
        .ok_or_else(|| "a part of a CPU's speed is a number from 0.1 to 1.0".to_owned())
}

/// Returns what is asked for; refuses what does not go together.
pub(super) fn options(args: GuestArgs) -> Result<Options> {
    let mut machine = Machine::usual(match () {
        () if args.lockstep => Clock::Lockstep,
        () if args.virtual_clock => Clock::Virtual,
        () => Clock::Host,
    });
    machine.cpus = args.cpus.unwrap_or(machine.cpus);
    machine.memory_mib = args.memory.unwrap_or(machine.memory_mib);
    machine.threads = args.threads.unwrap_or(machine.threads);
    machine.smt_yield = args.smt_yield.unwrap_or(machine.smt_yield);
    let pairs = args.pairs || args.long || !args.servers.is_empty() || !args.changes.is_empty();
    let mut options = Options {
        kernels: args.kernels,
        tests: args.tests,
        short: args.short,
        list: args.list,
        versions: args.versions,
        table: args.table,
        matrix: args.matrix,
        script: None,
        pairs: pairs.then_some(Pairs {
            servers: args.servers,
            changes: args.changes,
            cpus: args.cpus,
            long: args.long,
            clock: if args.lockstep { Clock::Lockstep } else { Clock::Virtual },
            threads: machine.threads,
            smt_yield: machine.smt_yield,
        }),
        program: args.program,
        again: args.again,
        lockstep: args.lockstep,
        objects: args.objects,
    };
    options.tests.extend(OBJECTS.map(str::to_owned).into_iter().filter(|_| args.objects));
    options.tests.extend(super::table::tests().filter(|_| args.table));
    options.tests.extend(args.matrix.then(|| super::matrix::TEST.to_owned()));
    check(&options, args.script.is_some(), machine)?;
    options.script = args.script.map(|path| (path, machine));
    if options.kernels.is_empty() {
        let usual: &[&str] = match () {
            () if options.pairs.is_some() => &PAIRS,
            () if options.matrix => &MATRIX,
            () if options.objects => &["7.2"],
            () if options.short => &SHORT,
            () => &USUAL,
        };
        options.kernels = usual.iter().map(|&name| name.to_owned()).collect();
    }
    Ok(options)
}

/// Refuses what does not go together. `script`: one is given; `machine`: the one that was asked
/// for.
fn check(options: &Options, script: bool, machine: Machine) -> Result<()> {
    for name in &options.tests {
        ensure!(
            TESTS.iter().any(|test| test.name == name),
            "no test `{name}`: there are {}",
            TESTS.iter().map(|test| test.name).collect::<Vec<_>>().join(", ")
        );
    }
    ensure!(
        !script || options.tests.is_empty(),
        "--script runs in place of the tests: leave out --test"
    );
    if let Some(pairs) = &options.pairs {
        super::pairs::check(pairs)?;
    }
    ensure!(
        options.pairs.is_none() || (options.tests.is_empty() && !options.short && !script),
        "--pairs runs in place of the tests: leave out --test, --short and --script"
    );
    ensure!(
        !options.again || !options.tests.is_empty(),
        "--again judges tests by name: add --test or --objects"
    );
    let usual = Machine::usual(Clock::Host);
    let cpus = options.pairs.as_ref().map_or(machine.cpus, |pairs| pairs.cpus.unwrap_or(4));
    ensure!(
        machine.smt_yield == usual.smt_yield || (options.lockstep && machine.threads > 1),
        "--smt-yield is for cores with several hardware threads whose CPUs run beside each other: \
         add --lockstep --threads 2"
    );
    ensure!(
        cpus.is_multiple_of(machine.threads),
        "{cpus} CPUs are no cores of {} hardware threads each",
        machine.threads
    );
    // The sizes of pairs were looked at above.
    let own = match &options.pairs {
        Some(_) => Machine {
            cpus: usual.cpus,
            threads: usual.threads,
            smt_yield: usual.smt_yield,
            clock: if options.lockstep { usual.clock } else { machine.clock },
            ..machine
        },
        None => machine,
    };
    ensure!(
        script || own == usual,
        "--virtual, --lockstep, --cpus, --threads, --smt-yield and --memory are for --script (all \
         but --virtual and --memory for --pairs, too): a test has its own machine"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<Options> {
        super::options(crate::parsed(&text.split_whitespace().collect::<Vec<_>>())?)
    }

    #[test]
    fn kernels_and_tests_are_chosen_by_name() {
        let some = options("6.12-rt 7.3 --test doctor --test record").unwrap();
        assert_eq!(
            (some.kernels.join(" "), some.tests.join(" ")),
            ("6.12-rt 7.3".into(), "doctor record".into())
        );
        assert_eq!(options("--short").unwrap().kernels, SHORT);
        assert_eq!(options("").unwrap().kernels, USUAL);
        let matrix = options("--matrix").unwrap();
        assert_eq!(
            (matrix.kernels.join(" "), matrix.tests.join(" ")),
            (MATRIX.join(" "), "matrix".into())
        );
        let objects = options("--objects --again").unwrap();
        assert_eq!((objects.kernels.join(" "), objects.tests.len()), ("7.2".into(), 3));
        let script = options("6.1 --script a.sh --virtual --cpus 2").unwrap().script.unwrap();
        assert_eq!((script.1.clock, script.1.cpus), (Clock::Virtual, 2));
        let slowed = options("--pairs --lockstep --cpus 4 --threads 2 --smt-yield 0.6").unwrap();
        let pairs = slowed.pairs.unwrap();
        assert_eq!((pairs.threads, pairs.smt_yield, pairs.cpus), (2, 600, Some(4)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (bad, words) in [
            ("--test lottery", "no test `lottery`"),
            ("--cpus 0 --script a.sh", "0 is not in 1..=64"),
            ("--test", "a value is required"),
            ("--again", "add --test or --objects"),
            ("linux", "kernels are versions"),
            ("--script a --test doctor", "leave out --test"),
            ("--pairs --test doctor", "leave out --test"),
            ("--pairs --short", "leave out --test, --short"),
            ("--pairs --virtual", "are for --script"),
            ("--cpus 2", "are for --script"),
            ("--server thttpd", "no server `thttpd`"),
            ("--change warm", "no change `warm`"),
            ("--pairs --cpus 3", "1, 2, 4, 8"),
            ("--long --short", "leave out --test, --short"),
            ("--threads 2", "are for --script"),
            ("--script a.sh --lockstep --threads 3", "4 CPUs are no cores of 3"),
            ("--script a.sh --smt-yield 0.6 --threads 2", "add --lockstep"),
            ("--pairs --lockstep --smt-yield 0.6", "add --lockstep --threads 2"),
            ("--pairs --lockstep --threads 2 --smt-yield 6", "from 0.1 to 1.0"),
        ] {
            let error = options(bad).unwrap_err().to_string();
            assert!(error.contains(words), "{bad}: {error}");
        }
    }
}
