//! Each report is told from all others, and from a trace.

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
        let advice = format.advice().unwrap_or(format.notes);
        assert!(!advice.is_empty() && format.is_trace() == (*name == "perf_sched_timehist"));
        advices.push(format!("{}: {advice}", format.what));
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
