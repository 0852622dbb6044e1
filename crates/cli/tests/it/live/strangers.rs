//! What is managed, and what is other people's.

use super::*;
use std::collections::BTreeSet;

/// Of more than a few threads the kernel tells about every thread of the machine: what other people
/// start meanwhile is theirs.
#[test]
fn attach_takes_nothing_that_others_start() {
    let Some(_turn) = turn("attach_takes_nothing_that_others_start") else { return };
    let folder = Folder::new("live-strangers");
    let others = Children::start("while :; do /bin/true; done");
    let target = Children::start("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 600 & done; wait");
    wait_until("it has its children", || children_of(target.pid()).len() == 12);
    let pid = target.pid().to_string();
    let ours: BTreeSet<u64> =
        children_of(target.pid()).into_iter().chain([target.pid()]).map(u64::from).collect();
    let attach = ["attach", "--scheduler", "rr", "--pid", &pid, "--for", "1s", "--json"];
    let attached = schedlab(&folder, &attach);
    assert_eq!(attached.code, 0, "{attached:?}");
    let report: serde_json::Value = serde_json::from_str(&attached.stdout).expect("JSON");
    let threads = report["threads"].as_array().expect("a list");
    let taken: BTreeSet<u64> = threads.iter().filter_map(|one| one["tid"].as_u64()).collect();
    assert_eq!(taken, ours, "{report}");
    drop(others);
}
