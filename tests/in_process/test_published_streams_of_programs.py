"""Documents of streams that are published while a program of a user runs: a function makes the topology anew."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from streamcore.app import App
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.engine.publication import StreamPublication
from streamcore.service.program.app import ProgramApp
from streamcore.service.program.definition import program_service
from streamcore.service.program.reference import load_program
from streamcore.wire.lanes import STATUS, Record

NOW_MS = 1_790_000_000_000
DOCUMENT: dict[str, Any] = {
    "name": "orders",
    "event_time": "at",
    "keys": [["shop"]],
    "fields": {"at": "timestamp not null", "shop": "string not null", "amount": "long"},
}
PROGRAM = """
import polars as pl

import streamcore as sc

ORDERS = sc.StreamSchema.parse({document})


def topology():
    orders = sc.source(ORDERS, sc.bounded_out_of_orderness("5s"))
    sums = orders.key_by("shop").window(sc.Tumbling("1m")).aggregate("sums", amount=sc.Sum("amount"))
    return sc.Topology("shop", orders.sink("copy"), sums.sink("sums", key="shop"))


class Keep(sc.ProcessFunction):
    outputs = {{sc.MAIN: {{"shop": pl.String}}}}

    def process(self, event, context):
        yield {{"shop": event.shop}}


def whole_rows():
    orders = sc.source(ORDERS, sc.bounded_out_of_orderness("5s"))
    return sc.Topology("shop", orders.key_by("shop").process(Keep(), name="keep").sink("kept", key="shop"))


same = topology()
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[str]:
    """The file of the program; its module is forgotten at the end."""
    path = tmp_path / "program_of_orders.py"
    path.write_text(PROGRAM.format(document=DOCUMENT))
    yield str(path)
    sys.modules.pop(path.stem, None)
    sys.path.remove(str(tmp_path))


def build(reference: str) -> App:
    loaded = load_program(reference)
    settings = loaded.settings.model_validate(
        {"app": "shop", "kafka": {"bootstrap": "nowhere:1"}, "checkpoint": "/nowhere", "streams": {"orders": {}}}
    )
    return ProgramApp(loaded).build_app(settings)


def publish(app: InProcessApp, offset: int, **changes: object) -> dict[str, Any]:
    """Publish a later document; return the answer, which comes with this cut or the next one."""
    record = StreamPublication({**DOCUMENT, **changes})
    output = [*app.cut([control_record(offset, record.key, record.encode())], NOW_MS), *app.cut([], NOW_MS)]
    (answer,) = (orjson.loads(one.value or b"") for one in output if one.lane == STATUS)
    return dict(answer)


def order(offset: int, at_ms: int, **fields: object) -> RawRecord:
    return RawRecord(0, 0, offset, orjson.dumps({"at": at_ms, "shop": "a", "amount": 1, **fields}))


def lane(records: list[Record], name: str) -> list[dict[str, Any]]:
    return [orjson.loads(one.value or b"") for one in records if one.lane == name]


@pytest.mark.slow
def test_a_program_takes_a_new_field_with_all_state_and_has_it_after_a_restart(program: str) -> None:
    app = InProcessApp(pickle.loads(pickle.dumps(build(program))))
    first = app.cut([order(0, NOW_MS - 600_000, note="x")], NOW_MS)
    assert [row.get("note") for row in lane(first, "copy")] == [None]
    fields = {**DOCUMENT["fields"], "note": "string"}
    answer = publish(app, 0, version=2, fields=fields)
    assert (answer["status"], answer["subject"], answer["version"]) == ("accepted", "stream", 2)
    again = InProcessApp(build(program), app.blobs, streams=app.streams, next_offsets=app.next_offsets)
    later = [order(1, NOW_MS - 600_000 + 1, note="y"), order(2, NOW_MS - 500_000)]
    output = again.cut(later, NOW_MS)
    assert [row.get("note") for row in lane(output, "copy")] == ["y", None]
    assert [row["amount"] for row in lane(output, "sums")] == [2], "the sum of before goes on"


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 2, "fields": {**DOCUMENT["fields"], "amount": "string"}}, "amount"),
        ({"version": 2, "fields": {name: DOCUMENT["fields"][name] for name in ("at", "shop")}}, "amount"),
        ({"version": 2, "name": "others"}, "name the topic of its records"),
        ({"fields": {**DOCUMENT["fields"], "note": "string"}}, "version 1 is not above version 1"),
    ],
)
def test_what_a_program_cannot_take_is_rejected_with_the_reason(
    program: str, changes: dict[str, Any], reason: str
) -> None:
    answer = publish(InProcessApp(build(program)), 0, **changes)
    assert answer["status"] == "rejected"
    assert reason in answer["reason"]


def test_a_function_that_gets_whole_rows_takes_no_new_field(program: str) -> None:
    fields = {**DOCUMENT["fields"], "note": "string"}
    answer = publish(InProcessApp(build(f"{program}:whole_rows")), 0, version=2, fields=fields)
    assert answer["status"] == "rejected"
    assert "the rows after key_by would have other columns (note)" in answer["reason"]


def test_a_program_that_is_a_value_takes_none_and_has_no_lane_for_answers(program: str) -> None:
    app = build(f"{program}:same")
    assert app.rebuild is None
    assert STATUS not in app.lanes
    services = {name: program_service(f"{program}:{name}") for name in ("same", "topology")}
    settings = services["same"].check_settings(
        {"kafka": {"bootstrap": "nowhere:1"}, "checkpoint": "/nowhere"}, "settings"
    )
    assert {name: STATUS in one.lanes(settings) for name, one in services.items()} == {"same": False, "topology": True}
