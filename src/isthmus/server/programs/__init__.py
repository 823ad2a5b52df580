"""The programs of the built-in templates. They run in jobs, with nothing but the Python that they find there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
PORT = 8000
_JUPYTER = """#!/bin/sh
if ! command -v jupyter >/dev/null; then
  echo "isthmus: jupyter was not found; install JupyterLab at the site, or use a template with an image that has it" >&2
  exit 127
fi
exec jupyter lab --no-browser --ip=127.0.0.1 --port=8000 --ServerApp.port_retries=0 --IdentityProvider.token= \\
  --ServerApp.allow_remote_access=True --ServerApp.root_dir=.
"""
_CODE = """#!/bin/sh
if ! command -v code-server >/dev/null; then
  echo "isthmus: code-server was not found; install it at the site, or make a template with an image that has it" >&2
  exit 127
fi
exec code-server --auth none --disable-telemetry --disable-update-check --bind-addr 127.0.0.1:8000 .
"""


def templates() -> dict[str, dict[str, Any]]:
    """The built-in templates by their names, each as its spec."""
    limits = {"idleAfter": "2h", "longestLife": "24h", "port": PORT}
    return {
        "terminal": {
            "title": "Terminal",
            "description": "a shell in the browser",
            "script": (_HERE / "terminal.py").read_text(),
            **limits,
        },
        "http": {
            "title": "Folder",
            "description": "serves the folder that was sent along; for tests and demonstrations",
            "script": f"#!/bin/sh\nexec python3 -u -m http.server {PORT} --bind 127.0.0.1\n",
            **limits,
        },
        "jupyterlab": {
            "title": "JupyterLab",
            "description": "notebooks; needs jupyter at the site",
            "script": _JUPYTER,
            **limits,
        },
        "vscode": {
            "title": "VS Code",
            "description": "an editor; needs code-server at the site",
            "script": _CODE,
            **limits,
        },
    }
