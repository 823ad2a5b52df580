"""Jobs in pods that write into everything the control plane reads of them: they hurt themselves, and nobody else."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.engines.base import RunState, Stream
from isthmus.engines.kubernetes.driver import KubernetesEngine
from isthmus.testing.engines import MemorySink, wait_ended, whole_log

from .conftest import AKIDA, MakeEngine
from .test_exactly_once import run_of

pytestmark = [pytest.mark.real, pytest.mark.kubernetes, pytest.mark.anyio]

GARBAGE = r"printf '\377\376=\302\262\n\000\033[31m[{(\ncode=\302\262\nlate=\npeak=1e999\nend=-\noom=\n'"
CONTROL = ("late", "grace", "ended", "stderr", "script", "staged")
EVERYTHING = f"""
: >/work/mine; : >/isthmus/late
{{ find / -xdev -type f; find /isthmus /work /tmp /dev -type f; }} 2>/dev/null | sort -u | while read -r one; do
  [ -w "$one" ] && echo "$one"
done >/tmp/reached
cat /tmp/reached
while read -r one; do {GARBAGE} >"$one"; done </tmp/reached
while read -r one; do rm -f "$one" && mkdir "$one"; done </tmp/reached
kill -9 -1
"""
"""Whatever it may write: first the contents, then folders in the places of files; and then its own processes."""
SCRIPTS = {
    "everything it can reach": EVERYTHING,
    # What the wrapper leaves with the pod's status: first garbage, and then nothing else may be written there.
    "its report": f"{GARBAGE} >/dev/termination-log; chmod 000 /dev/termination-log; exit 3",
    "a long report": "head -c 100000 /dev/zero | tr '\\0' '=' >/dev/termination-log; chmod 0 /dev/termination-log",
    "control files": "; ".join(f"rm -rf /isthmus/{name}; {GARBAGE} >/isthmus/{name}" for name in CONTROL),
    "control folders": "; ".join(f"rm -rf /isthmus/{name}; mkdir /isthmus/{name}" for name in CONTROL),
    "control links": "; ".join(f"rm -rf /isthmus/{name}; ln -s /etc/passwd /isthmus/{name}" for name in CONTROL),
    "one long line": "head -c 3000000 /dev/zero | tr '\\0' 'x'",
    "many empty lines": "yes '' | head -n 200000",
    "garbage in its log": f"for n in 1 2 3 4 5 6 7 8 9; do {GARBAGE}; done; head -c 300000 /dev/urandom",
    "files of any name": r"mkdir -p out; cd out; touch -- '-x' '$(x)' "
    r""""$(printf 'a\nb')" "$(printf '\377\033[31m')"; mkfifo p; ln -s /etc/passwd l; ln -s .. up""",
    "deep folders": "mkdir out; cd out; n=0; while [ $n -lt 300 ]; do mkdir dddddddddd; cd dddddddddd; n=$((n+1)); done"
    "; touch f",
}


async def test_whatever_a_job_writes_others_go_on(engine: KubernetesEngine, make_engine: MakeEngine) -> None:
    await engine.probe([AKIDA])
    lasting = run_of("sleep 1000", milli_cpus=10)
    await engine.submit(lasting)
    runs = {
        name: run_of(script, keeps_files=True, milli_cpus=10, separate_streams=n % 2 == 0)
        for n, (name, script) in enumerate(SCRIPTS.items())
    }
    await asyncio.gather(*(engine.submit(run) for run in runs.values()))
    ends = dict(zip(runs, await asyncio.gather(*(wait_ended(engine, run.id) for run in runs.values())), strict=True))
    assert all(end.message.isprintable() and len(end.message) < 2000 for end in ends.values()), ends
    assert ends["its report"].exit_code == 3, "what it wrote is not believed where the cluster knows better"
    # How much of a burst at the end arrives is for the container runtime: containerd 1.6 may drop the last of it.
    assert set(await whole_log(engine, runs["one long line"].id)) == set(b"x")
    assert set(await whole_log(engine, runs["many empty lines"].id)) == set(b"\n")
    reached = (await whole_log(engine, runs["everything it can reach"].id)).splitlines()
    assert {b"/isthmus/late", b"/dev/termination-log"} & set(reached), reached
    for name, run in runs.items():
        for stream in Stream:
            assert len(await engine.read_log(run.id, stream, 0, 100)) <= 100
        await engine.read_samples(run.id, 0, 100)
        if name.startswith(("control", "everything")):
            continue  # the helper that keeps its files may be gone by its own doing
        sink = MemorySink()
        await engine.collect(run.id, ["**"], sink)
        assert all(".." not in path.split("/") for path in sink.files)
    good = run_of("echo fine")
    await engine.submit(good)
    end = await wait_ended(engine, good.id)
    assert (end.exit_code, await whole_log(engine, good.id)) == (0, b"fine\n")
    assert [task.failures for task in engine.tasks.vital()] == [0] * len(engine.tasks.vital())
    second = await make_engine()  # a control plane that starts again reads all of it once more
    seen = await second.observe(lasting.id)
    assert seen is not None
    assert seen.state is RunState.RUNNING
    assert second.tasks.failures() == {}
