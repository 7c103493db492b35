"""Look-ups in a Kafka table, compared with a dictionary; what a cut has of the table counts for its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

from headgate_etl.app import build_app
from headgate_etl.settings import EtlSettings
from headgate_etl.table_lookup import TableLookup, TableLookupOperator
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.errors import ConfigError
from tests.harness.apps.small_etl import NOW_MS, events, letters, load, rows, run

MODEL = {"id": "string not null", "currency": "string", "name": "string", "price": "decimal(9,2)", "seen": "timestamp"}


def settings(folder: Path, **table: object) -> EtlSettings:
    return load(
        folder,
        {"id": "id", "currency": "currency"},
        model=MODEL,
        lookups={"money": {"key": "currency", "adds": ["name", "price", "seen"], "table": {"topic": "money", **table}}},
    )


def changes(*pairs: tuple[str, Mapping[str, object] | None], first: int = 0) -> list[RawRecord]:
    """Return records of the table; null deletes."""
    return [
        RawRecord(1, 0, n, None if value is None else json.dumps(value).encode(), key.encode(), NOW_MS - 5_000)
        for n, (key, value) in enumerate(pairs, first)
    ]


def found(output: Sequence[Any]) -> dict[object, tuple[object, object]]:
    return {row["id"]: (row["name"], row["price"]) for row in rows(output)}


def test_a_row_has_the_last_value_of_its_key_of_the_same_cut_and_before(tmp_path: Path) -> None:
    euro = {"name": "Euro", "price": "1.10", "seen": "2026-01-05T10:17:00Z", "more": [1]}
    output = run(
        settings(tmp_path),
        [*events({"currency": "EUR"}, {"currency": "GBP"}, {}), *changes(("EUR", {"name": "old"}), ("EUR", euro))],
        [*events({"currency": "EUR"}, first=3), *changes(("EUR", None), ("GBP", {"name": "Pound"}), first=2)],
        events({"currency": "EUR"}, {"currency": "GBP"}, first=4),
    )
    assert letters(output) == []
    assert found(output) == {
        "o0": ("Euro", "1.10"),
        "o1": (None, None),
        "o2": (None, None),
        "o3": (None, None),
        "o4": (None, None),
        "o5": ("Pound", None),
    }
    assert [row["seen"] for row in rows(output) if row["id"] == "o0"] == ["2026-01-05T10:17:00+00:00"]


@pytest.mark.slow
def test_many_changes_are_those_of_a_dictionary_also_after_restarts(tmp_path: Path) -> None:
    draw, app = Random(7), InProcessApp(build_app(settings(tmp_path)))
    table: dict[str, tuple[str, Decimal]] = {}
    expected: dict[object, tuple[object, object]] = {}
    output, offset, number = [], 0, 0
    for cut in range(25):
        written: list[tuple[str, Mapping[str, object] | None]] = []
        for _ in range(draw.randrange(6)):
            key = f"k{draw.randrange(8)}"
            if draw.random() < 0.3:
                written.append((key, None))
                table.pop(key, None)
            else:
                price = Decimal(draw.randrange(10_000)).scaleb(-2)
                written.append((key, {"name": f"n{offset}", "price": str(price)}))
                table[key] = (f"n{offset}", price)
            offset += 1
        keys = [f"k{draw.randrange(10)}" for _ in range(draw.randrange(6))]
        for n, key in enumerate(keys, number):
            entry = table.get(key)
            expected[f"o{n}"] = (None, None) if entry is None else (entry[0], f"{entry[1]:.2f}")
        batch = [
            *events(*({"currency": key} for key in keys), first=number),
            *changes(*written, first=offset - len(written)),
        ]
        output += app.cut(batch, NOW_MS + cut)
        number += len(keys)
        if cut % 7 == 6:  # the state comes back from what was stored
            app = InProcessApp(build_app(settings(tmp_path)), blobs=app.blobs)
    assert found(output) == expected
    assert len(expected) > 40


def test_a_missing_key_and_a_record_of_another_type_are_dead_letters_where_the_document_says_so(tmp_path: Path) -> None:
    output = run(
        settings(tmp_path, missing="dead_letter"),
        [
            *events({"currency": "EUR"}, {"currency": "XXX"}, {}),
            *changes(("EUR", {"name": "Euro", "price": 1.5}), ("GBP", {"price": "cheap"}), ("GBP", None)),
        ],
    )
    assert found(output) == {"o0": ("Euro", "1.50"), "o2": (None, None)}
    codes = letters(output)
    assert [code for code, _ in codes] == ["bad_value", "failed"]
    assert "the table of currency has no key XXX" in codes[1][1]
    dead = [record for record in output if record.lane == "deadletters"]
    assert json.loads(dead[0].value or b"") == {"price": "cheap"}


@pytest.mark.slow
def test_fields_of_a_table_may_be_expressions_and_its_size_has_a_limit(tmp_path: Path) -> None:
    fields = {"name": "upper(key)", "price": "to_decimal(get_json_object(value, '$.p.v'), 9, 2)"}
    app = InProcessApp(build_app(settings(tmp_path, fields=fields, max_rows=2)))
    written = changes(*((key, {"p": {"v": n}}) for n, key in enumerate("abc")))
    output = app.cut([*events(*({"currency": key} for key in "abc")), *written], NOW_MS)
    assert found(output) == {"o0": ("A", "0.00"), "o1": ("B", "1.00"), "o2": (None, None)}
    output = app.cut([*events({"currency": "c"}, first=3), *changes(("a", None), ("c", {}), first=3)], NOW_MS)
    assert found(output) == {"o3": ("C", None)}


@pytest.mark.slow
def test_a_known_key_keeps_its_place_when_the_limit_falls(tmp_path: Path) -> None:
    app = InProcessApp(build_app(settings(tmp_path)))
    app.cut(changes(*((key, {"name": key}) for key in "abcd")), NOW_MS)
    app = InProcessApp(build_app(settings(tmp_path, max_rows=2)), blobs=app.blobs)
    output = app.cut([*events({"currency": "d"}), *changes(("d", {"name": "new"}), first=4)], NOW_MS + 1)
    app = InProcessApp(build_app(settings(tmp_path, max_rows=2)), blobs=app.blobs)
    output += app.cut(events({"currency": "d"}, first=1), NOW_MS + 2)
    assert found(output) == {"o0": ("new", None), "o1": ("new", None)}


@pytest.mark.slow
def test_a_stored_table_follows_the_order_of_columns_and_no_others(tmp_path: Path) -> None:
    app = InProcessApp(build_app(settings(tmp_path)))
    app.cut(changes(("EUR", {"name": "Euro", "price": "1.10"})), NOW_MS)
    changed = settings(tmp_path)
    lookup = changed.lookups["money"]
    others = {"money": lookup.model_copy(update={"adds": ("seen", "price", "name")})}
    swapped = InProcessApp(build_app(changed.model_copy(update={"lookups": others})), blobs=app.blobs)
    assert found(swapped.cut(events({"currency": "EUR"}), NOW_MS + 1)) == {"o0": ("Euro", "1.10")}
    fewer = TableLookupOperator(TableLookup("currency", ("name",), is_needed=False, max_rows=9), {"name": pl.String()})
    fewer.tables()["rows"].load(pl.DataFrame({"key": ["EUR"], "value": [b'{"name": "Euro", "price": "1.10"}']}))
    with pytest.raises(ConfigError, match="stored with name, price, and the document adds name: take the change back"):
        fewer.on_state_loaded()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"fields": {"nobody": "key"}},
            "lookups.money.table.fields.nobody: is none of the fields",
        ),
        ({"fields": {"price": "value"}}, "lookups.money.table.fields.price"),
        ({"fields": {"price": "valu"}}, "unknown column valu"),
    ],
)
def test_the_error_names_the_wrong_entry_of_a_table(tmp_path: Path, more: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_app(settings(tmp_path, **more))
    assert words in str(caught.value)
