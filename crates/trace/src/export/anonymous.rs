//! A recording that a stranger may have: what happened and when stays, and what things are called
//! goes. The same name gives the same pseudonym under the same key, so that several recordings of
//! one machine still fit together; without the key a name cannot be tried out.

use crate::{Header, Recording};
use std::collections::{BTreeMap, BTreeSet};

/// What the key of the hash is derived for, as BLAKE3 wants it: unlike any other use of the same
/// key.
const CONTEXT: &str = "schedlab 2026-11-29 names of anonymous recordings";

/// Words of control groups that programs choose, not people: which runtime and class a group is of
/// can still be told ([`owner`](crate::owner)).
const WORDS: [&str; 27] = [
    "kubepods",
    "kubelet",
    "burstable",
    "besteffort",
    "docker",
    "cri",
    "containerd",
    "crio",
    "nerdctl",
    "libpod",
    "conmon",
    "lxc",
    "payload",
    "monitor",
    "machine",
    "qemu",
    "system",
    "user",
    "session",
    "init",
    "app",
    "autogroup",
    "service",
    "scope",
    "slice",
    "parent",
    "container",
];

/// Hexadecimal digits from which on a text is an id.
const ID_DIGITS: usize = 8;

/// Gives pseudonyms.
pub struct Pseudonyms([u8; 32]);

impl Pseudonyms {
    /// Returns those of a key, of any length.
    pub fn new(key: &[u8]) -> Pseudonyms {
        Pseudonyms(blake3::derive_key(CONTEXT, key))
    }

    /// Returns so many hexadecimal digits for a text.
    fn digits(&self, text: &str, digits: usize) -> String {
        let mut bytes = vec![0; digits.div_ceil(2)];
        blake3::Hasher::new_keyed(&self.0).update(text.as_bytes()).finalize_xof().fill(&mut bytes);
        let mut all: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        all.truncate(digits);
        all
    }

    /// Returns the pseudonym of a task's name. A number at its end stays: workers of one kind are
    /// still of one kind.
    fn task(&self, name: &str) -> String {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let kind = stem.trim_end_matches(['-', '_', '/', ':', '#', '.']);
        match kind.chars().any(char::is_alphabetic) {
            true => format!("t{}{}", self.digits(kind, 6), &name[kind.len()..]),
            false => name.to_owned(),
        }
    }

    /// Returns the path of a group with a pseudonym for each word that is no number and not in
    /// [`WORDS`].
    fn path(&self, path: &str) -> String {
        let mut text = String::new();
        let mut rest = path;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            text += &self.word(word);
            let separator = after.chars().next().map_or(0, char::len_utf8);
            text += &after[..separator];
            rest = &after[separator..];
        }
        text
    }

    fn word(&self, word: &str) -> String {
        let is_hex =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        if word.is_empty() || is_number && word.len() < ID_DIGITS || WORDS.contains(&word) {
            return word.to_owned();
        }
        // A pod's group has its uid, in parts where systemd makes it.
        let (pod, id) = word.strip_prefix("pod").map_or(("", word), |id| ("pod", id));
        if is_hex(id) && (id.len() >= 4) {
            return format!("{pod}{}", self.digits(id, id.len()));
        }
        format!("g{}", self.digits(word, 6))
    }

    /// Returns an end of a connection: the port stays, because it says which server it is.
    fn end(&self, end: &str) -> String {
        match end.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                format!("h{}:{port}", self.digits(host, 6))
            }
            _ if end.contains('/') => format!("/{}", self.digits(end, 8)),
            _ => end.to_owned(),
        }
    }
}

/// Replaces all names of a recording: of tasks, groups and ends of connections; process and thread
/// ids by numbers in their order; and drops the command, the note, the date and which boot of which
/// machine it was. Names of the kernel's own threads, its version, its settings and the processor's
/// model stay.
pub fn anonymous(recording: &mut Recording, names: &Pseudonyms) {
    let ids = ids(&recording.header);
    let id = |id: u32| ids.get(&id).copied().unwrap_or(id);
    let header = &mut recording.header;
    let mut renamed: BTreeMap<String, String> = BTreeMap::new();
    for task in &mut header.tasks {
        if !task.kernel && task.tid != 0 {
            let new = names.task(&task.comm);
            renamed.insert(std::mem::replace(&mut task.comm, new.clone()), new);
        }
        (task.tid, task.pid) = (id(task.tid), id(task.pid));
        task.session = task.session.map(id);
    }
    header.name_processes();
    for group in &mut header.groups {
        group.spec.name = names.path(&group.spec.name);
        group.pod = group.pod.as_deref().map(|pod| names.path(pod));
        let labels = std::mem::take(&mut group.pod_labels).into_iter();
        let hashed = |(key, value): (String, String)| (names.path(&key), names.path(&value));
        group.pod_labels = labels.map(hashed).collect();
        group.leader = group.leader.as_deref().map(|leader| names.task(leader));
    }
    if let Some(mut incident) = header.incident() {
        incident.tid = id(incident.tid);
        incident.condition = format!("a stretch that {}", incident.did);
        incident.task = renamed.get(&incident.task).cloned().unwrap_or(incident.task);
        header.set_incident(&incident);
    }
    for value in header.knobs.values_mut() {
        if let Some(new) = renamed.get(value) {
            value.clone_from(new);
        } else if value.starts_with('/') {
            *value = names.path(value);
        }
    }
    for ops in header.sched_ext.iter_mut().chain(&mut header.sched_ext_end) {
        ops.ops = ops.ops.as_deref().map(|ops| names.task(ops));
    }
    header.command.clear();
    for text in [&mut header.note, &mut header.date, &mut header.boot_id] {
        text.clear();
    }
    (header.clock_start_ns, header.realtime_offset_ns) = (0, None);
    for object in &mut recording.facts.objects {
        (object.from, object.to) = (names.end(&object.from), names.end(&object.to));
    }
}

