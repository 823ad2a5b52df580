"""Settings of the Kubernetes engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HELPER_IMAGE = "docker.io/library/busybox:1.36"


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """How a cluster is reached and used."""

    folder: Path
    """On this machine: copies of logs, and files on their way in."""
    site: str
    """What distinguishes the pods of this site from those of others in the same namespace."""
    kubeconfig: Path | None = None
    """Default none: the service account of the pod that the control plane itself runs in."""
    server: str | None = None
    """Where the API server is for that pod. Default none: at the name that clusters with DNS have for it."""
    context: str | None = None
    """Default none: the kubeconfig's current one."""
    namespace: str = "isthmus"
    image: str | None = None
    """What jobs run that name no image. Default none: they are refused."""
    helper_image: str | None = None
    """Has a shell, tar and the usual small programs: brings files in and out. Default none: the site's `image`."""
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    package_index: str = ""
    """Where environments of Python packages get them from. Default: where the installer looks by itself."""
    uid: int = 65534
    """Under whom jobs of tenants run that have no number of their own. Never 0."""
    runtime_class: str | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    priority_classes: Mapping[int, str] = field(default_factory=dict)
    """From which priority on which class is asked for. Default none: the cluster's default class."""
    request_seconds: float = 30.0
    """After this long a question counts as not answered: nothing is concluded."""
    watch_seconds: int = 120
    """A watch is asked for again after this long, and counts as dead when it is silent for a third longer."""
    sample_seconds: float = 10.0
    """Between two looks at what runs use. Nodes themselves look every ten seconds."""
    start_seconds: float = 120.0
    """How long an image may fail to be pulled before the run counts as failed."""
    max_output_bytes: int = 50 * 2**30
    """What one run may bring back. Default 50 GiB."""

    @property
    def helper(self) -> str:
        """The image of helpers."""
        return self.helper_image or self.image or HELPER_IMAGE
