from __future__ import annotations

import re
from pathlib import Path

import pytest

from isthmus.errors import Invalid
from isthmus.formats.sbatch import Batch, has_directives, merged, read_batch, seconds_of
from isthmus.resources.frame.validation import validate
from isthmus.resources.jobs import Job, SlurmOptions
from isthmus.resources.kinds import JOB

DEVICES = {"gpu:a100": "a100", "board:akida": "akida", "gpu": "gpu"}


def batch(*lines: str) -> Batch:
    return read_batch("#!/bin/bash\n" + "".join(f"#SBATCH {line}\n" for line in lines) + "hostname\n", DEVICES)


def test_the_usual_lines() -> None:
    found = batch(
        "--job-name=My_Train", "-p gpu,long", "-t 1-12:30:00", "--nodes=2", "--ntasks-per-node=4", "-c 3", "--mem=16G",
        "--gres=gpu:a100:4", "-A proj", "--qos high", "--array=0-9%2", "-C 'intel&fast'", "--signal=B:USR1@60",
        "--output=out-%j.txt", "--error=err.txt", "--exclusive",
    )  # fmt: skip
    assert found.name == "my-train"
    assert found.resources == {
        "timeLimit": "1d12h30m",
        "nodes": 2,
        "tasks": 8,
        "cpus": "3",
        "memory": "4096Mi",
        "devices": [{"class": "a100", "count": 1}],
    }
    assert found.slurm == {
        "partition": "gpu,long",
        "account": "proj",
        "qos": "high",
        "constraint": "intel&fast",
        "signal": "B:USR1@60",
        "exclusive": True,
        "tasksPerNode": 4,
    }
    assert found.array == {"indices": "0-9", "limit": 2}
    assert found.streams == "Separate"
    assert found.log_files == {"stdout": "out-%j.txt", "stderr": "err.txt"}
    assert found.unheeded == []


def test_lines_after_the_first_command_are_not_read() -> None:
    script = "#!/bin/sh\n# a comment\n\n#SBATCH -n 4\nmodule load x\n#SBATCH -n 9\n"
    assert read_batch(script).resources == {"tasks": 4}
    assert has_directives(script)
    assert not has_directives("#!/bin/sh\necho\n#SBATCH -n 4\n")
    assert not has_directives("##SBATCH -n 4\n")


