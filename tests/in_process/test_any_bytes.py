"""Random bytes as events and as rules, in-process: the app accounts for each record."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate_rules.app import build_app
from headgate_rules.settings import RulesSettings
from streamcore.app import App
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.orders import Order

CLOCK_MS = orders.START_MS + orders.DAY_MS
GOOD = Order(1, orders.START_MS, "u", "pay", None, "GB").value
RULE = rules.many_payments().value

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(["id", "ts", "user", "kind", "amount", "country"])


def changed(document: bytes) -> st.SearchStrategy[bytes]:
    """Return a valid document with some of its entries replaced."""
    entries = json.loads(document)
    changes = st.dictionaries(st.sampled_from(sorted(entries)), json_values, max_size=2)
    return changes.map(lambda change: json.dumps({**entries, **change}).encode())


def cut_up(document: bytes) -> st.SearchStrategy[bytes]:
    """Return a valid document with a part replaced by arbitrary bytes."""
    places = st.integers(0, len(document))
    return st.tuples(places, places, st.binary(max_size=4)).map(lambda p: document[: p[0]] + p[2] + document[p[1] :])


def anything(document: bytes) -> st.SearchStrategy[bytes | None]:
    return st.none() | st.binary(max_size=60) | changed(document) | cut_up(document)


TOKENS = """
    amount kind user country id ts 1 0 2.5 'a' null ( ) , + - * / % = <> < >= and or not is in like between case when
    then end lower( concat( abs( regexp_like( '(a+)+$' reflect( select from -- ; ` {user} \\
"""
expressions = st.lists(st.sampled_from(TOKENS.split()), max_size=12).map(" ".join)
rule_texts = expressions.map(lambda where: json.dumps(rules.document("many-payments", where=where)).encode())


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> App:
    folder = tmp_path_factory.mktemp("anything")
    schema = orders.write_streams(folder)[0]
    document = {
        "app": "anything",
        "kafka": {"bootstrap": "nowhere:1"},
        "streams": [{"schema_file": str(schema), "topic": "orders"}],
        "checkpoint": str(folder),
        "jars": str(folder),
        "shards": 2,
    }
    return build_app(RulesSettings.model_validate(document))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(anything(GOOD), max_size=12),
    controls=st.lists(st.tuples(st.text(max_size=8), anything(RULE) | rule_texts), max_size=4),
    keyed=st.booleans(),
)
def test_random_bytes_do_not_stop_an_app_and_every_record_is_accounted_for(
    app: App, events: list[bytes | None], controls: list[tuple[str, bytes | None]], *, keyed: bool
) -> None:
    local = InProcessApp(app)
    names = [key if keyed else "many-payments" for key, _ in controls]
    first = [control_record(n, name, value) for n, (name, (_, value)) in enumerate(zip(names, controls, strict=True))]
    input_records = [RawRecord(0, n % 2, n, value) for n, value in enumerate([*events, GOOD])]
    lanes = Counter(record.lane for record in local.cut([*first, *input_records], CLOCK_MS))
    taken = local.outputs[0].events
    assert taken + lanes["deadletters"] == len(input_records)
    assert taken >= 1, "the good event among them"
    assert lanes["status"] >= len(controls), "an answer to each change"


STREAM = {**yaml.safe_load(orders.stream_text("orders")), "version": 2}


@st.composite
def stream_records(draw: st.DrawFn) -> bytes | None:
    """Draw the record of a stream's document with some entries or fields replaced, or arbitrary bytes."""
    replaced = draw(st.dictionaries(st.sampled_from(sorted(STREAM)), json_values, max_size=1))
    kinds = st.sampled_from(["long", "string not null", "decimal(14,2)", "struct<a: long>", "decimal(12,4)"])
    more = draw(st.dictionaries(st.sampled_from(["amount", "extra", "x y", "id"]), kinds | json_values, max_size=2))
    inner = {**STREAM, "version": draw(st.integers(1, 4)), "fields": {**STREAM["fields"], **more}, **replaced}
    topic = draw(st.none() | st.just("orders") | json_values)
    value = json.dumps({"topic": topic, "document": inner}).encode()
    return draw(st.just(value) | cut_up(value) | st.none())


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(records=st.lists(stream_records(), max_size=3))
def test_random_stream_documents_are_answered_each_and_events_go_on(app: App, records: list[bytes | None]) -> None:
    local = InProcessApp(app)
    control = [control_record(n, "stream/orders", value) for n, value in enumerate(records)]
    rule = control_record(len(records), "many-payments", RULE)
    output = list(local.cut([*control, rule], CLOCK_MS))
    for n in range(2):
        output += local.cut([RawRecord(0, 0, n, GOOD)], CLOCK_MS + n)
        assert local.outputs[-1].events + sum(one.lane == "deadletters" for one in output) == 1
    answers = [one.value or b"" for one in output if one.lane == "status"]
    assert len(answers) == len(records) + 1
    assert not any(b"internal error" in answer for answer in answers)
