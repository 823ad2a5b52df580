"""The console in a real browser, with a real control plane and real jobs behind it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from isthmus.resources.tokens import new_secret
from isthmus.testing.browsers import new_page, signed_in
from isthmus.testing.servers import GROUP, ServerProcess, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
RULES = "axe.run({resultTypes: ['violations']})"
DRAWN = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v) => v > 0)"
HOSTILE = '<img src=x onerror="document.title=`owned`"><script>document.title=`owned`</script>'


@pytest.fixture(scope="module")
def admin(server: ServerProcess, browser: Browser) -> Page:
    return signed_in(browser, server.url, server.token, viewport={"width": 1280, "height": 900})


@pytest.fixture(scope="module")
def experiment(server: ServerProcess) -> str:
    """A comparison that has ended."""
    script = "import os, json\nn = int(os.environ['PARAM_n'])\nsum(range(n))\nprint('isthmus:', json.dumps({'n': n}))\n"
    spec = {
        "template": {"script": f"#!/usr/bin/env python3\n{script}", "resources": {"cpus": "500m"}},
        "matrix": {"devices": ["cpu"]},
        "parameters": [{"name": "n", "values": [1000, 2000000]}],
        "repetitions": 2,
    }
    body = {"apiVersion": "isthmus.dev/v1", "kind": "Experiment", "metadata": {"name": "sizes"}, "spec": spec}
    path = f"{GROUP}/namespaces/default/experiments"
    server.request(path, body)
    eventually(lambda: server.request(f"{path}/sizes")["status"]["phase"] == "Succeeded", timeout=90)
    return "/console/experiments/default/sizes"


@pytest.fixture(scope="module")
def plain(server: ServerProcess) -> str:
    """A job that has ended, with a log and a file; and an array."""
    server.submit("plain", "sh", "-c", "echo hello; echo 1 > a.csv", outputs=["*.csv"])
    server.submit("many", "true", array={"indices": "0-3"})
    server.finished("many")
    server.finished("plain")
    return "/jobs/default/plain"


def reach(place: Locator, true: str, what: str) -> None:
    """Wait until something holds of an element; pages draw and scroll when they have the time."""
    found = place.page.wait_for_function(f"e => ({true})(e)", arg=place.element_handle())
    assert found.json_value(), what


def test_a_newcomer_goes_from_sign_in_to_result(server: ServerProcess, browser: Browser) -> None:
    page = signed_in(browser, server.url, server.token, viewport={"width": 1280, "height": 900})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.get_by_role("link", name="Submit", exact=True).click()
    page.get_by_role("textbox", name="Script").fill(
        "#!/bin/sh\nmkdir out\nfor i in 1 2 3; do echo step $i; done\n"
        "while [ ! -e go ]; do sleep 0.1; [ $((n=n+1)) -gt 30 ] && touch go; done\necho 7 > out/answer.csv\necho done\n"
    )
    page.get_by_label("Name", exact=True).fill("Not A Name")
    page.get_by_text("is not a name").wait_for()
    page.get_by_label("Name", exact=True).fill("first")
    page.get_by_label("Output files to keep").fill("out/*.csv")
    page.locator("#preview").get_by_text("name: first").wait_for()
    page.locator("#preview").get_by_text("out/*.csv").wait_for()
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/jobs/default/first")
    log = page.get_by_role("region", name="Output of the job")
    log.get_by_text("step 3").wait_for()
    page.locator("#log-state").get_by_text("complete (succeeded)").wait_for()
    assert "done" in log.inner_text()
    page.locator(".head .phase[data-phase=Succeeded]").wait_for()
    page.get_by_role("link", name="out/answer.csv", exact=True).click()
    page.get_by_role("region", name="Content of out/answer.csv").get_by_text("7").wait_for()
    page.go_back()
    page.get_by_role("button", name="Run again").click()
    page.wait_for_url(re.compile(r"/jobs/default/first-\w+$"))
    assert problems == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a program and data, and with things that nobody sends."""
    top = tmp_path / "project"
    for path, text in {
        "sum.py": "import pathlib\ntotal = sum(map(int, pathlib.Path('data/n.txt').read_text().split()))\n"
        "pathlib.Path('total.txt').write_text(f'{total} in all')\n",
        "run.sh": "#!/bin/sh\nexec python3 sum.py\n",
        "data/n.txt": "1 2 39\n",
        "data/.gitignore": "*.tmp\n",
        "data/x.tmp": "1",
        ".gitignore": "secret*\nbuild/\n",
        "secret.txt": "hush",
        "build/a.o": "x",
        "__pycache__/sum.pyc": "x",
        ".git/config": "x",
    }.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(text)
    return top


