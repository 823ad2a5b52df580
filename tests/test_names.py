"""A name means one thing: no two classes share one, and modules only where they are the same part of something."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

import isthmus
from isthmus.resources.kinds import KINDS

SOURCES = Path(isthmus.__file__).parent

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
