"""What the link of a machine can be like: whole, cut, far, slow, lossy. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from isthmus._kit.durations import parse_duration
from isthmus.errors import Invalid

_UNITS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class LinkShape:
    """A link that is up. Zero means: as the machine has it."""

    latency: float = 0.0
    """Seconds that a byte takes one way."""
    rate: int = 0
    """Bits per second, each way."""
    loss: float = 0.0
    """Share of packets that are lost, from 0 to 1."""

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong with it."""
        return self == LinkShape()

    def to_json(self) -> str:
        """As it is kept."""
        return json.dumps(asdict(self))


SHAPES = {
    "up": LinkShape(),
    "slow": LinkShape(latency=0.1, rate=256_000),
    "lossy": LinkShape(latency=0.02, loss=0.1),
    "far": LinkShape(latency=0.3),
}
"""Words for links that are up."""
STATES = ("down", *SHAPES)


def parse_shape(text: str) -> LinkShape:
    """As it was kept; whole for what cannot be read."""
    try:
        return LinkShape(**json.loads(text))
    except (ValueError, TypeError):
        return LinkShape()


def wanted(state: str, latency: str | None, rate: str | None, loss: float | None) -> LinkShape | None:
    """What somebody asks for; None: cut. Raises Invalid."""
    if state not in STATES:
        raise Invalid(f"a link is not {state!r}; say one of {', '.join(STATES)}")
    if state == "down":
        return None
    shape = SHAPES[state]
    if latency is not None:
        shape = replace(shape, latency=_duration(latency))
    if rate is not None:
        shape = replace(shape, rate=_rate(rate))
    if loss is not None:
        shape = replace(shape, loss=loss / 100)
    return shape


def netem(shape: LinkShape) -> list[str]:
    """The same for `tc`, one way."""
    words = ["netem", "limit", "10000"]
    if shape.latency:
        words += ["delay", f"{shape.latency * 1000:g}ms"]
    if shape.loss:
        words += ["loss", f"{shape.loss * 100:g}%"]
    if shape.rate:
        words += ["rate", f"{shape.rate}bit"]
    return words


def _duration(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError:
        raise Invalid(f"--latency {text!r} is not a duration such as 300ms") from None
    if seconds > 60:
        raise Invalid(f"--latency {text} is longer than a minute")
    return seconds


def _rate(text: str) -> int:
    said = text.lower().removesuffix("bit").removesuffix("bps")
    number, factor = (said[:-1], _UNITS[said[-1]]) if said[-1:] in ("k", "m", "g") else (said, 1)
    try:
        bits = int(float(number) * factor)
    except ValueError:
        bits = 0
    if not 1000 <= bits <= 10**12:
        raise Invalid(f"--rate {text!r} is not a rate in bits per second such as 256k or 10M")
    return bits
