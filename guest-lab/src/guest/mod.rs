//! `cargo xtask guest`: the program on kernels that this machine does not run. Debian's kernels are
//! booted in QEMU without KVM, scripts run inside, and what they bring back is judged here. What to
//! know before writing a test: docs/guests.md.

mod apt;
mod catalogue;
mod conformance;
mod cpio;
mod drivers;
mod emulator;
mod ending;
mod foreign;
mod ftrace;
mod image;
mod kernels;
mod lockstep;
mod machine;
mod matrix;
mod messages;
mod objects;
mod options;
mod pairs;
mod store;
mod switches;
mod table;
mod transcript;
mod watch;

use crate::root;
use anyhow::{Context, Result, bail, ensure};
use catalogue::{TESTS, Test, Verdict};
use emulator::Emulator;
use kernels::Kernel;
use machine::{Clock, Machine};
pub use objects::{ObjectsArgs, command as objects_command};
pub use options::GuestArgs;
use options::Options;
use std::collections::VecDeque;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use store::Store;
use watch::Ended;

/// A boot and the sending of results, beside the limits of the tests. With a virtual clock a second
/// takes longer.
const BOOT_LIMIT: Duration = Duration::from_secs(180);

/// Whether a program is in PATH.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// What everything needs that boots a guest.
struct Laboratory {
    emulator: Emulator,
    base: Vec<u8>,
    /// Consoles and results, one folder for each boot.
    runs: PathBuf,
    store: Store,
    /// The program has the sched_ext driver.
    sched_ext: bool,
    /// Held by who tells of its boot: guests run beside each other.
    told: Mutex<()>,
}

/// A kernel and the tests of one boot.
struct Job<'a> {
    kernel: &'a Kernel,
    tests: Vec<&'static Test>,
}

