"""What a site offers, who may use it, how it is asked for things, and how little it is asked."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from isthmus.engines.base import EndReason, Run, RunState, Stream
from isthmus.engines.slurm.batch import submissions
from isthmus.engines.slurm.cluster.partitions import Submitter, choose
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.facts import SlurmNode, SlurmPartition
from isthmus.engines.slurm.observing.snapshots import LONGEST_PAUSE, SHARE_WHILE_WAITING, pause
from isthmus.engines.slurm.opening import make_engine as make
from isthmus.engines.slurm.settings import Mapped, RestSettings, SlurmSettings, SshSettings
from isthmus.engines.slurm.transports import rest_documents, tokens
from isthmus.engines.slurm.transports.base import Budget, failure
from isthmus.engines.slurm.transports.command_line import account
from isthmus.engines.slurm.transports.tokens import Tokens
from isthmus.errors import EngineRefused, Misconfigured, SiteUnavailable
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.login import LoginNode
from isthmus.resources.jobs import SlurmOptions
from isthmus.testing.engines import FolderSource, MemorySink, until, wait_ended, wait_log_has, whole_log

from .conftest import AKIDA, SSH_USER, USER, MakeEngine, settings_of, ssh_settings
from .test_exactly_once import run_of

real = pytest.mark.real
pytestmark = pytest.mark.anyio


@real
@pytest.mark.parametrize("transport", ["Command", "REST"])
async def test_inventory(transport: str, lab: SlurmLab, make_engine: MakeEngine) -> None:
    rest = RestSettings(url=lab.place.rest_url, key_file=lab.place.jwt_key)
    engine = await make_engine(settings_of(lab), transport=transport, rest=rest)
    found = await engine.probe([AKIDA])
    assert found.version == f"Slurm {lab.call('slurmctld', '-V').split()[-1]}"
    assert found.capacity.cpus == 6
    assert found.capacity.devices == {"akida": 1}
    nodes = {node.name: node for node in found.nodes}
    assert nodes[lab.place.node_name(1)].features == ["board", "akida"]
    assert nodes[lab.place.node_name(1)].devices == {"akida": 1}
    queues = {queue.name: queue for queue in found.queues}
    assert queues["all"].default
    assert (queues["short"].max_time, queues["short"].nodes) == ("30m", 3)
    run = run_of("true", time_limit=7200.0)
    await engine.submit(run)  # no limit is taken for one that keeps everybody out
    assert (await wait_ended(engine, run.id)).exit_code == 0


@real
async def test_a_drained_node_is_shown_and_does_not_count(lab: SlurmLab, engine: SlurmEngine) -> None:
    name = lab.place.node_name(3)
    lab.call("scontrol", "update", f"nodename={name}", "state=drain", "reason=test")
    try:
        found = await engine.probe(())
        assert {node.name: node.state for node in found.nodes}[name] in ("Drained", "Draining")
        assert found.capacity.cpus == 4
    finally:
        lab.call("scontrol", "update", f"nodename={name}", "state=resume")


@real
async def test_a_board_is_held_by_one_job_at_a_time(lab: SlurmLab, engine: SlurmEngine) -> None:
    await engine.probe([AKIDA])
    first = run_of("echo begun; until test -e go; do sleep 0.1; done", devices={"akida": 1})
    second = run_of("echo second", devices={"akida": 1})
    await engine.submit(first)
    await wait_log_has(engine, first.id, b"begun\n")
    await engine.submit(second)

    async def reported() -> bool:
        seen = await engine.observe(second.id)
        return seen is not None and seen.state is RunState.QUEUED and "waits" in seen.message

    await until(reported, "the second to be told why it waits")
    (Path(engine._files.folder(first.id)) / "work" / "go").touch()
    assert (await wait_ended(engine, first.id)).exit_code == 0
    assert (await wait_ended(engine, second.id)).exit_code == 0


@real
@pytest.mark.parametrize(("transport", "signal"), [("Command", "B:USR1@60"), ("REST", "USR1@60")])
async def test_options_reach_slurm(transport: str, signal: str, lab: SlurmLab, make_engine: MakeEngine) -> None:
    """slurmrestd of 22.05 takes no signal for the script alone."""
    rest = RestSettings(url=lab.place.rest_url, key_file=lab.place.jwt_key)
    engine = await make_engine(settings_of(lab), transport=transport, rest=rest)
    options = SlurmOptions(partition="short", constraint="board", exclusive=True, signal=signal)
    script = "scontrol -o show job $SLURM_JOB_ID"
    run = run_of(script, options=(options,), time_limit=300.0, priority=-7, memory_bytes=300 * 2**20)
    await engine.submit(run)
    assert (await wait_ended(engine, run.id)).exit_code == 0
    said = (await whole_log(engine, run.id)).decode()
    for word in ("Partition=short", "Features=board", "TimeLimit=00:05:00", "Nice=7", "Requeue=0", "JobName=once",
                 "OverSubscribe=NO", f"UserId={USER}"):  # fmt: skip
        assert word in said, word


@real
async def test_a_signal_before_the_time_limit_reaches_the_program(lab: SlurmLab, engine: SlurmEngine) -> None:
    """Slurm looks at time limits once in a while; a limit of one minute and a signal 55 seconds before it."""
    script = "trap 'echo warned; exit 9' USR1; echo begun; while :; do sleep 0.1; done"
    run = run_of(script, options=(SlurmOptions(signal="B:USR1@55"),), time_limit=60.0)
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"warned\n")
    end = await wait_ended(engine, run.id)
    assert end.exit_code == 9


@real
async def test_several_tasks_on_several_nodes(lab: SlurmLab, engine: SlurmEngine) -> None:
    run = Run(run_of("").id, "t", "many", command=("hostname",), nodes=2, tasks=4, milli_cpus=4000)
    await engine.submit(run)
    assert (await wait_ended(engine, run.id)).exit_code == 0
    lines = (await whole_log(engine, run.id)).split()
    assert len(lines) == 4
    assert len(set(lines)) == 2


@real
async def test_what_slurm_refuses_is_told_and_leaves_nothing(lab: SlurmLab, engine: SlurmEngine) -> None:
    run = run_of("true", options=(SlurmOptions(qos="no-such-qos", partition="nowhere"),))
    with pytest.raises(EngineRefused, match=r"(?i)partition"):
        await engine.submit(run)
    assert await engine.observe(run.id) is None
    assert not Path(engine._files.folder(run.id)).exists()


@real
async def test_why_a_job_that_never_began_failed(lab: SlurmLab, engine: SlurmEngine) -> None:
    lab.call("scontrol", "update", "partitionname=all", "state=down")
    try:
        run = run_of("echo x")
        await engine.submit(run)
        (Path(engine._files.folder(run.id)) / "launch").unlink()
    finally:
        lab.call("scontrol", "update", "partitionname=all", "state=up")
    end = await wait_ended(engine, run.id)
    assert end.reason is EndReason.START_FAILED
    assert "cannot read" in end.message


# People


@real
async def test_jobs_run_as_the_person_and_files_are_theirs(lab: SlurmLab, engine: SlurmEngine) -> None:
    run = run_of("id -un; umask; ls -ld . | cut -c1-10")
    await engine.submit(run)
    await wait_ended(engine, run.id)
    assert await whole_log(engine, run.id) == f"{USER}\n0022\ndrwx------\n".encode()


@real
async def test_each_person_over_ssh_with_an_identity_of_their_own(
    lab: SlurmLab, login: LoginNode, make_engine: MakeEngine
) -> None:
    engine = await make_engine(ssh_settings(lab, login, service="root"))
    run = run_of("id -un")
    await engine.submit(run)
    await wait_ended(engine, run.id)
    assert await whole_log(engine, run.id) == f"{SSH_USER}\n".encode()
    assert Path(engine._files.folder(run.id)).owner() == SSH_USER


@real
async def test_a_host_with_another_key_is_not_talked_to(lab: SlurmLab, login: LoginNode, tmp_path: Path) -> None:
    other = (login.folder / f"{SSH_USER}.pub").read_text()
    hosts = tmp_path / "known_hosts"
    hosts.write_text(f"[127.0.0.1]:{login.port} {other}")
    base = ssh_settings(lab, login, service=SSH_USER)
    assert base.ssh is not None
    engine = make(replace(base, ssh=replace(base.ssh, known_hosts=hosts)))
    with pytest.raises(Misconfigured, match=r"key of 127\.0\.0\.1"):
        await engine.open()
    await engine.close()
    engine = make(replace(base, ssh=replace(base.ssh, known_hosts=tmp_path / "none")))
    with pytest.raises(Misconfigured, match="There is no"):
        await engine.open()
    await engine.close()


@real
async def test_a_token_that_is_not_the_sites_is_not_let_in(lab: SlurmLab, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(os.urandom(32))
    rest = RestSettings(url=lab.place.rest_url, key_file=tmp_path / "key")
    engine = make(replace(settings_of(lab), transport="REST", rest=rest))
    with pytest.raises((Misconfigured, SiteUnavailable)):
        await engine.open()
    await engine.close()


@real
async def test_a_token_file_and_the_socket(lab: SlurmLab, make_engine: MakeEngine, tmp_path: Path) -> None:
    for user in ("root", USER):
        (tmp_path / user).write_text(f"SLURM_JWT={lab.token(user)}\n")
    rest = RestSettings(url=f"unix:{lab.place.rest_socket}", token_file=str(tmp_path / "{user}"))
    engine = await make_engine(settings_of(lab), transport="REST", rest=rest)
    run = run_of("id -un")
    await engine.submit(run)
    await wait_ended(engine, run.id)
    assert await whole_log(engine, run.id) == f"{USER}\n".encode()


def user_of(*accounts: Mapped, tenant: str = "physics", member: str = "") -> str:
    return SlurmSettings(folder="/x", accounts=accounts).user_of(Run("0123456789ab.0", tenant, "j", member=member))


def test_people_are_mapped_by_name_by_rule_or_not_at_all() -> None:
    rules = (
        Mapped("*", "{member}"),
        Mapped("*", "g-{member}", "*@guests.example"),
        Mapped("physics", "phy-{member}"),
        Mapped("physics", "ada1", "ada@example.org"),
        Mapped("*", "grace", "grace@example.org"),
    )
    assert user_of(*rules, member="ada@example.org") == "ada1", "who is named comes first"
    assert user_of(*rules, member="bob") == "phy-bob", "then the rule of the tenant"
    assert user_of(*rules, member="bob", tenant="chem") == "bob", "then that for all"
    assert user_of(*rules, member="grace@example.org", tenant="chem") == "grace"
    assert user_of(rules[1], member="eve@guests.example", tenant="chem") == "g-eve"
    assert user_of(Mapped("*", "{member}", "bob"), member="bob") == "bob"


def test_tenants_are_mapped_where_people_share() -> None:
    shared = Mapped("physics", "phy1"), Mapped("*", "u-{tenant}")
    assert user_of(*shared) == "phy1"
    assert user_of(*shared, member="bob") == "phy1"
    assert user_of(*shared, tenant="chem") == "u-chem"


def test_who_has_no_account_is_told_so() -> None:
    with pytest.raises(EngineRefused, match="Tenant chem has no account on this cluster"):
        user_of(Mapped("physics", "phy1"), tenant="chem")
    with pytest.raises(EngineRefused, match="bob of tenant physics has no account on this cluster"):
        user_of(Mapped("*", "ada1", "ada"), member="bob")
    with pytest.raises(EngineRefused, match=r"not known which member of tenant physics .* personal token"):
        user_of(Mapped("*", "{member}"))
    for bad in ("root", "a b", "-rf", "x;y", "../x", "A", "ada@example.org", "{tenant}"):
        with pytest.raises(EngineRefused):
            user_of(Mapped("*", "{member}"), member=bad)
        with pytest.raises(EngineRefused):
            user_of(Mapped("*", bad.replace("{tenant}", "A")))
    with pytest.raises(EngineRefused, match="never run as root"):
        account("root")
    with pytest.raises(EngineRefused, match="no account 'nobody-at-all'"):
        account("nobody-at-all")


def test_tokens_name_the_person_and_are_short_lived(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"k" * 32)
    made = Tokens(RestSettings(url="http://x", key_file=tmp_path / "key"))
    first = made.of("ada")
    assert made.of("ada") == first
    assert made.of("bob") != first
    assert tokens.make(b"k" * 32, "ada", 1000.0).count(".") == 2
    with pytest.raises(Misconfigured, match="keyFile or rest"):
        Tokens(RestSettings(url="http://x")).of("ada")


# Files


@real
@pytest.mark.parametrize("way", ["SSH", "Command"])
async def test_progress_of_files_is_told(
    way: str, lab: SlurmLab, request: pytest.FixtureRequest, make_engine: MakeEngine, tmp_path: Path
) -> None:
    login: LoginNode = request.getfixturevalue("login")
    base = ssh_settings(lab, login, service=SSH_USER) if way == "SSH" else settings_of(lab)
    engine = await make_engine(base)
    source = FolderSource(tmp_path, {f"part-{n}": os.urandom(1 << 20) for n in range(8)})
    run = run_of("cat part-* > out; ls")
    reported: list[tuple[int, int]] = []

    async def watch(work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        while not task.done():
            if moved := engine.moved(run.id):
                reported.append(moved)
            await asyncio.sleep(0)
        await task

    await watch(engine.submit(run, source))
    assert reported
    assert all(done <= total for done, total in reported)
    assert reported[-1][1] >= 8 << 20
    assert engine.moved(run.id) is None
    await wait_ended(engine, run.id)
    if way == "SSH":
        reported.clear()
        sink = MemorySink()
        await watch(engine.collect(run.id, ["out"], sink))
        assert len(sink.files["out"]) == 8 << 20
        assert reported


@real
async def test_a_thousand_who_follow_a_log_cost_one_reader(engine: SlurmEngine) -> None:
    run = run_of("echo begun; until test -e go; do sleep 0.1; done; echo more")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    before = engine._logs.reads

    async def follow() -> bytes:
        await engine.wait_log(run.id, Stream.STDOUT, 6, 60)
        return await engine.read_log(run.id, Stream.STDOUT, 6, 1000)

    followers = [asyncio.create_task(follow()) for _ in range(1000)]
    await asyncio.sleep(0)
    (Path(engine._files.folder(run.id)) / "work" / "go").touch()
    assert set(await asyncio.gather(*followers)) == {b"more\n"}
    assert engine._logs.reads - before <= 3
    await wait_ended(engine, run.id)


# Kind to slurmctld


async def is_running(engine: SlurmEngine, run_id: str) -> bool:
    seen = await engine.observe(run_id)
    return seen is not None and seen.state is RunState.RUNNING


@real
async def test_readers_never_reach_slurm(engine: SlurmEngine) -> None:
    runs = [run_of("exec sleep 1000") for _ in range(3)]  # a node that was drained before takes a while to come back
    for run in runs:
        await engine.submit(run)
    for run in runs:
        await until(partial(is_running, engine, run.id), "it to run")
    before, begin = engine._budget.calls, time.monotonic()

    async def read() -> None:
        for _ in range(20):
            for run in runs:
                await engine.observe(run.id)
            await asyncio.sleep(0.01)

    await asyncio.gather(*(read() for _ in range(500)))
    pictures = (time.monotonic() - begin) / engine._settings.poll_seconds
    # A few looks more may follow the starts of the jobs, whoever reads.
    assert engine._budget.calls - before <= pictures + 10, "30,000 reads cost no more questions than none"
    for run in runs:
        await engine.cancel(run.id)


@real
async def test_without_runs_nothing_is_asked(engine: SlurmEngine) -> None:
    run = run_of("true")
    await engine.submit(run)
    await wait_ended(engine, run.id)

    async def quiet() -> bool:
        before = engine._watcher.taken
        await asyncio.sleep(engine._settings.poll_seconds * 3)
        return engine._watcher.taken == before

    await until(quiet, "the questions to stop")


def test_the_interval_holds_where_the_question_is_cheap_and_grows_where_it_is_not() -> None:
    assert pause(1.0, [], 0) == 1
    assert pause(1.0, [0.2, 3.0], 0) == 1, "one slow answer says nothing about the site"
    assert pause(1.0, [1.5, 2.0], 0) == 6
    assert pause(1.0, [0.5], 0, SHARE_WHILE_WAITING) == 4, "less often while nothing runs"
    assert pause(1.0, [0.1], 2) == 4, "less often when it does not answer"
    assert pause(1.0, [60.0], 9) == LONGEST_PAUSE


async def test_the_budget_holds_back_and_says_so() -> None:
    budget = Budget(1000.0, 5)
    for _ in range(20):
        await budget.take()
    assert budget.calls == 20
    assert budget.waited > 0
    assert "held back" in budget.reported()


# Submissions and partitions, without a cluster


def test_words_for_sbatch() -> None:
    run = run_of("x", milli_cpus=3500, tasks=2, memory_bytes=3 * 2**30, time_limit=90.0, devices={"akida": 2}, nodes=2)
    made = submissions.make(
        run, user="ada", script="#!/bin/sh\n", folder="/f/r", options=SlurmOptions(qos="high"), gres=("board:akida:1",)
    )
    words = submissions.sbatch(made)
    for word in (
        "--parsable", "--no-requeue", "--nodes=2", "--ntasks=2", "--cpus-per-task=2", "--mem=1536M", "--time=3",
        "--gres=board:akida:1", "--qos=high", f"--comment=isthmus:{run.id}", "--chdir=/f/r/work",
    ):  # fmt: skip
        assert word in words, word


@pytest.mark.parametrize("version", [38, 40, 42])
def test_submissions_by_version(version: int) -> None:
    made = submissions.make(
        run_of("x", memory_bytes=2**30, time_limit=600.0), user="ada", script="S", folder="/f/r",
        options=SlurmOptions(partition="p"), gres=("gpu:a100:2",), environment={"PATH": "/bin"}, partitions=("p",),
    )  # fmt: skip
    body: dict[str, Any] = rest_documents.submission(made, version)
    job = body["job"]
    assert (body.get("script") or job.get("script")) == "S"
    assert ("script" in job) == (version > 40)
    if version == 38:
        assert (job["environment"], job["time_limit"], job["gres"]) == ({"PATH": "/bin"}, 10, "gpu:a100:2")
    else:
        assert (job["environment"], job["time_limit"]["number"]) == (["PATH=/bin"], 10)
        assert job["tres_per_node"] == "gres/gpu:a100:2"


PARTITIONS = (
    SlurmPartition("short", max_seconds=1800.0, default=True),
    SlurmPartition("long", max_seconds=86400.0),
    SlurmPartition("boards"),
    SlurmPartition("private", allow_accounts=("secret",)),
    SlurmPartition("closed", state="INACTIVE"),
)
NODES = (
    SlurmNode("n1", gres=(("board:akida", 1),), partitions=("boards",)),
    SlurmNode("n2", partitions=("short", "long", "private", "closed")),
)


def test_partitions_are_chosen_by_limits_access_and_devices() -> None:
    assert choose(run_of("x"), PARTITIONS, NODES) == (), "Slurm's own default will do"
    assert choose(run_of("x", time_limit=3600.0), PARTITIONS, NODES, access=Submitter("mine")) == ("long",)
    assert choose(run_of("x"), PARTITIONS, NODES, gres=("board:akida:1",)) == ("boards",)
    assert choose(run_of("x", options=(SlurmOptions(partition="long"),)), PARTITIONS, NODES) == ("long",)
    assert choose(run_of("x"), PARTITIONS, NODES, allowed=("long", "short")) == ("long",)
    with pytest.raises(EngineRefused, match="none of its nodes has board:akida:2"):
        choose(run_of("x"), PARTITIONS, NODES, gres=("board:akida:2",))
    with pytest.raises(EngineRefused, match=r"closed: it is closed \(inactive\)"):
        choose(run_of("x"), PARTITIONS, NODES, allowed=("closed",))
    down = (SlurmPartition("short", state="DOWN", default=True), SlurmPartition("other", max_seconds=60.0))
    assert choose(run_of("x"), down, ()) == (), "a partition that is down for a while still takes jobs"
    with pytest.raises(EngineRefused, match="not open to Isthmus"):
        choose(run_of("x", options=(SlurmOptions(partition="boards"),)), PARTITIONS, NODES, allowed=("long",))


def test_a_default_that_is_not_told_is_left_to_slurm() -> None:
    quick, wide = SlurmPartition("a-quick", max_seconds=60.0, nodes=2), SlurmPartition("wide", nodes=40)
    few = SlurmPartition("few", nodes=3)
    assert choose(run_of("x", time_limit=30.0), (quick, few, wide), ()) == (), "all take it, so Slurm's default does"
    assert choose(run_of("x", time_limit=90.0), (quick, few, wide), ()) == ("wide",), "the largest that takes it"


def test_partitions_are_for_those_who_may_use_them() -> None:
    partition = SlurmPartition(
        "p", allow_groups=("staff",), allow_qos=("high",), deny_accounts=("guests",), deny_qos=("low",), min_nodes=2
    )
    two = run_of("x", nodes=2, tasks=2)
    for access, reason in (
        (Submitter(groups=frozenset({"users"})), "for members of staff"),
        (Submitter(qos="normal"), "QOS normal may not"),
        (Submitter(account="guests"), "account guests may not"),
    ):
        with pytest.raises(EngineRefused, match=reason):
            choose(two, (partition,), (), allowed=("p",), access=access)
    with pytest.raises(EngineRefused, match="must have 2 nodes"):
        choose(run_of("x"), (partition,), (), allowed=("p",))
    good = Submitter(groups=frozenset({"users", "staff"}), qos="high", account="mine")
    assert choose(two, (partition,), (), allowed=("p",), access=good) == ("p",)
    assert choose(two, (partition,), (), allowed=("p",)) == ("p",), "what is not known is left to Slurm"


@real
async def test_a_partition_for_a_group_takes_its_members_only(lab: SlurmLab, make_engine: MakeEngine) -> None:
    lab.call("scontrol", "create", "partitionname=members", "nodes=ALL", "allowgroups=daemon")
    try:
        engine = await make_engine(settings_of(lab), partitions=("members", "all"))
        await engine.probe(())
        run = run_of("echo $SLURM_JOB_PARTITION")
        await engine.submit(run)
        await wait_ended(engine, run.id)
        assert await whole_log(engine, run.id) == b"all\n"
    finally:
        lab.call("scontrol", "delete", "partitionname=members")


def test_devices_become_generic_resources() -> None:
    run = run_of("x", devices={"akida": 4}, nodes=2, tasks=2)
    assert submissions.gres_of(run, {"akida": "board:akida"}) == ("board:akida:2",)
    with pytest.raises(EngineRefused, match="no word for the device"):
        submissions.gres_of(run, {})
    with pytest.raises(EngineRefused, match="evenly"):
        submissions.gres_of(run_of("x", devices={"akida": 3}, nodes=2), {"akida": "board:akida"})


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Batch job submission failed: Invalid partition name specified", EngineRefused),
        ("Batch job submission failed: Unable to contact slurm controller (connect failure)", SiteUnavailable),
        ("Batch job submission failed: Socket timed out on send/recv operation", SiteUnavailable),
        ("Slurm temporarily unable to accept job, sleeping and retrying", SiteUnavailable),
        ("Batch job submission failed: Requested node configuration is not available", EngineRefused),
        ("Batch job submission failed: Invalid account or account/partition combination specified", EngineRefused),
    ],
)
def test_no_is_told_from_no_answer(said: str, kind: type[Exception]) -> None:
    found = failure("sbatch", said)
    assert isinstance(found, kind)
    if kind is EngineRefused:
        assert found.message == f"Slurm rejected the job: {said}"


def test_ssh_settings_always_name_the_keys_of_the_host() -> None:
    with pytest.raises(TypeError, match="known_hosts"):
        SshSettings("host", "user", "key")  # type: ignore[call-arg]
