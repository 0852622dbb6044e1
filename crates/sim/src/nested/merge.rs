//! From the outcomes of all engines to one.

use super::NestedOutcome;
use super::split::Split;
use crate::Outcome;
use crate::engine::{Engine, Step};
use schedlab_model::EventSink;
use schedlab_model::random::mix;

pub(super) fn merge<S: EventSink, G: EventSink>(
    host: Engine<'_, S, false>,
    guests: Vec<Engine<'_, G, false>>,
    split: &Split,
) -> Step<NestedOutcome> {
    let mut outcome = host.finish()?;
    let guests = guests.into_iter().map(Engine::finish).collect::<Step<Vec<Outcome>>>()?;
    for guest in &guests {
        outcome.event_hash = mix(outcome.event_hash ^ guest.event_hash);
        outcome.events += guest.events;
    }
    // Tasks wait for each other across engines: none is called stuck here.
    outcome.stuck.clear();
    let hosts = std::mem::take(&mut outcome.metrics.tasks);
    let task = |(engine, task): &(Option<usize>, schedlab_model::TaskId)| match engine {
        None => hosts[task.index()].clone(),
        Some(d) => guests[*d].metrics.tasks[task.index()].clone(),
    };
    let mut tasks: Vec<_> = split.places.iter().map(task).collect();
    tasks.extend(split.vcpus.iter().map(|vcpu| hosts[vcpu.task.index()].clone()));
    outcome.metrics.tasks = tasks;
    outcome.metrics.channels.truncate(split.links.receivers.len());
    for (channel, receiver) in split.links.receivers.iter().enumerate() {
        if let Some((d, _)) = receiver {
            outcome.metrics.channels[channel] = guests[*d].metrics.channels[channel].clone();
        }
    }
    Ok(NestedOutcome {
        outcome,
        vcpus: split.vcpus.iter().map(|vcpu| vcpu.domain).collect(),
        guests: guests.into_iter().map(|guest| guest.metrics).collect(),
    })
}
