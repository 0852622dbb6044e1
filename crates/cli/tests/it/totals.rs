//! `schedlab diff` of the kernel's own sums.

use super::{Folder, schedlab};

const EARLIER: &str = "version 17\ntimestamp 1000\n\
                       cpu0 0 0 100 40 50 10 1000000000 100000000 1000\n\
                       domain0 MC 03 1 2 3\n\
                       cpu1 0 0 100 40 50 10 1000000000 100000000 1000\n";
const LATER: &str = "version 17\ntimestamp 1250\n\
                     cpu0 0 0 300 90 150 20 1900000000 150000000 2000\n\
                     cpu1 0 0 200 80 100 20 1100000000 102000000 1100\n";

/// The report of perf for one CPU, whose tasks waited `wait` ns before 1000 turns.
fn report(wait: u64) -> String {
    format!(
        "Time elapsed (in jiffies)      :        1000\nCPU 0\nsched_count   :  3000\n\
         rq_cpu_time   :  500000000\nrun_delay     :  {wait}  ( 9.00% )\npcount        :  1000\n"
    )
}

#[test]
fn two_states_of_schedstat_tell_what_was_between() {
    let folder = Folder::new("totals");
    let (earlier, later) = (folder.write("1.txt", EARLIER), folder.write("2.txt", LATER));
    let ran = schedlab(&["diff", &earlier, &later, "--hz", "250"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let first = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        first.starts_with(
            "Tasks waited 47.3us on average before each of their 1100 turns on a CPU, most on CPU \
             0 (50.0us); they waited 52.0ms and ran 1.00s in all."
        ),
        "{first}"
    );
    let row = ran.stdout.lines().find(|line| line.trim_start().starts_with("CPU 0")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    let wanted = ["CPU", "0", "900ms", "90.0%", "50.0ms", "1000", "50.0us", "900us", "25.0%"];
    assert_eq!(words[..9], wanted, "{row}");
    let json = schedlab(&["diff", &earlier, &later, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["schema"], "schedlab-totals/1");
    assert_eq!(json["intervals"][0]["rows"][2]["wait_mean_ns"], 20_000);
    assert_eq!(json["intervals"][0]["rows"][1]["share"], serde_json::Value::Null);
    let csv = schedlab(&["diff", &earlier, &later, "--format", "csv"]);
    assert!(csv.stdout.starts_with("interval.name,interval.jiffies,cpu,"), "{csv:?}");
    assert_eq!(csv.stdout.lines().count(), 4, "{csv:?}");
}

#[test]
fn two_reports_of_perf_lie_beside_each_other() {
    let folder = Folder::new("totals-perf");
    let before = folder.write("b.txt", report(80_000_000));
    let after = folder.write("a.txt", report(20_000_000));
    let ran = schedlab(&["diff", &before, &after]);
    let wanted = "Tasks waited 80.0us on average before a turn on a CPU, and then 20.0us (-75 %).";
    assert!(ran.code == 0 && ran.stdout.starts_with(wanted), "{ran:?}");
}

#[test]
fn what_cannot_be_told_apart_is_said() {
    let folder = Folder::new("totals-bad");
    let earlier = folder.write("1.txt", EARLIER);
    let later = folder.write("2.txt", LATER);
    let perf = folder.write("perf.txt", report(1));
    let other = folder.write("other.txt", "nothing of the kind\n");
    for (arguments, part) in [
        (vec![&*later, &*earlier], "give the earlier one first"),
        (vec![&*earlier, &*earlier], "equal timestamps"),
        (vec![&*earlier, &*perf], "give two of the same"),
        (vec![&*earlier, &*other], "other.txt: it is neither /proc/schedstat nor a report"),
        (vec![&*earlier, &*later, "--fail-if", "x share > 1%"], "have no intervals"),
        (vec![&*earlier, &*later, "--hz", "1000"], "take CONFIG_HZ"),
        (vec!["recordings/compile.slt", "recordings/compile.slt", "--hz", "250"], "leave it out"),
    ] {
        let ran = schedlab(&[&["diff"], &arguments[..]].concat());
        let said = ran.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(ran.code == 2 && said.contains(part), "{arguments:?}: {ran:?}");
    }
}
