//! Which group a thread's CPU time is counted in: a control group (v1 or v2), else its autogroup.

use crate::facts::GroupFacts;
use crate::{HostError, proc};
use schedlab_model::text::shown;
use schedlab_model::{Bandwidth, GroupId, Nice, Ns};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the CPU controller lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Controller {
    /// cgroup v1, mounted here.
    V1(PathBuf),
    /// cgroup v2, mounted here, with the CPU controller in it.
    V2(PathBuf),
    /// None: only the root group (and autogroups).
    Absent,
}

impl Controller {
    /// Reads /proc/self/mounts.
    pub(crate) fn find() -> Controller {
        let (v1, unified) = roots(&fs::read_to_string("/proc/self/mounts").unwrap_or_default());
        if let Some(root) = v1 {
            return Controller::V1(root);
        }
        let has_cpu = |root: &PathBuf| {
            let controllers = fs::read_to_string(root.join("cgroup.controllers"));
            controllers.is_ok_and(|text| text.split_whitespace().any(|c| c == "cpu"))
        };
        unified.filter(has_cpu).map_or(Controller::Absent, Controller::V2)
    }
}

/// Which hierarchy a group is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hierarchy {
    /// That of cgroup v1 in which CPU time is counted.
    Cpu,
    /// cgroup v2.
    Unified,
}

/// A control group that was asked for by its path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FoundGroup {
    pub(crate) hierarchy: Hierarchy,
    /// The kernel's number of it.
    pub(crate) id: u64,
    /// Its path inside the hierarchy, `/` for the root.
    path: String,
}

impl FoundGroup {
    /// The path by which [`Groups`] knows it.
    pub(crate) fn path_of_cpu_controller(self) -> Result<String, HostError> {
        let counted = match Controller::find() {
            Controller::V1(_) => Hierarchy::Cpu,
            _ => Hierarchy::Unified,
        };
        if self.hierarchy == counted {
            return Ok(self.path);
        }
        let detail = "it is not in the hierarchy of the CPU controller; only the backend `bpf` \
                      can choose by it";
        Err(HostError::NoGroup { path: self.path, detail: detail.to_owned() })
    }
}

/// The group at `path`: a directory of a cgroup file system, or a path inside the CPU controller's
/// hierarchy or, failing that, cgroup v2.
pub(crate) fn find_group(path: &str) -> Result<FoundGroup, HostError> {
    let (v1, v2) = roots(&fs::read_to_string("/proc/self/mounts").unwrap_or_default());
    let roots = [(v1, Hierarchy::Cpu), (v2, Hierarchy::Unified)];
    let roots = roots.iter().filter_map(|(root, hierarchy)| Some((root.as_ref()?, *hierarchy)));
    let relative = path.trim_matches('/');
    for (root, hierarchy) in roots.clone() {
        let inside =
            Path::new(path).strip_prefix(root).ok().map(|rest| rest.to_string_lossy().into_owned());
        for rest in inside.iter().map(String::as_str).chain([relative]) {
            let directory = root.join(rest);
            if directory.join("cgroup.procs").exists()
                && let Ok(metadata) = fs::metadata(&directory)
            {
                let id = std::os::unix::fs::MetadataExt::ino(&metadata);
                return Ok(FoundGroup {
                    hierarchy,
                    id,
                    path: format!("/{}", rest.trim_end_matches('/')),
                });
            }
        }
    }
    let known: Vec<String> = roots.map(|(root, _)| root.display().to_string()).collect();
    let detail = if known.is_empty() {
        "no cgroup file system with a CPU controller is mounted here".to_owned()
    } else {
        format!("there is no such directory below {}", known.join(" or "))
    };
    Err(HostError::NoGroup { path: path.to_owned(), detail })
}

/// Where the CPU controller of cgroup v1 and where cgroup v2 are mounted.
fn roots(mounts: &str) -> (Option<PathBuf>, Option<PathBuf>) {
    let (mut v1, mut v2) = (None, None);
    for line in mounts.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            [_, at, "cgroup", options, ..] if options.split(',').any(|o| o == "cpu") => {
                v1 = Some(at.into())
            }
            [_, at, "cgroup2", ..] => v2 = Some(at.into()),
            _ => {}
        }
    }
    (v1, v2)
}

/// The groups met so far, in the order in which they were met. The first is the root.
#[derive(Debug)]
pub(crate) struct Groups {
    controller: Controller,
    /// To which group the paths of `/proc/TID/cgroup` are relative.
    own: String,
    autogroup: bool,
    known: Vec<GroupFacts>,
    /// How many of `known` were handed out by [`Groups::fresh`].
    told: usize,
}

