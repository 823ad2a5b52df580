"""Draw docs/images/terminal.svg: a real session against a real server, as the terminal shows it."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from isthmus.testing.servers import running_server

TRAIN = """\
import time
for epoch in range(1, 4):
    time.sleep(0.2)
    print(f"epoch {epoch}  loss {1 / epoch:.3f}", flush=True)
"""
SESSION = (
    "isthmus run -- python3 train.py",
    "isthmus run --name sweep --array 0-3 --cpus 0.5 -- sh -c 'echo seed $ISTHMUS_ARRAY_INDEX'",
    "isthmus run --detach --name on-the-board --device akida -- python3 train.py",
    "sleep 1; isthmus jobs",
    "isthmus sites",
)


def main() -> None:
    """Run the session and write the picture."""
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder) / "data") as server:
        work = Path(folder) / "work"
        work.mkdir()
        (work / "train.py").write_text(TRAIN)
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "ISTHMUS_URL": server.url,
            "ISTHMUS_TOKEN": server.token,
            "COLUMNS": "100",
            "FORCE_COLOR": "1",
        }
        for line in SESSION:
            shown = line.removeprefix("sleep 1; ")
            console.print(Text("$ ", style="bold green") + Text(shown, style="bold"))
            done = subprocess.run(
                line, shell=True, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            console.print(Text.from_ansi(done.stdout.rstrip()))
            console.print()
    svg = console.export_svg(title="isthmus")
    # The fonts of the reader's machine will do: a picture asks no foreign host for anything.
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg).replace("Fira Code", "ui-monospace, DejaVu Sans Mono")
    (Path(__file__).parent / "images" / "terminal.svg").write_text(svg)


if __name__ == "__main__":
    main()
