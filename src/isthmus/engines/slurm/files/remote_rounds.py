"""What runs need over SSH in a burst: one command for many of them.

It is commands that cost: each is a message there and one back, and some processes on the login node. So what is asked
for while a command is under way goes together in the next one. Whoever comes alone goes at once; a round has a limited
size, so that nobody waits long for what others brought. Each run has its own answer, and is as whole or absent as it
would be alone: its folder appears by a rename, its record by a link. Whoever is killed in between leaves files that are
removed when the site is opened again, or at the first round after that.

A text is called in a shell that lives on and would take for its next line what is left unread. So it reads everything
to the line `whole`, whatever else happens, or the shell ends.
"""

from __future__ import annotations

import io
import re
import secrets
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from isthmus._kit.batching import Batches
from isthmus._kit.crashpoints import step_async
from isthmus.engines.slurm.transports.commands import Done
from isthmus.engines.slurm.transports.ssh import SshConnections
from isthmus.errors import SiteUnavailable, Superseded
from isthmus.metrics import count_task_failure

from .base import LaunchFile

MOST_RUNS = 32
"""In one round."""
MOST_BYTES = 1 << 16
"""Of the files of one run; more goes by itself."""
WHOLE = b"whole\n"
_THERE, _TAKEN_OVER = 9, 8
"""How a text ends if there is a record already, and if our own folder for new files is no longer there."""
_PLAIN = re.compile(r"[0-9a-z][0-9a-z.-]{0,80}")
"""Names that are one word to any shell, wherever they stand."""

# Fixed texts; what varies comes as arguments or is read. Each process more is a millisecond on the way to Slurm.
# The folder of one run, with one file of so many bytes. Anybody can make a folder there: only the person's own is left
# as it is.
STAGE = (
    'umask 077; if test -O "$2" && test -d "$2" && test ! -L "$2"; then '
    'head -c "$3" >/dev/null && IFS= read -r end; return; fi; '
    'mkdir "$1" "$1/work" "$1/tmp" || { head -c "$3" >/dev/null && IFS= read -r end; return 1; }; umask 266; '
    'head -c "$3" >"$1/launch" && IFS= read -r end && test "$end" = whole || { rm -rf -- "$1"; exit 1; }; '
    'umask 077; : >"$1/stdout"; : >"$1/stderr"; mv -T "$1" "$2"'
)
# Those of many: unpacked in one folder, and moved to their places. It names those that are there in the end.
# What comes last must have come: where an archive was cut off between two files, tar takes that for its end.
STAGE_MANY = (
    "umask 077; runs=$1 batch=$1/$2 size=$3 old=$4; shift 4; "
    'if test "$old"; then for old in "$runs/$old"*; do test ! -O "$old" || rm -rf -- "$old"; done; fi; '
    'mkdir -- "$batch"; head -c "$size" | ( tar -xpmf - -C "$batch"; code=$?; cat >/dev/null; exit $code ); code=$?; '
    'IFS= read -r end && test "$end" = whole || { rm -rf -- "$batch"; exit 1; }; '
    '( test $code = 0 && cd "$batch" && test -e .whole || exit 1; folders=; '
    'for run; do folders="$folders $run/work $run/tmp"; done; mkdir $folders; '
    'for run; do true >"$run/stdout"; true >"$run/stderr"; done; mv -- "$@" ..; '
    'for run; do test -O "../$run" && test -d "../$run" && test ! -L "../$run" && echo "$run"; done; true ); '
    'code=$?; rm -rf -- "$batch"; return $code'
)
# The record of one run. The link appears once, and not beside a record that is over.
RECORD = (
    'umask 077; test -e "$3" && return 9; printf %s "$4" >"$1" && ln -- "$1" "$2"; made=$?; rm -f -- "$1" & '
    'if test $made != 0; then test -e "$2" && return 9; test -d "${1%/*}" || return 8; return 1; fi; '
    'test -e "$3" || return 0; rm -f -- "$2"; return 9'
)
# Those of many, a line for each. It says of each whether it was made, or was there.
RECORD_MANY = (
    'umask 077; root=$1 own=$2 new=$2/$3 names=; mkdir -- "$new"; '
    'while IFS=" " read -r name content && test "$name" != whole; do '
    'if test -e "$root/over/$name"; then echo "there $name"; '
    'elif printf %s "$content" >"$new/$name"; then names="$names $name"; fi; done; test "$name" = whole || exit 1; '
    'test -d "$own" || return 8; ( cd "$new" && ln -- $names "$root/active/" ); '
    'for name in $names; do if test "$new/$name" -ef "$root/active/$name"; then '
    'made=made; test ! -e "$root/over/$name" || { rm -f -- "$root/active/$name"; made=there; }; echo "$made $name"; '
    'elif test -e "$root/active/$name" || test -e "$root/over/$name"; then echo "there $name"; fi; done; '
    'rm -rf -- "$new" & true'
)
# One line more for the records of many, and the end of some. A record that is not there is not made again: what is
# written to is a link to one that was there.
APPEND_MANY = (
    'umask 077; root=$1 new=$2/$3 ended=; shift 3; mkdir -- "$new" && ( cd "$root/active" && ln -- "$@" "$new/" ); '
    'while IFS=" " read -r what name content && test "$what" != whole; do '
    'if test -e "$new/$name" && printf "\\n%s" "$content" >>"$new/$name"; then '
    'if test "$what" = end; then ended="$ended $name"; else echo "$name"; fi; fi; done; '
    'test "$what" = whole || exit 1; '
    'if test "$ended"; then ( cd "$root/active" && mv -f -- $ended "$root/over/" ); '
    'for name in $ended; do test "$new/$name" -ef "$root/over/$name" && echo "$name"; done; fi; rm -rf -- "$new" & true'
)
# Small plain files of many runs: every line with its file's name before it, so that no file can speak for another.
READ_MANY = (
    '( cd "$1" && shift && LC_ALL=C find "$@" -maxdepth 0 -type f -size -17 -exec grep -aH "" {} + ) 2>/dev/null; true'
)


