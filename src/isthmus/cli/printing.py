"""What others named, made fit for a terminal: names and messages must not move the cursor or change colours."""

from __future__ import annotations

# Control characters but for the line break and the tab, those of eight bits too; and what reorders text.
_HOSTILE = [*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_VISIBLE = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in _HOSTILE}
_IN_JSON = {code: f"\\u{code:04x}" for code in _HOSTILE}


def printable(text: str) -> str:
    """The text, with what a terminal would obey made visible, such as \\x1b."""
    return text if text.isascii() and text.isprintable() else text.translate(_VISIBLE)


def printable_json(text: str) -> str:
    """A JSON document that means the same and that no terminal obeys."""
    return text.translate(_IN_JSON)
