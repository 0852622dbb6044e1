//! A guest: QEMU without KVM, booted with one kernel and one archive.

use super::emulator::Emulator;
use super::kernels::Kernel;
use super::watch::{self, Ended};
use anyhow::{Context, Result};
use schedlab_host::program::Program;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Which clock a guest sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Clock {
    /// The host's: each virtual CPU is a thread of the host. Shows whether something works; its
    /// times carry the host's noise.
    Host,
    /// Instructions that were executed: virtual CPUs take turns on one thread, and a boot repeats
    /// bit by bit. Shows whether something is right. With N busy CPUs each runs at 1/N of the
    /// speed.
    Virtual,
    /// As `Virtual`, but with CPUs beside each other, each at full speed: QEMU is built with a
    /// patch (`super::lockstep`).
    Lockstep,
}

/// By how many instructions a CPU may be ahead of another one in lockstep: 2 us.
const STEP: &str = "SCHEDLAB_LOCKSTEP=500";
/// The virtual clock: an instruction is 4 ns.
const ICOUNT: &str =
    "-accel tcg,thread=single -icount shift=2,sleep=off -rtc base=2026-01-01,clock=vm -seed 1";

/// What a guest has. Tests with equal machines share one boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Machine {
    pub(super) clock: Clock,
    pub(super) cpus: u32,
    /// Hardware threads of a core.
    pub(super) threads: u32,
    /// At what part of its speed, in thousandths, each of them runs while another one of its core
    /// is not halted: in lockstep only.
    pub(super) smt_yield: u16,
    pub(super) memory_mib: u32,
    /// More words for the kernel's command line.
    pub(super) arguments: &'static str,
}

impl Machine {
    /// Four CPUs and 1 GiB.
    pub(super) const fn usual(clock: Clock) -> Machine {
        Machine { clock, cpus: 4, threads: 1, smt_yield: 1000, memory_mib: 1024, arguments: "" }
    }
}

/// Of every guest: no group for each session (nice values would mean nothing between the loads),
/// and no huge pages (their daemon holds a process's memory lock for seconds under emulation).
const ARGUMENTS: &str =
    "console=ttyS0 panic=-1 quiet noautogroup transparent_hugepage=never cryptomgr.notests";

/// What QEMU said about a guest that hung, in the folder of its boot.
pub(super) const MONITOR: &str = "monitor.txt";

/// How a boot went.
pub(super) struct Boot {
    /// What the guest's console said.
    pub(super) console: String,
    pub(super) time: Duration,
    pub(super) ended: Ended,
}

