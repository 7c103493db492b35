"""Arrays, structs and maps go through a mapping: as they are, by parts, and into conditions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.apps.small_etl import events, letters, load, rows, run

MODEL = {
    "id": "string not null",
    "items": "array<struct<sku:string, price:decimal(8,2), at:timestamp>>",
    "labels": "map<string,long>",
    "lines": "array<string>",
    "city": "string",
    "total": "decimal(18,2)",
    "doubled": "array<decimal(9,2)>",
    "prod": "long",
}
MAP = {
    "id": "id",
    "items": "filter(items, i -> i.price > 1)",
    "labels": "labels",
    "lines": "address.lines",
    "city": "upper(address.city)",
    "total": "sum(items.price)",
    "doubled": "transform(items, i -> to_decimal(i.price * 2, 9, 2))",
    "prod": "labels['prod']",
}
FULL = {
    "items": [{"sku": "a", "price": "2.50", "at": "2026-01-01T00:00:00Z"}, {"sku": "b", "price": 0.5}, None],
    "labels": {"prod": 1, "": None},
    "address": {"city": "rome", "lines": ["x", None]},
}


def test_nested_values_arrive_whole_and_in_parts(tmp_path: Path) -> None:
    output = run(load(tmp_path, MAP, model=MODEL), events(FULL, {"labels": {}, "items": []}, {}))
    assert rows(output) == [
        {
            "id": "o0",
            "items": [{"sku": "a", "price": "2.50", "at": "2026-01-01T00:00:00+00:00"}],
            "labels": {"prod": 1, "": None},
            "lines": ["x", None],
            "city": "ROME",
            "total": "3.00",
            "doubled": ["5.00", "1.00", None],
            "prod": 1,
        },
        {"id": "o1", "items": [], "labels": {}, "doubled": []} | dict.fromkeys(("lines", "city", "total", "prod")),
        {"id": "o2"} | dict.fromkeys([*MAP][1:]),
    ]
    assert letters(output) == []


@pytest.mark.slow
def test_a_rule_over_elements_shows_them_in_its_letter(tmp_path: Path) -> None:
    rules = {"cheap": "all(items, i -> i.price < 2)"}
    output = run(load(tmp_path, MAP, model=MODEL, rules=rules), events(FULL))
    assert rows(output) == []
    shown = '[{"sku": "a", "price": "2.50", "at": 1767225600000}]'
    assert letters(output) == [("rule:cheap", f"rule cheap: all(items, i -> i.price < 2) is false for items = {shown}")]


def test_a_wrong_element_is_a_dead_letter_that_names_it(tmp_path: Path) -> None:
    output = run(load(tmp_path, MAP, model=MODEL), events({"items": [{"price": "1"}, {"price": "x"}]}))
    assert rows(output) == []
    assert letters(output)[0][1].startswith('field items[1].price: found the text "x"; accepted is a number')


def test_an_element_on_which_the_expression_fails_is_a_dead_letter(tmp_path: Path) -> None:
    """As for one value: what is no number is no silent null; an element without the value is one."""
    model = {"id": "string not null", "numbers": "array<long>"}
    mapped = {"id": "id", "numbers": "transform(items, i -> to_long(i.sku))"}
    skus: list[object] = [[{"sku": "1"}, {}], [{"sku": "1"}, {"sku": "x"}], []]
    output = run(load(tmp_path, mapped, model=model), events(*({"items": items} for items in skus)))
    assert [row["numbers"] for row in rows(output)] == [[1, None], []]
    assert [code for code, _ in letters(output)] == ["bad_value"]


@pytest.mark.slow
def test_a_sum_that_overflows_and_a_result_that_is_too_large_are_dead_letters(tmp_path: Path) -> None:
    model = {"id": "string not null", "total": "long", "totals": "array<long>", "many": "array<string>"}
    mapped = {
        "id": "id",
        "total": "sum(transform(items, i -> to_long(i.sku)))",
        "totals": "transform(items, i -> sum(array(to_long(i.sku), to_long(i.sku))))",
        "many": "transform(items, i -> concat(i.sku, email))",
    }

    def skus(*texts: str | None) -> dict[str, object]:
        return {"items": [{"sku": text} for text in texts]}

    most = str(2**62)
    large = skus(*["1"] * 20) | {"email": "x" * 60_000}
    sent = [skus("1", "2"), skus(), skus(None), {}, skus(most, str(2**62 - 1)), skus("1", most), large]
    output = run(load(tmp_path, mapped, model=model), events(*sent))
    assert [(row["total"], row["totals"]) for row in rows(output)] == [
        (3, [2, 4]),
        (None, []),
        (None, [None]),
        (None, None),
    ]
    assert [(code, reason.split(":")[0]) for code, reason in letters(output)] == [
        ("bad_value", "field totals"),
        ("bad_value", "field totals"),
        ("bad_value", "field many"),
    ]
