"""The store in a Kubernetes API server: objects are custom resources, leases and events are Kubernetes' own.

Belongs here: how to reach a cluster, what its answers mean, how objects look there. Does not: what is installed into
a cluster (`resources/crds`, `server/installing`), and running work in one (`engines/`).
"""

from .store import KubernetesStore

__all__ = ["KubernetesStore"]
