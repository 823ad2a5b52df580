"""Several tasks in an image: srun starts a container for each, and they find each other by the PMI of the host."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from isthmus.engines.base import Run
from isthmus.engines.slurm.settings import SlurmSettings
from isthmus.testing.engines import FolderSource, new_run_id, wait_ended, whole_log
from isthmus.testing.image_archives import busybox_layer, docker_archive, layer, member

from .conftest import MakeEngine

pytestmark = [pytest.mark.anyio, pytest.mark.real]
PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
  int rank, size, mine, sum = 0;
  char host[64];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  mine = rank + 1;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  gethostname(host, sizeof host);
  printf("%d of %d on %s: %d\n", rank, size, host, sum);
  MPI_Finalize();
  return 0;
}
"""


def mpi_image(folder: Path) -> bytes:
    """An image with a program of MPICH and the libraries that it needs, and no Slurm."""
    (folder / "sum.c").write_text(PROGRAM)
    subprocess.run(["mpicc.mpich", "-o", "sum", "sum.c"], cwd=folder, check=True)
    listed = subprocess.run(["ldd", "sum"], cwd=folder, check=True, capture_output=True, text=True).stdout
    paths = sorted({Path(word) for word in listed.split() if word.startswith("/")})
    files = [member(str(path).lstrip("/"), path.read_bytes(), mode=0o755) for path in paths]
    program = member("opt/sum", (folder / "sum").read_bytes(), mode=0o755)
    return docker_archive([busybox_layer(), layer(*files, program)])


async def test_tasks_on_two_nodes_add_up(make_engine: MakeEngine, settings: SlurmSettings, tmp_path: Path) -> None:
    content = mpi_image(tmp_path)
    engine = await make_engine(settings)
    run = Run(
        new_run_id(), "n", "j", ("/opt/sum",), image="docker-archive:image.tar", nodes=2, tasks=2, milli_cpus=2000,
        env={"SLURM_MPI_TYPE": "pmi2", "UCX_TLS": "tcp,self"},  # the lab is one machine, and UCX sees that
    )  # fmt: skip
    await engine.submit(run, FolderSource(tmp_path / "sent", {"image.tar": content}))
    end = await wait_ended(engine, run.id)
    log = (await whole_log(engine, run.id)).decode()
    assert end.exit_code == 0, log
    words = sorted(line.split() for line in log.splitlines())
    assert [(w[0], w[2], w[5]) for w in words] == [("0", "2", "3"), ("1", "2", "3")]
    assert len({w[4] for w in words}) == 2, "both on one node"