def test_a_folder_is_sent_from_the_browser(server: ServerProcess, admin: Page, folder: Path) -> None:
    admin.goto("/console/submit")
    box = admin.get_by_role("group", name="Input files")
    box.get_by_label("Choose a folder").set_input_files(folder)
    box.get_by_text("5 files, ").and_(box.get_by_text("uploaded")).wait_for()
    box.get_by_text("5 files, 5 excluded").click()
    assert box.locator("[data-left-out]").inner_text().split("\n")[1:] == [
        ".git/", "__pycache__/", "build/", "data/x.tmp", "secret.txt"
    ]  # fmt: skip
    admin.locator("#preview").get_by_text("tree: sha256:").wait_for()
    admin.get_by_role("radio", name="Command").check()
    admin.get_by_role("textbox", name="Command").fill("./run.sh")
    admin.get_by_label("Name", exact=True).fill("with-folder")
    admin.get_by_label("Output files to keep").fill("*.txt")
    admin.get_by_role("button", name="Submit").click()
    admin.wait_for_url("**/jobs/default/with-folder")
    admin.get_by_role("link", name="total.txt", exact=True).click()
    admin.get_by_role("region", name="Content of total.txt").get_by_text("42 in all").wait_for()


def test_files_are_dropped_sent_once_and_removed_again(admin: Page) -> None:
    admin.goto("/console/submit")
    box = admin.get_by_role("group", name="Input files")
    drop = """box => {
        const dropped = new DataTransfer();
        dropped.items.add(new File(["dropped here"], "a.txt"));
        box.dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, bubbles: true, cancelable: true }));
    }"""
    for words in (
        "1 file, 12 B uploaded.",
        "1 file, 12 B uploaded; files that the server already has were not uploaded again.",
    ):
        box.evaluate(drop)
        box.get_by_text(words, exact=True).wait_for()
    assert admin.locator("[name='spec.files.tree']").input_value().startswith("sha256:")
    box.get_by_role("button", name="Remove").press("Enter")
    box.get_by_text("None.").wait_for()
    assert admin.locator("[name='spec.files.tree']").input_value() == ""
    assert admin.evaluate("document.activeElement.id") == "choose-folder"


def test_what_cannot_be_sent_is_said_and_much_is_asked_for(admin: Page, tmp_path: Path) -> None:
    for number in range(2001):
        (tmp_path / f"{number}.txt").write_text("")
    admin.goto("/console/submit")
    box = admin.get_by_role("group", name="Input files")
    box.get_by_label("Choose a folder").set_input_files(tmp_path)
    box.get_by_text("Large upload: 2,001 files, 0 B.").wait_for()
    assert admin.get_by_role("button", name="Submit").is_disabled()
    box.get_by_role("button", name="Upload anyway").press("Enter")
    box.get_by_text("2,001 files, 0 B uploaded").wait_for(timeout=120_000)
    admin.locator("[name=csrf]").first.evaluate("field => (field.value = 'x')")
    admin.evaluate("document.querySelector('#submit').elements.csrf.value = 'x'")
    (tmp_path / "one.txt").write_text("1")
    admin.get_by_label("Choose files").set_input_files(tmp_path / "one.txt")
    box.get_by_text("Not uploaded: this form is too old").wait_for()


def test_hashes_are_right_with_and_without_the_browsers_help(admin: Page) -> None:
    admin.goto("/console/submit")
    code = """async ([script, size]) => {
        const { pieces, sha256 } = await import(script.replace("console.js", "sha256.js"));
        const blob = new Blob([new Uint8Array(size).map((_, n) => n * 7)]);
        return [await pieces(blob), await sha256(blob, () => {})];
    }"""
    script = admin.locator("script[src*='console.js']").get_attribute("src")
    for size in (0, 1, 55, 56, 63, 64, 65, 1_048_576, 1_048_639):
        expected = hashlib.sha256(bytes(n * 7 % 256 for n in range(size))).hexdigest()
        assert admin.evaluate(code, [script, size]) == [expected, expected], size


