"""What the server offers beside its kinds: logs, files, outputs, reviews, discovery, health and descriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from isthmus.api.audit_routes import AUDIT
from isthmus.api.audit_routes import LOGS as AUDIT_LOGS
from isthmus.api.enrolling import ENROL, HEADER, INSTALLER, WHEEL, WHEELS, Enrolment
from isthmus.api.enrolling import LIST as AGENTS
from isthmus.api.files import BASE as FILES
from isthmus.api.resources.targets import all_views
from isthmus.api.runs.finding import RUN, kinds_with_runs, path_of
from isthmus.api.runs.plans import BASE as PLANS
from isthmus.api.runs.plans import PlanQuestion
from isthmus.api.runs.telemetry import BASE as TENANT
from isthmus.api.runs.telemetry import EVERYWHERE
from isthmus.api.sign_in_routes import PROVIDERS
from isthmus.api.site_images import BASE as IMAGES
from isthmus.api.site_images import EVERYWHERE as ALL_IMAGES
from isthmus.api.usage_routes import BY, USAGE
from isthmus.identity.audit.acts import MOST as AUDIT_FIELDS
from isthmus.identity.audit.audit_reading import MATCHED
from isthmus.resources.jobs import DIGEST_PATTERN
from isthmus.resources.kinds import JOB, Kind
from isthmus.resources.schemas.documents import Schema, structural_model

from .answers import OPEN_ERRORS, READ_ERRORS, WRITE_ERRORS, content, errors, ok, ref
from .operations import NAME, NAMESPACE, ApiParameter
from .resources import apart, parameter

Operations = Iterator[tuple[str, str, dict[str, Any]]]

_TAGS = {
    "logs": "The output of jobs, live and resumable.",
    "telemetry": "What is measured of jobs while they run.",
    "files": "Contents by their digest, and trees of them.",
    "outputs": "What jobs left behind.",
    "folders": "Files of jobs while they run.",
    "plans": "What if: where a job would go, when it would end, what it would cost.",
    "images": "Container images that sites keep.",
    "audit": "Who did what, and whether it was allowed.",
    "usage": "What runs used, and what it cost.",
    "agents": "Machines that join by themselves.",
    "reviews": "Who am I, and what may I do?",
    "discovery": "Which kinds there are.",
    "server": "Health, version and descriptions.",
}
_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_BYTES: Schema = {"type": "string", "format": "binary"}
_DIGEST: Schema = {"type": "string", "pattern": DIGEST_PATTERN}
_AMOUNT: Schema = {"type": "number", "minimum": 0}


_SUMS: dict[str, Schema] = {
    "runs": _COUNT,
    "running": _COUNT,
    **dict.fromkeys(("hours", "cpuHours", "usedCpuHours", "energyKwh", "cost"), _AMOUNT),
    "deviceHours": {"type": "object", "additionalProperties": _AMOUNT},
}


def tags() -> dict[str, str]:
    """What the operations are grouped by: the kinds, and the rest."""
    kinds = (view.kind for views in all_views().values() for view in views.values())
    return {**{kind.name: kind.description for kind in kinds}, **_TAGS}


def _object(required: tuple[str, ...] = (), **properties: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


SCHEMAS: Mapping[str, Schema] = {
    "Status": _object(
        ("kind", "apiVersion", "status", "code"),
        kind={"const": "Status"},
        apiVersion={"const": "v1"},
        metadata={"type": "object"},
        status={"enum": ["Success", "Failure"]},
        message=_TEXT,
        reason=_TEXT,
        code={"type": "integer"},
        details=_object(
            name=_TEXT,
            group=_TEXT,
            kind=_TEXT,
            uid=_TEXT,
            code=_TEXT,
            retryAfterSeconds=_COUNT,
            causes=_array(_object(("message",), reason=_TEXT, message=_TEXT, field=_TEXT)),
        ),
    ),
    "ListMeta": _object((), resourceVersion=_TEXT, remainingItemCount=_COUNT, **{"continue": _TEXT}),
    "WatchEvent": _object(
        ("type", "object"),
        type={"enum": ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]},
        object={"type": "object"},
    ),
    "DeleteOptions": _object(
        apiVersion={},
        kind={},
        gracePeriodSeconds={"description": "accepted, and not needed"},
        dryRun={"type": "array", "items": {"const": "All"}, "maxItems": 1},
        propagationPolicy={"enum": ["Background", "Foreground", "Orphan"]},
        preconditions=_object(
            uid={"type": ["string", "null"]}, resourceVersion={"type": ["string", "null"], "pattern": "^[0-9]{0,18}$"}
        ),
    ),
    "JsonPatch": _array(
        {
            **_object(("op", "path"), path=_TEXT, value={}, **{"from": _TEXT}),
            "properties": {
                "op": {"enum": ["add", "remove", "replace", "move", "copy", "test"]},
                "path": _TEXT,
                "from": _TEXT,
                "value": {},
            },
        }
    ),
    "Namespace": _object(
        ("apiVersion", "kind", "metadata"),
        apiVersion={"const": "v1"},
        kind={"const": "Namespace"},
        metadata=ref("ObjectMeta"),
        spec={"type": "object"},
        status=_object(phase={"enum": ["Active", "Terminating"]}),
    ),
    "Stored": _object(("stored", "bytes"), stored=_COUNT, bytes=_COUNT),
    "StoredTree": _object(("tree", "count", "bytes"), tree=_DIGEST, count=_COUNT, bytes=_COUNT),
    "Missing": _object(("missing",), missing=_array(_DIGEST)),
    "OutputList": _object(("files", "bytes"), files=_array(ref("TreeFile")), bytes=_COUNT),
    "FolderListing": _object(
        ("attempt", "complete", "files"),
        attempt=_COUNT,
        complete={"type": "boolean", "description": "false: there are more than are listed"},
        files=_array(
            _object(
                ("path", "kind", "size", "modified"),
                path=_TEXT,
                kind={"enum": ["File", "Link", "Other"]},
                size=_COUNT,
                modified={"type": "string", "format": "date-time"},
            )
        ),
    ),
    "JobMetrics": _object(
        ("kind", "apiVersion", "attempt", "over", "cursor", "reset", "series"),
        kind={"const": "JobMetrics"},
        apiVersion={"const": "isthmus.dev/v1"},
        metadata={"type": "object"},
        attempt=_COUNT,
        over={"type": "boolean", "description": "the run has ended and everything is here"},
        cursor={"type": "string", "description": "for since, to read on from here"},
        reset={"type": "boolean", "description": "everything from the start; otherwise what came after since"},
        series=_array(
            _object(
                ("name", "unit", "points"),
                name=_TEXT,
                unit=_TEXT,
                source=_TEXT,
                points=_array({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}),
            )
        ),
    ),
    "Review": _object((), apiVersion={}, kind={}, metadata={}, spec={"type": ["object", "null"]}),
    "ReviewAnswer": _object(
        ("apiVersion", "kind", "status"),
        apiVersion=_TEXT,
        kind=_TEXT,
        metadata={"type": "object"},
        spec={"type": "object"},
        status={"type": "object"},
    ),
    "Enrolment": structural_model(Enrolment),
    "Enrolled": _object(("kind", "site"), kind={"const": "Enrolment"}, site=_TEXT),
    "AgentList": _object(
        ("apiVersion", "kind", "items"),
        apiVersion=_TEXT,
        kind={"const": "AgentList"},
        items=_array(_object(("name", "state"), name=_TEXT, state=_TEXT)),
    ),
    "AgentPackages": _object(
        ("kind", "version", "build", "main", "others"),
        kind={"const": "AgentPackages"},
        version=_TEXT,
        build=_TEXT,
        platform=_TEXT,
        python=_TEXT,
        requirements=_array(_TEXT),
        main=ref("AgentPackage"),
        others=_array(ref("AgentPackage")),
    ),
    "AgentPackage": _object(("file", "sha256", "size"), file=_TEXT, sha256=_TEXT, size=_COUNT),
    "PlanQuestion": _object(
        ("spec",),
        apiVersion={},
        kind={},
        metadata={},
        spec=structural_model(PlanQuestion),
    ),
    "PlanAnswer": _object(
        ("apiVersion", "kind", "status"),
        apiVersion=_TEXT,
        kind=_TEXT,
        metadata={"type": "object"},
        spec={"type": "object"},
        status=ref("PlanStatus"),
    ),
    "ImageList": _object(
        ("items", "unavailable"),
        apiVersion=_TEXT,
        kind=_TEXT,
        unavailable=_array(_TEXT),
        items=_array(
            _object(
                ("site", "name", "digest", "bytes", "lastUsed", "private", "inUse"),
                site=_TEXT,
                name=_TEXT,
                digest=_TEXT,
                bytes=_COUNT,
                lastUsed=_TEXT,
                private={"type": "boolean"},
                inUse={"type": "boolean"},
                tenants=_array(_TEXT),
            )
        ),
    ),
    "AuditList": _object(
        ("items",),
        items=_array(
            _object(
                ("n", "time"),
                log=_TEXT,
                n=_COUNT,
                time=_TEXT,
                outcome={"type": "string", "enum": ["allowed", "refused", "failed"]},
                code=_COUNT,
                times=_COUNT,
                event=_TEXT,
                **dict.fromkeys(AUDIT_FIELDS, _TEXT),
            )
        ),
    ),
    "AuditLogList": _object(("items",), items=_array(_object(("name",), name=_TEXT, entries=_COUNT, hash=_TEXT))),
    "AuditText": _object(("text",), text=_TEXT, file=_COUNT, offset=_COUNT),
    "UsageList": _object(
        ("by", "items", "total"),
        by={"type": "string", "enum": list(BY)},
        since=_TEXT,
        until=_TEXT,
        items=_array(_object(("name", *_SUMS), name=_TEXT, **_SUMS)),
        total=_object(tuple(_SUMS), **_SUMS),
    ),
    "Discovery": _object(("kind",), kind=_TEXT, apiVersion=_TEXT),
    "SignInProviders": _object(
        ("items",),
        items={
            "type": "array",
            "items": _object(
                ("name", "issuer", "clientId", "scopes"),
                name=_TEXT,
                issuer=_TEXT,
                clientId=_TEXT,
                scopes={"type": "array", "items": _TEXT},
                authorities=_TEXT,
            ),
        },
    ),
    "Version": _object(("major", "minor", "gitVersion"), major=_TEXT, minor=_TEXT, gitVersion=_TEXT),
}


def operations_of_rest() -> Operations:
    """Path, method and operation of everything that is not a kind."""
    yield from _logs()
    yield from _telemetry()
    yield from _files()
    yield from _outputs()
    yield from _folders()
    yield from _plans()
    yield from _images()
    yield from _agents()
    yield from _audit()
    yield from _usage()
    yield from _reviews()
    yield from _discovery()
    yield from _server()


def _one(tag: str, id_: str, summary: str, parameters: tuple[ApiParameter, ...], responses: Any, **more: Any) -> Any:
    found = {"operationId": id_, "summary": summary, "tags": [tag], "responses": responses, **more}
    return found | {"parameters": [parameter(given) for given in parameters]} if parameters else found


def _logs() -> Operations:
    parameters = (
        NAMESPACE,
        NAME,
        ApiParameter("offset", "begin at this byte", "integer", minimum=0, maximum=2**62),
        ApiParameter(
            "tailLines",
            "begin so many lines before the end, and not before the offset",
            "integer",
            minimum=0,
            maximum=100_000,
        ),
        ApiParameter("limitBytes", "end after so many bytes", "integer", minimum=1, maximum=2**62),
        ApiParameter("stream", "which output", enum=("stdout", "stderr")),
        ApiParameter(
            "attempt", "which attempt, from 0; without it, the latest and, when following, those after it", "integer"
        ),
    )
    header = {"description": "Offset of the first byte sent.", "schema": _COUNT}
    attempt = {"description": "The try that the first byte belongs to.", "schema": _COUNT}
    headers = {"Isthmus-Log-Offset": header, "Isthmus-Log-Attempt": attempt}
    answer = ok("The bytes as they are, whatever their encoding.", _TEXT, "text/plain", headers)
    answer["content"] |= content(
        {"type": "string", "description": "Events with `id: attempt:offset` and JSON text; `event: end` at the end."},
        "text/event-stream",
    )
    responses = {"200": answer} | errors(READ_ERRORS)
    follow = ApiParameter("follow", "go on until the job has ended and everything was sent", "boolean")
    for kind, run in _runs():
        title = f"Read or follow the output of {_a(kind)}"
        found = _one("logs", f"read{kind.name}Log", title, (*parameters, *run), responses)
        yield path_of(kind, "log"), "get", found | apart(follow)


def _runs() -> Iterator[tuple[Kind, tuple[ApiParameter, ...]]]:
    """Every kind that has runs, and how one of them is named."""
    for kind in kinds_with_runs():
        named = ApiParameter(RUN, "name of the job whose run is meant; needed where there is more than one")
        yield kind, () if kind is JOB else (named,)


def _a(kind: Kind) -> str:
    return f"{'an' if kind.singular[0] in 'aeiou' else 'a'} {kind.singular}"


def _telemetry() -> Operations:
    parameters = (
        NAMESPACE,
        NAME,
        ApiParameter("since", "the cursor of an earlier answer; without it, or if it is not known here, everything"),
        ApiParameter("attempt", "which attempt, counted from 0; without it, the latest", "integer"),
    )
    found = ok("Points by series.", ref("JobMetrics"))
    found["content"] |= content(
        {"type": "string", "description": "Events with the cursor as id and JobMetrics as data; then `event: end`."},
        "text/event-stream",
    )
    follow = ApiParameter("follow", "go on until the run has ended and everything was sent", "boolean")
    responses = {"200": found} | errors(READ_ERRORS)
    for kind, run in _runs():
        summary = f"Read or follow what is measured of {_a(kind)}"
        reading = _one("telemetry", f"read{kind.name}Metrics", summary, (*parameters, *run), responses)
        yield path_of(kind, "metrics"), "get", reading | apart(follow)
    since = ApiParameter("since", "only points after this time, in seconds since 1970", "number")
    text = {"200": ok("Lines.", _TEXT, "text/plain")} | errors(READ_ERRORS)
    for base, where, name in ((TENANT, (NAMESPACE,), "Tenant"), (EVERYWHERE, (), "Platform")):
        summary = "The newest values of running jobs, for Prometheus"
        yield f"{base}/telemetry/prometheus", "get", _one("telemetry", f"scrape{name}", summary, where, text)
        summary = "Points of jobs in Influx line protocol"
        yield f"{base}/telemetry/influx", "get", _one("telemetry", f"export{name}", summary, (*where, since), text)


def _files() -> Operations:
    digest = ApiParameter("digest", "sha256: and 64 digits", place="path", pattern=DIGEST_PATTERN)
    where = (NAMESPACE,)
    binary = content(_BYTES, "application/octet-stream")
    body = {"required": True, "content": binary}
    pack = {"required": True, "content": binary | content(_BYTES, "application/x-tar")}
    asked = {"required": True, "content": content(ref("DigestsAsked"))}
    tree = {"required": True, "content": content(ref("Tree"))}
    stored = {"200": ok("Kept.", ref("Stored"))} | errors(WRITE_ERRORS)
    missing = {"200": ok("Those that are not here.", ref("Missing"))} | errors(WRITE_ERRORS)
    kept = {"200": ok("Kept.", ref("StoredTree"))} | errors(WRITE_ERRORS)
    summary = "Ask which contents are missing"
    yield f"{FILES}/missing", "post", _one("files", "missingFiles", summary, where, missing, requestBody=asked)
    summary = "Send many contents: a tar whose files are named by their digests"
    yield f"{FILES}/pack", "post", _one("files", "sendPack", summary, where, stored, requestBody=pack)
    summary = "Keep a tree whose contents are here"
    yield f"{FILES}/tree", "put", _one("files", "sendTree", summary, where, kept, requestBody=tree)
    both = (NAMESPACE, digest)
    path = f"{FILES}/{{digest}}"
    yield path, "put", _one("files", "sendFile", "Send one content", both, stored, requestBody=body)
    yield path, "get", _one("files", "readFile", "Read one content", both, _download())
    yield path, "head", _one("files", "headFile", "Ask for one content", both, _head())


def _download() -> dict[str, Any]:
    found = ok("The content.", _BYTES, "application/octet-stream")
    found["content"] |= content(_TEXT, "text/plain")
    part = {**found, "description": "A part of it."}
    return {"200": found, "206": part, "304": {"description": "The client has it."}} | errors((*READ_ERRORS, 416))


def _head() -> dict[str, Any]:
    codes = {code: {"description": "As for GET, without a body."} for code in ("200", "206", "304", "416")}
    return codes | errors(READ_ERRORS)


def _outputs() -> Operations:
    where = (NAMESPACE, NAME)
    archive = ApiParameter("archive", "all files as one archive", enum=("tar",))
    answer = ok("The list of files, or the archive.", ref("OutputList"))
    answer["content"] |= content(_BYTES, "application/x-tar")
    listed = {"200": answer} | errors(READ_ERRORS)
    path = ApiParameter("path", "path of the file; it may contain /", place="path", pattern="^.+$")
    for kind, run in _runs():
        of, which = "" if kind is JOB else f"Of{kind.name}", f" of {_a(kind)}"
        several = (*where, archive, *run)
        listing = _one("outputs", f"listOutputs{of}", f"List or archive outputs{which}", several, listed)
        yield path_of(kind, "outputs"), "get", listing
        at, one = path_of(kind, "outputs/{path}"), (*where, path, *run)
        yield at, "get", _one("outputs", f"readOutput{of}", f"Read one output{which}", one, _download())
        yield at, "head", _one("outputs", f"headOutput{of}", f"Ask for one output{which}", one, _head())


def _folders() -> Operations:
    where = (NAMESPACE, NAME)
    listed = {"200": ok("What is in its folder now.", ref("FolderListing"))} | errors((*READ_ERRORS, 409))
    content_now = {"200": ok("The file as it is now.", _BYTES, "application/octet-stream")}
    part = (
        ApiParameter("path", "path of the file; it may contain /", place="path", pattern="^.+$"),
        ApiParameter("offset", "begin at this byte", "integer", minimum=0, maximum=2**62),
        ApiParameter("limitBytes", "at most so many bytes", "integer", minimum=1, maximum=2**62),
    )
    for kind, run in _runs():
        of, which = "" if kind is JOB else f"Of{kind.name}", f" of {_a(kind)} while it runs"
        listing = _one("folders", f"listFiles{of}", f"List files{which}", (*where, *run), listed)
        yield path_of(kind, "files"), "get", listing
        responses = content_now | errors((*READ_ERRORS, 409, 413))
        one = _one("folders", f"readWorkingFile{of}", f"Read one file{which}", (*where, *part, *run), responses)
        yield path_of(kind, "files/{path}"), "get", one


def _plans() -> Operations:
    responses = {"201": ok("The plan, in its status.", ref("PlanAnswer"))} | errors(WRITE_ERRORS)
    body = {"required": True, "content": content(ref("PlanQuestion"))}
    summary = "Ask what would become of a job, or of another deadline; nothing changes"
    yield PLANS, "post", _one("plans", "createPlan", summary, (NAMESPACE,), responses, requestBody=body)


def _images() -> Operations:
    listed = {"200": ok("The images, and the sites that could not be asked.", ref("ImageList"))} | errors(READ_ERRORS)
    removed = {"200": ok("It is removed.", ref("Status"))} | errors((*READ_ERRORS, 409))
    which = (
        ApiParameter("site", "where it is kept; must be given"),
        ApiParameter("digest", "of the image; must be given"),
    )
    for path, of, where in ((IMAGES, "", (NAMESPACE,)), (ALL_IMAGES, "Everywhere", ())):
        yield path, "get", _one("images", f"listImages{of}", "List container images that sites keep", where, listed)
        summary = "Remove a container image from a site"
        yield path, "delete", _one("images", f"removeImage{of}", summary, (*where, *which), removed)


def _agents() -> Operations:
    responses = {"200": ok("All of them, as they are now.", ref("AgentList"))} | errors(READ_ERRORS)
    yield AGENTS, "get", _one("agents", "listAgents", "List the agents; for administrators", (), responses)
    responses = {"200": ok("The site that the machine is now.", ref("Enrolled"))} | errors(WRITE_ERRORS)
    body = {"required": True, "content": content(ref("Enrolment"))}
    summary = "Join: exchange an invitation for the right of a key"
    yield ENROL, "post", _one("agents", "enrolAgent", summary, (), responses, requestBody=body, security=[])
    script = {"200": ok("A program in Python.", _TEXT, "text/x-python")} | errors(OPEN_ERRORS)
    yield INSTALLER, "get", _one("agents", "getAgentInstaller", "What installs an agent", (), script, security=[])
    invited = ApiParameter(HEADER, "an invitation that is good", place="header")
    responses = {"200": ok("What there is.", ref("AgentPackages"))} | errors(READ_ERRORS)
    summary = "What a machine installs that joins"
    yield WHEELS, "get", _one("agents", "listAgentPackages", summary, (invited,), responses, security=[])
    responses = {"200": ok("A wheel.", _BYTES, "application/zip")} | errors(READ_ERRORS)
    file = ApiParameter("name", "as it is listed", place="path")
    yield WHEEL, "get", _one("agents", "getAgentPackage", "One package", (invited, file), responses, security=[])


def _audit() -> Operations:
    which = [ApiParameter(name, f"only entries with this {name}") for name in MATCHED]
    which += [ApiParameter(name, f"only entries {name} this time") for name in ("since", "until")]
    which.append(ApiParameter("limit", "at most so many, the newest", "integer", minimum=1))
    found = {"200": ok("The newest that fit, the oldest of them first.", ref("AuditList"))} | errors(READ_ERRORS)
    yield AUDIT, "get", _one("audit", "listAudit", "Who did what; for administrators", tuple(which), found)
    found = {"200": ok("The logs, with how far the store knows of.", ref("AuditLogList"))} | errors(READ_ERRORS)
    yield AUDIT_LOGS, "get", _one("audit", "listAuditLogs", "List the audit logs of all replicas", (), found)
    where = (
        NAME,
        ApiParameter("file", "the file that begins with this entry", "integer", minimum=0),
        ApiParameter("offset", "bytes of it to leave out", "integer", minimum=0),
    )
    found = {"200": ok("Lines, and where to go on; no text: that was all.", ref("AuditText"))} | errors(READ_ERRORS)
    yield f"{AUDIT_LOGS}/{{name}}", "get", _one("audit", "readAuditLog", "The text of an audit log", where, found)


def _usage() -> Operations:
    which = (
        ApiParameter("by", "what the sums are of", enum=BY),
        ApiParameter("namespace", "only of this tenant; without it, of all that the caller may see"),
        ApiParameter("since", "only runs that ended on this day or later"),
        ApiParameter("until", "only runs that ended on this day or before"),
    )
    found = {"200": ok("The sums, and their total.", ref("UsageList"))} | errors(READ_ERRORS)
    yield USAGE, "get", _one("usage", "listUsage", "What runs used, and what it cost", which, found)


def _reviews() -> Operations:
    for group, plural in (
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
    ):
        responses = {"201": ok("The answer, in its status.", ref("ReviewAnswer"))} | errors(WRITE_ERRORS)
        body = {"required": True, "content": content(ref("Review"))}
        path = f"/apis/{group}/v1/{plural}"
        yield path, "post", _one("reviews", f"create{plural}", "Ask", (), responses, requestBody=body)


def _discovery() -> Operations:
    groups = {group for group, _ in all_views() if group} | {"authorization.k8s.io", "authentication.k8s.io"}
    paths = ["/api", "/api/v1", "/apis", *(f"/apis/{g}{v}" for g in sorted(groups) for v in ("", "/v1"))]
    for path in paths:
        name = "discover" + "".join(part.capitalize() for part in path.replace(".", "/").split("/"))
        responses = {"200": ok("What there is.", ref("Discovery"))} | errors(READ_ERRORS)
        yield path, "get", _one("discovery", name, "Which kinds there are", (), responses)


def _server() -> Operations:
    for path in ("/healthz", "/livez", "/readyz"):
        responses = {"200": ok("It works.", _TEXT, "text/plain")} | errors(OPEN_ERRORS)
        yield path, "get", _one("server", path[1:], "Health", (), responses, security=[])
    responses = {"200": ok("Which version.", ref("Version"))} | errors(OPEN_ERRORS)
    yield "/version", "get", _one("server", "version", "Version", (), responses, security=[])
    responses = {"200": ok("Providers.", ref("SignInProviders"))} | errors(OPEN_ERRORS)
    yield PROVIDERS, "get", _one("server", "signInProviders", "Whose people may sign in", (), responses, security=[])
    metrics = {"200": ok("Prometheus' text form.", _TEXT, "text/plain")} | errors(READ_ERRORS)
    yield "/metrics", "get", _one("server", "metrics", "What the server measures of itself", (), metrics)
    paths = ["/openapi.json", "/openapi/v2", "/openapi/v3"]
    paths += [f"/openapi/v3/{'apis/' + group if group else 'api'}/{version}" for group, version in all_views()]
    for path in paths:
        name = "describe" + "".join(part.capitalize() for part in path.replace(".", "/").split("/"))
        found = {"200": ok("An OpenAPI document.", {"type": "object"}), "304": {"description": "The client has it."}}
        responses = found | errors((*OPEN_ERRORS, 406))
        yield path, "get", _one("server", name, "A description of the API", (), responses, security=[])
