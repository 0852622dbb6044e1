//! What is noted below a comparison of a recording.

use super::client_log::ClientLog;
use super::recorded::RecordedInput;
use super::replaying::ReplayFrom;

/// Returns what the recording lacks, and what is assumed in its place.
pub(super) fn notes(input: &RecordedInput, client: Option<&ClientLog>) -> Vec<String> {
    let mut notes: Vec<String> = client.map(ClientLog::note).into_iter().collect();
    if !input.by.is_by_name() {
        notes.push(format!(
            "tasks are taken together by {}: figures, errors and gates are of these, and settings \
             may still name programs",
            input.by
        ));
    }
    if input.replay.hz == 0 {
        notes.push("the recording does not know HZ: 250 is assumed".to_owned());
    }
    if let Some(cpus) = input.header.knobs.get("recorder.idle_wakeups_may_be_missing_on_cpus") {
        notes.push(format!(
            "wakeups by interrupts that found CPU {cpus} idle may be missing in the recording"
        ));
    }
    // What `host::machine` calls the capacities of unequal CPUs.
    if let Some(capacities) = input.header.knobs.get("cpu_capacity") {
        notes.push(format!(
            "the CPUs are not equally fast (capacity {capacities}): the replay takes them as equal, \
             so that the CPU time of a task that runs on another kind of CPU is not what it would be"
        ));
    }
    let unknown = input.header.tasks.iter().filter(|task| !task.known).count();
    if unknown > 0 {
        notes.push(format!(
            "{unknown} of {} tasks were gone before their policy, nice value and group could be \
             read: defaults \
             are assumed",
            input.header.tasks.len()
        ));
    }
    let repairs = &input.repairs;
    if repairs.cut_off {
        notes.push("the recording is cut off; it is used up to its last whole block".to_owned());
    }
    if repairs.lost > 0 {
        notes.push(format!("the recorder lost {} events in {} gaps", repairs.lost, repairs.gaps));
    }
    for sign in input.by_messages.iter().flat_map(|messages| &messages.unseen) {
        notes.push(format!(
            "{sign}; the replay gives such tasks no messages, so that what they do under another \
             scheduler may differ from what is predicted"
        ));
    }
    if let Some(missing) = input.fact_loss.sentence() {
        let of = match input.replayed_from() {
            ReplayFrom::Messages => "the replay by messages goes on without them",
            ReplayFrom::Auto | ReplayFrom::Wakeups => "the replay by wakeups uses no facts",
        };
        notes.push(format!("{missing}: {of}"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn unequal_cpus_are_named() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recordings/two-yes.slt");
        let mut input = RecordedInput::open(Path::new(path)).unwrap();
        let said = |input: &RecordedInput| {
            notes(input, None).into_iter().find(|note| note.contains("not equally fast"))
        };
        assert_eq!(said(&input), None);
        let capacities = "446 on 0-3, 1024 on 4-7";
        input.header.knobs.insert("cpu_capacity".to_owned(), capacities.to_owned());
        assert!(said(&input).is_some_and(|note| note.contains(capacities)));
    }
}