def test_a_link_from_the_terminal_signs_in(server: ServerProcess, browser: Browser) -> None:
    environment = {**os.environ, "ISTHMUS_URL": server.url, "ISTHMUS_TOKEN": server.token}
    words = [sys.executable, "-m", "isthmus.cli", "console"]
    link = subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout.strip()
    page = new_page(browser)
    page.goto(link)
    page.get_by_role("button", name="Sign in as admin").click()
    page.get_by_role("heading", name="Overview").wait_for()
    page.context.close()


def test_a_list_and_a_job_change_by_themselves(server: ServerProcess, admin: Page) -> None:
    admin.goto("/console/jobs")
    server.submit("appears", "sleep", "600")
    row = admin.get_by_role("row", name=re.compile("appears"))
    row.get_by_text("Running").wait_for()
    row.get_by_role("link", name="appears").click()
    admin.get_by_role("button", name="Cancel", exact=True).click()
    admin.get_by_role("button", name="Cancel job").click()
    admin.locator(".head .phase[data-phase=Cancelled]").wait_for()
    admin.get_by_role("button", name="Run again").wait_for()
    assert server.status("appears")["phase"] == "Cancelled"


def test_a_job_says_why_it_waits(server: ServerProcess, admin: Page) -> None:
    server.submit("large", "true", resources={"cpus": "5000"})
    admin.goto("/console/jobs/default/large")
    admin.get_by_text("Why it waits").wait_for()
    admin.goto("/console/")
    admin.get_by_role("region", name="Waiting").get_by_text("large").wait_for()
    server.patch("large", intent="Cancel")


def test_a_second_tenant_sees_nothing(server: ServerProcess, browser: Browser) -> None:
    server.submit("private-job", "echo", "private words")
    server.finished("private-job")
    server.request(f"{GROUP}/tenants", {"kind": "Tenant", "metadata": {"name": "others"}})
    name, secret, sha256 = new_secret()
    spec = {"user": "eve", "role": "member", "sha256": sha256}
    server.request(f"{GROUP}/namespaces/others/tokens", {"metadata": {"name": name}, "spec": spec})
    eve = signed_in(browser, server.url, secret)
    for path in ("/", "/jobs", "/jobs?q=private", "/experiments", "/tenants", "/sites"):
        eve.goto(f"/console{path}")
        assert "private-job" not in eve.locator("main").inner_text()
    eve.goto("/console/jobs/default/private-job")
    eve.get_by_role("heading", name="Not allowed").wait_for()
    assert "private words" not in eve.content()
    eve.context.close()


def test_a_hostile_log_and_name_run_nothing(server: ServerProcess, admin: Page) -> None:
    file = f"out/{HOSTILE.partition('/')[0]}.html"
    script = f"cat <<'E'\n{HOSTILE}\n\x1b[31mred\x1b[0m\nE\nmkdir out\ncat > '{file}' <<'E'\n{HOSTILE}\nE\n"
    labels = {"app": "x"}
    spec = {"script": script, "outputs": ["out/*"], "env": [{"name": "A", "value": HOSTILE}]}
    body = {"kind": "Job", "metadata": {"name": "hostile", "labels": labels}, "spec": spec}
    server.request(server.jobs(), body)
    server.finished("hostile")
    said: list[str] = []
    admin.on("console", lambda message: said.append(message.text))
    admin.goto("/console/jobs/default/hostile")
    log = admin.get_by_role("region", name="Output of the job")
    log.get_by_text("red").wait_for()
    assert HOSTILE in log.inner_text(), "as it was printed"
    assert "\x1b" not in log.inner_text()
    assert log.locator("img, script").count() == 0
    admin.get_by_role("region", name="Files").get_by_role("link").first.click()
    admin.get_by_role("region", name=re.compile("Content of")).wait_for()
    for path in ("/jobs", "/jobs/default/hostile", "/submit?copy=default/hostile"):
        admin.goto(f"/console{path}")
        assert "owned" not in admin.title()
    assert not [line for line in said if "Content Security Policy" in line], "nothing even tried"


