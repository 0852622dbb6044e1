//! `cargo xtask broken`: the cases by which schedlab was broken when it was attacked as root, each
//! with what it did then, and whether its tests hold now.

use crate::built::Built;
use anyhow::Result;
use std::process::{ExitCode, Stdio};

/// A test: its crate, the kind of its program, and its whole name.
type Test = (&'static str, &'static str, &'static str);

struct Case {
    name: &'static str,
    /// What was done.
    attack: &'static str,
    before: &'static str,
    now: &'static str,
    tests: &'static [Test],
}

const fn cli(name: &'static str) -> Test {
    ("schedlab-cli", "test", name)
}

const fn live(name: &'static str) -> Test {
    ("schedlab-live", "test", name)
}

const CASES: [Case; 10] = [
    Case {
        name: "output-as-root",
        attack: "root writes -o into a folder where another user left a file of mode 4777, links, \
                 a pipe",
        before: "root's file got mode 4777 (a root shell); links were followed; files of root \
                 were cut",
        now: "mode 0600; another user's link or pipe is refused by name; random part files",
        tests: &[
            (
                "schedlab-files",
                "test",
                "hostile::the_file_of_another_user_gives_the_new_one_nothing",
            ),
            ("schedlab-files", "test", "hostile::links_of_other_users_lead_to_their_own_only"),
            cli("writes::hostile::a_hostile_file_system_gets_nothing_of_root"),
        ],
    },
    Case {
        name: "output-is-input",
        attack: "compare c1.slt -o c1.slt (also --report, export, import, diff, by a hard or \
                 symbolic link)",
        before: "exit 0, the recording is gone",
        now: "exit 2 before the work; the file is untouched",
        tests: &[
            cli("writes::inputs::an_output_that_is_an_input_is_refused"),
            cli("writes::inputs::an_import_that_fails_leaves_the_old_file"),
        ],
    },
    Case {
        name: "keep-destroys",
        attack: "record --ring --keep beside incident-1.slt of yesterday",
        before: "yesterday's incident was removed or replaced",
        now: "numbers go on after the highest that is there; only files of this run are removed",
        tests: &[cli("writes::inputs::incidents_of_an_earlier_run_stay")],
    },
    Case {
        name: "live-two-drivers",
        attack: "two attach on one process",
        before: "both exit 0; its threads stay pinned or SCHED_IDLE",
        now: "the second is refused and names the first; all as before",
        tests: &[live("a_second_instance_refuses_and_names_the_first")],
    },
    Case {
        name: "live-pid-reuse",
        attack: "a managed process ends, a stranger gets its number",
        before: "the stranger was changed (5 of 5; by restore 6 of 6)",
        now: "left alone: a member is number and start time",
        tests: &[live("a_stranger_with_the_number_of_a_member_is_left_alone")],
    },
    Case {
        name: "live-journal-gone",
        attack: "the journal is removed, cut or garbled; then TERM or kill -9",
        before: "threads stay pinned or SCHED_FIFO (7 of 7)",
        now: "as before (15 of 15): owner and guardians have the journal in memory",
        tests: &[live("what_happens_to_the_journal_changes_nothing")],
    },
    Case {
        name: "deploy-dash-injection",
        attack: "compare --deploy shell | sh, a group named \"/a<tab>'||>PWN #\"",
        before: "dash ran the name's part",
        now: "POSIX quoting, or the name is refused; random names in a real dash",
        tests: &[
            cli("hostile::deploy_lines_of_every_name_are_safe"),
            ("schedlab-study", "test", "deploy_shell::what_no_command_can_name_is_refused_by_name"),
        ],
    },
    Case {
        name: "scenario-costs-dev-zero",
        attack: "a scenario with costs = \"/dev/zero\", or a pipe; verify and latency merge of such",
        before: "reads without limit until the kernel kills it; a pipe hangs",
        now: "exit 2: regular files of bounded size only",
        tests: &[cli("hostile::a_path_that_a_file_names_is_a_small_regular_file")],
    },
    Case {
        name: "watch-leak",
        attack: "watch beside created threads",
        before: "4 kB for each task that ever was: 44 to 99 MB",
        now: "flat (live, for ten minutes: cargo xtask watch-flat)",
        tests: &[
            ("schedlab-lab", "lib", "watch::tests::tables_do_not_grow_with_the_tasks_that_ended"),
            ("schedlab-lab", "lib", "watch::tests::a_starving_task_does_not_make_the_tables_grow"),
        ],
    },
    Case {
        name: "no-progress",
        attack: "compare of a program `send c x1000000000`, `run 1ns` for an hour",
        before: "more than 40 s without a line",
        now: "progress after a second; Ctrl-C ends it at once",
        tests: &[cli("long_work::progress_comes_and_ctrl_c_ends_it")],
    },
];

pub(crate) fn command() -> Result<ExitCode> {
    let built = Built::all()?;
    let mut failed = 0;
    for case in &CASES {
        println!(
            "{}: {}\n  before: {}\n  now:    {}",
            case.name, case.attack, case.before, case.now
        );
        for (package, kind, test) in case.tests {
            let mut command = built.test(package, kind, test)?;
            let output = command.stdin(Stdio::null()).output()?;
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            let skipped =
                said.lines().find(|line| line.contains("SKIPPED") || line.contains("skipped:"));
            let verdict = match skipped {
                _ if !output.status.success() || said.contains(" 0 passed") => {
                    failed += 1;
                    println!("{said}");
                    "FAILED".to_owned()
                }
                Some(line) => line.trim().to_owned(),
                None => "holds".to_owned(),
            };
            println!("  {verdict}: {package} {test}");
        }
    }
    println!("{} cases, {failed} tests failed", CASES.len());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
