"""The engines that are open now, one for each site."""

from __future__ import annotations

from isthmus.engines.base import Engine, LogReader, ReadingEngine
from isthmus.errors import SiteUnavailable


class EngineRegistry:
    """Finds the engine of a site. Filled by the reconciler of sites, used by everybody else."""

    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}
        self._expected: set[str] | None = None

    def expect(self, sites: set[str]) -> None:
        """The sites that there are, connected or not."""
        self._expected = sites

    def expects(self, site: str) -> bool:
        """Whether there is such a site at all; True as long as that is not known."""
        return self._expected is None or site in self._expected

    def put(self, site: str, engine: Engine) -> None:
        """The site's engine is open."""
        self._engines[site] = engine

    def take(self, site: str) -> Engine | None:
        """The site's engine is about to be closed."""
        return self._engines.pop(site, None)

    def names(self) -> list[str]:
        """The sites whose engines are open."""
        return list(self._engines)

    def find(self, site: str) -> Engine | None:
        """The site's engine, if it is open."""
        return self._engines.get(site)

    def reader(self, site: str) -> LogReader | None:
        """The site's engine, if it is open and its logs can be read."""
        engine: object = self._engines.get(site)
        return engine if isinstance(engine, ReadingEngine) else None

    def of(self, site: str | None) -> Engine:
        """The site's engine; raises SiteUnavailable."""
        engine = self._engines.get(site or "")
        if engine is None:
            raise SiteUnavailable(f"site {site!r} is not connected; see isthmus sites {site}")
        return engine
