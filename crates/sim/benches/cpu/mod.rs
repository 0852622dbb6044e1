//! What a run costs: nanoseconds of this thread on a CPU, so that a busy machine costs little
//! precision.

/// CPU seconds of this thread so far, from `/proc/self/schedstat`. The kernel brings it up to date
/// at ticks (4 ms on many machines) and when a thread leaves its CPU, so this one does.
pub(crate) fn seconds() -> f64 {
    std::thread::sleep(std::time::Duration::from_micros(1));
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux with schedstats");
    let ns: u64 =
        text.split_whitespace().next().and_then(|field| field.parse().ok()).expect("a number");
    ns as f64 / 1e9
}

/// How often each run is repeated; the best counts. `RUNS` in the environment, else this many.
pub(crate) fn repeats(default: u32) -> u32 {
    std::env::var("RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(default)
}
