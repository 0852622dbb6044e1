//! Two recordings above each other: the schedules of both from one common beginning, so that one
//! view moves over both. The numbers are those of `schedlab diff`.

use super::overview::{Look, Opened};
use crate::StudyError;
use crate::compare::detail::EVENTS;
use crate::page::recording::lanes;
use schedlab_model::{EventSink, Ns, TaskId};
use schedlab_report::{LaneRecorder, Lanes};
use schedlab_trace::renumber;

impl Opened {
    /// Returns the schedules of this recording and of `other` as two runs that begin at 0. The
    /// tasks of both are in one list; a program has one colour in both.
    ///
    /// # Errors
    /// A part that is not there.
    pub fn beside(
        &self,
        look: &Look,
        other: &Opened,
        look_there: &Look,
    ) -> Result<Lanes, StudyError> {
        let mut all = self.shifted(look, 0)?;
        let below = other.shifted(look_there, all.tasks.len() as u32)?;
        all.tasks.extend(below.tasks);
        all.runs.extend(below.runs);
        for (run, (style, name)) in
            all.runs.iter_mut().zip([&self.name, &other.name].iter().enumerate())
        {
            run.style = style;
            (*name).clone_into(&mut run.name);
        }
        Ok(all)
    }

    /// Returns the schedule from 0 on, with the tasks numbered from `first`.
    fn shifted(&self, look: &Look, first: u32) -> Result<Lanes, StudyError> {
        let (scope, _) = self.scope(look)?;
        let header = &self.recording.header;
        let to = scope.to.min(self.recording.duration);
        // Each of the two has half of the room of a page.
        let mut recorder = LaneRecorder::new(header.topology.cpus(), scope.from, EVENTS / 2);
        for event in self.recording.events.iter().take_while(|event| event.at <= to) {
            recorder.event(&renumber(event, |task| TaskId(task.0 + first)));
        }
        let mut run = recorder.finish(&self.name, 0, to);
        // Times in it are counted from its beginning.
        let back = |at: Ns| at.saturating_sub(scope.from);
        (run.from_ns, run.to_ns, run.whole_ns) = (Ns::ZERO, back(run.to_ns), back(run.whole_ns));
        Ok(lanes(header, run, Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, EventKind, PrevState, SchedEvent, Topology};
    use schedlab_trace::{Header, Recording, TaskInfo};

    /// One task runs from `at` on, for a millisecond.
    fn opened(name: &str, comm: &str, at: Ns) -> Opened {
        let switch = |at, prev, next| SchedEvent {
            at,
            cpu: CpuId(0),
            kind: EventKind::Switch { prev, prev_state: PrevState::Sleeping, next },
        };
        let header = Header {
            topology: Topology::flat(1),
            tasks: vec![TaskInfo::unknown(7, 7, comm)],
            ..Header::default()
        };
        let task = Some(TaskId(0));
        let events = vec![switch(at, None, task), switch(at + Ns::from_ms(1), task, None)];
        let recording = Recording::from_parts(header, events, Ns::from_s(2)).unwrap();
        Opened::new(String::new(), name.to_owned(), recording, None)
    }

    #[test]
    fn both_begin_at_zero_and_share_one_list_of_tasks() {
        let (a, b) =
            (opened("a", "redis", Ns::from_ms(1)), opened("b", "nginx", Ns::from_ms(1001)));
        let from = Look { from: Some(Ns::from_s(1)), ..Look::default() };
        let both = a.beside(&Look::default(), &b, &from).unwrap();
        let names: Vec<&str> = both.tasks.iter().map(|task| task.class.as_str()).collect();
        assert_eq!(names, ["redis", "nginx"]);
        let ends = |run: &schedlab_report::LaneRun| (run.name.clone(), run.from_ns, run.to_ns);
        assert_eq!(ends(&both.runs[0]), ("a".to_owned(), Ns::ZERO, Ns::from_s(2)));
        assert_eq!(ends(&both.runs[1]), ("b".to_owned(), Ns::ZERO, Ns::from_s(1)));
        // The same moment of both is packed the same, but for the number of the task.
        let same = a.beside(&Look::default(), &a, &Look::default()).unwrap();
        let text = |lanes: &Lanes| serde_json::to_value(lanes.data()).unwrap();
        let data = |lanes: &Lanes, run: usize| text(lanes)["runs"][run]["data"].clone();
        assert_eq!(data(&both, 1), data(&same, 1));
        assert_ne!(data(&same, 0), data(&same, 1));
    }
}
