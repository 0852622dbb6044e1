//! What messages cost and lose, by kernel: the same load with and without their facts.

use super::catalogue::Verdict;
use anyhow::{Context, Result, ensure};
use schedlab_model::{EventKind, FactKind, Ns, Outcome, TaskId};
use schedlab_trace::Recording;
use std::fmt::Write;
use std::path::Path;

/// The kernels that have messages, of those that are booted usually. Not 7.2 with PREEMPT_RT: up to
/// two thirds of the facts are missing there, and the kernel counts none of them.
pub(super) const KERNELS: &[&str] = &["6.1", "6.12", "6.12-rt", "7.2"];
/// The name of the load's threads.
const LOAD: &str = "stress";
/// The messages that it sends, and their bytes.
const MESSAGES: u64 = 8_000;
const BYTES: u32 = 100;
/// The line of `doctor` about messages has this; the hooks follow.
const HOOKS: &str = "recording messages: ";

/// Looks at the recordings of one kernel, and keeps its lines of the table beside them.
pub(super) fn judge(folder: &Path) -> Result<Vec<Verdict>> {
    let mut table = format!("facts of sockets come from|{}\n", sockets(folder)?);
    let mut verdicts = Vec::new();
    for (way, name) in [("socket", "a Unix socket"), ("pipe", "a pipe")] {
        let open = |mode: &str| {
            let path = folder.join(format!("{way}-{mode}.slt"));
            let bytes = std::fs::metadata(&path).map_or(0, |meta| meta.len());
            Recording::open(&path).map(|recording| (recording, bytes)).context(name)
        };
        let ((off, few), (on, many)) = (open("off")?, open("on")?);
        let (plain, with) = (cost(&off), cost(&on));
        let (sent, facts) = (sends(&on), on.facts.list.len() as u64);
        let loss = on.facts.loss();
        verdicts.push(Verdict {
            good: sent == MESSAGES || loss.lost >= MESSAGES - sent,
            text: format!(
                "{way}: {sent} of {MESSAGES} sends have a fact, and {} facts may be missing",
                loss.lost
            ),
        });
        let us = |cost: Ns| cost.0 as f64 / MESSAGES as f64 / 1e3;
        let factor = with.0 as f64 / plain.0.max(1) as f64;
        let _ = writeln!(
            table,
            "a message through {name}, without and with facts|{:.1} us, {:.1} us (x{factor:.2})",
            us(plain),
            us(with)
        );
        let _ = writeln!(
            table,
            "{way}: of {MESSAGES} sends without a fact; missing as the recorder says|{}; {}",
            MESSAGES - sent,
            loss.lost
        );
        let bytes = many.saturating_sub(few) as f64 / facts.max(1) as f64;
        let _ = writeln!(table, "{way}: facts, bytes each|{facts}, {bytes:.1}");
    }
    std::fs::write(folder.join("table.txt"), table)?;
    Ok(verdicts)
}

/// Returns from where this kernel's facts of sockets come, as `doctor` says.
fn sockets(folder: &Path) -> Result<&'static str> {
    let text = std::fs::read_to_string(folder.join("doctor.txt")).context("doctor.txt")?;
    ensure!(text.contains(HOOKS), "doctor says nothing of `{HOOKS}`");
    let by_tracepoints = text.contains("sockets at their tracepoints");
    Ok(if by_tracepoints { "their tracepoints" } else { "returns of system calls" })
}

/// Returns the CPU time of the load.
fn cost(recording: &Recording) -> Ns {
    let is_load = |task: TaskId| recording.header.tasks[task.index()].comm == LOAD;
    let mut since: Vec<Option<Ns>> = vec![None; recording.header.topology.cpus()];
    let mut all = Ns::ZERO;
    for event in recording.events.iter() {
        let EventKind::Switch { next, .. } = event.kind else { continue };
        let Some(since) = since.get_mut(event.cpu.index()) else { continue };
        if let Some(began) = since.take() {
            all += event.at.saturating_sub(began);
        }
        *since = next.is_some_and(is_load).then_some(event.at);
    }
    all
}

/// Returns how many of its messages have a fact.
fn sends(recording: &Recording) -> u64 {
    let is_sent = |kind: &FactKind| match kind {
        FactKind::Send(sent) => sent.outcome == Outcome::Done && sent.bytes == BYTES,
        _ => false,
    };
    recording.facts.list.iter().filter(|fact| is_sent(&fact.kind)).count() as u64
}
