"""The images that sites keep, for the API: asked of the engines that are open here."""

from __future__ import annotations

from isthmus.engines.base import ImageKeeper, SiteImage
from isthmus.errors import IsthmusError, SiteUnavailable
from isthmus.reconcilers.sites.registry import EngineRegistry
from isthmus.resources.kinds import SITE
from isthmus.store.base import Query, Store


class EngineImages:
    """Looks after images through the engines."""

    def __init__(self, store: Store, engines: EngineRegistry) -> None:
        self._store, self._engines = store, engines

    async def list(self) -> tuple[list[tuple[str, SiteImage]], set[str]]:
        """Every image with its site, and the sites that could not be asked."""
        found: list[tuple[str, SiteImage]] = []
        silent = set()
        for record in (await self._store.list(Query(SITE))).records:
            name = record.key.name
            engine: object = self._engines.find(name)
            if engine is None:
                silent.add(name)
            elif isinstance(engine, ImageKeeper):
                try:
                    found += [(name, image) for image in await engine.list_images()]
                except IsthmusError:
                    silent.add(name)
        return found, silent

    async def remove(self, site: str, image: SiteImage, tenant: str | None) -> bool:
        """Remove an image, or for a tenant what it has of it; False if a job uses it."""
        engine: object = self._engines.find(site)
        if not isinstance(engine, ImageKeeper):
            raise SiteUnavailable(f"site {site} cannot be asked here; see isthmus sites {site}")
        return await engine.remove_image(image.key, tenant)
