"""What `isthmus install --kubernetes` sets up in a cluster, as plain objects. Pure.

The platform's own account may do with our kinds whatever reconciling needs, make the namespaces, roles and quotas of
tenants, and hold leases in its own namespace. It reads no secrets, and no pods: what a site needs to run work is
granted to the site's own account.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isthmus.resources.frame.meta import GROUP
from isthmus.resources.schemas.crds import MANAGED_BY, OLDEST, custom_kinds, custom_resources
from isthmus.resources.tenants import SYSTEM_NAMESPACE

Object = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
NAME = "isthmus"
ADMIN_SECRET = "isthmus-admin"  # noqa: S105 - its name
PORT = 7070


@dataclass(frozen=True, slots=True)
class Installation:
    """What may differ from cluster to cluster."""

    image: str = "isthmus:latest"
    """Container image with this version of Isthmus. No default registry: you build or mirror it."""
    replicas: Any = 1
    """Control planes. One leads; the others serve the API and stand by. More than one need a shared file system."""
    storage: str = "20Gi"
    """Room for files that users send, and outputs."""
    storage_class: str = ""
    """Kind of storage; empty takes the cluster's default."""
    minor: int = OLDEST
    """The server's version 1.x: later ones check more."""


def manifests(wanted: Installation) -> list[Object]:
    """All objects, in an order in which they can be made."""
    return [
        _object("v1", "Namespace", SYSTEM_NAMESPACE, ""),
        *custom_resources(wanted.minor),
        *rights(),
        _volume(wanted),
        _service(),
        _deployment(wanted),
    ]


def rights() -> list[Object]:
    """The platform's account and what it may do."""
    subject = [{"kind": "ServiceAccount", "name": NAME, "namespace": SYSTEM_NAMESPACE}]
    return [
        _object("v1", "ServiceAccount", NAME),
        _object(f"{RBAC}/v1", "ClusterRole", NAME, "", rules=_cluster_rules()),
        _object(f"{RBAC}/v1", "ClusterRoleBinding", NAME, "", roleRef=_ref("ClusterRole"), subjects=subject),
        _object(f"{RBAC}/v1", "Role", NAME, rules=[
            _rule("coordination.k8s.io", ["leases"], "get", "list", "create", "update", "delete"),
        ]),
        _object(f"{RBAC}/v1", "RoleBinding", NAME, roleRef=_ref("Role"), subjects=subject),
    ]  # fmt: skip


def _cluster_rules() -> list[Object]:
    kinds = [kind.plural for kind in custom_kinds()]
    status = [f"{kind.plural}/status" for kind in custom_kinds() if kind.has_status]
    return [
        # patch and deletecollection are for tenants' roles: one may only grant what one has.
        _rule(GROUP, kinds, "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
        _rule(GROUP, status, "get", "update"),
        _rule(GROUP, [f"{plural}/finalizers" for plural in kinds], "update"),
        _rule("", ["events"], "get", "list", "watch", "create", "update", "delete"),
        _rule("", ["namespaces"], "get", "create", "delete"),
        _rule("", ["resourcequotas"], "get", "create", "update", "delete"),
        _rule(RBAC, ["roles", "rolebindings"], "get", "create", "update", "delete"),
    ]


def _volume(wanted: Installation) -> Object:
    mode = "ReadWriteOnce" if wanted.replicas == 1 else "ReadWriteMany"
    spec: Object = {"accessModes": [mode], "resources": {"requests": {"storage": wanted.storage}}}
    if wanted.storage_class:
        spec["storageClassName"] = wanted.storage_class
    return _object("v1", "PersistentVolumeClaim", "isthmus-files", spec=spec)


def _service() -> Object:
    ports = [{"name": "api", "port": 443, "protocol": "TCP", "targetPort": "api"}]
    return _object("v1", "Service", NAME, spec={"selector": _selector(), "ports": ports})


def _deployment(wanted: Installation) -> Object:
    pod: Object = {
        "serviceAccountName": NAME,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10_001, "fsGroup": 10_001},
        "containers": [_container(wanted)],
        "volumes": [
            {"name": "data", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "files", "persistentVolumeClaim": {"claimName": "isthmus-files"}},
            {"name": "admin", "secret": {"secretName": ADMIN_SECRET, "defaultMode": 0o440}},
        ],
    }
    spec = {
        "replicas": wanted.replicas,
        # The old ones go first: a volume of one node cannot be held by two.
        "strategy": {"type": "Recreate"} if wanted.replicas == 1 else {"type": "RollingUpdate"},
        "selector": {"matchLabels": _selector()},
        "template": {"metadata": {"labels": {**MANAGED_BY, **_selector()}}, "spec": pod},
    }
    return _object("apps/v1", "Deployment", NAME, spec=spec)


def _container(wanted: Installation) -> Object:
    probe: Object = {
        "httpGet": {"path": "/readyz", "port": "api", "scheme": "HTTPS"},
        "periodSeconds": 5,
        "timeoutSeconds": 5,
    }
    return {
        "name": NAME,
        "image": wanted.image,
        "args": [
            "serve", "--store", "kubernetes", "--data", "/data", "--files", "/files", "--listen", f"0.0.0.0:{PORT}",
        ],
        "command": ["isthmus"],
        "ports": [{"name": "api", "containerPort": PORT, "protocol": "TCP"}],
        "readinessProbe": probe,
        "livenessProbe": {
            **probe,
            "httpGet": {**probe["httpGet"], "path": "/livez"},
            "periodSeconds": 10,
            "timeoutSeconds": 10,  # a node that is busy is no reason to start it again
            "failureThreshold": 6,
        },
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - an emptyDir of the pod's own
            {"name": "files", "mountPath": "/files"},
            {"name": "admin", "mountPath": "/data/admin.token", "subPath": "admin.token", "readOnly": True},
        ],
    }  # fmt: skip


def _object(api_version: str, kind: str, name: str, namespace: str = SYSTEM_NAMESPACE, **rest: Any) -> Object:
    meta: Object = {"name": name, "labels": dict(MANAGED_BY)}
    if namespace:
        meta["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **rest}


def _rule(group: str, resources: list[str], *verbs: str) -> Object:
    return {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}


def _ref(kind: str) -> Object:
    return {"apiGroup": RBAC, "kind": kind, "name": NAME}


def _selector() -> dict[str, str]:
    return {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "control-plane"}