def test_a_later_line_outweighs_an_earlier_one() -> None:
    assert batch("--time=10", "--time=20").resources["timeLimit"] == "20m"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 1800), ("90:30", 5430), ("1:30:00", 5400), ("2-12", 216000), ("1-00:30", 88200), ("0-0:0:5", 5)],
)
def test_times_are_read_as_slurm_reads_them(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


def test_memory_by_cpu_and_by_node() -> None:
    assert batch("--mem-per-cpu=2G", "-c 4").resources["memory"] == "8192Mi"
    assert batch("--mem=1000").resources["memory"] == "1000Mi"
    assert batch("--mem=3000K").resources["memory"] == "3Mi"


def test_what_is_not_honoured_is_named() -> None:
    found = batch(
        "--dependency=afterok:12?afterok:13", "--chdir=/scratch", "--gres=tpu:1", "--mem=0", "--mail-type=END", "--bb=x"
    )
    reported = " ".join(found.unheeded)
    assert len(found.unheeded) == 6
    assert "not one of them (?)" in reported
    assert "--gres=tpu:1" in reported
    assert "--bb=x is not honoured" in reported
    assert found.resources == {}


@pytest.mark.parametrize("line", ["--time=soon", "--nodes=many", "--mem=lots", "stray", "--comment='open"])
def test_what_cannot_be_read_is_refused(line: str) -> None:
    with pytest.raises(Invalid):
        batch(line)


def test_devices_by_node_by_task_and_for_all() -> None:
    def devices(*lines: str) -> object:
        found = batch(*lines)
        assert not found.unheeded
        return found.resources["devices"]

    assert devices("-N1 -n4 --gres=gpu:a100:1") == [{"class": "a100", "count": 1, "perNode": True}]
    assert devices("-N2 -n4 --gres=gpu:a100:2") == [{"class": "a100", "count": 1}]
    assert devices("-N2 -n2 --gpus=a100:4") == [{"class": "a100", "count": 2}]
    assert devices("-n3 --gpus-per-task=a100:2") == [{"class": "a100", "count": 2}]
    assert devices("--gres=board:1") == [{"class": "akida", "count": 1}], "the only type of it"
    assert "not the same" in batch("-N2 -n2 --gpus=3").unheeded[0]
    two = read_batch("#SBATCH --gres=gpu:1\n", {"gpu:a100": "a100", "gpu:v100": "v100"})
    assert "several DeviceClasses have it (a100, v100)" in two.unheeded[0]


def test_variables_are_set_and_input_is_named() -> None:
    found = batch("--export='ALL,LEVEL=3,NAME=a b,HERE'", "--input=/data/in.txt")
    assert found.env == {"LEVEL": "3", "NAME": "a b"}
    assert [line.split(" ")[0] for line in found.unheeded] == ["--export=ALL", "--export=HERE", "--input=/data/in.txt"]
    assert merged({"spec": {"script": "x"}}, batch("--input=data.txt"))["spec"]["stdin"] == "data.txt"
    assert "stdin" not in merged({"spec": {"script": "x"}}, batch("--input=none"))["spec"]
    job = merged({"spec": {"script": "x", "env": [{"name": "LEVEL", "value": "4"}]}}, batch("--export=LEVEL=3,B=1"))
    assert job["spec"]["env"] == [{"name": "B", "value": "1"}, {"name": "LEVEL", "value": "4"}]


@pytest.mark.parametrize("line", ["-t 0", "--time=UNLIMITED", "-N 2-3 --ntasks-per-node=2"])
def test_what_slurm_would_take_more_widely_is_named(line: str) -> None:
    found = batch(line)
    assert len(found.unheeded) == 1
    assert "timeLimit" not in found.resources


def test_slurms_own_dependencies_are_passed_on() -> None:
    assert batch("-d afterok:12:13,singleton").slurm == {"dependency": "afterok:12:13,singleton"}
    assert SlurmOptions(dependency="afterok:12:13_4+5,singleton").dependency
    for wrong in ("afterok", "afterok:x", "afterok:1;id", "singleton,", "--uid=0"):
        with pytest.raises(ValueError, match="pattern"):
            SlurmOptions(dependency=wrong)


def test_tasks_without_nodes_may_be_spread() -> None:
    found = batch("-n 4")
    assert found.resources == {"tasks": 4}
    assert found.slurm == {"nodes": "1-4"}
    assert batch("-N 2-3 -n 6").slurm == {"nodes": "2-3"}
    assert batch("-N 2 -n 6").slurm == {}
    assert batch("-N 1 -n 4").slurm == {}
    assert batch("--mem=1G").slurm == {}
    assert batch("-n 4 --mem-per-cpu=1G").slurm == {"nodes": "1-4"}
    assert batch("-n 4 --mem=1G").slurm == {"nodes": "1-4", "memoryPerNode": True}
    assert batch("-n 4 --mem=1G -N 2").slurm == {}


def test_tasks_per_node() -> None:
    found = batch("-N 2 --ntasks-per-node=2")
    assert (found.resources, found.slurm) == ({"nodes": 2, "tasks": 4}, {"tasksPerNode": 2})
    found = batch("-n 5 --ntasks-per-node=2")
    assert (found.resources, found.slurm) == ({"nodes": 3, "tasks": 5}, {"nodes": "3-5", "tasksPerNode": 2})
    found = batch("--ntasks-per-node=2")
    assert (found.resources, found.slurm) == ({"tasks": 2}, {}), "one node, so that it may run anywhere"
    assert found.env == {"SLURM_NTASKS_PER_NODE": "2"}, "as sbatch sets it, where it is asked for"


@pytest.mark.parametrize("line", ["--gres=gpu:0", "--gres=none", "--gpus=0", "--gres=board:akida:0", "-G 0"])
def test_no_devices_are_asked_for(line: str) -> None:
    found = batch(line)
    assert (found.resources, found.unheeded) == ({}, [])


def test_flags_do_not_swallow_the_next_option() -> None:
    found = batch("--exclusive --nodes 2", "--requeue -p short")
    assert found.resources["nodes"] == 2
    assert found.slurm == {"exclusive": True, "requeue": True, "partition": "short"}


def test_what_is_said_on_the_command_line_goes_first() -> None:
    job = {
        "apiVersion": "isthmus.dev/v1",
        "kind": "Job",
        "metadata": {"name": "x"},
        "spec": {"script": "#!/bin/sh\n", "resources": {"cpus": "8"}},
    }
    made = merged(job, batch("-c 2", "-t 10", "-p short", "-J other"))
    assert made["spec"]["resources"] == {"cpus": "8", "timeLimit": "10m"}
    assert made["metadata"] == {"name": "x"}
    checked = Job.model_validate(validate(JOB, made))
    assert checked.spec.slurm is not None
    assert checked.spec.slurm.partition == "short"


DOCUMENTED = (Path(__file__).parent / "recorded" / "sbatch-22.05.txt").read_text().splitlines()
VALUES = {
    "array": "0-3",
    "time": "10", "nodes": "2", "ntasks": "2", "mem": "4G", "mem-per-cpu": "1G", "cpus-per-task": "2",
    "ntasks-per-node": "2",
    "gres": "gpu:a100:1", "gpus": "a100:1", "gpus-per-node": "a100:1", "gpus-per-task": "a100:1",
    "signal": "USR1@60", "dependency": "afterok:1", "export": "A=1", "input": "data.txt",
}  # fmt: skip
HARMLESS = {"verbose", "quiet", "parsable", "open-mode", "get-user-env", "ignore-pbs", "help", "usage", "version"}


@pytest.mark.parametrize("line", DOCUMENTED)
def test_every_documented_option_is_honoured_or_named(line: str) -> None:
    match = re.search(r"--([a-z0-9-]+)(=)?", line)
    assert match
    name = match[1]
    option = f"--{name}={VALUES.get(name, 'x')}" if match[2] else f"--{name}"
    found = batch("-N 2", option) if name == "ntasks-per-node" else batch(option)
    assert found != batch() or name in HARMLESS or name in VALUES
    short = re.match(r"-(\w), ", line)
    if short:
        value = f" {VALUES.get(name, 'x')}" if match[2] else ""
        assert batch(f"-{short[1]}{value}") == (batch(option) if value or not match[2] else found)


def test_abbreviations_and_second_spellings() -> None:
    assert batch("--job=train").name == "train"
    assert batch("--part=gpu").slurm == {"partition": "gpu"}
    assert batch("-N 2", "--tasks-per-node=3") == batch("-N 2", "--ntasks-per-node=3")
    with pytest.raises(Invalid, match="--mem-pe is ambiguous: it may be --mem-per-cpu, --mem-per-gpu"):
        batch("--mem-pe=4G")
    with pytest.raises(Invalid, match="did you mean --partition"):
        batch("--partion=x")
    with pytest.raises(Invalid, match="--time needs a value"):
        batch("--time")


def test_what_sbatch_refuses_is_refused() -> None:
    with pytest.raises(Invalid, match="DOS line breaks"):
        read_batch("#!/bin/sh\r\n#SBATCH -n 2\r\nhostname\r\n")
    with pytest.raises(Invalid, match="heterogeneous jobs are not supported"):
        batch("-n 2", "hetjob", "-n 4")


def test_singleton_goes_by_the_name_in_slurms_queue() -> None:
    found = batch("--job-name='My Train'", "--dependency=singleton")
    assert (found.slurm, found.env) == ({"dependency": "singleton"}, {"SLURM_JOB_NAME": "My Train"})


def test_output_files_outside_the_folder_are_named() -> None:
    assert "--output=/home/ann/x.out is not honoured" in batch("--output=/home/ann/x.out").unheeded[0]
    assert "--error=../x.err is not honoured" in batch("--error=../x.err").unheeded[0]
    found = batch("-o /dev/null")
    assert (found.log_files, found.unheeded) == ({}, [])


def test_both_streams_go_into_one_file_unless_another_is_named() -> None:
    assert (batch("-o x.out").streams, batch("-o x.out").log_files) == ("Merged", {"stdout": "x.out"})
    assert (batch("-o x", "-e x").streams, batch("-o x", "-e x").log_files) == ("Merged", {"stdout": "x"})
    found = batch("-e x.err", "--open-mode=append")
    assert (found.streams, found.log_files) == ("Separate", {"stderr": "x.err", "append": True})
    assert batch("-n 2").streams is None
    job = {"spec": {"script": "x", "streams": "Separate"}}
    assert merged(job, batch("-o x.out"))["spec"]["streams"] == "Merged", "whatever the terminal is"


def test_the_folder_to_start_in() -> None:
    assert [batch(f"-D {folder}").working_dir for folder in ("sub", "./a/b/", ".")] == ["sub", "a/b", None]
    for folder in ("/scratch/ann", "..", "a/../../b"):
        assert f"--chdir={folder} is not honoured" in batch(f"--chdir={folder}").unheeded[0]
    assert merged({"spec": {"script": "x"}}, batch("-D sub"))["spec"]["workingDir"] == "sub"


def test_a_job_without_a_name_is_called_like_its_file() -> None:
    assert read_batch("#SBATCH -n 1\n", file="job.sh").env == {"SLURM_JOB_NAME": "job.sh"}
    assert read_batch("#SBATCH -J 'My Job'\n", file="job.sh").env == {"SLURM_JOB_NAME": "My Job"}
    named = merged({"metadata": {"name": "x7"}, "spec": {"script": "x"}}, batch("-J other"))
    assert named["spec"]["env"] == [{"name": "SLURM_JOB_NAME", "value": "x7"}]


@pytest.mark.parametrize(
    ("body", "program"),
    [
        ("srun hostname", "srun"),
        ("time srun -n 2 ./a.out", "srun"),
        ("if x; then\n  OMP_NUM_THREADS=2 srun ./a.out\nfi", "srun"),
        ("nodes=$(scontrol show hostnames $SLURM_JOB_NODELIST)", "scontrol"),
        ("cat x | sbcast y /tmp/y", "sbcast"),
        ("# srun is not called", None),
        ("echo srun is called with srun", None),
        ("mysrun x; ./srun-like y; cat srun", None),
        ("command -v srun >/dev/null && srun hostname || hostname", None),
    ],
)
def test_a_script_that_needs_slurms_programs_stays_at_slurm_sites(body: str, program: str | None) -> None:
    found = read_batch(f"#!/bin/sh\n#SBATCH -n 1\n{body}\n")
    assert found.program == program
    made = merged(
        {"apiVersion": JOB.api_version, "kind": "Job", "metadata": {"name": "x"}, "spec": {"script": "x"}}, found
    )
    kept = Job.model_validate(validate(JOB, made))
    assert list(kept.spec.engine_options) == (["slurm"] if program else [])
