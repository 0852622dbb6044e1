//! What load generators print about their requests: which line, and which number in it.

use std::collections::BTreeSet;

/// Where in a line the number is.
#[derive(Clone, Copy)]
enum NumberPosition {
    /// Next, behind the beginning.
    Next,
    /// Before this unit.
    Before(&'static str),
    /// Behind the last of these marks.
    Behind(&'static str),
}
use NumberPosition::{Before, Behind, Next};

/// One way in which a load generator says how many requests a second it counted.
pub struct Client {
    /// The programs that say it so.
    pub programs: &'static [&'static str],
    /// How the line begins, with one blank where it has several.
    begin: &'static str,
    place: NumberPosition,
}

const fn client(
    programs: &'static [&'static str],
    begin: &'static str,
    place: NumberPosition,
) -> Client {
    Client { programs, begin, place }
}

/// The load generators that are known. Of lines that are alike the last one counts: pgbench's is
/// that without the time to connect.
const CLIENTS: &[Client] = &[
    client(&["wrk", "wrk2", "hey", "oha", "ghz"], "Requests/sec:", Next),
    client(&["bombardier"], "Reqs/sec", Next),
    client(&["ab"], "Requests per second:", Next),
    client(&["siege"], "Transaction rate:", Next),
    client(&["h2load"], "finished in", Before(" req/s")),
    client(&["fortio"], "All done", Before(" qps")),
    client(&["vegeta"], "Requests [total, rate, throughput]", Behind(",")),
    // `vegeta report -type=json`, in one line.
    client(&["vegeta"], "{\"latencies\":", Behind("\"throughput\":")),
    client(&["k6"], "http_reqs", Before("/s")),
    client(&["pgbench"], "tps =", Next),
    // OLTP tests; then any test of 1.1, the CPU test of 1.0, and the memory test of 1.0 and 0.4.
    client(&["sysbench"], "transactions:", Before(" per sec.")),
    client(&["sysbench"], "events/s (eps):", Next),
    client(&["sysbench"], "events per second:", Next),
    client(&["sysbench"], "Total operations:", Before(" per second")),
    client(&["sysbench"], "Operations performed:", Before(" ops/sec")),
    client(&["memcaslap"], "Run time:", Behind("TPS:")),
    client(&["memtier_benchmark"], "Totals", Next),
    client(&["mutilate"], "Total QPS =", Next),
    client(&["ycsb"], "[OVERALL], Throughput(ops/sec),", Next),
    client(&["go-ycsb"], "TOTAL - Takes(s):", Behind("OPS:")),
    client(&["dnsperf"], "Queries per second:", Next),
    client(&["schbench"], "average rps:", Next),
    client(&["cassandra-stress"], "Op rate :", Next),
    // Until 3.0.
    client(&["cassandra-stress"], "op rate :", Next),
    // Not the rows a second (RPS) behind it.
    client(&["clickhouse-benchmark"], "", Behind(" QPS:")),
    client(&["schedlab"], "\"throughput_per_s\":", Next),
];

/// It prints a rate for each of its tests, which do the same number of requests, one test after the
/// other.
const REDIS: Client =
    client(&["redis-benchmark", "valkey-benchmark"], "", Before(" requests per second"));

/// It prints a rate for each direction of each of its jobs, as `IOPS=12.3k`; the jobs of a group
/// run together.
const FIO: Client = client(&["fio"], "read/write/trim:", Behind("IOPS="));
/// The same before fio 3.0: `read : io=480MB, bw=49100KB/s, iops=12275, runt= 10001msec`.
const OLD_FIO: Client = client(&["fio"], "read/write/trim :", Behind("iops="));

