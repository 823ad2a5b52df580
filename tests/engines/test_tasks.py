"""Background tasks of engines: no driver starts one that nobody watches over."""

from __future__ import annotations

import ast
from pathlib import Path

import isthmus.engines

SOURCES = Path(isthmus.engines.__file__).parent
WITHIN_ONE_CALL = {
    "agent/contacts.py",
    "agent/linking.py",
    "kubernetes/executing.py",
    "local/inside_streams.py",
    "slurm/transports/shells.py",
}
"""Start tasks that they also wait for before they return."""


def test_no_driver_starts_a_task_by_itself() -> None:
    found = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("create_task", "ensure_future"):
                found.add(str(path.relative_to(SOURCES)))
    assert found <= WITHIN_ONE_CALL, "use SupervisedTasks: what fails is then started again, counted and told of"
