"""The part of the contract that scripts written for `sbatch` rely on, at every kind of site."""

# ruff: noqa: D102 - the names of the tests say what they show

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.engines.base import ArrayPart, Stream
from isthmus.engines.batch_scripts import number_of

from .working import EngineSuite, FolderSource, MemorySink, SuiteEngine, wait_ended, whole_log

_SCRIPT = """\
#!/bin/sh
#SBATCH --job-name="My Train"
cd / && cd "$SLURM_SUBMIT_DIR" && cat sent.txt || exit 1
echo "$SLURM_JOB_NAME, $SLURM_NTASKS task, $SLURM_CPUS_PER_TASK cpu, $SLURM_JOB_NUM_NODES node"
echo "$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT"
echo "$SLURM_ARRAY_TASK_MIN-$SLURM_ARRAY_TASK_MAX:$SLURM_ARRAY_TASK_STEP"
[ "$SLURM_JOB_ID" -gt 0 ] && [ "$SLURM_ARRAY_JOB_ID" -gt 67108863 ] && [ "$SLURM_JOB_NODELIST" = "$SLURMD_NODENAME" ]
"""


@pytest.mark.anyio
class BatchContract(EngineSuite):
    """What every engine does for batch scripts."""

    async def test_a_batch_script_finds_its_variables(self, engine: SuiteEngine, tmp_path: Path) -> None:
        source = FolderSource(tmp_path / "source", {"sent.txt": b"sent\n"})
        part = ArrayPart(number_of("an array"), 3, 2, 1, 3, 2)
        run = self.make_run(script=_SCRIPT, env={"SLURM_JOB_NAME": "My Train"}, array=part)
        await engine.submit(run, source)
        assert (await wait_ended(engine, run.id)).exit_code == 0
        assert await whole_log(engine, run.id) == b"sent\nMy Train, 1 task, 1 cpu, 1 node\n3 of 2\n1-3:2\n"

    async def test_a_run_starts_in_a_folder_below_its_own(self, engine: SuiteEngine, tmp_path: Path) -> None:
        source = FolderSource(tmp_path / "source", {"it's here/x": b"1\n"})
        run = self.shell("cat x; echo 2 >y", working_dir="it's here")
        await engine.submit(run, source)
        assert (await wait_ended(engine, run.id)).exit_code == 0
        assert await whole_log(engine, run.id) == b"1\n"
        sink = MemorySink()
        await engine.collect(run.id, ["**/y"], sink)
        assert sink.files == {"it's here/y": b"2\n"}

    async def test_a_folder_that_is_not_there_is_named(self, engine: SuiteEngine) -> None:
        run = self.shell("echo never", working_dir="nowhere")
        await engine.submit(run)
        assert (await wait_ended(engine, run.id)).exit_code == 127
        assert b"has no folder nowhere to start in" in await whole_log(engine, run.id)

    async def test_the_log_is_in_the_folder_while_it_runs(self, engine: SuiteEngine, tmp_path: Path) -> None:
        if not engine.capabilities.log_files:  # it is copied after the end: `reconcilers/jobs/log_files.py`
            return
        source = FolderSource(tmp_path / "source", {"sub/logs/My Train-00007.out": b"of an earlier run\n"})
        script = (
            "#SBATCH\necho one; cat logs/My*.out >seen; echo two >&2; cat \"err %$SLURM_JOB_ID\"' $(x)*.txt' >>seen; "
            "echo three; ls logs >>seen\n"
        )
        names = {Stream.STDOUT: "./logs/%x-%5a.out", Stream.STDERR: "err %%%j $(x)*.txt"}
        run = self.make_run(
            script=script,
            separate_streams=True,
            working_dir="sub",
            log_files=names,
            env={"SLURM_JOB_NAME": "My Train"},
            array=ArrayPart(1, 7, 1, 7, 7, 1),
        )
        await engine.submit(run, source)
        end = await wait_ended(engine, run.id)
        said = await whole_log(engine, run.id), await whole_log(engine, run.id, Stream.STDERR)
        assert (end.exit_code, said) == (0, (b"one\nthree\n", b"two\n"))
        sink = MemorySink()
        await engine.collect(run.id, ["sub"], sink)
        assert sink.files.pop("sub/seen") == b"one\ntwo\nMy Train-00007.out\n"
        assert sink.files.pop("sub/logs/My Train-00007.out") == b"one\nthree\n"
        assert list(sink.files.values()) == [b"two\n"]

    async def test_output_follows_what_the_file_had(self, engine: SuiteEngine, tmp_path: Path) -> None:
        if not engine.capabilities.log_files:
            return
        source = FolderSource(tmp_path / "source", {"all.out": b"before\n"})
        run = self.shell("echo after", log_files={Stream.STDOUT: "all.out"}, append_logs=True)
        await engine.submit(run, source)
        assert (await wait_ended(engine, run.id)).exit_code == 0
        sink = MemorySink()
        await engine.collect(run.id, ["all.out"], sink)
        assert sink.files == {"all.out": b"before\nafter\n"}
        assert await whole_log(engine, run.id) == b"before\nafter\n"
