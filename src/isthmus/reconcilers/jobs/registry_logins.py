"""Whose account of which registry a job's image is fetched with: from the Secrets of its tenant, opened just then."""

from __future__ import annotations

from isthmus._kit.sealing import Sealer
from isthmus.images.logins import RegistryLogin
from isthmus.images.references import DOCKER_HUB, repository_of
from isthmus.reconcilers.typed import Typed
from isthmus.resources.jobs import Job
from isthmus.resources.secrets import Secret
from isthmus.runtime.informers import Informer

_HUB_NAMES = frozenset({DOCKER_HUB, "index.docker.io", "registry-1.docker.io"})


class RegistryLogins:
    """Finds credentials."""

    def __init__(self, secrets: Informer, sealer: Sealer | None) -> None:
        self._secrets, self._sealer, self._typed = secrets, sealer, Typed()

    def of(self, job: Job) -> RegistryLogin | None:
        """What the job's image is fetched with: the member's own before the tenant's; None if there is nothing."""
        if job.spec.image is None or self._sealer is None:
            return None
        registry = repository_of(job.spec.image).partition("/")[0]
        found = [
            secret
            for record in self._secrets.all()
            if record.key.namespace == job.namespace
            and _same(record.obj["spec"]["registry"], registry)
            and (secret := self._typed.of(Secret, record).serves(job.status.member))
        ]
        for secret in sorted(found, key=lambda secret: (secret.spec.shared, secret.name)):
            for place in secret.places:
                if (password := self._sealer.open(secret.spec.sealed or "", place)) is not None:
                    return RegistryLogin(secret.uid, registry, secret.spec.user, password)
        return None


def _same(named: str, registry: str) -> bool:
    return named == registry or (named in _HUB_NAMES and registry == DOCKER_HUB)