/// Returns a number for each process and thread id, in their order. The idle task and the kernel's
/// first threads keep theirs.
fn ids(header: &Header) -> BTreeMap<u32, u32> {
    let of = |task: &crate::TaskInfo| [Some(task.tid), Some(task.pid), task.session];
    let all: BTreeSet<u32> =
        header.tasks.iter().flat_map(of).flatten().filter(|id| *id > 2).collect();
    all.into_iter().zip(1000..).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupInfo, Incident, TaskInfo, owner};
    use schedlab_model::{GroupId, GroupSpec, Ns, ObjectInfo, ObjectKind};

    fn names() -> Pseudonyms {
        Pseudonyms::new(b"secret")
    }

    #[test]
    fn no_name_stays_and_what_belongs_together_does() {
        let pod = "/kubepods.slice/kubepods-pod1f9a6c0e_5b7d_4c3a_9e21_0a1b2c3d4e5f.slice";
        let path = format!("{pod}/cri-containerd-{}.scope", "3f0a9c1b".repeat(8));
        let group = |name: &str| GroupInfo {
            spec: GroupSpec {
                name: name.to_owned(),
                parent: (name != "/").then_some(GroupId::ROOT),
                ..GroupSpec::default()
            },
            leader: Some("payroll".to_owned()),
            pod_labels: [("payroll/app".to_owned(), "payroll".to_owned())].into(),
            ..GroupInfo::default()
        };
        let task = |tid, comm: &str, group| TaskInfo {
            group: GroupId(group),
            session: Some(4711),
            ..TaskInfo::unknown(tid, 4711, comm)
        };
        let mut header = Header {
            tasks: vec![
                task(4711, "payroll", 1),
                task(4712, "payroll-2", 2),
                task(0, "swapper", 0),
            ],
            groups: vec![group("/"), group("/system.slice/payroll.service"), group(&path)],
            command: vec!["payroll".to_owned()],
            note: "payroll".to_owned(),
            boot_id: "payroll".to_owned(),
            ..Header::default()
        };
        header.knobs.insert("made_for".to_owned(), "payroll".to_owned());
        header.knobs.insert("sched_rt_runtime_us".to_owned(), "950000".to_owned());
        header.set_incident(&Incident {
            condition: "payroll waited > 1ms".to_owned(),
            task: "payroll".to_owned(),
            tid: 4711,
            did: "waited".to_owned(),
            from_ns: 5,
            length_ns: Some(7),
            before_ns: 0,
        });
        let mut recording = Recording::from_parts(header, Vec::new(), Ns(9)).unwrap();
        recording.facts.objects.push(ObjectInfo {
            from: "10.1.2.3:41230".to_owned(),
            to: "/run/payroll.sock".to_owned(),
            ..ObjectInfo::of_kind(ObjectKind::Tcp)
        });
        anonymous(&mut recording, &names());
        let header = &recording.header;
        let text = format!("{header:?} {:?}", recording.facts.objects);
        for secret in ["payroll", "4711", "1f9a6c0e", "3f0a9c1b", "10.1.2.3"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        let name = header.tasks[0].comm.clone();
        assert_eq!(header.tasks[1].comm, format!("{name}-2"));
        assert_eq!(header.tasks[2].comm, "swapper");
        assert_eq!((header.tasks[0].tid, header.tasks[1].pid), (1000, 1000));
        assert_eq!(header.knobs["made_for"], name);
        assert_eq!(header.knobs["sched_rt_runtime_us"], "950000");
        assert_eq!(header.incident().unwrap().task, name);
        assert!(header.groups[1].spec.name.starts_with("/system.slice/g"));
        assert!(header.groups[1].spec.name.ends_with(".service"));
        assert!(recording.facts.objects[0].from.ends_with(":41230"));
        // Of which runtime and class a group is stays.
        let path = &header.groups[2].spec.name;
        assert_eq!(owner::container(path).unwrap().runtime, "containerd");
        assert_eq!(owner::pod(path).unwrap().qos, "guaranteed");
    }

    #[test]
    fn pseudonyms_follow_the_key() {
        let other = Pseudonyms::new(b"another");
        assert_eq!(names().task("redis"), names().task("redis"));
        assert_ne!(names().task("redis"), other.task("redis"));
        assert_ne!(names().task("redis"), names().task("nginx"));
        // Numbers and signs alone are no name.
        assert_eq!(names().task("4:2"), "4:2");
        assert!(names().task("a-very-long-name").len() <= 15);
    }
}
