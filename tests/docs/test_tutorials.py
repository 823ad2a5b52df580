"""Every command in the tutorials and how-to pages works, against a real server.

What is run, page by page and in order:

- a fenced block marked `console`: each line that begins with `$ ` is a command of one shell that lasts for the whole
  page (a backslash at its end continues it). It must end with exit code 0. The lines below it must appear in what it
  writes, in this order; `...` stands for anything, and any run of spaces for one space;
- a fenced block after the words "Save this as `name`": it becomes that file.

Blocks with any other mark are only shown. Every page has a server of its own, and the shell of a page knows it by
ISTHMUS_URL, ISTHMUS_TOKEN, KUBECONFIG, and by DATA, the folder of the instance.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from isthmus.testing.servers import eventually, running_server

DOCS = Path(__file__).parents[2] / "docs"
KUBERNETES = DOCS / "howto" / "kubernetes.md"
NODES = DOCS / "howto" / "nodes-in-kubernetes.md"
"""Tried last and alone: they need programs that a new machine builds first."""
PAGES = sorted({*DOCS.glob("tutorials/*.md"), *DOCS.glob("howto/*.md")} - {KUBERNETES, NODES})
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED = re.compile(r"Save this as `([^`]+)`[^`]*\Z")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
MARK = "@@@"
PATIENCE = 250
AT_ONCE = 3


@dataclass
class Command:
    """One command, and the lines that it must write."""

    text: str
    expected: list[str] = field(default_factory=list)


@dataclass
class Saved:
    """One file that the reader is told to save."""

    name: str
    text: str


def steps(page: str) -> Iterator[Command | Saved]:
    """What a reader of the page does, in order."""
    for block in FENCE.finditer(page):
        if block[1] == "console":
            yield from commands(block[2])
        elif said := SAVED.search(page[max(0, block.start() - 300) : block.start()]):
            yield Saved(said[1], block[2])


def commands(block: str) -> Iterator[Command]:
    """The commands of one block."""
    present: Command | None = None
    for line in block.splitlines():
        if line.startswith("$ "):
            if present:
                yield present
            present = Command(line[2:])
        elif present and present.text.endswith("\\") and not present.expected:
            present.text += f"\n{line}"
        elif present and line.strip():
            present.expected.append(line)
    if present:
        yield present


def script(found: list[Command | Saved]) -> str:
    """A shell script of all steps that marks the end of each with its number and exit code."""
    lines = []
    for number, step in enumerate(found):
        if isinstance(step, Saved):
            lines.append(f"cat > {step.name} <<'{MARK}'\n{step.text}{MARK}")
        else:
            lines.append(step.text)
        lines.append(f"printf '\\n{MARK} {number} %d\\n' $?")
    return "\n".join(lines) + "\n"


def missing_line(expected: list[str], written: str) -> str | None:
    """The first expected line that does not follow the ones before it."""
    rest = [" ".join(line.split()) for line in written.splitlines()]
    for line in expected:
        pattern = ".*".join(re.escape(" ".join(part.split())) for part in line.strip().split("..."))
        spaced = pattern.replace(r"\ ", r"\s?") if "..." in line else pattern
        where = next((number for number, text in enumerate(rest) if re.search(spaced, text)), None)
        if where is None:
            return line
        rest = rest[where + 1 :]
    return None


def try_page(page: Path, folder: Path, patience: float = PATIENCE) -> str:
    """Do what the page says in a folder of its own; what was written, with the marks of `script`."""
    work, home = folder / "work", folder / "home"
    shutil.copytree(DOCS.parent / "examples", work / "examples")
    home.mkdir()
    with running_server(folder / "data") as server:
        # A reader is slower than this: by the time of her first command the local site has been looked at.
        eventually(lambda: server.request("/apis/isthmus.dev/v1/sites/local")["status"].get("phase") == "Ready")
        environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "COLUMNS": "120",
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
            # The one thing that differs from a reader's machine, where an instance has its usual folder to itself.
            "ISTHMUS_DATA": str(server.data),
        }
        if "PYTHONPATH" in os.environ:  # another working copy than the one that is installed
            environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
        done = subprocess.run(
            ["bash", "-c", script(list(steps(page.read_text())))],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience,
        )
    return done.stdout


@pytest.fixture(scope="session")
def tried(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Path, Future[str]]]:
    """Every page that a test of this session wants, a few at a time: they wait more than they work."""
    chosen = [item for item in request.session.items if isinstance(item, pytest.Function)]
    wanted = [Path(str(item.callspec.params["page"])) for item in chosen if "tried" in item.fixturenames]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {page: pool.submit(try_page, page, tmp_path_factory.mktemp(page.stem)) for page in wanted}


@pytest.mark.real
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page: Path, tried: dict[Path, Future[str]]) -> None:
    check_page(page, tried[page].result())


def check_page(page: Path, rest: str) -> None:
    for number, step in enumerate(steps(page.read_text())):
        written, mark, rest = rest.partition(f"\n{MARK} {number} ")
        assert mark, f"{page.name}: the shell ended in {step}\n{written}"
        code, _, rest = rest.partition("\n")
        assert code == "0", f"{page.name}: exit code {code} of {step}\n{written}"
        if isinstance(step, Command):
            absent = missing_line(step.expected, written)
            assert absent is None, f"{page.name}: {step.text!r} did not write {absent!r} but\n{written}"


@pytest.mark.parametrize("page", sorted([*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = FENCE.sub("", page.read_text())
    gone = [target for target in LINK.findall(prose) if not (page.parent / target).exists()]
    assert gone == []


def test_there_are_pages_with_commands() -> None:
    counts = {page.stem: sum(isinstance(step, Command) for step in steps(page.read_text())) for page in PAGES}
    assert {"researcher", "developer", "administrator"} <= counts.keys()
    assert [name for name, count in counts.items() if count == 0] == []


NAMED = re.compile(
    r"--name[ =]([a-z0-9-]+)|^metadata: *\{name: ([a-z0-9-]+)|^metadata:\n  name: ([a-z0-9-]+)", re.MULTILINE
)
SHARED = {"cloud", "cluster", "akida", "gpu"}
"""Names of sites and classes that pages describe in the same way."""


def test_pages_can_be_read_one_after_the_other() -> None:
    """No two pages use the same name for different things."""
    users: dict[str, set[str]] = {}
    for page in PAGES:
        for match in NAMED.finditer(page.read_text()):
            users.setdefault(next(filter(None, match.groups())), set()).add(page.stem)
    assert {name: pages for name, pages in users.items() if len(pages) > 1 and name not in SHARED} == {}


def test_what_is_missing_is_noticed() -> None:
    written = "NAME   PHASE      AGE\nhello  Succeeded  3s\n"
    assert missing_line(["NAME PHASE AGE", "hello Succeeded ..."], written) is None
    assert missing_line(["hello Succeeded ...", "NAME"], written) == "NAME"
    assert missing_line(["hello Failed ..."], written) == "hello Failed ..."


def test_blocks_are_read_as_the_reader_sees_them() -> None:
    shell = "```console\n$ sh a.sh \\\n    x\nhi\n$ true\n```\n"
    page = f"Save this as `a.sh`:\n\n```sh\necho hi\n```\n\n{shell}\n```sh\nno\n```\n"
    assert list(steps(page)) == [Saved("a.sh", "echo hi\n"), Command("sh a.sh \\\n    x", ["hi"]), Command("true")]
