"""`isthmus compare`: one command on several devices, or with several parameters, and the table of what came out."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.completion import complete_devices, complete_sites
from isthmus.cli.failures import INTERRUPTED, say
from isthmus.cli.jobs.interrupting import Terminated, ask_detach_or_cancel, terminated
from isthmus.cli.jobs.run_words import RunOptions
from isthmus.cli.options import Force, Namespace, Token, Url, said_before
from isthmus.client.experiments import CompareOptions
from isthmus.client.requests import Object
from isthmus.errors import Invalid

from .comparisons import progress_line, went_well
from .experiments import ReportFormat, deliver

if TYPE_CHECKING:
    from isthmus.client.sync import Client

_METHODS = {"grid": "Grid", "random": "Random", "tpe": "TPE"}


def compare(
    words: Annotated[list[str], typer.Argument(metavar="COMMAND…", help="Command and arguments, or a script file.")],
    devices: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Classes; cpu: no device.", autocompletion=complete_devices)
    ] = None,
    sites: Annotated[str | None, typer.Option(metavar="A,B,…", autocompletion=complete_sites)] = None,
    images: Annotated[str | None, typer.Option(metavar="A,B,…", help="Container images.")] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param", "-p", metavar="NAME=1,2,3", help="Or a range to search: NAME=0.001..1:log, NAME=1..9:int."
        ),
    ] = None,
    repeat: Annotated[
        int | None, typer.Option("--repeat", "-r", min=1, help="Runs of each cell.", show_default="1")
    ] = None,
    parallel: Annotated[int | None, typer.Option(min=1, help="So many runs at once.")] = None,
    search: Annotated[str, typer.Option(help="How parameters are chosen: grid, random, tpe.")] = "grid",
    trials: Annotated[int | None, typer.Option(min=1, help="Points that random and tpe try.")] = None,
    prune: Annotated[bool, typer.Option("--prune", help="With tpe: end trials early that fall behind.")] = False,
    minimize: Annotated[
        str | None, typer.Option(metavar="VALUE", help="Objective: reported, or runTime, energy…")
    ] = None,
    maximize: Annotated[str | None, typer.Option(metavar="VALUE", help="The same, the other way.")] = None,
    check_file: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Must be the same as the reference's.")
    ] = None,
    check_value: Annotated[
        list[str] | None, typer.Option(metavar="NAME[:0.01]", help="Reported; may be off by so much.")
    ] = None,
    reference: Annotated[str | None, typer.Option(metavar="DEVICE", show_default="the first")] = None,
    report_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="JSON with values, written by the command.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the experiment.", show_default="made of the command")
    ] = None,
    files: Annotated[str | None, typer.Option(metavar="DIR", help="Folder to send along, whatever its size.")] = None,
    no_files: Annotated[bool, typer.Option("--no-files", help="Send nothing along.")] = False,
    outputs: Annotated[
        list[str] | None,
        typer.Option("--outputs", "--keep", metavar="PATTERN", help="Files to bring back of each run."),
    ] = None,
    cpus: Annotated[str | None, typer.Option("--cpus", "-c", show_default="1")] = None,
    memory: Annotated[str | None, typer.Option("--memory", "-m")] = None,
    time: Annotated[str | None, typer.Option("--time", "-t", help="End a run after this long.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="K[=V]")] = None,
    where: Annotated[str | None, typer.Option(metavar="EXPRESSION", help="Over labels of sites.")] = None,
    force: Force = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Write its name and leave it running.")] = False,
    output: Annotated[
        ReportFormat, typer.Option("--output", "-o", help="How to write the result.")
    ] = ReportFormat.TABLE,
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Run a command on several devices or with several parameters, and compare.

    Time, energy, memory, reported values and correctness are set side by side.

    {name} in the command becomes a parameter's value, {device} the device; the variables PARAM_name and PARAM_device
    hold them too. Lines such as  isthmus: {"accuracy": 0.91}  of the output become columns.

    \b
    Examples:
      isthmus compare --devices jetson,akida,cpu -r 3 -- python3 run.py
      isthmus compare --devices cpu,akida --check-value accuracy:0.01 -- python3 infer.py
      isthmus compare -p lr=0.1,0.01,0.001 --maximize accuracy -- python3 train.py --lr {lr}
      isthmus compare -p lr=0.0001..1:log --search tpe --trials 30 --prune --minimize loss -- python3 train.py

    Exit codes: 0 if every run succeeded and agrees with the reference, else 1.
    """
    from isthmus.cli.identity.roles import needs_member
    from isthmus.cli.jobs.name_checks import check_named
    from isthmus.cli.jobs.running import env_of, what_to_run, what_to_send
    from isthmus.client.sync import Client

    if search.lower() not in _METHODS:
        raise Invalid(f"--search {search!r} is not one of grid, random, tpe")
    said = said_before()
    folder = what_to_send(RunOptions(files=files, no_files=no_files))
    command, script, args = what_to_run(tuple(words), here=folder is not None and files in (None, "."))
    options = CompareOptions(
        name=name,
        devices=_words(devices),
        sites=_words(sites),
        images=_words(images),
        parameters=dict(read_parameter(text) for text in param or ()),
        repetitions=repeat,
        parallel=parallel,
        method=_METHODS[search.lower()],
        trials=trials,
        prune=prune,
        minimize=minimize,
        maximize=maximize,
        reference=reference,
        check_files=check_file or (),
        check_values=dict(read_tolerance(text) for text in check_value or ()),
        report_file=report_file,
        args=args,
        env=env_of(tuple(env or ())),
        outputs=outputs or (),
        cpus=cpus,
        memory=memory,
        time_limit=time,
        where=where,
    )
    with (
        Client(url or said.url, token or said.token, namespace or said.namespace) as client,
        needs_member(client, "running an experiment"),
    ):
        if not force:
            check_named(client, [("sites", site) for site in options["sites"]] + _classes_in(options["devices"]))
        made = client.compare(command, script=script, files=folder, notice=say, force=True, **options)
        if detach:
            sys.stdout.write(made["metadata"]["name"] + "\n")
            return
        raise typer.Exit(_follow(client, made, output))


