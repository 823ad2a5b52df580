"""Which bytes a tag means: asked of the registry when a job is accepted, so that all its attempts run the same ones.

Registries belong to others and may be slow. Nobody waits here: a job is noted down, the registry is asked in the
background, within a time and a number at a time for each tenant, and the job is looked at again when it has answered.
Jobs that ask for the same at once are answered together; who comes after a request was sent is not, because the tag may
have moved since.

The control plane need not reach every registry that sites do. One that does not answer is left alone for a while, and
the site looks the tag up when it starts the job, as it does where nobody looks tags up.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from isthmus._kit.locks import KeyedLocks
from isthmus.errors import EngineRefused, IsthmusError
from isthmus.images.logins import RegistryLogin
from isthmus.images.references import RegistryReference, is_allowed, parse_reference
from isthmus.reconcilers.typed import Typed
from isthmus.resources.jobs import Job
from isthmus.resources.sites import Site
from isthmus.runtime.declaring import Background
from isthmus.runtime.informers import Informer
from isthmus.store.base import Key

from .registry_logins import RegistryLogins

if TYPE_CHECKING:
    from isthmus.images.registries import RegistryClient
    from isthmus.reconcilers.shared import Shared

SECONDS = 15.0
"""How long a registry may take to answer."""
AWAY_SECONDS = 30.0
"""How long one that did not answer is left alone."""
AT_ONCE, AT_ONCE_EACH = 32, 4
"""Requests on their way: in all, and for one tenant."""
MOST = 20_000
"""Answers, and registries that are away, that are remembered."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the tag means."""

    digest: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The registry does not give it: it has no such image, or not for this account."""

    message: str


@dataclass(frozen=True, slots=True)
class Away:
    """The registry cannot be asked from here."""

    message: str


Answer = Resolved | Refused | Away
MakeClient = Callable[[str], "RegistryClient"]
"""A client that trusts these authorities too."""


@dataclass(slots=True)
class _Question:
    """What some jobs ask for at once."""

    namespace: str
    reference: RegistryReference
    login: RegistryLogin | None
    jobs: dict[str, Key] = field(default_factory=dict)


class ImageResolver:
    """Looks tags up."""

    def __init__(
        self, sites: Informer, logins: RegistryLogins, look: Callable[[Key], None], make_client: MakeClient | None
    ) -> None:
        self._sites, self._logins, self._look, self._make = sites, logins, look, make_client
        self._typed = Typed()
        self._clients: dict[str, RegistryClient] = {}
        self._waiting: dict[tuple[str, ...], _Question] = {}
        self._questions: asyncio.Queue[tuple[str, ...]] = asyncio.Queue()
        self._asked: set[str] = set()
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self._away: OrderedDict[tuple[str, str], tuple[float, str]] = OrderedDict()
        self._same, self._slots = KeyedLocks(), KeyedLocks(AT_ONCE_EACH)

    @property
    def works(self) -> bool:
        """Whether tags are looked up here at all."""
        return self._make is not None

    def of(self, key: Key, job: Job) -> Answer | None:
        """The answer for a job, once; None while the registry is asked, and then the job is looked at again."""
        if (answer := self._answers.pop(job.uid, None)) is not None:
            return answer
        reference = parse_reference(job.spec.image or "")
        assert isinstance(reference, RegistryReference)
        if not any(self._allows(site, reference) for site in self.sites_for(job)):
            return Away("no site that the job may go to takes images of this registry")
        until, why = self._away.get((job.namespace, reference.registry), (0.0, ""))
        if asyncio.get_running_loop().time() < until:
            return Away(why)
        if job.uid in self._asked:
            return None
        login = self._logins.of(job)
        question = (job.namespace, str(reference), login.owner if login else "", login.password if login else "")
        if question not in self._waiting:
            self._waiting[question] = _Question(job.namespace, reference, login)
            self._questions.put_nowait(question)
        self._waiting[question].jobs[job.uid] = key
        self._asked.add(job.uid)
        return None

    def sites_for(self, job: Job) -> Iterable[Site]:
        """The sites that the job may go to, as far as it names them."""
        named = job.spec.placement.sites
        return (self._typed.of(Site, record) for record in self._sites.all() if not named or record.key.name in named)

    @staticmethod
    def _allows(site: Site, reference: RegistryReference) -> bool:
        allowed = site.spec.registries.allowed if site.spec.registries else ()
        return is_allowed(f"{reference.registry}/{reference.repository}", allowed)

    async def run(self) -> None:
        """Ask until cancelled."""
        everybody = asyncio.Semaphore(AT_ONCE)
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    question = await self._questions.get()
                    group.create_task(self._ask(question, everybody))
        finally:
            self._asked.clear()
            self._waiting.clear()
            for client in self._clients.values():
                await client.close()
            self._clients.clear()

    async def _ask(self, key: tuple[str, ...], everybody: asyncio.Semaphore) -> None:
        async with self._same.hold(key), self._slots.hold(key[0]), everybody:
            question = self._waiting.pop(key)  # whoever comes now asks anew
            answer = await self._answer(question)
        for uid, job in question.jobs.items():
            self._asked.discard(uid)
            self._answers[uid] = answer
            self._look(job)
        while len(self._answers) > MOST:
            self._answers.popitem(last=False)

    async def _answer(self, question: _Question) -> Answer:
        try:
            async with asyncio.timeout(SECONDS):
                client = (await self._client()).signed_in(question.login)
                return Resolved(await client.resolve(question.reference))
        except EngineRefused as error:
            return Refused(error.message)
        except TimeoutError:
            why = f"{question.reference.registry} did not answer within {SECONDS:g} s"
        except IsthmusError as error:
            why = error.message
        except ValueError as error:
            why = f"registries.authorities of a site cannot be used: {error}"
        self._away[question.namespace, question.reference.registry] = (
            asyncio.get_running_loop().time() + AWAY_SECONDS,
            why,
        )
        while len(self._away) > MOST:
            self._away.popitem(last=False)
        return Away(why)

    async def _client(self) -> RegistryClient:
        """One that trusts what the sites trust; made when it is needed."""
        assert self._make is not None
        texts = {
            authorities
            for record in self._sites.all()
            if (registries := self._typed.of(Site, record).spec.registries) and (authorities := registries.authorities)
        }
        trusted = "\n".join(sorted(texts))
        if (client := self._clients.get(trusted)) is None:
            client = self._clients[trusted] = await asyncio.to_thread(self._make, trusted)
        return client


def declare(shared: Shared) -> Background:
    """The part that asks registries. Jobs that need an answer say so through their reconciler."""
    return Background(name="images", run=shared.images.run)
