//! Which systemd unit, container and Kubernetes pod a control group belongs to, by its path alone:
//! programs that start such things name their groups by rules, and no daemon has to be asked. Paths
//! of cgroup v1 (the `cpu` controller's) and v2 follow the same rules.

use crate::{GroupInfo, Header, TaskInfo};
use schedlab_model::text::glob;

/// A container, as its control group names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Container<'a> {
    /// What started it: `docker`, `podman`, `containerd`, `cri-o`, `lxc`, `machine`
    /// (systemd-machined: nspawn, libvirt), or `container` where the path does not tell.
    pub runtime: &'a str,
    /// Its id or name.
    pub id: &'a str,
}

/// A pod of Kubernetes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    /// Its uid, as `kubectl get pod -o jsonpath={.metadata.uid}` prints it.
    pub uid: String,
    /// Its class of service: `guaranteed`, `burstable` or `besteffort`.
    pub qos: &'static str,
}

/// What container runtimes put before the id of a container, and their names: Docker's systemd
/// driver, containerd's and CRI-O's plugins for Kubernetes, podman, nerdctl.
const PREFIXES: [(&str, &str); 6] = [
    ("docker", "docker"),
    ("cri-containerd", "containerd"),
    ("nerdctl", "containerd"),
    ("crio", "cri-o"),
    ("libpod", "podman"),
    ("libpod_parent", "podman"),
];

/// The shortest id that counts: shorter runs of hexadecimal digits occur in names. Ids have 64
/// (OCI runtimes) or 32 digits.
const ID_DIGITS: usize = 32;

/// How the names of units end that hold processes of their own, and those that hold units.
const UNIT_ENDS: ([&str; 2], [&str; 1]) = ([".service", ".scope"], [".slice"]);

fn ends(name: &str, ends: &[&str]) -> bool {
    ends.iter().any(|end| name.len() > end.len() && name.ends_with(end))
}

/// Returns whether this is the name of a systemd unit that has a control group.
pub fn is_unit(name: &str) -> bool {
    ends(name, &UNIT_ENDS.0) || ends(name, &UNIT_ENDS.1)
}

/// Returns the unit of systemd to which `path` belongs: the innermost service or scope, or, where
/// there is none, the innermost slice.
pub fn unit(path: &str) -> Option<&str> {
    let last = |kinds: &[&str]| path.rsplit('/').find(|part| ends(part, kinds));
    last(&UNIT_ENDS.0).or_else(|| last(&UNIT_ENDS.1))
}

/// Returns what the unit of a task is called; where systemd has made no group for it, the session
/// whose autogroup it is in. `leader` is the name of a process of the recording, by its id.
pub fn unit_name<'a>(
    header: &Header,
    task: &TaskInfo,
    leader: impl FnOnce(u32) -> Option<&'a str>,
) -> String {
    let group = header.groups.get(task.group.index());
    if let Some(unit) = group.and_then(|group| unit(&group.spec.name)) {
        return unit.to_owned();
    }
    if task.kernel {
        return "(kernel)".to_owned();
    }
    let own = task.session.zip(group.filter(|group| group.spec.autogroup));
    let Some((session, group)) = own else { return "(no unit)".to_owned() };
    // A session has the number of the process that began it, which may have slept all the time.
    group.leader.as_deref().or_else(|| leader(session)).map_or_else(
        || format!("session {session}"),
        |leader| format!("session of {leader} ({session})"),
    )
}

/// Returns the innermost container to which `path` belongs.
pub fn container(path: &str) -> Option<Container<'_>> {
    let parts: Vec<&str> = path.split('/').collect();
    (1..parts.len()).rev().find_map(|at| container_at(parts[at - 1], parts[at]))
}

fn container_at<'a>(parent: &'a str, part: &'a str) -> Option<Container<'a>> {
    let scope = part.strip_suffix(".scope");
    let stem = scope.unwrap_or(part);
    if let Some(id) = stem.strip_prefix("lxc.payload.") {
        return Some(Container { runtime: "lxc", id });
    }
    // LXC before 4.0.
    if parent == "lxc" && !part.is_empty() {
        return Some(Container { runtime: "lxc", id: part });
    }
    if let Some(id) = scope.and_then(|stem| stem.strip_prefix("machine-")) {
        return Some(Container { runtime: "machine", id });
    }
    let (prefix, id) = stem.rsplit_once(['-', ':']).unwrap_or(("", stem));
    let is_id = id.len() >= ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    // `crio-conmon-ID` and `libpod-conmon-ID` watch a container from outside. A pod's folder may
    // end with digits alone, too.
    if !is_id || prefix.ends_with("conmon") || part.ends_with(".slice") {
        return None;
    }
    let named = |text: &str| PREFIXES.into_iter().find(|(name, _)| *name == text);
    let runtime = match named(prefix).or_else(|| named(parent)) {
        Some((_, runtime)) => runtime,
        None if prefix.is_empty() => "container",
        None => prefix,
    };
    Some(Container { runtime, id })
}

