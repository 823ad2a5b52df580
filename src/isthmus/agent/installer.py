"""Makes a machine an agent. Fetched from the control plane, and run by whatever Python the machine has.

It knows nothing but the standard library. The line of the invitation checks this text by its hash before it runs it;
from here on the authority of the control plane, known by its fingerprint, vouches for everything. The agent gets a
folder with a virtual environment for each version (`agent.versions`); packages come from the control plane, and from
the machine's own index where those have parts compiled for another platform.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import ssl
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

OLDEST = (3, 11)
_NO_CHECK_TIME = 0x200000


def main(words: list[str]) -> None:
    """Install, then join."""
    parser = argparse.ArgumentParser(prog="install")
    parser.add_argument("url")
    parser.add_argument("invitation")
    parser.add_argument("--authority", required=True)
    parser.add_argument("--data", default=default_folder())
    parser.add_argument("--proxy", default="")
    said = parser.parse_args(words)
    if sys.version_info < OLDEST:
        _with_newer_python(words)
    data = Path(said.data).absolute()
    control = InvitingServer(said.url, said.authority, said.invitation, said.proxy)
    packages = json.loads(control.fetch("/agents/wheels"))
    python = install(control, packages, data)
    command = [str(python), "-m", "isthmus.cli", "agent", "join", said.url, "--authority", said.authority]
    command += ["--data", str(data), "--service", *(["--proxy", said.proxy] if said.proxy else [])]
    sys.exit(subprocess.run(command, env={**os.environ, "ISTHMUS_INVITATION": said.invitation}, check=False).returncode)


def default_folder() -> str:
    """Where an agent keeps everything."""
    if os.geteuid() == 0:
        return "/var/lib/isthmus-agent"
    home = os.environ.get("XDG_DATA_HOME") or ""
    return str((Path(home) if home.startswith("/") else Path.home() / ".local" / "share") / "isthmus-agent")


class InvitingServer:
    """The one that sent the invitation; whoever else answers is not believed."""

    def __init__(self, url: str, fingerprint: str, invitation: str, proxy: str) -> None:
        self._url, self._invitation = url.rstrip("/"), invitation
        self._proxies = urllib.request.ProxyHandler({"https": proxy} if proxy else None)
        anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
        self._tls = anyone
        authority = self.fetch("/.well-known/isthmus/ca.pem", secret=False)
        if hashlib.sha256(authority.strip()).hexdigest() != fingerprint.lower():
            sys.exit(f"{url} is not the control plane of this invitation: its authority is another")
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.load_verify_locations(cadata=authority.decode())
        self._tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VerifyFlags(_NO_CHECK_TIME)

    def fetch(self, path: str, *, secret: bool = True) -> bytes:
        """What is at a path."""
        request = urllib.request.Request(self._url + path)  # noqa: S310 - its own address, over HTTPS
        if secret:
            request.add_header("Isthmus-Invitation", self._invitation)
        opener = urllib.request.build_opener(self._proxies, urllib.request.HTTPSHandler(context=self._tls))
        try:
            with opener.open(request, timeout=60) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            with error:
                sys.exit(f"{self._url} answers {error.code} to {path}: {_message(error.read(10_000))}")
        except OSError as error:
            sys.exit(f"{self._url} cannot be reached: {error}")


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return "no reason given"


def install(control: InvitingServer, packages: dict, data: Path) -> Path:  # type: ignore[type-arg]
    """The packages of a version into a folder of their own, which is then the present one; its Python."""
    versions = data / "versions"
    versions.mkdir(parents=True, exist_ok=True)
    name = f"{packages['version']}-{packages['build']}"
    folder, new = versions / name, versions / f"{name}.new"
    if not folder.exists():
        shutil.rmtree(new, ignore_errors=True)
        print(f"installing the agent of Isthmus {packages['version']} in {folder}", file=sys.stderr)
        cache = new.with_suffix(".wheels")
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir()
        wheels = [_download(control, one, cache) for one in chosen(packages)]
        assemble(new, wheels, packages)
        shutil.rmtree(cache)
        new.rename(folder)
    link = data / "current.new"
    link.unlink(missing_ok=True)
    link.symlink_to(Path("versions") / name)
    link.replace(data / "current")
    return data / "current" / "bin" / "python"


def same_platform(packages: dict) -> bool:  # type: ignore[type-arg]
    """Whether compiled parts of the control plane's packages can run here."""
    here = (sysconfig.get_platform(), sysconfig.get_python_version())
    return here == (packages["platform"], packages["python"])


def chosen(packages: dict) -> list:  # type: ignore[type-arg]
    """The wheels that are of use here: Isthmus first."""
    same = same_platform(packages)
    others = [one for one in packages["others"] if same or one["file"].endswith("-none-any.whl")]
    return [packages["main"], *others]


def _download(control: InvitingServer, package: dict, folder: Path) -> Path:  # type: ignore[type-arg]
    content = control.fetch(f"/agents/wheels/{package['file']}")
    if hashlib.sha256(content).hexdigest() != package["sha256"]:
        sys.exit(f"{package['file']} did not arrive as it was sent; try again")
    path = folder / Path(package["file"]).name
    path.write_bytes(content)
    return path


def assemble(folder: Path, wheels: list, packages: dict) -> None:  # type: ignore[type-arg]
    """A virtual environment with these wheels, Isthmus first among them; the rest from the machine's index."""
    if same_platform(packages):
        _run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)])
        for wheel in wheels:
            _unpack(folder, wheel)
        if not broken(folder):
            return
    shutil.rmtree(folder, ignore_errors=True)
    uv = shutil.which("uv")
    found = ["--find-links", str(wheels[0].parent)]
    if uv:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        pip = [uv, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python")]
    else:
        _run(
            [sys.executable, "-m", "venv", str(folder)], "install python3-venv (Debian: apt install python3-venv) or uv"
        )
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, *found, *packages["requirements"]], "is the package index of this machine reachable?")
    _unpack(folder, wheels[0])
    why = broken(folder)
    if why:
        sys.exit(f"the agent does not start with the packages in {folder}: {why}")


def broken(folder: Path) -> str:
    """Why what was installed cannot be loaded; empty if it can."""
    command = [str(folder / "bin" / "python"), "-c", "import isthmus.server.agent_process, isthmus.cli.platform.agent"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    return (done.stderr.strip().splitlines() or ["no reason given"])[-1] if done.returncode else ""


def _unpack(folder: Path, wheel: Path) -> None:
    (site,) = (folder / "lib").glob("python3*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)


def _run(command: list, hint: str = "") -> None:  # type: ignore[type-arg]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-1000:]
        sys.exit(f"{' '.join(command[:4])} failed: {said}" + (f"\n{hint}" if hint else ""))


def _with_newer_python(words: list) -> None:  # type: ignore[type-arg]
    """Go on with a Python that is new enough; raises SystemExit if there is none."""
    source = globals().get("s")
    for minor in range(20, OLDEST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found and source:
            os.execv(found, [found, "-c", source.decode(), *words])  # noqa: S606 - the same program
    sys.exit(f"the agent needs Python 3.{OLDEST[1]} or later; this is {sys.version.split()[0]}, and no other was found")


if __name__ == "__main__":
    main(sys.argv[1:])
