"""Records whose arrays have too many values together are decoded in parts, and no output depends on it."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import numpy as np
import orjson
import pyarrow as pa
import pytest

from rulecore.factory import RulesFactory
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.cuts.cut_clock import CutClock
from streamcore.decode.assembly import count_values
from streamcore.decode.formats import JSON, Avro, InputFormat, Registry
from streamcore.decode.types import Decoded, RawBatch
from streamcore.engine.in_process import InProcessApp
from streamcore.engine.ingest import Ingest
from streamcore.limits import Limits
from streamcore.schema import StreamSchema
from streamcore.schema_registry.schemas import RegisteredSchema, SchemaType
from streamcore.wire.raw import raw_batch
from tests.harness.decode.random_avro import varint
from tests.harness.decode.registered_records import Schemas, prefix
from tests.in_process.test_projection import CLOCK, RULES, events, make_app, rule

MEMBERS = [f"m{n}" for n in range(20)]
WIDE = StreamSchema.parse(
    {
        "name": "wide",
        "event_time": "at",
        "keys": [[]],
        "fields": {
            "at": "timestamp not null",
            "items": f"array<struct<{', '.join(f'{name}:long' for name in MEMBERS)}>>",
            "tags": "map<string,string>",
        },
    }
)
AVRO = {
    "type": "record",
    "name": "Wide",
    "fields": [
        {"name": "at", "type": "long"},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": name, "type": ["null", "long"]} for name in MEMBERS],
                },
            },
        },
    ],
}
MOST = 2_000


def as_json(n: int) -> bytes:
    return orjson.dumps({"at": CLOCK + n, "items": [{}] * (n % 50), "tags": {"a": "b", "c": str(n)}})


def in_doubt(n: int) -> bytes:
    """Return a record that the walk leaves to the reference."""
    return orjson.dumps({"at": CLOCK + n, "items": [{}] * (n % 50)})[:-1] + b', "\\u0074ags": {"a": "b"}}'


def as_avro(n: int) -> bytes:
    file = io.BytesIO()
    values: dict[str, Any] = {"at": CLOCK + n, "items": [dict.fromkeys(MEMBERS)] * (n % 50)}
    fastavro.writer(file, fastavro.parse_schema(AVRO), [values], sync_marker=b"0" * 16)
    return file.getvalue()


PROTOBUF = f"""
syntax = "proto3";
message Wide {{ int64 at = 1; repeated Item items = 2; map<string, string> tags = 3; }}
message Item {{ {" ".join(f"optional int64 {name} = {n};" for n, name in enumerate(MEMBERS, 1))} }}
"""


def _prefixed(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def as_protobuf(n: int) -> bytes:
    """Return a record with one of five schemas, which are the same under other ids."""
    tags = b"".join(
        _prefixed(3, _prefixed(1, name) + _prefixed(2, text)) for name, text in ((b"a", b"b"), (b"c", b"%d" % n))
    )
    return prefix(n % 5) + b"\0" + b"\x08" + varint(CLOCK + n) + b"\x12\0" * (n % 50) + tags


REGISTERED = [RegisteredSchema(n, SchemaType.PROTOBUF, PROTOBUF) for n in range(5)]


class Watched:
    """A decoder that notes how many values its events have, and how many records each batch."""

    def __init__(self, decoder: Any) -> None:
        self._decoder, self.decoded = decoder, list[tuple[int, int]]()

    def decode(self, batch: RawBatch) -> Decoded:
        found: Decoded = self._decoder.decode(batch)
        values = sum(count_values(chunk) for column in found.events.columns for chunk in column.chunks)
        self.decoded.append((values, len(batch)))
        return found


def make_wide(written: InputFormat, most: int) -> App:
    kernel = RulesFactory((RuleStream(WIDE, "wide"),))
    source = Source(WIDE, "wide", format=written)
    return App("t", (source,), "control", {}, (kernel,), shards=2, limits=Limits(max_batch_values=most))


def batch_of(make: Callable[[int], bytes], count: int) -> pa.RecordBatch:
    zeros, offsets = np.zeros(count, np.int32), np.arange(count, dtype=np.int64)
    return raw_batch(zeros, zeros, offsets, [None] * count, [make(n) for n in range(count)], [None] * count)


def rows_of(process: InProcessApp, ingest: Ingest, batch: pa.RecordBatch) -> Iterator[Any]:
    blocks = [*ingest.process([batch], CutClock.at(CLOCK + 1_000), {0: 0}, schemas=Schemas(*REGISTERED))]
    for output in process.run(blocks):
        yield from (output.events, output.watermark_ms, output.all_records())


@pytest.mark.slow
@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("written", "make"),
    [(JSON, as_json), (JSON, in_doubt), (Avro(), as_avro), (Registry(), as_protobuf)],
    ids=["json", "in-doubt", "avro", "protobuf"],
)
def test_no_batch_has_more_values_than_the_limit_and_all_records_become_events(
    written: InputFormat, make: Callable[[int], bytes]
) -> None:
    app, batch = make_wide(written, MOST), batch_of(make, 300)
    ingest = Ingest(app)
    watched = Watched(ingest.decoders[0])
    ingest.decoders[0] = watched
    divided = [*rows_of(InProcessApp(app), ingest, batch)]
    assert divided == [*rows_of(InProcessApp(app), Ingest(make_wide(written, 1_000_000)), batch)]
    assert sum(records for _, records in watched.decoded) == 300
    assert max(values for values, _ in watched.decoded) <= MOST + 50, "the reference counts an entry of a map once"
    assert len(watched.decoded) < 300
    assert ingest.counters["divided_batches.wide"] == len(watched.decoded) - 1


def test_one_record_is_never_divided() -> None:
    ingest = Ingest(make_wide(JSON, 1))
    assert [*ingest.process([batch_of(lambda _: as_json(49), 3)], CutClock.at(CLOCK + 1_000), {0: 0})]
    assert ingest.counters["divided_batches.wide"] == 2


@pytest.mark.slow
def test_what_rules_write_does_not_depend_on_the_limit() -> None:
    draw = random.Random(3)
    divided, whole = InProcessApp(make_app(max_batch_values=8)), InProcessApp(make_app())
    for cut in range(6):
        controls = [] if cut else [rule(name) for name in RULES if name != "list"]
        records = [*controls, *events(draw, cut * 40, 40, 3 * cut)]
        assert divided.cut(records, CLOCK + cut) == whole.cut(records, CLOCK + cut)
    counters = [name for one in divided.outputs for name in one.metrics.counters]
    assert "divided_batches.pay" in counters
