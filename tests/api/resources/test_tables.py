from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from starlette.exceptions import HTTPException

from isthmus._kit.clock import timestamp
from isthmus.api.resources.tables import Form, form_of, human_duration, table
from isthmus.resources.kinds import KINDS

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-100, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (600, "10m"),
        (3 * 3600 - 1, "179m"), (3 * 3600, "3h"), (3 * 3600 + 120, "3h2m"), (8 * 3600, "8h"), (47 * 3600, "47h"),
        (50 * 3600, "2d2h"), (8 * 86400, "8d"), (700 * 86400, "700d"), (800 * 86400, "2y70d"), (3000 * 86400, "8y"),
    ],
)  # fmt: skip
def test_ages_look_like_kubectls(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (b"", Form.OBJECT),
        (b"*/*", Form.OBJECT),
        (b"application/json", Form.OBJECT),
        (b"application/json, */*", Form.OBJECT),
        (b"application/json;stream=watch", Form.OBJECT),
        (b"application/vnd.kubernetes.protobuf,application/json", Form.OBJECT),
        (
            b"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            Form.TABLE,
        ),
        (b"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Form.METADATA),
        (b"application/json;g=meta.k8s.io;v=v1;as=PartialObjectMetadata", Form.METADATA),
        (b"application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Form.OBJECT),
    ],
)
def test_the_first_offered_form_is_taken(accept: bytes, form: Form) -> None:
    assert form_of(accept) is form


@pytest.mark.parametrize("accept", [b"text/html", b"application/json;as=Chair;v=v1;g=meta.k8s.io"])
def test_other_forms_are_refused(accept: bytes) -> None:
    with pytest.raises(HTTPException) as caught:
        form_of(accept)
    assert caught.value.status_code == 406


def test_a_row_has_a_cell_for_every_column() -> None:
    job = {
        "apiVersion": "isthmus.dev/v1",
        "kind": "Job",
        "metadata": {"name": "x", "creationTimestamp": timestamp(NOW - timedelta(minutes=5))},
        "status": {"phase": "Running", "startedAt": timestamp(NOW - timedelta(seconds=7))},
    }
    found = table(KINDS["Job"], [job], {"resourceVersion": "1"}, NOW)
    columns = [column["name"] for column in found["columnDefinitions"]]
    cells = dict(zip(columns, found["rows"][0]["cells"], strict=True))
    assert cells["Name"] == "x"
    assert cells["Phase"] == "Running"
    assert cells["Age"] == "5m"
    assert cells["Started"] == "7s"
    assert cells["Exit"] is None
    assert found["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert {c["name"] for c in found["columnDefinitions"] if c["priority"]} >= {"Started", "Message"}
    assert "object" not in table(KINDS["Job"], [job], {}, NOW, "None")["rows"][0]
    assert table(KINDS["Job"], [job], {}, NOW, "Object")["rows"][0]["object"] is job
