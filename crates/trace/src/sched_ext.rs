//! What the header of a recording says of sched_ext: under which loaded scheduler it was made, and
//! for which tasks.

use crate::{Header, TaskInfo};
use schedlab_model::{Policy, SchedExt};

impl Header {
    /// Returns the name of the sched_ext scheduler that had tasks of this recording. `None`: none
    /// was loaded at either end, or it had none of the tasks that occur.
    pub fn ext_scheduler(&self) -> Option<&str> {
        let mut ends = self.sched_ext.iter().chain(&self.sched_ext_end);
        let has_some = ends.clone().any(SchedExt::has_every_fair_task)
            || self.tasks.iter().any(|task| task.ext);
        ends.find_map(SchedExt::scheduler).filter(|_| has_some)
    }

    /// Returns what became of the loaded scheduler while the recording was made, in words. `None`:
    /// the same one, or none, all the time, or it is not known.
    pub fn ext_change(&self) -> Option<String> {
        let (begin, end) = (self.sched_ext.as_ref()?, self.sched_ext_end.as_ref()?);
        let name = |at: &SchedExt| at.scheduler().unwrap_or("none").to_owned();
        let loaded = end
            .enable_seq
            .zip(begin.enable_seq)
            .map_or(0, |(end, begin)| end.saturating_sub(begin));
        if loaded == 0 && begin.scheduler() == end.scheduler() {
            return None;
        }
        let meanwhile = match loaded {
            0 => "none was loaded meanwhile".to_owned(),
            1 => "one was loaded meanwhile".to_owned(),
            many => format!("{many} were loaded meanwhile"),
        };
        Some(format!(
            "the sched_ext scheduler changed during the recording: {} at its beginning, {} at its \
             end ({meanwhile}): parts of it are of \
             different schedulers",
            name(begin),
            name(end)
        ))
    }

    /// Returns what is known of a scheduler that was loaded while the recording was made, for
    /// people. `None`: none was.
    pub fn ext_words(&self) -> Option<String> {
        let (begin, change) = (self.sched_ext.as_ref()?, self.ext_change());
        let mut text = match begin.scheduler() {
            None if change.is_none() => return None,
            None => "no scheduler was loaded".to_owned(),
            Some(name) => {
                let of = if begin.has_every_fair_task() {
                    "every fair task"
                } else {
                    "tasks of policy ext only"
                };
                let number = begin
                    .enable_seq
                    .map_or(String::new(), |seq| format!(", number {seq} since boot"));
                format!("{name} ({}, for {of}{number})", begin.state)
            }
        };
        if let Some(change) = change {
            text += &format!("; {change}");
        } else if self.sched_ext_end.is_none() {
            text += "; whether it stayed is not known";
        }
        Some(text)
    }

    /// Returns the policy of a task as people read it. `ext`: policy SCHED_EXT, or SCHED_OTHER
    /// while a sched_ext scheduler had every fair task; `ext/batch` and `ext/idle` then are the
    /// other two fair policies.
    pub fn policy_of(&self, task: &TaskInfo) -> String {
        let all = self.sched_ext.as_ref().is_some_and(SchedExt::has_every_fair_task);
        match task.policy {
            Policy::Other if task.ext || all => "ext".to_owned(),
            policy if all && policy.is_fair() => format!("ext/{policy}"),
            policy => policy.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Recording, Writer};
    use schedlab_model::Ns;

    fn at(state: &str, ops: Option<&str>, seq: u64, all: bool) -> Option<SchedExt> {
        let ops = ops.map(str::to_owned);
        Some(SchedExt {
            state: state.to_owned(),
            ops,
            enable_seq: Some(seq),
            switch_all: Some(all),
        })
    }

    /// Written and read back, with what was found at both ends.
    fn read_back(begin: Option<SchedExt>, end: Option<SchedExt>, ext: bool) -> Header {
        let mut task = TaskInfo::unknown(7, 7, "t");
        task.ext = ext;
        let header = Header { sched_ext: begin, tasks: vec![task], ..Header::default() };
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        writer.set_sched_ext(end);
        let bytes = writer.finish(Ns::from_ms(1)).unwrap();
        Recording::read(bytes.as_slice()).unwrap().header
    }

    #[test]
    fn what_was_loaded_is_in_the_file() {
        let lavd = at("enabled", Some("lavd"), 3, true);
        let header = read_back(lavd.clone(), lavd.clone(), false);
        assert_eq!((header.sched_ext.clone(), header.sched_ext_end.clone()), (lavd.clone(), lavd));
        assert_eq!((header.ext_scheduler(), header.ext_change()), (Some("lavd"), None));
        assert_eq!(
            header.ext_words().unwrap(),
            "lavd (enabled, for every fair task, number 3 since boot)"
        );
        assert_eq!(header.policy_of(&header.tasks[0]), "ext");
    }

    #[test]
    fn a_scheduler_of_some_tasks_counts_where_one_of_them_occurs() {
        let some = || at("enabled", Some("simple"), 1, false);
        assert_eq!(read_back(some(), some(), false).ext_scheduler(), None);
        let header = read_back(some(), some(), true);
        assert_eq!(header.ext_scheduler(), Some("simple"));
        assert_eq!(header.policy_of(&header.tasks[0]), "ext");
    }

    #[test]
    fn a_change_meanwhile_is_said() {
        let header =
            read_back(at("enabled", Some("a"), 1, true), at("disabled", None, 2, true), false);
        let change = header.ext_change().unwrap();
        assert!(
            change.contains("a at its beginning, none at its end (one was loaded meanwhile)"),
            "{change}"
        );
        // The same name again is another load.
        let again =
            read_back(at("enabled", Some("a"), 1, true), at("enabled", Some("a"), 2, true), false);
        assert!(again.ext_change().is_some());
    }

    #[test]
    fn names_are_data() {
        let header = read_back(at("enabled", Some("\u{1b}[31m"), 1, true), None, false);
        let words = header.ext_words().unwrap();
        assert!(!words.contains('\u{1b}'), "{words}");
        assert!(words.ends_with("whether it stayed is not known"), "{words}");
        assert_eq!(read_back(None, None, false).ext_words(), None);
        assert_eq!(read_back(at("disabled", None, 0, false), None, false).ext_words(), None);
    }
}
