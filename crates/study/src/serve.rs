//! The server that a question is about (`--serve`): which tasks it is, and which one it may be
//! where the user names none.

mod guess;

pub use guess::{Exchanges, Guess, RECORDED_FOR, guess};

use crate::StudyError;
use schedlab_model::text::{glob, is_in_group, nearest};
use schedlab_trace::{GroupInfo, Header, TaskInfo};
use std::collections::BTreeSet;

/// What `--serve` does, for every command that has it.
pub const HELP: &str = "Answer for this server: a program, a pid, a control group (/path) or a \
                        unit (NAME.service). Its numbers come first, and what does not delay it \
                        does not count";

/// A server as a user names it: a program (a name or a glob), a pid, a control group or a systemd
/// unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    asked: String,
    number: Option<u32>,
}

impl Server {
    /// Reads the name.
    pub fn new(asked: &str) -> Server {
        Server { asked: asked.to_owned(), number: asked.parse().ok() }
    }

    /// Returns the name as the user wrote it.
    pub fn asked(&self) -> &str {
        &self.asked
    }

    /// Returns whether it is this task.
    pub fn is_meant(&self, task: &TaskInfo, groups: &[GroupInfo]) -> bool {
        let group = groups.get(task.group.index()).map_or("", |info| info.spec.name.as_str());
        match self.number {
            Some(number) => task.pid == number || task.tid == number,
            None if self.asked.starts_with('/') => is_in_group(group, &self.asked),
            None if is_unit(&self.asked) => group.split('/').any(|part| part == self.asked),
            None => glob(&self.asked, &task.comm),
        }
    }

    /// Returns its tasks among those of a recording, by their numbers.
    ///
    /// # Errors
    /// No task is meant; the message names the nearest program.
    pub fn tasks(&self, header: &Header) -> Result<Vec<bool>, StudyError> {
        let is_meant = |task| self.is_meant(task, &header.groups);
        let tasks: Vec<bool> = header.tasks.iter().map(is_meant).collect();
        if tasks.contains(&true) { Ok(tasks) } else { Err(self.not_found(header)) }
    }

    /// Returns the names of these tasks, each once.
    pub fn programs(header: &Header, tasks: &[bool]) -> Vec<String> {
        let own = header.tasks.iter().zip(tasks).filter(|(_, is_own)| **is_own);
        let names: BTreeSet<&str> = own.map(|(task, _)| task.comm.as_str()).collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// Returns what it is called in sentences: its program, or what the user wrote where it is
    /// several.
    pub fn name(&self, programs: &[String]) -> String {
        match programs {
            [one] => one.clone(),
            _ => self.asked.clone(),
        }
    }

    fn not_found(&self, header: &Header) -> StudyError {
        let asked = &self.asked;
        let names: BTreeSet<&str> = header.tasks.iter().map(|task| task.comm.as_str()).collect();
        let groups = header.groups.iter().map(|group| group.spec.name.as_str());
        let hint = match nearest(asked, names.iter().copied().chain(groups)) {
            Some(right) => format!("did you mean `{right}`?"),
            None => {
                let some: Vec<&str> = names.iter().copied().take(10).collect();
                let more = if names.len() > some.len() { ", ..." } else { "" };
                format!("programs are: {}{more}", some.join(", "))
            }
        };
        StudyError::Option(format!(
            "--serve {asked}: no task of the recording is meant; {hint} Name a program, a pid, a \
             control group (/path) or a unit (NAME.service)"
        ))
    }
}

/// Returns whether this is the name of a systemd unit that has a control group.
pub fn is_unit(name: &str) -> bool {
    [".service", ".slice", ".scope"].iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{GroupId, GroupSpec};

    #[test]
    fn a_server_is_named_in_four_ways() {
        let group = |name: &str| GroupInfo {
            spec: GroupSpec { name: name.to_owned(), ..GroupSpec::default() },
        };
        let groups = [group("/"), group("/system.slice/redis.service")];
        let task = TaskInfo { group: GroupId(1), ..TaskInfo::unknown(8, 7, "redis-server") };
        let is = |asked: &str| Server::new(asked).is_meant(&task, &groups);
        for asked in ["redis-server", "redis*", "7", "8", "/system.slice/", "redis.service"] {
            assert!(is(asked), "{asked}");
        }
        for asked in ["redis", "9", "/system", "system.service"] {
            assert!(!is(asked), "{asked}");
        }
    }
}
