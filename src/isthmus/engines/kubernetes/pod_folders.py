"""Looking into the working folder of a pod, by small programs in the container that keeps it reachable.

That container is there when the job has outputs to keep; of the job's own image nothing but a shell is asked for. It
holds nothing but the folder, so a link that leads out shows only the helper's own image; it is not followed all the
same. What the programs say comes from where the job can write: it is bounded, and a line that cannot be read is left
out.
"""

from __future__ import annotations

from isthmus.engines.base import FilePart, FolderListing
from isthmus.engines.browsing import listing, no_such_file, work_file
from isthmus.errors import EngineRefused
from isthmus.kubernetes.client import KubernetesClient
from isthmus.resources.work.trees import check_path

from . import parsing, pods, wrapping
from .executing import execute
from .parsing import Pod

_LONGEST_LINE = 4200


class FolderOfPod:
    """The working folder of one pod."""

    def __init__(self, client: KubernetesClient, path: str, pod: Pod) -> None:
        """Raises EngineRefused if the pod has nothing to look with."""
        if pod.containers.get(pods.FILES, parsing.Container()).state != "running":
            raise EngineRefused(
                "At Kubernetes sites the files of a running job can be seen only if it keeps outputs: name some in "
                "spec.outputs (--outputs), and wait until its pod runs."
            )
        self._client, self._path = client, path

    async def list_files(self, most: int) -> FolderListing:
        """What is in it, up to so many entries."""
        said = await self._ask(wrapping.look(most + 1), (most + 1) * _LONGEST_LINE)
        found = []
        for line in said.split(b"\n"):
            words = line.split(b" ", 3)
            try:
                mode, size, modified = int(words[0], 16), int(words[1]), float(words[2])
                path = words[3].decode("utf-8", "surrogateescape").removeprefix("./")
            except (ValueError, IndexError):
                continue
            found.append(work_file(path, mode, size, modified))
        return listing(found[:most], complete=len(found) <= most)

    async def read_file(self, path: str, offset: int, size: int) -> FilePart:
        """Part of a plain file."""
        said = await self._ask(wrapping.read(check_path(path), offset, size), size + 100)
        head, _, data = said.partition(b"\n")
        whole, _, mark = head.partition(b" ")
        if not whole.isdigit():
            raise no_such_file(path)
        return FilePart(data, int(whole), mark.decode("ascii", "replace"))

    async def _ask(self, command: list[str], most: int) -> bytes:
        said = bytearray()

        async def take(part: bytes) -> None:
            if len(said) <= most:
                said.extend(part)

        await execute(self._client, self._path, pods.FILES, command, take=take)
        return bytes(said)
