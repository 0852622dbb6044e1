//! The server that a question is about (`--serve`): which tasks it is, and which one it may be
//! where the user names none.

mod guess;

pub use guess::{Exchanges, Guess, RECORDED_FOR, guess};

use crate::StudyError;
use schedlab_model::text::{is_in_group, nearest};
use schedlab_trace::owner::{self, is_unit};
use schedlab_trace::{GroupInfo, Header, TaskInfo};
use std::collections::BTreeSet;

macro_rules! names {
    () => {
        "a program, a pid, a control group (/path), a unit (NAME.service), a pod (pod:NAME, \
         pod:LABEL=VALUE or pod:UID) or container:ID"
    };
}

/// The ways to name a server, for messages.
pub const NAMES: &str = names!();

/// What `--serve` does, for every command that has it.
pub const HELP: &str = concat!(
    "Answer for this server: ",
    names!(),
    ". Its numbers come first, and what does not delay it does not count"
);

/// A server as a user names it: a program (a name or a glob), a pid, a control group, a systemd
/// unit, a pod of Kubernetes by its name, uid or label, or a container by its id or the beginning
/// of it.
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
        let info = groups.get(task.group.index());
        let group = info.map_or("", |info| info.spec.name.as_str());
        match self.number {
            Some(number) => task.pid == number || task.tid == number,
            None if self.asked.starts_with('/') => is_in_group(group, &self.asked),
            None if is_unit(&self.asked) => group.split('/').any(|part| part == self.asked),
            None => self.is_contained(info).unwrap_or_else(|| task.is_named(&self.asked)),
        }
    }

    /// Returns whether a group is in the pod or the container; `None`: it is neither.
    fn is_contained(&self, group: Option<&GroupInfo>) -> Option<bool> {
        let (kind, id) = self.asked.split_once(':').filter(|(_, id)| !id.is_empty())?;
        match kind {
            "pod" => Some(group.is_some_and(|group| owner::is_in_pod(group, id))),
            "container" => {
                let container = group.and_then(|group| owner::container(&group.spec.name));
                Some(container.is_some_and(|one| one.id.starts_with(id)))
            }
            _ => None,
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
        let tasks = header.tasks.iter();
        let names: BTreeSet<&str> = tasks
            .flat_map(|task| task.process.iter().chain([&task.comm]))
            .map(|name| &name[..])
            .collect();
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
            "--serve {asked}: no task of the recording is meant; {hint} Name {NAMES}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{GroupId, GroupSpec};

    #[test]
    fn a_server_is_named_in_six_ways() {
        let group = |name: &str| GroupInfo {
            spec: GroupSpec { name: name.to_owned(), ..GroupSpec::default() },
            pod: name.contains("/pod").then(|| "shop/cart-0".to_owned()),
            pod_labels: [("app".to_owned(), name.len().to_string())].into(),
            ..GroupInfo::default()
        };
        let (pod, id) = ("1f9a6c0e-5b7d-4c3a-9e21-0a1b2c3d4e5f", "3f0a9c1b".repeat(8));
        let contained = format!("/kubepods/podPOD/{id}").replace("POD", pod);
        let groups = [group("/"), group("/system.slice/redis.service"), group(&contained)];
        let task =
            |group| TaskInfo { group: GroupId(group), ..TaskInfo::unknown(8, 7, "redis-server") };
        let in_pod = |asked: &str| Server::new(asked).is_meant(&task(2), &groups);
        assert!(in_pod(&format!("pod:{pod}")) && in_pod("container:3f0a9c1b3f0a"));
        assert!(!in_pod("pod:1f9a6c0e") && !in_pod("container:9c1b"));
        assert!(in_pod(&format!("pod:app={}", contained.len())) && !in_pod("pod:app=1"));
        assert!(in_pod("pod:shop/cart-*") && in_pod("pod:cart-0") && !in_pod("pod:cart"));
        let is = |asked: &str| Server::new(asked).is_meant(&task(1), &groups);
        for asked in ["redis-server", "redis*", "7", "8", "/system.slice/", "redis.service"] {
            assert!(is(asked), "{asked}");
        }
        for asked in ["redis", "9", "/system", "system.service"] {
            assert!(!is(asked), "{asked}");
        }
    }

    /// BIND's threads are called `isc-net-0000` and the like, and its first one does nothing.
    #[test]
    fn a_program_is_all_threads_of_its_processes() {
        let thread = |tid, pid, comm: &str, process: Option<&str>| TaskInfo {
            process: process.map(str::to_owned),
            ..TaskInfo::unknown(tid, pid, comm)
        };
        let header = Header {
            tasks: vec![
                thread(7, 7, "named", None),
                thread(8, 7, "isc-net-0000", Some("named")),
                thread(9, 9, "dnsperf", None),
            ],
            groups: vec![GroupSpec::default().into()],
            ..Header::default()
        };
        let tasks = |asked: &str| Server::new(asked).tasks(&header).expect(asked);
        assert_eq!(tasks("named"), [true, true, false]);
        assert_eq!(tasks("isc-net-*"), [false, true, false]);
        assert_eq!(Server::programs(&header, &tasks("named")), ["isc-net-0000", "named"]);
    }
}
