"""The files of an audit log: kills, torn lines, rotation, a full disk, floods."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.errors import Invalid, Misconfigured, Unavailable
from isthmus.identity.audit.acts import MOST, Act, bounded
from isthmus.identity.audit.audit_log import AuditLog, AuditSettings, files_of
from isthmus.identity.audit.audit_reading import AuditQuestion, search, text_of
from isthmus.identity.audit.chaining import Head, Verifier
from isthmus.identity.audit.forwarding import Forwarder, parse_place

pytestmark = pytest.mark.anyio
ACT = Act("ada", "token t1", "10.0.0.1", "isthmus/1", "create", "jobs", "physics", "train", 201)


def verified(log: Path, noted: Head | None = None) -> Verifier:
    verifier = Verifier(noted)
    for path in files_of(log):
        *lines, rest = path.read_bytes().split(b"\n")
        for line in lines:
            verifier.line(line)
        if rest:
            verifier.torn(len(rest))
    verifier.end()
    return verifier


def entries(log: Path, **fields: str) -> list[dict[str, object]]:
    return search(log.parent, AuditQuestion(limit=100_000, fields=fields))


async def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    noted: list[Head] = []

    async def note(head: Head) -> None:
        noted.append(head)

    for _ in range(3):
        log = AuditLog(tmp_path / "log-a", note=note)
        log.open()
        with pytest.raises(Misconfigured, match="cannot be written"):
            AuditLog(tmp_path / "log-a").open()
        log.act(ACT)
        await log.close()
    found = verified(tmp_path / "log-a", noted[-1])
    assert (found.problems, found.head) == ([], noted[-1])
    assert len(entries(tmp_path / "log-a", user="ada")) == 3


async def test_a_torn_line_is_taken_away_and_said(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "log-a")
    log.open()
    log.act(ACT)
    await log.close()
    path = files_of(tmp_path / "log-a")[0]
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[-1][:40])
    assert "not written to its end" in verified(tmp_path / "log-a").problems[0]
    log = AuditLog(tmp_path / "log-a")
    log.open()
    await log.close()
    assert verified(tmp_path / "log-a").problems == []
    assert entries(tmp_path / "log-a", user="ada")
    assert [e["bytes"] for e in entries(tmp_path / "log-a") if e.get("event") == "repaired"] == [40]


async def test_what_is_damaged_stays_and_is_found(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "log-a")
    log.open()
    log.act(ACT)
    await log.close()
    path = files_of(tmp_path / "log-a")[0]
    path.write_bytes(path.read_bytes() + b"rubbish\n")
    log = AuditLog(tmp_path / "log-a")
    log.open()
    log.act(ACT)
    await log.close()
    found = verified(tmp_path / "log-a")
    assert len(found.problems) == 1
    assert "not an entry" in found.problems[0]
    assert len(entries(tmp_path / "log-a", user="ada")) == 2


def test_entries_outlive_a_kill(tmp_path: Path) -> None:
    writer = (
        "import sys, pathlib\n"
        "from isthmus.identity.audit.audit_log import AuditLog\n"
        "from isthmus.identity.audit.acts import Act\n"
        "log = AuditLog(pathlib.Path(sys.argv[1]))\n"
        "log.open()\n"
        "n = 0\n"
        "while True:\n"
        "    log.act(Act('ada', '', '', '', 'create', 'jobs', '', str(n), 201))\n"
        "    print(n, flush=True)\n"
        "    n += 1\n"
    )
    log = tmp_path / "log-a"
    with subprocess.Popen([sys.executable, "-c", writer, str(log)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for _ in range(200):
            last = child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        said = int((last + child.stdout.read()).split(b"\n")[-2])
    again = AuditLog(log)
    again.open()
    assert verified(log).problems == []
    assert said + 1 <= len(entries(log, user="ada")) <= said + 2


async def test_files_are_rotated_and_the_oldest_go(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "log-a", settings=AuditSettings(file_bytes=2000, keep_bytes=8000))
    log.open()
    for _ in range(100):
        log.act(ACT)
    await log.close()
    files = files_of(tmp_path / "log-a")
    assert int(files[0].stem) > 1
    assert sum(path.stat().st_size for path in files) < 12_000
    assert verified(tmp_path / "log-a", log.head).problems == []
    text, file, offset = "", 0, 0
    while (piece := text_of(tmp_path / "log-a", file, offset, 700)) is not None:
        text, file, offset = text + piece[0], piece[1], piece[2]
    assert text.encode() == b"".join(path.read_bytes() for path in files)
    files[1].unlink()
    assert "missing" in verified(tmp_path / "log-a").problems[0]


async def test_on_a_full_disk_nothing_is_changed_and_nothing_is_lost(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "log-a", settings=AuditSettings(file_bytes=1, waiting=3))
    log.open()
    full = tmp_path / "log-a" / f"{log.head.n + 1:016d}.log"
    full.symlink_to("/dev/full")
    for _ in range(5):
        log.act(ACT)
    with pytest.raises(Unavailable, match="No space left"):
        log.check()
    full.unlink()
    log.check()
    await log.close()
    assert verified(tmp_path / "log-a").problems == []
    assert len(entries(tmp_path / "log-a", user="ada")) == 3
    assert [e["times"] for e in entries(tmp_path / "log-a") if e.get("event") == "lost"] == [2]


async def test_a_flood_of_refusals_is_counted_and_not_kept(tmp_path: Path) -> None:
    now = 1_000_000.0
    log = AuditLog(tmp_path / "log-a", settings=AuditSettings(refused_a_minute=5), clock=lambda: now)
    log.open()
    for number in range(1000):
        log.act(Act("", "unknown", "10.6.6.6", "x", "get", "jobs", f"n{number}", "", 401))
    log.act(Act("ada", "token t1", "10.0.0.1", "x", "get", "jobs", "biology", "", 403))
    assert len(entries(tmp_path / "log-a", outcome="refused")) == 6
    now += 61
    log.act(Act("", "unknown", "10.6.6.6", "x", "get", "jobs", "again", "", 401))
    await log.close()
    found = entries(tmp_path / "log-a", outcome="refused")
    assert [e["times"] for e in found if e.get("event") == "repeated"] == [995]
    assert [e.get("namespace") for e in found][-2:] == [None, "again"]


async def test_reading_is_kept_once_in_a_while(tmp_path: Path) -> None:
    now = 1_000_000.0
    log = AuditLog(tmp_path / "log-a", clock=lambda: now)
    log.open()
    kept = [log.reads("ada", "10.0.0.1", "jobs") for _ in range(50)]
    assert kept == [True, *[False] * 49]
    assert log.reads("ada", "10.0.0.2", "jobs")
    now += 601
    assert log.reads("ada", "10.0.0.1", "jobs")
    await log.close()


def test_what_people_send_is_bounded() -> None:
    hostile = "\x1b]0;owned\x07\n\u202e" + "x" * 100_000
    act = Act(hostile, hostile, hostile, hostile, hostile, hostile, hostile, hostile, 403)
    for name, text in act.fields().items():
        if name in MOST:
            assert len(text) <= MOST[name]
            assert text.isprintable()
            assert text.isascii()
    assert bounded("ada@example.org", 20) == "ada@example.org"


@pytest.mark.parametrize("text", ["", "audit.log", "syslog://", "syslog://host", "syslog://host:0", "http://host:1"])
def test_places_that_cannot_be(text: str) -> None:
    with pytest.raises(Invalid, match="cannot be forwarded"):
        parse_place(text)


async def test_entries_are_forwarded_to_syslog_and_to_a_file(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(20)
        for place in (f"syslog://127.0.0.1:{server.getsockname()[1]}", str(tmp_path / "copy")):
            forward = Forwarder(parse_place(place))
            forward.start()
            log = AuditLog(tmp_path / "log-a", forward=forward)
            log.open()
            log.act(ACT)
            await log.close()
            forward.close()
        seen = [server.recv(65536) for _ in range(3)]
    assert seen[1].startswith(b'<86>isthmus-audit: {"n":2,')
    assert b'"user":"ada"' in seen[1]
    assert (tmp_path / "copy").read_text().count('"user":"ada"') == 1
    assert os.stat(tmp_path / "copy").st_mode & 0o077 == 0
