"""`isthmus export`, `import`: all objects of one store into a file, and from there into another store."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.failures import say
from isthmus.errors import Conflict, Invalid, Misconfigured

if TYPE_CHECKING:
    from isthmus.store.moving import ImportReport

Object = dict[str, Any]
File = Annotated[str, typer.Argument(metavar="FILE", help="YAML, or JSON lines if it ends in .json; - is a pipe.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Data folder of an embedded instance.", show_default="the default instance's"),
]
StoreUrl = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="postgresql://… or kubernetes[:KUBECONFIG] instead.")
]
Force = Annotated[bool, typer.Option("--force", help="Although a control plane acts on the store now.")]


def export(
    file: File,
    data: Data = None,
    store: StoreUrl = None,
    with_tokens: Annotated[
        bool,
        typer.Option(
            "--with-tokens",
            help="Also hashes of tokens, and Secrets as they are sealed; only into a file, which stays private.",
        ),
    ] = False,
    force: Force = False,
) -> None:
    """Write all objects of a store, with their status, into a file.

    Stop Isthmus first, so that nothing changes meanwhile; jobs that run go on. Files that were sent, outputs and logs
    stay where they are. Left out are events, and tokens and Secrets unless asked for.

    \b
    Examples:
      isthmus export objects.yaml
      isthmus export --with-tokens --store postgresql://host/isthmus objects.json
    """
    if with_tokens and file == "-":
        raise Invalid("tokens go only into a file, which nobody else can read; name one instead of -")
    location, folder = _location(data, store)
    found = asyncio.run(_read(location, with_tokens, force))
    if folder is not None:
        found = [_where_it_is(obj, folder) for obj in found]
    if file == "-":
        _write(found, sys.stdout, lines=False)
    else:
        _write_private(found, Path(file))
    say(f"{len(found) - 1} objects written", "32")


def import_(file: File, data: Data = None, store: StoreUrl = None, force: Force = False) -> None:
    """Make all objects of an export in another store; repeat it if it was broken off.

    What is there already is left alone. Isthmus does not start on a store with half an import.

    \b
    Examples:
      isthmus import objects.yaml --store kubernetes
      isthmus import objects.yaml --data /var/lib/isthmus
    """
    from isthmus.store.moving import check_whole

    objects = check_whole(_parse(file))
    location, folder = _location(data, store)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    report = asyncio.run(_import(location, objects, force))
    say(f"{report.made} made, {report.finished} finished, {report.there} there already", "32")
    for key, why in report.refused:
        say(f"not imported: {key}: {why}", "31")
    if report.refused:
        raise Conflict(f"{len(report.refused)} of {len(objects)} objects were not imported; mend that and repeat it")


def _location(data: Path | None, store: str | None) -> tuple[str, Path | None]:
    """The store meant, and the folder if it is an embedded one, which nobody may be using."""
    from isthmus.config.server import default_data_folder
    from isthmus.server.main import running_instance

    from .places import store_location

    if store:
        return store_location(store), None
    folder = (data or default_data_folder(dict(os.environ))).absolute()
    if running_instance(folder):
        raise Misconfigured(f"Isthmus runs from {folder}; stop it first: isthmus down --data {folder} (jobs go on)")
    return str(folder / "isthmus.db"), folder


async def _read(location: str, tokens: bool, force: bool) -> list[Object]:
    from isthmus.store.moving import export_objects
    from isthmus.store.opening import open_store

    if "://" not in location and not location.startswith("kubernetes:") and not Path(location).exists():
        raise Misconfigured(f"there is no instance in {Path(location).parent}; name its folder with --data")
    store = await open_store(location)
    try:
        await _check_idle(store, force)
        return [obj async for obj in export_objects(store, tokens=tokens)]
    finally:
        await store.close()


async def _import(location: str, objects: list[Object], force: bool) -> ImportReport:
    from isthmus.store.moving import Importer
    from isthmus.store.opening import open_store

    store = await open_store(location)
    try:
        await _check_idle(store, force)
        return await Importer(store).run(objects)
    finally:
        await store.close()


async def _check_idle(store: Any, force: bool) -> None:
    from isthmus._kit.clock import utcnow
    from isthmus.store.moving import is_led

    if not force and await is_led(store, utcnow()):
        raise Misconfigured("a control plane acts on this store; stop it first, or say --force")


def _where_it_is(obj: Object, folder: Path) -> Object:
    """An embedded instance's local sites are in its own folder, on its own machine, without saying so."""
    if obj.get("kind") != "Site" or obj["spec"].get("driver") != "local":
        return obj
    local = {"root": str(folder / "sites" / obj["metadata"]["name"]), "host": socket.gethostname()}
    given = {name: value for name, value in (obj["spec"].get("local") or {}).items() if value is not None}
    return {**obj, "spec": {**obj["spec"], "local": {**local, **given}}}


def _write_private(objects: Iterable[Object], path: Path) -> None:
    import io

    from isthmus._kit.private_files import write_private

    text = io.StringIO()
    _write(objects, text, lines=path.suffix == ".json")
    write_private(path, text.getvalue())


def _write(objects: Iterable[Object], out: Any, *, lines: bool) -> None:
    import json

    import yaml

    if lines:
        out.writelines(json.dumps(obj) + "\n" for obj in objects)
    else:
        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        yaml.dump_all(objects, out, Dumper=dumper, sort_keys=False, explicit_start=True)


def _parse(file: str) -> list[Object]:
    import json

    import yaml

    from isthmus._kit.plain_yaml import PlainLoader

    text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        if file.endswith(".json"):
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            found = [document for document in yaml.load_all(text, Loader=PlainLoader) if document is not None]
    except (ValueError, yaml.YAMLError) as error:
        reported = " ".join(str(error).split())
        raise Invalid(f"{file} cannot be read ({reported}); was it cut short? export again") from None
    if not all(isinstance(item, dict) for item in found):
        raise Invalid(f"{file} holds something that is not an object; is it an export of Isthmus?")
    return found
