"""Whose account a run is carried out under, and in which groups that is: each looked up once."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.engines.base import Run
from isthmus.engines.slurm.facts import SlurmPartition
from isthmus.engines.slurm.settings import SlurmSettings
from isthmus.engines.slurm.transports.base import SlurmTransport


class Persons:
    """The accounts of those who submit."""

    def __init__(self, settings: SlurmSettings, transport: SlurmTransport) -> None:
        self._settings, self._transport = settings, transport
        self._users: dict[tuple[str, str], str] = {}
        self._groups: dict[str, frozenset[str] | None] = {}

    def user_of(self, run: Run) -> str:
        """The account of whoever submitted it. Looked for once: a site may name thousands."""
        person = run.namespace, run.member
        if person not in self._users:
            self._users[person] = self._settings.user_of(run)
        return self._users[person]

    def groups_of(self, run: Run) -> frozenset[str] | None:
        """The groups of that account, where they are known."""
        return self._groups.get(self.user_of(run))

    async def learn_groups(self, run: Run, partitions: Sequence[SlurmPartition]) -> None:
        """Which groups the person is in, once, and only where a partition is for some groups only."""
        user = self.user_of(run)
        if user not in self._groups and any(partition.allow_groups is not None for partition in partitions):
            self._groups[user] = await self._transport.groups(user)