impl Groups {
    pub(crate) fn new() -> Groups {
        let autogroup = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
        let controller = Controller::find();
        let own = match &controller {
            Controller::V1(root) | Controller::V2(root) => {
                let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
                namespace_root(root, std::process::id(), &own)
            }
            Controller::Absent => "/".to_owned(),
        };
        let mut groups = Groups {
            controller,
            own,
            autogroup: autogroup.is_ok_and(|text| text.trim() == "1"),
            known: Vec::new(),
            told: 0,
        };
        let root = groups.read(GroupId::ROOT, "/", None);
        groups.known.push(root);
        groups
    }

    /// The groups that were not handed out yet.
    pub(crate) fn fresh(&mut self) -> &[GroupFacts] {
        let from = std::mem::replace(&mut self.told, self.known.len());
        &self.known[from..]
    }

    /// The path of a group.
    pub(crate) fn path(&self, id: GroupId) -> &str {
        &self.known[id.index()].path
    }

    /// The group of a thread; the root when nothing can be read.
    pub(crate) fn of_thread(&mut self, tid: u32) -> GroupId {
        let membership = fs::read_to_string(format!("/proc/{tid}/cgroup")).unwrap_or_default();
        let path = self.cpu_path(&membership);
        if path != "/" {
            return self.group(&path);
        }
        if !self.autogroup {
            return GroupId::ROOT;
        }
        // "/autogroup-9 nice 0"; empty for threads that have none (the kernel's own).
        let text = fs::read_to_string(format!("/proc/{tid}/autogroup")).unwrap_or_default();
        match text.trim().split_once(" nice ") {
            Some((path, nice)) => self.autogroup(tid, path, nice),
            None => GroupId::ROOT,
        }
    }

    /// The path of the CPU controller out of `/proc/TID/cgroup`.
    fn cpu_path(&self, membership: &str) -> String {
        let mut lines = membership.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            Some((parts.next()?, parts.next()?, parts.next()?))
        });
        let found = match &self.controller {
            Controller::V1(_) => lines.find(|(_, names, _)| names.split(',').any(|n| n == "cpu")),
            Controller::V2(_) => {
                lines.find(|&(number, names, _)| number == "0" && names.is_empty())
            }
            Controller::Absent => None,
        };
        let path = resolved(&self.own, found.map_or("/", |(_, _, path)| path));
        match &self.controller {
            Controller::V2(root) => with_controller(root, &path),
            _ => path,
        }
    }

    fn group(&mut self, path: &str) -> GroupId {
        if let Some(known) = self.known.iter().find(|g| g.path == path) {
            return known.id;
        }
        let parent = match Path::new(path).parent().and_then(Path::to_str) {
            Some(above) => self.group(above),
            None => GroupId::ROOT,
        };
        let id = GroupId::from(self.known.len());
        let facts = self.read(id, path, Some(parent));
        self.known.push(facts);
        id
    }

    fn autogroup(&mut self, tid: u32, path: &str, nice: &str) -> GroupId {
        if let Some(known) = self.known.iter().find(|g| g.path == path) {
            return known.id;
        }
        let id = GroupId::from(self.known.len());
        let nice: Nice = nice.parse().ok().and_then(Nice::new).unwrap_or_default();
        let weight = Some(AUTOGROUP_WEIGHTS[nice.table_index()]);
        let facts = bare(id, path.to_owned(), Some(GroupId::ROOT));
        // A session has the number of the process that began it.
        let leader = proc::text(&format!("/proc/{}/comm", proc::origin(tid).session));
        let leader = leader.map(|name| shown(name.trim_end_matches('\n')).into_owned());
        self.known.push(GroupFacts { autogroup_nice: Some(nice), weight, leader, ..facts });
        id
    }

    fn read(&self, id: GroupId, path: &str, parent: Option<GroupId>) -> GroupFacts {
        let facts = bare(id, path.to_owned(), parent);
        let inside = |root: &PathBuf| root.join(path.trim_start_matches('/'));
        match &self.controller {
            Controller::V1(root) => v1(&inside(root), facts),
            Controller::V2(root) => v2(&inside(root), facts),
            Controller::Absent => facts,
        }
    }
}

