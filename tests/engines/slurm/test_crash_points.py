"""Killed between any two effects, the control plane loses no job, runs none twice, and reports every end as it was.

The points are not listed here: a first pass records each effect that a whole life of jobs reaches (files, Slurm, the
store), and then the process is killed after each of them. All of them take an hour, so an ordinary run takes one way to
reach Slurm and a few points by chance; `--all-variants --crash-points all` takes all, and `ISTHMUS_TEST_SEED` repeats
a choice.
"""

from __future__ import annotations

import ast
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus._kit.crashpoints import RECORD, VARIABLE
from isthmus.engines import collecting
from isthmus.engines.slurm import driver
from isthmus.engines.slurm.accounting import late
from isthmus.engines.slurm.files import remote, remote_rounds, shared
from isthmus.engines.slurm.observing import settling
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.login import LoginNode
from isthmus.lab.slurm.registering import manifests
from isthmus.testing.engines import new_run_id
from isthmus.testing.servers import ServerProcess

from .conftest import SSH_USER
from .lifecycles import Lifecycle


def choose(points: list[str], asked: str, chance: random.Random) -> list[str]:
    """Those that were asked for: all, the named ones, or so many; each effect is as likely as any other."""
    if asked == "all":
        return points
    if not asked.isdigit():
        return asked.split(",")
    effects: dict[str, list[str]] = {}
    for point in points:
        effects.setdefault(point.partition("#")[0], []).append(point)
    return [chance.choice(effects[name]) for name in chance.sample(sorted(effects), int(asked))]


def site_of(lab: SlurmLab, login: LoginNode, transport: str) -> dict[str, Any]:
    site = manifests(lab.place, f"crash-{new_run_id()[:8]}")[-1]
    slurm = site["spec"]["slurm"]
    slurm["pollInterval"] = "250ms"
    if transport == "SSH":
        top = lab.place.shared / "ssh"
        top.mkdir(exist_ok=True)
        top.chmod(0o1777)
        slurm["folder"] = str(top / site["metadata"]["name"])
        slurm["accounts"] = [{"tenant": "*", "user": SSH_USER, "shared": True}]
        slurm["transport"] = "SSH"
        keys, known = str(login.folder / "{user}"), str(login.known_hosts)
        slurm["ssh"] = {
            "host": "127.0.0.1", "port": login.port, "user": "root", "keyFile": keys, "knownHostsFile": known,
        }  # fmt: skip
    return site


def live(folder: Path, lab: SlurmLab, site: dict[str, Any], **environment: str) -> Lifecycle:
    """Go through everything, and check what came of it."""
    server = ServerProcess(folder / "data")
    life = Lifecycle(server, lab, site, **environment)
    try:
        check(life, life.go(), server)
        life.forget()
    finally:
        if server.process is not None and server.process.poll() is None:
            server.stop()
    return life


def check(life: Lifecycle, ends: dict[str, dict[str, Any]], server: ServerProcess) -> None:
    log = server.log.read_text()[-5000:]
    for end in ends.values():
        for attempt in [*(end.get("tries") or ()), end]:
            assert "Lost" not in str(attempt.get("reason")), (end, log)
    ran = {name: life.ran(name) for name in ends}
    assert ran == {"plain": ["0"], "lost": ["0"], "fails": ["0", "1"], "stopped": ["0"], "waits": []}, log
    assert {name: end["phase"] for name, end in ends.items()} == {
        "plain": "Succeeded", "lost": "Succeeded", "fails": "Failed", "stopped": "Cancelled", "waits": "Cancelled",
    }, log  # fmt: skip
    assert (ends["plain"]["outputs"]["count"], ends["fails"]["exitCode"]) == (1, 3)


@pytest.mark.real
@pytest.mark.timeout(7200)
@pytest.mark.sampled(1)
@pytest.mark.parametrize("transport", ["Command", "SSH"])
def test_killed_after_any_effect(
    transport: str, lab: SlurmLab, login: LoginNode, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "recorded").mkdir()
    record = tmp_path / "points"
    assert live(tmp_path / "recorded", lab, site_of(lab, login, transport), **{RECORD: str(record)}).died == 0
    points = list(dict.fromkeys(record.read_text().split()))
    seed = int(os.environ["ISTHMUS_TEST_SEED"])
    print(f"{len(points)} points by {transport}; ISTHMUS_TEST_SEED={seed}")
    chosen = choose(points, request.config.getoption("--crash-points"), random.Random(seed))
    reached = 0
    for number, point in enumerate(chosen):
        print(f"kill at {point}", flush=True)
        folder = tmp_path / str(number)
        folder.mkdir()
        reached += live(folder, lab, site_of(lab, login, transport), **{VARIABLE: point}).died
    # How often a state is looked at and written is a matter of time: a few points are not there in every life.
    assert reached >= len(chosen) / 2


# Nothing may change without a point after it: what changes things is only ever handed to `step`.

ON_DISK = frozenset({
    "link", "symlink", "unlink", "rename", "replace", "mkdir", "makedirs", "rmdir", "removedirs", "chmod", "fchmod",
    "chown", "fchown", "lchown", "write", "pwrite", "truncate", "ftruncate", "utime", "mknod", "mkfifo", "write_bytes",
    "write_text", "touch", "hardlink_to", "symlink_to", "copyfile", "copy", "copy2", "copytree", "rmtree", "move",
    "open",
})  # fmt: skip
OVER_SSH = frozenset({
    "link", "symlink", "remove", "unlink", "rename", "posix_rename", "mkdir", "rmdir", "write", "put", "setstat",
    "chmod", "open", "_sh",
})  # fmt: skip
AT_SLURM = frozenset({"submit", "cancel", "hold"})


def bare_effects(text: str, effects: frozenset[str], *, of: frozenset[str] | None = None) -> Iterator[str]:
    """Calls of something that changes things, made directly; `of` names the objects whose methods are meant."""
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in effects):
            continue
        owner = ast.unparse(node.func.value)
        if of is not None and owner not in of:
            continue
        if node.func.attr == "open" and not _writes(node):
            continue
        yield f"{node.lineno}: {ast.unparse(node)}"


def _writes(call: ast.Call) -> bool:
    """Whether a file is opened to be changed: the flags or the mode are written out in the call."""
    words = " ".join(ast.unparse(word) for word in call.args[1:2])
    return any(sign in words for sign in ("_NEW", "O_CREAT", "'w", "'x", "'a", "_append"))


def text_of(module: Any) -> str:
    return Path(module.__file__).read_text()


def test_every_change_of_files_passes_a_point() -> None:
    found = [
        *bare_effects(text_of(shared), ON_DISK),
        *bare_effects(text_of(collecting), ON_DISK - {"replace"}),
        *bare_effects(text_of(remote), OVER_SSH),
        *bare_effects(text_of(remote_rounds), OVER_SSH | {"call"}, of=frozenset({"self._ssh"})),
    ]
    assert [line for line in found if "READ_MANY" not in line] == []


def test_every_change_at_slurm_passes_a_point() -> None:
    asked = frozenset({"self._transport"})
    found = [line for module in (driver, settling, late) for line in bare_effects(text_of(module), AT_SLURM, of=asked)]
    assert found == []


def test_a_change_without_a_point_is_found() -> None:
    text = "os.unlink(new)\nstep(os.unlink, new)\nos.open(new, _NEW)\nos.open(new, _FILE)\nawait sftp.remove(new)\n"
    assert len(list(bare_effects(text, ON_DISK | OVER_SSH))) == 3
