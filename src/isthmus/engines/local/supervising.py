"""The supervisor: one small process that watches over one run, from before its start to after its end.

It holds the run's lock, writes `started`, and only then lets the program start, so that whoever comes later finds
out that this run was started. The sandbox is made meanwhile: the launcher in it waits for the word. The supervisor
ends the whole tree of processes when the time limit is reached, when `cancel` appears (and it is signalled), or when
the program itself is over and has left others behind. If it is killed, the kernel kills the program; whoever notices
writes the end.

It is forked by the keeper and uses nothing but the standard library. It is driven by signals alone and sleeps
otherwise, but for a look now and then at the energy counters and at what the run uses.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from isthmus._kit.crashpoints import reach
from isthmus.engines.local import cgroups, seccomp
from isthmus.engines.local.disk_limits import DiskLimit
from isthmus.engines.local.layout import RunFolder, read_record, write_record
from isthmus.engines.local.log_limits import LogLimit
from isthmus.engines.local.meter_process import MeterProcess
from isthmus.engines.local.networking import NetworkProcess, leave
from isthmus.engines.local.processes import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    arrange,
    boot_id,
    children,
    descendants,
    parents,
    prctl,
    send,
    start_ticks,
)
from isthmus.engines.local.usage import Boards, UsageMeter
from isthmus.engines.metering import Power, RaplMeter, machine_cpu_seconds
from isthmus.engines.sampling import append, line, pause

METER_SECONDS = 30.0
_LOOK_SECONDS = 3600.0
_RIVAL_SECONDS = 20.0
_DISK_GRACE = 1.0
"""Seconds in which a run that takes too much disk may tidy up; it could write on meanwhile."""
REPORT_FD = 3
GO_FD = 4
OPTIONS_FD = 5
FILTER_FD = 6
MESSAGE_LIMIT = 1000
DEFAULT_LOG_BYTES = 1 << 30
_MESSAGES = {
    "TimeLimit": "The job ran for longer than its time limit.",
    "NodeLost": "The machine is going down, or an administrator ended the job's supervisor.",
}
_DISK_FULL = "The disk of the site was full when the job ended: its output may be incomplete. Free some space there."
_WAKING = (signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """How a run ended."""

    reason: str
    exit_code: int | None = None
    signal: str | None = None
    message: str = ""


def judge(
    status: int,
    *,
    wanted: str,
    report: bytes,
    oom_kills: int,
    sandboxed: bool,
    program: str,
    memory_limit: str = "its limit",
) -> RunVerdict:
    """Read the end from the wait status, from what we wanted, and from what the launcher reported.

    The launcher reports `+` when it runs and `missing` when there is no such program; `failed: ` and a reason comes
    from what was to make the program's environment. Anything else is the reason why not even the launcher could be
    started.
    """
    code = os.waitstatus_to_exitcode(status)
    if not report.startswith(b"+"):
        if wanted:
            return RunVerdict(wanted, message=_MESSAGES.get(wanted, ""))
        why = report.decode(errors="replace") or f"the sandbox could not be made (exit code {code}); the log says why"
        return RunVerdict("StartFailed", message=why)
    if report.endswith(b"missing"):
        return RunVerdict("StartFailed", 127, message=f"The program {program!r} was not found, or may not be executed.")
    if report.startswith(b"+failed: ") and not wanted:
        return RunVerdict("StartFailed", code, message=report[9:].decode(errors="replace"))
    # Bubblewrap, like a shell, reports a signal by 128 and its number.
    number = -code if code < 0 else code - 128 if sandboxed and code > 128 else 0
    name = signal.Signals(number).name if number in set(signal.Signals) else None
    exit_code = None if name else code
    if wanted:
        return RunVerdict(wanted, exit_code, name, _MESSAGES.get(wanted, ""))
    if oom_kills and code != 0:
        return RunVerdict("OutOfMemory", exit_code, name, f"The job used more memory than {memory_limit}.")
    return RunVerdict("Completed", exit_code, name)


class Supervisor:
    """Watches over one run."""

    def __init__(self, folder: RunFolder, spec: dict[str, Any], lock: int) -> None:
        self._folder = folder
        self._spec = spec
        self._lock = lock  # held as long as this process lives
        self._group = cgroups.Group.from_json(spec["cgroup"]) if spec["cgroup"] else cgroups.Group()
        self._child = 0
        self._report = self._go = -1
        self._status: int | None = None
        self._wanted = ""
        self._kill_at: float | None = None
        self._wake = _wake_on_signals()
        self._meter = RaplMeter(Path(spec["powercap"]))
        self._began = (time.time(), time.monotonic())
        self._machine_began = machine_cpu_seconds() if self._meter.present or spec.get("metering") else 0.0
        self._beside: MeterProcess | None = None
        self._network: NetworkProcess | None = None
        self._usage_meter: UsageMeter | None = None  # made when the first sample is due: most runs are short
        self._sample_at = self._began[1] + pause(0)
        logs = [folder.log(stream) for stream in ("stdout", "stderr")]
        self._logs = LogLimit(logs, spec.get("max_log_bytes", DEFAULT_LOG_BYTES))
        self._log_at = self._began[1] + self._logs.pause(0)
        folders = (folder.work, folder.tmp)
        self._disk = DiskLimit(folders, spec.get("max_disk_bytes", 0), self._members)
        self._kept: DiskLimit | None = None
        if place := spec.get("environments"):
            self._kept = DiskLimit([Path(place)], spec["max_environment_bytes"], set, "Environments")
        self._disk_at = self._began[1] + self._disk.first()
        self._noted = 0

    def begin(self) -> None:
        """Write that the run is started; raises OSError, and then nothing was."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        try:
            cgroups.create(self._group)
            reach("supervisor:limited")
            self._fork()
            reach("supervisor:forked")
            if self._network is not None:
                self._network.wait()
            pid = os.getpid()
            job = {"job": self._child, "job_ticks": start_ticks(self._child)}
            record = {"pid": pid, "ticks": start_ticks(pid), "boot": boot_id(), "at": self._began[0], **job}
            write_record(self._folder.started, record)
        except OSError:
            self._network = None  # it is ended like everything else
            self._end_tree()
            cgroups.remove(self._group)
            raise
        reach("supervisor:started")

    def run(self) -> None:
        """Let the program start and stay until everything of it is over and written down."""
        if self._folder.cancel.exists():
            self._end_tree()
            self._end(RunVerdict("Cancelled", message="Cancelled before it was started."))
            return
        with contextlib.suppress(BrokenPipeError):  # it ended already; its status says how
            os.write(self._go, b"go\n")
        reach("supervisor:going")
        if plan := self._spec.get("metering"):
            self._beside = MeterProcess(plan, self._folder.sampling_log)
        self._watch()
        if self._beside is not None:
            self._beside.finish()
        self._end_tree()
        reach("supervisor:over")
        os.set_blocking(self._report, False)
        try:
            report = os.read(self._report, MESSAGE_LIMIT)
        except BlockingIOError:
            report = b""
        assert self._status is not None
        verdict = judge(
            self._status,
            wanted=self._wanted,
            report=report,
            oom_kills=cgroups.oom_kills(self._group),
            sandboxed=self._spec["sandboxed"],
            program=self._spec["program"],
            memory_limit=self._spec.get("memory_limit", "its limit"),
        )
        self._end(replace(verdict, message=self._disk.over) if self._wanted == "DiskLimit" else verdict)

    def _fork(self) -> None:
        self._report, report = os.pipe()
        go, self._go = os.pipe()
        router = self._spec.get("network")
        made, leaving = os.pipe() if router else (-1, -1)
        supervisor = os.getpid()
        self._child = os.fork()
        if self._child:
            os.close(report)
            os.close(go)
            if router:
                os.close(leaving)
                self._network = NetworkProcess(router, self._child, made, self._group)
                os.close(made)
            return
        try:
            become_job(self._spec, self._folder, self._group, supervisor, report, go, leaving)
        except BaseException as error:  # noqa: BLE001 - this process has no other way to report it
            os.write(report, f"The job could not be started: {error}".encode()[:MESSAGE_LIMIT])
        finally:
            os._exit(127)

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        limit: float | None = self._spec["time_limit"]
        deadline = None if limit is None else self._began[1] + limit
        self._heed()
        while self._status is None:
            now = time.monotonic()
            if deadline is not None and now >= deadline and not self._wanted:
                self._terminate("TimeLimit", self._spec["grace"])
            if self._kill_at is not None and now >= self._kill_at:
                self._kill_at = now + 1.0
                self._kill_all()
            if now >= self._sample_at:
                self._sample()
                now = time.monotonic()
                self._sample_at = now + pause(now - self._began[1])
            if now >= self._log_at:
                self._logs.hold()
                self._log_at = now + self._logs.pause(now - self._began[1])
            if now >= self._disk_at and not self._wanted:
                self._disk_at = now + self._disk.look(now - self._began[1])
                self._note_disk()
                if self._kept is not None and not self._disk.over:
                    self._kept.look(now - self._began[1])
                    self._disk.over = self._kept.over
                if self._disk.over:
                    self._terminate("DiskLimit", _DISK_GRACE)
            times = [t for t in (None if self._wanted else deadline, self._kill_at) if t is not None]
            times += [self._sample_at, self._log_at, *(() if self._wanted else (self._disk_at,))]
            times.append(now + (METER_SECONDS if self._meter.present else _LOOK_SECONDS))
            poll.poll(max(0.0, min(times) - now) * 1000 + 1)
            self._heed()
            self._meter.sample()

    def _note_disk(self) -> None:
        """Write down what its folders take, for whoever adds up what a tenant takes."""
        if self._disk.measured != self._noted:
            self._noted = self._disk.measured
            with contextlib.suppress(OSError):
                self._folder.disk.write_text(str(self._noted))

    def _sample(self) -> None:
        """Write down what the run uses. By the clock that does not jump, like its end."""
        elapsed = time.monotonic() - self._began[1]
        seen = self._measuring().read(elapsed, self._folder.log("stdout"))
        append(self._folder.samples, line(self._began[0] + elapsed, seen))

    def _measuring(self) -> UsageMeter:
        if self._usage_meter is None:
            self._usage_meter = UsageMeter(
                self._group,
                self._meter,
                power={name: Power(*watts) for name, watts in self._spec["power"].items()},
                devices=self._spec["devices"],
                cpus=self._spec["milli_cpus"] / 1000,
                boards=Boards(),
                beside=self._beside,
                machine_began=self._machine_began,
            )
        return self._usage_meter

    def _heed(self) -> None:
        """See what the signals were about: children that ended, a wish to cancel, the machine going down."""
        try:
            woken = set(os.read(self._wake, 4096))
        except BlockingIOError:
            woken = set()
        self._reap()
        if self._status is not None or self._wanted:
            return
        if (asked := read_record(self._folder.cancel)) is not None:
            self._terminate("Cancelled", float(asked.get("grace", self._spec["grace"])))
        elif signal.SIGTERM in woken:
            self._terminate("NodeLost", self._spec["grace"])

    def _reap(self) -> bool:
        """Bury the dead; whether any child is left. Orphans become our children: none left means no descendant is."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._child:
                self._status = status
            elif self._beside is not None and pid == self._beside.pid:
                self._beside.pid = 0
            elif self._network is not None and pid == self._network.pid:
                self._network.pid = 0

    def _terminate(self, why: str, grace: float) -> None:
        self._wanted = why
        # Before the launcher has begun there is nobody to ask, and nothing of the job to lose.
        begun = bool(select.select([self._report], [], [], 0)[0])
        self._kill_at = time.monotonic() + (grace if begun else 0)
        if grace > 0 and begun:
            family = parents()
            # Bubblewrap and the init it makes would take the job down at once; the job is asked, they are not.
            keep = {self._child} | {p for p, parent in family.items() if parent == self._child}
            tree = self._tree(family)
            send(tree - keep if self._spec["sandboxed"] else tree, signal.SIGTERM)

    def _tree(self, family: dict[int, int]) -> set[int]:
        """The job. What reads meters beside it is none of it, as long as the job runs, nor is what carries its network:
        a job that is asked to end may still have something to send."""
        beside = self._beside.pid if self._beside is not None and self._status is None else 0
        others = {beside} | descendants(beside, family) if beside else set()
        return ((descendants(os.getpid(), family) - others) | cgroups.members(self._group)) - self._carriers

    def _members(self) -> set[int]:
        """Processes of the job, as cheaply as they can be found."""
        return cgroups.members(self._group) or self._tree(parents())

    def _kill_all(self) -> None:
        cgroups.kill(self._group)
        send(self._tree(parents()), signal.SIGKILL)

    def _end_tree(self) -> None:
        """What the program left running ends with it."""
        pause = 0.0005
        while self._left():
            self._kill_all()
            time.sleep(pause)
            pause = min(0.1, pause * 2)

    def _left(self) -> bool:
        """Whether anything of the job is. Its network is taken away later: the kernel takes tens of milliseconds."""
        more = self._reap()
        if more and self._carriers:
            more = children(os.getpid()) != self._carriers
        return more or bool(cgroups.members(self._group) - self._carriers)

    @property
    def _carriers(self) -> set[int]:
        return {self._network.pid} if self._network is not None and self._network.pid else set()

    def _end(self, verdict: RunVerdict) -> None:
        elapsed = time.monotonic() - self._began[1]
        message = verdict.message
        if verdict.exit_code and not message and self._logs.disk_is_full():
            message = _DISK_FULL
        self._logs.hold()
        record = {
            # By the clock that does not jump: an end is never before its start.
            "at": self._began[0] + elapsed,
            "reason": verdict.reason,
            "exit_code": verdict.exit_code,
            "signal": verdict.signal,
            "message": message[:MESSAGE_LIMIT],
            "usage": self._usage(elapsed),
        }
        write_record(self._folder.ended, record)
        reach("supervisor:ended")
        if self._carriers and self._network is not None:
            self._network.leave_behind(self._lock, lambda: cgroups.remove(self._group))
        else:
            cgroups.remove(self._group)

    def _usage(self, elapsed: float) -> dict[str, Any]:
        rusage = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = cgroups.cpu_seconds(self._group)
        if cpu is None:
            cpu = rusage.ru_utime + rusage.ru_stime
        meter = self._measuring()
        joules, source = meter.energy(cpu, elapsed)
        return {
            "elapsed_seconds": elapsed,
            "cpu_seconds": cpu,
            "peak_memory_bytes": meter.peak_memory(rusage.ru_maxrss * 1024),
            "energy_joules": joules,
            "energy_source": source,
        }


def become_job(
    spec: dict[str, Any],
    folder: RunFolder,
    group: cgroups.Group,
    supervisor: int,
    report: int,
    go: int,
    leaving: int = -1,
) -> None:
    """Turn this process into the job; does not return. `leaving`: where it says that it has left our network."""
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(127)
    signal.set_wakeup_fd(-1)
    for number in (*_WAKING, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    cgroups.enter(group)
    if leaving >= 0:
        leave(leaving)
    Path("/proc/self/oom_score_adj").write_text("500")  # when memory is short, jobs go before the platform
    for name, value in spec["rlimits"].items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))
    append = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW
    out = os.open(folder.log("stdout"), append)
    err = os.open(folder.log("stderr"), append) if spec["separate_streams"] else out
    os.chdir(folder.work)
    null = os.open(os.devnull, os.O_RDONLY)
    descriptors = [null, out, err, report, go]
    if spec["options"]:
        options = "\0".join([*spec["options"], ""]).encode("utf-8", "surrogateescape")
        descriptors.append(in_memory("options", options))
        if "--seccomp" in spec["options"]:
            descriptors.append(in_memory("filter", seccomp.program(chroots=bool(spec.get("chroots")))))
    arrange(descriptors)
    os.umask(0o022)
    if (identity := spec["identity"]) is not None:
        os.setgroups(identity["groups"])
        os.setgid(identity["gid"])
        os.setuid(identity["uid"])
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the kernel clears it with a change of user
        if os.getppid() != supervisor:
            os._exit(127)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    os.execve(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606


def in_memory(name: str, content: bytes) -> int:
    """A descriptor from which this can be read."""
    fd = os.memfd_create(name)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _wake_on_signals() -> int:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in _WAKING:
        signal.signal(number, lambda *_: None)
    return reader


def supervise(folder: RunFolder, reply: Any) -> None:
    """Start this run unless it was started before, and stay with it. `reply` is called once, with the answer."""
    os.setsid()
    lock = folder.lock()
    deadline = time.monotonic() + _RIVAL_SECONDS
    # Whoever has the lock is just starting the same run, or looks into it for a moment.
    while lock is None and not folder.started.exists() and time.monotonic() < deadline:
        time.sleep(0.002)
        lock = folder.lock()
    if lock is None or folder.started.exists() or folder.ended.exists():
        reply("already")
        return
    reach("supervisor:locked")
    try:
        supervisor = Supervisor(folder, json.loads(folder.spec.read_bytes()), lock)
        supervisor.begin()
    except OSError as error:
        reply(f"failed {error}")
        return
    reply("started")
    supervisor.run()
