"""Batch scripts as centres document them, run by `sbatch` and by `isthmus run` on one cluster, and compared.

Both find the same folder. All are sent at once; then what each left is compared: files with their contents, the
variables that the script found, the end, and what accounting says of the job and of its steps. Numbers of jobs, nodes
and folders differ from run to run and are replaced by words. What differs otherwise is listed here, and explained in
docs/howto/slurm.md.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from isthmus.engines.batch_scripts import number_of
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.registering import manifests
from isthmus.testing.servers import ServerProcess, eventually, running_server

from .conftest import USER

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
SCRIPTS = {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "replayed").glob("*.sh"))}
SENT = {
    "inputs.txt": "delta\nalpha\ncharlie\nbravo\necho\n",
    "old.log": "what was there\n",
    "logs/kept.txt": "so that sbatch finds the folder\n",
    "sub/here.txt": "here\n",
}
WRAPPED = "wc -l <inputs.txt >wrapped.txt; exit 2"
SCRIPTS["wrap"] = ""  # sbatch --wrap, and isthmus run -- sh -c
BY_COMMANDS = ("array", "hello", "patterns", "signal", "steps", "tasks")
"""What is run at a site reached by commands too; everything is run at one reached by slurmrestd."""
CASES = [(name, "REST") for name in SCRIPTS if name != "signal"] + [(name, "Command") for name in BY_COMMANDS]
"""slurmrestd of 22.05 takes no signal for the script alone."""
AT_ONCE = 10
"""How many of them an ordinary run takes, by chance."""
FIRST = 700_001
"""Numbers of jobs begin here, so that no other number is taken for one."""
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
ARGUMENTS = {"python": ("a b", "--site")}
ROW = "JobIDRaw,JobName,State,ExitCode,AllocCPUS,ReqMem,Timelimit,NNodes,Partition"

# What the documentation says is different.
ALWAYS_SET = {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_CPUS_PER_TASK"}
OF_SUBMISSION = {
    "SLURM_SUBMIT_HOST", "SLURM_PRIO_PROCESS", "SLURM_EXPORT_ENV", "SLURM_GET_USER_ENV", "SLURM_OPEN_MODE",
    "SLURM_TRES_PER_TASK", "SLURM_JOB_DEPENDENCY",
}  # fmt: skip
OF_MEMORY = {"SLURM_MEM_PER_CPU", "SLURM_MEM_PER_NODE"}
OF_ONE_RUN = {"SLURM_TASK_PID", "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME"}


@dataclass
class Replay:
    """What one way of running a script left."""

    folder: Path
    numbers: set[int]
    """Those of its jobs."""
    code: int | None = None
    rows: list[dict[str, str]] = field(default_factory=list)

    def plain(self, text: str) -> str:
        """A text without what differs from run to run."""
        text = re.sub(r"\S*/(slurm_script|script): line", "SCRIPT: line", text)
        text = re.sub(r"/\S*?/(replay-plain/\w+|runs/[\w.-]+/work)", "FOLDER", text)
        # A step that follows another may find its resources not yet free, and says so.
        text = re.sub(r"^srun: (Step created|.*step creation temporarily).*\n", "", text, flags=re.MULTILINE)
        text = re.sub(r"10\.\d+\.\d+\.\d+", "ADDRESS", text)
        text = re.sub(r"(?<![a-z])lab\d+n(\d+|\[[\d,-]+\])", "NODE", text)
        return re.sub(r"(?<!\d)0*(\d{6,})(?!\d)", lambda m: "NUMBER" if int(m[1]) in self.numbers else m[0], text)

    def files(self) -> dict[str, str]:
        """What is in the folder, but for the variables; of an array, whatever element it is of."""
        found = {}
        for path in sorted(self.folder.rglob("*")):
            name = re.sub(r"^\d/", "", str(path.relative_to(self.folder)))
            if path.is_file() and not path.name.startswith("variables") and name != "job.sh":
                found[self.plain(name)] = self.plain(path.read_text())
        return found

    def variables(self) -> dict[str, dict[str, str]]:
        """What each execution found, by the file that it wrote."""
        return {path.name: self._variables(path.read_text()) for path in self.folder.rglob("variables*")}

    def _variables(self, text: str) -> dict[str, str]:
        pairs = (pair.partition("=") for pair in text.split("\0") if pair)
        left_out = OF_SUBMISSION | OF_MEMORY | OF_ONE_RUN
        known = {"FOO", "GREETING", "OF_THE_SHELL", "CUDA_VISIBLE_DEVICES"}
        return {
            name: self.plain(value)
            for name, _, value in pairs
            if (name.startswith("SLURM") and name not in left_out) or name in known
        }


def text_of(name: str, hello: int) -> str:
    """A script that also writes down which variables it finds, before it does anything else."""
    text = SCRIPTS[name].replace("@HELLO@", str(hello))
    if name in ("python", "wrap"):
        return text
    lines = text.split("\n")
    last = max(number for number, line in enumerate(lines) if line.startswith("#SBATCH"))
    lines[last] += '\nenv -0 >"variables$SLURM_ARRAY_TASK_ID"'
    return "\n".join(lines)


def folder_with(folder: Path, text: str) -> Path:
    for name, content in {**SENT, "job.sh": text}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


class Sbatch:
    """Runs scripts with Slurm's own command, as the account that the site uses."""

    def __init__(self, lab: SlurmLab) -> None:
        self._lab, self._top = lab, lab.place.shared / "replay-plain"
        self._top.mkdir(mode=0o755)

    def send(self, name: str, hello: int) -> Replay:
        folder = folder_with(self._top / name, text_of(name, hello))
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, USER)
        env = {"PATH": f"{self._lab.place.programs}/bin:{PATH}", "SLURM_CONF": str(self._lab.place.conf)}
        words = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "sbatch", "--parsable"]
        what = [f"--wrap={WRAPPED}", "-o", "/dev/null"] if name == "wrap" else ["job.sh", *ARGUMENTS.get(name, ())]
        sent = subprocess.run(
            [*words, *what], cwd=folder, env=env | {"OF_THE_SHELL": "x"}, check=True,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return Replay(folder, {int(sent.stdout)})


@dataclass
class Sent:
    """A script on its way by `isthmus run`."""

    folder: Path
    text: str
    process: subprocess.Popen[str]


class Isthmus:
    """Runs scripts with ours."""

    def __init__(self, server: ServerProcess, site: str, top: Path) -> None:
        self._server, self._site, self._top = server, site, top

    def send(self, name: str, hello: int) -> Sent:
        text = text_of(name, hello)
        folder = folder_with(self._top / name, text)
        outputs = ["result*", "variables*"] if name == "array" else ["**"]
        words = [word for pattern in outputs for word in ("--outputs", pattern)]
        env = {**os.environ, "ISTHMUS_URL": self._server.url, "ISTHMUS_TOKEN": self._server.token, "OF_THE_SHELL": "x"}
        command = [sys.executable, "-m", "isthmus.cli", "run", "--site", self._site, *words, "--"]
        what = ["sh", "-c", WRAPPED] if name == "wrap" else ["job.sh", *ARGUMENTS.get(name, ())]
        process = subprocess.Popen(
            [*command, *what], cwd=folder, env=env, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        return Sent(folder, text, process)

    def end(self, sent: Sent) -> Replay:
        reported = sent.process.communicate(timeout=120)
        jobs = self._server.request(self._server.jobs())["items"]
        here = [job for job in jobs if job["spec"]["placement"]["sites"] == [self._site]]
        mine = [job for job in here if job["spec"].get("script", "") == sent.text]
        assert mine, reported
        numbers = {int(job["status"]["engineId"]) for job in mine if job["status"].get("engineId")}
        arrays = {number_of(job["metadata"]["uid"]) for job in mine if job["spec"].get("array")}
        return Replay(sent.folder, numbers | arrays, sent.process.returncode)


def account(lab: SlurmLab, replay: Replay) -> None:
    """Take over what accounting says of the jobs and their steps, once it has heard of all ends."""
    numbers = {number for number in replay.numbers if number < 2**26}

    def rows() -> list[dict[str, str]] | None:
        text = lab.call("sacct", "-n", "-P", "-j", ",".join(map(str, numbers)), f"--format={ROW}")
        found = [dict(zip(ROW.split(","), line.split("|"), strict=True)) for line in text.splitlines()]
        over = not any(row["State"] in ("RUNNING", "PENDING", "COMPLETING") for row in found)
        return found if over and {row["JobIDRaw"] for row in found} >= set(map(str, numbers)) else None

    replay.rows = eventually(rows) if numbers else []
    # Elements of Slurm's own arrays have numbers of their own as well.
    replay.numbers |= {int(row["JobIDRaw"].partition(".")[0]) for row in replay.rows}


def register(server: ServerProcess, lab: SlurmLab, way: str) -> str:
    """A site for this cluster, reached in this way; its name."""
    site = f"replay-{way.lower()}"
    for obj in manifests(lab.place, site):
        if obj["kind"] == "Site":
            accounts = [{"tenant": "*", "user": USER, "shared": True}]
            obj["spec"]["slurm"] |= {"pollInterval": "250ms", "transport": way, "accounts": accounts}
        with contextlib.suppress(urllib.error.HTTPError):  # the classes of both are the same
            server.request(f"/apis/isthmus.dev/v1/{obj['kind'].lower()}{'s' if obj['kind'] == 'Site' else 'es'}", obj)
    eventually(lambda: server.request(f"/apis/isthmus.dev/v1/sites/{site}")["status"].get("phase") == "Ready")
    return site


Replays = dict[tuple[str, str], Replay]


@pytest.fixture(scope="module")
def replays(
    accounting_lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Replays]:
    """The scripts, run in all ways."""
    chosen = cases(pytestconfig)
    with accounting_lab.place.conf.open("a") as conf:
        conf.write(f"FirstJobId={FIRST}\n")
    accounting_lab.call("scontrol", "reconfigure")
    names = {name for name, _ in chosen} - {"hello"}
    top = tmp_path_factory.mktemp("replay")
    with running_server(top / "data") as server:
        plain = Sbatch(accounting_lab)
        found: Replays = {("hello", "sbatch"): (first := plain.send("hello", 0))}
        (hello,) = first.numbers
        found |= {(name, "sbatch"): plain.send(name, hello) for name in sorted(names)}
        for way in ("REST", "Command"):
            ours = Isthmus(server, register(server, accounting_lab, way), top / way)
            sent = {name: ours.send(name, hello) for name, by in chosen if by == way}
            found |= {(name, way): ours.end(one) for name, one in sent.items()}
        for replay in found.values():
            account(accounting_lab, replay)
        yield found


@pytest.fixture
def both(request: pytest.FixtureRequest, replays: Replays) -> tuple[str, Replay, Replay]:
    name, way = request.param
    return name, replays[name, "sbatch"], replays[name, way]


def cases(config: pytest.Config) -> list[tuple[str, str]]:
    """What is tried this time."""
    if config.getoption("--all-variants"):
        return CASES
    return random.Random(os.environ["ISTHMUS_TEST_SEED"]).sample(CASES, AT_ONCE)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "both" in metafunc.fixturenames:
        metafunc.parametrize("both", cases(metafunc.config), ids="-".join, indirect=True)


def test_files_are_the_same(both: tuple[str, Replay, Replay]) -> None:
    name, plain, ours = both
    expected = plain.files()
    if name == "tasks":  # sbatch makes a file although none is named; isthmus run shows the output
        assert expected.pop("slurm-NUMBER.out") == ""
    assert ours.files() == expected


def test_variables_are_the_same(both: tuple[str, Replay, Replay]) -> None:
    _, plain, ours = both
    expected, found = plain.variables(), ours.variables()
    assert found.keys() == expected.keys()
    for variables in expected.values():  # which sbatch passes on unless told otherwise
        variables.pop("OF_THE_SHELL", None)
    for name, variables in found.items():
        extra = {variable for variable in variables.keys() - expected[name].keys() if variable in ALWAYS_SET}
        assert {key: value for key, value in variables.items() if key not in extra} == expected[name]


def test_the_end_is_the_same(both: tuple[str, Replay, Replay]) -> None:
    name, plain, ours = both
    first = next(
        row for row in plain.rows if "." not in row["JobIDRaw"] and (name != "array" or row["ExitCode"] != "0:0")
    )
    code, _, signal = first["ExitCode"].partition(":")
    expected = 128 + int(signal) if int(signal) else int(code)
    assert ours.code == (1 if name == "array" and expected else expected)


def test_accounting_is_the_same(both: tuple[str, Replay, Replay]) -> None:
    name, plain, ours = both
    expected = sorted(map(row_of, plain.rows))
    if name == "killed":  # a script that a signal ended is to Slurm one that ended with 128 and its number
        instead = {"0:15": "15:0", "CANCELLED": "FAILED"}
        expected = [tuple(instead.get(word, word) for word in row) for row in expected]
    if name == "wrap":  # which has no name that a person gave it
        (named,) = {row["JobName"] for row in ours.rows if row["JobName"] != "batch"}
        expected = [tuple(named if word == "wrap" else word for word in row) for row in expected]
    assert sorted(map(row_of, ours.rows)) == expected


def row_of(row: dict[str, str]) -> tuple[str, ...]:
    step = row["JobIDRaw"].partition(".")[2]
    # Where a partition has no limit, sacct shows a year or UNLIMITED: both mean that.
    limit = row["Timelimit"].replace("UNLIMITED", "365-00:00:00")
    return (step, limit, *(row[name] for name in ROW.split(",") if name not in ("JobIDRaw", "Timelimit")))
