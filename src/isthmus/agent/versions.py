"""The versions of the agent on a machine, and the small program that starts the present one.

| path, in the agent's folder | what |
| --- | --- |
| `versions/<version>-<build>/` | a virtual environment for each |
| `current` | a link to the one that runs |
| `trial` | while a new one has not connected yet: the name of the one before |
| `rejected` | builds that did not come up; they are not tried again |
| `agent.sh` | starts the present one again and again; if one on trial ends, the one before is taken |

The starting program is a shell's, and belongs to no version: a new version that cannot even be loaded is replaced by
the one before.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from isthmus._kit.private_files import write_private

RESTART = 75
"""Exit code: start me again, at once."""
UNHEARD = 76
"""Exit code of a version on trial that reached nobody: nothing is known against it."""
TRIAL_SECONDS = 300.0
"""In which a version on trial must have connected."""

_LAUNCHER = """\
#!/bin/sh
# Starts the agent of Isthmus, again when it ends, and the version before when a new one does not come up.
data=$(dirname "$(readlink -f "$0")")
if [ "$1" = leave ]; then shift; exec "$data/current/bin/python" -m isthmus.cli agent leave --data "$data" "$@"; fi
cd "$data" || exit 1
child=
trap 'stopped=1; [ -n "$child" ] && kill -TERM "$child"' TERM INT
stopped=
while [ -z "$stopped" ]; do
  "$data/current/bin/python" -m isthmus.cli agent run --data "$data" &
  child=$!
  wait "$child"
  code=$?
  while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
  child=
  [ -n "$stopped" ] && break
  if [ -s trial ] && [ "$code" != 75 ]; then
    [ "$code" = 76 ] || basename "$(readlink current)" >>rejected
    ln -s "versions/$(cat trial)" back.new && mv -T back.new current && rm -f trial
    echo "isthmus: the new version of the agent did not come up; back to $(readlink current)" >&2
    continue
  fi
  [ "$code" = 0 ] && break
  [ "$code" = 75 ] || sleep 2
done
"""


class AgentVersions:
    """Of the agent in a folder."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.folder, self._current, self._trial = data / "versions", data / "current", data / "trial"
        self._rejected = data / "rejected"

    @property
    def installed(self) -> bool:
        """Whether the agent was installed here, so that it can be replaced."""
        return self._current.is_symlink()

    @property
    def current(self) -> str:
        """The one that runs, or is started next; empty where none was installed."""
        return self._current.readlink().name if self.installed else ""

    @property
    def on_trial(self) -> bool:
        """Whether the present one has yet to show that it works."""
        return self._trial.exists()

    def rejected(self) -> list[str]:
        """Those that did not come up."""
        try:
            return self._rejected.read_text().split()[-100:]
        except FileNotFoundError:
            return []

    def try_out(self, name: str) -> None:
        """Have this one be started next. In this order: killed in between, the present one is started again."""
        write_private(self._trial, self.current)
        link = self._data / "current.new"
        link.unlink(missing_ok=True)
        link.symlink_to(Path("versions") / name)
        link.replace(self._current)

    def confirm(self) -> None:
        """The present one works; of the others only the one before stays."""
        if not self.on_trial:
            return
        kept = {self.current, self._trial.read_text().strip()}
        self._trial.unlink(missing_ok=True)
        for folder in self.folder.iterdir():
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def write_launcher(self) -> Path:
        """The program that starts the agent."""
        path = self._data / "agent.sh"
        new = path.with_name("agent.sh.new")
        new.write_text(_LAUNCHER)
        new.chmod(0o755)
        new.replace(path)
        return path
