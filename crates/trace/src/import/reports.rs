//! Reports of tools that people come with and that hold no events: tables, histograms, summaries.
//! Each is recognised by what the tool itself prints, and gets a sentence of its own: what it can
//! and cannot tell, and the command that records what schedlab needs.

use super::formats::{Content, Format, How};

/// Where the tool reads a trace itself, its events are in that trace.
macro_rules! same_perf_data {
    () => {
        "pass the perf.data that it was made from, or its text: `perf script -i perf.data | \
         schedlab import - -o OUT.slt`"
    };
}
/// On the machine itself.
macro_rules! record {
    () => {
        "record on that machine: `schedlab record --all --for 10s -o OUT.slt`, or without \
         schedlab \
         `perf record -a -e sched:sched_switch,sched:sched_waking -- sleep 10`, and pass the \
         perf.data"
    };
}

const fn report(
    name: &'static str,
    what: &'static str,
    is: fn(&[u8]) -> bool,
    advice: &'static str,
) -> Format {
    Format { name, what, is, content: Content::Text, how: How::Refused(advice), notes: "" }
}

/// Every report, the most certain first. They are asked before the text of a tracer is.
pub(super) const REPORTS: &[Format] = &[
    report(
        "perf_sched_timehist",
        "the output of `perf sched timehist`",
        |head| {
            any(head, |line| {
                line.contains("task name")
                    && line.contains("sch delay")
                    && line.contains("run time")
            })
        },
        concat!(
            "it says how long each stay on a CPU was and not what woke it; ",
            same_perf_data!()
        ),
    ),
    report(
        "perf_sched_latency",
        "the output of `perf sched latency`",
        |head| any(head, |line| line.contains("Max delay ms") && line.contains("Switches")),
        concat!("it has the longest delay of each task and no events; ", same_perf_data!()),
    ),
    report(
        "perf_sched_map",
        "the output of `perf sched map`",
        |head| any(head, is_map_line),
        concat!("it says which task each CPU ran and not who was waiting; ", same_perf_data!()),
    ),
    report(
        "perf_sched_stats",
        "the output of `perf sched stats`",
        |head| {
            any(head, |line| {
                line.starts_with("Time elapsed (in jiffies)")
                    || line.contains("DESC") && line.contains("AVG_JIFFIES")
            })
        },
        concat!("it has the sums of /proc/schedstat by CPU and no events; ", record!()),
    ),
    report(
        "perf_stat",
        "the output of `perf stat`",
        |head| any(head, |line| line.trim_start().starts_with("Performance counter stats for")),
        concat!("it counts events and has none of them; ", record!()),
    ),
    report(
        "perf_report",
        "the output of `perf report`",
        |head| any(head, |line| line.starts_with("# Overhead") && line.contains("Command")),
        concat!("it says where CPU time went and not when; ", record!()),
    ),
    report(
        "bpftrace_histogram",
        "a histogram of bpftrace (runqlat, runqlen, ...)",
        |head| {
            any(head, |line| line.starts_with('@') && line.trim_end().ends_with(':'))
                && any(head, is_bucket)
        },
        concat!("it counts values between powers of two and names no task; ", record!()),
    ),
    report(
        "bcc_histogram",
        "a histogram of BCC (runqlat, cpudist, ...)",
        |head| {
            any(head, |line| line.contains(": count") && line.trim_end().ends_with("distribution"))
        },
        concat!("it counts values between powers of two and names no task; ", record!()),
    ),
    report(
        "bcc_runqslower",
        "the output of runqslower (BCC)",
        |head| {
            any(head, |line| {
                words(line, &["TIME", "COMM"])
                    && (line.contains("LAT(us)") || line.contains("LAT(US)"))
            })
        },
        concat!(
            "it lists long waits and says neither on which CPU nor behind which task; ",
            record!()
        ),
    ),
    report(
        "folded_stacks",
        "folded stacks (offcputime -f, flame graphs)",
        |head| all(head, is_folded),
        concat!("they say how long each stack took in all and not when; ", record!()),
    ),
    report(
        "rtla_hist",
        "a histogram of rtla (timerlat, osnoise)",
        |head| any(head, |line| line.starts_with("# RTLA") && line.contains("histogram")),
        "it counts the latencies of rtla's own threads and names no task of the machine; \
         `schedlab latency` measures the same and says who \
         was in the way",
    ),
    report(
        "rtla_top",
        "the output of `rtla timerlat top` or `rtla osnoise top`",
        |head| {
            any(head, |line| {
                line.trim_start().starts_with("Timer Latency")
                    || line.trim_start().starts_with("Operating System Noise")
            })
        },
        "it has the extremes of each CPU and no events; `schedlab latency` measures the same and \
         says who was in the way",
    ),
    report(
        "rtla_analysis",
        "the automatic analysis of rtla",
        |head| any(head, |line| line.starts_with("## CPU ") && line.contains("hit stop tracing")),
        "it explains one latency and has no events; pass the trace that rtla saved beside it \
         (timerlat_trace.txt): `schedlab import \
         timerlat_trace.txt -o OUT.slt`",
    ),
    report(
        "cyclictest_hist",
        "the histogram of `cyclictest -h` in text",
        |head| {
            any(head, |line| line.trim_end() == "# Histogram")
                && any(head, |line| is_numbers(line, 2))
        },
        "write it with `cyclictest -h 10000 --json=FILE`: `schedlab latency merge FILE` lays it \
         beside other systems",
    ),
    report(
        "cyclictest",
        "the table of cyclictest",
        |head| {
            any(head, |line| {
                line.starts_with("T:")
                    && line.contains("Min:")
                    && line.contains("Avg:")
                    && line.contains("Max:")
            })
        },
        "it has the extremes of each thread; write a histogram with `cyclictest -h 10000 \
         --json=FILE`: `schedlab latency merge FILE` lays \
         it beside other systems",
    ),
    report(
        "proc_sched",
        "/proc/PID/sched",
        |head| {
            any(head, |line| {
                line.starts_with("se.exec_start") || line.starts_with("se.sum_exec_runtime")
            })
        },
        concat!("it has the sums of one thread and no events; ", record!()),
    ),
    report(
        "proc_schedstat",
        "/proc/schedstat",
        |head| {
            first(head, |line| {
                line.starts_with("version ") && line[8..].trim().parse::<u32>().is_ok()
            }) && any(head, |line| line.starts_with("cpu0 "))
        },
        concat!(
            "it has sums of run time and waiting by CPU since the machine started; ",
            record!()
        ),
    ),
    report(
        "proc_interrupts",
        "/proc/interrupts",
        |head| {
            first(head, |line| words(line, &["CPU0"]))
                && any(head, |line| {
                    line.trim_start()
                        .split(':')
                        .next()
                        .is_some_and(|word| matches!(word, "NMI" | "LOC" | "RES" | "IPI0"))
                        || line.trim_start().starts_with("0:")
                })
        },
        concat!("it counts interrupts by CPU and says nothing about tasks; ", record!()),
    ),
    report(
        "pidstat_w",
        "the output of `pidstat -w`",
        |head| any(head, |line| line.contains("cswch/s") && line.contains("nvcswch/s")),
        concat!("it has rates of context switches by task and no events; ", record!()),
    ),
    report(
        "pidstat",
        "the output of pidstat",
        |head| any(head, |line| words_in(line, &["PID", "%usr", "%CPU", "Command"])),
        concat!("it has CPU time by task and interval and no waits; ", record!()),
    ),
    report(
        "mpstat",
        "the output of mpstat",
        |head| any(head, |line| words_in(line, &["CPU", "%usr", "%steal", "%idle"])),
        concat!(
            "it has the shares of each CPU, with what a hypervisor took (%steal), and no tasks; ",
            record!()
        ),
    ),
    report(
        "sar",
        "the output of sar",
        |head| {
            any(head, |line| {
                words_in(line, &["CPU", "%user", "%system", "%idle"])
                    || words_in(line, &["runq-sz", "plist-sz"])
            })
        },
        concat!("it has averages of an interval and no tasks; ", record!()),
    ),
    report(
        "vmstat",
        "the output of vmstat",
        |head| {
            first(head, |line| line.trim_start().starts_with("procs ") && line.contains("memory"))
        },
        concat!(
            "it counts runnable tasks and context switches by interval and names no task; ",
            record!()
        ),
    ),
    report(
        "top",
        "the output of top",
        |head| first(head, |line| line.starts_with("top - ")),
        concat!("it has CPU time by task and no waits; ", record!()),
    ),
    report(
        "ps",
        "the output of ps",
        |head| {
            first(head, |line| {
                words(line, &["PID", "TTY"])
                    || words(line, &["USER", "PID"])
                    || words(line, &["UID", "PID"])
                    || words(line, &["PID", "CLS"])
                    || words(line, &["PID", "TID"])
            })
        },
        concat!("it has the attributes of tasks at one moment and no events; ", record!()),
    ),
    report(
        "xl_credit",
        "the listing of `xl sched-credit` or `xl sched-credit2`",
        |head| any(head, |line| words(line, &["Name", "ID", "Weight", "Cap"])),
        "weights, caps and rate limits are settings of a scenario (docs/scenario-format.md: \
         [[vm]]), which `schedlab compare` plays under \
         xen-credit and xen-credit2; what the guests do is not in the listing",
    ),
    report(
        "xl_list",
        "the listing of `xl list` or `xl vcpu-list`",
        |head| {
            first(head, |line| {
                words(line, &["Name", "ID", "Mem"]) || words(line, &["Name", "ID", "VCPU"])
            })
        },
        "it has CPU time by guest at one moment; in a guest `schedlab record` sees the time that \
         Xen took from it (steal), and a scenario \
         (docs/scenario-format.md: [[vm]]) says what another weight would give",
    ),
    report(
        "xenalyze",
        "the output of xenalyze or xentrace_format",
        |head| {
            any(head, |line| {
                line.starts_with("|-- Domain ")
                    || line.starts_with("Total time:") && line.contains("cpu speed")
                    || line.contains("(dom:vcpu)")
            })
        },
        "schedlab reads no traces of Xen; in a guest `schedlab record` sees the time that Xen \
         took from it (steal), and a scenario \
         (docs/scenario-format.md: [[vm]]) plays guests under xen-credit and xen-credit2",
    ),
    report(
        "schedtool",
        "the output of schedtool",
        |head| {
            any(head, |line| {
                line.starts_with("PID ") && line.contains("PRIO") && line.contains("POLICY")
            })
        },
        concat!("it has the attributes of one task; ", record!()),
    ),
    report(
        "chrt",
        "the output of `chrt -p`",
        |head| {
            any(head, |line| line.starts_with("pid ") && line.contains("current scheduling policy"))
        },
        concat!("it has the policy of one task; ", record!()),
    ),
    report(
        "turbostat",
        "the output of turbostat",
        |head| any(head, |line| words_in(line, &["CPU", "Avg_MHz", "Busy%"])),
        concat!("it has the clock of each CPU and no tasks; ", record!()),
    ),
    report(
        "schbench",
        "the output of schbench",
        |head| any(head, |line| line.starts_with("Wakeup Latencies percentiles")),
        "it is what a load generator counted: `schedlab compare RECORDING --client-log FILE` lays \
         it beside the recording of its server",
    ),
    report(
        "hackbench",
        "the output of hackbench",
        |head| any(head, |line| line.starts_with("Running in ") && line.contains("mode with")),
        concat!(
            "it has the time of the whole run: `schedlab stress` runs the same load; ",
            record!()
        ),
    ),
];

