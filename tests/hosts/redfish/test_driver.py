"""A machine through its BMC: against sushy-tools' emulator, and against BMCs that misbehave."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from isthmus.errors import HostRefused, HostUnavailable, IsthmusError, Misconfigured
from isthmus.hosts.redfish import bmc_client
from isthmus.hosts.redfish.driver import RedfishDriver
from isthmus.resources.hosts import HostPower, RedfishHost, Reset
from isthmus.testing.bmcs import Bmc, make_certificate

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def bmc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bmc]:
    running = Bmc(tmp_path_factory.mktemp("bmc") / "bmc", "node-1", "node-2")
    running.start()
    yield running
    running.stop()


def spec(bmc: Bmc, **changed: object) -> RedfishHost:
    given = {
        "url": bmc.url,
        "system": "node-1",
        "credentialsFile": str(bmc.credentials),
        "certificate": bmc.certificate,
    }
    return RedfishHost.model_validate({**given, **changed})


@asynccontextmanager
async def driver(given: RedfishHost) -> AsyncIterator[RedfishDriver]:
    made = RedfishDriver(given)
    try:
        yield made
    finally:
        await made.close()


async def refused(given: RedfishHost) -> IsthmusError:
    async with driver(given) as made:
        with pytest.raises(IsthmusError) as caught:
            await made.look()
    return caught.value


async def test_a_machine_is_switched_on_and_off(bmc: Bmc) -> None:
    async with driver(spec(bmc)) as made:
        for reset, wanted in ((Reset.ON, HostPower.ON), (Reset.GRACEFUL_SHUTDOWN, HostPower.OFF)):
            await made.reset(reset)
            await made.reset(reset)  # as good as once
            while (seen := await made.look()).power is not wanted:
                await asyncio.sleep(0.2)
        assert seen.inventory.uuid == "00000000-0000-0000-0000-000000000000"
        assert seen.inventory.manufacturer


async def test_a_machine_is_found_by_name_or_uuid_and_never_guessed(bmc: Bmc) -> None:
    async with driver(spec(bmc, system="00000000-0000-0000-0000-000000000001")) as made:
        assert (await made.look()).inventory.uuid.endswith("1")
    missing = await refused(spec(bmc, system="node-3"))
    assert missing.message == "None of the BMC's 2 machines is called 'node-3'."
    unclear = await refused(spec(bmc, system=None))
    assert unclear.message == "The BMC manages 2 machines; say which one with spec.redfish.system."


async def test_another_certificate_is_not_trusted_whatever_name_it_has(bmc: Bmc, tmp_path: Path) -> None:
    for certificate in (make_certificate(tmp_path), None):
        error = await refused(spec(bmc, certificate=certificate))
        assert isinstance(error, HostRefused)
        assert error.message.startswith("The BMC shows a certificate that is not trusted.")


async def test_credentials_that_are_wrong_readable_by_others_or_missing(bmc: Bmc, tmp_path: Path) -> None:
    file = tmp_path / "bmc"
    missing = await refused(spec(bmc, credentialsFile=str(file)))
    assert isinstance(missing, Misconfigured)
    file.write_text("admin:guessed\n")
    file.chmod(0o644)
    assert "chmod 600" in (await refused(spec(bmc, credentialsFile=str(file)))).message
    file.chmod(0o600)
    wrong = await refused(spec(bmc, credentialsFile=str(file)))
    assert wrong.message == "The BMC refuses the credentials; check spec.redfish.credentialsFile."
    assert "guessed" not in wrong.message


async def test_a_bmc_that_is_away_says_nothing_about_the_machine(bmc: Bmc) -> None:
    assert isinstance(await refused(spec(bmc, url="https://127.0.0.1:1")), HostUnavailable)


ELSEWHERE = b'{"Members":[{"@odata.id":"https://elsewhere/redfish/v1/x"}]}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (b"", HostUnavailable, "broke"),
        (None, HostUnavailable, "did not answer within"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", HostUnavailable, "a fault of its own (500)"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\nContent-Length: 0\r\n\r\n", HostRefused, "(302)"),
        (HEAD + b"Content-Length: 5\r\n\r\nhello", HostRefused, "no JSON"),
        (HEAD + b"Content-Length: 2\r\n\r\n[]", HostRefused, "no object"),
        (HEAD + b"\r\n" + b"[" * (3 << 20), HostRefused, "more than 1 MiB"),
        (HEAD + b"Content-Length: 200000\r\n\r\n" + b"[" * 200_000, HostRefused, "no JSON"),
        (HEAD + b"Content-Length: 60\r\n\r\n" + ELSEWHERE, HostRefused, "0 machines"),
    ],
    ids=["closes", "hangs", "500", "redirects", "text", "a list", "endless", "deep", "elsewhere"],
)  # fmt: skip
async def test_a_bmc_that_misbehaves(
    answer: bytes | None, kind: type, says: str, bmc: Bmc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bmc_client, "SECONDS", 1.0)
    certificate = make_certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            if answer is None:
                await reader.read()
            else:
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        port = server.sockets[0].getsockname()[1]
        error = await refused(spec(bmc, url=f"https://127.0.0.1:{port}", certificate=certificate, system=None))
    assert type(error) is kind
    assert says in error.message
