"""Python packages made on the spot, as wheels in a folder: what a site's administrator would mirror."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def put_wheel(
    folder: Path,
    name: str,
    files: Mapping[str, str | bytes],
    *,
    version: str = "1.0",
    requires: Sequence[str] = (),
    programs: Mapping[str, str] | None = None,
) -> Path:
    """A wheel of these files; `programs` maps names of programs to what they call, such as `demo:main`."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {other}\n" for other in requires)
    calls = "".join(f"{program} = {target}\n" for program, target in (programs or {}).items())
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: isthmus\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{calls}",
    }
    record = "".join(f"{path},,\n" for path in (*content, f"{info}/RECORD"))
    made = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in {**content, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return made


def put_demo(folder: Path) -> Path:
    """A package that needs another one, and brings a program."""
    put_wheel(folder, "isthmus_demo_base", {"isthmus_demo_base.py": "NAME = 'base'\n"})
    code = "import isthmus_demo_base, sys\n\n\ndef main():\n    print('demo on', isthmus_demo_base.NAME)\n"
    put_wheel(
        folder,
        "isthmus_demo",
        {"isthmus_demo.py": code},
        requires=["isthmus-demo-base>=1"],
        programs={"isthmus-demo": "isthmus_demo:main"},
    )
    return folder
