"""The shipped retail rules over real invoice lines, in-process, against the oracle: row for row.

The lines are those of `tests/data`, or of the file that `HEADGATE_RETAIL` names. The same comparison through Kafka and
Spark is another test; this one says within seconds whether rules, kernels or oracle disagree.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest
import yaml

from headgate.records.file_rows import read_rows
from rulecore.documents.loading import load_path
from rulecore.documents.rule import canonical_json
from rulecore.factory import RulesFactory
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.wire.lanes import ALERTS, Record
from tests.harness.oracles import retail_alerts as retail

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LINES = Path(os.environ.get("HEADGATE_RETAIL") or ROOT / "tests" / "data" / "retail_sample.parquet")
NOW_MS = 1_790_000_000_000


def schema() -> StreamSchema:
    return StreamSchema.parse(yaml.safe_load((ROOT / "streams" / "retail.yaml").read_text()))


def records(stream: StreamSchema) -> Iterator[RawRecord]:
    for offset, row in enumerate(read_rows(LINES, stream)):
        yield RawRecord(0, 0, offset, row.value, row.key)


def run(cut_records: int, shards: int) -> list[Record]:
    """Run the rules over the lines in cuts of this size; return every output record."""
    stream = schema()
    factory = RulesFactory((RuleStream(stream, "retail"),))
    app = InProcessApp(App("retail", (Source(stream, "retail"),), "control", {}, (factory,), shards=shards))
    loaded, problems = load_path(ROOT / "rules" / "retail")
    assert not problems
    rules = [one.rule for one in loaded if one.rule is not None]
    output = app.cut([control_record(i, r.id, canonical_json(r)) for i, r in enumerate(rules)], NOW_MS)
    source = records(stream)
    while cut := [*itertools.islice(source, cut_records)]:
        output += app.cut(cut, NOW_MS, tasks=2)
    return output


def read(value: bytes) -> retail.OracleAlert:
    """Return an alert of the product in the form of the oracle."""
    alert = json.loads(value)
    window, source = alert["window"], alert["source"]
    return retail.OracleAlert(
        rule=alert["rule"],
        version=alert["version"],
        key=tuple(alert["key"].items()),
        window=(window["start_ms"], window["end_ms"]) if window else None,
        timing=alert["timing"],
        event_time_ms=alert["event_time_ms"],
        values=tuple(sorted(alert["values"].items())),
        row=source["offset"] if source else None,
    )


@pytest.fixture(scope="module")
def expected() -> list[retail.OracleAlert]:
    return retail.alerts(LINES)


@pytest.mark.parametrize(("cut_records", "shards"), [(20_000, 1), (1_777, 3)])
def test_alerts_equal_the_oracles_row_for_row(
    expected: list[retail.OracleAlert], cut_records: int, shards: int
) -> None:
    output = run(cut_records, shards)
    assert {r.lane for r in output} <= {ALERTS, "status"}  # real lines: none is late or undecodable
    found = [read(r.value) for r in output if r.lane == ALERTS and r.value is not None]
    assert sorted(found, key=retail.by_identity) == expected


def test_the_oracle_covers_every_shipped_rule_and_nearly_all_fire(expected: list[retail.OracleAlert]) -> None:
    loaded, _ = load_path(ROOT / "rules" / "retail")
    assert {one.rule.id for one in loaded if one.rule is not None} == retail.RULES
    assert len({alert.rule for alert in expected}) >= 6


def test_the_sql_of_the_oracle_agrees_with_a_plain_loop(expected: list[retail.OracleAlert]) -> None:
    """One early and one final rule are computed again line by line, to find errors in the SQL."""
    bursts: dict[tuple[int, int], tuple[int, int]] = {}
    days: dict[tuple[str, int], list[int]] = {}
    history: dict[int, list[tuple[int, int]]] = {}
    last_ms = 0
    for row, line in enumerate(pq.read_table(LINES).to_pylist()):
        ms = round(line["InvoiceDate"].replace(tzinfo=ZoneInfo("Europe/London")).timestamp() * 1000)
        quantity, milli, hour, last_ms = int(line["Quantity"]), round(line["UnitPrice"] * 1000), ms // 3_600_000, ms
        if quantity > 0 and line["Country"] != "United Kingdom":
            days.setdefault((line["Country"], ms // 86_400_000), []).append(quantity * milli)
        if quantity < 0 and milli > 0 and line["CustomerID"] is not None:
            customer = int(line["CustomerID"])
            history.setdefault(customer, []).append((hour, quantity * milli))
            recent = [value for then, value in history[customer] if hour - 24 < then <= hour]
            if len(recent) >= 5 and sum(recent) < -100_000:
                bursts.setdefault((customer, (hour + 1) * 3_600_000), (row, len(recent)))
    early = {
        (a.key[0][1], a.window[1]): (a.row, dict(a.values)["count(*)"])
        for a in expected
        if a.rule == "cancellation-burst" and a.window
    }
    assert early == bursts
    closed = {k: v for k, v in days.items() if (k[1] + 1) * 86_400_000 <= last_ms - 10_000}
    final = {(a.key[0][1], a.event_time_ms // 86_400_000 - 1) for a in expected if a.rule == "daily-country-sales"}
    assert final == {k for k, v in closed.items() if len(v) >= 50 or sum(v) >= 10_000_000}
    assert bursts
    assert final
