"""A run's folder that is sent over SSH appears whole or not at all, wherever the connection breaks."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import IO, Any, cast

import pytest

from isthmus.engines.slurm.files.base import LaunchFile
from isthmus.engines.slurm.files.remote import RemoteFiles
from isthmus.engines.slurm.files.remote_rounds import MOST_BYTES
from isthmus.engines.slurm.transports.commands import Done
from isthmus.engines.slurm.transports.shells import function
from isthmus.engines.slurm.transports.ssh import SshConnections
from isthmus.errors import SiteUnavailable

pytestmark = pytest.mark.anyio
SCRIPT = LaunchFile("#!/bin/sh\n", 0o500)


class CutOff:
    """A connection that breaks after so many bytes: what runs there finds the end of its input."""

    def __init__(self, after: int) -> None:
        self.after, self.sent = after, b""

    async def send(self, command: str, *, stdin: IO[bytes], **_: Any) -> Done:
        return self._run(command, stdin.read())

    async def call(self, text: str, *words: str, stdin: bytes, **_: Any) -> Done:
        return self._run(function(text, words), stdin)

    def _run(self, command: str, sent: bytes) -> Done:
        self.sent = sent
        words = ["/bin/sh", "-c", command]
        done = subprocess.run(words, input=self.sent[: self.after], capture_output=True, check=False)
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("lines", [100, MOST_BYTES // 16], ids=["small", "large"])
async def test_a_folder_that_was_cut_off_never_appears_and_leaves_nothing(lines: int, tmp_path: Path) -> None:
    launch = {"launch": LaunchFile("echo ran\n" * lines), "script": SCRIPT}
    (tmp_path / "runs").mkdir()
    line = CutOff(0)
    files = RemoteFiles(str(tmp_path), cast(SshConnections, line))
    while not line.sent or line.after <= line.sent.index(b".whole"):  # between any two blocks before the last file
        with pytest.raises(SiteUnavailable):
            await files.begin("u.0", "me", launch, None, b"")
        assert list((tmp_path / "runs").iterdir()) == [], f"cut off after {line.after} bytes"
        line.after += 512 if lines == 100 else 8192
    assert line.after > 4 * 512
