"""The console over HTTP: who gets in, what forms need, what tenants see of each other, what hostile words become."""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import EVENT, EXPERIMENT, JOB, SITE, TENANT, TOKEN
from isthmus.resources.work.trees import Tree, TreeFile
from isthmus.store.base import Key, Part
from isthmus.testing.apis import RunningApi, running_api

from .conftest import Person, code_in

pytestmark = pytest.mark.anyio
PAGES = ["/", "/jobs", "/jobs/physics/a", "/experiments", "/submit", "/submit?mode=manifest", "/sites", "/tenants"]
PAGES += ["/tenants/physics", "/nothing"]
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'{{7*7}}"


async def test_strangers_are_asked_to_sign_in(api: RunningApi) -> None:
    person = Person(api)
    answer = await person.http.get("/console/jobs?q=x")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/sign-in?next=%2Fconsole%2Fjobs%3Fq%3Dx")
    for method, path in (("POST", "/console/submit"), ("POST", "/console/jobs/physics/a/cancel")):
        assert (await person.http.request(method, path)).status_code == 401
    assert (await person.http.get("/", headers={"Accept": "text/html"})).headers["location"] == "/console/"
    await person.http.aclose()


async def test_signing_in_sets_a_cookie_that_no_script_reads(api: RunningApi) -> None:
    person = Person(api)
    answer = await person.sign_in("member")
    assert answer.headers["location"] == "/console/"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert api.tokens["member"] not in cookie
    assert "member" in await person.see("/")
    api_answer = await person.http.get("/apis/isthmus.dev/v1/namespaces/physics/jobs")
    assert api_answer.status_code == 401, "the cookie opens the console only"
    await person.send("/sign-out")
    assert (await person.http.get("/console/")).status_code == 303
    await person.http.aclose()


async def test_over_tls_the_cookie_never_leaves_it(tmp_path: Path) -> None:
    async with running_api(tmp_path, tls=True) as api:
        person = Person(api, verify=False)
        answer = await person.sign_in("member")
        assert answer.headers["set-cookie"].startswith("__Host-isthmus-session-")
        assert "Secure" in answer.headers["set-cookie"]
        await person.http.aclose()


@pytest.mark.parametrize("token", ["", "nonsense", "ist_a_b", "ist_ü_b"])
async def test_a_wrong_token_is_told(api: RunningApi, token: str) -> None:
    person = Person(api)
    answer = await person.sign_in_with(token)
    assert answer.status_code == 422
    assert "does not sign anybody in" in answer.text
    assert "session" not in answer.headers.get("set-cookie", "")
    await person.http.aclose()


async def test_signing_in_needs_the_form_of_this_browser(api: RunningApi) -> None:
    person, other = Person(api), Person(api)
    code = code_in((await other.http.get("/console/sign-in")).text)
    for data in ({}, {"csrf": code}):
        answer = await person.http.post("/console/sign-in", data={"token": api.tokens["member"], **data})
        assert answer.status_code == 403
    for one in (person, other):
        await one.http.aclose()


