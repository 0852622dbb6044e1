//! Names and labels of the pods of Kubernetes on this machine. Their control groups have their uids
//! only; the kubelet also keeps a folder for the logs of each pod, called `NAMESPACE_NAME_UID`
//! (`BuildPodLogsDirectory`, kubernetes/pkg/kubelet/kuberuntime/helpers.go, since 1.14), which any
//! user may list. It is made before the first process of the pod starts. The sockets of the
//! kubelet and of container runtimes know more, such as labels, but give power over all
//! containers to a program that may open them. So labels come from a file, which another program
//! writes that may read pods and nothing else (contrib/k8s/labels-patch.yaml).

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::{File, read_dir};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Where the kubelet keeps logs (`podLogsDir` of its configuration, which nearly none changes).
const LOGS: &str = "/var/log/pods";

/// Where labels are: a line of JSON for each pod, and again for each change of it, as
/// `kubectl get pods --watch --output=jsonpath='{.metadata}{"\n"}'` prints it.
const LABELS: &str = "/run/schedlab-pods/pods.jsonl";

/// Folders that are looked at: a node has some hundred pods at most.
const MOST: usize = 100_000;

/// Bytes of the file of labels that are read: some ten thousand pods.
const MOST_BYTES: u64 = 64 << 20;

/// The longest namespace and name: those of a DNS label and a DNS subdomain, which Kubernetes
/// holds them to (RFC 1123).
const LONGEST: (usize, usize) = (63, 253);

/// The longest key of a label (prefix, slash, name) and value, as Kubernetes has them.
const LONGEST_LABEL: (usize, usize) = (317, 63);

/// What is known of a pod beside its uid.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodFacts {
    /// `NAMESPACE/NAME`.
    pub name: Option<String>,
    /// Its labels; empty where the file with them is not there.
    pub labels: BTreeMap<String, String>,
}

