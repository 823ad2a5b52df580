"""What `isthmus run` does: send, submit, show both streams live, end like the command would have ended here.

Two threads copy the two streams; the main thread waits, and answers Ctrl-C. Why a job waits is told on standard
error once it has waited for a second. Standard output belongs to the job alone.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

from isthmus.client.following import LogCursor, WatchCursor
from isthmus.client.handles import exit_code_of
from isthmus.client.jobs import JobOptions
from isthmus.client.places import JOBS
from isthmus.client.requests import Object
from isthmus.client.sync import HERE, Client, JobHandle
from isthmus.errors import Invalid, IsthmusError

from .failures import BROKEN_PIPE, INTERRUPTED, report, say, write_all
from .run_words import RunOptions

_PATIENCE = 1.0
_WAITING = ("Pending", "Placed", "Queued")


def run(options: RunOptions) -> int:
    """Run it, and answer the exit code."""
    with Client(options.url, options.token, options.namespace) as client:
        job = start(client, options)
        if options.detach:
            sys.stdout.write(job.name + "\n")
            say(f"follow it with `isthmus logs -f {job.name}`, end it with `isthmus cancel {job.name}`")
            return 0
        if options.array:
            return _Array(client, job, options).follow()
        return _Run(client, job, options).follow()


def start(client: Client, options: RunOptions) -> JobHandle:
    """Send the folder and submit the job."""
    command, script, args = what_to_run(options.words)
    if options.files and options.no_files:
        raise Invalid("--files and --no-files contradict each other; give one")
    files = None if options.no_files else options.files or HERE
    if files == HERE and options.files:
        files = os.getcwd()  # noqa: PTH109 - named outright: it is sent whatever its size
    said = _job_options(options, args)
    if script is not None:
        said["name"] = options.name
    from .progress import sending

    with sending(options.quiet) as progress:
        return client.run(command, script=script, files=files, progress=progress, **said)


def what_to_run(words: tuple[str, ...]) -> tuple[list[str] | None, str | None, list[str]]:
    """A command, or the text of a script and its arguments.

    A first word that names a file here and no program on the PATH is a script: `isthmus run job.sh`.
    """
    first = words[0]
    if "/" not in first and os.path.isfile(first):  # noqa: PTH113
        from shutil import which

        if which(first) is None:
            return None, script_text(first), list(words[1:])
    return list(words), None, []


def script_text(path: str) -> str:
    """The text of a script file; raises Invalid if it is not one."""
    with open(path, "rb") as file:  # noqa: PTH123
        text = file.read(1_048_577)
    if len(text) > 1_048_576 or b"\0" in text:
        raise Invalid(f"{path} is not a script; run a program of your own as ./{path}")
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise Invalid(f"{path} is not UTF-8; run it as a command, such as bash {path}") from None


def _job_options(options: RunOptions, args: list[str]) -> JobOptions:
    return JobOptions(
        name=options.name,
        args=args,
        env=env_of(options.env),
        image=options.image,
        outputs=options.output_files,
        cpus=options.cpus,
        memory=options.memory,
        devices=options.device,
        nodes=options.nodes,
        tasks=options.tasks,
        time_limit=options.time,
        array=options.array,
        after=options.after,
        retries=options.retries,
        priority=options.priority,
        deadline=deadline_of(options.deadline),
        sites=options.site,
        where=options.where,
        separate=True,
    )


def env_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """`K=V` as given; `K` alone takes the value it has here."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            if name not in os.environ:
                raise Invalid(f"--env {name}: there is no such variable here; write {name}=VALUE")
            value = os.environ[name]
        found[name] = value
    return found


def deadline_of(text: str | None) -> str | None:
    """A time as given; a duration counts from now."""
    if text is None or "T" in text[1:] or (text[:4].isdigit() and "-" in text):
        return text
    from datetime import timedelta

    from isthmus._kit.clock import timestamp, utcnow
    from isthmus._kit.durations import parse_duration

    try:
        return timestamp(utcnow() + timedelta(seconds=parse_duration(text)))
    except ValueError:
        raise Invalid(f"--deadline {text!r} is neither a time (2026-01-31T18:00:00Z) nor a duration (2h)") from None


