//! Where events are missing: what every analysis says beside numbers that losses touch.

use super::Scope;
use crate::Recording;
use schedlab_model::{CpuId, EventKind, Ns};

/// Losses that a note lists.
const LISTED: usize = 3;

/// Events of a CPU that the recorder lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// Which CPU.
    pub cpu: CpuId,
    /// How many events.
    pub count: u64,
    /// The last event of that CPU before them.
    pub from: Ns,
    /// The loss mark: they were lost before it.
    pub to: Ns,
}

/// Returns the losses that touch the window of `scope`, in order.
pub fn losses(recording: &Recording, scope: &Scope) -> Vec<Loss> {
    if recording.repairs.lost == 0 {
        return Vec::new();
    }
    let mut last = vec![Ns::ZERO; recording.header.topology.cpus()];
    let mut open: Vec<Option<usize>> = vec![None; last.len()];
    let mut found: Vec<Loss> = Vec::new();
    for event in &recording.events {
        let cpu = event.cpu.index();
        match event.kind {
            EventKind::Lost { count } if count > 0 => {
                open[cpu] = Some(found.len());
                found.push(Loss { cpu: event.cpu, count, from: last[cpu], to: event.at });
            }
            // Some recorders set the mark where the loss began: it goes on until the next event of that CPU.
            _ => {
                if let Some(index) = open[cpu].take() {
                    found[index].to = event.at;
                }
            }
        }
        last[cpu] = event.at;
    }
    found.retain(|loss| {
        loss.to >= scope.from && loss.from <= scope.to && scope.cpu.is_none_or(|cpu| cpu == loss.cpu)
    });
    found
}

/// Returns a sentence about them; `None` when nothing is missing.
pub fn sentence(losses: &[Loss]) -> Option<String> {
    if losses.is_empty() {
        return None;
    }
    let one = |loss: &Loss| format!("{} on {} from {} to {}", loss.count, loss.cpu, loss.from, loss.to);
    let listed: Vec<String> = losses.iter().take(LISTED).map(one).collect();
    let more = match losses.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(", and at {more} more places"),
    };
    Some(format!("events are missing: {}{more}; what tasks and CPUs did then is unknown", listed.join("; ")))
}
