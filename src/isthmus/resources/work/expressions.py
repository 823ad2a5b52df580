"""Expressions over a site's labels: `location == IT and price < 2 or not (vendor in (intel, amd))`.

Parsed once into a small tree and evaluated without any Python evaluation, so that what a user writes is only
ever data. Words are labels on the left and values on the right; a value that looks like a number is compared
as one. A label that the site does not have makes a comparison false, and `explain` says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_TOKEN = re.compile(r"\s*(?:(==|!=|<=|>=|<|>|=|\(|\)|,)|\"([^\"]*)\"|'([^']*)'|([A-Za-z0-9_][A-Za-z0-9_./-]*))")
_MAX_DEPTH = 64
_WORDS = {"and", "or", "not", "in"}


@dataclass(frozen=True, slots=True)
class Compare:
    """`label op value`; for `in`, several values."""

    label: str
    op: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        shown = f"({', '.join(self.values)})" if self.op in ("in", "not in") else self.values[0]
        return f"{self.label} {self.op} {shown}"


@dataclass(frozen=True, slots=True)
class Exists:
    """The label is there."""

    label: str

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    part: Expression

    def __str__(self) -> str:
        return f"not ({self.part})"


@dataclass(frozen=True, slots=True)
class Every:
    """All parts hold."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " and ".join(f"({p})" if isinstance(p, Either) else str(p) for p in self.parts)


@dataclass(frozen=True, slots=True)
class Either:
    """At least one part holds."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " or ".join(str(p) for p in self.parts)


Expression = Compare | Exists | Not | Every | Either


def parse_expression(text: str) -> Expression:
    """Read an expression; raises ValueError that points at the place."""
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if not match:
                raise ValueError(
                    f"cannot read {text[position:].strip()[:20]!r} at position {position + 1} of {text[:200]!r}"
                )
            sign, double, single, word = match.groups()
            if sign:
                self.tokens.append(("sign", sign, match.start(1)))
            elif word is not None:
                self.tokens.append(("word", word, match.start(4)))
            else:
                self.tokens.append(("text", double if double is not None else single, match.start()))
            position = match.end()
        self.at = 0

    def parse(self) -> Expression:
        if not self.tokens:
            raise ValueError("is empty; write something like location == IT and price < 2")
        tree = self._either(0)
        if self.at < len(self.tokens):
            raise self._wrong("and, or, or the end")
        return tree

    def _peek(self) -> tuple[str, str]:
        kind, value, _ = self.tokens[self.at] if self.at < len(self.tokens) else ("end", "the end", 0)
        return kind, value

    def _take(self, *signs: str) -> str | None:
        kind, value = self._peek()
        if kind in ("sign", "word") and value in signs:
            self.at += 1
            return value
        return None

    def _wrong(self, wanted: str) -> ValueError:
        return ValueError(f"expected {wanted} but found {self._peek()[1][:80]!r} in {self.text[:200]!r}")

    def _either(self, depth: int) -> Expression:
        if depth > _MAX_DEPTH:
            raise ValueError("is nested too deeply")
        parts = [self._every(depth)]
        while self._take("or"):
            parts.append(self._every(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _every(self, depth: int) -> Expression:
        parts = [self._unary(depth)]
        while self._take("and"):
            parts.append(self._unary(depth))
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _unary(self, depth: int) -> Expression:
        if depth > _MAX_DEPTH:
            raise ValueError("is nested too deeply")
        if self._take("not"):
            return Not(self._unary(depth + 1))
        if self._take("("):
            inner = self._either(depth + 1)
            if not self._take(")"):
                raise self._wrong(")")
            return inner
        return self._compare()

    def _compare(self) -> Expression:
        kind, label = self._peek()
        if kind != "word" or label in _WORDS:
            raise self._wrong("the name of a label")
        self.at += 1
        if op := self._take("==", "!=", "<=", ">=", "<", ">", "="):
            return Compare(label, "==" if op == "=" else op, (self._value(),))
        negated = self._take("not") is not None
        if self._take("in"):
            if not self._take("("):
                raise self._wrong("( and a list of values")
            values = [self._value()]
            while self._take(","):
                values.append(self._value())
            if not self._take(")"):
                raise self._wrong(")")
            return Compare(label, "not in" if negated else "in", tuple(values))
        if negated:
            raise self._wrong("in")
        return Exists(label)

    def _value(self) -> str:
        kind, value = self._peek()
        if kind not in ("word", "text") or (kind == "word" and value in _WORDS):
            raise self._wrong("a value")
        self.at += 1
        return value


_ORDER: Mapping[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def matches(expression: Expression, labels: Mapping[str, str]) -> bool:
    """Whether the labels satisfy the expression."""
    match expression:
        case Exists(label):
            return label in labels
        case Not(part):
            return not matches(part, labels)
        case Every(parts):
            return all(matches(part, labels) for part in parts)
        case Either(parts):
            return any(matches(part, labels) for part in parts)
        case Compare(label, op, values):
            return label in labels and _compares(labels[label], op, values)


def _compares(actual: str, op: str, values: tuple[str, ...]) -> bool:
    if op in ("==", "in"):
        return any(_equal(actual, value) for value in values)
    if op in ("!=", "not in"):
        return not any(_equal(actual, value) for value in values)
    left, right = _number(actual), _number(values[0])
    return left is not None and right is not None and _ORDER[op](left, right)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _equal(actual: str, wanted: str) -> bool:
    if actual == wanted:
        return True
    left, right = _number(actual), _number(wanted)
    return left is not None and left == right


def unordered(expression: Expression) -> Compare | None:
    """A part that can never hold, whatever the labels are: one that asks for less or more than what is no number."""
    match expression:
        case Every(parts) | Either(parts):
            return next((found for part in parts if (found := unordered(part))), None)
        case Not(part):
            return unordered(part)
        case Compare(_, op, (value, *_)) if op in _ORDER and _number(value) is None:
            return expression
        case _:
            return None


def explain(expression: Expression, labels: Mapping[str, str]) -> str:
    """Why the labels do not satisfy the expression: the first part that fails, with what the label is."""
    match expression:
        case Every(parts):
            return explain(next((p for p in parts if not matches(p, labels)), parts[0]), labels)
        case Either(parts):
            return " and ".join(dict.fromkeys(explain(part, labels) for part in parts))
        case Not(part):
            return f"{part} holds"
        case Exists(label):
            return f"it has no label {label}"
        case Compare(label, _, _):
            seen = f"its {label} is {labels[label]}" if label in labels else f"it has no label {label}"
            return f"{seen}, wanted {expression}"