/// Whether a line has an event of the kernel's scheduler: then it is a trace, whatever else it has.
fn has_events(text: &str) -> bool {
    ["sched_switch:", "sched_waking:", "sched_wakeup:", "sched_stat_runtime:"]
        .iter()
        .any(|event| text.contains(event))
}

/// The whole lines of the beginning of a file, where it is a text without events.
fn lines(head: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(head);
    if head.contains(&0) || has_events(&text) {
        return Vec::new();
    }
    text.lines().map(str::to_owned).collect()
}

fn any(head: &[u8], is: impl Fn(&str) -> bool) -> bool {
    lines(head).iter().any(|line| is(line))
}

/// Whether the first line that is not empty is so.
fn first(head: &[u8], is: impl Fn(&str) -> bool) -> bool {
    lines(head).iter().find(|line| !line.trim().is_empty()).is_some_and(|line| is(line))
}

/// Whether every line is so. The last one may be cut.
fn all(head: &[u8], is: impl Fn(&str) -> bool) -> bool {
    let lines = lines(head);
    let whole =
        if head.last() == Some(&b'\n') { lines.len() } else { lines.len().saturating_sub(1) };
    whole > 0 && lines[..whole].iter().all(|line| is(line))
}

/// Whether a line begins with these words.
fn words(line: &str, wanted: &[&str]) -> bool {
    let mut found = line.split_whitespace();
    wanted.iter().all(|word| found.next() == Some(word))
}