class Staged(NamedTuple):
    """A run's files."""

    run_id: str
    launch: Mapping[str, LaunchFile]


class RecordLine(NamedTuple):
    """What is added to a record."""

    run_id: str
    content: bytes
    ends: bool


class RemoteRounds:
    """Folders, records and words of runs, many in one command."""

    def __init__(self, root: str, staging: str, ssh: SshConnections) -> None:
        self._root, self._ssh = root, ssh
        self._own = staging
        owner, _, self._token = staging.rpartition("/")[2].rpartition(".")
        self._left, self._cleaned = f".batch-{owner}.", set[str]()
        self._staged = dict[str, Batches[Staged, None]]()
        self._read = dict[str, Batches[str, bytes | None]]()
        self._records = Batches[tuple[str, bytes], bool](
            "slurm-records", self._create, failed=count_task_failure, most=MOST_RUNS
        )
        self._lines = Batches[RecordLine, bool | None](
            "slurm-lines", self._append, failed=count_task_failure, most=MOST_RUNS
        )

    async def close(self) -> None:
        """Let go; a round that hangs is not waited for."""
        everything: list[Batches[Any, Any]] = [*self._staged.values(), *self._read.values(), self._records, self._lines]
        for rounds in everything:
            await rounds.close()

    # The run's folder

    async def stage(self, run_id: str, user: str, launch: Mapping[str, LaunchFile]) -> bool:
        """Make the folder appear, complete; False if that is not done in a round."""
        if not _PLAIN.fullmatch(run_id) or sum(len(file.text) for file in launch.values()) > MOST_BYTES // 4:
            return False
        if user not in self._staged:

            async def answer(items: Sequence[Staged]) -> list[Exception | None]:
                return await self._stage(user, items)

            self._staged[user] = Batches("slurm-folders", answer, failed=count_task_failure, most=MOST_RUNS)
        await self._staged[user].ask(Staged(run_id, launch))
        return True

    async def _stage(self, user: str, items: Sequence[Staged]) -> list[Exception | None]:
        if len(items) == 1 and items[0].launch.keys() == {"launch"}:
            return [await self._stage_one(user, items[0])]
        names = list(dict.fromkeys(item.run_id for item in items))
        packed = _pack({item.run_id: item.launch for item in items})
        # What was left of rounds that were cut off, ours or those of others before us, is removed by the first one.
        left, batch = "" if user in self._cleaned else self._left, f"{self._left}{self._token}.{secrets.token_hex(6)}"
        words = STAGE_MANY, f"{self._root}/runs", batch, str(len(packed)), left, *names
        done = await step_async(self._ssh.call, *words, user=user, stdin=packed + WHOLE, reads=True)
        self._cleaned.add(user)
        there = set(done.out.split())
        return [None if item.run_id in there else self._failed(done) for item in items]

    async def _stage_one(self, user: str, item: Staged) -> Exception | None:
        text = item.launch["launch"].text.encode("utf-8", "surrogateescape")
        places = f"{self._root}/runs/.{item.run_id}-{secrets.token_hex(6)}", f"{self._root}/runs/{item.run_id}"
        words = STAGE, *places, str(len(text))
        done = await step_async(self._ssh.call, *words, user=user, stdin=text + WHOLE, reads=True)
        return self._failed(done) if done.code else None

    def _failed(self, done: Done) -> SiteUnavailable:
        said = done.err.strip()[:300] or f"code {done.code}"
        return SiteUnavailable(f"The site's folder {self._root} cannot be used: {said}.")

    # Records

    async def create_record(self, run_id: str, content: bytes) -> bool:
        """Make a record; False if there is one. Raises Superseded."""
        return await self._records.ask((run_id, content))

    async def _create(self, items: Sequence[tuple[str, bytes]]) -> list[bool | Exception]:
        names = {run_id for run_id, _ in items}
        plain = all(_PLAIN.fullmatch(run_id) and b"\n" not in content for run_id, content in items)
        if len(items) == 1 or len(names) < len(items) or not plain:
            return [await self._create_one(run_id, content) for run_id, content in items]
        lines = b"".join(b"%s %s\n" % (run_id.encode(), content) for run_id, content in items)
        words = RECORD_MANY, self._root, self._own, secrets.token_hex(6)
        done = await step_async(self._ssh.call, *words, user=None, stdin=lines + WHOLE, reads=True)
        if done.code == _TAKEN_OVER:
            return [self._taken_over()] * len(items)
        said = {name: word for word, _, name in (line.partition(" ") for line in done.out.splitlines())}
        return [said[run_id] == "made" if run_id in said else self._failed(done) for run_id, _ in items]

    async def _create_one(self, run_id: str, content: bytes) -> bool | Exception:
        new = f"{self._own}/{run_id}-{secrets.token_hex(6)}"
        words = RECORD, new, f"{self._root}/active/{run_id}", f"{self._root}/over/{run_id}", content.decode()
        done = await step_async(self._ssh.call, *words, user=None)
        if done.code == _TAKEN_OVER:
            return self._taken_over()
        return self._failed(done) if done.code not in (0, _THERE) else done.code == 0

    def _taken_over(self) -> Superseded:
        return Superseded(f"Another control plane has opened the site's folder {self._root} since.")

    async def append(self, run_id: str, content: bytes, *, ends: bool) -> bool:
        """Add a line to the record of a run that is not over, and move it there; False if that was not done."""
        if not _PLAIN.fullmatch(run_id) or b"\n" in content:
            return False
        return bool(await self._lines.ask(RecordLine(run_id, content, ends)))

    async def _append(self, items: Sequence[RecordLine]) -> list[bool | Exception | None]:
        names = list(dict.fromkeys(item.run_id for item in items))
        if len(names) == 1:
            return [None] * len(items)  # alone it is better done by SFTP
        lines = [b"%s %s %s\n" % (b"end" if i.ends else b"add", i.run_id.encode(), i.content) for i in items]
        words = APPEND_MANY, self._root, self._own, secrets.token_hex(6), *names
        done = await step_async(self._ssh.call, *words, user=None, stdin=b"".join(lines) + WHOLE, reads=True)
        written = set(done.out.split())
        return [item.run_id in written for item in items]

    # What runs wrote

    async def read_small(self, run_id: str, user: str, name: str) -> bytes | None:
        """A plain file of a run; None: it is not there, empty, or not small."""
        if not _PLAIN.fullmatch(run_id):
            return None
        if user not in self._read:

            async def answer(paths: Sequence[str]) -> list[bytes | None]:
                return await self._read_files(user, paths)

            self._read[user] = Batches("slurm-words", answer, failed=count_task_failure, most=MOST_RUNS)
        return await self._read[user].ask(f"{run_id}/{name}")

    async def _read_files(self, user: str, paths: Sequence[str]) -> list[bytes | None]:
        done = await self._ssh.call(READ_MANY, f"{self._root}/runs", *dict.fromkeys(paths), user=user)
        found = dict[str, list[str]]()
        for line in done.out.split("\n"):
            path, _, content = line.partition(":")
            found.setdefault(path, []).append(content)
        return ["".join(f"{line}\n" for line in found[path]).encode() if path in found else None for path in paths]


def _pack(runs: Mapping[str, Mapping[str, LaunchFile]]) -> bytes:
    out = io.BytesIO()
    for run_id, launch in runs.items():
        for name, file in launch.items():
            _add(out, f"{run_id}/{name}", file.text.encode("utf-8", "surrogateescape"), file.mode)
    _add(out, ".whole", b"", 0o600)
    out.write(b"\0" * 2 * tarfile.BLOCKSIZE)
    return out.getvalue()


def _add(out: io.BytesIO, name: str, content: bytes, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    out.write(info.tobuf(tarfile.USTAR_FORMAT))
    out.write(content)
    out.write(b"\0" * (-len(content) % tarfile.BLOCKSIZE))
