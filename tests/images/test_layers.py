"""Layers, well-meant and hostile: what becomes of them on disk, and that nothing outside the root is touched."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import random
import stat
import subprocess
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isthmus.images.layers import BadLayer, Limits, RootFolder
from isthmus.images.tar_streams import TarReader
from isthmus.testing.image_archives import folder, layer, link, member

Unpack = Callable[..., RootFolder]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root, in a folder whose other contents nothing may touch."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def unpack(root: Path, tmp_path: Path) -> Unpack:
    def apply(*layers: bytes, limits: Limits | None = None) -> RootFolder:
        made = RootFolder(str(root), limits)
        for content in layers:
            made.apply(io.BytesIO(content), len(content))
        untouched(tmp_path)
        return made

    return apply


def zstd(content: bytes) -> bytes:
    return subprocess.run(["zstd", "-c", "-q"], input=content, stdout=subprocess.PIPE, check=True).stdout


def untouched(tmp_path: Path) -> None:
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "root"]
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]
    assert (tmp_path / "outside" / "secret").read_text() == "secret"


class Pieces:
    """A stream of which one piece is in memory at a time."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def read(self, size: int, /) -> bytes:
        while len(self._rest) < size and (more := next(self._pieces, b"")):
            self._rest += more
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def skip(self, size: int, /) -> int:
        return len(self.read(size))


def refused(unpack: Unpack, tmp_path: Path, *layers: bytes, limits: Limits | None = None) -> str:
    with pytest.raises(BadLayer) as caught:
        unpack(*layers, limits=limits)
    untouched(tmp_path)
    return str(caught.value)


def test_files_folders_and_links_appear_as_they_are(unpack: Unpack, root: Path) -> None:
    unpack(
        layer(
            folder("usr/bin"),
            member("usr/bin/tool", b"#!/bin/sh\n", mode=0o700, mtime=1_000_000_000),
            link("bin", "usr/bin"),
            link("usr/bin/same", "usr/bin/tool", hard=True),
            member("a" * 90 + "/" + "b" * 120, b"long"),
        )
    )
    assert (root / "bin/tool").read_bytes() == b"#!/bin/sh\n"
    assert (root / "usr/bin/tool").stat().st_mtime == 1_000_000_000
    assert (root / "usr/bin/same").samefile(root / "usr/bin/tool")
    assert os.readlink(root / "bin") == "usr/bin"
    assert (root / ("a" * 90) / ("b" * 120)).read_bytes() == b"long"


@pytest.mark.parametrize("written", ["plain", "gzip", "several", "padded", "zstd"])
def test_both_digests_are_those_of_the_layer(root: Path, written: str) -> None:
    content = layer(member("f", random.Random(1).randbytes(700_000)))
    half = len(content) // 2
    kept = {
        "plain": content,
        "gzip": gzip.compress(content),
        "several": gzip.compress(content[:half]) + gzip.compress(content[half:]),
        "padded": gzip.compress(content) + bytes(700_000),
        "zstd": zstd(content[:half]) + zstd(content[half:]),
    }[written]
    found = RootFolder(str(root)).apply(io.BytesIO(kept + b"of another"), len(kept))
    assert found == tuple(f"sha256:{hashlib.sha256(part).hexdigest()}" for part in (kept, content))
    assert (root / "f").stat().st_size == 700_000


def test_upper_layers_replace_and_remove(unpack: Unpack, root: Path) -> None:
    unpack(
        layer(member("etc/a", b"1"), member("etc/b", b"1"), member("opt/x/y", b"1"), member("var/z", b"1")),
        layer(member("etc/.wh.a"), member("etc/b", b"2"), member("opt/.wh.x"), folder("var")),
    )
    assert sorted(os.listdir(root / "etc")) == ["b"]
    assert (root / "etc/b").read_bytes() == b"2"
    assert os.listdir(root / "opt") == []
    assert (root / "var/z").exists()


