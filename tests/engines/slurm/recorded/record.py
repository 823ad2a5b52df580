"""Records what a real Slurm answers: `python tests/engines/slurm/recorded/record.py [RELEASE]`, as root, half a minute.

A lab of two nodes is started from the Slurm of a Debian release (or of this machine), jobs of many sorts are run on it,
and every question of the driver is put to it, over each version that its slurmrestd offers and by command. Answers are
cut down to the fields that the driver reads; names of machines and folders are replaced.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from isthmus.engines.slurm.batch.submissions import Submission
from isthmus.engines.slurm.settings import RestSettings
from isthmus.engines.slurm.transports import commands, rest_calls, rest_documents
from isthmus.engines.slurm.transports.base import Budget
from isthmus.engines.slurm.transports.rest import Rest
from isthmus.lab import processes
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.layout import LabSettings
from isthmus.testing.slurm import running_slurm

HERE = Path(__file__).parent
USER = "games"
READ = {
    "jobs": "job_id job_state state_reason user_name partition comment submit_time start_time end_time nodes cpus "
    "node_count exit_code array_job_id array_task_id restart_cnt",
    "nodes": "name hostname state state_flags cpus real_memory alloc_cpus gres features partitions",
    "partitions": "name state flags partition nodes cpus maximums minimums accounts groups qos max_time_limit "
    "maximum_nodes_per_job total_nodes total_cpus allowed_accounts allowed_groups allowed_qos denied_accounts "
    "denied_qos",
    "accounting": "job_id user working_directory state time exit_code derived_exit_code nodes tres steps",
    "step": "step tres statistics time",
}
FENCE = "F"


def main() -> None:
    """Record one release."""
    release = sys.argv[1] if len(sys.argv) > 1 else ""
    with running_slurm(2, LabSettings(accounting=True, energy=True, release=release)) as lab:
        asyncio.run(record(lab))


async def record(lab: SlurmLab) -> None:
    """Run the jobs, ask everything, write the files."""
    work = lab.place.shared / "work"
    work.mkdir()
    work.chmod(0o777)
    run_jobs(lab, work)
    rest = Rest(RestSettings(url=lab.place.rest_url, key_file=lab.place.jwt_key), 30, Budget(1000, 1000))
    await rest.open()
    opened = await rest._exchange("GET", "/openapi/v3", None, "root")
    for version in rest_documents.versions(opened.body):
        rest._version = version
        rest._accounting_version = version if version in rest_documents.versions(opened.body, "slurmdb") else None
        if not (HERE / f"rest-{version}.json").exists():  # of the oldest Slurm that has it; remove it to record it anew
            write(lab, f"rest-{version}.json", await answers(rest, work))
    await rest.close()
    number = ".".join(lab.call("slurmctld", "-V").split()[-1].split(".")[:2])
    write(lab, f"commands-{number}.json", said(lab))


def run_jobs(lab: SlurmLab, work: Path) -> None:
    """1 fails after a step that failed, 2 dies of a signal, 3 is cancelled, 4 takes too much memory, 5 to 7 are an
    array, 8 was requeued and is held, 9 is held, 10 waits for another, 11 runs on both nodes, 12 waits for room."""
    ended = [
        submit(lab, work, "--comment=isthmus:abcdefgh.0", script="sleep 2; srun sh -c 'exit 4'; exit 3"),
        submit(lab, work, script="kill -SEGV $$"),
        submit(lab, work, script="sleep 1000"),
        submit(lab, work, "--mem=20", script="tail /dev/zero"),
    ]
    until(lab, ended[2], "RUNNING")
    lab.call("scancel", ended[2])
    for number, state in zip(ended, ("FAILED", "FAILED", "CANCELLED", "OUT_OF_MEMORY"), strict=True):
        until(lab, number, state)
    array = submit(lab, work, "--array=1-3%1", script="test $SLURM_ARRAY_TASK_ID = 1 || sleep 1000")
    until(lab, f"{array}_1", "COMPLETED")
    until(lab, f"{array}_2", "RUNNING")
    again = submit(lab, work, "--requeue", script="sleep 1000")
    until(lab, again, "RUNNING")
    lab.call("scontrol", "requeuehold", again)
    until(lab, again, "PENDING")
    submit(lab, work, "--hold", script="true")
    submit(lab, work, f"--dependency=afterok:{array}", script="true")
    both = submit(lab, work, "--nodes=2", "--time=60", script="sleep 1000")
    until(lab, both, "RUNNING")
    submit(lab, work, "--nodes=2", "--exclusive", script="true")
    second = lab.place.node_name(2)
    lab.call("scontrol", "update", f"nodename={second}", "state=drain", "reason=test")
    processes.wait(lambda: accounting_complete(lab, ended[0]), 30)


def submit(lab: SlurmLab, work: Path, *words: str, script: str) -> str:
    """A job of an ordinary user; its number."""
    person = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    fixed = ["sbatch", "--parsable", f"--chdir={work}", "--output=/dev/null", "--job-name=recorded"]
    return processes.call(lab.place, *person, *fixed, *words, "--wrap", script).stdout.strip()


def until(lab: SlurmLab, number: str, state: str) -> None:
    """Wait for a state."""

    def there() -> bool:
        return state in lab.call("squeue", "-h", "-r", "-t", "all", "-j", number, "-o", "%T", check=False)

    if not processes.wait(there, 60):
        raise SystemExit(f"{number} is not {state}: {lab.call('scontrol', 'show', 'job', number)}")


def accounting_complete(lab: SlurmLab, number: str) -> bool:
    """Whether the accounting has heard of the end of a job and of its steps."""
    return len(lab.call("sacct", "-n", "-X", "-j", number, "-o", "End").split()) == 1 and "Unknown" not in lab.call(
        "sacct", "-n", "-j", number, "-o", "End"
    )


async def answers(rest: Rest, work: Path) -> dict[str, Any]:
    """Every question of the driver."""
    wanted = Submission("no", "no", USER, "#!/bin/sh\n", str(work), "/dev/null", {"PATH": "/bin"})
    held = Submission("ok", "isthmus:abcdefgh.9", USER, "#!/bin/sh\n", str(work), "/dev/null", {"PATH": "/bin"})
    since = datetime.now(UTC) - timedelta(hours=1)
    questions: dict[str, rest_calls.RestCall[Any]] = {
        "ping": rest_calls.Ping(),
        "jobs": rest_calls.ListJobs(),
        "job": rest_calls.ShowJob(1),
        "no job": rest_calls.ShowJob(999_999),
        "nodes": rest_calls.ListNodes(),
        "partitions": rest_calls.ListPartitions(),
        "submit": rest_calls.SubmitJob(replace(held, dependency="afterok:5", partitions=("all",))),
        "submit refused": rest_calls.SubmitJob(replace(wanted, partitions=("nope",))),
        "cancel ended": rest_calls.CancelJob(1),
        "cancel no job": rest_calls.CancelJob(999_999),
        "hold ended": rest_calls.HoldJob(1, True),
        "hold no job": rest_calls.HoldJob(999_999, True),
        "accounting": rest_calls.ReadAccounting(1),
        "no accounting": rest_calls.ReadAccounting(999_999),
        "search": rest_calls.SearchAccounting(USER, since),
        "search nothing": rest_calls.SearchAccounting("bin", since),
    }
    found = {}
    for name, question in questions.items():
        reply = await rest._reply(question, USER if question.method != "GET" else None)
        found[name] = {"status": reply.status, "body": cut(name, dict(reply.body))}
        if name == "submit":
            await rest._reply(rest_calls.CancelJob(rest_calls.SubmitJob(held).read(reply)), USER)
    rest._tokens._made[USER] = (datetime.now(UTC).timestamp() + 1000, "not.a.token")
    for name, question in (
        ("jobs", rest_calls.ListJobs()),
        ("submit", rest_calls.SubmitJob(held)),
        ("accounting", rest_calls.ReadAccounting(1)),
    ):
        refused = await rest._reply(question, USER)
        found[f"{name}, bad token"] = {"status": refused.status, "body": cut(name, dict(refused.body))}
    rest._tokens._made.clear()
    return found


def cut(name: str, body: dict[str, Any]) -> dict[str, Any]:
    """Only what is read."""
    accounted = name in ("accounting", "search")
    for key in ("jobs", "nodes", "partitions"):
        if isinstance(body.get(key), list):
            body[key] = [keep(item, READ["accounting" if accounted else key]) for item in body[key]]
            if accounted:
                body[key] = body[key][:1] if name == "accounting" else body[key][-2:]
                for item in body[key]:
                    item["steps"] = [cut_step(step) for step in item.get("steps") or ()]
    left_out = ("last_update", "last_backfill", *(() if name == "ping" else ("meta",)))
    return {key: value for key, value in body.items() if key not in left_out}


def cut_step(step: dict[str, Any]) -> dict[str, Any]:
    """Only what is read of a step."""
    most = {"requested": {"max": step["tres"]["requested"]["max"]}}
    return keep(step, READ["step"]) | {"tres": most, "statistics": {"energy": step["statistics"]["energy"]}}


def keep(item: dict[str, Any], names: str) -> dict[str, Any]:
    """Some fields, in the order in which they came."""
    wanted = set(names.split())
    return {key: value for key, value in item.items() if key in wanted}


def said(lab: SlurmLab) -> dict[str, str]:
    """What the commands write."""
    since = datetime.now(UTC) - timedelta(hours=1)
    questions: dict[str, Sequence[str]] = {
        "squeue": commands.Squeue(FENCE).words,
        "job": commands.ScontrolShowJob(1).words,
        "nodes": commands.ScontrolShowNodes().words,
        "partitions": commands.ScontrolShowPartitions().words,
        "sacct": commands.Sacct([1, 2, 3, 4], since, ";").words,
    }
    env = {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
    return {name: processes.call(lab.place, *words, more=env).stdout for name, words in questions.items()}


def write(lab: SlurmLab, name: str, content: dict[str, Any]) -> None:
    """With other names for machines and folders."""
    place = lab.place
    lines = [f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in content.items()]
    text = "{\n" + ",\n".join(lines) + "\n}"
    text = text.replace(str(place.root).replace("/", "\\/"), "/lab").replace(str(place.root), "/lab")
    text = text.replace(place.node_name(1)[:-1], "n").replace(f"lab{place.number}", "lab")
    text = re.sub(rf"10\.211\.{place.number}\.", "10.0.0.", text)
    text = re.sub(rf'"{re.escape(socket.gethostname())}"', '"login"', text)
    text = re.sub(r"\bOS=[^@]*@0", "OS=Linux", re.sub(r"(127\.0\.0\.1):\d+", r"\1:1", text))
    (HERE / name).write_text(text + "\n")
    print(name, len(text))


if __name__ == "__main__":
    main()
