"""The account with which a run's image is fetched, as a Secret of the cluster for as long as the run lasts.

It is made before the pod that names it, since the node looks for it once; then the pod becomes its owner, so that the
cluster removes it with the pod, whoever removes that. At the end of the run it goes at once. Nothing reads it but the
nodes: it is never listed or asked for, and no right to that is needed. Where the site may make no Secrets, the
pod goes without, with what the site itself has (`kubernetes.pullSecrets`).
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Mapping
from typing import Any

from isthmus.engines.base import Run
from isthmus.errors import AlreadyExists, NotFound, SiteUnavailable
from isthmus.images.logins import RegistryLogin
from isthmus.images.references import DOCKER_HUB
from isthmus.kubernetes.answers import is_denied
from isthmus.kubernetes.client import KubernetesClient

from . import pods
from .settings import KubernetesSettings

log = logging.getLogger(__name__)
_HUB_KEY = "https://index.docker.io/v1/"
"""What nodes look for where the image is of Docker Hub."""


class PullSecrets:
    """Those of one site."""

    def __init__(self, client: KubernetesClient, settings: KubernetesSettings) -> None:
        self._client, self._settings = client, settings
        self._path = f"/api/v1/namespaces/{settings.namespace}/secrets"

    async def make(self, run: Run) -> str:
        """Have the account of a run there; what the Secret is called, or nothing if there is none."""
        if run.login is None:
            return ""
        name = pods.name_of(run.id)
        obj = secret(run.id, run.login, self._settings.site)
        try:
            try:
                await self._client.create(self._path, obj)
            except AlreadyExists:  # by us, before we were killed; the password may be another one since
                await self._client.patch(f"{self._path}/{name}", {"data": obj["data"]})
        except SiteUnavailable as error:
            if not is_denied(error):
                raise
            log.warning("the site's account may make no Secrets: an image is fetched without", extra={"run": run.id})
            return ""
        return name

    async def give(self, run_id: str, pod: Mapping[str, Any]) -> None:
        """The pod is there: from now on the Secret goes with it."""
        name = pods.name_of(run_id)
        if not any(entry.get("name") == name for entry in (pod.get("spec") or {}).get("imagePullSecrets") or ()):
            return
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"]}
        try:
            await self._client.patch(f"{self._path}/{name}", {"metadata": {"ownerReferences": [owner]}})
        except NotFound:  # the run has ended already
            return

    async def remove(self, run_id: str) -> None:
        """The run needs it no longer."""
        try:
            await self._client.delete(f"{self._path}/{pods.name_of(run_id)}")
        except SiteUnavailable as error:
            if not is_denied(error):
                raise


def secret(run_id: str, login: RegistryLogin, site: str) -> dict[str, Any]:
    """The object."""
    registry = _HUB_KEY if login.registry == DOCKER_HUB else login.registry
    auth = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
    content = json.dumps({"auths": {registry: {"auth": auth}}})
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": pods.name_of(run_id), "labels": pods.labels_of(run_id, site)},
        "data": {".dockerconfigjson": base64.b64encode(content.encode()).decode()},
    }
