//! Where events are missing: what every analysis says beside numbers that losses touch.

use super::Scope;
use crate::Recording;
use schedlab_model::{CpuId, EventKind, EventSink, Ns, SchedEvent};

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

/// Finds the losses of a recording from its events, which come in their order.
#[derive(Clone, Default, Debug)]
pub struct Losses {
    cpus: Vec<Seen>,
    found: Vec<Loss>,
}

/// What was seen of a CPU.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    last: Ns,
    /// The loss that goes on, by its place.
    open: Option<usize>,
}

impl EventSink for Losses {
    fn event(&mut self, event: &SchedEvent) {
        let cpu = event.cpu.index();
        if self.cpus.len() <= cpu {
            self.cpus.resize(cpu + 1, Seen::default());
        }
        let seen = &mut self.cpus[cpu];
        match event.kind {
            EventKind::Lost { count } if count > 0 => {
                seen.open = Some(self.found.len());
                self.found.push(Loss { cpu: event.cpu, count, from: seen.last, to: event.at });
            }
            // Some recorders set the mark where the loss began: it goes on until the next event of
            // that CPU.
            _ => {
                if let Some(index) = seen.open.take() {
                    self.found[index].to = event.at;
                }
            }
        }
        seen.last = event.at;
    }
}

impl Losses {
    /// Returns those that touch the window and the CPU of `scope`, in order.
    pub fn within(&self, scope: &Scope) -> Vec<Loss> {
        let touches = |loss: &&Loss| {
            loss.to >= scope.from
                && loss.from <= scope.to
                && scope.cpu.is_none_or(|cpu| cpu == loss.cpu)
        };
        self.found.iter().filter(touches).copied().collect()
    }
}

/// Returns the losses that touch the window of `scope`, in order.
pub fn losses(recording: &Recording, scope: &Scope) -> Vec<Loss> {
    if recording.repairs.lost == 0 {
        return Vec::new();
    }
    let mut losses = Losses::default();
    recording.events.iter().for_each(|event| losses.event(event));
    losses.within(scope)
}

/// Returns a sentence about them; `None` when nothing is missing.
pub fn sentence(losses: &[Loss]) -> Option<String> {
    if losses.is_empty() {
        return None;
    }
    let one =
        |loss: &Loss| format!("{} on {} from {} to {}", loss.count, loss.cpu, loss.from, loss.to);
    let listed: Vec<String> = losses.iter().take(LISTED).map(one).collect();
    let more = match losses.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(", and at {more} more places"),
    };
    Some(format!(
        "events are missing: {}{more}; what tasks and CPUs did then is unknown",
        listed.join("; ")
    ))
}
