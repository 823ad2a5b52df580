"""What `isthmus run` does: send, submit, show both streams live, end like the command would have ended here.

Two threads copy the two streams; the main thread waits, and answers Ctrl-C. Why a job waits is reported on standard
error once it has waited for a second. Standard output belongs to the job alone.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from isthmus.cli.failures import BROKEN_PIPE, INTERRUPTED, report, say, write_all
from isthmus.cli.naming import PatientClient
from isthmus.client.handles import exit_code_of
from isthmus.client.jobs import JobOptions, job_manifest, with_stdin
from isthmus.client.places import JOBS
from isthmus.client.requests import Object
from isthmus.client.resuming import LogCursor, WatchCursor
from isthmus.client.sync import HERE, Client, JobHandle
from isthmus.errors import Forbidden, Invalid, IsthmusError, NotFound

from .interrupting import GLANCE, Terminated, ask_detach_or_cancel, noted, raised, terminated
from .run_words import SCRIPTS, RunOptions, is_script
from .stdin_reading import standard_input
from .waiting import ANY_SITE, in_background, report_where, where

_PYTHON = ".py"
_TASK_FILES = (".yaml", ".yml", ".json")
_FILES = (*SCRIPTS, *_TASK_FILES)
_PYTHON_LINE = "#!/usr/bin/env python3\n"


def run(options: RunOptions) -> int:
    """Run it, and answer the exit code."""
    with PatientClient(options.url, options.token, options.namespace) as client:
        if options.output and not options.detach:
            raise Invalid("-o says how --detach writes the job; name the files to bring back with --outputs PATTERN")
        return accompany(client, start(client, options), options)


def accompany(client: Client, job: JobHandle, options: RunOptions) -> int:
    """Follow a submitted job to its end, or leave it; answers the exit code."""
    if options.detach:
        _write(job, options.output)
        if not options.quiet:
            if _is_demanding(options) and (why := never_starts(client, job)):
                say(f"{why}; it waits until one can", "33")
            name = address(job, options)
            say(f"follow it with `isthmus logs -f {name}`, end it with `isthmus cancel {name}`")
        return 0
    if options.array or job.object["spec"].get("array"):
        return _Array(client, job, options).follow()
    return _Run(client, job, options).follow()


def _is_demanding(options: RunOptions) -> bool:
    """Whether more is asked for than every site has: only then it is worth a question whether any site can run it."""
    places = options.site or options.device or options.any_device or options.where or options.force
    programs = options.requirements or options.image
    return bool(programs or options.cpus or options.memory or options.nodes or places)


def never_starts(client: Client, job: JobHandle) -> str:
    """Why no site can run the job as sites are now; empty if one can, or if nobody says."""
    from isthmus._kit.reasons import NO_SITE, read_reasons

    try:
        reason = read_reasons(str(client.plan(job.name, namespace=job.namespace).get("message") or "")).headline
    except IsthmusError:
        return ""
    return reason if reason.startswith(NO_SITE) else ""


def address(job: JobHandle, options: RunOptions) -> str:
    """The words that name the job in another command: its tenant too, where it was named."""
    return f"{job.name} -n {options.namespace}" if options.namespace else job.name


def _write(job: JobHandle, output: str | None) -> None:
    if output in (None, "table", "wide"):
        sys.stdout.write(job.name + "\n")
        return
    from isthmus.cli.options import Format
    from isthmus.cli.tables import show

    show([job.object], (), Format(output), single=True)


def start(client: Client, options: RunOptions) -> JobHandle:
    """Send the folder and submit the job."""
    manifest = None
    if options.words[0].endswith(_TASK_FILES) and os.path.isfile(options.words[0]):  # noqa: PTH113
        options, manifest = _read_task(options)
    if manifest is not None:
        return client.submit(manifest)
    if options.gpus:
        from .gpus import gpus_as_device

        options = options._replace(device=(*options.device, gpus_as_device(client, options.gpus)))
    if not options.force:
        check_there(options.words[0])
    files = what_to_send(options)
    command, script, args = what_to_run(options.words, here=files is not None and options.files in (None, "."))
    said = _job_options(options, args)
    if not options.force and (
        options.site or options.device or options.any_device or options.after or options.outputs_of
    ):
        from .name_checks import check_names

        check_names(client, [job_manifest(command, script, None, said)], namespace=options.namespace)
    from .progress import sending

    notice = None if options.quiet else say
    try:
        with standard_input(options) as stdin, sending(options.quiet) as progress:
            if script is None or "#SBATCH" not in script:
                return client.run(
                    command,
                    script=script,
                    files=files,
                    stdin=stdin,
                    progress=progress,
                    notice=notice,
                    force=True,
                    **said,
                )
            from isthmus.client.image_files import image_files

            from .batches import honour

            image = image_files(options.image)
            said["image"] = image.name if image else options.image
            manifest = job_manifest(None, script, None, said)
            job = with_stdin(honour(client, manifest, options.words[0], quiet=options.quiet), stdin)
            sent = client.send_folder(files, image=image, stdin=stdin, progress=progress, notice=notice)
            if sent["count"]:
                job["spec"]["files"] = sent
            return client.submit(job)
    except Forbidden as error:
        from isthmus.cli.identity.roles import needs_member

        with needs_member(client, "running a job"):
            raise error from None


def _read_task(options: RunOptions) -> tuple[RunOptions, Object | None]:
    """A task file: the options with what it says; or the one job whose whole manifest it is."""
    from isthmus.cli.manifests import read_manifests

    from .tasks import is_manifest, with_task

    file = options.words[0]
    found = read_manifests([file])
    if len(found) != 1:
        raise Invalid(f"{file} holds {len(found)} documents; isthmus run takes one job, use `isthmus submit {file}`")
    if not is_manifest(found[0]):
        return with_task(options, found[0]), None
    if found[0].get("kind") != "Job":
        raise Invalid(f"{file} is not a job; use `isthmus apply -f {file}`")
    return options, found[0]


def what_to_send(options: RunOptions) -> str | None:
    """The folder to send along, or None."""
    if options.files and options.no_files:
        raise Invalid("--files and --no-files contradict each other; give one")
    if options.no_files:
        return None
    if options.files:
        # Named outright: it is sent whatever its size.
        return os.getcwd() if options.files == HERE else options.files  # noqa: PTH109
    from isthmus.client.folders import is_everything

    if not is_everything(HERE):
        return HERE
    if not options.quiet:
        say("nothing is sent along from here; change to the folder of your work, or name one with --files DIR")
    return None


def what_to_run(words: tuple[str, ...], *, here: bool) -> tuple[list[str] | None, str | None, list[str]]:
    """A command, or the text of a script and its arguments.

    A first word that names a file here and no program on the PATH is a script: `isthmus run job.sh`. When this folder
    is sent along (`here`), a Python script is called by its name there, so that it finds the modules beside it.
    """
    first = words[0]
    if not is_script(first):
        return list(words), None, []
    text = script_text(first)
    if here and first.endswith(_PYTHON):
        named = text.split("\n", 1)[0][2:].strip().split(None, 1)
        interpreter = ["python3"] if text.startswith(_PYTHON_LINE) or not named else named
        return [*interpreter, *words], None, []
    return None, text, list(words[1:])


def check_there(first: str) -> None:
    """Raise NotFound or Invalid for a first word that can only mean a file of this folder, and is none."""
    if first.endswith(_FILES) and os.path.isdir(first):  # noqa: PTH112
        raise Invalid(f"{first} is a folder; name the script to run, such as {first.rstrip('/')}/job.sh")
    if first.endswith(_FILES) and "/" not in first and not os.path.exists(first):  # noqa: PTH110
        raise NotFound(f"there is no file {first} here; --force runs it as a program of the site")


def script_text(path: str) -> str:
    """The text of a script file, with its interpreter if it is Python; raises Invalid if it is not a script."""
    with open(path, "rb") as file:  # noqa: PTH123
        text = file.read(1_048_577)
    if len(text) > 1_048_576 or b"\0" in text:
        raise Invalid(f"{path} is not a script; run a program of your own as ./{path}")
    try:
        found = text.decode()
    except UnicodeDecodeError:
        raise Invalid(f"{path} is not UTF-8; run it as a command, such as bash {path}") from None
    return f"{_PYTHON_LINE}{found}" if path.endswith(_PYTHON) and not found.startswith("#!") else found


def _job_options(options: RunOptions, args: list[str]) -> JobOptions:
    from isthmus.client.requirements import read_requirements

    return JobOptions(
        name=options.name,
        args=args,
        env=env_of(options.env),
        image=options.image,
        requirements=read_requirements(options.requirements),
        outputs=options.outputs,
        cpus=options.cpus,
        memory=options.memory,
        devices=options.device,
        nodes=options.nodes,
        tasks=options.tasks,
        time_limit=options.time,
        array=options.array,
        after=options.after,
        outputs_of=options.outputs_of,
        retries=options.retries,
        priority=options.priority,
        deadline=deadline_of(options.deadline),
        late_cost_per_hour=options.late_cost,
        any_devices=options.any_device,
        expect=options.expect,
        restartable=options.restartable,
        checkpoint=options.checkpoint,
        sites=[] if ANY_SITE in options.site else options.site,
        where=options.where,
        separate=not same_place(),
    )


def same_place() -> bool:
    """Whether standard output and standard error are the same terminal, pipe or file: then their order matters."""
    try:
        out, err = os.fstat(1), os.fstat(2)
    except OSError:  # one of them is closed
        return False
    return (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)


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
        self._may_write = threading.Event()
        self._may_write.set()
        self._heard = False
        self._broken = False
        self._error: Exception | None = None
        self._lock = threading.Lock()
        separate = (job.object.get("spec") or {}).get("streams") == "Separate"
        self._cursors = [self._cursor(stream) for stream in (("stdout", "stderr") if separate else ("stdout",))]
        self._open = len(self._cursors)
        self._cancelled = 0
        self._placed = threading.Event()  # whether its place was reported, and why there

    def _cursor(self, stream: str) -> LogCursor:
        return LogCursor(self._job.namespace, self._job.name, follow=True, stream=stream, attempt=0, pinned=False)

    def follow(self) -> int:
        """Until the end; answers the exit code."""
        signal.signal(signal.SIGTERM, terminated)
        with noted() as signals:
            self._start()
            while not self._done.wait(GLANCE):
                if signals and self._interrupted(by_term=signals.pop(0) == signal.SIGTERM):
                    return INTERRUPTED if self._cancelled else 0
        return self._end()

    def _start(self) -> None:
        for cursor, descriptor in zip(self._cursors, (1, 2), strict=False):
            threading.Thread(target=self._copy, args=(cursor, descriptor), daemon=True).start()
        in_background(self._client, self._job.namespace, self._job.name, self._wants_to_know)
        if ANY_SITE in self._options.site and not self._options.quiet:
            words = (self._client, self._job.namespace, self._job.name, self._placed)
            threading.Thread(target=report_where, args=words, daemon=True).start()

    def _copy(self, cursor: LogCursor, descriptor: int) -> None:
        try:
            for chunk in self._client.read_log(cursor):
                self._heard = True
                self._may_write.wait()
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

    def _wants_to_know(self) -> bool:
        """Whether to say why the job waits."""
        return not (self._options.quiet or self._heard or self._done.is_set()) and self._may_write.is_set()

    def _interrupted(self, by_term: bool) -> bool:
        """Ctrl-C, or SIGTERM: ask, or cancel. Whether to leave at once."""
        if self._cancelled:
            say(f"leaving; job {self._job.name} may need a moment more to end")
            return True
        self._may_write.clear()  # not into the line of the question
        with raised():
            choice = "c" if by_term else ask_detach_or_cancel(self._job.name)
            if choice == "d":
                say(f"detached; follow it with `isthmus logs -f {address(self._job, self._options)}`")
                return True
            if choice == "c":
                self._cancelled += 1
                self._job.cancel()
                say(f"cancelling job {self._job.name}; Ctrl-C once more leaves without waiting")
        self._may_write.set()
        return False

    def _end(self) -> int:
        if self._broken:
            # Running here, the command would have been ended by SIGPIPE.
            self._job.cancel()
            return BROKEN_PIPE
        if self._error is not None:
            name = address(self._job, self._options)
            say(f"job {self._job.name} goes on; follow it with `isthmus logs -f {name}`")
            return report(self._error)
        final = next((c.job for c in self._cursors if c.job), None)
        if final is not None:
            self._job.object = dict(final)
        if not self._job.finished:
            self._job.wait()
        if ANY_SITE in self._options.site and not self._options.quiet and not self._placed.is_set():
            self._placed.set()
            if reported := where(self._job.object):
                say(reported)
        return finish(self._client, self._job, self._options)


class _Array:
    """An array being followed: a line whenever its counts change."""

    def __init__(self, client: Client, job: JobHandle, options: RunOptions) -> None:
        self._client, self._job, self._options = client, job, options

    def follow(self) -> int:
        """Until the end; answers the exit code."""
        signal.signal(signal.SIGTERM, terminated)
        cancelled = False
        while True:
            try:
                self._watch()
                return finish(self._client, self._job, self._options)
            except KeyboardInterrupt as interrupt:
                if cancelled:
                    return INTERRUPTED
                choice = "c" if isinstance(interrupt, Terminated) else ask_detach_or_cancel(self._job.name)
                if choice == "d":
                    return 0
                if choice == "c":
                    cancelled = True
                    self._job.cancel()
                    signal.signal(signal.SIGTERM, terminated)

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


def finish(client: Client, job: JobHandle, options: RunOptions) -> int:
    """Bring the outputs, say what the exit code alone does not, and answer it."""
    if options.outputs or (job.object.get("spec") or {}).get("logFiles"):
        reported = bring(client, job)
        if not options.quiet:
            say(reported)
    if (reported := unusual_end(job.object)) and not options.quiet:
        say(f"job {job.name} {reported}", "33")
    return exit_code_of(job.object)


def bring(client: Client, job: JobHandle) -> str:
    """Bring back what was to be kept, and say how much that was."""
    try:
        paths = client.download(job.name, namespace=job.namespace)
        if "logFiles" in (job.object.get("spec") or {}):
            from .batches import gather

            paths = gather(job.object, paths)
    except NotFound:
        paths = []
    if not paths:
        patterns = " ".join((job.object.get("spec") or {}).get("outputs") or ())
        return f"nothing was brought back: no file of the job matches {patterns}"
    return f"brought back {len(paths)} file{'s' if len(paths) != 1 else ''}"


def unusual_end(job: Object) -> str:
    """What to say of a job whose exit code does not say everything; empty for an ordinary end."""
    status = job.get("status") or {}
    phase, message = str(status.get("phase")), str(status.get("message") or "")
    if status.get("reason") == "StartFailed" and ((job.get("spec") or {}).get("command") or [""])[0] == "python":
        message = "there is no program python where it ran; write python3"
    elif phase == "Succeeded":
        return ""
    elif phase == "Failed" and status.get("exitCode") and not status.get("signal"):
        ordinary, _, message = message.partition(f"ended with exit code {status['exitCode']}. ")
        if ordinary or not message:
            return ""
    return f"{phase.lower()}: {message}" if message else phase.lower()
