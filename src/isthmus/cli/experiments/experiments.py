"""`isthmus experiments`, `experiment`: comparisons after they were started, as table, CSV, JSON and report."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.columns import columns_of
from isthmus.cli.failures import say
from isthmus.cli.options import Everywhere, Format, Labels, Namespace, Output, Token, Url, client_for, format_of
from isthmus.cli.tables import birth, show, table, write
from isthmus.client.requests import Object
from isthmus.errors import Invalid

from .comparisons import csv_of, table_of


class ReportFormat(StrEnum):
    """How a comparison is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    YAML = "yaml"
    HTML = "html"


Form = Annotated[
    ReportFormat | None,
    typer.Option("--output", "-o", help="How to write it.", show_default="table, or by FILE's ending"),
]
File = Annotated[str | None, typer.Argument(metavar="FILE", help="Where to write it.", show_default="standard output")]


def experiments(
    selector: Labels = None,
    everywhere: Everywhere = False,
    namespace: Namespace = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """List your experiments, the newest last.

    \b
    Example:
      isthmus experiments
    """
    form = format_of(output)
    with client_for(url, token, namespace) as client:
        found = client.list("experiments", labels=selector, everywhere=everywhere)
    found.sort(key=birth)
    if not found and form in (Format.TABLE, Format.WIDE):
        say("there are no experiments; start one with `isthmus compare --devices a,b -- COMMAND`")
        return
    show(found, columns_of("Experiment", everywhere), form)


def experiment(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the experiment.")],
    file: File = None,
    form: Form = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="End it: nothing new is started, what runs is ended.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is over.")] = False,
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show one experiment: the comparison of its cells.

    As a table, as CSV or JSON, or as an HTML report with plots.

    \b
    Examples:
      isthmus experiment boards
      isthmus experiment boards -o csv > boards.csv
      isthmus experiment boards report.html
    """
    with client_for(url, token, namespace) as client:
        if cancel:
            client.patch("experiments", name, {"spec": {"intent": "Cancel"}})
        found = client.wait_experiment(name) if wait or cancel else client.get("experiments", name)
    deliver(found, form or form_of(file), file)


def form_of(file: str | None) -> ReportFormat:
    """The form that a file's ending asks for."""
    if file is None or file == "-":
        return ReportFormat.TABLE
    ending = Path(file).suffix.lstrip(".").lower()
    if ending in ("csv", "json", "yaml", "html"):
        return ReportFormat(ending)
    raise Invalid(f"{file}: say how to write it with -o csv, json, yaml or html, or end its name in one of them")


def deliver(found: Object, form: ReportFormat, file: str | None) -> None:
    """Write an experiment, to a file or to standard output."""
    text = text_of(found, form)
    if file is None or file == "-":
        if text is None:
            show_table(found)
        else:
            sys.stdout.write(text)
        return
    if text is None:
        raise Invalid("a table is for the terminal; write csv, json or html into a file")
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Invalid(f"{file} cannot be written: {error.strerror}; choose another place") from None
    say(f"wrote {file}")


def text_of(found: Object, form: ReportFormat) -> str | None:
    """The experiment in a form; None for a table, which depends on the terminal."""
    if form is ReportFormat.CSV:
        return csv_of(found)
    if form is ReportFormat.HTML:
        from .reports import html_report

        return html_report(found)
    if form is ReportFormat.TABLE:
        return None
    import contextlib
    import io

    held = io.StringIO()
    with contextlib.redirect_stdout(held):
        write(found, Format(form.value))
    return held.getvalue()


def show_table(found: Object) -> None:
    """The comparison on a terminal, and what there is to say about it."""
    status = found.get("status") or {}
    titles, rows = table_of(found)
    if rows:
        table(titles, rows)
        sys.stdout.flush()  # before what is said on standard error
    runs = status.get("runs") or {}
    reported = f"{found['metadata']['name']}: {status.get('phase', 'Pending')}, {runs.get('succeeded', 0)} of "
    reported += f"{runs.get('total', 0)} runs succeeded" + (f"; {status['message']}" if status.get("message") else "")
    say(reported)
