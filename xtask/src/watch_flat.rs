//! `cargo xtask watch-flat`: the memory of `schedlab watch` beside threads that are created and
//! end, minute by minute.

use crate::built::Built;
use anyhow::{Context, Result};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Threads and minutes of the attack that found the leak (44 to 99 MB beside 13,909 threads).
pub(crate) const THREADS: u32 = 15_000;
pub(crate) const MINUTES: u32 = 10;
/// Names of the threads, as those of a pool: each of up to 2,000 names has a row with its
/// distributions.
const NAMES: u32 = 100;
/// So much may come after the second minute, in KiB: half of what 15,000 threads took when ended
/// tasks were kept. On a busy machine tables that have a greatest size still grow then (the
/// switches that are remembered while a task waits: 12 MB).
const GROWS: u64 = 30_000;

pub(crate) fn command(threads: u32, minutes: u32) -> Result<ExitCode> {
    let mut watch = Built::all()?.program("schedlab-cli")?;
    watch.args(["watch", "--json", "--for", &format!("{minutes}m")]).stdout(Stdio::null());
    let mut watch = watch.spawn().context("schedlab cannot be started")?;
    let (begun, minute) = (Instant::now(), Duration::from_secs(60));
    let pause = minute * minutes / threads.max(1);
    let (mut created, mut first) = (0, None);
    let mut last = 0;
    for now in 1..=minutes {
        // The last look is before the end.
        let until = begun + minute * now - Duration::from_secs(u64::from(now == minutes));
        while Instant::now() < until {
            let name = format!("made-{}", created % NAMES);
            let thread = std::thread::Builder::new().name(name).spawn(|| {
                std::thread::sleep(Duration::from_millis(1));
            });
            created += u32::from(thread.is_ok());
            std::thread::sleep(
                (begun + pause * created).saturating_duration_since(Instant::now()).min(minute),
            );
        }
        last = resident(watch.id()).context(
            "watch has ended early: `schedlab doctor` says whether this machine can be recorded",
        )?;
        // In the first two minutes the rows of names and the switches that are remembered fill up
        // to their greatest sizes.
        first = if now <= 2 { Some(last) } else { first };
        println!("minute {now:2}: {last} KiB resident, {created} threads created");
    }
    let status = watch.wait()?;
    let grown = last.saturating_sub(first.unwrap_or(last));
    println!("{grown} KiB more than after the second minute; watch ended with {status}");
    Ok(ExitCode::from(u8::from(grown > GROWS || !status.success())))
}

/// Returns the resident memory of a process in KiB.
fn resident(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok())
}
