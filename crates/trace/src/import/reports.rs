//! Reports of tools that people come with and that hold no events: tables, histograms, summaries.
//! Each is recognised by what the tool itself prints, and gets a sentence of its own: what it can
//! and cannot tell, and the command that records what schedlab needs.

use super::formats::{Content, Format, How};
use super::timehist;

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
    Format {
        name: "perf_sched_timehist",
        what: "the output of `perf sched timehist`",
        is: |head| {
            any(head, |line| {
                line.contains("task name")
                    && line.contains("sch delay")
                    && line.contains("run time")
            })
        },
        content: Content::Text,
        how: How::Whole(timehist::read),
        notes: "how long tasks ran, waited, and waited after wakeups; which task woke another, \
                interrupts and migrations are not in it; a wakeup that was served within half a \
                microsecond looks like a preemption",
    },
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
        concat!(
            "it has the sums of /proc/schedstat by CPU and no events: `schedlab diff BEFORE AFTER` \
             lays two reports beside each other; ",
            record!()
        ),
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
         `schedlab latency merge FILE` lays it beside other systems",
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
        "it counts the latencies of cyclictest's own threads and names no task of the machine; \
         `schedlab latency merge FILE` lays it beside other systems",
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
            "it has sums of run time and waiting by CPU since the machine started: `schedlab diff \
             EARLIER LATER` tells what was between two of them; ",
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
mod tests;
