"""Taking another version of the agent from the control plane, and starting anew with it.

The new environment is made beside the present one and loaded once on trial before anything changes. Then the agent
ends and is started again by its launcher (`versions`). Runs are children of the keeper and go on; submissions under
way come to their end first.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isthmus.engines.agent.linking import AgentCall
from isthmus.engines.agent.messages import BODY_LIMIT, text, whole
from isthmus.errors import EngineRefused
from isthmus.resources.work.trees import TreeFile

from . import installer
from .contents import ContentStore
from .versions import AgentVersions

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!-]{0,60}-[0-9a-f]{12}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+!-]{0,200}\.whl")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}([<>=!~]=?[0-9][0-9.]{0,20})?")
_MOST, _LARGEST = 200, 2**30


class Upgrader:
    """Upgrades the agent in a folder."""

    def __init__(
        self, versions: AgentVersions, contents: ContentStore, restart: Callable[[], None], *, permitted: bool
    ) -> None:
        """`restart` is called when the present version should end. `permitted`: whether the owner wants it."""
        self._versions, self._contents, self._restart = versions, contents, restart
        self._permitted = permitted
        self._busy = asyncio.Lock()

    def describe(self) -> dict[str, Any]:
        """For the control plane."""
        able = self._permitted and self._versions.installed
        return {"build": self._versions.current, "upgrades": able, "rejected": self._versions.rejected()}

    async def answer(self, call: AgentCall) -> None:
        """Take an offer: the answer names contents that are missing, or the agent starts anew."""
        packages = parse_packages(await call.read(BODY_LIMIT))
        name = f"{packages['version']}-{packages['build']}"
        if not self._permitted or not self._versions.installed:
            raise EngineRefused("The owner of this machine upgrades its agent by hand.")
        if name in self._versions.rejected():
            raise EngineRefused(f"The version {name} did not come up on this machine.")
        async with self._busy:
            if name == self._versions.current:
                call.finish({"accepted": True})
                return
            wheels = installer.chosen(packages)
            files = [TreeFile(path=one["file"], digest=f"sha256:{one['sha256']}", size=one["size"]) for one in wheels]
            if missing := await asyncio.to_thread(self._contents.missing, files):
                call.finish({"missing": missing})
                return
            with self._contents.using(files):
                await asyncio.to_thread(self._make, name, files, packages)
            self._versions.try_out(name)
        call.finish({"accepted": True})
        self._restart()

    def _make(self, name: str, files: list[TreeFile], packages: dict[str, Any]) -> None:
        folder, new = self._versions.folder / name, self._versions.folder / f"{name}.new"
        if folder.exists():
            return
        cache = new.with_suffix(".wheels")
        for left in (new, cache):
            shutil.rmtree(left, ignore_errors=True)
        cache.mkdir()
        try:
            for file in files:
                assert file.digest is not None
                (cache / file.path).symlink_to(self._contents.path(file.digest))
            installer.assemble(new, [cache / file.path for file in files], packages)
            new.rename(folder)
        except (SystemExit, OSError) as error:
            raise EngineRefused(f"The version {name} cannot be installed on this machine: {error}") from None
        finally:
            shutil.rmtree(cache, ignore_errors=True)
            shutil.rmtree(new, ignore_errors=True)


def parse_packages(body: bytes) -> dict[str, Any]:
    """An offer, if it can be one; raises EngineRefused."""
    try:
        said = json.loads(body)
        others = [_package(one) for one in said["others"][:_MOST]]
        requirements = [one for one in said["requirements"][:_MOST] if _REQUIREMENT.fullmatch(one)]
        found = {
            "version": text(said["version"], 60),
            "build": text(said["build"], 12),
            "platform": text(said["platform"], 100),
            "python": text(said["python"], 20),
            "requirements": requirements,
            "main": _package(said["main"]),
            "others": others,
        }
    except (ValueError, KeyError, TypeError, RecursionError):
        raise EngineRefused("The agent does not understand what it is offered.") from None
    if not _VERSION.fullmatch(f"{found['version']}-{found['build']}"):
        raise EngineRefused("The agent does not understand the version that it is offered.")
    return found


def _package(said: dict[str, Any]) -> dict[str, Any]:
    file = Path(said["file"]).name
    if not _FILE.fullmatch(file) or not re.fullmatch(r"[0-9a-f]{64}", said["sha256"]):
        raise ValueError("not a package")
    return {"file": file, "sha256": said["sha256"], "size": whole(said["size"], _LARGEST)}
