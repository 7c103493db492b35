"""Real invoice lines through the ETL app, in-process, against SQL: row for row, from bytes to bytes.

The lines are those of `tests/data`, or of the file that `HEADGATE_RETAIL` names.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from headgate_etl.app import build_app
from rulecore.language import ListType
from rulecore.lists.records import ListHead, list_records
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import STRING, Type
from streamcore.wire.lanes import Record
from tests.harness.apps.retail_etl import MODEL, ROOT, records, settings
from tests.harness.oracles.retail_etl_sql import RATES, Expected

pytestmark = pytest.mark.slow

LINES = Path(os.environ.get("HEADGATE_RETAIL") or ROOT / "tests" / "data" / "retail_sample.parquet")
NOW_MS = 1_790_000_000_000


def rates(version: int, entries: dict[str, str]) -> list[RawRecord]:
    """Return the control records of the list."""
    kind = ListType("rates", STRING, Type.parse("decimal(12,6)"))
    head = ListHead(list=kind.name, version=version, owner="finance", of=kind.of, value=kind.value)
    found = list_records(head, [[key, value] for key, value in entries.items()])
    return [control_record(100 * version + n, key, value) for n, (key, value) in enumerate(found)]


def run(cut_records: int, shards: int, tasks: int) -> tuple[list[Record], Counter[str]]:
    """Run the app over the lines in cuts of this size; return its output."""
    app = InProcessApp(build_app(settings(shards=shards)))
    output, counted = app.cut(rates(1, RATES), NOW_MS), Counter[str]()
    source = records(LINES)
    while cut := [*itertools.islice(source, cut_records)]:
        output += app.cut(cut, NOW_MS, tasks=tasks)
        for shard in app.outputs:
            counted.update(shard.metrics.counters)
    return output, counted


@pytest.fixture(scope="module")
def expected() -> Expected:
    return Expected(LINES)


@pytest.fixture(scope="module", params=[(1_000_000, 1, 1), (1_999, 3, 2)], ids=["one cut", "many cuts, three shards"])
def found(request: pytest.FixtureRequest) -> tuple[list[Record], Counter[str]]:
    return run(*request.param)


Found = tuple[list[Record], Counter[str]]


def rows(output: list[Record], lane: str) -> list[tuple[object, ...]]:
    """Return the values of a lane's records, in the order of the model."""
    return [tuple(json.loads(r.value or b"")[name] for name in MODEL) for r in output if r.lane == lane]


@pytest.mark.parametrize("lane", ["sales", "returns"])
def test_every_row_of_a_lane_equals_the_oracles(lane: str, found: Found, expected: Expected) -> None:
    wanted = expected.lane(sales=lane == "sales")
    assert sorted(map(repr, rows(found[0], lane))) == sorted(map(repr, wanted))
    assert wanted


def test_every_dead_letter_has_the_oracles_reason_and_the_original_bytes(found: Found, expected: Expected) -> None:
    sent = {("retail", "retail_text")[r.source] + f"/{r.offset}": r for r in records(LINES)}
    letters = []
    for letter in (r for r in found[0] if r.lane == "deadletters"):
        headers = {name: value.decode() for name, value in letter.headers}
        original = sent[f"{headers['source_topic']}/{headers['source_offset']}"]
        assert (letter.key, letter.value) == (original.key, original.value)
        assert headers["source_partition"] == "0"
        letters.append((headers["source_topic"], int(headers["source_offset"]), headers["reason_code"]))
    assert sorted(letters) == sorted(expected.letters())
    assert len({code for _, _, code in letters}) >= 4


def test_the_number_of_duplicates_equals_the_oracles(found: Found, expected: Expected) -> None:
    assert found[1]["deduplicate.duplicates"] == expected.duplicates() > 0


def test_a_published_list_is_answered_once(found: Found) -> None:
    answers = [json.loads(r.value or b"") for r in found[0] if r.lane == "status"]
    assert [(one["rule"], one["version"], one["status"]) for one in answers] == [("rates", 1, "accepted")]