/// The folders of the control groups in which the CPU time of thread `tid` is counted, the
/// innermost first, without the root: any of them may limit it. Empty when there are none.
pub fn cpu_groups_of(tid: u32) -> Vec<PathBuf> {
    let groups = Groups::new();
    let (Controller::V1(root) | Controller::V2(root)) = &groups.controller else {
        return Vec::new();
    };
    let membership = fs::read_to_string(format!("/proc/{tid}/cgroup")).unwrap_or_default();
    let folder = root.join(groups.cpu_path(&membership).trim_start_matches('/'));
    let below_root = |folder: &&Path| folder.starts_with(root) && *folder != root.as_path();
    folder.ancestors().take_while(below_root).map(Path::to_owned).collect()
}

/// Weight of an autogroup by its nice value, −20 first, in the unit of `cpu.shares`: the kernel
/// gives it the weight that a task of that nice value has (a step is about 25 %).
const AUTOGROUP_WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

fn bare(id: GroupId, path: String, parent: Option<GroupId>) -> GroupFacts {
    GroupFacts {
        id,
        path,
        parent,
        weight: None,
        idle: false,
        bandwidth: None,
        rt_runtime_us: None,
        autogroup_nice: None,
        leader: None,
    }
}

/// Folders in which a process is looked for: a node of Kubernetes has some thousand control groups.
const MOST_FOLDERS: usize = 100_000;

/// Returns the group that paths of `/proc/TID/cgroup` are relative to, in the mounted hierarchy:
/// `/`, but for a container with a cgroup namespace of its own that has the host's hierarchy mounted
/// (cgroup_namespaces(7)): there it is the group in which process `pid`, which is this one, is
/// found. `own` is its `/proc/self/cgroup`.
fn namespace_root(root: &Path, pid: u32, own: &str) -> String {
    let paths: Vec<&str> = own.lines().filter_map(|line| line.splitn(3, ':').nth(2)).collect();
    let is_there = |folder: &Path| {
        let all = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        all.lines().any(|line| line.parse() == Ok(pid))
    };
    if paths.iter().any(|path| is_there(&root.join(path.trim_start_matches('/')))) {
        return "/".to_owned();
    }
    // No symbolic links in cgroup file systems, so no circles.
    let mut folders = vec![root.to_owned()];
    let mut looked = 0;
    while let Some(folder) = folders.pop() {
        looked += 1;
        if is_there(&folder) {
            let below = folder.strip_prefix(root).unwrap_or(Path::new(""));
            let found = format!("/{}", below.display());
            return without(&found, &paths).unwrap_or_else(|| "/".to_owned());
        }
        if looked >= MOST_FOLDERS {
            break;
        }
        let below = fs::read_dir(&folder).into_iter().flatten().flatten();
        let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        folders.extend(below.filter(is_folder).map(|entry| entry.path()));
    }
    "/".to_owned()
}

/// Returns `found` without one of these paths at its end: what they are relative to.
fn without(found: &str, paths: &[&str]) -> Option<String> {
    let base = paths.iter().filter_map(|path| found.strip_suffix(path.trim_end_matches('/')));
    // The longest path is the most exact; `/` fits everything.
    let base = base.min_by_key(|base| base.len())?;
    Some(if base.is_empty() { "/".to_owned() } else { base.to_owned() })
}

