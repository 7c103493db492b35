"""The examples of other systems' events: their documents take their samples, and their rules find what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from headgate.records.scalar_decoder import decode_scalars
from headgate.streams.inference import infer
from headgate.streams.observed_fields import observe
from headgate.streams.sample import read_files
from headgate_etl.app import build_app
from headgate_etl.settings import EtlSettings
from rulecore.documents.loading import load_text
from rulecore.documents.rule import canonical_json
from rulecore.factory import RulesFactory
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.decode.scalar import RejectedRecord, StreamRecord
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, STATUS

FOLDER = Path(__file__).parents[2] / "examples/events"
NOW_MS = 1_800_000_000_000
#: By shape, the messages of the alerts over its sample.
EXPECTED = {
    "cloudevents": ["3 refunds of c-1 in an hour", "c-2 ordered for 1290.00 EUR"],
    "cloudtrail": [
        "bob deleted 3 buckets",
        "bob logged in from 203.0.113.3 without a second factor",
    ],
    "debezium": ["frozen account 1 was deleted", "kim: limit 600.00 to 5000.00"],
    "github": ["emil rewrote refs/heads/main of acme/web", "4 pushes by dora in an hour"],
    "okta": [
        "gil@example.org logged in after 4 events",
        "ivo@example.org logged in through a proxy in Iceland",
    ],
    "otel_logs": ["4 failed requests of payment", f"request failed in trace {9:032x}"],
    "pacs008": ["Lea Ott sent money to several countries", "Max Ulm sends 15000.00 EUR to FR"],
    "segment": ["u2 ordered for 899.00 EUR", "u2 viewed a product and ordered"],
    "stripe": [
        "3 failed charges of cus_1",
        "3 failed charges of cus_4",
        "4 failed charges of cus_1",  # of a later window
        "ch_00000000000015 of cus_3: risk 60",
        "ch_00000000000018 of cus_0: risk 72",
    ],
}
#: Shapes with a mapping alone.
MAPPED_ONLY = (
    "cloudtrail_files",
    "github_events",
    "nginx_access",
    "nginx_error",
    "nyc311",
    "syslog",
    "wikipedia",
)


def schema(name: str) -> StreamSchema:
    return StreamSchema.parse(yaml.safe_load((FOLDER / f"streams/{name}.yaml").read_text()))


def sample(name: str) -> list[bytes]:
    return [record.value for record in read_files([FOLDER / f"samples/{name}.jsonl"], 1_000)]


def test_each_sample_has_a_document_rules_a_mapping_and_a_line_in_the_table() -> None:
    for folder in ("samples", "streams", "rules", "etl"):
        names = [*EXPECTED] if folder == "rules" else sorted([*EXPECTED, *MAPPED_ONLY])
        assert sorted(path.stem for path in (FOLDER / folder).iterdir()) == names
    table = (FOLDER / "README.md").read_text()
    assert all(f"[{name}](rules/{name}.yaml)" in table for name in EXPECTED)
    assert all(f"[{name}](etl/{name}.yaml)" in table for name in MAPPED_ONLY)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_document_is_the_inferred_one_with_another_key(name: str) -> None:
    path = FOLDER / f"samples/{name}.jsonl"
    inferred = infer(observe(read_files([path], 1_000)), name, path.name)
    assert not inferred.problem
    stored = (FOLDER / f"streams/{name}.yaml").read_text()
    without_keys = [
        [line for line in text.splitlines() if not line.startswith("keys:")] for text in (stored, inferred.text)
    ]
    assert without_keys[0] == without_keys[1]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_document_takes_the_sample(name: str) -> None:
    decoded = decode_scalars(schema(name), map(StreamRecord, sample(name)), NOW_MS)
    assert [row for row in decoded if isinstance(row, RejectedRecord)] == []


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", EXPECTED)
def test_the_rules_find_what_is_in_the_sample(name: str) -> None:
    stream = schema(name)
    app = App(
        "t",
        (Source(stream, name),),
        "control",
        {},
        (RulesFactory((RuleStream(stream, name),)),),
        shards=2,
        watermark=WatermarkStrategy(max_out_of_orderness_ms=0),
    )
    loaded, problems = load_text((FOLDER / f"rules/{name}.yaml").read_text())
    assert not problems
    rules = [rule for document in loaded if (rule := document.rule) is not None]
    control: list[Any] = [control_record(n, rule.id, canonical_json(rule)) for n, rule in enumerate(rules)]
    running = InProcessApp(app)
    records = [RawRecord(0, 0, offset, value) for offset, value in enumerate(sample(name))]
    output = [*running.cut([*control, *records], NOW_MS), *running.cut([], NOW_MS)]
    status = [orjson.loads(one.value or b"") for one in output if one.lane == STATUS]
    assert [one["status"] for one in status] == ["accepted", "accepted"]
    messages = [orjson.loads(one.value or b"")["message"] for one in output if one.lane == ALERTS]
    assert sorted(messages) == sorted(EXPECTED[name])


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", EXPECTED)
def test_the_mapping_makes_rows_of_the_sample(name: str) -> None:
    document = yaml.safe_load((FOLDER / f"etl/{name}.yaml").read_text())
    document["inputs"][0]["schema_file"] = str(FOLDER / f"streams/{name}.yaml")
    document["routes"] = [{"name": "rows"}]
    running = InProcessApp(build_app(EtlSettings.model_validate(document | {"postgres": None, "opensearch": None})))
    records = [RawRecord(0, 0, offset, value) for offset, value in enumerate(sample(name))]
    output = running.cut(records, NOW_MS)
    assert {one.lane for one in output} == {"rows"}
    assert len(output) == len(records)


def test_a_cloud_event_in_binary_mode_gives_the_same_event() -> None:
    stream = schema("cloudevents")
    for value in sample("cloudevents"):
        attributes = orjson.loads(value)
        data = orjson.dumps(attributes.pop("data"))
        headers = {f"ce_{name}": text.encode() for name, text in attributes.items() if name != "datacontenttype"}
        headers["content-type"] = b"application/json"
        one, other = decode_scalars(stream, [StreamRecord(value), StreamRecord(data, None, headers)], NOW_MS)
        assert one == other
        assert isinstance(one, tuple)
