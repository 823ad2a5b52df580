"""How tasks and memory are spread over nodes: as the job says, or as Slurm likes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from isthmus.engines.base import Run
from isthmus.engines.slurm.batch import submissions
from isthmus.engines.slurm.cluster.partitions import choose
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.facts import SlurmPartition
from isthmus.engines.slurm.settings import RestSettings, SlurmSettings
from isthmus.engines.slurm.transports import rest_documents
from isthmus.errors import EngineRefused
from isthmus.formats.sbatch import merged, read_batch
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.layout import LabSettings, NodeSpec
from isthmus.reconcilers.jobs.runs import run_of
from isthmus.resources.frame.validation import validate
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import JOB
from isthmus.resources.work.engine_options import SlurmOptions
from isthmus.testing.engines import new_run_id, wait_ended, whole_log
from isthmus.testing.slurm import running_slurm

from .conftest import MakeEngine

real = pytest.mark.real
pytestmark = pytest.mark.anyio
VERSIONS = range(rest_documents.OLDEST, rest_documents.NEWEST + 1)


def run_with(lines: str) -> Run:
    """A run of a script with these #SBATCH lines, each of whose tasks says where it is."""
    script = f"#!/bin/sh\n#SBATCH {lines}\nsrun hostname\n"
    batch = read_batch(script)
    assert not batch.unheeded
    obj = {"apiVersion": JOB.api_version, "kind": JOB.name, "metadata": {"name": "spread"}, "spec": {"script": script}}
    job = Job.model_validate(validate(JOB, merged(obj, batch)))
    job.metadata.namespace, job.metadata.uid = "t", new_run_id().partition(".")[0]
    return run_of(job, None)


def submission(lines: str) -> submissions.Submission:
    run = run_with(lines)
    return submissions.make(run, user="ada", script="S", folder="/f/r", options=run.section(SlurmOptions))


def words(lines: str) -> set[str]:
    asked = ("--nodes", "--ntasks", "--ntasks-per-node", "--cpus-per-task", "--mem", "--mem-per-cpu")
    return {word for word in submissions.sbatch(submission(lines)) if word.partition("=")[0] in asked}


def test_memory_of_a_range_of_nodes_goes_with_the_cpus() -> None:
    spread = {"--ntasks=4", "--cpus-per-task=1"}
    assert words("-n 4 --mem-per-cpu=400M") == {*spread, "--mem-per-cpu=400M"}
    assert words("-n 4 --mem=1G") == {*spread, "--mem=1024M"}, "of each node, as with sbatch"
    assert words("-N 2 -n 4 --mem-per-cpu=400M") == {
        "--nodes=2", "--ntasks=4", "--cpus-per-task=1", "--mem=800M"
    }  # fmt: skip
    assert "--mem-per-cpu=334M" in words("-n 2 -c 3 --mem-per-cpu=334M")


def test_memory_by_cpu_is_rounded_up() -> None:
    run = run_with("-n 2 -c 3 --mem-per-cpu=334M")
    odd = submissions.make(
        Run(run.id, "t", "odd", command=("x",), tasks=2, milli_cpus=5500, memory_bytes=2**30, options=run.options),
        user="ada", script="S", folder="/f", options=run.section(SlurmOptions),
    )  # fmt: skip
    assert (odd.cpus_per_task, odd.memory_mb) == (3, 171), "1024 MiB over 6 cpus"


def test_tasks_per_node_are_passed_on() -> None:
    both = {"--nodes=2", "--ntasks=4", "--cpus-per-task=1", "--ntasks-per-node=2"}
    assert words("-N 2 --ntasks-per-node=2") == both
    assert words("-N 2 -n 4 --ntasks-per-node=2") == both
    assert words("-n 5 --ntasks-per-node=2") == {
        "--ntasks=5", "--cpus-per-task=1", "--ntasks-per-node=2"
    }  # fmt: skip


def test_a_range_of_nodes_that_excludes_nothing_is_not_named() -> None:
    """Of a range Slurm gives as many nodes as it can, of none as few: `-n 4` alone is none."""
    assert "--nodes=1-2" in words("-N 1-2 -n 4")
    assert "--nodes=2-4" in words("-N 2-4 -n 4")
    assert not [word for word in words("-n 4") if word.startswith("--nodes")]


