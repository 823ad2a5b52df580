"""What holds an object and what it belongs to: finalizers and owner references, as far as a caller may set them. Pure.

A finalizer keeps an object until somebody takes it away. One that no part of the platform knows would keep a deleted
tenant for ever, so only platform admins, who install such parts, may add one. An owner takes along what it owns, and
waits for it when it is deleted in the foreground, so an owner is an object of the same namespace; only platform admins
may name one that belongs to nobody (a Site, a Tenant).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.errors import Cause, Forbidden, Invalid
from isthmus.identity.callers import Caller
from isthmus.resources.kinds import KINDS

KNOWN_FINALIZERS = frozenset({"foregroundDeletion", "orphan"})
"""Those that the store itself serves, whoever sets them."""

Object = Mapping[str, Any]


def check_finalizers(caller: Caller, old: Object | None, new: Object) -> None:
    """Raise Forbidden for a finalizer that the caller may not add."""
    if caller.is_platform_admin:
        return
    before = (old or {}).get("metadata", {}).get("finalizers") or ()
    for finalizer in new["metadata"].get("finalizers") or ():
        if finalizer not in before and finalizer not in KNOWN_FINALIZERS:
            raise Forbidden(
                f"metadata.finalizers: {finalizer[:80]!r} is not known here, and nothing would ever take it away; "
                "leave it out, or ask a platform admin to add it"
            )


def new_owners(old: Object | None, new: Object) -> list[Mapping[str, Any]]:
    """The owner references that the write adds or changes: each must be looked up."""
    before = {_identity(owner) for owner in (old or {}).get("metadata", {}).get("ownerReferences") or ()}
    return [owner for owner in new["metadata"].get("ownerReferences") or () if _identity(owner) not in before]


def _identity(owner: Mapping[str, Any]) -> tuple[Any, ...]:
    return owner.get("apiVersion"), owner.get("kind"), owner.get("name"), owner.get("uid")


def may_own(caller: Caller, owner: Mapping[str, Any], namespace: str) -> bool:
    """Whether an owner reference of this kind may be made at all, before it is looked up."""
    kind = KINDS.get(owner["kind"])
    if kind is None or owner["apiVersion"] != kind.api_version:
        return False
    return kind.namespaced or not namespace or caller.is_platform_admin


def foreign_owner(owner: Mapping[str, Any]) -> Invalid:
    """The refusal of an owner that is not an object of the same namespace, whether or not it exists elsewhere."""
    shown = {field: str(owner[field])[:80] for field in ("kind", "name", "uid")}
    message = f"there is no {shown['kind']} {shown['name']!r} with uid {shown['uid']!r} in the same namespace"
    return Invalid(f"metadata.ownerReferences: {message}", causes=(Cause("metadata.ownerReferences", message),))