/// Whether a line has these words somewhere.
fn words_in(line: &str, wanted: &[&str]) -> bool {
    wanted.iter().all(|word| line.split_whitespace().any(|found| found == *word))
}

fn is_numbers(line: &str, least: usize) -> bool {
    let count = line.split_whitespace().count();
    count >= least
        && line.split_whitespace().all(|word| word.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A bucket of bpftrace: `[4, 8)      1310 |@@@@   |`, or `[0]   41 |  |`.
fn is_bucket(line: &str) -> bool {
    let line = line.trim_end();
    let Some((range, rest)) = line.strip_prefix('[').and_then(|rest| rest.split_once([']', ')']))
    else {
        return false;
    };
    let number = |text: &str| {
        text.trim()
            .trim_end_matches(['K', 'M', 'G'])
            .trim_start_matches("...")
            .parse::<i64>()
            .is_ok()
            || text.trim() == "..."
    };
    range.split(',').all(number) && line.ends_with('|') && rest.contains('|')
}

/// A stack with its weight: `redis-server;main;aeMain 4711`.
fn is_folded(line: &str) -> bool {
    line.rsplit_once(' ').is_some_and(|(stack, weight)| {
        stack.contains(';') && !stack.contains(": ") && weight.parse::<u64>().is_ok()
    })
}

/// A line of `perf sched map`: a column of two letters for each CPU, the time in seconds, and what
/// a new pair of letters is for: `  *A0           .   .     100.000150 secs A0 => hog:200`.
fn is_map_line(line: &str) -> bool {
    line.contains(" secs ")
        && line.contains(" => ")
        && line.trim_start().starts_with(['*', '.', 'A', 'B'])
}

#[cfg(test)]
mod tests {
    use super::super::formats::recognise;

    /// What each tool prints, in short.
    const TEXTS: &[(&str, &str)] = &[
        (
            "perf_sched_timehist",
            "Samples of sched_switch event do not have callchains.\n           time    cpu  task \
             name                       wait time  sch delay   run time\n",
        ),
        (
            "perf_sched_latency",
            " ---\n  Task                  |   Runtime ms  | Switches | Avg delay ms    | Max \
             delay ms    | Max delay start           |\n",
        ),
        (
            "perf_sched_map",
            "  *A0           100.000150 secs A0 => hog:200\n   A0 *.        100.000400 secs .  => \
             swapper:0\n",
        ),
        (
            "perf_sched_stats",
            "Columns description\nTime elapsed (in jiffies)                                   \
             :       24537\n",
        ),
        (
            "perf_stat",
            "\n Performance counter stats for 'sleep 1':\n\n              0.62 msec task-clock\n",
        ),
        (
            "perf_report",
            "# To display the perf.data header info, please use --header\n#\n\
             # Overhead  Command  Shared Object      Symbol\n",
        ),
        (
            "bpftrace_histogram",
            "Attaching 5 probes...\n\n@usecs: \n[0]                   41 |                    |\n\
             [4, 8)              1310 |@@@@@@              |\n\
             [1K, 2K)               3 |                    |\n",
        ),
        (
            "bcc_histogram",
            "Tracing run queue latency... Hit Ctrl-C to end.\n     usecs               : \
             count     distribution\n         0 -> 1          : 233      |***********     |\n",
        ),
        (
            "bcc_runqslower",
            "Tracing run queue latency higher than 2000 us\n\
             TIME     COMM             PID           LAT(us)\n\
             04:30:25 kworker/20:2     6023             2264\n",
        ),
        (
            "folded_stacks",
            "redis-server;main;aeMain;epoll_wait 4711\nsysbench;start_thread;__futex 12\n\
             redis-server;main;aeM",
        ),
        (
            "rtla_hist",
            "# RTLA timerlat histogram\n# Time unit is microseconds (us)\n\
             Index   IRQ-000   Thr-000\n0          5100         0\n",
        ),
        (
            "rtla_top",
            "                                     Timer Latency\n  0 00:00:06   |          IRQ \
             Timer Latency (us)        |         Thread Timer Latency (us)\n",
        ),
        (
            "rtla_analysis",
            "## CPU 0 hit stop tracing, analyzing it ##\n  IRQ handler \
             delay:                                      0.00 us (0.00 %)\n",
        ),
        (
            "cyclictest_hist",
            "# /dev/cpu_dma_latency set to 0us\n# Histogram\n000000 000000\t000000\n\
             000003 004210\t003980\n",
        ),
        (
            "cyclictest",
            "# /dev/cpu_dma_latency set to 0us\n\
             policy: fifo: loadavg: 0.00 0.01 0.05 1/149 12345\n\n\
             T: 0 ( 1234) P:99 I:1000 C:  10000 Min:      2 Act:    3 Avg:    3 Max:      61\n",
        ),
        (
            "proc_sched",
            "redis-server (957, #threads: 4)\n\
             -------------------------------------------------------------------\n\
             se.exec_start                                :      81220110.452000\n",
        ),
        (
            "proc_schedstat",
            "version 17\ntimestamp 4299010020\n\
             cpu0 0 0 182011 40022 96120 31044 81220110452 10442001120 120044\n",
        ),
        (
            "proc_interrupts",
            "           CPU0       CPU1       \n  0:         10          0   IO-APIC   \
             2-edge      timer\nLOC:     123456     654321   Local timer interrupts\n",
        ),
        (
            "pidstat_w",
            "Linux 6.1.0 (host) \t11/28/2026 \t_x86_64_\t(2 CPU)\n\n\
             10:00:01      UID       PID   cswch/s nvcswch/s  Command\n\
             10:00:02        0         1      1.00      0.00  systemd\n",
        ),
        (
            "pidstat",
            "Linux 6.1.0 (host) \t11/28/2026 \t_x86_64_\t(2 CPU)\n\n\
             10:00:01      UID       PID    %usr %system  %guest   %wait    %CPU   CPU  Command\n",
        ),
        (
            "mpstat",
            "Linux 6.12.0 (guest1) \t11/28/2026 \t_x86_64_\t(2 CPU)\n\n\
             10:00:01 AM  CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  \
             %gnice   %idle\n",
        ),
        (
            "sar",
            "Linux 6.1.0 (host) \t11/28/2026 \t_x86_64_\t(2 CPU)\n\n\
             10:00:01        CPU     %user     %nice   %system   %iowait    %steal     %idle\n",
        ),
        (
            "vmstat",
            "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n \
             r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n",
        ),
        (
            "top",
            "top - 10:00:01 up 7 days,  3:21,  1 user,  load average: 0.44, 0.49, 1.45\n\
             Tasks: 101 total,   1 running\n",
        ),
        ("ps", "    PID TTY          TIME CMD\n    957 ?        00:01:02 redis-server\n"),
        (
            "xl_credit",
            "Cpupool Pool-0: ratelimit=1000us\n\
             Name                                ID Weight  Cap\n\
             Domain-0                             0   2000    0\n",
        ),
        (
            "xl_list",
            "Name                                        ID   Mem VCPUs\tState\tTime(s)\n\
             Domain-0                                     0  4096     4     r-----     812.3\n",
        ),
        (
            "xenalyze",
            "Using 2.39 cpu khz\nTotal time: 10.01 seconds (using cpu speed 2.39 GHz)\n\
             |-- Domain 0 --|\n",
        ),
        ("schedtool", "PID     1: PRIO   0, POLICY N: SCHED_NORMAL  , NICE   0, AFFINITY 0x3\n"),
        (
            "chrt",
            "pid 957's current scheduling policy: SCHED_OTHER\n\
             pid 957's current scheduling priority: 0\n",
        ),
        (
            "turbostat",
            "usec\tTime_Of_Day_Seconds\tCore\tCPU\tAvg_MHz\tBusy%\tBzy_MHz\n\
             12\t1764322800.1\t-\t-\t120\t4.00\t3000\n",
        ),
        (
            "schbench",
            "Wakeup Latencies percentiles (usec) runtime 10 (s) (61957 total samples)\n\
             \t  50.0th: 9          (18412 samples)\n",
        ),
        (
            "hackbench",
            "Running in process mode with 10 groups using 40 file descriptors each (== 400 \
             tasks)\nTime: 0.123\n",
        ),
    ];

    #[test]
    fn each_report_is_told_from_all_others() {
        let mut advices: Vec<String> = Vec::new();
        for (name, text) in TEXTS {
            let format = recognise(text.as_bytes());
            assert_eq!(format.name, *name, "{text}");
            advices.push(format!(
                "{}: {}",
                format.what,
                format.advice().expect("it cannot be read")
            ));
        }
        assert_eq!(TEXTS.len(), super::REPORTS.len(), "each has its text");
        advices.sort_unstable();
        advices.dedup();
        assert_eq!(advices.len(), TEXTS.len(), "no two have the same sentence");
    }

    /// A trace stays one where such a text is before it or is the name of a thread.
    #[test]
    fn a_text_with_events_is_a_trace() {
        let event = "  hog   200 [001]   100.100: sched:sched_waking: comm=T: Min: Avg: Max: \
                     pid=3 prio=120 target_cpu=001\n";
        for (_, text) in TEXTS {
            assert_eq!(recognise([*text, event].concat().as_bytes()).name, "text", "{text}");
        }
    }
}