/// Boots `kernel` and waits until the machine is off. Leaves `console.txt` and what the tests wrote
/// in `folder`.
pub(super) fn boot(
    emulator: &Emulator,
    kernel: &Kernel,
    machine: &Machine,
    archives: &[&[u8]],
    folder: &Path,
    limit: Duration,
) -> Result<Boot> {
    std::fs::create_dir_all(folder)?;
    let at = |name: &str| folder.join(name).display().to_string();
    std::fs::write(at("root.cpio"), archives.concat())?;
    // Of a boot before this one.
    let _ = std::fs::remove_file(at("console.txt"));
    let _ = std::fs::remove_file(at(MONITOR));
    // What QEMU itself says (a hub without peers, each time) goes to a file.
    let quiet = ["sh", "-c", "exec \"$@\" 2>\"$0\"", &at("qemu.txt")].map(str::to_owned);
    let mut words = quiet.to_vec();
    if machine.clock == Clock::Lockstep {
        words.extend(["env", STEP].map(str::to_owned));
        words.push(format!("SCHEDLAB_SMT={}:{}", machine.threads, machine.smt_yield));
    }
    words.extend(emulator.command());
    words.extend(arguments(machine).split_whitespace().map(str::to_owned));
    for (option, value) in [
        ("-serial", format!("file:{}", at("console.txt"))),
        ("-serial", format!("file:{}", at("out.tgz"))),
        ("-kernel", kernel.image.display().to_string()),
        ("-initrd", at("root.cpio")),
        ("-append", command_line(machine)),
    ] {
        words.extend([option.to_owned(), value]);
    }
    let begin = Instant::now();
    // Its monitor is on its standard input and output.
    let running = Program { piped: true, ..Program::new(words) }.start().context("QEMU")?;
    let ended = watch::wait(
        running,
        machine.clock,
        limit,
        &folder.join("console.txt"),
        &folder.join(MONITOR),
    )?;
    let time = begin.elapsed();
    std::fs::remove_file(at("root.cpio"))?;
    let said = || std::fs::read_to_string(at("qemu.txt")).unwrap_or_default();
    let bytes = std::fs::read(at("console.txt"))
        .with_context(|| format!("QEMU gave no console: {}", said()))?;
    let console = plain(&String::from_utf8_lossy(&bytes));
    std::fs::write(at("console.txt"), &console)?;
    // A guest that was cut off may have sent nothing, or a part.
    let _ = Command::new("tar")
        .args(["xzf", "out.tgz"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    Ok(Boot { console, time, ended })
}

fn arguments(machine: &Machine) -> String {
    let clock = match machine.clock {
        Clock::Host => "-accel tcg,thread=multi".to_owned(),
        // A timer every 200 us ends each CPU's turn: without it turns last 1 to 2 ms.
        Clock::Virtual => format!(
            "{ICOUNT} -netdev hubport,id=n0,hubid=0 -object \
             filter-buffer,id=f0,netdev=n0,queue=rx,interval=200"
        ),
        Clock::Lockstep => ICOUNT.to_owned(),
    };
    let threads = match machine.threads {
        1 => String::new(),
        threads => format!(",sockets=1,cores={},threads={threads}", machine.cpus / threads),
    };
    format!(
        "-nodefaults -no-reboot -display none -monitor stdio -machine q35 {clock} -smp {}{threads} \
         -m {}",
        machine.cpus, machine.memory_mib
    )
}

fn command_line(machine: &Machine) -> String {
    let clock = match machine.clock {
        // A host that is busy at the wrong moment makes the kernel's test of the timer fail, and
        // with it the boot. Its first process gets `beat` as a variable.
        Clock::Host => {
            format!("no_timer_check unknown_nmi_panic nokaslr beat={}", watch::BEAT.as_secs())
        }
        Clock::Virtual | Clock::Lockstep => "nokaslr tsc=reliable".to_owned(),
    };
    format!("{ARGUMENTS} {clock} {}", machine.arguments)
}

/// The text without what moves a cursor.
pub(super) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for line in text.split('\n') {
        let mut rest = line.trim_end_matches('\r');
        while let Some((before, after)) = rest.split_once('\x1b') {
            plain += before;
            rest =
                after.find(|c: char| c.is_ascii_alphabetic()).map_or("", |end| &after[end + 1..]);
        }
        plain += rest;
        plain.push('\n');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_becomes_plain_text() {
        assert_eq!(plain("\x1b[2J\x1b[1;1Ha\r\nb \x1b[0mc\r"), "a\nb c\n");
    }

    #[test]
    fn a_virtual_clock_takes_one_thread_and_no_time_of_the_host() {
        let machine = Machine { arguments: "lockdown=integrity", ..Machine::usual(Clock::Virtual) };
        let words = arguments(&machine);
        assert!(
            words.contains("thread=single")
                && words.contains("clock=vm")
                && words.contains("-smp 4"),
            "{words}"
        );
        assert!(command_line(&machine).ends_with("tsc=reliable lockdown=integrity"));
        let usual = Machine::usual(Clock::Host);
        assert!(!arguments(&usual).contains("icount"));
        assert!(
            command_line(&usual).contains(" beat=5 ") && !command_line(&machine).contains("beat=")
        );
    }
}
