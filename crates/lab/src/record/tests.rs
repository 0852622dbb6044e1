//! Recordings of this machine, where it allows that.

use super::*;
use schedlab_host::HostError;
use schedlab_trace::Recording;
use std::path::Path;

fn plan(request: RecordRequest, output: &Path) -> RecordPlan {
    RecordPlan::new(request, output.to_owned(), "a test".to_owned())
}

#[test]
fn an_unwritable_output_is_refused_before_anything_starts() {
    let marker =
        schedlab_testing::temp_dir().join(format!("schedlab-record-{}", std::process::id()));
    let command = vec!["touch".to_owned(), marker.to_string_lossy().into_owned()];
    let request = RecordRequest {
        backend: Some(Backend::Switches),
        ..RecordRequest::new(RecordUntil::CommandEnds(command))
    };
    let result = record(&plan(request, Path::new("/no/such/directory/x.slt")), &mut (), &|| false);
    match result {
        Err(RecordError::Output { .. }) => assert!(!marker.exists(), "the command ran"),
        // Not allowed to record on this machine.
        Err(RecordError::Host(HostError::Backend { .. })) => {}
        other => panic!("{other:?}"),
    }
}

/// Works for every user: own tasks only.
#[test]
fn what_was_recorded_can_be_opened() {
    let path =
        schedlab_testing::temp_dir().join(format!("schedlab-record-{}.slt", std::process::id()));
    let command = ["sh", "-c", "sleep 0.05; sleep 0.05"].map(str::to_owned).to_vec();
    let request = RecordRequest {
        backend: Some(Backend::OwnTasks),
        ..RecordRequest::new(RecordUntil::CommandEnds(command))
    };
    match record(&plan(request, &path), &mut (), &|| false) {
        Ok(recorded) => {
            let recording = Recording::open(&path).unwrap();
            assert_eq!(recording.events.len() as u64, recorded.end.events, "{}", recording.repairs);
            assert!(!recording.repairs.cut_off);
            assert_eq!(recording.header.note, "a test");
            assert!(recording.header.tasks.iter().any(|task| task.comm == "sleep"));
        }
        Err(RecordError::Host(HostError::Backend { .. })) => {}
        Err(other) => panic!("{other}"),
    }
    let _ = std::fs::remove_file(path);
}