def test_nothing_inline_would_run_anyway(admin: Page) -> None:
    admin.goto("/console/jobs")
    attempt = """() => {
        const box = document.createElement("div");
        box.innerHTML = `<img src="/console/nothing.png" onerror="document.title='owned'">`;
        document.body.append(box);
        const script = document.createElement("script");
        script.textContent = "document.title = 'owned'";
        document.body.append(script);
    }"""
    said: list[str] = []
    admin.on("console", lambda message: said.append(message.text))
    with admin.expect_console_message(lambda message: "script" in message.text and "Policy" in message.text):
        admin.evaluate(attempt)
    admin.evaluate("new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))")
    assert "owned" not in admin.title()
    assert any("Content Security Policy" in line for line in said)


def test_the_log_is_searched_and_followed(server: ServerProcess, admin: Page) -> None:
    server.submit("long", "sh", "-c", "seq 1 9000; printf 'a\\rb\\rend\\n'")
    server.finished("long")
    admin.goto("/console/jobs/default/long")
    log = admin.get_by_role("region", name="Output of the job")
    log.get_by_text("end").wait_for()
    assert not re.search(r"\ba\b", log.inner_text()), "a carriage return begins the line anew"
    reach(log, "e => e.scrollHeight - e.scrollTop - e.clientHeight < 10", "at the end")
    admin.keyboard.press("/")
    admin.keyboard.type("8000")
    admin.locator(".hits").get_by_text("1/1").wait_for()
    assert not admin.locator("#follow").is_checked()
    reach(log, "e => e.scrollHeight - e.scrollTop - e.clientHeight > 1000", "at the hit")


def test_an_experiment_has_its_plots(admin: Page, experiment: str) -> None:
    admin.goto("/console/experiments")
    admin.get_by_role("link", name="sizes").click()
    admin.wait_for_url(f"**{experiment}")
    bars = admin.get_by_role("region", name="Comparison by measure").locator("svg.wide-chart")
    assert bars.locator("rect").count() == 2
    scatter = admin.get_by_role("region", name="Run time and energy").locator("svg.wide-chart")
    assert scatter.locator("circle").count() == 2
    assert scatter.locator("circle:not(.off)").count() >= 1
    admin.get_by_role("navigation", name="Measure").get_by_role("link", name="Energy", exact=True).click()
    admin.wait_for_url("**measure=energy")
    table = admin.get_by_role("region", name="Table of cells")
    assert table.get_by_role("row").count() == 3
    table.get_by_role("link").first.click()
    admin.wait_for_url("**/jobs/default/sizes-*")


def test_a_running_job_has_live_plots(server: ServerProcess, admin: Page) -> None:
    script = """for n in 1 2 3; do echo 'isthmus: {"loss": 0.'$n'}'; done; sleep 600"""
    server.submit("measured", "sh", "-c", script)
    admin.goto("/console/jobs/default/measured")
    plots = admin.get_by_role("region", name="Metrics")
    for name in ("CPU", "Memory", "loss"):
        plots.get_by_role("img", name=re.compile(f"{name} over time")).wait_for()
    reach(plots.locator("canvas").first, DRAWN, "something is drawn")
    admin.get_by_role("button", name="Cancel", exact=True).click()
    admin.get_by_role("button", name="Cancel job").click()
    admin.locator(".head .phase[data-phase=Cancelled]").wait_for()


def test_power_and_use_of_a_board_are_seen_live(server: ServerProcess, admin: Page) -> None:
    """With a meter that is a program, as a site may have one."""
    meter = {"source": "Command", "command": ["echo", "12.5"]}
    spec = {"meter": meter, "use": {"source": "Command", "command": ["echo", "40 %"]}}
    server.request(f"{GROUP}/deviceclasses", {"kind": "DeviceClass", "metadata": {"name": "meterboard"}, "spec": spec})
    site = {"spec": {"devices": [{"class": "meterboard", "count": 1}]}}
    server.request(f"{GROUP}/sites/local", site, method="PATCH")
    resources = {"devices": [{"class": "meterboard", "count": 1}]}
    server.submit("powered", "sleep", "600", resources=resources)
    admin.goto("/console/jobs/default/powered")
    plots = admin.get_by_role("region", name="Metrics")
    plots.get_by_role("img", name="Power over time").wait_for()
    plots.get_by_role("img", name="Device utilization over time").wait_for()
    plots.get_by_text(re.compile(r"^12\.\d+ W$")).wait_for()
    plots.get_by_text(re.compile("^40 ?%$")).wait_for()
    server.patch("powered", intent="Cancel")
    assert server.finished("powered")["usage"]["energySource"] == "command"


