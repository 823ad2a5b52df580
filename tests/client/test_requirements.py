"""Files of requirements as a job says them, and what the server takes of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.client.jobs import job_manifest
from isthmus.client.requirements import read_requirements
from isthmus.errors import Invalid
from isthmus.resources.work.python_environments import check_requirement


def test_requirements_and_what_they_include(tmp_path: Path) -> None:
    (tmp_path / "base.txt").write_text("numpy==2.1 \\\n  --hash=sha256:aa\n")
    (tmp_path / "requirements.txt").write_text(
        "# wanted\n-r base.txt\nscipy   >= 1.14  # newer\nx @ https://h/x.whl#sha256=1\n"
    )
    found = read_requirements(tmp_path / "requirements.txt")
    assert found == {"requirements": ["numpy==2.1 --hash=sha256:aa", "scipy >= 1.14", "x @ https://h/x.whl#sha256=1"]}
    job = job_manifest(["python"], None, None, {"requirements": found})
    assert job["spec"]["python"] == found
    assert job_manifest(["python"], None, None, {"requirements": ["a"]})["spec"]["python"] == {"requirements": ["a"]}
    assert "python" not in job_manifest(["python"], None, None, {"requirements": None})["spec"]


def test_a_project(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[project]\nname = "x"\nrequires-python = "==3.12.*"\ndependencies = ["torch>=2", "numpy"]\n')
    assert read_requirements(str(file)) == {"requirements": ["torch>=2", "numpy"], "version": "3.12"}
    file.write_text('[project]\nrequires-python = ">=3.10"\ndependencies = ["numpy"]\n')
    assert read_requirements(str(file)) == {"requirements": ["numpy"]}


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("requirements.txt", b"# nothing\n", "names no packages"),
        ("requirements.txt", b"-c limits.txt\n", "file of constraints"),
        ("requirements.txt", b"-r requirements.txt\n", "include each other"),
        ("requirements.txt", b"\xff", "not UTF-8"),
        ("requirements.txt", b"x" * (2**20 + 1), "longer than"),
        ("pyproject.toml", b"[project", "not TOML"),
        ("pyproject.toml", b"[tool.poetry.dependencies]\nx = 1", "export a requirements.txt"),
        ("environment.yml", b"dependencies: [numpy]", "conda"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, name: str, content: bytes, why: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Invalid, match=why):
        read_requirements(tmp_path / name)


def test_no_such_file() -> None:
    with pytest.raises(Invalid, match="No such file"):
        read_requirements("nosuch.txt")


@pytest.mark.parametrize(
    "line",
    ["numpy", "numpy==2.1", "a[extra]>=1; python_version<'4'", "--index-url https://mirror/simple", "--pre",
     "x @ https://h/x.whl", "numpy==1 --hash=sha256:ab", "--no-binary=:all:"],
)  # fmt: skip
def test_lines_that_mean_the_same_everywhere(line: str) -> None:
    assert check_requirement(line) == line


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("-e .", "no option"),
        ("-r more.txt", "no option"),
        ("./x.whl", "names a file"),
        ("/opt/x.whl", "names a file"),
        ("x @ file:///etc/x", "names a file"),
        ("--find-links=/etc", "names a file"),
        ("--config-settings x", "no option"),
        ("--index-url https://me:secret@host/simple", "an account in it"),
        ("x\ny", "cannot be printed"),
        ("$(true)", "name of a package"),
    ],
)
def test_lines_that_are_refused(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        check_requirement(line)
    assert "secret" not in str(refused.value)