def test_an_opaque_folder_keeps_what_its_own_layer_puts_there(unpack: Unpack, root: Path) -> None:
    lower = layer(member("d/old", b"1"), member("d/sub/old", b"1"), member("e/kept", b"1"))
    new = (member("d/sub/new", b"2"), member("d/sub/made/new", b"2"))
    unpack(lower, layer(*new, member("d/.wh..wh..opq"), member("d/later", b"2")))
    found = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    assert found == ["d/later", "d/sub/made/new", "d/sub/new", "e/kept"]


def test_a_file_takes_the_place_of_a_folder_and_the_other_way_round(unpack: Unpack, root: Path) -> None:
    unpack(
        layer(member("a/b/c", b"1"), member("f", b"1"), link("l", "a")),
        layer(member("a", b"2"), folder("f"), member("f/g", b"2"), folder("l")),
    )
    assert (root / "a").read_bytes() == b"2"
    assert (root / "f/g").read_bytes() == b"2"
    assert not (root / "l").is_symlink()


def test_folders_are_found_through_links_of_lower_layers(unpack: Unpack, root: Path) -> None:
    unpack(layer(folder("usr/lib"), link("lib", "/usr/lib"), link("var/run", "../run")), layer(member("lib/x", b"1")))
    assert (root / "usr/lib/x").read_bytes() == b"1"
    unpack(layer(member("var/run/pid", b"1")))
    assert (root / "run/pid").read_bytes() == b"1"


@pytest.mark.parametrize(
    "target", ["../outside", "../../../../outside", "{}/outside", "/../outside", "x/../../outside"]
)
def test_a_link_that_leads_out_leads_to_the_top(unpack: Unpack, root: Path, tmp_path: Path, target: str) -> None:
    unpack(layer(link("way", target.format(tmp_path))), layer(member("way/secret", b"evil"), member("way/.wh.secret")))
    untouched(tmp_path)
    assert not list(root.rglob("secret"))


@pytest.mark.parametrize("name", ["../outside/secret", "a/../../outside/secret", "/../outside/secret", ".."])
def test_names_with_dots_are_refused(unpack: Unpack, tmp_path: Path, name: str) -> None:
    assert "leads out of its folder" in refused(unpack, tmp_path, layer(member(name, b"evil")))


def test_absolute_names_begin_at_the_top(unpack: Unpack, root: Path, tmp_path: Path) -> None:
    unpack(layer(member(f"{tmp_path}/outside/secret", b"evil")))
    assert (root / str(tmp_path)[1:] / "outside/secret").read_bytes() == b"evil"


@pytest.mark.parametrize("name", [".wh...", ".wh..", ".wh.", "a/.wh..."])
def test_whiteouts_remove_nothing_above(unpack: Unpack, tmp_path: Path, name: str) -> None:
    assert "is no name" in refused(unpack, tmp_path, layer(member("a/b", b"1")), layer(member(name)))


def test_a_whiteout_behind_a_link_removes_nothing_outside(unpack: Unpack, tmp_path: Path) -> None:
    out = str(tmp_path / "outside")
    unpack(layer(link("l", out)), layer(member("l/.wh.secret")), layer(member("l/.wh..wh..opq")))
    untouched(tmp_path)


def test_hard_links_stay_inside(unpack: Unpack, root: Path, tmp_path: Path) -> None:
    for target in (str(tmp_path / "outside/secret"), "nothing", "."):
        assert "that is no file" in refused(unpack, tmp_path, layer(link("l", target, hard=True)))
    assert "out of its folder" in refused(unpack, tmp_path, layer(link("l", "../outside/secret", hard=True)))
    unpack(layer(link("s", str(tmp_path / "outside/secret")), link("h", "s", hard=True), member("h", b"evil")))
    assert (root / "h").read_bytes() == b"evil"
    untouched(tmp_path)


def test_a_name_that_was_linked_is_not_written_through(unpack: Unpack, root: Path) -> None:
    unpack(layer(member("a", b"1"), link("b", "a", hard=True)), layer(member("b", b"2")))
    assert ((root / "a").read_bytes(), (root / "b").read_bytes()) == (b"1", b"2")