def test_everything_works_with_the_keyboard(plain: str, admin: Page) -> None:
    admin.goto("/console/")
    admin.keyboard.press("Tab")
    assert admin.evaluate("document.activeElement.textContent") == "Skip to the content"
    admin.keyboard.press("Enter")
    assert admin.evaluate("document.activeElement.id") == "main"
    admin.keyboard.press("?")
    admin.get_by_role("dialog").get_by_text("Keyboard shortcuts").wait_for()
    admin.keyboard.press("Escape")
    admin.keyboard.press("g")
    admin.keyboard.press("j")
    admin.wait_for_url("**/jobs")
    admin.keyboard.press("l")
    name = admin.evaluate("document.activeElement.textContent")
    admin.keyboard.press("Enter")
    admin.wait_for_url(f"**/{name}")
    admin.goto("/console/submit?mode=manifest")
    editor = admin.get_by_label("Manifest of a Job or an Experiment")
    editor.focus()
    admin.keyboard.press("Tab")
    assert editor.evaluate("e => e === document.activeElement"), "Tab indents"
    admin.keyboard.press("Escape")
    admin.keyboard.press("Tab")
    assert not editor.evaluate("e => e === document.activeElement"), "and leaves after Escape"


def test_times_are_in_the_viewers_zone(server: ServerProcess, browser: Browser) -> None:
    server.submit("timed", "true")
    server.finished("timed")
    page = signed_in(browser, server.url, server.token, timezone_id="Asia/Tokyo", locale="en-GB")
    page.goto("/console/jobs/default/timed")
    time = page.locator(".facts time").first
    assert "ago" in time.inner_text() or "now" in time.inner_text()
    assert re.search(r"GMT\+9|JST", time.get_attribute("title") or "")
    page.context.close()


def test_the_theme_is_kept(admin: Page) -> None:
    def background() -> Any:
        return admin.evaluate("getComputedStyle(document.body).backgroundColor")

    admin.goto("/console/")
    before = background()
    admin.keyboard.press("d")
    assert background() != before
    after = background()
    admin.goto("/console/jobs")
    assert background() == after
    admin.keyboard.press("d")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    server: ServerProcess, browser: Browser, plain: str, experiment: str, scheme: Any
) -> None:
    page = new_page(browser, base_url=server.url, color_scheme=scheme, bypass_csp=True)
    page.goto("/console/sign-in")
    # In the other scheme only the colours differ.
    rules = "axe.run({resultTypes: ['violations'], runOnly: ['color-contrast']})" if scheme == "dark" else RULES
    _no_serious(page, rules)
    page.get_by_label("Token").fill(server.token)
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/")
    paths = ["/", "/jobs", "/jobs?q=nothing", plain, f"{plain}/files/a.csv"]
    paths += [
        "/jobs/default/many",
        "/submit",
        "/submit?mode=manifest",
        "/experiments",
        experiment.removeprefix("/console"),
    ]
    paths += ["/sites", "/sites/local", "/tenants", "/tenants/default", "/tenants/isthmus-system", "/nothing"]
    for path in paths:
        page.goto(f"/console{path}")
        if path.endswith("/plain"):
            page.get_by_text("complete (succeeded)").wait_for()
        _no_serious(page, rules)
    page.keyboard.press("?")
    _no_serious(page, rules)
    page.context.close()


def _no_serious(page: Page, rules: str) -> None:
    page.evaluate(AXE)
    found = page.evaluate(rules)["violations"]
    serious = [
        {"rule": one["id"], "at": [node["html"][:200] for node in one["nodes"][:3]]}
        for one in found
        if one["impact"] in ("serious", "critical", "moderate")
    ]
    assert serious == [], f"{page.url}: {json.dumps(serious, indent=1)}"


def test_a_phone_never_scrolls_sideways(server: ServerProcess, browser: Browser, plain: str, experiment: str) -> None:
    page = signed_in(browser, server.url, server.token, viewport={"width": 360, "height": 740})
    for path in ("/", "/jobs", plain, "/submit", "/sites", "/tenants/default", experiment[8:]):
        page.goto(f"/console{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
    page.context.close()
