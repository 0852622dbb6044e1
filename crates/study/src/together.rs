//! How tasks are taken together in results: by name, or by what they belong to (a control group, a
//! unit of systemd, a container, a pod of Kubernetes, a guest of KVM), called as `schedlab show
//! --by` calls them.

use crate::view::is_own;
use schedlab_model::text::nearest;
use schedlab_trace::Header;
use schedlab_trace::analysis::{By, Keys, Label};
use schedlab_trace::guests::Guests;
use std::fmt;
use std::str::FromStr;

/// What tasks are taken together by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Together(
    /// `None`: by guest in a recording of a host that has some (threads of all guests of one
    /// program have the same names), else by name.
    Option<By>,
);

/// What a user may write for it.
const WAYS: [(&str, By); 7] = [
    ("name", By::Name),
    ("process", By::Process),
    ("cgroup", By::Cgroup),
    ("unit", By::Unit),
    ("container", By::Container),
    ("pod", By::Pod),
    ("guest", By::Guest),
];

impl FromStr for Together {
    type Err = String;

    fn from_str(text: &str) -> Result<Together, String> {
        let names = || WAYS.iter().map(|(name, _)| *name);
        match WAYS.iter().find(|(name, _)| *name == text) {
            Some((_, by)) => Ok(Together(Some(*by))),
            None => {
                let all = names().collect::<Vec<_>>().join(", ");
                let hint = nearest(text, names()).map(|right| format!("did you mean `{right}`? "));
                Err(format!(
                    "'{text}': {}tasks are taken together by {all}",
                    hint.unwrap_or_default()
                ))
            }
        }
    }
}

impl fmt::Display for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Together {
    /// Returns the way of `show --by`; `None`: every thread is alone there.
    pub fn new(by: By) -> Option<Together> {
        (by != By::Thread).then_some(Together(Some(by)))
    }

    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        WAYS.iter().find(|(_, by)| Some(*by) == self.0).map_or("name", |(word, _)| word)
    }

    /// Whether tasks of one name are together.
    pub fn is_by_name(self) -> bool {
        matches!(self.0, None | Some(By::Name))
    }

    /// Returns how the tasks of this recording are taken together.
    pub fn of(self, header: &Header) -> Together {
        let own = || if Guests::of(header).is_empty() { By::Name } else { By::Guest };
        Together(Some(self.0.unwrap_or_else(own)))
    }

    /// Returns for each task what the tasks that it is taken together with are called. schedlab's
    /// own threads keep their names: results leave their cost out by these.
    pub fn names(self, header: &Header) -> Vec<String> {
        let keys = Keys::new(header, self.of(header).0.unwrap_or(By::Name));
        let name = |(index, task): (usize, &schedlab_trace::TaskInfo)| match &keys.labels
            [keys.line(schedlab_model::TaskId::from(index))]
        {
            Label::Name(name) if !is_own(&task.comm) => name.clone(),
            _ => task.comm.clone(),
        };
        header.tasks.iter().enumerate().map(name).collect()
    }

    /// Returns the header in which every task is called as [`Together::names`] says.
    pub fn named(self, header: &Header) -> Header {
        let mut named = header.clone();
        for (task, name) in named.tasks.iter_mut().zip(self.names(header)) {
            task.comm = name;
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{GroupId, GroupSpec};
    use schedlab_trace::{GroupInfo, TaskInfo};

    #[test]
    fn tasks_are_called_as_what_they_belong_to() {
        let group = |name: &str| GroupInfo {
            spec: GroupSpec { name: name.to_owned(), ..GroupSpec::default() },
            ..GroupInfo::default()
        };
        let uid = "1f9a6c0e-5b7d-4c3a-9e21-0a1b2c3d4e5f";
        let pod = format!("/kubepods/burstable/pod{uid}/{}", "3f0a9c1b".repeat(8));
        let task = |tid, name: &str, group| TaskInfo {
            group: GroupId(group),
            ..TaskInfo::unknown(tid, tid, name)
        };
        let header = Header {
            tasks: vec![task(7, "redis-server", 1), task(8, "java", 2), task(9, "schedlab", 1)],
            groups: vec![group("/"), group("/system.slice/redis.service"), group(&pod)],
            ..Header::default()
        };
        let names = |by: &str| by.parse::<Together>().unwrap().names(&header);
        assert_eq!(names("name"), ["redis-server", "java", "schedlab"]);
        assert_eq!(names("unit"), ["redis.service", "(no unit)", "schedlab"]);
        let of_pod = format!("{uid} (burstable)");
        assert_eq!(names("pod"), ["(no pod)", &of_pod, "schedlab"]);
        assert_eq!(names("container")[1], "container 3f0a9c1b3f0a");
        let named = "process".parse::<Together>().unwrap().named(&header);
        assert_eq!(named.tasks[0].comm, "redis-server (7)");
        // Threads of all guests have the same names.
        let default = |header: &Header| Together::default().of(header).word();
        assert_eq!((default(&header), Together::default().names(&header).len()), ("name", 3));
        let mut host = header.clone();
        host.tasks[1].vcpu = true;
        assert_eq!(default(&host), "guest");
        assert_eq!(Together::default().names(&host)[0], "redis-server");
        let guest = &Together::default().names(&host)[1];
        assert_eq!(guest, "java (8)");
        assert_eq!("name".parse::<Together>().unwrap().of(&host).names(&host)[1], "java");
        let wrong = "pods".parse::<Together>().unwrap_err();
        assert!(wrong.contains("did you mean `pod`"), "{wrong}");
    }
}