class _Run:
    """One job being followed to its end."""

    def __init__(self, client: Client, job: JobHandle, options: RunOptions) -> None:
        self._client, self._job, self._options = client, job, options
        self._done = threading.Event()
        self._open = 2
        self._heard = False
        self._broken = False
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self._cursors = [self._cursor("stdout"), self._cursor("stderr")]
        self._cancelled = 0

    def _cursor(self, stream: str) -> LogCursor:
        return LogCursor(self._job.namespace, self._job.name, follow=True, stream=stream, attempt=0, pinned=False)

    def follow(self) -> int:
        """Until the end; answers the exit code."""
        signal.signal(signal.SIGTERM, _terminated)
        for cursor, descriptor in zip(self._cursors, (1, 2), strict=True):
            threading.Thread(target=self._copy, args=(cursor, descriptor), daemon=True).start()
        told = False
        while not self._done.is_set():
            try:
                if not self._done.wait(None if told else _PATIENCE) and not told:
                    told = True
                    threading.Thread(target=self._tell_why, daemon=True).start()
            except KeyboardInterrupt as interrupt:
                if self._interrupted(by_term=isinstance(interrupt, _Terminated)):
                    return INTERRUPTED if self._cancelled else 0
        return self._end()

    def _copy(self, cursor: LogCursor, descriptor: int) -> None:
        try:
            for chunk in self._client.read_log(cursor):
                self._heard = True
                write_all(descriptor, chunk)
        except BrokenPipeError:
            self._broken = True
            self._done.set()
        except Exception as error:  # noqa: BLE001 - raised again in the main thread
            self._error = self._error or error
            self._done.set()
        with self._lock:
            self._open -= 1
            if self._open == 0:
                self._done.set()

    def _tell_why(self) -> None:
        """While the job waits, say why, each reason once."""
        said = ""
        cursor = WatchCursor(JOBS, self._job.namespace, None, f"metadata.name={self._job.name}")
        try:
            for event in self._client.read_watch(cursor):
                status = event.object.get("status") or {}
                if status.get("phase") not in _WAITING or self._done.is_set() or self._heard:
                    said = said if status.get("phase") in _WAITING else ""
                    continue
                message = str(status.get("message") or "")
                why = f"waits: {message}" if message else f"is {str(status.get('phase')).lower()}"
                if why != said and not self._options.quiet:
                    say(f"job {self._job.name} {why}")
                said = why
        except IsthmusError as error:
            if not self._done.is_set() and not self._options.quiet:
                say(f"cannot tell why job {self._job.name} waits: {error.message}")

    def _interrupted(self, by_term: bool) -> bool:
        """Ctrl-C, or SIGTERM: ask, or cancel. Whether to leave at once."""
        if self._cancelled:
            say(f"leaving; job {self._job.name} may need a moment more to end")
            return True
        choice = "c" if by_term else ask_detach_or_cancel(self._job.name)
        if choice == "d":
            say(f"detached; follow it with `isthmus logs -f {self._job.name}`")
            return True
        if choice == "c":
            self._cancelled += 1
            self._job.cancel()
            say(f"cancelling job {self._job.name}; Ctrl-C once more leaves without waiting")
        return False

    def _end(self) -> int:
        if self._broken:
            # Running here, the command would have been ended by SIGPIPE.
            self._job.cancel()
            return BROKEN_PIPE
        if self._error is not None:
            say(f"job {self._job.name} goes on; follow it with `isthmus logs -f {self._job.name}`")
            return report(self._error)
        final = next((c.job for c in self._cursors if c.job), None)
        if final is not None:
            self._job.object = dict(final)
        if not self._job.finished:
            self._job.wait()
        return finish(self._client, self._job, self._options)


class _Array:
    """An array being followed: a line whenever its counts change."""

    def __init__(self, client: Client, job: JobHandle, options: RunOptions) -> None:
        self._client, self._job, self._options = client, job, options

    def follow(self) -> int:
        """Until the end; answers the exit code."""
        signal.signal(signal.SIGTERM, _terminated)
        cancelled = False
        while True:
            try:
                self._watch()
                return finish(self._client, self._job, self._options)
            except KeyboardInterrupt as interrupt:
                if cancelled:
                    return INTERRUPTED
                choice = "c" if isinstance(interrupt, _Terminated) else ask_detach_or_cancel(self._job.name)
                if choice == "d":
                    return 0
                if choice == "c":
                    cancelled = True
                    self._job.cancel()

    def _watch(self) -> None:
        said = ""
        cursor = WatchCursor(JOBS, self._job.namespace, None, f"metadata.name={self._job.name}")
        for event in self._client.read_watch(cursor):
            self._job.object = event.object
            counts = self._job.status.get("array") or {}
            line = ", ".join(f"{counts.get(k, 0)} {k}" for k in ("active", "succeeded", "failed", "cancelled"))
            if line != said and counts.get("total") and not self._options.quiet:
                say(f"array {self._job.name}: {line} of {counts.get('total', 0)}")
            said = line
            if self._job.finished:
                return


class _Terminated(KeyboardInterrupt):
    """SIGTERM: as Ctrl-C, but nobody is there to be asked."""


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise _Terminated


def ask_detach_or_cancel(name: str) -> str:
    """`d`, `c`, or empty to go on. Without a terminal: cancel. A second Ctrl-C: cancel."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return "c"
    try:
        sys.stderr.write(f"\nisthmus: job {name} is still there. [d]etach, [c]ancel, or Enter to go on? ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower()[:1]
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return "c"


def finish(client: Client, job: JobHandle, options: RunOptions) -> int:
    """Bring the outputs, say what the exit code alone does not, and answer it."""
    if options.output_files and job.status.get("outputs"):
        paths = client.download(job.name, namespace=job.namespace)
        if not options.quiet:
            say(f"brought back {len(paths)} file{'s' if len(paths) != 1 else ''}")
    if (told := unusual_end(job.object)) and not options.quiet:
        say(f"job {job.name} {told}", "33")
    return exit_code_of(job.object)


def unusual_end(job: Object) -> str:
    """What to say of a job whose exit code does not tell the story; empty for an ordinary end."""
    status = job.get("status") or {}
    phase, message = str(status.get("phase")), str(status.get("message") or "")
    if phase == "Succeeded" or (phase == "Failed" and status.get("exitCode") and not status.get("signal")):
        return ""
    return f"{phase.lower()}: {message}" if message else phase.lower()