def _follow(client: Client, made: Object, output: ReportFormat) -> int:
    """Report how far it is until it is over, then show the table."""
    name, home = made["metadata"]["name"], made["metadata"]["namespace"]
    signal.signal(signal.SIGTERM, terminated)
    while True:
        try:
            found = _progress(client, name, home)
        except KeyboardInterrupt as interrupt:
            choice = "c" if isinstance(interrupt, Terminated) else ask_detach_or_cancel(name, "experiment")
            if choice == "d":
                say(f"detached; look at it with `isthmus experiment {name}`")
                return 0
            if choice == "c":
                client.patch("experiments", name, {"spec": {"intent": "Cancel"}}, namespace=home)
                say(f"cancelled; what was measured stays: isthmus experiment {name}")
                return INTERRUPTED
            continue
        deliver(found, output, None)
        return 0 if went_well(found) else 1


def _progress(client: Client, name: str, home: str) -> Object:
    live = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    reported = ""
    for event in client.watch("experiments", fields=f"metadata.name={name}", namespace=home):
        if event.type == "DELETED":
            raise Invalid(f"experiment {name} was deleted before it ended")
        line = f"{name}: {progress_line(event.object)}"
        if line != reported and (event.object.get("status") or {}).get("runs", {}).get("total"):
            if live:
                sys.stderr.write(f"\r\x1b[K{line[:200]}")
                sys.stderr.flush()
            else:
                say(line)
        reported = line
        if (event.object.get("status") or {}).get("phase") in ("Succeeded", "Failed", "Cancelled"):
            if live:
                sys.stderr.write("\r\x1b[K")
            return event.object
    raise Invalid(f"experiment {name} cannot be followed")  # a watch without a time limit does not end


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _classes_in(devices: Sequence[str]) -> list[tuple[str, str]]:
    """The device classes that are named; `cpu` stands for a plain processor, and needs none."""
    return [("deviceclasses", name) for device in devices if (name := device.partition(":")[0]) != "cpu"]


def read_parameter(text: str) -> tuple[str, Any]:
    """`lr=0.1,0.01`, or `lr=0.001..1:log`."""
    name, equals, values = text.partition("=")
    if not name or not equals or not values:
        raise Invalid(f"--param {text!r} cannot be read; write NAME=1,2,3, or NAME=0.001..1:log to search")
    if ".." not in values:
        return name, _words(values)
    span, _, kind = values.partition(":")
    low, _, high = span.partition("..")
    if kind not in ("", "log", "int"):
        raise Invalid(f"--param {text!r}: {kind!r} is not log or int")
    try:
        found: dict[str, Any] = {"min": float(low), "max": float(high)}
    except ValueError:
        raise Invalid(f"--param {text!r}: a range has two numbers, such as {name}=0.001..1") from None
    return name, found | ({"log": True} if kind == "log" else {"integer": True} if kind == "int" else {})


def read_tolerance(text: str) -> tuple[str, float]:
    """`loss:0.01`, or `loss` for exactly the same."""
    name, colon, allowed = text.partition(":")
    try:
        return name, float(allowed) if colon else 0.0
    except ValueError:
        raise Invalid(f"--check-value {text!r}: {allowed!r} is not a number; write {name}:0.01") from None
