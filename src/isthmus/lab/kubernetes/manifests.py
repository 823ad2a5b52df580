"""Configuration files of a node, and what a cluster must grant Isthmus. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .layout import PAUSE, SOCKET, KubernetesLabPlace

NAMESPACE = "isthmus"
USER = "isthmus"
API_SERVICE = "10.96.0.1"
"""The address of the service `kubernetes`, the first of `SERVICES`."""


def containerd_toml(folder: Path) -> str:
    """containerd of one node. Without CAP_SYS_RESOURCE no score may be lowered, hence restrict_oom_score_adj."""
    return f"""\
version = 2
root = "{folder}/containerd"
state = "/run/containerd-state"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{PAUSE}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
"""


def cni_conflist(folder: Path, host: int) -> dict[str, Any]:
    """The network of one node's pods: a bridge inside the node's own namespace."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": f"10.244.{host}.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(folder / "ipam"),
    }
    plugin = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "ipam": ipam}
    return {"cniVersion": "0.4.0", "name": "lab", "plugins": [plugin]}


def service_rules(url: str, host: int) -> list[list[str]]:
    """In place of kube-proxy: the service `kubernetes` leads to the API server, and pods come from their node."""
    server = url.removeprefix("https://")
    service = ["--destination", API_SERVICE, "--protocol", "tcp", "--dport", "443"]
    pods = f"10.244.{host}.0/24"
    return [
        ["PREROUTING", *service, "--jump", "DNAT", "--to-destination", server],
        ["OUTPUT", *service, "--jump", "DNAT", "--to-destination", server],
        ["POSTROUTING", "--source", pods, "!", "--destination", pods, "--jump", "MASQUERADE"],
    ]


def volume(folder: Path) -> dict[str, Any]:
    """A volume that every node sees: a folder of this machine."""
    spec = {
        "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
        "capacity": {"storage": "100Gi"},
        "hostPath": {"path": str(folder), "type": "Directory"},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "isthmus-lab"}, "spec": spec}


def kubelet_yaml(place: KubernetesLabPlace, folder: Path, cgroup: str) -> dict[str, Any]:
    """One kubelet: cgroups of its own, quick to report what happens, and content with little room."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failSwapOn": False,
        "address": "0.0.0.0",  # noqa: S104 - of the node's own namespace
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(place.keys / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(folder / "kubelet.crt"),
        "tlsPrivateKeyFile": str(folder / "kubelet.key"),
        "clusterDomain": "cluster.local",
        "clusterDNS": ["10.96.0.10"],
        "resolvConf": "",
        "makeIPTablesUtilChains": False,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "nodeStatusUpdateFrequency": "1s",
        "nodeLeaseDurationSeconds": 5,
        "syncFrequency": "5s",
        "volumeStatsAggPeriod": "5s",
        "containerLogMaxSize": "10Mi",
        "maxPods": 250,
        "imageGCHighThresholdPercent": 100,
    }


def grants(namespace: str = NAMESPACE, user: str = USER) -> list[dict[str, Any]]:
    """The namespace of a site's jobs, and the rights that Isthmus needs: in it, and to list nodes and pods in all."""
    subject = [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]
    rbac = "rbac.authorization.k8s.io/v1"
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "list", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list", "watch", "delete"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "patch", "delete"]},
    ]
    cluster = [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]},  # what pods use: there is no metrics API
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "isthmus-site"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": rbac,
            "kind": "Role",
            "metadata": {"name": "isthmus-site", "namespace": namespace},
            "rules": rules,
        },
        {
            "apiVersion": rbac,
            "kind": "RoleBinding",
            "metadata": {"name": "isthmus-site", "namespace": namespace},
            "roleRef": role,
            "subjects": subject,
        },
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "isthmus-site"}, "rules": cluster},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "isthmus-site"},
            "roleRef": {**role, "kind": "ClusterRole"},
            "subjects": subject,
        },
    ]


def node_grants(user: str = USER) -> list[dict[str, Any]]:
    """What Isthmus needs in a cluster that shows the nodes of another site, and no more."""
    subject = [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]
    rbac, name = "rbac.authorization.k8s.io/v1", "isthmus-nodes"
    role = {"apiGroup": "rbac.authorization.k8s.io", "name": name}
    nodes = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "create", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    ]
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    there = {"name": name, "namespace": "kube-node-lease"}
    return [
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": name}, "rules": nodes},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {**role, "kind": "ClusterRole"},
            "subjects": subject,
        },
        {
            "apiVersion": rbac,
            "kind": "Role",
            "metadata": there,
            "rules": [{**leases, "verbs": ["get", "list", "create", "update", "delete"]}],
        },
        {
            "apiVersion": rbac,
            "kind": "RoleBinding",
            "metadata": there,
            "roleRef": {**role, "kind": "Role"},
            "subjects": subject,
        },
    ]


PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
