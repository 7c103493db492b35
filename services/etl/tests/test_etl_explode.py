"""``explode``: a record becomes a row for each element of an array."""

from __future__ import annotations

import pickle
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from headgate_etl.plan import build_plan
from headgate_etl.service import SERVICE
from headgate_etl.settings import EtlSettings
from streamcore.engine.in_process import RawRecord
from streamcore.errors import ConfigError
from streamcore.wire.lanes import Record
from tests.harness.apps.small_etl import events, letters, rows, run, write

MODEL = {"id": "string not null", "sku": "string", "cents": "long", "n": "long", "email": "string"}
MAP = {
    "id": "concat(id, '/', to_text(coalesce(pos, -1)))",
    "sku": "element.sku",
    "cents": "to_long(element.price * 100)",
    "n": "pos",
    "email": "email",
}


def load(folder: Path, mapped: dict[str, str] | None = None, model: dict[str, str] | None = None, /,
         rules: dict[str, str] | None = None, **explode: Any) -> EtlSettings:  # fmt: skip
    path = write(folder, {"model": model or MODEL, "rules": rules or {}}, mapped or MAP)
    document = yaml.safe_load(path.read_text())
    document["inputs"][0]["explode"] = {"field": "items", **explode}
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return SERVICE.load_settings(path)


def orders(*items: Any) -> list[RawRecord]:
    return events(*({"items": each, "email": f"e{n}"} for n, each in enumerate(items)))


def test_each_element_is_a_row_with_its_position_and_the_fields_of_its_record(tmp_path: Path) -> None:
    output = run(load(tmp_path), orders([{"sku": "a", "price": 1}, None, {"sku": "b"}], [], None, [{"price": "2.5"}]))
    assert letters(output) == []
    assert rows(output) == [
        {"id": "o0/0", "sku": "a", "cents": 100, "n": 0, "email": "e0"},
        {"id": "o0/1", "sku": None, "cents": None, "n": 1, "email": "e0"},
        {"id": "o0/2", "sku": "b", "cents": None, "n": 2, "email": "e0"},
        {"id": "o3/0", "sku": None, "cents": 250, "n": 0, "email": "e3"},
    ]


def test_an_array_without_elements_may_be_a_row(tmp_path: Path) -> None:
    output = run(load(tmp_path, empty="row"), orders([], None, [{"sku": "a"}]))
    assert [(row["id"], row["sku"], row["n"]) for row in rows(output)] == [
        ("o0/-1", None, None), ("o1/-1", None, None), ("o2/0", "a", 0)
    ]  # fmt: skip


def test_a_record_is_all_or_nothing_and_one_dead_letter(tmp_path: Path) -> None:
    mapped = MAP | {"cents": "to_long(element.sku)"}
    records = orders([{"sku": "1"}, {"sku": "x"}, {"sku": "y"}], [{"sku": "2"}], [{"sku": "z"}])
    output = run(load(tmp_path, mapped), records)
    assert [row["id"] for row in rows(output)] == ["o1/0"]
    assert [code for code, _ in letters(output)] == ["bad_value"] * 2
    assert letters(output)[0][1].startswith("items[1]: field cents: to_long(element.sku) is no long for element = ")
    dead = [record.value for record in output if record.lane == "deadletters"]
    assert dead == [records[0].value, records[2].value]


def test_a_rule_applies_to_each_row(tmp_path: Path) -> None:
    output = run(load(tmp_path, rules={"positive": "cents > 0"}), orders([{"price": 1}], [{"price": 1}, {"price": -1}]))
    assert [row["id"] for row in rows(output)] == ["o0/0"]
    assert [code for code, _ in letters(output)] == ["rule:positive"]


@pytest.mark.slow
def test_a_record_with_too_many_elements_is_a_dead_letter(tmp_path: Path) -> None:
    output = run(load(tmp_path, max_elements=2), orders([{}] * 2, [{}] * 3, [{}]))
    assert [row["id"] for row in rows(output)] == ["o0/0", "o0/1", "o2/0"]
    reason = "field items: 3 elements; at most 2 become rows (explode.max_elements)"
    assert letters(output) == [("too_many_elements", reason)]


@pytest.mark.slow
def test_rows_and_letters_do_not_depend_on_the_division_into_cuts(tmp_path: Path) -> None:
    """Brute force in plain Python says the same, however the records are divided."""
    draw = Random(3)
    skus = ["1", "22", "x", None, "-7"]
    items = [[{"sku": draw.choice(skus)} for _ in range(draw.choice([0, 1, 2, 5, 9]))] for _ in range(120)]
    settings = load(tmp_path, MAP | {"cents": "to_long(element.sku)"}, max_elements=6)
    records = orders(*items)
    expected, dead = list[Any](), list[bytes]()
    for number, each in enumerate(items):
        if len(each) > 6 or any(one["sku"] == "x" for one in each):
            dead.append(records[number].value or b"")
            continue
        for pos, one in enumerate(each):
            cents = None if one["sku"] is None else int(one["sku"])
            expected.append((f"o{number}/{pos}", one["sku"], cents))

    def found(output: list[Record]) -> tuple[list[Any], list[bytes]]:
        values = [(row["id"], row["sku"], row["cents"]) for row in rows(output)]
        return values, sorted(record.value or b"" for record in output if record.lane == "deadletters")

    for size in (120, 7, 1):
        cuts = [records[first : first + size] for first in range(0, 120, size)]
        assert found(run(settings, *cuts)) == (expected, sorted(dead)), size


def test_the_stage_travels_to_the_workers(tmp_path: Path) -> None:
    stage = build_plan(load(tmp_path)).inputs[0].stage
    assert pickle.loads(pickle.dumps(stage)) == stage


@pytest.mark.parametrize(
    ("explode", "message"),
    [
        ({"field": "price"}, "inputs.0.explode.field: 'price' is string; the arrays are items"),
        ({"field": "nothing"}, "'nothing' is no field of the stream"),
        ({"element": "email"}, "inputs.0.explode.element: 'email' is the name of another column"),
        ({"max_elements": 0}, "inputs.0.explode.max_elements"),
    ],
)
def test_a_wrong_explode_is_refused(tmp_path: Path, explode: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, **explode)
    assert message in str(caught.value)