/// Returns the pod to which `path` belongs. The kubelet names its groups (cgroup_manager_linux.go):
/// `kubepods/burstable/podUID`, or, where systemd makes them,
/// `kubepods-burstable-podUID.slice` with `_` for each `-` of the uid.
pub fn pod(path: &str) -> Option<Pod> {
    let mut qos = None;
    for part in path.split('/') {
        let name = part.strip_suffix(".slice").unwrap_or(part);
        if name.split('-').any(|word| word == "kubepods") {
            qos = Some("guaranteed");
        }
        let Some(known) = &mut qos else { continue };
        for class in ["burstable", "besteffort"] {
            if name == class || name.split('-').any(|word| word == class) {
                *known = class;
            }
        }
        let uid = if part.ends_with(".slice") {
            name.rsplit_once("-pod").map(|(_, uid)| uid)
        } else {
            name.strip_prefix("pod")
        };
        if let Some(uid) = uid.filter(|uid| is_uid(uid)) {
            return Some(Pod { uid: uid.replace('_', "-"), qos: known });
        }
    }
    None
}

/// Returns what the pod of a group is called: namespace and name where the recorder knew them, else
/// the uid; and the class of service. Pods that follow each other under one name, as those of a
/// StatefulSet do, are one.
pub fn pod_name(group: &GroupInfo) -> Option<String> {
    let pod = pod(&group.spec.name)?;
    let name = group.pod.as_deref().unwrap_or(&pod.uid);
    Some(format!("{name} ({})", pod.qos))
}

/// Returns whether a group belongs to the pod that a user names: by its uid, by `NAME` or
/// `NAMESPACE/NAME`, each a name or a glob, or by a label, `KEY=VALUE`, its value a glob, too.
pub fn is_in_pod(group: &GroupInfo, asked: &str) -> bool {
    let Some(pod) = pod(&group.spec.name) else { return false };
    // No name and no uid has this sign in it.
    if let Some((key, value)) = asked.split_once('=') {
        return group.pod_labels.get(key).is_some_and(|own| glob(value, own));
    }
    let is_named = |full: &String| {
        let name = full.split_once('/').map_or(full.as_str(), |(_, name)| name);
        glob(asked, if asked.contains('/') { full } else { name })
    };
    pod.uid == asked || group.pod.as_ref().is_some_and(is_named)
}

