"""The first start: a tenant to work in, a site to run on, a token to sign in with. Every later start finds them."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isthmus._kit import sealing
from isthmus._kit.ids import new_uid, suffix
from isthmus._kit.private_files import write_private
from isthmus.config import ServerSettings
from isthmus.console.sessions import new_key
from isthmus.errors import AlreadyExists, Invalid, Misconfigured, NotFound
from isthmus.resources.frame.meta import ObjectMeta
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import DEVICE_CLASS, LEASE, SITE, TEMPLATE, TENANT, TOKEN, Kind
from isthmus.resources.leases import Lease
from isthmus.resources.tenants import SYSTEM_NAMESPACE, Quota, StorageUse
from isthmus.resources.tokens import hash_secret, new_secret, split_secret
from isthmus.storage.quotas import Allowance
from isthmus.store.base import Key, Store

from .programs import templates

log = logging.getLogger(__name__)

DEFAULT_TENANT = "default"
_MARK = ".store"
_FOLDER_NOTE, _MARK_NOTE = "isthmus.dev/folder", "isthmus.dev/mark"


async def first_objects(store: Store, settings: ServerSettings) -> None:
    """The default tenant, the local site and the class of plain cpus, on a store that is new.

    What an administrator deletes later stays deleted: a lease, made last, is the mark that this was done.
    """
    marked = Key(LEASE.name, SYSTEM_NAMESPACE, "first-start")
    try:
        await store.get(marked)
        return
    except NotFound:
        pass
    power = {"idleWatts": 2.0, "busyWatts": 12.0}
    cpu = {"architecture": os.uname().machine, "description": "one core of an ordinary processor", "power": power}
    await _create(store, DEVICE_CLASS, "cpu", cpu)
    local: dict[str, Any] = {}
    if settings.store:  # others may lead one day: they must know whose machine and whose folder it is
        local = {"root": str((settings.sites / "local").absolute()), "host": socket.gethostname()}
    if not settings.in_pod:  # what a pod has is not for jobs
        await _create(store, SITE, "local", {"driver": "local", "local": local})
    try:
        await _create(store, TENANT, DEFAULT_TENANT, {"description": "for everybody without a tenant of their own"})
    except Invalid as error:  # a cluster has a namespace of that name, which is not ours to take
        log.warning("no default tenant: %s", error)
    lease = Lease(metadata=ObjectMeta(name=marked.name, namespace=marked.namespace))
    with contextlib.suppress(AlreadyExists):
        await store.create(LEASE, lease.to_json())


async def builtin_templates(store: Store) -> None:
    """Templates that are always there: made again at every start, as an administrator left them if she did not delete
    them."""
    for name, spec in templates().items():
        await _create(store, TEMPLATE, name, spec)


async def files_folder(store: Store, settings: ServerSettings) -> Path:
    """The folder of files that all control planes of one store share.

    The first one writes down where its folder is and a mark that lies in it; the others use that folder if they can
    see it (the same machine, or a shared file system), and refuse to start if they cannot: a file sent to one of
    them would be missing at the others.
    """
    own = settings.files.absolute()
    if not settings.store:
        return own
    key = Key(LEASE.name, SYSTEM_NAMESPACE, "files")
    try:
        record = await store.get(key)
    except NotFound:
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (own / _MARK).exists():
            write_private(own / _MARK, new_uid() + "\n")
        notes = {_FOLDER_NOTE: str(own), _MARK_NOTE: (own / _MARK).read_text().strip()}
        lease = Lease(metadata=ObjectMeta(name=key.name, namespace=key.namespace, annotations=notes))
        with contextlib.suppress(AlreadyExists):
            await store.create(LEASE, lease.to_json())
        record = await store.get(key)
    notes = record.obj["metadata"]["annotations"]
    for folder in (own, Path(notes[_FOLDER_NOTE])):
        with contextlib.suppress(OSError):
            if (folder / _MARK).read_text().strip() == notes[_MARK_NOTE]:
                return folder
    raise Misconfigured(
        f"the other control planes of this store keep files in {notes[_FOLDER_NOTE]}, which is not there on this "
        "machine; share that folder with it and name it with --files"
    )


async def storage_allowance(store: Store, namespace: str) -> Allowance | None:
    """What a tenant may keep, by its quota, and what of that its logs and working folders take."""
    try:
        record = await store.get(Key(TENANT.name, "", namespace))
    except NotFound:
        return None
    limit = Quota.model_validate(record.obj["spec"].get("quota") or {}).storage_bytes
    if limit is None:
        return None
    used = StorageUse.model_validate((record.obj.get("status") or {}).get("storage") or {})
    return Allowance(limit, used.logs_bytes + used.folders_bytes)


def audit_folder(folder: Path, settings: ServerSettings) -> Path:
    """Where this control plane writes its audit log: beside the files, so that all replicas can read it."""
    name = _key(settings.audit_name, lambda: f"log-{suffix(8)}")
    return folder / "audit" / name


def console_key(folder: Path) -> str:
    """The key that seals the console's cookies, made once; control planes that share files share it."""
    return _key(folder / "console.key", new_key)


def secrets_key(folder: Path) -> bytes:
    """The key that seals secrets in the store, made once; control planes that share files share it."""
    return bytes.fromhex(_key(folder / "secrets.key", lambda: sealing.new_key().hex()))


def _key(path: Path, new: Callable[[], str]) -> str:
    """What is in a file that nobody else may read; whoever comes second finds it made."""
    if not path.exists():
        draft = path.with_name(f"{path.name}.{suffix()}")
        write_private(draft, new() + "\n")
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    return path.read_text().strip()


async def _create(store: Store, kind: Kind, name: str, spec: dict[str, Any]) -> None:
    obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, "spec": spec}
    with contextlib.suppress(AlreadyExists):
        await store.create(kind, validate(kind, obj))


async def admin_token(store: Store, settings: ServerSettings) -> str:
    """The token in the data folder, made at the first start.

    The file is written before the object, so that a crash in between leaves a token that the next start completes,
    and never one that nobody has. One that an administrator deleted since is not made again: a lease, made after the
    token, is the mark that it was there, and the file gets a new one. Control planes that share the file may start at
    once: whoever comes second finds the token made.
    """
    path = settings.admin_token
    if not path.exists():
        _, secret, _ = new_secret(f"admin-{suffix(6)}")
        write_private(path, secret + "\n")
    secret = path.read_text().strip()
    parts = split_secret(secret)
    if parts is None:
        path.unlink()
        return await admin_token(store, settings)
    name, bare = parts
    mark = Lease(metadata=ObjectMeta(name=f"made-{name}", namespace=SYSTEM_NAMESPACE))
    key = Key(TOKEN.name, SYSTEM_NAMESPACE, name)
    if not await _is_there(store, key):
        was_there = await _is_there(store, Key(LEASE.name, SYSTEM_NAMESPACE, mark.metadata.name))
        if was_there and not await _is_there(store, key):
            path.unlink()
            return await admin_token(store, settings)
        spec = {"user": "admin", "role": "admin", "sha256": hash_secret(bare), "description": "made at the first start"}
        meta = {"name": name, "namespace": SYSTEM_NAMESPACE}
        obj = {"apiVersion": TOKEN.api_version, "kind": TOKEN.name, "metadata": meta, "spec": spec}
        with contextlib.suppress(AlreadyExists):
            await store.create(TOKEN, validate(TOKEN, obj))
    with contextlib.suppress(AlreadyExists):
        await store.create(LEASE, mark.to_json())
    return secret


async def _is_there(store: Store, key: Key) -> bool:
    try:
        await store.get(key)
    except NotFound:
        return False
    return True
