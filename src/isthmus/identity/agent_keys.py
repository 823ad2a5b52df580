"""AgentKeys: which key the agent of each site has, without asking the store.

A feed keeps an index of all sites with agents. Because it follows the store's watch, an agent that is revoked,
removed or has joined anew is cut off within milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isthmus.engines.agent.proving import AgentIdentity
from isthmus.resources.kinds import SITE
from isthmus.store.base import Change, EventType, Page, Store
from isthmus.store.feeding import Feed


class AgentKeys:
    """Knows the agent of every site."""

    def __init__(self, store: Store, *, changed: Callable[[str], None], removed: Callable[[str], None]) -> None:
        """`changed` is called with the site whose agent is no longer who it was, `removed` with one that is gone."""
        self._changed, self._removed = changed, removed
        self._known: dict[str, AgentIdentity] = {}
        self._feed = Feed(store, SITE, replace=self._replace, change=self._change)

    async def start(self) -> None:
        """Learn all agents, then follow their changes."""
        await self._feed.start()

    async def close(self) -> None:
        """Stop following."""
        await self._feed.close()

    def identify(self, site: str) -> AgentIdentity | None:
        """Who the agent of a site is; None: there is none, or it was revoked."""
        return self._known.get(site)

    async def reached(self, version: int) -> None:
        """Wait a moment until a change has taken effect here."""
        await self._feed.reached(version, 2.0)

    def _replace(self, page: Page) -> None:
        found = {r.key.name: known for r in page.records if (known := _identity(r.key.name, r.obj)) is not None}
        before, self._known = self._known, found
        for site, known in before.items():
            if found.get(site) != known:
                self._changed(site)

    def _change(self, change: Change) -> None:
        if change.record is None:
            return
        site = change.record.key.name
        gone = change.type is EventType.DELETED
        known = None if gone else _identity(site, change.record.obj)
        before = self._known.get(site)
        if known is None:
            self._known.pop(site, None)
        else:
            self._known[site] = known
        if gone:
            self._removed(site)
        elif before is not None and known != before:
            self._changed(site)


def _identity(site: str, obj: Any) -> AgentIdentity | None:
    spec = obj.get("spec") or {}
    agent = spec.get("agent")
    if spec.get("driver") != "agent" or not isinstance(agent, dict) or agent.get("revoked"):
        return None
    key, machine = agent.get("key"), agent.get("machine")
    return AgentIdentity(site, key, machine) if isinstance(key, str) and isinstance(machine, str) else None
