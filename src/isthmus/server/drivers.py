"""Which driver serves which site. A new engine is one entry here."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from isthmus._kit.quantities import parse_bytes
from isthmus.config import ServerSettings
from isthmus.engines.base import Engine
from isthmus.engines.local.driver import LocalEngine
from isthmus.engines.local.settings import DeclaredDevices, LocalSettings
from isthmus.errors import Misconfigured, SiteUnavailable
from isthmus.resources.sites import LocalSite, Site

MakeDriver = Callable[[Site, ServerSettings], Engine]


def local(site: Site, settings: ServerSettings) -> Engine:
    """The machine the control plane runs on."""
    spec = site.spec.local or LocalSite()
    here = socket.gethostname()
    if spec.host and spec.host != here:
        raise SiteUnavailable(f"site {site.name} is the machine {spec.host}, and this control plane runs on {here}")
    return LocalEngine(
        LocalSettings(
            root=Path(spec.root) if spec.root else settings.sites / site.name,
            cpus=spec.cpus,
            memory_bytes=parse_bytes(spec.memory) if spec.memory else None,
            isolation=spec.isolation,
            visible=tuple(Path(folder) for folder in spec.visible),
            devices=tuple(DeclaredDevices(d.class_, d.count, tuple(d.paths)) for d in site.spec.devices),
        )
    )


DRIVERS: Mapping[str, MakeDriver] = {"local": local}


class Drivers:
    """Makes engines."""

    def __init__(self, settings: ServerSettings, drivers: Mapping[str, MakeDriver] = DRIVERS) -> None:
        self._settings, self._drivers = settings, drivers

    async def make(self, site: Site) -> Engine:
        """The engine of a site, not yet opened."""
        make = self._drivers.get(site.spec.driver)
        if make is None:
            known = ", ".join(sorted(self._drivers))
            raise Misconfigured(f"site {site.name} wants the driver {site.spec.driver!r}; there are: {known}")
        return make(site, self._settings)