@pytest.mark.parametrize("version", VERSIONS)
def test_documents_of_every_version(version: int) -> None:
    def job(lines: str) -> Any:
        return rest_documents.submission(submission(lines), version)["job"]

    def number(value: int) -> Any:
        plain = version <= rest_documents.PLAIN_NUMBERS_UNTIL
        return value if plain else {"set": True, "infinite": False, "number": value}

    spread = job("-n 4 --mem-per-cpu=400M")
    assert (spread["memory_per_cpu"], "memory_per_node" in spread) == (number(400), False)
    assert not {"tasks_per_node", "nodes"} & spread.keys()
    even = job("-N 2 --ntasks-per-node=2 --mem=500M")
    assert (even["memory_per_node"], "memory_per_cpu" in even) == (number(500), False)
    assert (even["tasks"], even["tasks_per_node"], even["nodes"]) == (4, 2, "2")


def test_a_limit_of_memory_on_a_node_counts_what_may_come_to_a_node() -> None:
    small = (SlurmPartition("small", max_memory_per_node=500 * 2**20),)
    assert choose(run_with("-n 4 --mem-per-cpu=400M"), small, (), allowed=("small",)) == ("small",)
    for lines in ("-N 1 -n 4 --mem-per-cpu=400M", "-n 4 --mem=1600M"):
        with pytest.raises(EngineRefused, match="500 MiB"):
            choose(run_with(lines), small, (), allowed=("small",))


@pytest.fixture(scope="module")
def lab(release: str) -> Iterator[SlurmLab]:
    """Two nodes of the usual size, and two with cpus to spare, for which a job has to ask."""
    with running_slurm(2, LabSettings(release=release)) as made:
        for number in (3, 4):
            made.add(NodeSpec(made.place.node_name(number), cpus=4, memory_mb=1000, features=("wide",)))
        yield made


@pytest.fixture(params=["Command", "REST"])
async def engine(
    request: pytest.FixtureRequest, lab: SlurmLab, settings: SlurmSettings, make_engine: MakeEngine
) -> SlurmEngine:
    rest = RestSettings(url=lab.place.rest_url, key_file=lab.place.jwt_key)
    return await make_engine(settings, transport=request.param, rest=rest)


async def places(engine: SlurmEngine, run: Run) -> list[int]:
    """How many tasks came to each node, most first."""
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    said = (await whole_log(engine, run.id)).decode()
    assert end.exit_code == 0, f"{end.message} {said}"
    return sorted(Counter(said.split()).values(), reverse=True)


@real
@pytest.mark.sampled(1)
async def test_memory_that_fits_only_spread(lab: SlurmLab, engine: SlurmEngine) -> None:
    """No node has the 1600 MB of all four; the small ones have two cpus."""
    first, second = (lab.place.node_name(number) for number in (3, 4))
    found = await places(engine, run_with(f"-n 4 --mem-per-cpu=400M --exclude={first},{second}"))
    assert found == [2, 2]
    wide = await places(engine, run_with("-n 4 --mem-per-cpu=400M --constraint=wide"))
    assert wide == [2, 2], "four cpus each, and memory for two tasks"


@real
@pytest.mark.sampled(1)
async def test_as_few_nodes_as_the_tasks_need(engine: SlurmEngine) -> None:
    assert await places(engine, run_with("-n 2 --constraint=wide")) == [2]


@real
@pytest.mark.sampled(1)
async def test_nodes_by_name(lab: SlurmLab, engine: SlurmEngine) -> None:
    first, second, third, fourth = (lab.place.node_name(number) for number in range(1, 5))
    for lines in (f"-N 2 --nodelist={second},{third}", f"-N 2 --exclude={first},{fourth}"):
        run = run_with(lines)
        assert await places(engine, run) == [1, 1]
        assert set((await whole_log(engine, run.id)).decode().split()) == {second, third}


@real
@pytest.mark.sampled(1)
async def test_tasks_are_shared_out_as_asked(engine: SlurmEngine) -> None:
    """Slurm itself would put three of them on the first node, or all."""
    assert await places(engine, run_with("-N 2 --ntasks-per-node=2 --constraint=wide")) == [2, 2]
    assert await places(engine, run_with("-n 4 --ntasks-per-node=2 --constraint=wide")) == [2, 2]
