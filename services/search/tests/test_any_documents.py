"""Documents that are no products: nested records, several streams of changes, partial changes, one topic for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headgate_search.app import build_app
from headgate_search.settings import SearchSettings
from streamcore.engine.in_process import InProcessApp, RawRecord
from tests.harness.apps import search_app as search

NOW_MS = 1_790_000_000_000
STREAMS: Mapping[str, Mapping[str, str]] = {
    "articles": {
        "article": "struct<sku: string, title: string, attributes: map<string, string>>",
        "gone": "boolean",
    },
    "prices": {"sku": "string", "net": "decimal(10,2)", "currency": "string", "removed": "boolean"},
    "stock": {"sku": "string", "berlin": "long", "oslo": "long"},
}
DOCUMENTS: Sequence[Mapping[str, object]] = [
    {
        "id": "article.sku",
        "deleted": "gone",
        "fields": {
            "title": "article.title",
            "attributes": "article.attributes",
            "colour": "article.attributes['colour']",
        },
    },
    {"id": "sku", "deleted": "removed", "fields": {"gross": "round(net * 1.25, 2)", "currency": "currency"}},
    {"id": "sku", "fields": {"berlin": "berlin", "oslo": "oslo"}, "partial": True},
]


def write_streams(folder: Path) -> list[dict[str, object]]:
    documents: list[dict[str, object]] = []
    for (name, stream), document in zip(STREAMS.items(), DOCUMENTS, strict=True):
        fields = {"at": "timestamp not null", **stream}
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"name": name, "event_time": "at", "keys": [[]], "fields": fields}))
        documents.append({"schema_file": str(path), "topic": name, **document})
    return documents


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> SearchSettings:
    return search.settings(
        documents=write_streams(tmp_path_factory.mktemp("streams")), counters=[], publish_changes=True
    )


class Documents:
    """The index, as the records of lane ``changes`` write it."""

    def __init__(self, settings: SearchSettings, shards: int = 2) -> None:
        self.app = InProcessApp(build_app(settings.model_copy(update={"shards": shards})))
        self.found: dict[str, dict[str, Any]] = {}
        self.reasons: list[str] = []
        self._offsets = [0] * len(settings.streams)

    def cut(self, changes: Sequence[tuple[int, Mapping[str, object]]], clock_ms: int = NOW_MS) -> None:
        records = []
        for source, change in changes:
            records.append(RawRecord(source, 0, self._offsets[source], orjson.dumps(change)))
            self._offsets[source] += 1
        for record in self.app.cut(records, clock_ms):
            if record.lane == "deadletters":
                self.reasons.append(dict(record.headers)["reason"].decode())
            elif record.lane == "changes":
                row = orjson.loads(record.value or b"")
                name = row.pop("id")
                if row.pop("deleted"):
                    assert not any(row.values())
                    self.found.pop(name, None)
                else:
                    self.found[name] = row


def article(sku: str, at_ms: int, title: str = "t", *, gone: bool = False, **attributes: str) -> tuple[int, Any]:
    return 0, {"at": NOW_MS + at_ms, "article": {"sku": sku, "title": title, "attributes": attributes}, "gone": gone}


@pytest.mark.slow
def test_nested_fields_and_those_of_further_streams_come_into_one_document(settings: SearchSettings) -> None:
    documents = Documents(settings)
    documents.cut([(1, {"at": NOW_MS, "sku": "a", "net": "8.00", "currency": "EUR"}), article("a", 0, colour="red")])
    documents.cut([(2, {"at": NOW_MS, "sku": "a", "berlin": 3}), (2, {"at": NOW_MS + 1, "sku": "a", "oslo": 5})])
    expected = {"title": "t", "attributes": {"colour": "red"}, "colour": "red", "gross": "10.00", "currency": "EUR"}
    assert documents.found == {"a": expected | {"berlin": 3, "oslo": 5}}
    documents.cut([(1, {"at": NOW_MS + 1, "sku": "a", "removed": True})])
    assert documents.found == {"a": expected | {"berlin": 3, "oslo": 5, "gross": None, "currency": None}}
    documents.cut([article("a", 2, gone=True)])
    assert documents.found == {}


def test_a_change_that_cannot_be_used_is_a_dead_letter_with_its_reason(settings: SearchSettings) -> None:
    documents = Documents(settings)
    documents.cut([article("", 0), article("x" * 600, 0), (1, {"at": NOW_MS, "net": "1.00"}), article("b", 0)])
    assert [*documents.found] == ["b"]
    assert sorted(documents.reasons) == [
        "field id: sku is null for sku = null",
        "the id is empty",
        "the id is longer than 512 bytes",
    ]


skus = st.sampled_from("abc")
times = st.integers(0, 6)
stocks = st.one_of(st.none(), st.integers(0, 9))
drawn = st.lists(
    st.one_of(
        st.tuples(st.just("article"), skus, times, st.sampled_from(["x", "y"]), st.booleans()),
        st.tuples(st.just("price"), skus, times, st.integers(1, 99), st.booleans()),
        st.tuples(st.just("stock"), skus, times, stocks, stocks),
    ),
    max_size=24,
)


def to_records(changes: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Mapping[str, object]]]:
    for kind, sku, at, first, second in changes:
        if kind == "article":
            yield article(sku, at, first, gone=second)
        elif kind == "price":
            yield 1, {"at": NOW_MS + at, "sku": sku, "net": f"{first}.00", "currency": "EUR", "removed": second}
        else:
            yield 2, {"at": NOW_MS + at, "sku": sku, "berlin": first, "oslo": second}


def expected_documents(changes: Sequence[tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Return title, net price, and the stock in Berlin and Oslo of each article, by plain loops."""
    latest: dict[tuple[str, str], tuple[Any, ...]] = {}
    stock: dict[str, list[Any]] = {}
    for kind, sku, at, first, second in changes:
        if kind == "stock":
            before = stock.setdefault(sku, [at, None, None])
            if at >= before[0]:
                stock[sku] = [
                    at,
                    *(old if new is None else new for old, new in zip(before[1:], (first, second), strict=True)),
                ]
        elif (kind, sku) not in latest or at >= latest[kind, sku][0]:
            latest[kind, sku] = (at, first, second)
    found = {}
    for (kind, sku), (_, title, gone) in latest.items():
        if kind == "article" and not gone:
            _, net, removed = latest.get(("price", sku), (0, None, False))
            found[sku] = (title, None if removed else net, *stock.get(sku, [0, None, None])[1:])
    return found


