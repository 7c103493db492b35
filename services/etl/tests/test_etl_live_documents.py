"""Documents that are published while an etl app runs: what is taken, what is rejected and why, and that it is in force
from the next cut on, after each restart too."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from headgate_etl.app import build_app
from headgate_etl.live_documents import to_document
from headgate_etl.settings import EtlSettings
from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.engine.publication import AppPublication, StreamPublication
from streamcore.errors import ConfigError
from streamcore.savepoint.app_description import check_app_compatibility
from streamcore.savepoint.restore import restore_checkpoint
from streamcore.wire.lanes import STATUS, Record
from tests.harness.apps import small_etl
from tests.harness.apps.small_etl import NOW_MS, rows
from tests.harness.apps.versioned_shop import initial_of, moment, save

ORDERS: dict[str, Any] = {
    "name": "orders",
    "event_time": "at",
    "keys": [["id"]],
    "fields": {
        "id": "string not null",
        "at": "timestamp not null",
        "price": "decimal(8,2)",
        "pieces": "long not null",
    },
}
REFUNDS: dict[str, Any] = {
    "name": "refunds",
    "when": {"from": "type", "equals": "refund"},
    "event_time": "at",
    "keys": [["id"]],
    "fields": {"id": "string not null", "at": "timestamp not null", "amount": "decimal(8,2)"},
}
MAP = {"id": "id", "price": "price", "pieces": "pieces"}
MODEL = {"id": "string not null", "price": "decimal(8,2)", "pieces": "long not null"}


def orders(version: int = 2, **fields: str | None) -> dict[str, Any]:
    """Return a later document of the stream; a field of type None is left out."""
    merged = {**ORDERS["fields"], **fields}
    return {**ORDERS, "version": version, "fields": {name: kind for name, kind in merged.items() if kind}}


def load(
    folder: Path,
    streams: Sequence[tuple[Mapping[str, Any], Mapping[str, str]]] = ((ORDERS, MAP),),
    **more: object,
) -> EtlSettings:
    """Return settings with these streams and their mappings, all on one topic."""
    inputs = []
    for document, mapped in streams:
        file = folder / f"{document['name']}.yaml"
        file.write_text(yaml.safe_dump(dict(document), sort_keys=False))
        inputs.append({"schema_file": str(file), "topic": "orders", "map": dict(mapped)})
    entries: dict[str, object] = {
        "kafka": {"bootstrap": "nowhere:1"},
        "checkpoint": "unused",
        "jars": "unused",
        "inputs": inputs,
        "model": MODEL,
        "id": ["id"],
        "deduplicate": {"horizon_ms": 60_000},
        "routes": [{"name": "clean"}],
        "shards": 2,
    }
    return EtlSettings.model_validate(entries | more)


def mapping(settings: EtlSettings, *streams: Mapping[str, Any]) -> tuple[str, bytes]:
    record = AppPublication("etl", to_document(settings, streams or (ORDERS,)))
    return record.key, record.encode()


def stream(document: Mapping[str, Any], topic: str | None = None) -> tuple[str, bytes]:
    record = StreamPublication(document, topic)
    return record.key, record.encode()


@dataclass
class Running:
    """An app in this process, and the offsets of its topics."""

    app: InProcessApp
    control: int = 0
    events: int = 0
    seen: list[Record] = field(default_factory=list)

    def send(self, *changes: tuple[str, bytes | None], events: Sequence[Mapping[str, object]] = ()) -> list[Record]:
        """Run a cut with control records and events."""
        records = [control_record(self.control + n, key, value) for n, (key, value) in enumerate(changes)]
        for n, event in enumerate(events):
            whole = {"at": NOW_MS - 1_000, "price": "1.50", "pieces": 2} | dict(event)
            records.append(RawRecord(0, 0, self.events + n, orjson.dumps(whole)))
        self.control, self.events = self.control + len(changes), self.events + len(events)
        return self.app.cut(records, NOW_MS)

    def publish(self, change: tuple[str, bytes | None]) -> dict[str, Any]:
        """Publish a document; return the answer, which comes with this cut or the next one."""
        offset = self.control
        output = [*self.send(change), *self.send()]
        (answer,) = [one for one in rows(output, STATUS) if one["control"]["offset"] == offset]  # type: ignore[index]
        return answer

    def restarted(self, settings: EtlSettings) -> Running:
        """Return the app after a restart with these settings."""
        again = InProcessApp(build_app(settings), self.app.blobs, streams=self.app.streams)
        again.next_offsets = self.app.next_offsets
        return Running(again, self.control, self.events)


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(InProcessApp(build_app(load(tmp_path))))


# --- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_stream_takes_an_optional_field_and_a_mapping_of_the_next_version_reads_it(
    running: Running, tmp_path: Path
) -> None:
    answer = running.publish(stream(orders(coupon="string")))
    assert (answer["subject"], answer["status"], answer["version"], answer["reason"]) == ("stream", "accepted", 2, None)
    later = load(
        tmp_path,
        [(orders(coupon="string"), MAP | {"coupon": "upper(coupon)"})],
        model=MODEL | {"coupon": "string"},
        version=2,
    )
    accepting = running.send(mapping(later, orders(coupon="string")), events=[{"id": "a", "coupon": "x"}])
    assert rows(accepting) == [{"id": "a", "price": "1.50", "pieces": 2}], "by the mapping of its cut"
    assert not rows(accepting, STATUS)
    next_cut = running.send(events=[{"id": "a", "coupon": "x"}, {"id": "b", "coupon": "x"}])
    assert rows(next_cut) == [{"id": "b", "price": "1.50", "pieces": 2, "coupon": "X"}], "and a is a duplicate still"
    assert [(one["subject"], one["status"], one["version"]) for one in rows(next_cut, STATUS)] == [
        ("document", "accepted", 2)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (orders(price="double"), "not every decimal(8,2) is a double"),
        (orders(price="decimal(12,4)"), "decimal(8,2)"),
        (orders(pieces="long"), ""),
        (orders(pieces="double not null"), "inputs.0.map.pieces"),
        (orders(1, coupon="string"), "version 1 is not above version 1"),
        ({**REFUNDS}, "headgate etl publish"),
    ],
)
def test_a_stream_that_a_mapping_cannot_read_is_rejected(
    running: Running, document: Mapping[str, Any], reason: str
) -> None:
    answer = running.publish(stream(document, "orders" if document["name"] == "refunds" else None))
    if reason:
        assert answer["status"] == "rejected"
        assert reason in str(answer["reason"])
    else:
        assert answer["status"] == "accepted"
    assert rows(running.send(events=[{"id": "z"}])) == [{"id": "z", "price": "1.50", "pieces": 2}]


# --- mappings --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_mapping_may_bring_a_stream_on_a_topic_that_the_app_reads(running: Running, tmp_path: Path) -> None:
    refunds = (REFUNDS, {"id": "concat('r/', id)", "price": "amount", "pieces": "-1"})
    later = load(tmp_path, [refunds, (ORDERS, MAP)], version=2)
    answer = running.publish(mapping(later, REFUNDS, ORDERS))
    assert (answer["status"], answer["reason"]) == (
        "accepted",
        "records with type = 'refund' are no events of orders any more",
    )
    expected = [{"id": "r/1", "price": "2.00", "pieces": -1}, {"id": "1", "price": "1.50", "pieces": 2}]
    events = [{"type": "refund", "id": "1", "amount": "2.00"}, {"type": "order", "id": "1"}]
    output = rows(running.send(events=events))
    assert sorted(output, key=str) == sorted(expected, key=str)
    # After a restart, with the settings of before and with the published ones, it is the same app.
    for number, settings in enumerate((load(tmp_path), later), 2):
        again = running.restarted(settings)
        assert [source.schema.name for source in again.app.app.sources] == ["orders", "refunds"]
        output = rows(again.send(events=[*events, {"type": "refund", "id": f"{number}", "amount": "2.00"}]))
        assert output == [{"id": f"r/{number}", "price": "2.00", "pieces": -1}], "the others are duplicates"
        running.events = again.events


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("entry", "value"), [("format", {"kind": "csv"}), ("reject_extra_fields", True), ("reject_other_records", True)]
)
def test_an_input_is_read_as_before_and_a_new_one_as_its_topic(
    running: Running, tmp_path: Path, entry: str, value: object
) -> None:
    refunds = (REFUNDS, {"id": "id", "price": "amount", "pieces": "-1"})
    for streams in ([(ORDERS, MAP)], [refunds, (ORDERS, MAP)]):
        documents = [document for document, _ in streams]
        key, content = mapping(load(tmp_path, streams, version=2), *documents)
        changed = orjson.loads(content)
        changed["inputs"][0][entry] = value
        answer = running.publish((key, orjson.dumps(changed)))
        expected = f"input {documents[0]['name']}: {entry} does not change while the app runs"
        assert expected in str(answer["reason"])


def test_an_input_is_kept(running: Running, tmp_path: Path) -> None:
    refunds = (REFUNDS, {"id": "id", "price": "amount", "pieces": "-1"})
    answer = running.publish(mapping(load(tmp_path, [refunds], version=2), REFUNDS))
    assert "input orders is gone" in str(answer["reason"])


@pytest.mark.slow
def test_routes_rules_and_derived_fields_change_with_all_state(running: Running, tmp_path: Path) -> None:
    later = load(
        tmp_path,
        [(ORDERS, {"id": "id", "price": "price * 2", "pieces": "pieces"})],
        model=MODEL | {"total": "decimal(18,2)", "price": "decimal(10,2)"},
        derive={"total": "round(price * pieces, 2)"},
        rules={"few": "pieces < 10"},
        routes=[{"name": "clean", "when": "total > 5", "columns": ["id", "total"]}],
        version=7,
    )
    assert rows(running.send(events=[{"id": "a"}]))
    assert running.publish(mapping(later))["status"] == "accepted"
    output = running.send(events=[{"id": "a"}, {"id": "b"}, {"id": "c", "pieces": 1}, {"id": "d", "pieces": 11}])
    assert rows(output) == [{"id": "b", "total": "6.00"}]
    assert sorted(code for code, _ in small_etl.letters(output)) == ["no_route", "rule:few"]
    assert running.publish(mapping(later))["reason"] == "no change"


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({}, "version 1 of the mapping is not above version 1"),
        ({"version": 2, "id": ["id", "pieces"]}, "id would be another"),
        ({"version": 2, "deduplicate": {"horizon_ms": 1}}, "deduplicate would be another"),
        ({"version": 2, "deduplicate": None}, "deduplicate would be another"),
        ({"version": 2, "routes": [{"name": "other"}]}, "route other is new"),
        ({"version": 2, "lists": {"vip": {"of": "string"}}}, "lists would be others"),
        ({"version": 2, "lookup": {"url": "http://evil/{key}", "key": "id", "adds": ["price"]}}, "lookup would be"),
    ],
)
def test_a_mapping_that_does_not_fit_state_or_topics_is_rejected(
    running: Running, tmp_path: Path, entries: dict[str, object], reason: str
) -> None:
    mapped = {name: text for name, text in MAP.items() if not ("lookup" in entries and name == "price")}
    if not entries:
        mapped["price"] = "price + 1.00"
    answer = running.publish(mapping(load(tmp_path, [(ORDERS, mapped)], **entries)))
    assert answer["status"] == "rejected"
    assert reason in str(answer["reason"])
    if entries:
        assert "take a savepoint, change the settings file" in str(answer["reason"])
    assert rows(running.send(events=[{"id": "z"}])) == [{"id": "z", "price": "1.50", "pieces": 2}]


@pytest.mark.slow
def test_a_mapping_does_not_change_the_columns_of_a_table(tmp_path: Path) -> None:
    lake: dict[str, Any] = {
        "routes": [{"name": "lake", "to": "delta"}],
        "delta": {"tables": {"lake": {"uri": str(tmp_path / "lake")}}},
    }
    running = Running(InProcessApp(build_app(load(tmp_path, **lake))))
    wider = load(tmp_path, **lake, version=2, model=MODEL | {"pieces": "long"})
    assert running.publish(mapping(wider))["status"] == "accepted", "null is a value of the column"
    more = load(tmp_path, [(ORDERS, MAP | {"n": "1"})], **lake, version=3, model=MODEL | {"n": "long"})
    answer = running.publish(mapping(more))
    assert "route lake: its table would have other columns (n)" in str(answer["reason"])
    fewer = load(tmp_path, version=3)
    assert "delta.tables.lake: no route" in str(running.publish(mapping(fewer))["reason"])


@pytest.mark.slow
def test_a_key_file_that_the_settings_do_not_name_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1" * 32)
    (tmp_path / "two").write_bytes(b"2" * 32)
    masks = [{"id": {"how": "pseudonym", "key_file": str(tmp_path / name)}} for name in ("one", "two")]
    running = Running(InProcessApp(build_app(load(tmp_path, mask=masks[0]))))
    assert "two is not in use yet" in str(running.publish(mapping(load(tmp_path, mask=masks[1], version=2)))["reason"])
    assert running.publish(mapping(load(tmp_path, version=2)))["status"] == "accepted"


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "is not removed"),
        (b"{", "no JSON"),
        (b"[]", "no document"),
        (b'{"version": 2}', "inputs"),
        (b" " * 600_000, "at most 524288"),
    ],
)
def test_what_is_no_mapping_is_rejected(running: Running, value: bytes | None, reason: str) -> None:
    answer = running.publish(("document/etl", value))
    assert answer["status"] == "rejected"
    assert reason in str(answer["reason"])


def test_the_mapping_of_another_app_is_rejected(running: Running, tmp_path: Path) -> None:
    _, value = mapping(load(tmp_path, version=2))
    assert "this is the app etl" in str(running.publish(("document/other", value))["reason"])


# --- restarts --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_higher_version_of_settings_and_publication_counts(running: Running, tmp_path: Path) -> None:
    doubled = load(tmp_path, [(ORDERS, MAP | {"pieces": "pieces * 2"})], version=2)
    assert running.publish(mapping(doubled))["status"] == "accepted"
    event = {"id": "a"}
    for settings, pieces in ((load(tmp_path), 4), (load(tmp_path, version=3), 2), (doubled, 4)):
        again = running.restarted(settings)
        event = {"id": f"{event['id']}{pieces}"}
        assert [one["pieces"] for one in rows(again.send(events=[event]))] == [pieces]
        running.events = again.events
    with pytest.raises(ConfigError, match="version 2 of the mapping in the settings is not the version 2"):
        build_app(load(tmp_path, version=2)).with_streams(running.app.streams)
    with pytest.raises(ConfigError, match="give the settings a higher version"):
        build_app(load(tmp_path, [(ORDERS, MAP), (REFUNDS, MAP | {"price": "amount", "pieces": "1"})])).with_streams(
            running.app.streams
        )


@pytest.mark.slow
def test_a_document_that_a_start_left_out_is_answered_as_rejected(running: Running, tmp_path: Path) -> None:
    accepted = running.send(mapping(load(tmp_path, [(ORDERS, MAP | {"pieces": "9"})], version=2)))
    assert not rows(accepted, STATUS)
    (answer,) = rows(running.restarted(load(tmp_path, version=3)).send(), STATUS)
    assert answer["status"] == "rejected"
    assert answer["reason"] == "the app was started with version 3 before it took this one"


@pytest.mark.slow
def test_the_app_is_pickled_with_what_was_published(running: Running, tmp_path: Path) -> None:
    assert running.publish(mapping(load(tmp_path, [(ORDERS, MAP | {"pieces": "9"})], version=2)))
    again = pickle.loads(pickle.dumps(running.app.app.stages))
    assert [stage.documents for stage in again][-1].settings.version == 2


@pytest.mark.slow
def test_a_savepoint_has_the_mapping_and_the_lists_for_another_number_of_shards(tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "model": MODEL | {"rate": "decimal(12,6)"},
        "lists": {"rates": {"of": "string", "value": "decimal(12,6)"}},
        "derive": {"rate": "lookup('rates', 'EUR')"},
    }
    running = Running(InProcessApp(build_app(load(tmp_path, **more))))
    running.app.cut(small_etl.rates(1, {"EUR": "1.5", "USD": "2", "GBP": "3"}), NOW_MS)
    running.control = 1_000
    assert running.publish(mapping(load(tmp_path, [(ORDERS, MAP | {"pieces": "9"})], **more, version=2)))
    running.send(events=[{"id": "a"}])
    point = replace(moment(), streams=running.app.streams)
    saved = save(running.app.app, running.app.blobs, tmp_path / "savepoints", point)
    wider = build_app(load(tmp_path, **more, shards=4))
    root = CheckpointRoot(tmp_path / "checkpoint")
    restore_checkpoint(saved, wider, check_app_compatibility(saved.manifest, wider), root, saved.manifest.epoch + 1)
    restored = root.streams.in_force(0)
    blobs = initial_of(tmp_path / "checkpoint", wider.with_streams(restored))
    again = Running(InProcessApp(wider, blobs, streams=restored), running.control, running.events)
    output = rows(again.send(events=[{"id": name} for name in "abcdefgh"]))
    assert [one["id"] for one in sorted(output, key=str)] == [*"bcdefgh"]
    assert {(one["pieces"], one["rate"]) for one in output} == {(9, "1.500000")}