/// Returns whether a text is a pod's uid: 32 hexadecimal digits, in five groups or, for pods that a
/// kubelet reads from files, in one.
fn is_uid(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
    digits == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || b"-_".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f0a9c1b2d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8";
    const UID: &str = "1f9a6c0e-5b7d-4c3a-9e21-0a1b2c3d4e5f";

    /// Paths as the programs make them; `ID`, `UID` and `UID_` are replaced. Behind each its unit,
    /// container and pod; `-` for none.
    const PATHS: &str = "\
/ | - | - | -
/system.slice/redis-server.service | redis-server.service | - | -
/system.slice/system-postgresql.slice/postgresql@15-main.service | postgresql@15-main.service | - | -
/user.slice/user-1000.slice/session-3.scope | session-3.scope | - | -
/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.service | app-x.service | - | -
/user.slice | user.slice | - | -
/system.slice/docker-ID.scope | docker-ID.scope | docker ID | -
/docker/ID | - | docker ID | -
/system.slice/nerdctl-ID.scope | nerdctl-ID.scope | containerd ID | -
/default/ID | - | container ID | -
/machine.slice/libpod-ID.scope/container | libpod-ID.scope | podman ID | -
/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope | libpod-ID.scope | podman ID | -
/libpod_parent/libpod-ID | - | podman ID | -
/machine.slice/libpod-conmon-ID.scope | libpod-conmon-ID.scope | - | -
/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID_.slice/cri-containerd-ID.scope | cri-containerd-ID.scope | containerd ID | UID burstable
/kubepods.slice/kubepods-podUID_.slice/crio-ID.scope | crio-ID.scope | cri-o ID | UID guaranteed
/kubepods.slice/kubepods-podUID_.slice/crio-conmon-ID.scope | crio-conmon-ID.scope | - | UID guaranteed
/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podUID_.slice | kubepods-besteffort-podUID_.slice | - | UID besteffort
/kubepods/besteffort/podUID/ID | - | container ID | UID besteffort
/kubepods/podUID/crio-ID | - | cri-o ID | UID guaranteed
/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-podUID_.slice/cri-containerd-ID.scope | cri-containerd-ID.scope | containerd ID | UID burstable
/lxc.payload.web | - | lxc web | -
/lxc.payload.web/system.slice/nginx.service | nginx.service | lxc web | -
/lxc.monitor.web | - | - | -
/lxc/web | - | lxc web | -
/machine.slice/machine-qemu\\x2d1\\x2dweb.scope/libvirt/vcpu0 | machine-qemu\\x2d1\\x2dweb.scope | machine qemu\\x2d1\\x2dweb | -
/build-deadbeef/podium | - | - | -
/autogroup-519 | - | - | -";

    #[test]
    fn paths_of_five_runtimes_and_two_drivers() {
        let full = |text: &str| {
            text.replace("UID_", &UID.replace('-', "_")).replace("UID", UID).replace("ID", ID)
        };
        for line in PATHS.lines() {
            let fields: Vec<String> = line.split(" | ").map(full).collect();
            let path = &fields[0];
            let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            assert_eq!(or(unit(path).map(str::to_owned)), fields[1], "unit of {path}");
            let container = container(path).map(|one| format!("{} {}", one.runtime, one.id));
            assert_eq!(or(container), fields[2], "container of {path}");
            let pod = pod(path).map(|one| format!("{} {}", one.uid, one.qos));
            assert_eq!(or(pod), fields[3], "pod of {path}");
        }
    }

    #[test]
    fn a_pod_is_called_by_its_name_where_it_is_known() {
        let path = format!("/kubepods/burstable/pod{UID}/{ID}");
        let group = |pod: Option<&str>| GroupInfo {
            spec: schedlab_model::GroupSpec { name: path.clone(), ..Default::default() },
            pod: pod.map(str::to_owned),
            ..GroupInfo::default()
        };
        let (named, unknown) = (group(Some("shop/checkout-7d9f")), group(None));
        assert_eq!(pod_name(&named).unwrap(), "shop/checkout-7d9f (burstable)");
        assert_eq!(pod_name(&unknown).unwrap(), format!("{UID} (burstable)"));
        assert_eq!(pod_name(&GroupInfo::default()), None);
        for asked in [UID, "checkout-7d9f", "checkout-*", "shop/checkout-7d9f", "*/checkout-*"] {
            assert!(is_in_pod(&named, asked), "{asked}");
        }
        for asked in ["checkout", "shop", "cart/checkout-7d9f", "checkout-7d9f/"] {
            assert!(!is_in_pod(&named, asked), "{asked}");
        }
        assert!(is_in_pod(&unknown, UID) && !is_in_pod(&unknown, "checkout-*"));
        let labels = [("app.kubernetes.io/name", "checkout"), ("tier", "")];
        let pod_labels =
            labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect();
        let labelled = GroupInfo { pod_labels, ..unknown.clone() };
        for asked in ["app.kubernetes.io/name=checkout", "app.kubernetes.io/name=check*", "tier="] {
            assert!(is_in_pod(&labelled, asked) && !is_in_pod(&unknown, asked), "{asked}");
        }
        for asked in ["app.kubernetes.io/name=cart", "app=checkout", "tier=x", "=checkout"] {
            assert!(!is_in_pod(&labelled, asked), "{asked}");
        }
    }

    #[test]
    fn an_autogroup_is_called_by_its_session() {
        let group = |name: &str, leader: Option<&str>| GroupInfo {
            spec: schedlab_model::GroupSpec {
                name: name.to_owned(),
                autogroup: name.starts_with("/autogroup"),
                ..Default::default()
            },
            leader: leader.map(str::to_owned),
            ..GroupInfo::default()
        };
        let groups = vec![
            group("/", None),
            group("/autogroup-9", Some("bash")),
            group("/autogroup-10", None),
            group("/lab", None),
            group("/system.slice/redis.service", None),
        ];
        let header = Header { groups, ..Header::default() };
        let name = |group: u32, session: Option<u32>| {
            let group = schedlab_model::GroupId(group);
            let task = TaskInfo { group, session, ..TaskInfo::unknown(7, 7, "x") };
            unit_name(&header, &task, |id| (id == 500).then_some("sshd"))
        };
        assert_eq!(name(1, Some(500)), "session of bash (500)", "as it was when it was recorded");
        assert_eq!(name(2, Some(500)), "session of sshd (500)");
        assert_eq!(name(2, Some(501)), "session 501");
        assert_eq!(name(2, None), "(no unit)");
        assert_eq!(name(3, Some(500)), "(no unit)", "its group is no session's");
        assert_eq!(name(4, Some(500)), "redis.service");
    }

    #[test]
    fn the_innermost_container_counts() {
        let other = ID.replace('3', "4");
        let path = format!("/docker/{ID}/docker/{other}");
        assert_eq!(container(&path), Some(Container { runtime: "docker", id: &other }));
    }
}
