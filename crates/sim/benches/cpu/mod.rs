//! What a run costs: nanoseconds of this thread on a CPU, so that a busy machine costs little precision.

/// CPU seconds of this thread so far, from `/proc/self/schedstat`.
pub(crate) fn seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux with schedstats");
    let ns: u64 = text.split_whitespace().next().and_then(|field| field.parse().ok()).expect("a number");
    ns as f64 / 1e9
}

/// How often each run is repeated; the best counts. `RUNS` in the environment, else 3.
pub(crate) fn repeats() -> u32 {
    std::env::var("RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(3)
}
