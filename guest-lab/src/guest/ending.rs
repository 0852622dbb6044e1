//! How a boot ended, where it did not end as it should: what its console and QEMU say of it.

use super::machine::{Boot, Clock, MONITOR};
use super::transcript::Transcript;
use super::watch::Ended;
use std::path::Path;

/// How a line of the kernel's log begins, after its time, that tells of a fault in the kernel
/// itself. A fault of a program looks otherwise:
/// `traps: NAME[PID] general protection fault ip:...`.
const CRASHES: &[&str] = &[
    "BUG: unable to handle",
    "BUG: kernel NULL pointer",
    "kernel BUG at",
    "Oops: ",
    "general protection fault, probably",
    "general protection fault: ",
    "invalid opcode: ",
    "traps: PANIC",
    "Kernel panic - not syncing",
];

/// So many lines of a console are shown: a log of CI is all that its reader has.
const LINES: usize = 40;

/// Why a boot says nothing about the program, and is made once more: a host that is away for long
/// while a kernel counts its clocks can end that, and of some hundred boots under the host's clock
/// one hung in the middle of a test, and in one the kernel itself crashed. Where that happens
/// twice, it is a fault. A virtual clock repeats a boot bit by bit: nothing is excused.
pub(super) fn excuse(boot: &Boot, told: &Transcript, clock: Clock) -> Option<String> {
    if clock != Clock::Host {
        return None;
    }
    match (told.up_s, boot.ended) {
        (None, _) => Some("did not come up".to_owned()),
        (_, Ended::Silent(_)) => Some(why(boot.ended)),
        _ => crash(&boot.console).map(|(_, line)| format!("crashed: {line}")),
    }
}

pub(super) fn why(ended: Ended) -> String {
    match ended {
        Ended::Itself => "ended early".to_owned(),
        Ended::Late => "was ended after its time".to_owned(),
        Ended::Silent(time) => {
            format!("hung: it gave no sign of life for {:.0} s", time.as_secs_f64())
        }
    }
}

/// The first line that tells of a crash of the kernel, from the kernel's word on, and its number. A
/// program's unfinished line may stand before it.
fn crash(console: &str) -> Option<(usize, &str)> {
    let begin = |line: &str| {
        line.match_indices("] ")
            .map(|(at, _)| at + 2)
            .find(|&at| CRASHES.iter().any(|word| line[at..].starts_with(word)))
    };
    let mut lines = console.lines().enumerate();
    lines.find_map(|(number, line)| begin(line).map(|at| (number, line[at..].trim_end())))
}

/// What a console says of a crash, or else its last lines; and where the CPUs of a guest that hung
/// stood.
pub(super) fn show_last_words(boot: &Boot, folder: &Path) {
    let (title, lines) = last_words(&boot.console);
    println!("   its console {title}:");
    lines.iter().for_each(|line| println!("     {line}"));
    let answers = std::fs::read_to_string(folder.join(MONITOR)).unwrap_or_default();
    places(&answers).iter().for_each(|line| println!("     {line}"));
}

fn last_words(console: &str) -> (&'static str, Vec<&str>) {
    let said = |line: &&str| !line.starts_with("@alive");
    if let Some((at, _)) = crash(console) {
        let lines = console.lines().skip(at).filter(said).take(LINES).collect();
        return ("says of the crash", lines);
    }
    let lines: Vec<&str> = console.lines().filter(said).collect();
    ("ended with", lines[lines.len().saturating_sub(LINES)..].to_vec())
}

/// The lines of QEMU's answers that say where each CPU is.
fn places(answers: &str) -> Vec<&str> {
    let is_place = |line: &&str| {
        line.starts_with("CPU#") || line.starts_with("RIP=") || line.contains("does not answer")
    };
    answers.lines().map(str::trim).filter(is_place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::transcript;
    use std::time::Duration;

    const CRASHED: &str = "@up 6.12.1-rt-amd64 4 CPUs at 5.2\n@test attach at 5.3\n\
                           $ schedlab attach\n\
                           half a line[   33.5] BUG: unable to handle page fault for address: \
                           0000000000000051\n\
                           [   33.5] #PF: supervisor read access in kernel mode\n@alive at 35.00\n\
                           [   33.6] ---[ end trace 0000000000000000 ]---\n";

    fn boot(console: &str, ended: Ended) -> Boot {
        Boot { console: console.to_owned(), time: Duration::ZERO, ended }
    }

    fn excused(console: &str, ended: Ended, clock: Clock) -> Option<String> {
        excuse(&boot(console, ended), &transcript::read(console), clock)
    }

    #[test]
    fn a_kernel_that_crashed_is_booted_again_and_a_test_that_failed_is_not() {
        let crashed = excused(CRASHED, Ended::Itself, Clock::Host).unwrap();
        assert!(crashed.starts_with("crashed: BUG: unable to handle page fault"), "{crashed}");
        assert_eq!(excused(CRASHED, Ended::Itself, Clock::Virtual), None);
        let failed =
            "@up 6.1 4 CPUs at 5.2\n@test attach at 5.3\n@bad it ends well\n@end attach 0 at 9\n";
        for ended in [Ended::Itself, Ended::Late] {
            assert_eq!(excused(failed, ended, Clock::Host), None);
        }
        // What a test prints is not the kernel's log, and a program that crashes is no crash of the
        // kernel.
        let printed = format!(
            "{failed}schedlab: kernel BUG at x\n\
             [   9.1] traps: schedlab[88] general protection fault ip:40 sp:7f\n"
        );
        assert_eq!(excused(&printed, Ended::Itself, Clock::Host), None);
    }

    #[test]
    fn a_guest_that_hung_or_did_not_come_up_is_booted_again() {
        let silent = Ended::Silent(Duration::from_secs(120));
        let hung = excused("@up 6.1 4 CPUs at 5.2\n", silent, Clock::Host).unwrap();
        assert_eq!(hung, "hung: it gave no sign of life for 120 s");
        assert_eq!(
            excused("[    0.1] x\n", Ended::Itself, Clock::Host).unwrap(),
            "did not come up"
        );
    }

    #[test]
    fn a_crash_is_shown_from_its_begin_and_without_signs_of_life() {
        let (title, lines) = last_words(CRASHED);
        assert_eq!((title, lines.len()), ("says of the crash", 3));
        assert!(lines[0].contains("BUG: unable"));
        let long: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let (title, lines) = last_words(&long);
        assert_eq!((title, lines.len(), lines[0]), ("ended with", LINES, "line 60"));
    }

    #[test]
    fn places_are_picked_from_the_registers() {
        let answers = "(qemu) info registers -a\n\nCPU#0\nRAX=0 RBX=1\nRIP=ffffffff81 RFL=2\n\
                       CR0=8\nCPU#1\nRIP=401000 RFL=2\n";
        assert_eq!(places(answers), ["CPU#0", "RIP=ffffffff81 RFL=2", "CPU#1", "RIP=401000 RFL=2"]);
        assert_eq!(places("QEMU does not answer: x\n").len(), 1);
    }
}
