"""The part of the contract of engines that run images: a job in one is as a job without."""

# ruff: noqa: D102 - the names of the tests say what they show

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from isthmus.engines.base import EndReason, Observation, Run
from isthmus.errors import EngineRefused
from isthmus.images.manifests import is_digest
from isthmus.testing.image_archives import busybox_layer, folder, layer, link, member, oci_archive

from .working import EngineSuite, FolderSource, MemorySink, SuiteEngine, wait_ended, wait_log_has, whole_log

IMAGE = "oci-archive:image.tar"
TINY = oci_archive([busybox_layer()], ["PATH=/opt/bin:/bin", "GREETING=hello there", "HOME=/root"])
HOSTILE = [link("tmp", "/etc"), link("job", "/"), link("run", "/bin"), link("etc/resolv.conf", "/etc/shadow")]
REFUSED = [
    ("cut off", IMAGE, TINY[:5000], "cannot be used"),
    ("no shell", IMAGE, oci_archive([layer(member("f"))]), "no /bin/sh"),
    ("architecture", IMAGE, oci_archive([busybox_layer()], architecture="sparc"), "made for sparc"),
    ("not sent", "oci-archive:other.tar", TINY, "not among the files"),
    ("no name", "oci-archive:../image.tar", TINY, "not the name of an image"),
]


@pytest.mark.anyio
class ImageContract(EngineSuite):
    """What every engine does that runs images sent along."""

    def image_run(self, text: str, **fields: object) -> Run:
        """A run in the image that is sent along."""
        return self.make_run("sh", "-c", text, image=IMAGE, **fields)

    async def ended(
        self, engine: SuiteEngine, tmp_path: Path, run: Run, content: bytes = TINY
    ) -> tuple[Observation, str]:
        await engine.submit(run, FolderSource(tmp_path / "sent", {"image.tar": content, "data": b"sent along"}))
        end = await wait_ended(engine, run.id)
        return end, (await whole_log(engine, run.id)).decode()

    async def test_a_job_sees_the_image_and_what_is_its_own(self, engine: SuiteEngine, tmp_path: Path) -> None:
        text = """
            cat /etc/os-release; pwd; ls; cat data; echo
            echo "$HOME $TMPDIR $GREETING $PATH $ISTHMUS_JOB $OWN"
            touch /job/x /tmp/x /dev/shm/isthmus-$ISTHMUS_RUN_ID && echo writable
            rm -f /dev/shm/isthmus-$ISTHMUS_RUN_ID; cat
        """
        run = self.image_run(text, env={"OWN": "a 'b'"}, stdin="data")
        end, log = await self.ended(engine, tmp_path, run, oci_archive(
            [busybox_layer(), layer(link("bin/rm", "busybox"))], ["PATH=/opt/bin:/bin", "GREETING=hello there"]
        ))  # fmt: skip
        assert end.exit_code == 0, log
        assert log.splitlines() == [
            "ID=tiny", "/job", "data", "sent along", f"/job /tmp hello there /opt/bin:/bin {run.job} a 'b'", "writable",
            "sent along",
        ]  # fmt: skip
        assert end.image is not None
        assert is_digest(end.image)

    async def test_outputs_and_ends_are_as_without_an_image(self, engine: SuiteEngine, tmp_path: Path) -> None:
        script = "#!/bin/sh\necho made by $1 > out.txt\nexit 3\n"
        runs = [
            self.make_run(script=script, args=("me",), image=IMAGE),
            self.make_run("nosuch", image=IMAGE),
            self.image_run("kill -SEGV $$"),
            self.image_run("sleep 1000", time_limit=self.traits.shortest_time_limit),
        ]
        ends = await asyncio.gather(*(self.ended(engine, tmp_path, run) for run in runs))
        (made, _), (missing, said), (signalled, _), (late, _) = ends
        assert made.exit_code == 3
        sink = MemorySink()
        await engine.collect(runs[0].id, ["*"], sink)
        assert sink.files["out.txt"] == b"made by me\n"
        assert (missing.exit_code, missing.reason) == (127, EndReason.START_FAILED)
        assert "nosuch" in said
        assert signalled.signal == "SIGSEGV"
        assert late.reason is EndReason.TIME_LIMIT

    async def test_a_cancelled_job_hears_of_it_and_waited_for(self, engine: SuiteEngine, tmp_path: Path) -> None:
        text = "trap 'echo heard; sleep 1; echo done; exit 5' TERM; echo ready; while :; do sleep 0.1; done"
        run = self.image_run(text)
        await engine.submit(run, FolderSource(tmp_path / "sent", {"image.tar": TINY}))
        await wait_log_has(engine, run.id, b"ready")
        await engine.cancel(run.id)
        assert (await wait_ended(engine, run.id)).reason is EndReason.CANCELLED
        assert (await whole_log(engine, run.id)).split() == [b"ready", b"heard", b"done"]

    async def test_links_of_an_image_lead_nowhere(self, engine: SuiteEngine, tmp_path: Path) -> None:
        content = oci_archive([busybox_layer(), layer(folder("etc"), *HOSTILE)])
        end, log = await self.ended(engine, tmp_path, self.image_run("pwd; ls; cat /etc/shadow"), content)
        assert log.splitlines()[:2] == ["/job", "data"]
        assert end.exit_code != 0

    @pytest.mark.parametrize(("image", "content", "why"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED])
    async def test_images_that_are_refused(
        self, engine: SuiteEngine, tmp_path: Path, image: str, content: bytes, why: str
    ) -> None:
        files = FolderSource(tmp_path / "sent", {"image.tar": content})
        with pytest.raises(EngineRefused, match=why):
            await engine.submit(self.make_run("true", image=image), files)
