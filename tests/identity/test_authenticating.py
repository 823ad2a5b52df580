from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from isthmus._kit.clock import timestamp, utcnow
from isthmus.errors import Expired, StoreUnavailable, Unauthenticated
from isthmus.identity import Authenticator, Caller
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import TENANT, TOKEN
from isthmus.resources.tenants import Role
from isthmus.resources.tokens import hash_secret, new_secret
from isthmus.store.base import Key, Store
from isthmus.store.opening import open_store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(tmp_path / "store.db")
    yield opened
    await opened.close()


class World:
    """A store with an authenticator whose clock can be set."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = utcnow()
        self.authenticator = Authenticator(store, clock=lambda: self.now.timestamp())

    async def tenant(self, name: str, **members: str) -> None:
        listed = [{"user": user, "role": role} for user, role in members.items()]
        obj = {"kind": "Tenant", "metadata": {"name": name}, "spec": {"members": listed}}
        record = await self.store.create(TENANT, validate(TENANT, obj))
        await self.authenticator.caught_up("Tenant", record.version)

    async def token(self, namespace: str, role: str | None, name: str | None = None, **spec: Any) -> tuple[str, str]:
        name, secret, digest = new_secret(name)
        given = {"user": "ada", "sha256": digest, **({"role": role} if role else {}), **spec}
        obj = {"kind": "Token", "metadata": {"name": name, "namespace": namespace}, "spec": given}
        record = await self.store.create(TOKEN, validate(TOKEN, obj))
        await self.authenticator.caught_up("Token", record.version)
        return name, secret

    def who(self, secret: str) -> Caller:
        return self.authenticator.authenticate(f"Bearer {secret}".encode())

    def refuses(self, secret: str) -> bool:
        try:
            self.who(secret)
        except Unauthenticated:
            return True
        return False

    async def change(self, kind: Any, key: Key, **spec: Any) -> None:
        obj = (await self.store.get(key)).obj
        record = await self.store.update(kind, {**obj, "spec": {**obj["spec"], **spec}})
        await self.authenticator.caught_up(kind.name, record.version)


@pytest.fixture
async def world(store: Store) -> AsyncIterator[World]:
    made = World(store)
    await made.authenticator.start()
    await made.tenant("physics", ada="member", max="admin")
    await made.tenant("chemistry", ada="viewer")
    yield made
    await made.authenticator.close()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_tenants_token_has_its_role_there_and_nowhere_else(world: World) -> None:
    name, secret = await world.token("physics", "viewer")
    assert world.who(secret) == Caller("ada", {"physics": Role.VIEWER}, None, name)


async def test_platform_tokens(world: World) -> None:
    _, secret = await world.token("isthmus-system", "admin")
    assert world.who(secret).is_platform_admin
    _, plain = await world.token("isthmus-system", None)
    assert world.who(plain).grants == {"physics": Role.MEMBER, "chemistry": Role.VIEWER}
    assert world.who(plain).platform is None


async def test_tokens_are_known_from_the_start(world: World) -> None:
    _, secret = await world.token("physics", "viewer")
    later = Authenticator(world.store)
    await later.start()
    assert later.authenticate(f"bearer {secret}".encode()).user == "ada"
    await later.close()


async def test_the_password_of_basic_authentication_is_a_token_too(world: World) -> None:
    _, secret = await world.token("physics", "viewer")
    header = b"Basic " + base64.b64encode(f"anybody:{secret}".encode())
    assert world.authenticator.authenticate(header).user == "ada"


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer ist_a_b",
        b"Basic !!!",
        b"Basic eDp5",
        b"Digest x",
        b"\xff\xfe",
        b"ist_a_b",
    ],
)
async def test_other_headers_are_refused(world: World, header: bytes | None) -> None:
    with pytest.raises(Unauthenticated):
        world.authenticator.authenticate(header)


async def test_several_tenants_may_use_one_name(world: World) -> None:
    _, first = await world.token("physics", "viewer", name="same")
    _, second = await world.token("chemistry", "admin", name="same")
    assert world.who(first).grants == {"physics": Role.VIEWER}
    assert world.who(second).grants == {"chemistry": Role.ADMIN}
    await world.store.delete(Key("Token", "physics", "same"))
    await eventually(lambda: world.refuses(first))
    assert world.who(second).grants == {"chemistry": Role.ADMIN}
    assert world.refuses("ist_same_wrong")


async def test_revoking_and_deleting_act_at_once(world: World) -> None:
    name, secret = await world.token("physics", "viewer")
    world.who(secret)
    await world.change(TOKEN, Key("Token", "physics", name), revoked=True)
    assert world.refuses(secret)
    await world.change(TOKEN, Key("Token", "physics", name), revoked=False)
    world.who(secret)
    await world.store.delete(Key("Token", "physics", name))
    await eventually(lambda: world.refuses(secret))


async def test_expiry_counts_by_the_clock_not_by_the_cache(world: World) -> None:
    _, secret = await world.token("physics", "viewer", expiresAt=timestamp(world.now + timedelta(minutes=1)))
    world.who(secret)
    world.now += timedelta(minutes=2)
    assert world.refuses(secret)


async def test_memberships_follow_the_tenant(world: World) -> None:
    _, secret = await world.token("isthmus-system", None)
    await world.change(TENANT, Key("Tenant", "", "physics"), members=[{"user": "ada", "role": "admin"}])
    assert world.who(secret).grants["physics"] is Role.ADMIN
    await world.store.delete(Key("Tenant", "", "chemistry"))
    await eventually(lambda: world.who(secret).grants == {"physics": Role.ADMIN})


async def test_a_tenants_tokens_end_with_the_tenant(world: World) -> None:
    _, secret = await world.token("chemistry", "admin")
    world.who(secret)
    await world.store.delete(Key("Tenant", "", "chemistry"))
    await eventually(lambda: world.refuses(secret))


async def test_another_replica_learns_of_it_too(world: World) -> None:
    replica = Authenticator(world.store)
    await replica.start()
    name, secret = await world.token("physics", "viewer")
    header = f"Bearer {secret}".encode()

    def known() -> bool:
        with contextlib.suppress(Unauthenticated):
            return bool(replica.authenticate(header))
        return False

    await eventually(known)
    await world.store.delete(Key("Token", "physics", name))
    await eventually(lambda: not known())
    await replica.close()


async def test_a_broken_feed_keeps_what_it_knew_and_recovers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    name, secret = await world.token("physics", "viewer", expiresAt=timestamp(world.now + timedelta(minutes=1)))
    failures: list[Exception] = [Expired("old"), StoreUnavailable("away"), RuntimeError("a fault")]
    watch = world.store.watch

    def failing_watch(*args: Any, **kwargs: Any) -> Any:
        if failures:
            raise failures.pop(0)
        return watch(*args, **kwargs)

    monkeypatch.setattr(world.store, "watch", failing_watch)
    second = Authenticator(world.store, clock=lambda: world.now.timestamp())
    await second.start()
    header = f"Bearer {secret}".encode()
    assert second.authenticate(header).user == "ada"
    await eventually(lambda: not failures)
    await world.store.delete(Key("Token", "physics", name))

    def gone() -> bool:
        try:
            second.authenticate(header)
        except Unauthenticated:
            return True
        return False

    await eventually(gone)
    await second.close()


async def test_the_store_away_does_not_prolong_a_token(world: World) -> None:
    _, secret = await world.token("physics", "viewer", expiresAt=timestamp(world.now + timedelta(minutes=1)))
    await world.store.close()
    assert world.who(secret).user == "ada"
    world.now += timedelta(minutes=2)
    assert world.refuses(secret)


async def test_followers_are_told_when_the_caller_changes(world: World) -> None:
    name, secret = await world.token("physics", "viewer")
    header = f"Bearer {secret}".encode()
    ended = asyncio.Event()
    with world.authenticator.following(header, world.who(secret), ended.set):
        await world.token("physics", "viewer")
        assert not ended.is_set(), "other tokens do not matter"
        await world.change(TOKEN, Key("Token", "physics", name), role="member")
        await asyncio.wait_for(ended.wait(), 30)


async def test_followers_are_told_when_the_token_expires(store: Store) -> None:
    authenticator = Authenticator(store)
    await authenticator.start()
    name, secret, _ = new_secret()
    digest = hash_secret(secret.split("_", 2)[2])
    spec = {"user": "x", "role": "admin", "sha256": digest, "expiresAt": timestamp(utcnow() + timedelta(seconds=0.5))}
    obj = {"kind": "Token", "metadata": {"name": name, "namespace": "isthmus-system"}, "spec": spec}
    record = await store.create(TOKEN, validate(TOKEN, obj))
    await authenticator.caught_up("Token", record.version)
    header = f"Bearer {secret}".encode()
    ended = asyncio.Event()
    with authenticator.following(header, authenticator.authenticate(header), ended.set):
        await asyncio.wait_for(ended.wait(), 30)
    await authenticator.close()


async def test_an_object_that_cannot_be_read_gives_no_right_and_hinders_nobody(world: World) -> None:
    """Where a cluster is the store, others may write what our API would refuse."""
    name, secret = await world.token("physics", "member")
    broken = {"kind": "Token", "metadata": {"name": "broken", "namespace": "physics"}, "spec": {"user": "eve"}}
    await world.store.create(TOKEN, broken)
    odd = {"kind": "Tenant", "metadata": {"name": "odd"}, "spec": {"members": [{"user": "eve", "role": "emperor"}]}}
    await world.store.create(TENANT, odd)
    await world.tenant("later", eve="admin")
    assert world.authenticator.tenant("odd") is None
    assert world.authenticator.tenant("later") is not None
    await world.change(TOKEN, Key("Token", "physics", name), revoked=True)
    assert world.refuses(secret), "what comes after it is still heard"
    again = Authenticator(world.store)
    await again.start()
    assert again.tenant("later") is not None
    await again.close()
