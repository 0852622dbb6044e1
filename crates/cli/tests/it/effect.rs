//! Settings that count against no other task, in the built program.

use super::{Folder, root, schedlab};
use std::process::Command;

const GROUPS: &str = "recordings/pairs/guest/6.1-caddy-groups.slt";

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_nice_value_in_a_group_of_its_own_says_why_it_does_nothing() {
    let variants = ["--variant", "nice: batch nice=19", "--variant", "bulk: batch policy=batch"];
    let command = ["compare", GROUPS, "--seeds", "1"];
    let ran = schedlab(&[&command[..], &variants].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    let text = words(&ran.stdout);
    let why = "batch is alone in /batch: nice=19 changes no share of CPU time there, because a \
               nice value counts only among the tasks of one group. The weight of /batch counts, \
               against caddy";
    assert!(text.contains(why), "{text}");
    assert!(text.contains("--variant 'weight: /batch cpu.weight=1'."), "{text}");
    let equal = "as recorded, nice, bulk: the same in every number, and one line";
    assert!(text.contains(equal), "{text}");
    assert!(text.contains("as recorded (+2 equal)"), "{text}");
    let all = schedlab(&[&command[..], &variants, &["--all"]].concat()).stdout;
    assert!(all.contains("\n  nice ") && !all.contains("equal)"), "{all}");

    let folder = Folder::new("effect-page");
    let page = folder.0.join("out.html").display().to_string();
    schedlab(&[&command[..], &variants, &["--report", &page]].concat());
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains("simulated (+2 equal)") && page.contains(equal), "the page folds them");

    let brief = schedlab(&[&command[..], &variants, &["--brief"]].concat()).stdout;
    let short = "batch is alone in /batch: nice=19 changes no share there; the weight of /batch";
    assert!(words(&brief).contains(short) && brief.lines().count() <= 15, "{brief}");
    // What is offered tells another story.
    let offered = ["--variant", "weight: /batch cpu.weight=1"];
    let ran = schedlab(&[&command[..], &offered].concat());
    assert!(ran.stdout.starts_with("Give /batch cpu.weight 1"), "{}", ran.stdout);
}

#[test]
fn a_session_has_a_weight_of_its_own() {
    let recording = "recordings/two-yes.slt";
    let scan = ["compare", recording, "--seeds", "1", "--scan", "yes nice=0..12", "--json"];
    let ran = schedlab(&scan);
    let study: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let row = &study["rows"][13]["no_effect"][0];
    assert_eq!((&row["setting"], &row["group"]), (&"yes nice=12".into(), &"/autogroup-21".into()));
    let said = row["sentence"].as_str().unwrap();
    let begin = "the 2 tasks of yes are alone in /autogroup-21 (the autogroup of a session)";
    assert!(said.starts_with(begin), "{said}");
    // Other tasks have more than 1 % of the CPU together, and none of them half of that.
    assert!(said.contains("The weight of /autogroup-21 counts, against other groups"), "{said}");
}

/// What sets the weight of a session on a real machine is the session's nice value.
#[test]
fn deploy_lines_of_a_session_write_its_nice_value() {
    let variant = "light: /autogroup-70 cpu.shares=15 ; sysbench policy=idle";
    let compare = ["compare", "recordings/redis-other-other-closed8.slt", "--seeds", "1"];
    let deploy = |format| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
        command.args(compare).args(["--variant", variant, "--deploy", format]);
        super::ran(command.current_dir(root()))
    };
    let ran = deploy("shell");
    let line = "echo 19 > \"$(grep -ls '^/autogroup-70 ' /proc/[0-9]*/autogroup | head -n 1)\"";
    assert!(ran.stdout.lines().any(|text| text == line), "{ran:?}");
    assert!(!ran.stdout.contains("/sys/fs/cgroup/autogroup"), "{ran:?}");
    let ran = deploy("systemd");
    assert!(!ran.stdout.contains("autogroup-70.slice"), "{ran:?}");
    let trap = "# CPUSchedulingPolicy= counts among the processes of this service only";
    assert!(ran.stdout.contains(trap), "{ran:?}");
    assert!(ran.stdout.contains("# Against other services: CPUWeight=idle"), "{ran:?}");
}
