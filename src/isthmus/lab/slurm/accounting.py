"""slurmdbd, and the MariaDB that holds the accounting."""

from __future__ import annotations

import os
from pathlib import Path

from isthmus.errors import Misconfigured
from isthmus.lab import processes

from .config import slurmdbd_conf
from .layout import SlurmLabPlace

_SQL = (
    "create database if not exists slurm; create user if not exists slurm@'127.0.0.1' identified by 'slurm'; "
    "grant all on slurm.* to slurm@'127.0.0.1';"
)


def start(place: SlurmLabPlace) -> None:
    """Start both, and wait until accounts can be kept."""
    if processes.pid_of(place, "mariadb") is None:
        _start_database(place)
    conf = place.root / "slurmdbd.conf"
    descriptor = os.open(conf, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(slurmdbd_conf(place, place.settings()))
    if processes.pid_of(place, "slurmdbd") is None:
        processes.call(place, "slurmdbd")
    if not processes.wait(lambda: _answers(place, "sacctmgr", "-n", "show", "cluster"), 60):
        raise Misconfigured(f"slurmdbd does not answer; see {place.log('slurmdbd')}.")


def stop(place: SlurmLabPlace) -> None:
    """Stop both, slurmdbd first."""
    processes.stop(place, "slurmdbd", 60)
    processes.stop(place, "mariadb", 60)


def _start_database(place: SlurmLabPlace) -> None:
    data = place.root / "database"
    if not (data / "mysql").is_dir():
        processes.call(
            place, "mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db",
            "--auth-root-authentication-method=normal",
        )  # fmt: skip
    socket = place.root / "run" / "mariadb.sock"
    words = [
        "mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={socket}",
        f"--pid-file={place.root / 'run' / 'mariadbd'}", "--bind-address=127.0.0.1", f"--port={place.port(2)}",
        "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0",
        "--innodb-flush-method=nosync",
    ]  # fmt: skip
    processes.spawn(place, "mariadb", words)
    query = ("mariadb", "--no-defaults", "-u", "root", "-S", str(socket), "-e")
    if not processes.wait(lambda: Path(socket).exists() and _answers(place, *query, "select 1"), 60):
        raise Misconfigured(f"MariaDB does not answer; see {place.log('mariadb')}.")
    processes.call(place, *query, _SQL)


def _answers(place: SlurmLabPlace, *words: str) -> bool:
    return processes.call(place, *words, check=False).returncode == 0
