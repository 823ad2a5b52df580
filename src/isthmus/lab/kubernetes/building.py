"""Builds Kubernetes from Debian's source package, offline but for apt: about five minutes on two idle cores.

Debian ships the whole source of Kubernetes 1.20 with everything it depends on, and builds only clients from it. Three
things must be minded:

- the source lacks one generated file (the OpenAPI definitions); its generator is built first;
- the reflect2 that comes along crashes the server at the first custom resource when compiled by Go 1.18 or later, so
  it is replaced by Debian's;
- a machine need not have source packages among its apt sources: apt is used with a private list.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path

from isthmus.errors import Misconfigured
from isthmus.lab.fetching import PrivateApt, Say, run
from isthmus.lab.processes import PATH

VERSION = "v1.20.2"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
PACKAGES = {"go": "golang-go", "apt-get": "apt"}
REFLECT2 = Path("/usr/share/gocode/src/github.com/modern-go/reflect2")
_MODULE = "k8s.io/kubernetes"


def missing() -> list[str]:
    """Debian packages that a build needs and that are not there."""
    lacking = [package for program, package in PACKAGES.items() if shutil.which(program, path=PATH) is None]
    return lacking if REFLECT2.is_dir() else [*lacking, "golang-github-modern-go-reflect2-dev"]


def build(folder: Path, work: Path, say: Say) -> None:
    """Build what is not yet in `folder`, below `work`, which is gone afterwards."""
    if lacking := missing():
        raise Misconfigured(
            f"Kubernetes must be built here, which needs: {', '.join(lacking)}. Install them with: "
            f"apt install --no-install-recommends {' '.join(lacking)}"
        )
    try:
        _Build(folder, work, say).run()
    finally:
        shutil.rmtree(work, ignore_errors=True)


class _Build:
    """One build; its steps in order."""

    def __init__(self, folder: Path, work: Path, say: Say) -> None:
        self._folder, self._work, self._say = folder, work, say
        self._tree = work / "src" / _MODULE
        self._env = {
            "PATH": PATH,
            "HOME": str(work),
            "LC_ALL": "C",
            "GO111MODULE": "off",
            "GOPATH": str(work),
            "GOCACHE": str(work / "cache"),
            "GOTMPDIR": str(work),
            "CGO_ENABLED": "0",
            "GOFLAGS": "-trimpath",
        }

    def run(self) -> None:
        """Everything. A program that was finished by an earlier attempt is kept."""
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)
        self._say("fetching Debian's source package of Kubernetes (35 MB)")
        self._unpack(_fetch(self._work / "apt"))
        self._say("generating the API definitions (about a minute)")
        self._generate()
        self._folder.mkdir(parents=True, exist_ok=True)
        wanted = [name for name in PROGRAMS if not (self._folder / name).exists()]
        for index, name in enumerate(wanted, 1):
            self._say(f"compiling {name} ({index} of {len(wanted)}; all take about four minutes on two cores)")
            made = self._work / name
            self._call("go", "build", "-ldflags", _linker_words(), "-o", str(made), f"./cmd/{name}")
            made.chmod(0o755)
            made.replace(self._folder / name)

    def _unpack(self, archive: Path) -> None:
        self._tree.mkdir(parents=True)
        with tarfile.open(archive) as tar:
            tar.extractall(self._tree, members=_below_top(tar), filter="tar")
        archive.unlink()
        vendored = self._tree / "vendor/github.com/modern-go/reflect2"
        shutil.rmtree(vendored)
        shutil.copytree(REFLECT2, vendored, ignore=shutil.ignore_patterns("go.mod"))

    def _generate(self) -> None:
        tool = self._work / "openapi-gen"
        self._call("go", "build", "-o", str(tool), "./vendor/k8s.io/kube-openapi/cmd/openapi-gen")
        packages = ",".join(f"{_MODULE}/{folder}" for folder in _marked(self._tree))
        root = self._call("go", "env", "GOROOT").strip()
        self._env["GOROOT"] = root  # the tool was built with -trimpath and cannot know it
        self._call(
            str(tool), "-h", "hack/boilerplate/boilerplate.generatego.txt", "-i", packages,
            "-p", f"{_MODULE}/pkg/generated/openapi", "-O", "zz_generated.openapi",
            "-o", str(self._work / "src"), "-r", "/dev/null",
        )  # fmt: skip

    def _call(self, *words: str) -> str:
        return run(words, self._env, self._tree)


def _linker_words() -> str:
    words = ["-s", "-w"]
    for package in ("component-base/version", "client-go/pkg/version"):
        stem = f"-X {_MODULE}/vendor/k8s.io/{package}"
        words += [f"{stem}.gitVersion={VERSION}", f"{stem}.gitMajor=1", f"{stem}.gitMinor=20"]
        words += [f"{stem}.gitCommit=debian", f"{stem}.gitTreeState=archive", f"{stem}.buildDate=2021-01-13T00:00:00Z"]
    return " ".join(words)


def _below_top(tar: tarfile.TarFile) -> Iterable[tarfile.TarInfo]:
    """All members, without the folder that everything is in."""
    for member in tar:
        _, _, rest = member.name.partition("/")
        if rest:
            yield member.replace(name=rest, deep=False)


def _marked(tree: Path) -> list[str]:
    """Folders whose types want definitions, as upstream's makefile finds them."""
    found: set[str] = set()
    for top in ("vendor/k8s.io", "pkg", "cmd", "plugin"):
        for folder, _, files in os.walk(tree / top, followlinks=True):
            if "/code-generator/" in f"{folder}/" or "/sample-apiserver/" in f"{folder}/":
                continue
            for file in files:
                if file.endswith(".go") and b"+k8s:openapi-gen=" in (Path(folder) / file).read_bytes():
                    found.add(str(Path(folder).relative_to(tree)))
    return sorted(found)


def _fetch(folder: Path) -> Path:
    """The upstream archive, verified by apt against the signed index."""
    PrivateApt(folder, "bookworm", "deb-src").call("source", "-qq", "--download-only", "--only-source", "kubernetes")
    archive = next(folder.glob("kubernetes_*.orig.tar.*"), None)
    if archive is None:
        raise Misconfigured("Debian's source package of Kubernetes holds no upstream archive.")
    return archive
