"""Tenants, their members and their tokens. A new token's secret is shown once, by the answer that made it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from starlette.responses import Response

from isthmus._kit.clock import timestamp, utcnow
from isthmus._kit.durations import parse_duration
from isthmus.console.calling import GROUP, in_tenant
from isthmus.console.manifests import at_fields
from isthmus.console.rendering import render
from isthmus.console.visits import BASE, Visit, back_to
from isthmus.errors import Cause, Invalid, IsthmusError, Unauthenticated
from isthmus.resources.tenants import SYSTEM_NAMESPACE, Role
from isthmus.resources.tokens import new_secret

_FIELDS = ("metadata.name", "spec.description", "spec.user", "spec.role", "spec.expiresAt", "spec.members")


async def tenants(visit: Visit) -> Response:
    """Those that the caller may know of."""
    return await _tenants(visit)


async def _tenants(visit: Visit, error: IsthmusError | None = None, **values: Any) -> Response:
    found = (await visit.asker.get(f"{GROUP}/tenants"))["items"]
    may_create = visit.may("create", "tenants")
    return render(
        visit, "tenants.html", 422 if error else 200, tenants=found, may_create=may_create, **_reported(error), **values
    )


async def create(visit: Visit) -> Response:
    """A new tenant."""
    fields = await visit.form()
    name = fields.get("metadata.name", "").strip()
    spec = {"description": fields.get("spec.description", "").strip()}
    try:
        await visit.asker.ask("POST", f"{GROUP}/tenants", {"metadata": {"name": name}, "spec": spec})
    except Unauthenticated:
        raise
    except IsthmusError as error:
        return await _tenants(visit, error, fields=fields)
    return back_to(f"{BASE}/tenants/{name}")


async def tenant(visit: Visit) -> Response:
    """One of them."""
    return await _tenant(visit, visit.request.path_params["name"])


async def _tenant(visit: Visit, name: str, error: IsthmusError | None = None, **values: Any) -> Response:
    system = name == SYSTEM_NAMESPACE
    found = {"metadata": {"name": name}} if system else await visit.asker.get(f"{GROUP}/tenants/{name}")
    tokens = None
    if visit.may("list", "tokens", name):
        tokens = (await visit.asker.get(in_tenant(name, "tokens")))["items"]
    elif system:
        await visit.asker.get(in_tenant(name, "tokens"))  # raises what the API says
    return render(
        visit,
        "tenant.html",
        422 if error else 200,
        tenant=found,
        system=system,
        tokens=tokens,
        roles=list(Role),
        may_manage=visit.may("patch", "tenants", "", name) and not system,
        may_list_secrets=visit.may("list", "secrets", name),
        may_suspend=visit.caller.is_platform_admin and not system,
        **_reported(error),
        **values,
    )


async def change(visit: Visit) -> Response:
    """Members, and whether it is suspended."""
    fields = await visit.form()
    name, action = visit.request.path_params["name"], visit.request.path_params["action"]
    path = f"{GROUP}/tenants/{name}"
    try:
        if action in ("suspend", "resume"):
            await visit.asker.patch(path, {"spec": {"suspended": action == "suspend"}})
        elif action in ("add-member", "remove-member"):
            found = await visit.asker.get(path)
            user = fields.get("spec.user", "").strip()
            members = [m for m in (found.get("spec") or {}).get("members") or () if m["user"] != user]
            if action == "add-member":
                members.append({"user": user, "role": fields.get("spec.role", "member")})
            version = found["metadata"]["resourceVersion"]
            await visit.asker.patch(path, {"metadata": {"resourceVersion": version}, "spec": {"members": members}})
        else:
            raise Invalid("a tenant can be suspended and resumed, and members can be added and removed")
    except Unauthenticated:
        raise
    except IsthmusError as error:
        return await _tenant(visit, name, error, fields=fields, about=action)
    return back_to(f"{BASE}/tenants/{name}")


async def make_token(visit: Visit) -> Response:
    """A new token, shown now and never again."""
    fields = await visit.form()
    tenant_name = visit.request.path_params["name"]
    name, secret, sha256 = new_secret()
    spec: dict[str, Any] = {"user": fields.get("spec.user", "").strip(), "sha256": sha256}
    spec["description"] = fields.get("spec.description", "").strip()
    try:
        if role := fields.get("spec.role"):
            spec["role"] = role
        if days := fields.get("spec.expiresAt", "").strip():
            spec["expiresAt"] = _moment_after(days)
        await visit.asker.ask("POST", in_tenant(tenant_name, "tokens"), {"metadata": {"name": name}, "spec": spec})
    except Unauthenticated:
        raise
    except IsthmusError as error:
        return await _tenant(visit, tenant_name, error, fields=fields, about="token")
    return await _tenant(visit, tenant_name, secret=secret, secret_user=spec["user"])


async def revoke(visit: Visit) -> Response:
    """End a token, at once and for good."""
    await visit.form()
    tenant_name, token = visit.request.path_params["name"], visit.request.path_params["token"]
    await visit.asker.patch(in_tenant(tenant_name, "tokens", token), {"spec": {"revoked": True}})
    return back_to(f"{BASE}/tenants/{tenant_name}")


def _moment_after(text: str) -> str:
    try:
        return timestamp(utcnow() + timedelta(seconds=parse_duration(text)))
    except (ValueError, OverflowError) as error:
        raise Invalid(str(error), causes=(Cause("spec.expiresAt", f"{error}, such as 30d"),)) from None


def _reported(error: IsthmusError | None) -> dict[str, Any]:
    if error is None:
        return {"problems": {}, "rest": []}
    problems, rest = at_fields(error.causes, _FIELDS)
    return {"problems": problems, "rest": rest or ([] if problems else [error.message])}


PAGES = (
    ("GET", "/tenants", tenants),
    ("POST", "/tenants", create),
    ("GET", "/tenants/{name}", tenant),
    ("POST", "/tenants/{name}/tokens", make_token),
    ("POST", "/tenants/{name}/tokens/{token}/revoke", revoke),
    ("POST", "/tenants/{name}/{action}", change),
)
