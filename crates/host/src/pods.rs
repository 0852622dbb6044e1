//! Names of the pods of Kubernetes on this machine. Their control groups have their uids only; the
//! kubelet also keeps a folder for the logs of each pod, called `NAMESPACE_NAME_UID`
//! (`BuildPodLogsDirectory`, kubernetes/pkg/kubelet/kuberuntime/helpers.go, since 1.14), which any
//! user may list. It is made before the first process of the pod starts. The sockets of the
//! kubelet and of container runtimes know more, such as labels, but give power over all
//! containers to a program that may open them.

use std::fs::read_dir;
use std::path::Path;

/// Where the kubelet keeps logs (`podLogsDir` of its configuration, which nearly none changes).
const LOGS: &str = "/var/log/pods";

/// Folders that are looked at: a node has some hundred pods at most.
const MOST: usize = 100_000;

/// The longest namespace and name: those of a DNS label and a DNS subdomain, which Kubernetes
/// holds them to (RFC 1123).
const LONGEST: (usize, usize) = (63, 253);

/// Returns the pod with a uid as `NAMESPACE/NAME`; `None`: there is none on this machine, or its
/// name is none that Kubernetes gives.
pub fn pod_name(uid: &str) -> Option<String> {
    pod_name_in(Path::new(LOGS), uid)
}

fn pod_name_in(logs: &Path, uid: &str) -> Option<String> {
    let folders = read_dir(logs).ok()?.take(MOST).flatten();
    folders.filter_map(|folder| named(folder.file_name().to_str()?, uid)).next()
}

/// Returns `NAMESPACE/NAME` of the folder of a pod with this uid.
fn named(folder: &str, uid: &str) -> Option<String> {
    let (rest, of) = folder.rsplit_once('_')?;
    let (namespace, name) = rest.split_once('_').filter(|_| of == uid)?;
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
