"""The chain of an audit log: whatever is done to a line shows."""

from __future__ import annotations

import random

from isthmus.identity.audit.chaining import Head, Verifier, seal


def chain(count: int) -> tuple[list[bytes], Head]:
    head, lines = Head(), []
    for number in range(count):
        line, head = seal(head, {"user": f"person-{number}"})
        lines.append(line[:-1])
    return lines, head


def problems(lines: list[bytes], noted: Head | None = None) -> list[str]:
    verifier = Verifier(noted)
    for line in lines:
        verifier.line(line)
    verifier.end()
    return verifier.problems


def test_what_was_not_touched_is_intact() -> None:
    lines, head = chain(50)
    assert problems(lines, head) == []
    assert problems(lines[:0]) == []


def test_every_change_of_a_byte_is_found() -> None:
    lines, head = chain(6)
    chance = random.Random(7)
    for index, line in enumerate(lines):
        for place in range(len(line)):
            other = bytes([chance.choice([b for b in range(256) if b not in (line[place], 10)])])
            changed = [*lines]
            changed[index] = line[:place] + other + line[place + 1 :]
            assert problems(changed, head), (index, place)


def test_lines_that_are_removed_repeated_or_moved_are_found() -> None:
    lines, head = chain(8)
    for index in range(8):
        assert problems(lines[:index] + lines[index + 1 :], head), f"{index} removed"
        assert problems([*lines[: index + 1], *lines[index:]], head), f"{index} repeated"
    for index in range(7):
        assert problems([*lines[:index], lines[index + 1], lines[index], *lines[index + 2 :]], head), f"{index} moved"


def test_a_log_that_was_written_anew_is_found_by_what_was_noted() -> None:
    _, noted = chain(5)
    head, anew = Head(), []
    for number in range(9):
        line, head = seal(head, {"user": f"nobody-{number}"})
        anew.append(line[:-1])
    assert problems(anew) == []
    assert "written anew" in problems(anew, noted)[0]


def test_what_is_left_after_the_oldest_were_removed_is_checked() -> None:
    lines, head = chain(3)
    line, head = seal(head, {"event": "continued", "prev": head.hash})
    kept = [line[:-1]]
    unsaid = [*kept]
    line, head = seal(head, {"event": "removed", "upTo": 3})
    kept.append(line[:-1])
    assert problems(kept, head) == []
    assert "no entry says" in problems(unsaid)[0]
    assert len(lines) == 3