/// Returns the sum over the directions and jobs of fio's output; `None` where it is no such text.
fn fio_rate(lines: &[String]) -> Option<Result<f64, String>> {
    let rate = |line: &String| {
        let (direction, rest) = line.split_once(": IOPS=").or_else(|| {
            line.split_once("iops=").map(|(before, rest)| (before, rest.trim_start()))
        })?;
        let direction = direction.split(':').next()?.trim_end();
        ["read", "write", "trim"].contains(&direction).then_some(())?;
        let word = rest.split([',', ' ']).next()?;
        let (digits, factor) = match word.char_indices().next_back()? {
            (at, 'k') => (&word[..at], 1e3),
            (at, 'M') => (&word[..at], 1e6),
            _ => (word, 1.0),
        };
        digits.parse::<f64>().ok().map(|number| number * factor)
    };
    let rates: Vec<f64> = lines.iter().filter_map(rate).collect();
    let group = |line: &String| {
        let (_, rest) = line.split_once("(groupid=")?;
        rest.split([',', ')']).next().map(str::to_owned)
    };
    let groups: BTreeSet<String> = lines.iter().filter_map(group).collect();
    (!rates.is_empty()).then(|| match groups.len() {
        0 | 1 => Ok(rates.iter().sum()),
        several => Err(format!(
            "it holds {several} groups of fio's jobs, which ran one after the other: give the \
             output of one"
        )),
    })
}

impl Client {
    /// What is in the line, as a message shows it: the number is where `N` is.
    pub fn line(&self) -> String {
        let line = match self.place {
            Next => format!("{} N", self.begin),
            Before(unit) => format!("{} ... N{unit}", self.begin),
            Behind(mark) if mark.ends_with('=') => format!("{} {mark}N", self.begin),
            Behind(mark) => format!("{} ... {mark} N", self.begin),
        };
        line.trim_start().to_owned()
    }

    /// The number of a line that has single blanks.
    fn read(&self, line: &str) -> Option<f64> {
        let rest = line.strip_prefix(self.begin)?;
        let word = match self.place {
            Next => rest.split_whitespace().next()?,
            Before(unit) => rest[..rest.find(unit)?].rsplit([' ', '(']).next()?,
            Behind(mark) => rest.rsplit_once(mark)?.1.split_whitespace().next()?,
        };
        // With thousands apart (12,345), or before the next number (148.2, ...); in JSON the next
        // field follows without a blank.
        let word = if self.begin.starts_with('{') { word.split([',', '}']).next()? } else { word };
        word.replace(',', "").parse().ok()
    }
}

/// What a load generator counted.
#[derive(Clone, PartialEq, Debug)]
pub struct Counted {
    /// The programs that print such a text.
    pub programs: &'static [&'static str],
    /// Requests, transactions or queries a second; above 0.
    pub per_s: f64,
}

/// The requests a second that a load generator's output tells; else what is wrong with the text.
///
/// # Errors
/// A message when no line of a known load generator is in it, or when it counted nothing.
pub fn client_count(text: &str) -> Result<Counted, String> {
    let single = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = text.split(['\n', '\r']).map(single).collect();
    let rates =
        |of: &Client| -> Vec<f64> { lines.iter().filter_map(|line| of.read(line)).collect() };
    let last = |of: &Client| Some((of.programs, rates(of).pop()?));
    let of_tests = || {
        let rates = rates(&REDIS);
        let seconds: f64 = rates.iter().map(|rate| 1.0 / rate).sum();
        (!rates.is_empty()).then(|| (REDIS.programs, rates.len() as f64 / seconds))
    };
    if let Some(rate) = fio_rate(&lines) {
        return counted(FIO.programs, rate?);
    }
    match CLIENTS.iter().find_map(last).or_else(of_tests) {
        Some((programs, per_s)) => counted(programs, per_s),
        None => {
            let known: Vec<String> =
                all().map(|of| format!("{} (`{}`)", of.programs.join(", "), of.line())).collect();
            Err(format!(
                "no count of requests is in it; the lines of these load generators are read: {}",
                known.join("; ")
            ))
        }
    }
}

/// Returns the rate, where it is one.
fn counted(programs: &'static [&'static str], per_s: f64) -> Result<Counted, String> {
    if per_s.is_finite() && per_s > 0.0 {
        return Ok(Counted { programs, per_s });
    }
    let program = programs.join(" or ");
    Err(format!("{program} counted {per_s} requests a second: a number above 0 is needed"))
}

