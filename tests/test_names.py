"""A name means one thing: no two classes share one, and modules only where they are the same part of something."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

import isthmus
from isthmus.resources.kinds import KINDS

SOURCES = Path(isthmus.__file__).parent
TESTS = Path(__file__).parent

SHARED = """
__init__ answers app arrays base certificates cluster comparisons config connecting control_plane documents
driver exposing files installing inventories kinds kubeconfigs layout login logs manifests moving nodes
numbers opening operations options outputs packages packs parsing places planning plans processes reading
reconciler records registering reports requests roles running sampling schema settings settling shared staging
states store streams submit tables tasks trees working writing
"""
"""Names that modules of several packages have: the same part of each (`driver`), or one noun. It only shrinks."""


def test_no_two_classes_have_one_name() -> None:
    where: defaultdict[str, list[str]] = defaultdict(list)
    for path in SOURCES.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                where[node.name].append(str(path.relative_to(SOURCES)))
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}


def test_modules_share_a_name_only_where_it_means_the_same() -> None:
    shared = set(SHARED.split())
    times = Counter(path.stem for path in SOURCES.rglob("*.py"))
    repeated = {name for name, count in times.items() if count > 1} - {kind.plural for kind in KINDS.values()}
    assert repeated - shared == set(), "give the module a name of its own"
    assert shared - repeated == set(), "no longer shared: take it off the list"


PUBLIC = {"_replace", "_fields", "_asdict", "_repr_html_", "_kit"}
"""What begins with `_` and is meant for everybody: named tuples, notebooks, our own base."""
INSIDE = {
    "tests/engines/": "faults are put into the middle of drivers",
    "tests/reconcilers/sites/test_exposing.py": "the same of the heartbeats",
    "tests/store/kubernetes/test_reflecting.py": "the same of the reflector",
    "tests/cli/jobs/test_interrupting.py": "Ctrl-C at a certain moment",
    "tests/cli/jobs/test_job_watching.py": "what is drawn between two changes",
    "tests/images/test_accounts.py": "what the cache behind a finder keeps",
    "tests/api/test_clients.py": "kr8s closes its connections no other way",
}
"""Tests that look into what they test, and why. It only shrinks."""


def private_uses(path: Path) -> set[str]:
    """What a test takes from others although its name begins with `_`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls", "os"):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("isthmus"):
            found |= {name.name for name in node.names}
    return {name for name in found if name.startswith("_") and not name.startswith("__")} - PUBLIC


def test_tests_use_what_everybody_may_use() -> None:
    used = {str(path.relative_to(TESTS.parent)): private_uses(path) for path in TESTS.rglob("*.py")}
    looking = {file: names for file, names in used.items() if names and not file.startswith(tuple(INSIDE))}
    assert looking == {}, "test by what is public"
