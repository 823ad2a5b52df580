"""Rendering: templates, the words they use, and the headers every page carries.

Everything is escaped unless a template of ours is the source. The content security policy permits scripts, styles and
connections of this server only, and nothing inline: a job's name or output cannot run even if it were not escaped.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import jinja2
import yaml
from starlette.responses import Response

from isthmus._kit.clock import parse_timestamp, utcnow
from isthmus._kit.durations import format_duration
from isthmus._kit.quantities import parse_cpus, scaled_bytes
from isthmus._kit.reasons import read_reasons
from isthmus.resources.frame.states import JOB_PHASES, SITE_PHASES, JobPhase, SitePhase
from isthmus.resources.kinds import JOB, KINDS, derived

from .visits import BASE

if TYPE_CHECKING:
    from .visits import Visit

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
FOLDER = Path(str(files("isthmus.console")))
_OVERVIEW = ("overview", f"{BASE}/", "Overview", "o")
_SUBMIT = ("submit", f"{BASE}/submit", "Submit", "n")


@derived
def navigation(platform: bool) -> tuple[tuple[str, str, str, str], ...]:
    """The entries of the navigation: the kinds that declare one, and the pages that are no kind's.

    What no role of a tenant may see is there for people with a role on the platform.
    """
    found = [_OVERVIEW]
    for kind in KINDS.values():
        rights = kind.rights
        seen = platform or rights.everybody or rights.viewer or rights.member or rights.admin
        if kind.navigation is not None and seen:
            found.append((kind.plural, f"{BASE}/{kind.plural}", kind.navigation.title, kind.navigation.key))
            found += [_SUBMIT] if kind is JOB else []
    return tuple(found)


_ENDS = ("Succeeded", "Failed", "Cancelled")


def render(visit: Visit, template: str, http: int = 200, **values: Any) -> Response:
    """A page for somebody who signed in."""
    caller = visit.caller
    code_of_forms = visit.parts.sessions.code(visit.session.word)
    shared = {
        "caller": caller,
        "csrf": code_of_forms,
        "path": visit.request.url.path,
        "navigation": navigation(caller.platform is not None),
        "mark": visit.mark,
    }
    return page(template, http, theme=visit.theme, **shared, **values)


def page(template: str, http: int = 200, **values: Any) -> Response:
    """A page for anybody."""
    text = template_environment().get_template(template).render(now=utcnow(), **values)
    return Response(text, http, HEADERS, "text/html")


@cache
def template_environment() -> jinja2.Environment:
    """Where templates are found, and the names that they may use."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(
        base=BASE, asset=asset, JobPhase=JobPhase, shown_phase=shown_phase, toggled=toggled, reasons_in=read_reasons
    )
    environment.filters.update(
        bytes=size,
        duration=lambda value: _duration(value) if isinstance(value, int | float) else "",
        between=between,
        number=number,
        segment=lambda text: quote(str(text), safe=""),
        query=lambda values: urlencode({k: v for k, v in values.items() if v not in (None, "", False)}),
        yaml=as_yaml,
        meaning=_meaning,
        counted=counted,
        cpus=cpus,
    )
    return environment


@cache
def assets_version() -> str:
    """Changes with the content of any file in `static/`, so that browsers may keep them all for ever."""
    found = hashlib.sha256()
    for path in sorted((FOLDER / "static").rglob("*.*")):
        found.update(path.read_bytes())
    return found.hexdigest()[:10]


def asset(name: str) -> str:
    """The address of a file in `static/`; what it imports has the same version."""
    return f"{BASE}/static/{assets_version()}/{name}"


def shown_phase(phase: str, intent: str = "Run") -> str:
    """The phase as a person sees it: what was asked for and has not happened yet counts too."""
    if phase not in _ENDS:
        if intent == "Cancel":
            return "Cancelling"
        if intent == "Hold" and phase == "Pending":
            return "Held"
    return phase


def toggled(listed: str, one: str) -> str:
    """A list of uids with this one added, or without it."""
    there = [uid for uid in listed.split(",") if uid]
    return ",".join(uid for uid in there if uid != one) if one in there else ",".join([*there, one])


def between(start: str, end: str | None = None) -> str:
    """How long from one moment to another."""
    if not start or not end:
        return ""
    return _duration((parse_timestamp(end) - parse_timestamp(start)).total_seconds())


def counted(count: Any, one: str, many: str = "") -> str:
    """`1 CPU`, `2 CPUs`."""
    text = number(count) if isinstance(count, int | float) else str(count)
    return f"{text} {one if text == '1' else many or f'{one}s'}"


def cpus(text: Any) -> str:
    """`1 CPU`, and `0.5 CPU` of `500m`."""
    amount = parse_cpus(str(text)) / 1000
    return f"{number(amount)} CPU" if amount <= 1 else counted(amount, "CPU")


def number(value: Any, digits: int = 3) -> str:
    """A number with so many significant digits, and no more zeros than needed."""
    if value is None or isinstance(value, jinja2.Undefined):
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e9):
        return f"{int(value):,}"
    return f"{value:,.{digits}g}" if 1e-4 <= abs(value) < 10**digits else f"{value:.{digits}g}"


def size(count: Any) -> str:
    """Bytes as people say them."""
    if not isinstance(count, int | float):
        return ""
    return "{} {}B".format(*scaled_bytes(count))


def _duration(seconds: float) -> str:
    rounded = max(0.0, seconds)
    if rounded < 1:
        return f"{rounded * 1000:.3g} ms"
    return f"{rounded:.3g} s" if rounded < 60 else format_duration(round(rounded))


class _Dumper(yaml.SafeDumper):
    """YAML as people write it: scripts as blocks, lists indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def as_yaml(value: Any) -> str:
    """A manifest."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def _meaning(phase: str) -> str:
    if phase in tuple(JobPhase):
        return JOB_PHASES[JobPhase(phase)]
    return SITE_PHASES[SitePhase(phase)] if phase in tuple(SitePhase) else ""
