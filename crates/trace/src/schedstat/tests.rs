use super::*;
use proptest::prelude::*;

const EARLIER: &str = "\
version 17
timestamp 4299010020
cpu0 0 0 182011 40022 4294967000 31044 81220110452 10442001120 120044
domain0 MC 0f 120 80 3 900 11 0 0 44 0 0 0
cpu1 0 0 175310 39110 91002 29990 79110220011 9120440100 117003
cpu2 0 0 1 1 1 1 1 1 1
";
const LATER: &str = "\
version 17
timestamp 4299010270
cpu0 0 0 182111 40023 104 31045 81720110452 10542001120 121044
cpu1 0 0 175310 39110 91002 29990 79110220011 9120440100 117003
cpu3 0 0 1 1 1 1 1 1 1
";
/// As `perf sched stats report` lays it out (tools/perf/builtin-sched.c, 7.0).
const REPORT: &str = "\
Columns description
----------------------------------------------------------------------------------
DESC\t\t\t-> Description of the field
COUNT\t\t\t-> Value of the field
----------------------------------------------------------------------------------
Time elapsed (in jiffies)                                   :       24537
----------------------------------------------------------------------------------
CPU <ALL CPUS SUMMARY>
----------------------------------------------------------------------------------
sched_count                                                      :      9
rq_cpu_time                                                      :  9
----------------------------------------------------------------------------------
CPU 0
----------------------------------------------------------------------------------
DESC                                                                     COUNT   PCT_CHANGE
yld_count                                                        :           0
array_exp                                                        :           0
sched_count                                                      :      402267
sched_goidle                                                     :      147161  (    36.58% )
ttwu_count                                                       :      236309
ttwu_local                                                       :        1062  (     0.45% )
rq_cpu_time                                                      :  7083791148
run_delay                                                        :  3449973971  (    48.70% )
pcount                                                           :      255035
----------------------------------------------------------------------------------
CPU 0, DOMAIN SMT CPUS 0,64
busy_lb_count                                                    :         136  $       17.08 $
CPU: 1
schedule() called                                                :           7
total waittime by tasks on this processor (in jiffies)           :          12  (     0.00% )
";

#[test]
fn two_of_proc_give_what_was_between() {
    let (earlier, later) = (SchedStat::read(EARLIER).unwrap(), SchedStat::read(LATER).unwrap());
    let between = later.since(&earlier).unwrap();
    assert_eq!((between.holds, between.jiffies), (Holds::Interval, 250));
    // CPUs that were offline in one of them are left out; 32 bits went over once.
    assert_eq!(between.cpus.keys().copied().collect::<Vec<_>>(), [0, 1]);
    let busy = Sums {
        schedules: 100,
        left_idle: 1,
        wakeups: 400,
        local_wakeups: 1,
        run_ns: 500_000_000,
        wait_ns: 100_000_000,
        turns: 1_000,
    };
    assert_eq!(between.cpus[&0], busy);
    assert_eq!(between.cpus[&1], Sums::default());
    assert_eq!(between.machine(), busy);
    let wrong = earlier.since(&later).unwrap_err();
    assert!(wrong.to_string().contains("give the earlier one first"), "{wrong}");
    let mut other = later.clone();
    other.cpus.get_mut(&1).unwrap().run_ns -= 1;
    assert_eq!(other.since(&earlier).unwrap_err(), SchedStatError::Smaller(1));
}

#[test]
fn a_report_of_perf_is_an_interval() {
    assert!(SchedStat::is(REPORT.as_bytes()) && SchedStat::is(EARLIER.as_bytes()));
    let read = SchedStat::read(REPORT).unwrap();
    assert_eq!((read.holds, read.jiffies), (Holds::Interval, 24_537));
    assert_eq!(read.cpus[&0].wait_ns, 3_449_973_971);
    assert_eq!((read.cpus[&0].turns, read.cpus[&0].local_wakeups), (255_035, 1_062));
    // With -v the numbers have sentences.
    assert_eq!((read.cpus[&1].schedules, read.cpus[&1].wait_ns), (7, 12));
    assert_eq!(read.cpus.len(), 2, "the mean of all CPUs is none");
    let two_columns = "Time elapsed (in jiffies)  :  2763,  2763\nCPU 0\n";
    assert!(!SchedStat::is(two_columns.as_bytes()));
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (text, part) in [
        ("version 14\ntimestamp 1\ncpu0 1\n", "version 14"),
        ("version 15\ncpu0 0 0 1 1 1 1 1 1 1\n", "`timestamp N` is missing"),
        ("version 15\ntimestamp 1\n", "no line for a CPU"),
        ("version 15\ntimestamp 1\ncpu0 1 2 3\n", "line 3: a CPU has nine whole numbers"),
        ("version 15\ntimestamp x\n", "line 2: no number"),
        ("version 15\ntimestamp 1\ncpu0 0 0 1 1 1 1 1 1 1\ncpu0 0 0 1 1 1 1 1 1 1\n", "line 4"),
        ("Time elapsed (in jiffies) : x\n", "line 1: no number of jiffies"),
        ("CPU 0\npcount : 1\n", "Time elapsed (in jiffies)` is missing"),
    ] {
        let error = SchedStat::read(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text:?}: {error}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "(version [0-9]{1,2}\n)?(timestamp [0-9]{1,20}\n|cpu[0-9]{0,3}( [0-9]{1,21}){0,10}\n|CPU [0-9]{1,12}\n|pcount : [0-9x]{1,21}\n|Time elapsed \\(in jiffies\\) : [0-9]{1,21}\n|.{0,20}\n){0,12}") {
        if let Ok(read) = SchedStat::read(&text) {
            let _ = read.since(&read);
            let _ = read.machine();
        }
    }
}
