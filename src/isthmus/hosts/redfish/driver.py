"""One machine through its BMC."""

from __future__ import annotations

from pathlib import Path

from isthmus.errors import HostRefused
from isthmus.hosts.base import HostSeen
from isthmus.resources.hosts import RedfishHost, Reset

from . import parsing
from .bmc_client import RedfishClient, credentials, trust

SYSTEMS = "/redfish/v1/Systems"


class RedfishDriver:
    """Looks at a machine, and changes its power."""

    def __init__(self, spec: RedfishHost) -> None:
        self._spec = spec
        self._client: RedfishClient | None = None
        self._path = ""
        """Where the machine is described, once it was found."""

    async def look(self) -> HostSeen:
        """What it is and whether it has power."""
        return parsing.seen(await self._system())

    async def reset(self, reset: Reset) -> None:
        """Ask for a change of power."""
        system = await self._system()
        target = parsing.reset_target(system, self._path)
        await self._bmc().post(target, {"ResetType": reset.value})

    async def close(self) -> None:
        """Let go of connections."""
        if self._client is not None:
            await self._client.close()

    def _bmc(self) -> RedfishClient:
        if self._client is None:
            login = credentials(Path(self._spec.credentials_file))
            self._client = RedfishClient(self._spec.url, login, trust(self._spec.certificate))
        return self._client

    async def _system(self) -> dict[str, object]:
        if not self._path:
            self._path = await self._find()
        return await self._bmc().get(self._path)

    async def _find(self) -> str:
        """The machine that is meant: the only one, or the one that is named."""
        paths = parsing.members(await self._bmc().get(SYSTEMS))
        if self._spec.system is None:
            if len(paths) != 1:
                raise HostRefused(f"The BMC manages {len(paths)} machines; say which one with spec.redfish.system.")
            return paths[0]
        for path in paths:
            if parsing.named(await self._bmc().get(path), self._spec.system):
                return path
        raise HostRefused(f"None of the BMC's {len(paths)} machines is called {self._spec.system!r}.")
