"""Work in a real browser: both streams of a log, questions before a cancel, selections, forms that check and keep."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from isthmus.testing.browsers import signed_in
from isthmus.testing.servers import GROUP, ServerProcess, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
HOSTILE = '<img src=x onerror="document.title=`owned`">'


@pytest.fixture(scope="module")
def admin(server: ServerProcess, browser: Browser) -> Page:
    return signed_in(browser, server.url, server.token, viewport={"width": 1280, "height": 900})


def test_standard_error_is_seen(server: ServerProcess, admin: Page) -> None:
    server.submit("split", "sh", "-c", f"echo fine; echo 'Traceback {HOSTILE}' >&2; exit 3", streams="Separate")
    server.submit("only-errors", "sh", "-c", "echo boom >&2; exit 3", streams="Separate")
    for name in ("split", "only-errors"):
        server.finished(name)
    admin.goto("/console/jobs/default/split")
    error = admin.get_by_role("region", name="Standard error of the job")
    error.get_by_text("Traceback").wait_for()
    assert HOSTILE in error.inner_text(), "as it was printed"
    assert error.locator("img").count() == 0
    assert admin.get_by_role("region", name="Output of the job").inner_text().strip() == "fine"
    admin.get_by_placeholder("Search the log").fill("traceback")
    admin.locator(".hits").get_by_text("1/1").wait_for()
    admin.goto("/console/jobs/default/only-errors")
    admin.get_by_role("region", name="Standard error of the job").get_by_text("boom").wait_for()
    admin.locator("#log-state").get_by_text("complete (failed)", exact=True).wait_for()
    admin.locator("[data-stream=stdout]").get_by_text("empty").wait_for()


def test_live_is_said_only_of_what_lives(server: ServerProcess, admin: Page) -> None:
    server.submit("waits", "true", resources={"cpus": "5000"})
    admin.goto("/console/jobs/default/waits")
    admin.locator("#log-state").get_by_text("the job has not started", exact=True).wait_for()
    server.submit("runs", "sleep", "600")
    admin.goto("/console/jobs/default/runs")
    admin.locator("#log-state").get_by_text("live", exact=True).wait_for()
    for name in ("waits", "runs"):
        server.patch(name, intent="Cancel")
    admin.locator("#log-state").get_by_text("complete (cancelled), no output", exact=True).wait_for()
    assert not admin.locator("#follow").is_visible(), "there is nothing to follow"


@pytest.mark.parametrize("way", ["key", "click"])
def test_a_cancel_asks_and_the_safe_answer_has_the_focus(server: ServerProcess, admin: Page, way: str) -> None:
    name = f"precious-{way}"
    server.submit(name, "sleep", "600")
    admin.goto(f"/console/jobs/default/{name}")
    admin.locator(".head .phase[data-phase=Running]").wait_for()
    button = admin.get_by_role("button", name="Cancel", exact=True)

    def ask() -> None:
        admin.keyboard.press("c") if way == "key" else button.click()
        admin.get_by_role("dialog", name=f"Cancel {name}?").wait_for()

    ask()
    assert admin.evaluate("document.activeElement.value") == "no"
    admin.keyboard.press("Enter")
    admin.get_by_role("dialog").wait_for(state="hidden")
    ask()
    admin.keyboard.press("Escape")
    admin.get_by_role("dialog").wait_for(state="hidden")
    assert server.job(name)["spec"]["intent"] == "Run"
    ask()
    admin.get_by_role("button", name="Cancel job").click()
    admin.locator(".head .phase[data-phase=Cancelled]").wait_for()
    assert server.status(name)["phase"] == "Cancelled"


def test_many_are_selected_and_cancelled(server: ServerProcess, admin: Page) -> None:
    for number in range(3):
        server.submit(f"bulk-{number}", "sleep", "600", resources={"cpus": "100m"})
    admin.goto("/console/jobs?q=bulk-&sort=name")
    bar = admin.locator("#selected")
    assert not bar.is_visible()
    admin.get_by_label("Select bulk-0").check()
    bar.get_by_text("1 selected").wait_for()
    admin.get_by_label("Select all jobs of this page").check()
    bar.get_by_text("3 selected").wait_for()
    admin.get_by_label("Select bulk-2").uncheck()
    bar.get_by_role("button", name="Cancel").click()
    admin.get_by_role("button", name="Cancel jobs").click()
    for number in range(2):
        server.finished(f"bulk-{number}")
        admin.get_by_role("row", name=re.compile(f"bulk-{number}")).get_by_text("Cancelled").wait_for()
    assert server.job("bulk-2")["spec"]["intent"] == "Run"
    assert not bar.is_visible()
    assert admin.url.endswith("?q=bulk-&sort=name"), "the filter stays"
    server.patch("bulk-2", intent="Cancel")


def test_filters_are_in_the_address(admin: Page) -> None:
    admin.goto("/console/jobs")
    admin.get_by_label("Every run").check()
    admin.wait_for_url("**elements=1**")
    admin.get_by_role("link", name="Name", exact=True).click()
    admin.wait_for_url(re.compile(r"elements=1.*sort=name"))
    assert admin.get_by_role("columnheader", name="Name").get_attribute("aria-sort") == "ascending"


def test_runs_unfold_and_fold(server: ServerProcess, admin: Page) -> None:
    spec = {"template": {"command": ["true"]}, "matrix": {"devices": ["cpu"]}, "repetitions": 2}
    path = f"{GROUP}/namespaces/default/experiments"
    server.request(path, {"kind": "Experiment", "metadata": {"name": "folded"}, "spec": spec})
    eventually(lambda: server.request(f"{path}/folded")["status"]["phase"] == "Succeeded", timeout=90)
    admin.goto("/console/jobs?q=folded")
    assert admin.get_by_role("link", name="folded-0-1").count() == 0
    admin.get_by_role("link", name="2 runs of folded").click()
    admin.get_by_role("link", name="folded-0-1").wait_for()
    assert admin.get_by_role("link", name="2 runs of folded").get_attribute("aria-expanded") == "true"
    admin.get_by_role("link", name="2 runs of folded").click()
    admin.get_by_role("link", name="folded-0-1").wait_for(state="detached")


def test_axes_have_units_and_are_as_long_as_the_job(server: ServerProcess, admin: Page) -> None:
    script = """for n in 1 2 3; do echo 'isthmus: {"loss": 0.'$n'}'; done; sleep 3"""
    server.submit("measured-once", "sh", "-c", script)
    server.finished("measured-once")
    admin.goto("/console/jobs/default/measured-once")
    metrics = admin.get_by_role("region", name="Metrics")
    metrics.get_by_role("heading", name=re.compile("^CPU, cores")).wait_for()
    metrics.get_by_role("img", name=re.compile("Memory over time, last value .*iB")).wait_for()
    log, side = admin.locator("#log").bounding_box(), metrics.bounding_box()
    assert log
    assert side
    assert side["x"] > log["x"] + log["width"] - 1, "the plots are beside the log"


def test_the_editor_says_what_is_wrong_and_where(admin: Page) -> None:
    admin.goto("/console/submit?mode=manifest")
    problems = admin.get_by_role("region", name="Problems")
    problems.get_by_text("No problems found.").wait_for()
    editor = admin.get_by_label("Manifest of a Job or an Experiment")
    editor.fill(f"kind: Job\nmetadata:\n  name: x\nspec:\n  command: ['true']\n  prio: {HOSTILE!r}\n")
    line = problems.get_by_role("button", name=re.compile("Line 6 spec.prio"))
    line.wait_for()
    line.click()
    chosen = "e => e.value.slice(e.selectionStart, e.selectionEnd)"
    assert editor.evaluate(chosen).startswith("  prio:")
    assert admin.locator(".numbers .wrong").inner_text().strip() == "6"
    editor.fill("kind: Job\nspec: [")
    problems.get_by_text(re.compile("is not YAML")).wait_for()
    assert "owned" not in admin.title()


def test_a_form_is_saved_and_filled_again(admin: Page) -> None:
    admin.goto("/console/submit")
    admin.get_by_role("radio", name="Command").check()
    admin.get_by_role("textbox", name="Command").fill("echo saved")
    admin.get_by_text("When and how often").click()
    admin.get_by_label("Number of retries").fill("4")
    admin.get_by_label("Name of the saved form").fill(HOSTILE)
    admin.get_by_role("button", name="Save this form").click()
    saved = admin.get_by_role("region", name="Saved forms")
    saved.get_by_role("button", name=HOSTILE, exact=True).wait_for()
    admin.goto("/console/submit?mode=manifest")
    saved.get_by_role("button", name=HOSTILE, exact=True).click()
    admin.wait_for_url(re.compile(r"/submit\??$"))
    admin.locator("#preview").get_by_text("limit: 4").wait_for()
    assert admin.get_by_role("textbox", name="Command").input_value() == "echo saved"
    assert admin.get_by_label("Number of retries").is_visible()
    saved.get_by_role("button", name=f"Remove {HOSTILE}").click()
    saved.get_by_role("button", name=HOSTILE, exact=True).wait_for(state="detached")
    assert "owned" not in admin.title()


def test_a_deadline_is_in_the_time_of_the_browser(server: ServerProcess, browser: Browser) -> None:
    page = signed_in(browser, server.url, server.token, timezone_id="Asia/Tokyo")
    page.goto("/console/submit")
    page.get_by_text("When and how often").click()
    page.get_by_text("Asia/Tokyo").wait_for()
    page.get_by_label("Deadline").fill("2036-01-02T09:00")
    page.locator("#preview").get_by_text(re.compile("deadline: .?2036-01-02T00:00:00")).wait_for()
    page.context.close()


def test_on_a_phone_pages_have_names_and_nothing_is_cut(server: ServerProcess, browser: Browser) -> None:
    server.submit("a-job-with-a-name-that-is-longer-than-any-phone-is-wide-and-then-some-more", "true")
    page = signed_in(browser, server.url, server.token, viewport={"width": 390, "height": 844})
    for label in ("Overview", "Jobs", "Submit", "Experiments", "Sites & devices", "Tenants"):
        box = page.get_by_role("navigation", name="Pages").get_by_text(label, exact=True).bounding_box()
        assert box, label
        assert box["width"] > 15, label
        assert box["x"] >= 0, label
        assert box["x"] + box["width"] <= 390, label
    cut = """[...document.querySelectorAll("main *:not(pre, code, textarea, canvas, option)")].filter((e) =>
        e.offsetParent && !e.closest(".manifest, .visually-hidden, .command-line, svg, .numbered")
        && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 120))"""
    for path in ("/", "/jobs", "/experiments", "/experiments/default/folded", "/sites", "/sites/local", "/tenants",
                 "/tenants/default", "/submit", "/submit?kind=Experiment", "/submit?mode=manifest",
                 "/jobs/default/split"):  # fmt: skip
        page.goto(f"/console{path}")
        assert page.evaluate(cut) == [], path
    page.context.close()
