"""What was used: sums over the runs of jobs that are there, and over the records of those that are gone.

Of each tenant the jobs are read first and the records after: a run that was added to a record meanwhile is there by
itself, and is not counted a second time. The answer is bounded, however many people or projects there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.routing import Route

from isthmus._kit.clock import parse_timestamp, utcnow
from isthmus.errors import Invalid, NotFound
from isthmus.identity.callers import Caller, at_least
from isthmus.resources.frame.roles import Role
from isthmus.resources.frame.selectors import parse_labels
from isthmus.resources.kinds import JOB, TENANT, USAGE_RECORD
from isthmus.resources.tenants import SYSTEM_NAMESPACE
from isthmus.resources.usage_records import TENANT_LABEL, accounts_in
from isthmus.resources.work.run_accounts import Amounts, UsageAccount, accounts_of, key_by
from isthmus.store.base import Key, Query, Store

from .requests import caller_of, require
from .responses import json_response

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from .context import Context

USAGE = "/apis/isthmus.dev/v1/usage"
BY = ("month", "day", "tenant", "person", "project", "site", "device")
MOST = 1000
"""Items of an answer."""
OTHERS = "(others)"
_NAME = re.compile(r"[a-z0-9.-]{1,253}")
_ASKED = ("by", "namespace", "since", "until")


@dataclass(slots=True)
class UsageQuestion:
    """What is asked for, and what was found so far."""

    by: str
    since: str = ""
    until: str = ""
    found: dict[str, Amounts] = field(default_factory=dict)

    def add(self, account: UsageAccount, key: str) -> None:
        """Count an account under a key, if it is of the time that is asked for."""
        if (self.since and account.day < self.since) or (self.until and account.day > self.until):
            return
        self.found.setdefault(key, Amounts()).add(account.amounts)


def routes(context: Context) -> list[BaseRoute]:
    """For everybody, each of what they may see."""

    async def usage(request: Request) -> Response:
        caller = await caller_of(request, context)
        question, namespace = _question(request)
        tenants = await _tenants(context.store, caller, namespace)
        for name, uid in tenants.items():
            await count_tenant(context.store, question, name, uid, _key(question.by, name, caller), utcnow())
        if namespace is None and caller.platform is not None:
            await _count_former(context.store, question, frozenset(tenants.values()), caller)
        return json_response(_answer(question))

    return [Route(USAGE, usage, methods=["GET"])]


async def _tenants(store: Store, caller: Caller, namespace: str | None) -> dict[str, str]:
    """The tenants whose usage is asked for, with their uids."""
    if namespace is not None:
        require(caller, "list", "usage", namespace)
        return {namespace: (await store.get(Key(TENANT.name, "", namespace))).uid}
    if caller.platform is not None:
        return {record.key.name: record.uid for record in (await store.list(Query(TENANT))).records}
    found = {}
    for name in sorted(caller.grants):
        require(caller, "list", "usage", name)
        try:
            found[name] = (await store.get(Key(TENANT.name, "", name))).uid
        except NotFound:
            continue
    return found


def _key(by: str, tenant: str, caller: Caller) -> Callable[[UsageAccount], str]:
    """What accounts of a tenant are listed under. Who used how much is for admins, and for each of oneself."""
    if by == "tenant":
        return lambda account: tenant
    if by == "person" and not at_least(caller.role_in(tenant), Role.ADMIN):
        return lambda account: account.person if account.person == caller.user else OTHERS
    return lambda account: key_by(account, by)


async def count_tenant(
    store: Store, question: UsageQuestion, tenant: str, uid: str, key: Callable[[UsageAccount], str], now: datetime
) -> None:
    """Count what the runs of a tenant used, those that go on until now."""
    seen = set[str]()
    cursor: str | None = None
    while True:
        page = await store.list(Query(JOB, tenant), limit=200, continue_=cursor, most_bytes=2**20)
        for record in page.records:
            for entry in accounts_of(record.obj, now):
                seen.add(entry.run)
                question.add(entry.account, key(entry.account))
            record.shrink()
        if (cursor := page.continue_) is None:
            break
    labels = parse_labels(f"{TENANT_LABEL}={tenant}")
    for record in (await store.list(Query(USAGE_RECORD, SYSTEM_NAMESPACE, labels))).records:
        if record.obj["spec"].get("tenantUid", "") == uid:
            for account in accounts_in(record.obj["spec"], seen):
                question.add(account, key(account))


async def _count_former(store: Store, question: UsageQuestion, present: frozenset[str], caller: Caller) -> None:
    """Tenants that are gone."""
    for record in (await store.list(Query(USAGE_RECORD, SYSTEM_NAMESPACE))).records:
        spec = record.obj["spec"]
        if spec.get("tenantUid", "") not in present:
            key = _key(question.by, spec["tenant"], caller)
            for account in accounts_in(spec):
                question.add(account, key(account))


def _answer(question: UsageQuestion) -> dict[str, Any]:
    total = Amounts()
    for amounts in question.found.values():
        total.add(amounts)
    in_time = question.by in ("month", "day")
    order = sorted(question.found.items())
    if not in_time:
        order.sort(key=lambda item: (-item[1].cost, -item[1].cpu_seconds, item[0]))
    else:
        order = order[-MOST:]
    items = [_item(name, amounts) for name, amounts in order[:MOST]]
    if len(order) > MOST:
        rest = Amounts()
        for _, amounts in order[MOST:]:
            rest.add(amounts)
        items.append(_item(OTHERS, rest))
    answer: dict[str, Any] = {"apiVersion": "isthmus.dev/v1", "kind": "UsageList", "by": question.by}
    answer |= {name: value for name, value in (("since", question.since), ("until", question.until)) if value}
    return answer | {"items": items, "total": _sums(total)}


def _item(name: str, amounts: Amounts) -> dict[str, Any]:
    return {"name": name, **_sums(amounts)}


def _sums(amounts: Amounts) -> dict[str, Any]:
    return {
        "runs": amounts.runs,
        "running": amounts.going,
        "hours": round(amounts.seconds / 3600, 6),
        "cpuHours": round(amounts.cpu_seconds / 3600, 6),
        "usedCpuHours": round(amounts.used_cpu_seconds / 3600, 6),
        "deviceHours": {name: round(s / 3600, 6) for name, s in sorted(amounts.device_seconds.items())},
        "energyKwh": round(amounts.energy_joules / 3.6e6, 9),
        "cost": round(amounts.cost, 6),
    }


def _question(request: Request) -> tuple[UsageQuestion, str | None]:
    asked = request.query_params
    if unknown := sorted(set(asked) - set(_ASKED)):
        raise Invalid(f"usage cannot be asked for by {unknown[0][:40]!r}; by {', '.join(_ASKED)}")
    by = asked.get("by", "month")
    if by not in BY:
        raise Invalid(f"by={by[:40]!r} is not one of {', '.join(BY)}")
    since, until = _day(asked, "since"), _day(asked, "until")
    namespace = asked.get("namespace", "")
    if namespace and not _NAME.fullmatch(namespace):
        raise Invalid(f"namespace={namespace[:40]!r} is not the name of a tenant")
    return UsageQuestion(by, since, until), namespace or None


def _day(asked: Any, name: str) -> str:
    text = asked.get(name, "")
    if not text:
        return ""
    try:
        moment: datetime = parse_timestamp(text)
    except ValueError:
        try:
            return datetime.strptime(text, "%Y-%m-%d").strftime("%Y-%m-%d")  # noqa: DTZ007 - a day, not a moment
        except ValueError:
            raise Invalid(f"{name}={text[:40]!r} is neither a day (2026-11-18) nor a time in UTC") from None
    return moment.strftime("%Y-%m-%d")