@pytest.mark.slow
@hypothesis_settings(max_examples=60)
@given(drawn, st.lists(st.integers(1, 8), max_size=6), st.sampled_from([1, 3]))
def test_the_documents_of_several_streams_equal_those_of_plain_loops_however_the_input_is_cut(
    settings: SearchSettings, changes: list[tuple[Any, ...]], cuts: list[int], shards: int
) -> None:
    documents, rest = Documents(settings, shards), [*to_records(changes)]
    for clock, size in enumerate([*cuts, len(changes) + 1]):
        documents.cut(rest[:size], NOW_MS + clock)
        rest = rest[size:]
    found = {
        sku: (row["title"], None if row["gross"] is None else float(row["gross"]) / 1.25, row["berlin"], row["oslo"])
        for sku, row in documents.found.items()
    }
    assert found == expected_documents(changes)


def test_one_topic_can_make_documents_and_be_counted_for_them(tmp_path: Path) -> None:
    file = tmp_path / "edits.yaml"
    fields = {"at": "timestamp not null", "title": "string", "user": "string", "bytes": "long"}
    file.write_text(yaml.safe_dump({"name": "edits", "event_time": "at", "keys": [[]], "fields": fields}))
    stream = {"schema_file": str(file), "topic": "edits", "id": "lower(title)"}
    counts = {"edits": {}, "robots": {"when": "user like '%bot'"}, "grown": {"add": "bytes"}}
    settings = search.settings(
        documents=[{**stream, "fields": {"title": "title", "last_user": "user"}}],
        counters=[{**stream, "counts": counts}],
        publish_changes=True,
        refresh_ms=0,
        spans=[{"name": "1h", "span_ms": 3_600_000, "step_ms": 60_000}],
    )
    documents = Documents(settings)
    edits = [("Oslo", "ann", 10), ("oslo", "a bot", -3), (None, "ann", 1), ("Bergen", "bob", None)]
    documents.cut([(0, {"at": NOW_MS, "title": t, "user": u, "bytes": b}) for t, u, b in edits])
    assert documents.found == {
        "oslo": {"title": "oslo", "last_user": "a bot", "edits_1h": 2, "robots_1h": 1, "grown_1h": 7},
        "bergen": {"title": "Bergen", "last_user": "bob", "edits_1h": 1, "robots_1h": 0, "grown_1h": 0},
    }
    assert documents.reasons == ["field id: lower(title) is null for title = null"]


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> SearchSettings:
    file = tmp_path_factory.mktemp("notes") / "notes.yaml"
    fields = {"at": "timestamp not null", "id": "string", "text": "string", "stars": "long", "gone": "boolean"}
    file.write_text(yaml.safe_dump({"name": "notes", "event_time": "at", "keys": [["id"]], "fields": fields}))
    stream = {"schema_file": str(file), "topic": "notes", "deleted": "gone", "partial": True}
    document = {**stream, "fields": {"text": "text", "stars": "stars"}}
    return search.settings(documents=[document], counters=[], publish_changes=True)


partial_changes = st.tuples(
    skus, times, st.sampled_from([None, "x", "y"]), stocks, st.sampled_from([None, False, False, True])
)


@hypothesis_settings(max_examples=60)
@given(st.lists(partial_changes, max_size=16), st.lists(st.integers(1, 5), max_size=6))
def test_partial_changes_keep_what_they_do_not_name_until_the_document_is_deleted(
    notes: SearchSettings, changes: list[tuple[Any, ...]], cuts: list[int]
) -> None:
    documents = Documents(notes)
    names = ("id", "text", "stars", "gone")
    rest = [(0, dict(zip(names, (i, *more), strict=True)) | {"at": NOW_MS + at}) for i, at, *more in changes]
    for clock, size in enumerate([*cuts, len(changes) + 1]):
        documents.cut(rest[:size], NOW_MS + clock)
        rest = rest[size:]
    newest: dict[str, int] = {}
    expected: dict[str, dict[str, Any]] = {}
    for name, at, text, stars, gone in changes:
        if at < newest.get(name, 0):
            continue
        newest[name] = at
        if gone:
            expected.pop(name, None)
        else:
            one = expected.setdefault(name, {"text": None, "stars": None})
            one |= {k: v for k, v in (("text", text), ("stars", stars)) if v is not None}
    assert documents.found == expected
