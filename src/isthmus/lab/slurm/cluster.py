"""The whole lab: up, down, and what may be done to it meanwhile.

`up` is idempotent: it starts what does not run and leaves the rest alone. `down` ends every process that carries the
lab's mark, removes links, mounts and cgroups, and keeps the files, so that the next `up` finds jobs and accounts again;
with `erase` it removes the files too.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
from dataclasses import replace
from pathlib import Path

from isthmus.errors import Invalid, Misconfigured
from isthmus.lab import cabling, numbers, processes
from isthmus.lab.layout import LabStatus

from . import accounting, config, packages, releases
from .backup import NAME as BACKUP
from .backup import Backup
from .layout import LabSettings, NodeSpec, SlurmLabPlace
from .nodes import SlurmLabNode, write_whole

_FOLDERS = ("munge", "state", "spool", "log", "run", "nodes", "dev", "shared")
_LOCK = "isthmus-lab"
_CGROUP_V1 = Path("/sys/fs/cgroup/memory/cgroup.procs")
_REST_USER = "daemon"
"""An account that every machine has, and that runs no jobs."""
_BOARD, _GPU = "board:akida:1", "gpu:a100:1"


class SlurmLab:
    """A Slurm cluster in a folder."""

    def __init__(self, folder: Path) -> None:
        self.place = SlurmLabPlace.of(folder)

    @property
    def settings(self) -> LabSettings:
        """What it was made with."""
        return self.place.settings()

    def up(self, nodes: int = 0, settings: LabSettings | None = None) -> None:
        """Set it up if it is new, start what does not run, and see to it that nodes 1 to `nodes` are usable."""
        known = self.place.settings() if self.place.exists else None
        packages.check(settings or known or LabSettings())
        if known is None:
            self._set_up(settings or LabSettings())
        elif settings is not None and _able(settings) != known:
            raise Invalid(
                f"The lab in {self.place.root} was made with other settings; `isthmus lab down --erase` first."
            )
        self._configure()
        self._start_network()
        self._start_daemons()
        for spec in self.default_nodes(nodes):
            self.start_node(spec)
        for spec in self.default_nodes(nodes):
            self.wait_usable(spec.name)
        self._wait_rest()

    def default_nodes(self, count: int) -> list[NodeSpec]:
        """Plain nodes, the first with a board and the second with a GPU, so that there is something to ask for."""
        extras = {1: (("board", "akida"), (_BOARD,)), 2: (("gpu",), (_GPU,))}
        specs = []
        for index in range(1, count + 1):
            features, gres = extras.get(index, ((), ()))
            specs.append(NodeSpec(self.place.node_name(index), features=features, gres=gres))
        return specs

    # Nodes

    def node(self, name: str) -> SlurmLabNode:
        """A node by its name."""
        return SlurmLabNode(self.place, self.settings, name)

    def add(self, spec: NodeSpec) -> None:
        """Start a node and wait until jobs can run there."""
        self.start_node(spec)
        self.wait_usable(spec.name)

    def start_node(self, spec: NodeSpec) -> None:
        """Start a node. One that crashed is forgotten first, with its jobs: a ghost would keep them running."""
        node = self.node(spec.name)
        if not node.processes() and not self._same(spec):
            self._forget(spec.name)
        node.start(spec)

    def remove(self, name: str) -> None:
        """Take a node away at once; its jobs are requeued or fail."""
        if self._known(name):
            self._down(name)
        self.node(name).clean()
        self._forget(name)
        self.node(name).remove()

    def wait_usable(self, name: str, seconds: float = 30) -> None:
        """Wait until a node takes jobs."""
        good = {"idle", "mixed", "allocated", "completing"}
        if not processes.wait(lambda: self._states().get(name, "") in good, seconds):
            state = self._states().get(name, "unknown")
            raise Misconfigured(f"Node {name} is {state}; see {self.place.root}/log/slurmd-{name}.log.")

    def _states(self) -> dict[str, str]:
        # All nodes are asked for: what Slurm says of a single one may be old.
        done = self.call("sinfo", "-h", "-p", "all", "-N", "-o", "%N %T", check=False)
        return dict(line.split(None, 1) for line in done.splitlines() if " " in line)

    def _same(self, spec: NodeSpec) -> bool:
        """Whether slurmctld has the node with this configuration, free of jobs, as after down and up."""
        file = self.place.node(spec.name) / "conf"
        if not file.exists() or file.read_text() != spec.conf:
            return False
        idle = not self.call("squeue", "-h", "-w", spec.name, check=False).strip()
        return idle and self._states().get(spec.name, "none").rstrip("*") in ("idle", "down", "unknown")

    def _known(self, name: str) -> bool:
        return processes.call(self.place, "scontrol", "show", "node", name, check=False).returncode == 0

    def _down(self, name: str) -> None:
        self.call("scontrol", "update", f"nodename={name}", "state=down", "reason=lab", check=False)

    def _forget(self, name: str) -> None:
        if not self._known(name):
            return
        self._down(name)

        def deleted() -> bool:
            self.call("scontrol", "delete", f"nodename={name}", check=False)
            return not self._known(name)

        if not processes.wait(deleted, 15):
            raise Misconfigured(f"slurmctld does not let node {name} go; see {self.place.log('slurmctld')}.")

    # Daemons

    def call(self, *words: str, check: bool = True) -> str:
        """A Slurm command of this lab, as root; its output."""
        return processes.call(self.place, *words, check=check).stdout

    def token(self, user: str, seconds: int = 86_400) -> str:
        """A token with which slurmrestd takes somebody for this user."""
        said = self.call("scontrol", "token", f"username={user}", f"lifespan={seconds}")
        return said.strip().removeprefix("SLURM_JWT=")

    def version(self) -> tuple[int, ...]:
        """Of Slurm, such as (22, 5)."""
        return packages.version(self.call("slurmctld", "-V"))

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        if processes.pid_of(self.place, "slurmctld") is None:
            processes.call(self.place, "slurmctld")
        if not processes.wait(self._controller_answers, 60):
            raise Misconfigured(f"slurmctld does not answer; see {self.place.log('slurmctld')}.")

    def stop_controller(self, *, kill: bool = False) -> None:
        """Stop slurmctld, or `kill -9` it."""
        if kill and (pid := processes.pid_of(self.place, "slurmctld")) is not None:
            processes.kill_all(lambda: [pid] if processes.pid_of(self.place, "slurmctld") else [])
        processes.stop(self.place, "slurmctld", 30)

    def _controller_answers(self) -> bool:
        return " UP" in processes.call(self.place, "scontrol", "ping", check=False).stdout

    def _start_daemons(self) -> None:
        place = self.place
        if processes.pid_of(place, "munged") is None:
            processes.call(
                place, "munged", f"--key-file={place.root}/munge/key", f"--socket={place.munge}",
                f"--log-file={place.root}/munge/log", f"--pid-file={place.pid_file('munged')}",
                f"--seed-file={place.root}/munge/seed", "--num-threads=10", "--force",
            )  # fmt: skip
        if self.settings.accounting:
            accounting.start(place)
        self.start_controller()
        if self.settings.backup:
            self.backup.start()
        self.start_rest()

    @property
    def backup(self) -> Backup:
        """The second slurmctld, where the settings ask for one."""
        return Backup(self.place, self.settings)

    def start_rest(self) -> None:
        """Start slurmrestd: with tokens, on a port and on a socket."""
        place = self.place
        if processes.pid_of(place, "slurmrestd") is not None:
            return
        # Newer versions refuse to run as root, even for a lab.
        place.rest_socket.parent.mkdir(exist_ok=True)
        shutil.chown(place.rest_socket.parent, _REST_USER)
        place.rest_socket.unlink(missing_ok=True)
        versions = ",".join(packages.rest_plugins(self.version(), self.settings.accounting))
        words = ["setpriv", f"--reuid={_REST_USER}", f"--regid={_REST_USER}", "--clear-groups"]
        words += ["slurmrestd", "-t", "4", "-s", versions, "-a", "rest_auth/jwt", f"127.0.0.1:{place.port(3)}"]
        words.append(f"unix:{place.rest_socket}")
        # One arena: otherwise each of its threads keeps a heap as large as the longest list of jobs.
        more = {"SLURM_JWT": "daemon", "MALLOC_ARENA_MAX": "1"}
        processes.spawn(place, "slurmrestd", words, more)

    def stop_rest(self) -> None:
        """Stop slurmrestd."""
        processes.stop(self.place, "slurmrestd")

    def _wait_rest(self) -> None:
        def answers() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.place.port(3)), 5):
                return True
            return False

        if not processes.wait(answers, 30):
            raise Misconfigured(f"slurmrestd does not answer; see {self.place.log('slurmrestd')}.")

    # Setting up and taking down

    def _set_up(self, settings: LabSettings) -> None:
        root = self.place.root
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o711)
        if closed := _closed_parent(root):
            raise Misconfigured(f"Jobs of the lab cannot reach {root}, because {closed} is closed to others.")
        for name in _FOLDERS:
            (root / name).mkdir(exist_ok=True)
            (root / name).chmod(0o711 if name in ("shared", "munge", "run") else 0o755)
        for key, size in ((root / "munge" / "key", 128), (self.place.jwt_key, 32)):
            descriptor = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.write(descriptor, secrets.token_bytes(size))
            os.close(descriptor)
        with numbers.machine_lock(_LOCK):
            number = numbers.free_number(root, lambda number: SlurmLabPlace(root, number))
            self.place = replace(self.place, number=number)
            cabling.make_bridge(self.place)
        self.place.save(_able(settings))
        write_whole(root / "number", str(number))

    def _configure(self) -> None:
        root, settings = self.place.root, self.settings
        if settings.release and not (self.place.programs / "bin").exists():
            releases.install(releases.fetch(settings.release), self.place.programs)
        host = socket.gethostname().partition(".")[0]
        backup = self.backup.host if settings.backup else None
        write_whole(self.place.conf, config.slurm_conf(self.place, settings, host, backup))
        if settings.limits:
            write_whole(root / "cgroup.conf", config.cgroup_conf())
        if not (root / "gres.conf").exists():
            write_whole(root / "gres.conf", config.gres_conf(()))

    def _start_network(self) -> None:
        with numbers.machine_lock(_LOCK):
            numbers.hold(self.place)
            if not numbers.has_link(self.place):
                cabling.make_bridge(self.place)

    def down(self, *, erase: bool = False) -> None:
        """Stop everything and leave no link, mount, process or cgroup; with `erase` no file either."""
        place = self.place
        if not place.exists:
            return
        for name in ("slurmrestd", BACKUP, "slurmctld"):
            processes.stop(place, name)
        for folder in sorted(place.root.glob("nodes/*")):
            self.node(folder.name).clean()
        accounting.stop(place)
        processes.stop(place, "munged")
        processes.kill_all(lambda: processes.all_of(place))
        if numbers.has_link(place):
            processes.call(place, "ip", "link", "delete", place.bridge)
        if erase:
            shutil.rmtree(place.root)
            with numbers.machine_lock(_LOCK):
                numbers.let_go(place)
            self.place = SlurmLabPlace(place.root)

    def status(self) -> LabStatus:
        """What runs."""
        names = ("munged", "slurmctld", BACKUP, "slurmrestd", "slurmdbd", "mariadb")
        found = {name: pid for name in names if self.place.exists and (pid := processes.pid_of(self.place, name))}
        running = "slurmctld" in found
        return LabStatus(self.place.root, running, found, self._states() if running else {})


def _able(settings: LabSettings) -> LabSettings:
    """The settings as far as this machine can have them."""
    return replace(settings, limits=settings.limits and os.access(_CGROUP_V1, os.W_OK), options=dict(settings.options))


def _closed_parent(path: Path) -> Path | None:
    return next((parent for parent in path.parents if not parent.stat().st_mode & 0o001), None)