def test_a_hard_link_to_itself_changes_nothing(unpack: Unpack, root: Path) -> None:
    unpack(layer(member("a", b"1"), link("a", "./a", hard=True)))
    assert (root / "a").read_bytes() == b"1"


def test_devices_and_pipes_are_left_out(unpack: Unpack, root: Path) -> None:
    kinds = (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
    made = unpack(layer(*(member(f"dev/{number}", type=kind) for number, kind in enumerate(kinds))))
    assert made.dropped == 3
    assert not list(root.iterdir())


def test_no_rights_of_others_survive(unpack: Unpack, root: Path) -> None:
    unpack(layer(member("su", b"", mode=0o6777), member("hidden", mode=0), folder("t", 0o7777), folder("d/e", 0)))
    modes = {p.relative_to(root).as_posix(): stat.S_IMODE(p.lstat().st_mode) for p in root.rglob("*")}
    assert modes == {"su": 0o755, "hidden": 0o644, "t": 0o755, "d": 0o755, "d/e": 0o755}
    assert (root / "su").stat().st_uid == os.getuid()


def test_attributes_are_dropped(unpack: Unpack, root: Path) -> None:
    unpack(layer(member("f", pax_headers={"SCHILY.xattr.user.x": "1", "SCHILY.xattr.security.capability": "1"})))
    assert os.listxattr(root / "f") == []


def test_the_root_itself_stays_a_folder(unpack: Unpack, tmp_path: Path) -> None:
    unpack(layer(folder("./"), folder("/")))
    assert "root folder" in refused(unpack, tmp_path, layer(link(".", str(tmp_path / "outside"))))


def test_links_in_a_circle_end(unpack: Unpack, tmp_path: Path) -> None:
    circle = layer(link("a", "b"), link("b", "a"))
    assert "too many links" in refused(unpack, tmp_path, circle, layer(member("a/x", b"1")))
    long = layer(link("n0", "."), *(link(f"n{k + 1}", f"n{k}/n{k}") for k in range(60)))
    assert "too many links" in refused(unpack, tmp_path, long, layer(member("n60/x", b"1")))


@pytest.mark.parametrize(
    ("content", "limits"),
    [
        (layer(member("zeros", bytes(100_000))), Limits(bytes=50_000)),
        (layer(*(member("same", bytes(20_000)) for _ in range(5))), Limits(bytes=50_000)),
        (layer(*(folder(f"d{number}") for number in range(30))), Limits(files=20)),
        (layer(folder("/".join("abcdefghijklmnopqrstuvwxyz"))), Limits(files=20)),
        (layer(*(member("same") for _ in range(30))), Limits(files=20)),
        (layer(*(member(".wh.same") for _ in range(30))), Limits(files=20)),
        (layer(folder("/".join("d" * 40))), Limits(depth=20)),
        (layer(folder("a/b/c/d/e"), link("l", "a/b/c/d/e"), folder("l/f/g")), Limits(depth=6)),
    ],
)
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_limits(
    unpack: Unpack, tmp_path: Path, content: bytes, limits: Limits, compress: Callable[[bytes], bytes]
) -> None:
    assert refused(unpack, tmp_path, compress(content), limits=limits)


def test_a_bomb_of_a_header_is_not_read(unpack: Unpack, tmp_path: Path) -> None:
    for kind in (b"x", b"g", b"L", b"K"):
        info = tarfile.TarInfo("h")
        info.type, info.size = kind, 2**33
        assert "are read" in refused(unpack, tmp_path, info.tobuf(tarfile.GNU_FORMAT))


def test_headers_about_a_member_that_never_comes_take_no_memory() -> None:
    def headers() -> Iterator[bytes]:
        for number in range(100):
            record = f"{number:04}=".encode() + b"x" * 300_000
            record = f"{len(record) + 8} ".encode() + record + b"\n"
            info = tarfile.TarInfo("h")
            info.type, info.size = b"x", len(record)
            yield info.tobuf(tarfile.USTAR_FORMAT) + record + bytes(-len(record) % 512)

    tracemalloc.start()
    try:
        assert list(TarReader(Pieces(headers()))) == []
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("mark", ["GNU.sparse.major", "GNU.sparse.realsize"])
def test_sparse_files_are_refused(unpack: Unpack, tmp_path: Path, mark: str) -> None:
    assert "sparse" in refused(unpack, tmp_path, layer(member("f", b"x", pax_headers={mark: "1"})))
    info = tarfile.TarInfo("f")
    info.type = tarfile.GNUTYPE_SPARSE
    assert "sparse" in refused(unpack, tmp_path, info.tobuf(tarfile.GNU_FORMAT))


@pytest.mark.parametrize(
    "broken",
    [
        b"no archive at all" * 100,
        layer(member("f", b"content" * 1000))[:2000],
        layer(member("f", b"content"))[:300],
        gzip.compress(layer(member("f", random.Random(1).randbytes(9000))))[:-2000],
        gzip.compress(layer(member("f", b"1")))[:30] + bytes(5) + b"rubbish",
        gzip.compress(layer(member("f", b"1"))) + b"rubbish behind it",
        b"\x28\xb5\x2f\xfd rest of zstd",
        layer(member("f", b"1", pax_headers={"size": "1_0"})),
        layer(member("f", b"1", pax_headers={"size": "-1"})),
        layer(member("a", b"1"), member("a/b", b"1")),
        layer(member("x" * 300, b"1", pax_headers={"path": "y" * 5000})),
    ],
    ids=[
        *("no archive", "cut in a file", "cut in a header", "cut while compressed", "rubbish inside", "rubbish behind"),
        *("zstd", "a size that is no number", "a size below 0", "a file as a folder", "a long path"),
    ],
)
def test_broken_layers_are_refused(unpack: Unpack, tmp_path: Path, broken: bytes) -> None:
    assert refused(unpack, tmp_path, broken)


def test_names_that_are_no_text_are_kept(unpack: Unpack, root: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    unpack(layer(member(name, b"1")))
    assert (root / name).read_bytes() == b"1"


def test_any_bytes_are_refused_or_unpacked_inside(unpack: Unpack, tmp_path: Path) -> None:
    """Flip bits of an archive that has everything: whatever comes of it stays inside."""
    good = bytearray(
        layer(link("l", "../outside"), member("l/x", b"1"), member("l/.wh.secret"), folder("d"), member("d/e"))
    )
    chance = random.Random(7)
    for _ in range(300):
        content = bytearray(good)
        for _ in range(3):
            at = chance.randrange(len(content) // 512) * 512
            content[at + chance.randrange(512)] = chance.randrange(256)
            header = content[at : at + 512]
            header[148:156] = b" " * 8
            content[at + 148 : at + 156] = b"%06o\0 " % sum(header)
        try:
            unpack(bytes(content))
        except (BadLayer, OSError):
            untouched(tmp_path)


def test_placeholders_are_plain_files_and_programs_are_found_inside(unpack: Unpack, root: Path, tmp_path: Path) -> None:
    out = tmp_path / "outside"
    made = unpack(
        layer(
            link("etc", str(out)),
            link("bin", "/usr/bin"),
            member("usr/bin/dash", mode=0o755),
            link("usr/bin/sh", "dash"),
        )
    )
    made.put_placeholder("etc", "hosts")
    untouched(tmp_path)
    assert (root / "etc").is_dir()
    assert not (root / "etc").is_symlink()
    assert made.has_program("bin/sh")
    assert not made.has_program("bin/bash")
    (out / "secret").chmod(0o755)
    unpack(layer(link("way", str(out))))
    assert not made.has_program("way/secret")


def test_a_layer_of_zstd_is_held_to_the_same_limits(
    unpack: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = zstd(layer(member("f", bytes(50_000_000))))
    assert len(bomb) < 10_000
    assert "more than 1000000 bytes" in refused(unpack, tmp_path, bomb, limits=Limits(bytes=1_000_000))
    assert "damaged" in refused(unpack, tmp_path, bomb[:-100])
    assert refused(unpack, tmp_path, bomb + b"rubbish behind it")
    monkeypatch.setenv("PATH", "/nowhere")
    assert "Install the program zstd" in refused(unpack, tmp_path, bomb)
