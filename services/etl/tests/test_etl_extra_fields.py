"""Fields that no stream declares go through a mapping: as a column, and as members of a route's records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from streamcore.errors import ConfigError
from tests.harness.apps.small_etl import events, letters, load, rows, run

MODEL = {"id": "string not null", "city": "string", "rest": "string", "record": "string"}
MAP = {"id": "upper(id)", "city": "address.city", "rest": "rest", "record": "record"}
MERGED = {"name": "clean", "columns": ["id", "city"], "merge": "rest"}
EVENT = {
    "userAgent": "curl",
    "deep": {"n": [1, {"m": None}]},
    "CITY": "x",
    "city": "hidden",
    "address": {"city": "rome"},
}


def test_extra_fields_become_members_of_the_records_of_a_route(tmp_path: Path) -> None:
    settings = load(tmp_path, MAP, model=MODEL, routes=[MERGED, {"name": "whole", "columns": ["id"], "merge": "rest"}])
    output = run(settings, events(EVENT, {}, {"price": "1"}))
    passed = {"userAgent": "curl", "deep": {"n": [1, {"m": None}]}, "CITY": "x"}
    assert rows(output) == [{"id": "O0", "city": "rome"} | passed, *({"id": f"O{n}", "city": None} for n in (1, 2))]
    assert rows(output, "whole") == [{"id": "O0"} | passed | {"city": "hidden"}, {"id": "O1"}, {"id": "O2"}]
    assert letters(output) == []


def test_extra_fields_and_the_whole_record_are_columns_of_text(tmp_path: Path) -> None:
    first, second = events(EVENT, {})
    output = run(load(tmp_path, MAP, model=MODEL, routes=[{"name": "clean"}]), [first, second])
    one, other = rows(output)
    assert json.loads(str(one["rest"])) == {name: value for name, value in EVENT.items() if name != "address"}
    assert other["rest"] is None
    assert [row["record"] for row in (one, other)] == [(record.value or b"").decode() for record in (first, second)]


def test_a_number_that_is_passed_on_keeps_its_digits(tmp_path: Path) -> None:
    (record,) = events({})
    exact = record.value.replace(b"}", b', "n": 12345678901234567890.120, "n": 1e400}')  # type: ignore[union-attr]
    output = run(load(tmp_path, MAP, model=MODEL, routes=[MERGED]), [replace(record, value=exact)])
    (written,) = (one.value for one in output if one.lane == "clean")
    assert written == b'{"id":"O0","city":null,"n": 12345678901234567890.120,"n": 1e400}'


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            {"rest": "upper(rest)"},
            "'rest' must be mapped, and not masked, from a field of the stream orders with from: _",
        ),
        ({"rest": "record"}, "'rest' must be mapped, and not masked, from"),
        ({"rest": "rest", "mask": {"rest": {"how": "redact"}}}, "'rest' must be mapped, and not masked, from"),
        ({"rest": "rest", "merge": "no"}, "'no' must be mapped"),
        ({"rest": "rest", "to": "delta"}, "the rows of a table have columns; write rest to one of them"),
    ],
)
def test_only_extra_fields_are_merged(tmp_path: Path, change: dict[str, object], error: str) -> None:
    more = {"mask": change["mask"]} if "mask" in change else {}
    if "to" in change:
        more["delta"] = {"tables": {"clean": {"uri": str(tmp_path / "t")}}}
    route = MERGED | {"merge": change.get("merge", "rest"), "to": change.get("to", "kafka")}
    with pytest.raises(ConfigError, match="routes.0.merge: " + error):
        run(load(tmp_path, MAP | {"rest": str(change["rest"])}, model=MODEL, routes=[route], **more))
