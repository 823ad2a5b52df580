"""A refusal in terms of roles: who one is, and which role it takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from isthmus.errors import Forbidden, IsthmusError

if TYPE_CHECKING:
    from isthmus.client.sync import Client


@contextmanager
def needs_member(client: Client, what: str) -> Iterator[None]:
    """Explain a refusal to do what every member of a tenant may."""
    try:
        yield
    except Forbidden as error:
        try:
            me, home = client.whoami(), client.namespace()
        except IsthmusError:
            raise error from None
        role = _role([str(group) for group in me.get("groups") or ()], home)
        if role != "viewer":
            raise
        raise Forbidden(
            f"{me.get('username')} is a viewer of tenant {home}, who reads; {what} takes the role member: "
            f"ask an admin of {home} for it"
        ) from None


def _role(groups: list[str], tenant: str) -> str:
    """The highest role in the tenant; empty when there is none, or one beyond the tenant."""
    roles = [group.split(":")[2] for group in groups if group.startswith(f"isthmus:{tenant}:")]
    elsewhere = any(group.startswith("isthmus:platform:") for group in groups)
    return "viewer" if set(roles) == {"viewer"} and not elsewhere else ""
