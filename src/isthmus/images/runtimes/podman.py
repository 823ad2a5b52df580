"""Podman on an unpacked root: no storage of images, no network and no process namespace of its own."""

from __future__ import annotations

from collections.abc import Sequence

from .base import ContainerView

_OWN = "/tmp/podman-XXXXXX"  # noqa: S108 - made by mktemp, for this person alone
_RUN = (
    "run --rm --interactive --ulimit=host --pid=host --network=host --env-host --log-driver=none --read-only "
    "--read-only-tmpfs=false --volume /dev/shm:/dev/shm"
)


class Podman:
    """podman run --rootfs."""

    name = "podman"
    program = "podman"
    version_words: Sequence[str] = ("podman", "--version")
    trial = "unshare --user --mount true && { command -v runc || command -v crun; } >/dev/null"
    passes_files = False
    remark = "the program sees itself as root where the person has no subordinate uids (/etc/subuid)"
    remedy = "install runc or crun, and enter the persons in /etc/subuid and /etc/subgid"

    def bind(self, source: str, target: str) -> list[str]:
        """A file more."""
        return ["--volume", f"{source}:{target}:ro"]

    def prepare(self) -> str:
        """A folder of the node for its own files: a home may be where it cannot work, and long paths it does not take.

        The person keeps the own uid where the machine has others for those of the image.
        """
        conf = '[storage]\\ndriver = "vfs"\\nrunroot = "%s/run"\\ngraphroot = "%s/storage"\\n'
        return (
            f"own=$(mktemp -d {_OWN}) || exit 125\n"
            f"""printf '{conf}' "$own" "$own" >"$own/storage.conf"\n"""
            'export HOME="$own" XDG_RUNTIME_DIR="$own" CONTAINERS_STORAGE_CONF="$own/storage.conf"\n'
            'if grep -q "^$(id -un):" /etc/subuid 2>/dev/null; then export PODMAN_USERNS=keep-id; fi'
        )

    def finish(self) -> str:
        """Remove that folder."""
        return 'rm -rf -- "$own"'

    def begin(self, container: ContainerView) -> list[str]:
        """What is bound, and nothing of its own that is not needed."""
        found = ["podman", "--log-level=fatal", "--cgroup-manager=cgroupfs", "--events-backend=none", *_RUN.split()]
        for bind in container.binds:
            found += ["--volume", f"{bind.source}:{bind.target}:{'rw' if bind.writable else 'ro'}"]
        return found

    def end(self, container: ContainerView) -> list[str]:
        """The root."""
        return ["--rootfs", container.root]
