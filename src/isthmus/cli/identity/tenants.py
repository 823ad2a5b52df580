"""`isthmus tenants`: people and groups."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from isthmus.cli.app import group
from isthmus.cli.asking import Yes, confirm_tenant
from isthmus.cli.columns import columns_of
from isthmus.cli.completion import complete_namespaces
from isthmus.cli.options import Format, Output, Token, Url, client_for, format_of
from isthmus.cli.tables import show, show_facts, size
from isthmus.client.requests import Object
from isthmus.errors import Conflict, Invalid

app = group("Tenants: people and groups, each with a namespace of its own.")
_ROLES = ("viewer", "member", "admin")
_TRIES = 5
Tenant = Annotated[str, typer.Argument(metavar="TENANT", autocompletion=complete_namespaces)]
Role = Annotated[str, typer.Option(help="viewer (reads), member (runs work) or admin (manages members and tokens).")]


@app.callback(invoke_without_command=True)
def _default(ctx: typer.Context) -> None:
    """Tenants: people and groups, each with a namespace of its own.

    \b
    Examples:
      isthmus tenants
      isthmus tenants create physics --description "High energy physics"
      isthmus tenants add physics ada@example.org --role admin
    """
    if ctx.invoked_subcommand is None:
        list_tenants()


@app.command("list")
def list_tenants(output: Output = None, url: Url = None, token: Token = None) -> None:
    """List the tenants that you may see."""
    with client_for(url, token) as client:
        found = client.list("tenants")
    show(found, columns_of("Tenant"), format_of(output))


@app.command("create")
def create_tenant(
    name: Annotated[str, typer.Argument(metavar="TENANT")],
    description: Annotated[str, typer.Option(help="Who they are.")] = "",
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Create a tenant.

    \b
    Example:
      isthmus tenants create physics --description "High energy physics"
    """
    spec = {"description": description} if description else {}
    manifest = {"apiVersion": "isthmus.dev/v1", "kind": "Tenant", "metadata": {"name": name}, "spec": spec}
    with client_for(url, token) as client:
        _notify(client.create(manifest), "created", format_of(output))


@app.command("delete")
def delete_tenant(name: Tenant, yes: Yes = False, url: Url = None, token: Token = None) -> None:
    """Delete a tenant with everything it owns: its jobs are cancelled. At a terminal its name is asked for.

    \b
    Examples:
      isthmus tenants delete physics
      isthmus tenants delete --yes physics
    """
    confirm_tenant(name, yes)
    with client_for(url, token) as client:
        client.delete("tenants", name)
    sys.stdout.write(f"tenant/{name} deleted\n")


@app.command("add")
def add_member(
    name: Tenant,
    user: Annotated[str, typer.Argument(metavar="USER")],
    role: Role = "member",
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Add a member, or change a member's role.

    \b
    Example:
      isthmus tenants add physics ada@example.org --role admin
    """
    if role not in _ROLES:
        raise Invalid(f"--role {role!r} is not one of {', '.join(_ROLES)}")
    _change(name, user, {"user": user, "role": role}, format_of(output), url, token)


@app.command("remove")
def remove_member(
    name: Tenant,
    user: Annotated[str, typer.Argument(metavar="USER")],
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Remove a member.

    \b
    Example:
      isthmus tenants remove physics ada@example.org
    """
    _change(name, user, None, format_of(output), url, token)


def tenant(name: Tenant, output: Output = None, url: Url = None, token: Token = None) -> None:
    """Show one tenant: its members, its quotas, and what it takes of them.

    \b
    Examples:
      isthmus tenant physics
      isthmus tenant physics -o yaml
    """
    form = format_of(output)
    with client_for(url, token) as client:
        found = client.get("tenants", name)
    if form is not Format.TABLE:
        show([found], columns_of("Tenant"), form, single=True)
        return
    show_facts(_facts(found))


def _facts(found: Object) -> Iterator[tuple[str, str]]:
    spec, status = found.get("spec") or {}, found.get("status") or {}
    quota = spec.get("quota") or {}
    yield "Tenant", found["metadata"]["name"]
    yield "Phase", str(status.get("phase") or "Active")
    yield "Description", spec.get("description") or ""
    yield "Members", ", ".join(f"{m['user']} ({m.get('role') or 'member'})" for m in spec.get("members") or [])
    yield "Sites", ", ".join(spec.get("sites") or ["all"])
    jobs = f" of {quota['jobs']}" if quota.get("jobs") is not None else ""
    yield "Active jobs", f"{status.get('activeJobs') or 0}{jobs}"
    named = [f"{quota[key]} {word}" for key, word in (("cpus", "CPUs"), ("memory", "of memory")) if quota.get(key)]
    named += [f"{count} {device}" for device, count in (quota.get("devices") or {}).items()]
    yield "Quota", ", ".join(named)
    yield "Storage", storage_facts(status.get("storage"), quota.get("storage"))


def storage_facts(measured: Object | None, limit: str | None) -> str:
    """What is used, of what, and by what."""
    if measured is None:
        return f"not measured yet, of {limit}" if limit else ""
    parts = (("filesBytes", "files and outputs"), ("logsBytes", "logs"), ("foldersBytes", "folders of running jobs"))
    by = ", ".join(f"{what} {size(measured[key])}" for key, what in parts if measured.get(key))
    total = size(sum(measured.get(key) or 0 for key, _ in parts))
    return f"{total}{f' of {limit}' if limit else ''}{f' ({by})' if by else ''}"


def _change(
    name: str, user: str, member: dict[str, str] | None, form: Format, url: str | None, token: str | None
) -> None:
    """Read the members, change one, write them back with the version read: nobody else's change is lost."""
    with client_for(url, token) as client:
        for left in reversed(range(_TRIES)):
            present = client.get("tenants", name)
            members = [m for m in (present.get("spec") or {}).get("members") or [] if m.get("user") != user]
            change = {
                "metadata": {"resourceVersion": present["metadata"].get("resourceVersion")},
                "spec": {"members": [*members, member] if member else members},
            }
            try:
                _notify(client.patch("tenants", name, change), "configured", form)
                return
            except Conflict:
                if not left:
                    raise


def _notify(tenant: dict[str, Any], reported: str, form: Format) -> None:
    if form in (Format.TABLE, Format.WIDE):
        sys.stdout.write(f"tenant/{tenant['metadata']['name']} {reported}\n")
    else:
        show([tenant], columns_of("Tenant"), form, single=True)
