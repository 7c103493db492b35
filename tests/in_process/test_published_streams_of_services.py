"""Documents of streams that are published while a sessions or a search app runs: what is taken, with all state, and
what is rejected because state or tables hold values of other types."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest
import yaml

from headgate_search.app import build_app as build_search
from headgate_sessions.app import build_app as build_sessions
from streamcore.app import App
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.engine.publication import AppPublication, StreamPublication
from streamcore.topology.kernel import TopologyStage
from streamcore.wire.lanes import STATUS, Record
from tests.harness.apps import search_app, sessions_app

NOW_MS = 1_790_000_000_000
SHOP: dict[str, Any] = yaml.safe_load((search_app.ROOT / "streams/shop.yaml").read_text())


def shop(**fields: str | None) -> tuple[str, bytes]:
    """Return the control record of a later document of the shop; a field of type None is left out."""
    document = copy.deepcopy(SHOP) | {"version": 2}
    document["fields"] = {name: kind for name, kind in {**document["fields"], **fields}.items() if kind}
    record = StreamPublication(document)
    return record.key, record.encode()


def answers(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [orjson.loads(one.value or b"") for one in records if one.lane == STATUS]


def publish(app: InProcessApp, change: tuple[str, bytes], offset: int = 0) -> dict[str, Any]:
    """Publish a record; return the answer, which comes with this cut or the next one."""
    output = [*app.cut([control_record(offset, *change)], NOW_MS), *app.cut([], NOW_MS)]
    (answer,) = answers(output)
    return answer


def event(source: int, offset: int, **fields: object) -> RawRecord:
    return RawRecord(source, 0, offset, orjson.dumps(fields))


def shop_event(source: int, offset: int, **fields: object) -> RawRecord:
    whole = {"event_id": f"e{offset}", "ts": NOW_MS - 60_000 + offset, "type": "view", "user_id": "u"}
    return event(source, offset, **(whole | fields))


def new_sessions() -> App:
    return build_sessions(sessions_app.new_settings(early_ms=1_000, **sessions_app.table_settings()))


CASES: Sequence[tuple[Mapping[str, str | None], str]] = [
    ({"coupon": "string"}, ""),
    ({"card": "string", "ip": "string"}, ""),
    ({"status": None}, "field status is gone"),
    ({"amount": "decimal(14,3)"}, "not while the app runs: "),
    ({"user_id": "long"}, "not every string is a long"),
]


@pytest.mark.slow
@pytest.mark.parametrize("build", [new_sessions, lambda: build_search(search_app.settings())])
@pytest.mark.parametrize(("fields", "reason"), CASES)
def test_a_stream_is_taken_if_state_and_tables_stay(build: Any, fields: Mapping[str, str], reason: str) -> None:
    app = InProcessApp(build())
    answer = publish(app, shop(**fields))
    assert (answer["subject"], answer["status"]) == ("stream", "rejected" if reason else "accepted")
    assert reason in (answer["reason"] or "")
    assert len(app.streams) == (not reason)
    stage = app.app.stages[-1]
    assert isinstance(stage, TopologyStage)
    schemas = [one.schema for one in pickle.loads(pickle.dumps(stage)).documents.sources]
    assert schemas == list(app.app.schemas)


@pytest.mark.slow
def test_what_no_part_of_the_app_reads_is_rejected() -> None:
    app = InProcessApp(new_sessions())
    other = {
        "name": "other",
        "when": {"from": "type", "equals": "x"},
        **{k: SHOP[k] for k in ("event_time", "keys", "fields")},
    }
    record = StreamPublication(other, "shop")
    assert "nothing in the app reads it" in publish(app, (record.key, record.encode()))["reason"]
    mapping = AppPublication("sessions", {"version": 2})
    assert "documents of streams alone" in publish(app, (mapping.key, mapping.encode()), 1)["reason"]


@pytest.mark.slow
def test_sessions_go_on_with_the_state_of_before() -> None:
    app = InProcessApp(new_sessions())
    app.cut([shop_event(0, 0), shop_event(0, 1)], NOW_MS)
    assert publish(app, shop(coupon="string"))["status"] == "accepted"
    output = app.cut([shop_event(0, 2, event_id="e0"), shop_event(0, 3, coupon="x")], NOW_MS + 10_000)
    sessions = [orjson.loads(one.value or b"") for one in output if one.lane == "sessions"]
    assert [(one["user_id"], one["events"]) for one in sessions] == [("u", 3)], "two of before, one now, one repeated"


@pytest.mark.slow
def test_search_goes_on_with_the_state_of_before() -> None:
    app = InProcessApp(build_search(search_app.settings(publish_changes=True)))
    sold = {"type": "payment", "status": "ok", "product_id": "p", "quantity": 2, "amount": "1.00", "currency": "EUR"}
    product = {"product_id": "p", "op": "upsert", "name": "n", "price": "1.00", "currency": "EUR", "updated_at": NOW_MS}
    app.cut([event(0, 0, **product), shop_event(1, 0, **sold)], NOW_MS)
    assert publish(app, shop(coupon="string"))["status"] == "accepted"
    app.cut([shop_event(1, 1, **sold, coupon="x")], NOW_MS + 1_000)
    output = app.cut([], NOW_MS + 60_000)
    found = [orjson.loads(one.value or b"") for one in output if one.lane == "changes"]
    assert (found[-1]["id"], found[-1]["units_1h"]) == ("p", 4), found