/// Every load generator whose output is read.
pub fn all() -> impl Iterator<Item = &'static Client> {
    CLIENTS.iter().chain([&REDIS, &FIO, &OLD_FIO])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks what is read of each text: the program, and how many it counts in a second.
    fn are_read(texts: &[(&str, &str, f64)]) {
        for &(text, program, rate) in texts {
            let found = client_count(text).unwrap();
            assert_eq!(found.programs[0], program);
            assert!((found.per_s - rate).abs() < 0.01, "{program}: {}", found.per_s);
        }
    }

    #[test]
    fn what_clients_of_web_servers_print_is_read() {
        let wrk = "Running 3s test @ http://127.0.0.1:8080\n  1 threads and 4 connections\n  \
                   Thread Stats   Avg      Stdev\n\
                   \x20   Latency   186.50us  410.12us\n  78123 requests in 3.00s, 12.30MB read\n\
                   Requests/sec:  26040.71\n\
                   Transfer/sec:      4.10MB\n";
        let ab = "Concurrency Level:      8\nRequests per second:    1234.56 [#/sec] (mean)\n";
        let h2load = "finished in 1.01s, 12345.67 req/s, 1.20MB/s\nrequests: 12500 total\n";
        let fortio = "All done 1234 calls (plus 8 warmup) 8.084 ms avg, 123.4 qps\n";
        let vegeta = "Requests      [total, rate, throughput]         500, 50.10, 49.95\n\
                      Duration [total] 10s\n";
        let k6 = "     http_req_waiting...............: avg=8ms\n     \
                  http_reqs......................: 1234   41.13/s\n";
        are_read(&[
            (wrk, "wrk", 26040.71),
            (ab, "ab", 1234.56),
            (h2load, "h2load", 12345.67),
            (fortio, "fortio", 123.4),
            (vegeta, "vegeta", 49.95),
            (k6, "k6", 41.13),
            ("Transaction rate:\t      99.50 trans/sec\n", "siege", 99.5),
        ]);
    }

    #[test]
    fn what_other_clients_print_is_read() {
        let pgbench = "transaction type: <builtin: select only>\nnumber of clients: 4\n\
                       latency average = 0.240 ms\n\
                       initial connection time = 8.1 ms\n\
                       tps = 16644.231905 (without initial connection time)\n";
        let quiet = "SET: rps=0.0 (overall: nan)\rSET: 60000.00 requests per second, p50=0.263 \
                     msec\n\
                     GET: 30000.00 requests per second, p50=0.27 msec\n";
        let long = "====== SET ======\n  100000 requests completed in 1.06 seconds\n  50 parallel \
                    clients\n\nSummary:\n\
                    \x20 throughput summary: 94339.62 requests per second\n  latency summary \
                    (msec):\n";
        let own = "{\n  \"sent\": 26556,\n  \"throughput_per_s\": 5218.5,\n  \"latency\": {}\n}\n";
        let memcached =
            "get_misses: 0\n\nRun time: 2.0s Ops: 112609 TPS: 56214 Net_rate: 62.9M/s\n";
        let sysbench = "SQL statistics:\n    transactions:                        6170   (616.92 \
                        per sec.)\n\
                        \x20   queries:                             123400 (12338.4 per sec.)\n";
        let memtier = "Type         Ops/sec     Hits/sec\nSets          100.5    ---\n\
                       Totals       1100.25      0.00   999.0\n";
        are_read(&[
            (
                "RPS percentiles (requests) runtime 90 (s)\naverage rps: 6195.77\n",
                "schbench",
                6195.77,
            ),
            (
                "Op rate                   :   12,345 op/s  [WRITE: 12,345 op/s]\n",
                "cassandra-stress",
                12345.0,
            ),
            (
                "localhost:9000, queries: 1480, QPS: 148.210, RPS: 14821003.2, MiB/s: 113.1, \
                 result RPS: 148.2\n",
                "clickhouse-benchmark",
                148.21,
            ),
            (memcached, "memcaslap", 56214.0),
            (pgbench, "pgbench", 16644.231905),
            (quiet, "redis-benchmark", 40000.0),
            (long, "redis-benchmark", 94339.62),
            (own, "schedlab", 5218.5),
            (sysbench, "sysbench", 616.92),
            (memtier, "memtier_benchmark", 1100.25),
            ("Total QPS = 4321.0 (43210 / 10.0s)\n", "mutilate", 4321.0),
            (
                "[OVERALL], RunTime(ms), 1000\n[OVERALL], Throughput(ops/sec), 812.5\n",
                "ycsb",
                812.5,
            ),
            (
                "  Queries per second:   10101.25\n\n  Average packet size: 29\n",
                "dnsperf",
                10101.25,
            ),
        ]);
    }

    /// Forms that were missing: sysbench 1.0 and 1.1, go-ycsb, old cassandra-stress, bombardier,
    /// fio.
    #[test]
    fn further_forms_are_read() {
        let events = "General statistics:\n    total number of events:              41295\n";
        let sysbench = |line: &str| format!("sysbench 1.1.0\n\n{line}\n{events}");
        let eps = sysbench("Throughput:\n    events/s (eps):                      15765.2110");
        let cpu = sysbench("CPU speed:\n    events per second:  4128.44");
        let memory = sysbench("Total operations: 262144 (8951620.99 per second)");
        let old = sysbench("Operations performed: 1048576 (2158467.20 ops/sec)");
        let go_ycsb = "Run finished, takes 9.9s\n\
             READ   - Takes(s): 9.9, Count: 50013, OPS: 5051.2, Avg(us): 98, 99th(us): 400\n\
             TOTAL  - Takes(s): 9.9, Count: 100000, OPS: 10101.5, Avg(us): 99, 99th(us): 420\n";
        let cassandra = "Results:\nop rate                   : 46751 [WRITE:46751]\n";
        let bombardier = "Statistics        Avg      Stdev        Max\n\
                          \x20 Reqs/sec     48372.33   2310.02   52011.9\n";
        let fio = "job: (groupid=0, jobs=1): err= 0: pid=4242: Sun Nov 29 01:00:00 2026\n\
                   \x20 read: IOPS=12.3k, BW=48.0MiB/s (50.4MB/s)(480MiB/10001msec)\n\
                   \x20   clat (usec): min=40, max=3012, avg=77.10, stdev=20.55\n\
                   \x20 write: IOPS=700, BW=2800KiB/s (2867kB/s)(27.3MiB/10001msec); 0 zone resets\n";
        are_read(&[
            (&eps, "sysbench", 15765.211),
            (&cpu, "sysbench", 4128.44),
            (&memory, "sysbench", 8951620.99),
            (&old, "sysbench", 2158467.2),
            (go_ycsb, "go-ycsb", 10101.5),
            (cassandra, "cassandra-stress", 46751.0),
            (bombardier, "bombardier", 48372.33),
            (fio, "fio", 13000.0),
        ]);
        let old_fio = "job: (groupid=0, jobs=1): err= 0: pid=42: Sun Nov 29 01:00:00 2026\n\
                       \x20 read : io=480.0MB, bw=49100KB/s, iops=12275, runt= 10001msec\n\
                       \x20   clat (usec): min=40, max=3012, avg=77.10, stdev=20.55\n\
                       \x20 write: io=27.3MB, bw=2800KB/s, iops=700, runt= 10001msec\n";
        let vegeta = "{\"latencies\":{\"total\":237119463,\"mean\":2371194,\"50th\":2854306},\
                      \"bytes_in\":{\"total\":606700,\"mean\":6067},\"duration\":990000000,\
                      \"requests\":100,\"rate\":101.01,\"throughput\":100.77,\"success\":1}\n";
        are_read(&[(old_fio, "fio", 12975.0), (vegeta, "vegeta", 100.77)]);
        let serial = format!("{fio}{}", fio.replace("groupid=0", "groupid=1"));
        assert!(client_count(&serial).unwrap_err().contains("2 groups of fio's jobs"));
    }

    #[test]
    fn what_is_no_count_is_refused_with_what_is_read() {
        let texts = [
            "",
            "hello",
            "Requests/sec: many",
            "Requests/sec: 0",
            "Requests/sec: nan",
            "x requests per second",
        ];
        for text in texts {
            assert!(client_count(text).is_err(), "{text}");
        }
        let said = client_count("hello").unwrap_err();
        assert!(all().flat_map(|of| of.programs).all(|program| said.contains(program)), "{said}");
        assert!(client_count("Requests/sec: 0").unwrap_err().contains("above 0"));
    }
}
