"""Load: wrk, so that the client costs little beside the server it measures."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Load:
    per_second: float
    errors: int
    p50_ms: float
    p99_ms: float


def need_wrk() -> str:
    found = shutil.which("wrk")
    if found is None:
        sys.exit("benchmarks need wrk; install it with: apt install wrk")
    return found


def wrk(url: str, *, token: str = "", connections: int = 500, seconds: int = 5, script: str | None = None) -> Load:
    words = [need_wrk(), "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "30s"]
    if token:
        words += ["-H", f"Authorization: Bearer {token}"]
    with tempfile.TemporaryDirectory() as folder:
        if script:
            lua = Path(folder) / "load.lua"
            lua.write_text(script)
            words += ["-s", str(lua)]
        text = subprocess.run([*words, url], check=True, capture_output=True, text=True).stdout
    return Load(
        per_second=float(_one(r"Requests/sec:\s+([\d.]+)", text)),
        errors=int(_one(r"Non-2xx or 3xx responses: (\d+)", text, "0"))
        + sum(int(n) for n in re.findall(r"(?:connect|read|write|timeout) (\d+)", text)),
        p50_ms=_ms(_one(r"50%\s+([\d.]+\w+)", text)),
        p99_ms=_ms(_one(r"99%\s+([\d.]+\w+)", text)),
    )


def _one(pattern: str, text: str, default: str | None = None) -> str:
    match = re.search(pattern, text)
    if match:
        return match[1]
    if default is None:
        raise RuntimeError(f"wrk said: {text}")
    return default


def _ms(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()  # type: ignore[union-attr]
    return float(number) * {"us": 0.001, "ms": 1, "s": 1000, "m": 60000}[unit]
