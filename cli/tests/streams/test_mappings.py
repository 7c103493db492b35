"""The mapping that an etl app has accepted is found among all that was published to it."""

from __future__ import annotations

import pytest

from headgate.rules.history import AcceptedMapping, accepted_mapping
from headgate.rules.publish import ControlResponse
from rulecore.documents.status import Subject
from rulecore.ruleset.history import ControlEntry
from streamcore.engine.publication import AppPublication
from streamcore.kafka.control_topic import RecordOffset
from streamcore.kernel import ControlRecord

STREAM = {
    "name": "orders",
    "version": 3,
    "event_time": "at",
    "keys": [["shop"]],
    "fields": {"at": "timestamp not null", "shop": "string not null"},
}


def published(offset: int, version: int, app: str = "shop") -> ControlEntry:
    """Return the record of a mapping of two inputs."""
    inputs = [{"stream": STREAM, "map": {"a": "shop", "b": "at"}}, {"stream": {"name": "old"}, "map": {"a": "x"}}]
    record = AppPublication(app, {"version": version, "inputs": inputs})
    return ControlEntry(ControlRecord(0, offset, record.key.encode(), record.encode()), 0, None, None)


def answer(offset: int, status: str, subject: Subject = Subject.DOCUMENT) -> ControlResponse:
    return ControlResponse("shop", 1, status, None, RecordOffset(0, offset), subject, None, None)


@pytest.mark.parametrize(
    ("answers", "version"),
    [
        ([], None),
        ([answer(0, "accepted")], 1),
        ([answer(0, "accepted"), answer(1, "rejected")], 1),
        ([answer(0, "accepted"), answer(2, "accepted")], 3),
        ([answer(0, "accepted", Subject.STREAM)], None),
    ],
)
def test_the_mapping_in_force_is_the_last_that_was_accepted(
    answers: list[ControlResponse], version: int | None
) -> None:
    found = accepted_mapping("shop", [published(n, n + 1) for n in range(3)], answers)
    assert found == (None if version is None else AcceptedMapping(version, 2, (("orders", 3, 2),)))
