"""Admission: what may be written, beyond what the models check. Pure; facts that must be looked up are arguments.

Each rule is a small function that raises, with the field and the remedy. `prepare_new` and `prepare_change` make of
what a client sent the object that goes to the store: server-owned metadata is dropped, the status is the store's,
finalizers of the platform can be neither forged nor dropped by accident.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.errors import Conflict, Forbidden, invalid_field
from isthmus.identity.callers import RANKS, Caller, at_least
from isthmus.resources.frame.changing import check_change, differences
from isthmus.resources.frame.validation import check_name, validate
from isthmus.resources.kinds import SECRET, TOKEN, Kind
from isthmus.resources.tenants import SYSTEM_NAMESPACE, Role

from .job_texts import check_texts

Object = dict[str, Any]

PLATFORM_FINALIZERS = "isthmus.dev/"
_SERVER_OWNED = ("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields")


def prepare_new(kind: Kind, sent: Mapping[str, Any], namespace: str, name: str = "") -> Object:
    """The checked object to create, with its initial status; raises Invalid."""
    obj = _identified(kind, sent, namespace, name)
    if obj["metadata"].get("resourceVersion"):
        raise invalid_field("metadata.resourceVersion", "must not be set on an object to be created")
    for field in _SERVER_OWNED:
        obj["metadata"].pop(field, None)
    obj.pop("status", None)
    if isinstance(finalizers := obj["metadata"].get("finalizers"), list):
        obj["metadata"]["finalizers"] = [f for f in finalizers if not _of_platform(f)]
    checked = _checked(kind, obj)
    check_name(kind, checked["metadata"].get("name", ""))
    for check in kind.admit:
        check(checked)
    check_texts(kind, checked)
    return checked


def prepare_change(kind: Kind, old: Object, sent: Mapping[str, Any], *, keep_finalizers: bool) -> Object:
    """The checked object that replaces everything but the status of `old`; raises Invalid, Conflict."""
    obj = _identified(kind, sent, old["metadata"].get("namespace", ""), old["metadata"]["name"])
    _same_object(old, obj)
    obj.pop("status", None)
    metadata = obj["metadata"]
    if keep_finalizers and isinstance(finalizers := metadata.get("finalizers") or [], list):
        kept = [f for f in old["metadata"].get("finalizers") or [] if _of_platform(f)]
        metadata["finalizers"] = [f for f in finalizers if not _of_platform(f) or f in kept]
        metadata["finalizers"] += [f for f in kept if f not in metadata["finalizers"]]
    _carry_over(old, metadata)
    checked = _checked(kind, obj)
    if kind.changes is not None:
        check_change(kind, validate(kind, old), checked)
    return checked


def prepare_status(kind: Kind, old: Object, sent: Mapping[str, Any]) -> Object:
    """`old` with the status that was sent; raises Invalid, Conflict."""
    obj = _identified(kind, sent, old["metadata"].get("namespace", ""), old["metadata"]["name"])
    _same_object(old, obj)
    version = obj["metadata"].get("resourceVersion")
    metadata = {**old["metadata"], **({"resourceVersion": version} if version else {})}
    checked = _checked(kind, {**old, "metadata": metadata, "status": obj.get("status") or {}})
    was = old.get("status", {})
    note_person(kind, checked, member=was.get("member"), user=was.get("submittedBy"))
    return checked


def note_person(kind: Kind, new: Object, *, member: str | None, user: str | None) -> None:
    """Write down whose work it is, and nobody else: sites may run it under the account of that member.

    The user is what a token says, which is good enough for lists, and for nothing else.
    """
    people = (("member", "member", member), ("submitted_by", "submittedBy", user))
    for declared, field, person in people:
        if kind.status_has(declared):
            new["status"].pop(field, None)
            if person is not None:
                new["status"][field] = person


def check_rights(caller: Caller, kind: Kind, old: Object | None, new: Object) -> None:
    """What a caller who may write this kind may not write into it; raises Forbidden, Invalid."""
    if kind is TOKEN:
        _token_role(caller, new)
    if kind is SECRET and old is not None:
        _own_secret(caller, old)
    if kind.rights.fields is not None and old is not None and not caller.is_platform_admin:
        _only_fields(kind, kind.rights.fields, old, new)


def check_tenant(namespace: str, kind: Kind, *, suspended: bool, terminating: bool) -> None:
    """Whether something new may appear in the namespace of a tenant that exists; raises Forbidden."""
    if terminating:
        raise Forbidden(f"tenant {namespace!r} is being deleted; nothing new can be created in it")
    if suspended and kind.work:
        raise Forbidden(f"tenant {namespace!r} is suspended, so nothing new starts; ask a platform admin to resume it")


def needs_tenant(kind: Kind, namespace: str) -> bool:
    """Whether the namespace must be a tenant: the platform's own namespace holds only tokens and events."""
    return kind.namespaced and (namespace != SYSTEM_NAMESPACE or kind.work)


