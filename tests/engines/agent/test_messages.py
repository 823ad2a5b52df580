"""What an agent says is bounded, of the right form and possible, or left out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.engines.agent.frames import ProtocolViolation, document
from isthmus.engines.agent.linking import encode_body
from isthmus.engines.agent.messages import (
    encode_observation,
    encode_run,
    error_of,
    parse_ids,
    parse_inventory,
    parse_listing,
    parse_observation,
    parse_run,
)
from isthmus.engines.base import Account, EndReason, Observation, Run, RunState, RunUsage, Stream
from isthmus.engines.environment_words import PythonSetup
from isthmus.errors import EngineRefused, NotFound, SiteUnavailable
from isthmus.resources.work.trees import TreeFile, digest_of

NOW = datetime(2026, 5, 1, tzinfo=UTC)
ID = "6f1d4b2e-0000-4000-8000-0123456789ab.0"
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
FIELDS = (
    "state",
    "engineId",
    "startedAt",
    "endedAt",
    "reason",
    "message",
    "exitCode",
    "signal",
    "usage",
    "devices",
    "image",
)


def test_a_run_arrives_as_it_was_sent() -> None:
    run = Run(
        ID, "physics", "job", command=("a", "b c"), env={"X": "ü\n"}, log_files={Stream.STDOUT: "log"},
        account=Account(uid=7), devices={"akida": 1}, time_limit=2.5, stdin="in",
        python=PythonSetup(("numpy==2.1",), "3.12", wheels="/opt/wheels"),
    )  # fmt: skip
    files = [TreeFile(path="in", digest=digest_of(b"x"), size=1), TreeFile(path="l", link="in")]
    assert parse_run(encode_body(encode_run(run, files))) == (run, files)
    assert parse_run(encode_body(encode_run(run, None))) == (run, None)
    for bad in (
        b"",
        b"[]",
        b'{"run": {}}',
        encode_body({"run": encode_run(run, None)["run"], "files": [{"path": "../x"}]}),
    ):
        with pytest.raises(EngineRefused, match="does not understand"):
            parse_run(bad)


def test_an_observation_arrives_as_it_was_sent() -> None:
    seen = Observation(
        RunState.ENDED, "17", NOW - timedelta(hours=1), NOW, EndReason.COMPLETED, "well", 3, None,
        RunUsage(1.5, 0.5, 100, 2.0, "rapl"), {"akida": ["0"]}, "sha256:0",
    )  # fmt: skip
    assert parse_observation(encode_observation(seen), NOW, 0.0) == seen


def test_times_are_those_of_our_clock() -> None:
    year = timedelta(days=365)
    ahead = Observation(RunState.ENDED, started_at=NOW + year, ended_at=NOW + year + timedelta(seconds=5))
    seen = parse_observation(encode_observation(ahead), NOW + timedelta(minutes=1), year.total_seconds())
    assert (seen.started_at, seen.ended_at) == (NOW, NOW + timedelta(seconds=5))
    lies = parse_observation(encode_observation(ahead), NOW, 0.0)
    assert (lies.started_at, lies.ended_at) == (None, None)
    backwards = {"state": "Ended", "startedAt": NOW.timestamp(), "endedAt": NOW.timestamp() - 9}
    assert parse_observation(backwards, NOW, 0.0).ended_at == NOW


@given(st.dictionaries(st.sampled_from(FIELDS), anything))
def test_no_words_of_an_agent_harm_an_observation(said: dict[str, Any]) -> None:
    seen = parse_observation(said, NOW, 0.0)
    assert seen.state in RunState
    assert len(seen.message) <= 4096
    assert seen.exit_code is None or 0 <= seen.exit_code <= 255
    for moment in (seen.started_at, seen.ended_at):
        assert moment is None or moment <= NOW + timedelta(minutes=1)
    parse_observation(encode_observation(seen), NOW, 0.0)


@given(anything, anything)
def test_no_words_of_an_agent_harm_an_inventory_or_a_listing(one: Any, other: Any) -> None:
    said = {"capacity": one, "features": other, "able": one, "node": other, "version": one}
    inventory, able = parse_inventory(said)
    assert 0 <= inventory.capacity.cpus <= 100_000
    assert len(inventory.features) <= 64
    assert not able.queues
    assert len(parse_listing({"files": one, "complete": other}, 10).files) <= 10
    assert all(len(found) < 60 for found in parse_ids(one))


def test_numbers_without_end_are_none() -> None:
    """JSON has whole numbers of any length, and Python reads them."""
    endless = 10**400
    seen = parse_observation({"endedAt": endless, "exitCode": endless, "usage": {"cpu_seconds": endless}}, NOW, 0.0)
    assert (seen.ended_at, seen.exit_code) == (None, None)
    inventory, _ = parse_inventory({"capacity": {"cpus": endless, "memoryBytes": endless, "devices": {"a": endless}}})
    assert (inventory.capacity.cpus, inventory.capacity.memory_bytes, inventory.capacity.devices) == (0, 0, {})
    assert parse_listing({"files": [["a", "File", endless, -endless]]}, 1).files[0].size == 0
    for said in (b'{"a": NaN}', b'{"a": Infinity}', b"[" * 100_000, b"\xff", b""):
        with pytest.raises(ProtocolViolation):
            document(said)


def test_words_that_are_not_known_conclude_nothing() -> None:
    seen = parse_observation({"state": "Hovering", "reason": "Bored", "message": "a\x1b[2Jb"}, NOW, 0.0)
    assert (seen.state, seen.reason, seen.message) == (RunState.UNKNOWN, None, "a[2Jb")
    assert parse_ids([ID, "../../etc", 3, None, ID.upper()]) == {ID}
    assert isinstance(error_of({"code": "NotFound", "message": "gone"}), NotFound)
    assert isinstance(error_of({"code": "EngineRefused"}), EngineRefused)
    assert type(error_of({"code": "Superseded", "message": 7})) is SiteUnavailable