async def test_every_form_needs_its_code(api: RunningApi, person: Person) -> None:
    await api.create_job("a", phase="Running")
    other = Person(api)
    await other.sign_in("member")
    path = "/console/jobs/physics/a/cancel"
    mine, theirs = {"csrf": person.code}, {"csrf": other.code}
    refused: list[tuple[dict[str, str], dict[str, str]]] = [
        ({}, {}),
        (theirs, {}),
        (mine, {"Origin": "http://evil.example"}),
        (mine, {"Origin": "null"}),
        (mine, {"Sec-Fetch-Site": "cross-site"}),
        (mine, {"Sec-Fetch-Site": "same-site"}),
    ]
    for data, headers in refused:
        assert (await person.http.post(path, data=data, headers=headers)).status_code == 403
    record = await api.context.store.get(Key("Job", "physics", "a"))
    assert record.obj["spec"]["intent"] == "Run"
    answer = await person.http.post(path, data=mine, headers={"Origin": api.url, "Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 303
    record = await api.context.store.get(Key("Job", "physics", "a"))
    assert record.obj["spec"]["intent"] == "Cancel"
    await other.http.aclose()


async def test_no_page_permits_or_has_anything_inline(api: RunningApi) -> None:
    await api.create_job("a", {"array": None}, phase="Running")
    person = Person(api)
    await person.sign_in("admin")
    for path in [*PAGES, "/sign-in", "/tenants/isthmus-system"]:
        answer = await person.http.get(f"/console{path}")
        assert answer.status_code in (200, 404), path
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "*" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|\son[a-z]+=|javascript:", answer.text), path
        foreign = re.findall(r'(?:src|href|action)="(?!/|#|\?)[^"]*"', answer.text)
        assert foreign == [], "nothing comes from elsewhere"
    await person.http.aclose()


async def test_a_tenant_sees_nothing_of_another(api: RunningApi) -> None:
    await api.create_job("secret-job", phase="Failed", message="secret-message", site="here")
    stranger = Person(api)
    await stranger.sign_in("stranger")
    for path in ("/", "/jobs", "/jobs?q=secret", "/experiments", "/tenants", "/sites", "/submit"):
        text = await stranger.see(path)
        assert "secret" not in text.replace('value="secret"', "").replace("q=secret", ""), path
        assert "physics" not in text, path
    for path in ("", "/log", "/files/x", "/archive", "/metrics"):
        reported = await stranger.see(f"/jobs/physics/secret-job{path}", 403)
        assert reported.replace("secret-job", "") == (
            await stranger.see(f"/jobs/physics/other-name{path}", 403)
        ).replace("other-name", ""), "nor whether it exists"
    await stranger.see("/tenants/physics", 403)
    await stranger.see("/jobs?tenant=physics", 403)
    await stranger.see("/submit?copy=physics/secret-job", 403)
    for topic in ("jobs/physics", "jobs/physics/secret-job", "tokens/physics", "tenants/physics"):
        answer = await stranger.http.get("/console/live", params={"on": topic})
        assert answer.status_code == 403
    for action in ("cancel", "again", "delete", "hold"):
        assert (await stranger.send(f"/jobs/physics/secret-job/{action}")).status_code == 403
    assert (await stranger.send("/tenants/physics/tokens", **{"spec.user": "x"})).status_code in (403, 422)
    assert (await api.context.store.get(Key("Job", "physics", "secret-job"))).obj["spec"]["intent"] == "Run"
    await stranger.http.aclose()


async def test_viewers_are_offered_no_actions(api: RunningApi) -> None:
    await api.create_job("a", phase="Running")
    viewer = Person(api)
    await viewer.sign_in("viewer")
    text = await viewer.see("/jobs/physics/a")
    assert "/cancel" not in text
    assert (await viewer.send("/jobs/physics/a/cancel")).status_code == 403
    assert "You may view, but not submit" in await viewer.see("/submit")
    await viewer.http.aclose()


async def test_what_a_site_has_is_counted_in_one_way(api: RunningApi, person: Person) -> None:
    capacity = {"cpus": 4, "memoryBytes": 2**30, "devices": {"akida": 2}}
    status = {"phase": "Ready", "capacity": capacity, "others": {"cpus": 1}}
    obj = {"metadata": {"name": "here"}, "spec": {"driver": "local", "local": {}}, "status": status}
    await api.context.store.create(SITE, validate(SITE, obj))
    resources = {"cpus": 2, "memory": "256Mi", "devices": [{"class": "akida"}]}
    await api.create_job("a", {"command": ["true"], "resources": resources}, phase="Running", site="here")
    for path in ("/", "/sites", "/sites/here"):
        text = await person.see(path)
        free = ["1 of 4 free", "768 MiB of 1 GiB free", "1 of 2 free"]
        assert re.findall(r"<span>([^<]* of [^<]*)</span>", text) == free, path
        assert "1 CPU is used by other work" in text, path


async def test_hostile_words_stay_words(api: RunningApi, person: Person) -> None:
    digest = "sha256:" + "0" * 64
    tree = Tree(files=[TreeFile(path=f"{HOSTILE}.txt", digest=digest, size=0)])
    kept = await api.blobs.put_tree("physics", tree)
    outputs = {"tree": kept, "bytes": 0, "count": 1}
    spec = {"command": ["echo", HOSTILE], "env": [{"name": "A", "value": HOSTILE}]}
    await api.create_job("a", spec, phase="Failed", message=HOSTILE, reason=HOSTILE, site=HOSTILE, outputs=outputs)
    event = {
        "metadata": {"name": "e", "namespace": "physics"},
        "involvedObject": {"kind": "Job", "name": "a", "namespace": "physics"},
        "message": HOSTILE,
        "reason": HOSTILE,
    }
    await api.context.store.create(EVENT, event)
    for path in (
        "/",
        "/jobs",
        "/jobs/physics/a",
        "/submit?copy=physics/a",
        "/jobs?q=" + HOSTILE,
        "/nothing/" + HOSTILE,
    ):
        text = (await person.http.get(f"/console{path}")).text
        assert "<script>alert" not in text, path
        assert "<img src=x" not in text, path
        assert "{{7*7}}" in text or "q=" in path or "nothing" in path, path
    for key in ("spec.script", "metadata.name", "spec.env"):
        text = (await person.send("/submit", mode="form", what="script", **{key: HOSTILE})).text
        assert "<script>alert" not in text
        assert "<img src=x" not in text


async def test_files_are_shown_as_text_or_pictures_never_as_pages(api: RunningApi, person: Person) -> None:
    async def content(data: bytes) -> TreeFile:
        digest = "sha256:" + hashlib.sha256(data).hexdigest()

        async def chunks() -> Any:
            yield data

        await api.blobs.put("physics", digest, chunks())
        return TreeFile(path="x", digest=digest, size=len(data))

    page, svg = await content(b"<script>alert(1)</script>"), await content(b"<svg onload='alert(1)'/>")
    files = [page.model_copy(update={"path": "p.html"}), svg.model_copy(update={"path": "p.svg"})]
    kept = await api.blobs.put_tree("physics", Tree(files=files))
    await api.create_job("a", phase="Succeeded", outputs={"tree": kept, "bytes": 9, "count": 2})
    shown = await person.http.get("/console/jobs/physics/a/files/p.html")
    assert "&lt;script&gt;alert(1)" in shown.text
    raw = await person.http.get("/console/jobs/physics/a/files/p.html?raw=1")
    assert raw.headers["content-type"].startswith("text/html"), "the console's own page around it"
    assert "&lt;script&gt;alert(1)" in raw.text
    picture = await person.http.get("/console/jobs/physics/a/files/p.svg?raw=1")
    assert picture.headers["content-type"].startswith("image/svg")
    assert picture.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    download = await person.http.get("/console/jobs/physics/a/download/p.html")
    assert download.headers["content-disposition"].startswith("attachment")
    assert download.headers["content-type"] == "application/octet-stream"
    assert (await person.http.get("/console/jobs/physics/a/archive")).content.count(b"p.html") >= 1
    await person.see("/jobs/physics/a/files/none", 404)


async def test_a_revoked_token_ends_session_and_stream(api: RunningApi, person: Person) -> None:
    async with person.http.stream("GET", "/console/live?on=jobs", headers={"Accept": "text/event-stream"}) as stream:
        lines = stream.aiter_lines()
        assert "event: ready" in [await anext(lines), await anext(lines)]
        await api.create_job("a")
        async with asyncio.timeout(30):
            while "changed" not in await anext(lines):
                pass
        name = api.tokens["member"].split("_")[1]
        token = (await api.context.store.get(Key(TOKEN.name, "physics", name))).obj
        await api.context.store.update(TOKEN, {**token, "spec": {**token["spec"], "revoked": True}})
        async with asyncio.timeout(30):
            async for _ in lines:
                pass
    answer = await person.http.get("/console/jobs")
    assert answer.headers["location"].startswith("/console/sign-in")


async def test_a_link_signs_in_once(api: RunningApi) -> None:
    async with api.client("member") as program:
        made = (await program.post("/console/tickets")).json()["path"]
        assert (await program.post("/console/tickets", headers={"Authorization": "Bearer ist_a_b"})).status_code == 401
    for attempt in ("first", "second"):
        person = Person(api)
        text = (await person.http.get(made)).text
        if attempt == "first":
            assert "Sign in as member" in text
            ticket = made.partition("ticket=")[2]
            assert (await person.http.post("/console/enter", data={"ticket": ticket})).status_code == 403
            answer = await person.http.post("/console/enter", data={"ticket": ticket, "csrf": code_in(text)})
            assert answer.headers["location"] == "/console/"
            await person.see("/jobs")
        else:
            assert "was used" in text
        await person.http.aclose()


async def test_the_list_is_cut_into_pages(api: RunningApi, person: Person) -> None:
    for number in range(70):
        await api.create_job(f"job-{number:03}", {"priority": number})
    first = await person.see("/jobs")
    assert first.count("data-row") == 50
    older = re.search(r'rel="next" href="([^"]+)"', first)
    assert older
    second = await person.see(f"/jobs{older[1]}")
    assert second.count("data-row") == 20
    names = re.findall(r"data-row>(job-\d+)", first + second)
    assert sorted(names) == [f"job-{number:03}" for number in range(70)]
    found = await person.see("/jobs?q=job-01")
    assert found.count("data-row") == 10
    assert "No jobs match" in await person.see("/jobs?state=failed")
    assert "cannot read" in await person.see("/jobs?labels=a%3D%3D%3Db", 422)
    assert "No jobs match" in await person.see("/jobs?before=nonsense&q=zzz")


async def test_submitting(api: RunningApi, person: Person) -> None:
    answer = await person.send(
        "/submit", mode="form", what="command", **{"spec.command": "echo hi", "metadata.namespace": "physics"}
    )
    assert answer.status_code == 303
    page = await person.see(answer.headers["location"].removeprefix("/console"))
    assert "echo" in page
    bad = {"spec.resources.memory": "lots", "metadata.name": "A B", "metadata.namespace": "physics"}
    wrong = await person.send("/submit", mode="form", what="command", **{"spec.command": "echo hi"}, **bad)
    assert wrong.status_code == 422
    assert re.search(r'data-problem="metadata.name">[^<]+not a name', wrong.text)
    assert re.search(r'data-problem="spec.resources.memory">[^<]+', wrong.text)
    assert 'value="lots"' in wrong.text, "nothing typed is lost"
    reported = (await person.send("/submit/manifest", what="script", **{"spec.priority": "high"})).json()
    assert list(reported["problems"]) == ["spec.priority"]
    for text, said in (("a: [", "not YAML"), ("- 1", "must be one object"), ("kind: Site", "Job or Experiment")):
        answer = await person.send("/submit", mode="manifest", manifest=text)
        assert answer.status_code == 422
        assert said in answer.text
    manifest = "kind: Job\nmetadata: {name: typed, namespace: physics}\nspec: {command: ['true']}\n"
    answer = await person.send("/submit", mode="manifest", manifest=manifest)
    assert answer.headers["location"] == "/console/jobs/physics/typed"
    foreign = await person.send("/submit", mode="manifest", manifest=manifest.replace("physics", "biology"))
    assert foreign.status_code == 422
    assert "forbidden" in foreign.text


async def test_what_can_be_done_with_a_job(api: RunningApi, person: Person) -> None:
    await api.create_job("old", {"command": ["echo", "x"]}, phase="Succeeded")
    answer = await person.send("/jobs/physics/old/again")
    name = answer.headers["location"].rpartition("/")[2]
    copy = await api.context.store.get(Key("Job", "physics", name))
    assert copy.obj["spec"]["command"] == ["echo", "x"]
    await person.send(f"/jobs/physics/{name}/hold")
    assert "Held" in await person.see(f"/jobs/physics/{name}")
    await person.send("/jobs/physics/old/delete")
    assert 'href="/console/jobs">Search all jobs</a>' in await person.see("/jobs/physics/old", 404)
    assert (await person.send("/jobs/physics/a/explode")).status_code == 404


async def test_the_log_comes_through(api: RunningApi, person: Person) -> None:
    record = await api.create_job("a", phase="Succeeded", exitCode=0)
    api.logs.write(record.uid, b"line\n<b>not bold</b>\n")
    answer = await person.http.get("/console/jobs/physics/a/log")
    assert answer.content == b"line\n<b>not bold</b>\n"
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["x-content-type-options"] == "nosniff"
    events = {"Accept": "text/event-stream", "Last-Event-ID": "0:5"}
    reported = (await person.http.get("/console/jobs/physics/a/log?follow=true", headers=events)).text
    assert "line" not in reported
    assert "not bold" in reported
    assert "event: end" in reported


async def test_tenants_and_tokens(api: RunningApi) -> None:
    admin = Person(api)
    await admin.sign_in("admin")
    made = await admin.send("/tenants", **{"metadata.name": "chemistry", "spec.description": "salts"})
    assert made.headers["location"] == "/console/tenants/chemistry"
    wrong = await admin.send("/tenants", **{"metadata.name": "Not Good"})
    assert wrong.status_code == 422
    assert re.search(r'data-problem="metadata.name">[^<]+', wrong.text)
    await admin.send("/tenants/chemistry/add-member", **{"spec.user": "ada", "spec.role": "admin"})
    assert "ada" in await admin.see("/tenants/chemistry")
    answer = await admin.send(
        "/tenants/chemistry/tokens", **{"spec.user": "eve", "spec.role": "viewer", "spec.expiresAt": "1d"}
    )
    secret = re.search(r'id="secret"[^>]*>(ist_[^<]+)<', answer.text)
    assert secret
    assert secret[1] not in await admin.see("/tenants/chemistry"), "shown once"
    eve = Person(api)
    await eve.sign_in_with(secret[1])
    assert "chemistry" in await eve.see("/tenants")
    assert "Create a token" not in await eve.see("/tenants/chemistry")
    await admin.send(f"/tenants/chemistry/tokens/{secret[1].split('_')[1]}/revoke")
    assert (await eve.http.get("/console/jobs")).status_code == 303
    await admin.send("/tenants/chemistry/suspend")
    assert "Resume" in await admin.see("/tenants/chemistry")
    bad = await admin.send(
        "/tenants/chemistry/tokens", **{"spec.user": "x", "spec.role": "viewer", "spec.expiresAt": "soon"}
    )
    assert bad.status_code == 422
    for person in (admin, eve):
        await person.http.aclose()


async def test_no_path_leads_out_of_the_static_files(person: Person) -> None:
    text = await person.see("/jobs")
    script = re.search(r'src="(/console/static/\w+/console.js)"', text)
    assert script
    answer = await person.http.get(script[1])
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "immutable" in answer.headers["cache-control"]
    for path in ("../app.py", "%2e%2e/app.py", "..%2fapp.py", "/etc/passwd", ""):
        raw = httpx.URL(f"{person.api.url}/console/static/x/{path}")
        assert (await person.http.get(raw)).status_code == 404


async def test_files_are_taken_from_the_console_only(api: RunningApi, person: Person) -> None:
    asked = {"paths": ["a", ".git/x", "b.o", "keep.o"], "ignore": {".gitignore": "*.o\n!keep.o\n"}}
    path = "/console/submit/files/physics"
    answer = await person.http.post(f"{path}/choose", json=asked, headers={"X-Csrf": person.code})
    assert answer.json() == {"send": ["a", "keep.o"], "leftOut": [".git/", "b.o"]}
    for wrong in ("[]", '{"paths": [1], "ignore": {}}', "nonsense"):
        answer = await person.http.post(f"{path}/choose", content=wrong, headers={"X-Csrf": person.code})
        assert answer.status_code == 422
    for method, what in (("POST", "choose"), ("POST", "missing"), ("POST", "pack"), ("PUT", "tree")):
        url = f"{path}/{what}"
        assert (await person.http.request(method, url, json=asked)).status_code == 403, "no code"
        foreign = {"X-Csrf": person.code, "Origin": "https://elsewhere.example"}
        assert (await person.http.request(method, url, json=asked, headers=foreign)).status_code == 403
        others = url.replace("physics", "chemistry")
        answer = await person.http.request(method, others, json=asked, headers={"X-Csrf": person.code})
        assert answer.status_code == 403, "another tenant"


async def test_experiments_come_in_pages_and_are_found_by_name(api: RunningApi, person: Person) -> None:
    spec = {"template": {"command": ["true"]}, "matrix": {"devices": ["cpu"]}}
    for number in range(55):
        obj = {"kind": "Experiment", "metadata": {"name": f"exp-{number:02}", "namespace": "physics"}, "spec": spec}
        await api.context.store.create(EXPERIMENT, validate(EXPERIMENT, obj))
    first = await person.see("/experiments")
    shown = re.findall(r"/experiments/physics/(exp-\d\d)", first)
    assert len(shown) == 50
    older = re.search(r'rel="next" href="\?([^"]+)"', first)
    assert older
    rest = re.findall(r"/experiments/physics/(exp-\d\d)", await person.see(f"/experiments?{older[1]}"))
    assert sorted([*shown, *rest]) == [f"exp-{number:02}" for number in range(55)]
    assert re.findall(r"/experiments/physics/(exp-\d\d)", await person.see("/experiments?q=P-07")) == ["exp-07"]
    assert "No experiments match" in await person.see("/experiments?q=nothing")
    other = Person(api)
    await other.sign_in("stranger")
    assert "exp-" not in await other.see("/experiments")
    await other.http.aclose()


async def test_what_a_person_cannot_see_from_the_phase_is_said_beside_it(api: RunningApi, person: Person) -> None:
    store = api.context.store
    spec = {"template": {"command": ["true"]}, "matrix": {"devices": ["cpu"]}}
    obj = {"kind": "Experiment", "metadata": {"name": "half", "namespace": "physics"}, "spec": spec}
    made = (await store.create(EXPERIMENT, validate(EXPERIMENT, obj))).obj
    status = {"phase": "Succeeded", "message": "1 of 2 runs failed", "runs": {"total": 2, "succeeded": 1, "failed": 1}}
    await store.update(EXPERIMENT, {**made, "status": status}, Part.STATUS)
    job = {"kind": "Job", "metadata": {"name": "stuck", "namespace": "physics"}, "spec": {"command": ["true"]}}
    made = (await store.create(JOB, validate(JOB, job))).obj
    status = {"phase": "Placed", "site": "edge", "message": "waits for site edge: its registry does not answer"}
    await store.update(JOB, {**made, "status": status}, Part.STATUS)
    assert "1 of 2 runs failed" in await person.see("/experiments")
    for path in ("/", "/jobs"):
        assert "its registry does not answer" in await person.see(path)
    assert "1 of 2 runs failed" in await person.see("/jobs")


async def test_a_tenant_shows_what_its_work_takes_on_disk(api: RunningApi) -> None:
    made = (await api.context.store.get(Key("Tenant", "", "physics"))).obj
    status = {**(made.get("status") or {}), "storage": {"filesBytes": 3 * 2**20, "logsBytes": 2**20}}
    await api.context.store.update(TENANT, {**made, "status": status}, Part.STATUS)
    admin = Person(api)
    await admin.sign_in("admin")
    assert "4 MiB (files and outputs 3 MiB, logs 1 MiB" in await admin.see("/tenants/physics")
    assert "isthmus apply -f experiment.yaml" in await admin.see("/submit?kind=Experiment")
    assert "No device classes yet" in await admin.see("/deviceclasses")
    await admin.http.aclose()
