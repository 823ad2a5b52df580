"""Auditing: which requests are kept in the audit log, and what of them.

Kept are all changes with what became of them, everything that was refused, and what people with a role on the platform
read of tenants. What a member reads of her own tenant is not: it is hers, and it is most of what happens. Questions
that change nothing although they are sent as POST (what may I do, what would become of this job) are reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from isthmus.identity.audit.acts import Act

from .requests import CALLER, authorization_of

if TYPE_CHECKING:
    from starlette.types import Scope

    from isthmus.identity.callers import Caller

    from .context import Context
    from .resources.targets import Target

NAME = "isthmus.name"
"""Where a scope has the name of the object that was made, which the path does not say."""
ORIGIN = "isthmus.origin"
"""Where a scope has where a browser is for which the console asks."""
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_ALL = ("/apis/isthmus.dev/v1/telemetry", "/apis/isthmus.dev/v1/audit")
"""Reads of all tenants at once, that no namespace tells."""
_QUESTIONS = ("/plans", "/files/missing")
_REVIEWS = ("/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/")


class Origin(NamedTuple):
    """Where a request comes from."""

    address: str = ""
    agent: str = ""


NOWHERE = Origin()


def is_change(scope: Scope) -> bool:
    """Whether a request wants to change something."""
    if scope["method"] in _READS:
        return False
    path: str = scope["path"]
    return not path.startswith(_REVIEWS) and not path.endswith(_QUESTIONS)


def note_request(context: Context, scope: Scope, target: Target | None, code: int) -> None:
    """Keep a request whose answer is about to be sent, if it is one that is kept."""
    log = context.audit
    if log is None:
        return
    caller: Caller | None = scope.get(CALLER)
    refused = code in (401, 403)
    if is_change(scope):
        if refused or code >= 400 or b"dryRun=" not in scope["query_string"]:
            log.act(_act(context, scope, target, caller, code))
    elif refused:
        log.act(_act(context, scope, target, caller, code))
    elif caller is not None and caller.platform is not None and code < 400 and _is_of_a_tenant(scope, target):
        watch = "watch" if b"watch=" in scope["query_string"] else ""
        if log.reads(caller.token, caller.user, origin_of(scope).address, scope["path"], watch):
            log.act(_act(context, scope, target, caller, code))


def note_sign_in(context: Context, scope: Scope, caller: Caller | None, verb: str = "sign-in") -> None:
    """Keep that somebody signed in to the console or out of it, or tried to."""
    if context.audit is not None:
        address, agent = origin_of(scope)
        user, credential = (caller.user, caller.credential) if caller else ("", "")
        context.audit.act(Act(user, credential, address, agent, verb, "console", "", "", 200 if caller else 401))


def note_page(context: Context, scope: Scope, caller: Caller) -> None:
    """Keep which pages of the console people with a role on the platform see: they show what belongs to tenants."""
    if context.audit is not None and caller.platform is not None:
        (address, agent), path = origin_of(scope), scope["path"]
        if context.audit.reads(caller.token, caller.user, address, path):
            context.audit.act(Act(caller.user, caller.credential, address, agent, "get", path, "", "", 200))


def _act(context: Context, scope: Scope, target: Target | None, caller: Caller | None, code: int) -> Act:
    address, agent = origin_of(scope)
    if target is not None:
        resource, namespace, name = target.view.kind.plural, target.namespace, target.name
        if target.subresource:
            resource += f"/{target.subresource}"
        if not namespace and target.view.kind.namespaced:
            namespace = "*"
    else:
        resource, namespace, name = _of_path(scope["path"])
    verb = _VERBS.get(scope["method"], "get")
    if verb == "get" and target is not None and not name:
        verb = "watch" if b"watch=" in scope["query_string"] else "list"
    elif verb == "delete" and not name and target is not None:
        verb = "deletecollection"
    if caller is not None:
        user, credential = caller.user, caller.credential
    else:
        user, credential = "", _presented(context, scope)
    name = scope.get(NAME) or name
    return Act(user, credential, address, agent, verb, resource, namespace, name, code)


def origin_of(scope: Scope) -> Origin:
    """Where a request comes from, by the connection and by what it says of itself."""
    if (known := scope.get(ORIGIN)) is not None:
        found: Origin = known
        return found
    agent = next((value for name, value in scope["headers"] if name == b"user-agent"), b"")
    return Origin((scope.get("client") or ("",))[0], agent.decode("latin-1"))


def _presented(context: Context, scope: Scope) -> str:
    """Which credential was refused. Only names that there are: what looks like a name may be part of a secret."""
    header = authorization_of(scope)
    if header is None:
        return ""
    name = context.authenticator.name_in(header)
    return f"token {name}" if context.authenticator.knows(name) else "unknown"


def _of_path(path: str) -> tuple[str, str, str]:
    """What a path that is no target is about: `jobs/log`, the namespace, the name."""
    parts = path.split("/")
    if len(parts) > 6 and parts[1] == "apis" and parts[4] == "namespaces":
        namespace, resource, rest = parts[5], parts[6], parts[7:]
        name = rest[0] if rest else ""
        return "/".join((resource, *rest[1:2])), namespace, name
    return path, "", ""


def _is_of_a_tenant(scope: Scope, target: Target | None) -> bool:
    if target is not None:
        return target.view.kind.namespaced
    path: str = scope["path"]
    return "/namespaces/" in path or path.startswith(_OF_ALL)
