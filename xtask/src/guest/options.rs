//! The arguments of `cargo xtask guest`.

use super::catalogue::TESTS;
use super::kernels::USUAL;
use super::machine::{Clock, Machine};
use anyhow::{Context, Result, bail, ensure};
use std::path::PathBuf;

/// What is asked for.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Options {
    pub(super) kernels: Vec<String>,
    /// Names of tests; empty: all.
    pub(super) tests: Vec<String>,
    pub(super) short: bool,
    pub(super) list: bool,
    /// Write the table of docs/recording.md of what the kernels answer.
    pub(super) table: bool,
    /// Merge what `latency --matrix` measured in each kernel into one page.
    pub(super) matrix: bool,
    /// A script to run in place of the tests, on this machine.
    pub(super) script: Option<(PathBuf, Machine)>,
    /// Servers to record before and after changes, in place of the tests.
    pub(super) pairs: Option<Pairs>,
    /// The program to test; `None`: that of this tree, built anew.
    pub(super) program: Option<PathBuf>,
}

/// What `--pairs` records.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Pairs {
    /// Names of servers; none: all.
    pub(super) servers: Vec<String>,
    /// Machines of so many CPUs; `None`: each size.
    pub(super) cpus: Option<u32>,
}

/// Kernels of the short set: CFS, EEVDF with PREEMPT_RT, and the newest generation that was studied.
const SHORT: [&str; 3] = ["6.1", "6.12-rt", "7.2"];

/// Kernels of the pairs: CFS, and the newest EEVDF.
const PAIRS: [&str; 2] = ["6.1", "7.2"];

/// Kernels of the merged matrix: two standard kernels, each beside its PREEMPT_RT build. The first is what the others are compared with.
const MATRIX: [&str; 4] = ["6.12", "6.12-rt", "7.2", "7.2-rt"];

/// Names that are no version.
const KNOWN: &str = "--test NAME, --short, --list, --table, --matrix, --script FILE, --virtual, --cpus N, --memory MiB, --program FILE, --pairs, \
     --server NAME";

pub(super) fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options {
        kernels: Vec::new(),
        tests: Vec::new(),
        short: false,
        list: false,
        table: false,
        matrix: false,
        script: None,
        pairs: None,
        program: None,
    };
    let mut machine = Machine::usual(Clock::Host);
    let (mut script, mut cpus) = (None, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--short" => options.short = true,
            "--list" => options.list = true,
            "--table" => {
                options.table = true;
                options.tests.push(super::table::TEST.to_owned());
            }
            "--matrix" => {
                options.matrix = true;
                options.tests.push(super::matrix::TEST.to_owned());
            }
            "--test" => options.tests.push(value()?),
            "--script" => script = Some(PathBuf::from(value()?)),
            "--pairs" => {
                options.pairs.get_or_insert_default();
            }
            "--server" => options.pairs.get_or_insert_default().servers.push(value()?),
            "--program" => options.program = Some(PathBuf::from(value()?)),
            "--virtual" => machine.clock = Clock::Virtual,
            "--cpus" => {
                machine.cpus = number(arg, &value()?, 1, 64)?;
                cpus = Some(machine.cpus);
            }
            "--memory" => machine.memory_mib = number(arg, &value()?, 256, 16_384)?,
            name if name.starts_with(|c: char| c.is_ascii_digit()) => options.kernels.push(name.to_owned()),
            other => bail!(
                "guest has no option `{other}`: kernels are versions such as 6.12 or 6.12-rt, options {KNOWN}"
            ),
        }
    }
    if let Some(pairs) = &mut options.pairs {
        pairs.cpus = cpus;
    }
    check(&options, script.is_some(), machine)?;
    options.script = script.map(|path| (path, machine));
    if options.kernels.is_empty() {
        let usual: &[&str] = match () {
            () if options.pairs.is_some() => &PAIRS,
            () if options.matrix => &MATRIX,
            () if options.short => &SHORT,
            () => &USUAL,
        };
        options.kernels = usual.iter().map(|&name| name.to_owned()).collect();
    }
    Ok(options)
}

/// Refuses what does not go together. `script`: one is given; `machine`: the one that was asked for.
fn check(options: &Options, script: bool, machine: Machine) -> Result<()> {
    for name in &options.tests {
        ensure!(
            TESTS.iter().any(|test| test.name == name),
            "no test `{name}`: there are {}",
            TESTS.iter().map(|test| test.name).collect::<Vec<_>>().join(", ")
        );
    }
    ensure!(!script || options.tests.is_empty(), "--script runs in place of the tests: leave out --test");
    if let Some(pairs) = &options.pairs {
        super::pairs::check(pairs)?;
    }
    ensure!(
        options.pairs.is_none() || (options.tests.is_empty() && !options.short && !script),
        "--pairs runs in place of the tests: leave out --test, --short and --script"
    );
    let usual = Machine::usual(Clock::Host);
    // The sizes of pairs were looked at above.
    let own = if options.pairs.is_some() { Machine { cpus: usual.cpus, ..machine } } else { machine };
    ensure!(
        script || own == usual,
        "--virtual, --cpus and --memory are for --script (--cpus for --pairs, too): a test has its own machine"
    );
    Ok(())
}

fn number(option: &str, text: &str, least: u32, most: u32) -> Result<u32> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.with_context(|| format!("{option} is {least} to {most}, not `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<Options> {
        parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
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
        assert_eq!((matrix.kernels.join(" "), matrix.tests.join(" ")), (MATRIX.join(" "), "matrix".into()));
        let script = options("6.1 --script a.sh --virtual --cpus 2").unwrap().script.unwrap();
        assert_eq!((script.1.clock, script.1.cpus), (Clock::Virtual, 2));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (bad, words) in [
            ("--test lottery", "no test `lottery`"),
            ("--cpus 0 --script a.sh", "1 to 64"),
            ("--test", "needs a value"),
            ("linux", "no option `linux`"),
            ("--script a --test doctor", "leave out --test"),
            ("--pairs --test doctor", "leave out --test"),
            ("--pairs --short", "leave out --test, --short"),
            ("--pairs --virtual", "are for --script"),
            ("--cpus 2", "are for --script"),
            ("--server lighttpd", "no server `lighttpd`"),
            ("--pairs --cpus 3", "1, 4"),
        ] {
            let error = options(bad).unwrap_err().to_string();
            assert!(error.contains(words), "{bad}: {error}");
        }
    }
}
