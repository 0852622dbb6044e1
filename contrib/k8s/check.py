#!/usr/bin/env python3
"""Checks the manifests of this folder against the schemas of the Kubernetes API, and that the recorder has no more rights than it needs.

usage: contrib/k8s/check.py [--versions 1.31,1.35]     (pip install kubernetes-validate: it brings the schemas, and asks nothing over the network)

Without kubernetes-validate the rights are still checked; a line says that the schemas were not.
"""
import argparse, copy, glob, os, sys

HERE = os.path.dirname(os.path.abspath(__file__))


def documents(file):
    import yaml
    with open(os.path.join(HERE, file)) as text:
        return [document for document in yaml.safe_load_all(text) if document]


# Lists that a patch adds to, and the key by which an entry is one that is there.
LISTS = {"containers": "name", "volumes": "name", "volumeMounts": "mountPath"}


def patched(base, patch):
    """The strategic merge of Kubernetes, as far as the patches here need it: some lists by a key, everything else as a map."""
    merged = copy.deepcopy(base)
    for key, value in patch.items():
        if key in LISTS:
            entries = {one[LISTS[key]]: one for one in merged.get(key, [])}
            for one in value:
                name = one[LISTS[key]]
                entries[name] = patched(entries.get(name, {}), one)
            merged[key] = list(entries.values())
        elif isinstance(value, dict):
            merged[key] = patched(merged.get(key) or {}, value)
        else:
            merged[key] = value
    return merged


def rights(daemonset):
    """What the recorder may do, against what it needs; returns what is wrong."""
    pod = daemonset["spec"]["template"]["spec"]
    wrong = []
    for key in ("hostNetwork", "hostIPC"):
        if pod.get(key):
            wrong.append(f"{key} is not needed")
    for container in pod["containers"]:
        name, context = container["name"], container.get("securityContext", {})
        wanted = {"privileged": False, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
        for key, value in wanted.items():
            if context.get(key, False) != value:
                wrong.append(f"{name}: {key} must be {value}")
        capabilities = context.get("capabilities", {})
        if capabilities.get("drop") != ["ALL"]:
            wrong.append(f"{name}: all capabilities are to be dropped first")
        allowed = {"BPF", "PERFMON"} if name == "flight" else set()
        if not set(capabilities.get("add", [])) <= allowed:
            wrong.append(f"{name}: capabilities {capabilities['add']}, of which it needs {sorted(allowed)}")
        if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            wrong.append(f"{name}: seccompProfile must be RuntimeDefault")
        if "cpu" in container.get("resources", {}).get("limits", {}):
            wrong.append(f"{name}: a recorder that is throttled loses events")
        volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
        mounted = [volumes[mount["name"]] for mount in container.get("volumeMounts", [])]
        if name == "flight" and any("projected" in volume for volume in mounted):
            wrong.append("flight: the recorder needs no token")
        if name != "flight" and any("hostPath" in volume for volume in mounted):
            wrong.append(f"{name}: nothing of the node is its business")
        for mount in container.get("volumeMounts", []):
            host = volumes[mount["name"]].get("hostPath", {}).get("path")
            if host and host != "/var/lib/schedlab/flight" and not mount.get("readOnly"):
                wrong.append(f"{name}: {host} of the node must be read only")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--versions", default="1.31,1.35")
    options = parser.parse_args()
    flight, metrics, labels = (documents(f"{name}.yaml") for name in ("flight", "metrics", "labels"))
    daemonset = next(one for one in flight if one["kind"] == "DaemonSet")
    with_proxy = patched(daemonset, documents("metrics-patch.yaml")[0])
    with_labels = patched(daemonset, documents("labels-patch.yaml")[0])
    wrong = rights(daemonset) + rights(with_proxy) + rights(with_labels)
    if daemonset["spec"]["template"]["spec"]["automountServiceAccountToken"]:
        wrong.append("flight: a token would be in every container")
    checked = 0
    try:
        import kubernetes_validate
    except ImportError:
        print("NOT CHECKED against the schemas: pip install kubernetes-validate")
    else:
        for version in options.versions.split(","):
            for document in [*flight, *metrics, *labels, with_proxy, with_labels]:
                try:
                    kubernetes_validate.validate(document, version, strict=True)
                    checked += 1
                except kubernetes_validate.ValidationError as error:
                    wrong.append(f"{document['kind']} {document['metadata']['name']} ({version}): {error.message}")
    files = sorted(os.path.basename(file) for file in glob.glob(os.path.join(HERE, "*.yaml")))
    print(f"{', '.join(files)}: {checked} documents fit the schemas, {len(wrong)} faults")
    for one in wrong:
        print(f"  {one}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
