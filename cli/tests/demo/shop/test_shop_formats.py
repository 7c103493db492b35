"""The shop's events in four formats: what the etl app makes of them in-process is what was worked out without it, and a
row or dead letter that is lost, wrong or repeated is found."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fastavro
import polars as pl
import pyarrow as pa
import pytest

from headgate.demo.service import ServiceContext
from headgate.demo.services.etl import EtlService, key_file
from headgate.demo.services.etl_tables import PostgresTable
from headgate.demo.shop.expected_rows import COLUMNS, RATES, ExpectedRows, Row
from headgate.demo.shop.feed import Feed, formats_feed
from headgate.demo.shop.formats import LOGIN_SCHEMA, avro_datum
from headgate.demo.shop.settings import EVENTS_PER_BLOCK, RecordFate, ShopSettings
from headgate.demo.shop.stream import records
from headgate.demo.verify.etl import EtlOutput, RowDifferences, judge, rows_expectation, to_row
from headgate.demo.workspace import PARTITIONS, Workspace
from headgate.errors import InputError
from headgate_etl.app import build_app
from rulecore.lists.records import ListHead, list_records
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.kafka.settings import KafkaSettings
from streamcore.schema import STRING, Type
from streamcore.wire.lanes import Record
from tests.harness.apps.sessions_app import ROOT

pytestmark = pytest.mark.slow

COUNT = 3_000
SHOP = ShopSettings(seed=7, start_ms=1_700_000_000_000)
NAMES = EtlService.app_names
FEED = formats_feed(NAMES.events, NAMES.input, SHOP)
NONE = RowDifferences(0, 0, 0, 0)


def test_a_workspace_keeps_its_kind_of_table(tmp_path: Path) -> None:
    shop = Workspace(tmp_path, NAMES, SHOP, "nowhere")
    context = ServiceContext(KafkaSettings("127.0.0.1:1"), shop, tmp_path, ROOT / "streams")
    shop.settings_file.write_text(EtlService().settings(context).model_dump_json())
    shop.checkpoint.mkdir()
    EtlService().settings(context)
    with pytest.raises(InputError, match="the rows of this workspace go to delta, not to postgres"):
        EtlService(PostgresTable()).settings(context)


def raw_records(feed: Feed, start: int, stop: int, offsets: Counter[tuple[int, int]]) -> Iterator[RawRecord]:
    """Yield a slice of the feed as records of a broker."""
    for one in feed.records(start, stop):
        source, partition = feed.topics.index(one.topic), one.record.partition(PARTITIONS)
        yield RawRecord(source, partition, offsets[source, partition], one.record.value, one.record.key)
        offsets[source, partition] += 1


def rates() -> list[RawRecord]:
    head = ListHead(list="rates", version=1, owner="shop", of=STRING, value=Type.parse("decimal(12,6)"))
    made = list_records(head, [[currency, rate] for currency, rate in RATES.items()])
    return [control_record(number, key, value) for number, (key, value) in enumerate(made)]


def run(folder: Path, cut_records: int) -> list[Record]:
    """Run the app over the feed; the first cut is small, like the primers of the generator."""
    shop = Workspace(folder, NAMES, SHOP, "nowhere")
    settings = EtlService().settings(ServiceContext(KafkaSettings("127.0.0.1:1"), shop, folder, ROOT / "streams"))
    app = InProcessApp(build_app(settings))
    now_ms, offsets = SHOP.start_ms + 10**9, Counter[tuple[int, int]]()
    output = app.cut(rates(), now_ms)
    stops = [*range(EVENTS_PER_BLOCK // 2, COUNT, cut_records), COUNT]
    for start, stop in zip([0, *stops], stops, strict=False):
        output += app.cut([*raw_records(FEED, start, stop, offsets)], now_ms)
    return output


def table_rows(output: list[Record]) -> tuple[Row, ...]:
    """Return the rows of the Delta table."""
    parts = [pa.ipc.open_stream(one.value).read_all() for one in output if one.lane == "events"]
    frame = pl.from_arrow(pa.concat_tables(parts))
    assert isinstance(frame, pl.DataFrame)
    decimals = pl.col("amount", "euros").cast(pl.String)
    return tuple(frame.with_columns(decimals, at_ms=pl.col("at").dt.epoch("ms")).select(*COLUMNS).rows())


def read_output(output: list[Record]) -> EtlOutput:
    """Return the output in the form in which it is read from Kafka."""
    dead_letters = []
    for one in output:
        if one.lane == "deadletters":
            headers = {name: value.decode() for name, value in one.headers}
            place = (headers["source_topic"], int(headers["source_partition"]), int(headers["source_offset"]))
            dead_letters.append((place, headers["reason_code"]))
    return EtlOutput(
        events=COUNT,
        rows=tuple(to_row(json.loads(one.value or b"")) for one in output if one.lane == "clean"),
        table=table_rows(output),
        dead_letters=tuple(dead_letters),
    )


def expected_rows(folder: Path) -> ExpectedRows:
    expectation = rows_expectation(NAMES, key_file(folder).read_bytes().strip())
    for record in records(SHOP, 0, COUNT):
        expectation.add(record)
    return expectation.result()


EMPTY = EtlOutput(0, (), (), ())


@pytest.fixture(scope="module", params=[173, 2_500], ids=["small cuts", "large cuts"])
def found_and_expected(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[EtlOutput, ExpectedRows]:
    folder = tmp_path_factory.mktemp("etl")
    return read_output(run(folder, request.param)), expected_rows(folder)


def test_the_rows_and_dead_letters_of_the_app_equal_the_expectation(
    found_and_expected: tuple[EtlOutput, ExpectedRows],
) -> None:
    verdict = judge(EMPTY, *found_and_expected)
    assert (verdict.topic, verdict.table, verdict.dead_letters) == (NONE, NONE, NONE)
    assert verdict.total == verdict.expected
    assert verdict.passed
    assert verdict.expected.duplicates > 0
    assert {"late", "rule:amount-plausible"} < {*verdict.reasons}
    assert len(verdict.reasons) > 5


def test_every_format_gives_rows_and_dead_letters(found_and_expected: tuple[EtlOutput, ExpectedRows]) -> None:
    output, _ = found_and_expected
    assert {row[COLUMNS.index("source")] for row in output.rows} == {"payments", "access-log", "carts", "logins"}
    assert {place[0] for place, code in output.dead_letters if code not in ("late", "rule:amount-plausible")} == {
        *NAMES.read
    }


def test_the_comparison_finds_lost_wrong_unexpected_and_repeated_rows(
    found_and_expected: tuple[EtlOutput, ExpectedRows],
) -> None:
    output, expected = found_and_expected
    first = output.rows[0]
    other = (*first[:-1], "1.23")
    for rows, differences in (
        (output.rows[1:], RowDifferences(1, 0, 0, 0)),
        ((other, *output.rows[1:]), RowDifferences(0, 1, 0, 0)),
        ((("x", *first[1:]), *output.rows), RowDifferences(0, 0, 1, 0)),
        ((first, *output.rows), RowDifferences(0, 0, 0, 1)),
    ):
        assert judge(EMPTY, replace(output, rows=rows), expected).topic == differences
        assert judge(EMPTY, replace(output, table=rows), expected).table == differences
        assert not judge(EMPTY, replace(output, rows=rows), expected).passed
    (place, _), *others = output.dead_letters
    assert judge(EMPTY, replace(output, dead_letters=tuple(others)), expected).dead_letters.missing == 1
    assert (
        judge(
            EMPTY, replace(output, dead_letters=(*output.dead_letters, (place, "late"))), expected
        ).dead_letters.duplicated
        == 1
    )
    late = next(place for place, code in expected.dead_letters.items() if code == "late")
    renamed = tuple((place, "bad_value" if place == late else code) for place, code in output.dead_letters)
    assert judge(EMPTY, replace(output, dead_letters=renamed), expected).dead_letters.wrong == 1
    assert not judge(EMPTY, replace(output, events=COUNT + 1), expected).passed


def test_every_record_is_in_one_topic_with_its_key() -> None:
    sent = [*FEED.records(0, COUNT)]
    shop_for = [*records(SHOP, 0, COUNT)]
    assert [(one.record.index, one.record.key, one.record.fate) for one in sent] == [
        (record.index, record.key, record.fate) for record in shop_for
    ]
    assert {one.topic for one in sent} == {*NAMES.read} == {*FEED.topics}


def test_a_slice_of_the_feed_equals_that_slice_of_the_whole() -> None:
    assert [*FEED.records(900, 1_100)] == [*FEED.records(0, 1_100)][900:]


def test_logins_are_the_avro_bytes_that_fastavro_writes() -> None:
    logins = [json.loads(r.value or b"") for r in records(SHOP, 0, COUNT) if r.fate is RecordFate.EVENT]
    for body in [one for one in logins if one["type"] == "login"]:
        ok = {"event_id": body["event_id"], "at": body["ts"], "user": body["user_id"], "ok": body["status"] == "ok"}
        target = io.BytesIO()
        schema = fastavro.parse_schema(json.loads(json.dumps(LOGIN_SCHEMA)))
        fastavro.schemaless_writer(target, schema, {**ok, "country": body["country"], "ip": body["ip"]})
        assert avro_datum(body) == target.getvalue()


def test_only_dead_letters_contain_user_ids(tmp_path: Path) -> None:
    users = {record.key for record in records(SHOP, 0, COUNT) if record.key is not None}
    for one in run(tmp_path, 2_500):
        if one.lane not in ("deadletters", "events"):
            values = {str(value).encode() for value in json.loads(one.value or b"").values()}
            assert not values & users


def test_only_its_owner_may_read_the_file_of_the_pseudonym_key(tmp_path: Path) -> None:
    shop = Workspace(tmp_path, NAMES, SHOP, "nowhere")
    context = ServiceContext(KafkaSettings("127.0.0.1:1"), shop, tmp_path, ROOT / "streams")
    settings = EtlService().settings(context)
    key = key_file(tmp_path)
    assert key.stat().st_mode & 0o777 == 0o600
    before = key.read_bytes()
    EtlService().settings(context)
    assert key.read_bytes() == before
    assert before.decode() not in settings.model_dump_json()
