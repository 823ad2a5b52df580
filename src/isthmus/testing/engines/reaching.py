"""The parts of engines that lead into a run that is under way: to its ports, and with a command beside it."""

# ruff: noqa: D102 - the names of the tests say what they show

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

import pytest

from isthmus.engines.base import ExecEngine, Execution, PortEngine, PortStream, Stream, TerminalSize
from isthmus.errors import EngineRefused, NotFound, PortClosed

from .working import EngineSuite, FolderSource, SuiteEngine, new_run_id, until, wait_ended, wait_log_has, whole_log

_ECHO = """
import socket, threading
def serve(connection):
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data.upper())
        connection.sendall(b"END")
with socket.create_server(("127.0.0.1", {port})) as listener:
    print("listens", flush=True)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
PORT = 18_431
_RIGHTS = (
    "id -u; id -g; id -G; ls -l /proc/self/ns | sed 's/.*-> //' | grep -v total; "
    "grep -E '^(Cap(Inh|Prm|Eff|Amb)|Seccomp:|NoNewPrivs:)' /proc/self/status"
)
"""Prints who a program is, in which namespaces, and with which rights."""


class PortSuiteEngine(SuiteEngine, PortEngine, Protocol):
    """An engine that leads to ports."""


class ExecSuiteEngine(SuiteEngine, ExecEngine, Protocol):
    """An engine that runs commands beside runs."""


@pytest.mark.anyio
class ConnectContract(EngineSuite):
    """What every engine does that leads to ports of its runs."""

    async def test_a_port_of_a_run_is_reached_and_nothing_else_is(self, engine: PortSuiteEngine) -> None:
        run = self.make_run("python3", "-c", _ECHO.format(port=PORT))
        await engine.submit(run)
        await wait_log_has(engine, run.id, b"listens")
        if not self.traits.leads_to_ports:
            with pytest.raises(EngineRefused):
                await engine.connect(run.id, PORT)
        else:
            streams = [await engine.connect(run.id, PORT) for _ in range(3)]
            for number, stream in enumerate(streams):
                await stream.send(b"hello %d" % number)
            for number, stream in enumerate(streams):
                assert await _received(stream, 7) == b"HELLO %d" % number
            await streams[0].close()
            await _through(streams[1])
            await streams[2].close()
            with pytest.raises(PortClosed, match=str(PORT + 1)):
                await engine.connect(run.id, PORT + 1)
        await engine.cancel(run.id, grace=0)
        await wait_ended(engine, run.id)
        for run_id in (run.id, new_run_id()):
            with pytest.raises(NotFound):
                await engine.connect(run_id, PORT)


async def _received(stream: PortStream, size: int) -> bytes:
    found = b""
    while len(found) < size and (part := await stream.receive()):
        found += part
    return found


async def _through(stream: PortStream) -> None:
    """Much more than is kept in between, both ways at once, and the end after it."""
    sent = b"abcdefgh" * 2**18

    async def send() -> None:
        await stream.send(sent)
        await stream.finish()

    sending = asyncio.create_task(send())
    assert await _received(stream, len(sent) + 3) == sent.upper() + b"END"
    assert await stream.receive() == b""
    await sending
    await stream.close()


@pytest.mark.anyio
class ExecContract(EngineSuite):
    """What every engine does that runs commands beside its runs."""

    async def test_a_command_beside_a_run_is_where_the_run_is(self, engine: ExecSuiteEngine, tmp_path: Path) -> None:
        script = f"echo mine >file; echo ready; {_RIGHTS}; exec sleep 1000"
        run = self.shell(script, env={"COLOUR": "deep blue"}, stdin="file-sent")
        await engine.submit(run, FolderSource(tmp_path / "source", {"file-sent": b"not for commands"}))
        await wait_log_has(engine, run.id, b"NoNewPrivs")
        assert await _run(engine, run.id, "cat", "file") == (0, b"mine\n", b"")
        said = await _run(engine, run.id, "/bin/sh", "-c", 'echo "$COLOUR/$ISTHMUS_RUN_ID"; echo bad >&2; exit 7')
        assert said == (7, f"deep blue/{run.id}\n".encode(), b"bad\n")
        assert await _run(engine, run.id, "cat", given=b"x" * 300_000) == (0, b"x" * 300_000, b"")
        code, _, errors = await _run(engine, run.id, "no-such-program-anywhere")
        assert (code, b"no-such-program-anywhere" in errors) == (127, True)
        assert (await _run(engine, run.id, "/bin/sh", "-c", "kill -TERM $$"))[0] in (-15, 143)
        code, rights, _ = await _run(engine, run.id, "/bin/sh", "-c", _RIGHTS)
        assert code == 0
        log = (await whole_log(engine, run.id)).removeprefix(b"ready\n")
        assert rights.decode().splitlines() == log.decode().splitlines()
        await engine.cancel(run.id, grace=0)
        await wait_ended(engine, run.id)
        for run_id in (run.id, new_run_id()):
            with pytest.raises(NotFound):
                await engine.execute(run_id, ["true"])

    async def test_a_command_has_a_terminal_and_ends_with_who_asked_and_with_the_run(
        self, engine: ExecSuiteEngine
    ) -> None:
        run = self.shell("echo ready; exec sleep 1000")
        await engine.submit(run)
        await wait_log_has(engine, run.id, b"ready")
        sees = await engine.execute(run.id, ["/bin/sh", "-c", "stty size; test -t 0 && cat"], TerminalSize(33, 77))
        shown = b""
        async for _, part in sees.output():
            shown += part
            if b"33 77" in shown and b"typed" not in shown:
                await sees.write(b"typed\n")
            if shown.count(b"typed") == 2:
                await sees.finish()
        assert await sees.wait() == 0
        await sees.close()

        left = await engine.execute(run.id, ["/bin/sh", "-c", ": >started; echo $$; exec sleep 1000"])
        pid = (await anext(left.output()))[1].strip().decode()
        await left.close()

        async def gone() -> bool:
            return (await _run(engine, run.id, "/bin/sh", "-c", f"kill -0 {pid}"))[0] != 0

        await until(gone, "the command that nobody waits for to end")
        stays = await engine.execute(run.id, ["sleep", "1000"])
        await engine.cancel(run.id, grace=0)
        await wait_ended(engine, run.id)
        assert await stays.wait() != 0
        await stays.close()


async def _run(engine: ExecEngine, run_id: str, *command: str, given: bytes = b"") -> tuple[int, bytes, bytes]:
    execution = await engine.execute(run_id, command)
    feeding = asyncio.create_task(_feed(execution, given))
    streams = {Stream.STDOUT: b"", Stream.STDERR: b""}
    async for stream, data in execution.output():
        streams[stream] += data
    code = await execution.wait()
    await feeding
    await execution.close()
    return code, streams[Stream.STDOUT], streams[Stream.STDERR]


async def _feed(execution: Execution, given: bytes) -> None:
    await execution.write(given)
    await execution.finish()