/// What the file says of a pod (`ObjectMeta`).
#[derive(Deserialize)]
struct Metadata {
    uid: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Returns what this machine says of the pod with a uid. Names and labels that Kubernetes would
/// not give are none.
pub fn pod(uid: &str) -> PodFacts {
    pod_in(Path::new(LOGS), Path::new(LABELS), uid)
}

fn pod_in(logs: &Path, labels: &Path, uid: &str) -> PodFacts {
    let name = pod_name_in(logs, uid);
    let Some(told) = last_told(labels, uid) else { return PodFacts { name, ..Default::default() } };
    let is_label = |(key, value): &(String, String)| {
        let allowed = |c: u8| c.is_ascii_alphanumeric() || b"-_./".contains(&c);
        let fits = |text: &str, longest| text.len() <= longest && text.bytes().all(allowed);
        !key.is_empty() && fits(key, LONGEST_LABEL.0) && fits(value, LONGEST_LABEL.1)
    };
    let name = name.or_else(|| full_name(&told.namespace, &told.name));
    PodFacts { name, labels: told.labels.into_iter().filter(is_label).collect() }
}

/// Returns the last line about a pod.
fn last_told(labels: &Path, uid: &str) -> Option<Metadata> {
    let mut file = BufReader::new(File::open(labels).ok()?.take(MOST_BYTES));
    let (mut line, mut told) = (Vec::new(), None);
    while file.read_until(b'\n', &mut line).ok()? > 0 {
        // Most lines are of other pods.
        if line.windows(uid.len()).any(|part| part == uid.as_bytes()) {
            let about: Option<Metadata> = serde_json::from_slice(&line).ok();
            told = about.filter(|about| about.uid == uid).or(told);
        }
        line.clear();
    }
    told
}

fn pod_name_in(logs: &Path, uid: &str) -> Option<String> {
    let folders = read_dir(logs).ok()?.take(MOST).flatten();
    folders.filter_map(|folder| named(folder.file_name().to_str()?, uid)).next()
}

/// Returns `NAMESPACE/NAME` of the folder of a pod with this uid.
fn named(folder: &str, uid: &str) -> Option<String> {
    let (rest, of) = folder.rsplit_once('_')?;
    let (namespace, name) = rest.split_once('_').filter(|_| of == uid)?;
    full_name(namespace, name)
}

/// Returns `NAMESPACE/NAME`, if these are such names.
fn full_name(namespace: &str, name: &str) -> Option<String> {
    let is_name = |text: &str, longest: usize| {
        let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-.".contains(&c);
        !text.is_empty() && text.len() <= longest && text.bytes().all(allowed)
    };
    let is_pod = is_name(namespace, LONGEST.0) && is_name(name, LONGEST.1);
    is_pod.then(|| format!("{namespace}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "1f9a6c0e-5b7d-4c3a-9e21-0a1b2c3d4e5f";

    #[test]
    fn a_pod_is_named_by_the_folder_of_its_logs() {
        let logs =
            schedlab_testing::temp_dir().join(format!("schedlab-pods-{}", std::process::id()));
        let manifest = "0123456789abcdef0123456789abcdef";
        for folder in [
            format!("shop_checkout-7d9f4b_{UID}"),
            // A pod of a file: its uid is a hash.
            format!("kube-system_etcd-node1.example_{manifest}"),
            UID.replace('1', "2"),
            "lost+found".to_owned(),
        ] {
            std::fs::create_dir_all(logs.join(folder)).unwrap();
        }
        let name = |uid: &str| pod_name_in(&logs, uid);
        let found = [name(UID), name(manifest), name(&UID.replace('1', "2")), name("")];
        std::fs::remove_dir_all(&logs).unwrap();
        let known = |name: &str| Some(name.to_owned());
        let expected =
            [known("shop/checkout-7d9f4b"), known("kube-system/etcd-node1.example"), None, None];
        assert_eq!(found, expected);
        assert_eq!(name(UID), None, "without a kubelet");
    }

    #[test]
    fn labels_are_those_of_the_last_line_about_a_pod() {
        let folder =
            schedlab_testing::temp_dir().join(format!("schedlab-labels-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (logs, file) = (folder.join("no-kubelet"), folder.join("pods.jsonl"));
        assert_eq!(pod_in(&logs, &file, UID), PodFacts::default(), "no file");
        let line = |uid: &str, labels: &str| {
            format!(r#"{{"name":"cart-0","namespace":"shop","uid":"{uid}","labels":{labels}}}"#)
        };
        let other = UID.replace('1', "2");
        let lines = [
            line(UID, r#"{"app":"old"}"#),
            line(&other, &format!(r#"{{"app":"other","twin":"{UID}"}}"#)),
            line(
                UID,
                r#"{"app.kubernetes.io/name":"cart","tier":"","bad key":"x","esc":"a\u001bb"}"#,
            ),
            "not JSON".to_owned(),
            // The writer is in the middle of a line.
            format!(r#"{{"uid":"{UID}","labels":{{"app":"#),
        ];
        std::fs::write(&file, lines.join("\n")).unwrap();
        let found = pod_in(&logs, &file, UID);
        let none = pod_in(&logs, &file, &UID.replace('1', "3"));
        std::fs::remove_dir_all(&folder).unwrap();
        let expected = [("app.kubernetes.io/name", "cart"), ("tier", "")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(found.labels.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!(found.name.as_deref(), Some("shop/cart-0"), "where there is no folder of logs");
        assert_eq!(none, PodFacts::default());
    }

    /// A name is printed, matched and kept: what Kubernetes would not take is no name.
    #[test]
    fn what_kubernetes_would_not_take_is_no_name() {
        let of = |namespace: &str, name: &str| named(&format!("{namespace}_{name}_{UID}"), UID);
        assert!(of("shop", "cart").is_some());
        for (namespace, name) in [
            ("", "cart"),
            ("shop", ""),
            ("shop", "a\x1b[31mb"),
            ("shop", "a b"),
            ("shop", "Cart"),
            ("shop", "a_b"),
            ("sh/op", "cart"),
            (&*"n".repeat(64), "cart"),
            ("shop", &*"n".repeat(254)),
        ] {
            assert_eq!(of(namespace, name), None, "{namespace:?} {name:?}");
        }
    }
}
