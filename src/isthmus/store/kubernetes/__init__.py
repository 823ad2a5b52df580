"""The store in a Kubernetes API server: objects are custom resources, leases and events are Kubernetes' own.

Belongs here: how objects look there, and how they are followed. Does not: how a cluster is spoken to (`kubernetes/`),
what is installed into one (`resources/crds`, `server/installing`), and running work in one (`engines/`).
"""

from .store import KubernetesStore

__all__ = ["KubernetesStore"]