/// Boots the kernels that are asked for, and tests the program in them.
///
/// # Errors
/// What cannot be fetched, built or read.
pub fn command(args: GuestArgs) -> Result<ExitCode> {
    let options = options::options(args)?;
    let (begin, tree) = (Instant::now(), root());
    let store = Store::open(&tree);
    if lists(&options, &store)? {
        return Ok(ExitCode::SUCCESS);
    }
    if options.again {
        let bad = again(&tree, &store, &options)?;
        println!("guest: {}", faults(bad));
        return Ok(ExitCode::from(u8::from(bad > 0)));
    }
    let (emulator, kernels) = match fetch(&store, &options) {
        Ok(fetched) => fetched,
        Err(error) if std::env::var("CI").is_ok_and(|ci| ci == "true") => return Err(error),
        Err(error) => {
            println!("LEFT OUT: guests cannot be booted here: {error:#}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let fetched = begin.elapsed();
    store.fetched().iter().for_each(|line| println!("{line}"));
    let work = tree.join("target/guest");
    std::fs::create_dir_all(&work)?;
    // A program that is given has what it has.
    let sched_ext = options.program.is_some() || can_link_sched_ext();
    let program = options.program.clone().map_or_else(|| build(&tree, sched_ext), Ok)?;
    let base = image::base(&tree, &emulator.busybox(), &program, &work)?;
    println!(
        "{}; {} kernels; fetched in {:.0} s, built in {:.0} s; a guest's first root has {:.0} MB",
        emulator.version()?,
        kernels.len(),
        fetched.as_secs_f64(),
        (begin.elapsed() - fetched).as_secs_f64(),
        base.len() as f64 / 1e6
    );
    if !sched_ext {
        println!(
            "LEFT OUT: the tests of the sched_ext driver: libelf and zlib are missing (apt-get \
             install libelf-dev zlib1g-dev pkg-config)"
        );
    }
    let (runs, told) = (work.join("runs"), Mutex::default());
    let laboratory = Laboratory { emulator, base, runs, store, sched_ext, told };
    if let Some((script, machine)) = &options.script {
        for kernel in &kernels {
            laboratory.script(kernel, script, machine)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut bad = 0;
    if let Some(asked) = &options.pairs {
        bad += pairs::record(&laboratory, &kernels, asked)?;
        println!(
            "guest: {} in {:.0} s; now: cargo xtask pairs target/guest/pairs",
            faults(bad),
            begin.elapsed().as_secs_f64()
        );
        return Ok(ExitCode::from(u8::from(bad > 0)));
    }
    bad += laboratory.test(&kernels, &options)?;
    bad += pages(&laboratory, &kernels, &options)?;
    if options.matrix {
        matrix::merge(&program, &kernels, &laboratory.runs, &work)?;
    }
    println!("guest: {} in {:.0} s", faults(bad), begin.elapsed().as_secs_f64());
    Ok(ExitCode::from(u8::from(bad > 0)))
}

/// Writes the pages that are asked for: how many faults there are.
fn pages(laboratory: &Laboratory, kernels: &[Kernel], options: &Options) -> Result<usize> {
    let (tree, mut bad) = (root(), 0);
    if options.table {
        bad += table::renew(&tree, kernels, &laboratory.runs)?;
    }
    if options.objects {
        bad += objects::held::renew(&tree, kernels, &laboratory.runs)?;
    }
    Ok(bad)
}

/// Judges what the last boots of these tests left: how many faults there are.
fn again(tree: &Path, store: &Store, options: &Options) -> Result<usize> {
    let mut bad = 0;
    let kernels = kernels::get(store, &options.kernels)?;
    let all = tree.join("target/guest/runs");
    for kernel in &kernels {
        let runs = all.join(&kernel.release);
        for test in TESTS.iter().filter(|test| options.tests.iter().any(|name| name == test.name)) {
            let folder = runs.join(test.name);
            let console = folder.join("console.txt");
            let Ok(text) = std::fs::read_to_string(&console) else {
                println!("== {}: {} was not booted alone", kernel.name, test.name);
                continue;
            };
            println!("== {} ({}): judged again", kernel.name, kernel.release);
            bad += judge(test, &transcript::read(&text), &folder);
        }
    }
    if options.objects {
        bad += objects::held::renew(tree, &kernels, &all)?;
    }
    Ok(bad)
}

/// Prints the tests or the versions of the kernels, where no more is asked for. Returns whether
/// that is so.
fn lists(options: &Options, store: &Store) -> Result<bool> {
    if options.list {
        for test in TESTS {
            println!(
                "{:<14} {}{}",
                test.name,
                test.about,
                if test.short { " (short set)" } else { "" }
            );
        }
    } else if options.versions {
        kernels::versions(store, &options.kernels)?
            .iter()
            .for_each(|version| println!("{version}"));
    }
    Ok(options.list || options.versions)
}

fn faults(count: usize) -> String {
    match count {
        0 => "all good".to_owned(),
        1 => "1 fault".to_owned(),
        many => format!("{many} faults"),
    }
}

fn fetch(store: &Store, options: &Options) -> Result<(Emulator, Vec<Kernel>)> {
    let mut emulator = Emulator::get(store).context("QEMU cannot be had")?;
    if options.lockstep {
        emulator = emulator.in_lockstep(store)?;
    }
    let kernels = kernels::get(store, &options.kernels)?;
    Ok((emulator, kernels))
}

/// Whether the libraries that the sched_ext driver links are here.
fn can_link_sched_ext() -> bool {
    let mut asked = Command::new("pkg-config");
    asked.args(["--exists", "libelf", "zlib"]).status().is_ok_and(|status| status.success())
}

fn build(tree: &Path, sched_ext: bool) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let features: &[&str] = if sched_ext { &["--features", "sched-ext"] } else { &[] };
    let status = Command::new(cargo)
        .args(["build", "--release", "--package", "schedlab-cli"])
        .args(features)
        .current_dir(tree)
        .status()
        .context("cargo does not start")?;
    ensure!(status.success(), "the program does not build");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| tree.join("target"), PathBuf::from);
    Ok(target.join("release/schedlab"))
}

impl Laboratory {
    /// Runs the tests of all kernels: how many faults there are. A guest without KVM keeps one CPU
    /// of this machine busy, so as many run beside each other; where something is measured, one.
    fn test(&self, kernels: &[Kernel], options: &Options) -> Result<usize> {
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        let beside = if options.table || options.matrix { 1 } else { cpus };
        let of_kernel = |kernel| self.jobs(kernel, options);
        let jobs = Mutex::new(kernels.iter().flat_map(of_kernel).collect::<VecDeque<_>>());
        let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let work = || {
            let mut bad = 0;
            while let Some(Job { kernel, tests }) = next() {
                bad += self.together(kernel, &tests)?;
            }
            Ok(bad)
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..beside).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|_| bail!("a guest's thread panicked")))
                .sum()
        })
    }

    /// The boots that the tests of this kernel need.
    fn jobs<'a>(&self, kernel: &'a Kernel, options: &Options) -> Vec<Job<'a>> {
        let wanted = |test: &&Test| {
            let named = options.tests.iter().any(|name| name == test.name);
            let here = test.kernels.is_empty() || test.kernels.contains(&kernel.name.as_str());
            let can = self.sched_ext || !test.sched_ext;
            can && (named || (options.tests.is_empty() && here && (test.short || !options.short)))
        };
        let mut left: Vec<&'static Test> = TESTS.iter().filter(wanted).collect();
        let mut jobs = Vec::new();
        while let Some(&first) = left.first() {
            let same = |test: &&Test| {
                let alone = |test: &Test| test.twice || test.more.is_some();
                test.name == first.name
                    || (test.machine == first.machine && !alone(test) && !alone(first))
            };
            jobs.push(Job { kernel, tests: left.iter().copied().filter(same).collect() });
            left.retain(|test| !same(test));
        }
        jobs
    }

    fn together(&self, kernel: &Kernel, tests: &[&Test]) -> Result<usize> {
        let machine = tests[0].machine;
        let folder = self.runs.join(&kernel.release).join(tests[0].name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        let mut bad = self.boot(kernel, &machine, tests, &folder)?;
        if tests[0].twice {
            let again = folder.join("again");
            bad += self.boot(kernel, &machine, tests, &again)?;
            let verdict = same(&folder, &again, tests[0].name)?;
            bad += usize::from(!verdict.good);
            let _told = self.tell();
            println!("== {} ({}), {}:", kernel.name, kernel.release, tests[0].name);
            show(&verdict);
        }
        Ok(bad)
    }

    fn boot(
        &self,
        kernel: &Kernel,
        machine: &Machine,
        tests: &[&Test],
        folder: &Path,
    ) -> Result<usize> {
        let seconds: u32 = tests.iter().map(|test| test.limit_s).sum();
        // The guest ends its tests itself, by its own time.
        let slower = match machine.clock {
            Clock::Host => 2,
            Clock::Virtual | Clock::Lockstep => 4,
        };
        let limit = BOOT_LIMIT + Duration::from_secs(u64::from(seconds) * slower);
        let scripts = image::tests(&root(), tests)?;
        let more = match tests[0].more.map(|more| more(&self.store, kernel)).transpose() {
            Ok(more) => more.unwrap_or_default(),
            Err(error) if std::env::var("CI").is_ok_and(|ci| ci == "true") => return Err(error),
            Err(error) => {
                println!("== {}: LEFT OUT: {}: {error:#}", kernel.name, tests[0].name);
                return Ok(0);
            }
        };
        let archives = [self.base.as_slice(), &scripts, &more];
        let once = || machine::boot(&self.emulator, kernel, machine, &archives, folder, limit);
        let mut boot = once()?;
        let mut told = transcript::read(&boot.console);
        if let Some(excuse) = ending::excuse(&boot, &told, machine.clock) {
            {
                let _told = self.tell();
                println!("   {} {excuse}; it is booted again", kernel.name);
                ending::show_last_words(&boot, folder);
            }
            boot = once()?;
            told = transcript::read(&boot.console);
        }
        let _told = self.tell();
        let up = told.up_s.map_or("did not come up".to_owned(), |up| format!("up after {up:.1} s"));
        println!(
            "== {} ({}): {up}, {:.0} s in all",
            kernel.name,
            kernel.release,
            boot.time.as_secs_f64()
        );
        let mut bad = 0;
        for test in tests {
            bad += judge(test, &told, folder);
        }
        for line in &told.kernel {
            println!("   the kernel says: {line}");
        }
        if !told.over {
            bad += 1;
            println!("   FAULT the guest {}", ending::why(boot.ended));
            ending::show_last_words(&boot, folder);
        }
        if bad > 0 {
            println!("   its console: {}", folder.join("console.txt").display());
        }
        Ok(bad)
    }

    fn tell(&self) -> MutexGuard<'_, ()> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a script in place of tests, and shows its console.
    fn script(&self, kernel: &Kernel, script: &Path, machine: &Machine) -> Result<()> {
        let text = std::fs::read_to_string(script).with_context(|| script.display().to_string())?;
        let archive = image::script(&text);
        let folder = self.runs.join(&kernel.release).join("script");
        let limit = Duration::from_secs(3600);
        let boot = machine::boot(
            &self.emulator,
            kernel,
            machine,
            &[&self.base, &archive],
            &folder,
            limit,
        )?;
        println!(
            "== {} ({}), {:.0} s, {}",
            kernel.name,
            kernel.release,
            boot.time.as_secs_f64(),
            folder.display()
        );
        println!("{}", boot.console);
        if boot.ended != Ended::Itself {
            println!("the guest {}", ending::why(boot.ended));
        }
        Ok(())
    }
}