/// Returns a path that is relative to `own` as one of the hierarchy. What lies outside of a cgroup
/// namespace begins with `/..`.
fn resolved(own: &str, path: &str) -> String {
    let mut parts: Vec<&str> = own.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// cgroup v2: the nearest ancestor in which the CPU controller is switched on.
fn with_controller(root: &Path, path: &str) -> String {
    let mut path = Path::new(path);
    loop {
        let here = root.join(path.strip_prefix("/").unwrap_or(path));
        if here.join("cpu.weight").exists() {
            return path.to_string_lossy().into_owned();
        }
        match path.parent() {
            Some(above) => path = above,
            None => return "/".to_owned(),
        }
    }
}

fn number<T: std::str::FromStr>(directory: &Path, file: &str) -> Option<T> {
    fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok()
}

fn v1(directory: &Path, facts: GroupFacts) -> GroupFacts {
    let period = number::<u64>(directory, "cpu.cfs_period_us").unwrap_or(100_000);
    let quota = number::<i64>(directory, "cpu.cfs_quota_us").and_then(|us| u64::try_from(us).ok());
    let burst = number::<u64>(directory, "cpu.cfs_burst_us").unwrap_or(0);
    GroupFacts {
        weight: number(directory, "cpu.shares"),
        idle: number::<i64>(directory, "cpu.idle") == Some(1),
        bandwidth: quota.map(|quota| Bandwidth {
            quota: Ns::from_us(quota),
            period: Ns::from_us(period),
            burst: Ns::from_us(burst),
        }),
        rt_runtime_us: number(directory, "cpu.rt_runtime_us"),
        ..facts
    }
}

fn v2(directory: &Path, facts: GroupFacts) -> GroupFacts {
    // cpu.weight 100 is the default, as cpu.shares 1024 is.
    let weight =
        number::<u64>(directory, "cpu.weight").map(|weight| (weight * 1024).div_ceil(100) as u32);
    let max = fs::read_to_string(directory.join("cpu.max")).unwrap_or_default();
    let burst = number::<u64>(directory, "cpu.max.burst").unwrap_or(0);
    GroupFacts {
        weight,
        idle: number::<i64>(directory, "cpu.idle") == Some(1),
        bandwidth: cpu_max(&max, burst),
        ..facts
    }
}

/// `cpu.max`: "max 100000" or "20000 100000".
fn cpu_max(text: &str, burst_us: u64) -> Option<Bandwidth> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some(Bandwidth {
        quota: Ns::from_us(quota.parse().ok()?),
        period: Ns::from_us(period.parse().ok()?),
        burst: Ns::from_us(burst_us),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(controller: Controller) -> Groups {
        let known = vec![bare(GroupId::ROOT, "/".to_owned(), None)];
        Groups { controller, own: "/".to_owned(), autogroup: false, known, told: 0 }
    }

    #[test]
    fn finds_the_path_of_the_cpu_controller() {
        let v1 = groups(Controller::V1("/nowhere".into()));
        assert_eq!(v1.cpu_path("9:name=systemd:/\n2:cpuacct,cpu:/batch/a\n0::/x\n"), "/batch/a");
        assert_eq!(v1.cpu_path(""), "/");
        let v2 = groups(Controller::V2("/nowhere".into()));
        assert_eq!(v2.cpu_path("0::/x/y\n"), "/", "no cpu.weight on the way up");
    }

    /// A pod that has the host's hierarchy mounted and a cgroup namespace of its own: paths in
    /// /proc are relative to its container's group.
    #[test]
    fn paths_of_another_namespace_are_resolved() {
        let own = "/kubepods/burstable/podA/c1";
        assert_eq!(resolved(own, "/"), own);
        assert_eq!(resolved(own, "/../../podB/c2"), "/kubepods/burstable/podB/c2");
        assert_eq!(resolved(own, "/../../../../system.slice/x.service"), "/system.slice/x.service");
        assert_eq!(resolved("/", "/system.slice/x.service"), "/system.slice/x.service");
        assert_eq!(resolved("/", "/../../podB"), "/podB", "not above the root");
        assert_eq!(without(own, &["/"]).as_deref(), Some(own));
        assert_eq!(without(own, &["/", own]).as_deref(), Some("/"), "not in a namespace");
        assert_eq!(without("/a/b/c", &["/b/c"]).as_deref(), Some("/a"));

        let root = std::env::temp_dir().join(format!("schedlab-groups-{}", std::process::id()));
        let folder = root.join("kubepods/podA/c1");
        fs::create_dir_all(&folder).unwrap();
        for (at, text) in [(&root, "1\n2\n"), (&folder, "7\n4711\n")] {
            fs::write(at.join("cgroup.procs"), text).unwrap();
        }
        let of = |pid, own: &str| namespace_root(&root, pid, own);
        let found = [of(4711, "0::/\n"), of(4711, "0::/kubepods/podA/c1\n"), of(9, "0::/\n")];
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, ["/kubepods/podA/c1", "/", "/"]);
    }

    #[test]
    fn parents_come_before_children() {
        let mut v1 = groups(Controller::V1("/nowhere".into()));
        let id = v1.group("/a/b");
        let paths: Vec<_> = v1.fresh().iter().map(|g| (g.path.clone(), g.parent)).collect();
        assert_eq!(id, GroupId(2));
        assert_eq!(paths[1], ("/a".to_owned(), Some(GroupId::ROOT)));
        assert_eq!(paths[2], ("/a/b".to_owned(), Some(GroupId(1))));
        assert!(v1.fresh().is_empty());
    }

    #[test]
    fn reads_cpu_max() {
        assert_eq!(cpu_max("max 100000\n", 0), None);
        let limit = cpu_max("20000 100000\n", 0).unwrap();
        assert_eq!((limit.quota, limit.period), (Ns::from_ms(20), Ns::from_ms(100)));
    }
}
