"""Everything that happens to jobs at a Slurm site, with a control plane that dies at any moment and is started again.

How often each job ran is counted outside of Isthmus: the jobs append a line to files of their own.
"""

from __future__ import annotations

import os
import time
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.testing.servers import GROUP, ServerProcess

T = TypeVar("T")
PATIENCE = 180.0
WAIT = "while ! test -e {}/go; do sleep 0.1; done"
LOSSY = """#!/bin/sh
# Submits, and of one job loses the answer.
PATH={path}
case "$*" in
*--job-name=lost*|*"-J lost"*)
  if mkdir "{mark}" 2>/dev/null; then sbatch "$@" >/dev/null; exit 5; fi;;
esac
exec sbatch "$@"
"""


class Lifecycle:
    """One control plane and one site of its own, and the jobs that go through them."""

    def __init__(self, server: ServerProcess, lab: SlurmLab, site: dict[str, Any], **environment: str) -> None:
        self._server, self._lab, self._site = server, lab, site
        self._environment = environment
        """Also when it is started again: places are counted over the whole life."""
        self.name: str = site["metadata"]["name"]
        self.counts = lab.place.shared / f"counts-{self.name}"
        self.died = 0

    def go(self) -> dict[str, dict[str, Any]]:
        """Let all of it happen; the last status of each job."""
        self.counts.mkdir()
        self.counts.chmod(0o777)
        self._site["spec"]["slurm"]["path"] = str(self._commands())
        self._server.start(wait=False, **self._environment)
        self._ask(lambda: self._server.request("/readyz"))
        self._create(f"{GROUP}/sites", self._site)
        self._until(lambda: self._server.request(f"{GROUP}/sites/{self.name}")["status"].get("phase") == "Ready")
        self._jobs()
        for name in ("stopped", "plain", "lost", "fails"):  # a run that was seen to run, and then is not there, is lost
            self._until(lambda name=name: self._status(name)["phase"] == "Running")  # type: ignore[misc]
        (self.counts / "go").touch()
        self._until(lambda: self._status("waits")["phase"] == "Queued")
        for intent in ("Hold", "Run", "Cancel"):
            self._ask(lambda intent=intent: self._server.patch("waits", intent=intent))  # type: ignore[misc]
        ends = {name: self._end(name) for name in ("plain", "lost", "fails", "waits")}
        self._ask(lambda: self._server.patch("stopped", intent="Cancel"))
        ends["stopped"] = self._end("stopped")
        return ends

    def forget(self) -> None:
        """Delete all jobs, and wait until the site has nothing of them any more."""
        for name in ("plain", "lost", "fails", "waits", "stopped"):
            self._delete(name)
        self._until(self._nothing_is_left)

    def ran(self, name: str) -> list[str]:
        """The attempts that the job itself saw."""
        path = self.counts / name
        return path.read_text().split() if path.exists() else []

    def _commands(self) -> Path:
        """A folder with an sbatch that loses one reply."""
        folder = self.counts / "bin"
        folder.mkdir(mode=0o755)
        own = f"{self._lab.place.programs}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        (folder / "sbatch").write_text(LOSSY.format(path=own, mark=self.counts / "lost-once"))
        (folder / "sbatch").chmod(0o755)
        programs = self._lab.place.programs / "bin"
        for program in programs.iterdir() if programs.is_dir() else ():
            if program.name != "sbatch":
                (folder / program.name).symlink_to(program)
        return folder

    def _jobs(self) -> None:
        again = {"limit": 1, "backoff": "1s"}
        self._submit("stopped", "sleep 1000")
        self._submit("plain", "echo 1 > kept", retries=again, outputs=["kept"])
        self._submit("lost", "true", retries=again)
        self._submit("fails", "exit 3", retries=again)
        self._submit("waits", "true", dependencies=[{"job": "stopped", "condition": "Finished"}])

    def _submit(self, name: str, script: str, **spec: Any) -> None:
        text = f'#!/bin/sh\necho "$ISTHMUS_ATTEMPT" >> {self.counts}/{name}\n{WAIT.format(self.counts)}\n{script}\n'
        spec = {"script": text, "placement": {"sites": [self.name]}, "resources": {"cpus": "1"}, **spec}
        body = {"apiVersion": "isthmus.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
        self._create(self._server.jobs(), body)

    def _create(self, path: str, body: Any) -> None:
        def create() -> bool:
            try:
                self._server.request(path, body)
            except urllib.error.HTTPError as error:
                if error.code != 409:
                    raise
            return True

        self._ask(create)

    def _status(self, name: str) -> dict[str, Any]:
        return self._server.status(name)

    def _end(self, name: str) -> dict[str, Any]:
        ends = ("Succeeded", "Failed", "Cancelled")
        return self._until(lambda: s if (s := self._status(name))["phase"] in ends else None)

    def _delete(self, name: str) -> None:
        path = f"{self._server.jobs()}/{name}"

        def gone() -> bool:
            try:
                self._server.request(path, method="DELETE")
            except urllib.error.HTTPError as error:
                return error.code == 404
            return False

        self._until(gone)

    def _nothing_is_left(self) -> bool:
        folder = Path(self._site["spec"]["slurm"]["folder"])
        return not any(os.listdir(folder / place) for place in ("active", "over", "runs"))

    def _until(self, found: Callable[[], T | None]) -> T:
        deadline = time.monotonic() + PATIENCE
        while not (result := self._ask(found)):
            if time.monotonic() > deadline:
                raise AssertionError(f"did not happen: {found}; {self._server.log.read_text()[-3000:]}")
            time.sleep(0.05)
        return result

    def _ask(self, call: Callable[[], T]) -> T:
        """A call that a kill may come in between of: the server is started again, and asked again."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return call()
            except OSError as error:
                if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                    raise
                if time.monotonic() > deadline:
                    raise AssertionError(f"no answer: {error}; {self._server.log.read_text()[-3000:]}") from error
            process = self._server.process
            assert process is not None
            if process.poll() is not None:
                assert process.returncode == -9, self._server.log.read_text()[-3000:]
                self.died += 1
                self._server.start(wait=False, **self._environment)
            time.sleep(0.05)