def _identified(kind: Kind, sent: Mapping[str, Any], namespace: str, name: str) -> Object:
    """A copy with kind, apiVersion, name and namespace filled in, which must agree with the path."""
    metadata = sent.get("metadata", {})
    if not isinstance(metadata, dict):
        raise invalid_field("metadata", "must be an object")
    obj: Object = {**sent, "metadata": dict(metadata)}
    for field, wanted in (("apiVersion", kind.api_version), ("kind", kind.name)):
        if obj.setdefault(field, wanted) != wanted:
            raise invalid_field(field, f"is {str(obj[field])[:80]!r}, but {wanted!r} is what this path takes")
    given = obj["metadata"].get("namespace")
    if given and given != namespace:
        where = f"the path is of the namespace {namespace!r}" if namespace else f"a {kind.name} has no namespace"
        raise invalid_field("metadata.namespace", f"is {str(given)[:80]!r}, but {where}")
    obj["metadata"].pop("namespace", None)
    if namespace:
        obj["metadata"]["namespace"] = namespace
    if name and obj["metadata"].setdefault("name", name) != name:
        raise invalid_field("metadata.name", f"is {str(obj['metadata']['name'])[:80]!r}, but the path names {name!r}")
    return obj


def _checked(kind: Kind, obj: Object) -> Object:
    checked = validate(kind, obj)
    for field in ("finalizers", "ownerReferences", "labels", "annotations"):
        if not checked["metadata"].get(field):
            checked["metadata"].pop(field, None)
    for finalizer in checked["metadata"].get("finalizers", ()):
        if "/" not in finalizer and finalizer not in ("foregroundDeletion", "orphan"):
            raise invalid_field("metadata.finalizers", f"{finalizer[:80]!r} must be of the form domain/name")
    return checked


def _same_object(old: Object, new: Object) -> None:
    uid = new["metadata"].get("uid")
    if uid and uid != old["metadata"].get("uid"):
        raise Conflict(
            f"{old['kind']} {old['metadata']['name']!r} was deleted and created again since it was read; read it again"
        )


def _carry_over(old: Object, metadata: Object) -> None:
    """What the store owns stays as it was read; the version is the client's, if it sent one."""
    for field in _SERVER_OWNED:
        if field == "resourceVersion" and metadata.get(field):
            continue
        if field in old["metadata"]:
            metadata[field] = old["metadata"][field]
        else:
            metadata.pop(field, None)


def _token_role(caller: Caller, new: Object) -> None:
    namespace, role = new["metadata"]["namespace"], new["spec"].get("role")
    if role is None:
        if namespace != SYSTEM_NAMESPACE:
            raise invalid_field("spec.role", "is required for a token of a tenant: viewer, member or admin")
        role = Role.VIEWER
    if not at_least(caller.role_in(namespace), Role(role)):
        raise Forbidden(
            f"a token with the role {role} cannot be made by a caller whose own role there is lower; "
            f"choose one of {', '.join(r for r in RANKS if at_least(caller.role_in(namespace), r)) or 'none'}"
        )


def _own_secret(caller: Caller, old: Object) -> None:
    """A person's credentials are changed by nobody else but those who administer the tenant."""
    member, namespace = (old.get("status") or {}).get("member"), old["metadata"]["namespace"]
    if member not in (None, caller.user) and not at_least(caller.role_in(namespace), Role.ADMIN):
        name = old["metadata"]["name"]
        raise Forbidden(f"secret {name!r} is {member}'s; make one of your own, under another name")


def _only_fields(kind: Kind, free: frozenset[str], old: Object, new: Object) -> None:
    before, after = validate(kind, old)["spec"], new["spec"]
    changed = [f"spec.{field}" for field in differences(before, after) if field not in free]
    held = ("labels", "finalizers", "ownerReferences")
    changed += [f"metadata.{f}" for f in held if (old["metadata"].get(f) or None) != new["metadata"].get(f)]
    if changed:
        raise Forbidden(
            f"an admin of the tenant may change {' and '.join(f'spec.{f}' for f in sorted(free, reverse=True))} only, "
            f"not {', '.join(changed)}; ask a platform admin"
        )


def _of_platform(finalizer: Any) -> bool:
    return isinstance(finalizer, str) and finalizer.startswith(PLATFORM_FINALIZERS)
