"""Killed between any two effects, the control plane loses no job, runs none twice, and reports every end as it was.

The points are not listed here: a first pass records each effect that a whole life of jobs reaches (files, Slurm, the
store), and then the process is killed after each of them, several times in one life, at points that lie far apart. All
of them take half an hour, so an ordinary run takes one way to reach Slurm and one life with a few points by chance;
`--all-variants --crash-points all` takes all, `--crash-points 2/6` the second of six parts of them, and
`ISTHMUS_TEST_SEED` repeats a choice.
"""

from __future__ import annotations

import ast
import os
import random
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
from isthmus.lab.slurm.layout import LabSettings
from isthmus.lab.slurm.login import LoginNode
from isthmus.lab.slurm.registering import manifests
from isthmus.testing.engines import new_run_id
from isthmus.testing.servers import ServerProcess
from isthmus.testing.slurm import running_slurm

from .conftest import SSH_USER
from .lifecycles import Lifecycle

KILLS, AT_ONCE = 8, 3
"""Kills in one life, and lives at the same time, each with a control plane and a site of its own."""
NODES = 2
"""That the jobs of one life need at the same time."""


def choose(points: list[str], asked: str, chance: random.Random) -> list[str]:
    """Those that were asked for: all, one of so many parts, the named ones, or so many by chance.

    By chance each effect is as likely as any other. To which part a point belongs does not depend on the others.
    """
    part, of_parts, parts = asked.partition("/")
    if asked == "all":
        return points
    if of_parts:
        return [point for point in points if zlib.crc32(point.encode()) % int(parts) == int(part) - 1]
    if not asked.isdigit():
        return asked.split(",")
    effects: dict[str, list[str]] = {}
    for point in points:
        effects.setdefault(point.partition("#")[0], []).append(point)
    return [chance.choice(effects[name]) for name in chance.sample(sorted(effects), int(asked))]


def lives_of(points: list[str]) -> list[list[str]]:
    """Points in the order in which they are reached, for as many lives as they need; those of one life far apart."""
    lives = -(-len(points) // KILLS)
    return [points[first::lives] for first in range(lives)]


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


@pytest.fixture
def roomy(request: pytest.FixtureRequest, release: str) -> Iterator[tuple[SlurmLab, LoginNode]]:
    """A cluster with room for so many lives; for one, that which all tests share."""
    asked = request.config.getoption("--crash-points")
    if asked.isdigit() and int(asked) <= KILLS:
        yield request.getfixturevalue("lab"), request.getfixturevalue("login")
        return
    with running_slurm(NODES * AT_ONCE, LabSettings(release=release)) as made:
        node = LoginNode(made.place)
        node.up([SSH_USER, "root"])
        yield made, node
        node.down()


@pytest.mark.real
@pytest.mark.timeout(7200)
@pytest.mark.sampled(1)
@pytest.mark.parametrize("transport", ["Command", "SSH"])
def test_killed_after_any_effect(
    transport: str, roomy: tuple[SlurmLab, LoginNode], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    lab, login = roomy
    (tmp_path / "recorded").mkdir()
    record = tmp_path / "points"
    assert live(tmp_path / "recorded", lab, site_of(lab, login, transport), **{RECORD: str(record)}).died == 0
    points = list(dict.fromkeys(record.read_text().split()))
    seed = int(os.environ["ISTHMUS_TEST_SEED"])
    print(f"{len(points)} points by {transport}; ISTHMUS_TEST_SEED={seed}")
    chosen = choose(points, request.config.getoption("--crash-points"), random.Random(seed))

    def live_with(number: int, kills: list[str]) -> int:
        folder = tmp_path / str(number)
        folder.mkdir()
        print(f"kill at {','.join(kills)}", flush=True)
        kept = {VARIABLE: ",".join(kills), RECORD: str(folder / "points")}
        return live(folder, lab, site_of(lab, login, transport), **kept).died

    lives = lives_of(sorted(chosen, key=points.index) if set(chosen) <= set(points) else chosen)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        done = [threads.submit(live_with, number, kills) for number, kills in enumerate(lives)]
        reached = sum(life.result() for life in done)
    print(f"killed {reached} times at {len(chosen)} points in {len(lives)} lives")
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