/// Prints what a test found; how many faults.
fn judge(test: &Test, told: &transcript::Transcript, folder: &Path) -> usize {
    let Some(told) = told.tests.iter().find(|told| told.name == test.name) else {
        println!("   {:<14} FAULT it did not begin", test.name);
        return 1;
    };
    let mut verdicts = told.verdicts.clone();
    if !told.ended {
        verdicts.push(Verdict { good: false, text: "it did not come to its end".to_owned() });
    }
    if let Some(judge) = test.judge {
        match judge(&folder.join(test.name)) {
            Ok(more) => verdicts.extend(more),
            Err(error) => verdicts.push(Verdict { good: false, text: format!("{error:#}") }),
        }
    }
    let bad = verdicts.iter().filter(|verdict| !verdict.good).count();
    let good = verdicts.len() - bad;
    println!("   {:<14} {good} good, {bad} bad, {:.0} s", test.name, told.time_s);
    verdicts.iter().filter(|verdict| !verdict.good).for_each(show);
    told.evidence.iter().for_each(|line| println!("       | {line}"));
    // A test that looked at nothing is no test.
    bad + usize::from(verdicts.is_empty())
}

fn show(verdict: &Verdict) {
    println!("     {} {}", if verdict.good { "good " } else { "FAULT" }, verdict.text);
}

/// Whether two boots left the same console and the same files.
fn same(one: &Path, other: &Path, test: &str) -> Result<Verdict> {
    let mut names = vec!["console.txt".to_owned()];
    for entry in std::fs::read_dir(one.join(test)).context("the guest sent no files")? {
        names.push(format!("{test}/{}", entry?.file_name().to_string_lossy()));
    }
    names.sort();
    let read = |folder: &Path, name: &str| std::fs::read(folder.join(name)).unwrap_or_default();
    let differ: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| read(one, name) != read(other, name))
        .collect();
    let bytes: usize = names.iter().map(|name| read(one, name).len()).sum();
    let text = match differ.as_slice() {
        [] => format!("two boots left the same {} files, {bytes} bytes", names.len()),
        some => format!("two boots differ in {}", some.join(", ")),
    };
    Ok(Verdict { good: differ.is_empty(), text })
}
