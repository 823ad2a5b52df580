"""What `isthmus run` sends, in which order output arrives, and what comes back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isthmus.testing.servers import eventually

pytestmark = pytest.mark.real


def test_from_home_nothing_is_sent_and_that_is_told(isthmus: Any, environment: dict[str, str]) -> None:
    home = Path(environment["HOME"])
    (home / "private").write_text("x")
    done = isthmus("run", "--", "sh", "-c", "ls; echo hello", cwd=home)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "--files DIR" in done.stderr
    assert isthmus("run", "-q", "--", "true", cwd=home).stderr == ""
    assert isthmus("run", "--files", ".", "--", "ls", cwd=home).stdout.split() == ["private"]


def test_a_virtual_environment_is_in_nobodys_way(isthmus: Any, work: Path) -> None:
    (work / ".venv").mkdir()
    (work / ".venv" / "pyvenv.cfg").write_text("")
    (work / ".venv" / "python").symlink_to("/usr/bin/python3")
    (work / "a.txt").write_text("")
    done = isthmus("run", "--", "ls", "-A")
    assert (done.returncode, done.stdout) == (0, "a.txt\n"), done.stderr
    assert done.stderr.count(".venv") == 1
    assert isthmus("run", "--quiet", "--", "true").stderr == ""


def test_order_is_kept_where_both_streams_go_to_one_place(
    isthmus: Any, environment: dict[str, str], work: Path
) -> None:
    line = "for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done"
    words = [sys.executable, "-m", "isthmus.cli", "run", "--no-files", "--name", "order", "--", "sh", "-c", line]
    done = subprocess.run(
        words, env=environment, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
    )
    assert done.stdout.decode().splitlines() == [f"{kind} {i}" for i in range(1, 6) for kind in ("out", "err")]
    assert isthmus("logs", "order").stdout == done.stdout.decode()


def test_python_scripts(isthmus: Any, work: Path) -> None:
    (work / "helper.py").write_text("VALUE = 42\n")
    (work / "t.py").write_text("import sys, helper\nprint(helper.VALUE, *sys.argv[1:])\n")
    assert isthmus("run", "t.py", "a", "b c").stdout == "42 a b c\n"
    (work / "plain.py").write_text("print('python')\n")
    assert isthmus("run", "--no-files", "plain.py").stdout == "python\n"
    (work / "named.py").write_text("#!/bin/sh\necho shell $1\n")
    assert isthmus("run", "named.py", "x").stdout == "shell x\n"
    name = isthmus("submit", "plain.py", "-o", "name").stdout.strip()
    assert isthmus("logs", "-f", name).stdout == "python\n"


def test_a_missing_python_is_explained(isthmus: Any) -> None:
    done = isthmus("run", "--no-files", "--env", "PATH=/nowhere", "--", "python", "x.py")
    assert done.returncode == 127
    assert "write python3" in done.stderr


def test_outputs_of_an_array_come_back_by_index(isthmus: Any, work: Path) -> None:
    words = ["--name", "parts", "--array", "0-1", "--no-files", "--outputs", "o*.txt"]
    done = isthmus("run", *words, "--", "sh", "-c", "echo $ISTHMUS_ARRAY_INDEX > o.txt")
    assert done.returncode == 0, done.stderr
    assert "brought back 2 files" in done.stderr
    assert [(work / index / "o.txt").read_text() for index in "01"] == ["0\n", "1\n"]
    assert isthmus("outputs", "parts", "-o", "name").stdout == "0/o.txt\n1/o.txt\n"
    assert isthmus("download", "parts", "elsewhere").stdout == "0/o.txt\n1/o.txt\n"
    assert isthmus("download", "parts", "--file", "1/o.txt").stdout == "1\n"


def test_a_batch_script_where_there_is_no_slurm(isthmus: Any, work: Path) -> None:
    (work / "sub").mkdir()
    (work / "sub" / "in.txt").write_text("one\n")
    (work / "job.sh").write_text(
        "#!/bin/sh\n#SBATCH -J 'My Train' --array=1-2 --chdir=sub\n#SBATCH -o logs/%x_%A_%a.out\n"
        'cat in.txt; cat logs/*_$SLURM_ARRAY_TASK_ID.out >seen; echo "$SLURM_JOB_NAME" >&2\n'
        'cd "$SLURM_SUBMIT_DIR"; ls\n'
    )
    done = isthmus("run", "--outputs", "**/seen", "--", "job.sh")
    assert done.returncode == 0, done.stderr
    logs = sorted((work / "sub" / "logs").iterdir())
    assert [re.sub(r"\d{8,10}", "N", log.name) for log in logs] == ["My Train_N_1.out", "My Train_N_2.out"]
    assert [log.read_text() for log in logs] == ["one\nMy Train\njob.sh\nsub\n"] * 2
    assert [(work / index / "sub" / "seen").read_text() for index in "12"] == ["one\n"] * 2
    assert not (work / "1" / "sub" / "logs").exists()


def test_a_script_that_needs_slurms_programs_waits_for_a_site_that_has_them(isthmus: Any, work: Path) -> None:
    (work / "steps.sh").write_text("#!/bin/sh\n#SBATCH -n 1\nsrun hostname\n")
    done = isthmus("run", "--detach", "--site", "local", "steps.sh")
    assert "the script calls srun, so it runs at Slurm sites only" in done.stderr
    name = done.stdout.strip()
    reported = eventually(lambda: json.loads(isthmus("job", name, "-o", "json").stdout)["status"].get("message"))
    assert "options for slurm" in reported
    assert isthmus("cancel", name).returncode == 0


@pytest.mark.parametrize("array", [[], ["--array", "0-1"]])
def test_nothing_to_bring_back_is_told(isthmus: Any, array: list[str]) -> None:
    done = isthmus("run", *array, "--no-files", "--outputs", "nothing*", "--", "true")
    assert done.returncode == 0
    assert "no file of the job matches nothing*" in done.stderr


def test_detach_writes_the_job_as_asked(isthmus: Any) -> None:
    done = isthmus("run", "-d", "-o", "json", "--no-files", "--name", "shown", "--", "true")
    assert json.loads(done.stdout)["metadata"]["name"] == "shown"
    assert isthmus("-o", "name", "run", "-d", "--no-files", "--name", "shown-2", "--", "true").stdout == "job/shown-2\n"
