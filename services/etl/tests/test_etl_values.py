"""Invalid values become dead letters and not nulls; the others stay exact."""

from __future__ import annotations

import itertools
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate_etl.app import build_app
from streamcore.engine.in_process import InProcessApp
from tests.harness.apps.small_etl import MAP, NOW_MS, events, letters, load, rates, rows, run

FROM_EUR = {"of": "string", "value": "decimal(12,6)", "missing": "dead_letter"}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("price", "code"),
    [
        ("12.345", "bad_value"),
        ("1e2", "bad_value"),
        ("1234567.00", "bad_value"),
        ("", "bad_value"),
        (" 1", "bad_value"),
    ],
)
def test_text_that_is_not_a_valid_number_is_a_dead_letter(price: str, code: str, tmp_path: Path) -> None:
    output = run(load(tmp_path), events({"price": price}, {"price": "1.5"}, {"price": None}))
    assert [row["price"] for row in rows(output)] == ["1.50", None]
    reason = f"field price: to_decimal(price, 8, 2) is no decimal(8,2) for price = {price!r}"
    assert letters(output) == [(code, reason)]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("expression", "fine", "dead"),
    [
        ("coalesce(to_decimal(price, 8, 2), 0.00)", ["a", "1"], []),
        ("case when regexp_like(price, '^[0-9]+$') then to_decimal(price, 8, 2) end", ["a", "1"], []),
        ("case when price = 'a' then to_decimal(price, 8, 2) else 1.00 end", ["1"], ["a"]),
        ("if(to_decimal(price, 8, 2) is null, 7.00, 1.00)", ["a", "1"], []),
        ("to_decimal(price, 8, 2) + 10", ["1"], ["a"]),
        ("to_decimal(999999 + to_long(price), 8, 2)", ["0"], ["1", "a"]),
    ],
)
def test_a_value_that_the_expression_replaces_is_no_error(
    expression: str, fine: list[str], dead: list[str], tmp_path: Path
) -> None:
    output = run(load(tmp_path, MAP | {"price": expression}), events(*({"price": p} for p in (*fine, *dead))))
    assert len(rows(output)) == len(fine)
    assert len(letters(output)) == len(dead)


def test_a_rule_is_violated_where_it_is_false_and_not_where_it_is_unknown(tmp_path: Path) -> None:
    output = run(
        load(tmp_path, rules={"cheap": "price < 100"}), events({"price": "1"}, {"price": None}, {"price": "100.00"})
    )
    assert len(rows(output)) == 2
    assert letters(output) == [("rule:cheap", "rule cheap: price < 100 is false for price = 100.00")]


def test_reasons_do_not_show_personal_values(tmp_path: Path) -> None:
    more: dict[str, object] = {"rules": {"mail": "contains(email, '@')"}, "mask": {"email": {"how": "redact"}}}
    output = run(load(tmp_path, None, **more), events({"email": "secret"}, {"email": "a@b"}))
    assert letters(output) == [("rule:mail", "rule mail: contains(email, '@') is false for email = ***")]
    assert [row["email"] for row in rows(output)] == ["***"]


@pytest.mark.slow
def test_a_replaced_rate_applies_from_the_next_cut(tmp_path: Path) -> None:
    model = {"id": "string not null", "price": "decimal(8,2)", "currency": "string", "euros": "decimal(12,2)"}
    mapped = {name: MAP[name] for name in ("id", "price", "currency")}
    derive = {"euros": "round(price * lookup('rates', currency), 2)"}
    settings = load(tmp_path, mapped, model=model, derive=derive, lists={"rates": FROM_EUR}, shards=3)
    one = [{"price": "2.00", "currency": "USD"}] * 4
    output = run(
        settings,
        [*rates(1, {"USD": "0.5"}), *events(*one)],
        [*rates(2, {"USD": "0.25"}), *events(*one, first=4)],
        events({"price": "1", "currency": "XXX"}, {"price": "1", "currency": None}, first=8),
    )
    found = {row["id"]: row["euros"] for row in rows(output)}
    assert found == {f"o{n}": "1.00" if n < 4 else "0.50" for n in range(8)} | {"o9": None}
    assert [code for code, _ in letters(output)] == ["not_in_list"]
    assert [(row["version"], row["status"]) for row in rows(output, "status")] == [(1, "accepted"), (2, "accepted")]


def test_a_list_of_other_types_is_rejected(tmp_path: Path) -> None:
    derive = {"email": "to_text(lookup('rates', currency))"}
    lists = {"rates": {"of": "string", "value": "long"}}
    mapped = {name: text for name, text in MAP.items() if name != "email"}
    output = run(load(tmp_path, mapped, derive=derive, lists=lists), rates(1, {"USD": "1"}))
    (answer,) = rows(output, "status")
    assert answer["status"] == "rejected"
    assert "declare list rates of string with values of long" in str(answer["reason"])


def test_a_rejected_list_is_counted_once_whatever_the_shards(tmp_path: Path) -> None:
    derive = {"email": "to_text(lookup('rates', currency))"}
    lists = {"rates": {"of": "string", "value": "long"}}
    mapped = {name: text for name, text in MAP.items() if name != "email"}
    app = InProcessApp(build_app(load(tmp_path, mapped, derive=derive, lists=lists)))
    assert app.app.shards > 1
    app.cut(rates(1, {"USD": "1"}), NOW_MS)
    counts = sum((Counter(output.metrics.counters) for output in app.outputs), Counter())
    assert [n for name, n in counts.items() if name.endswith("lists_rejected")] == [1]


@pytest.mark.slow
def test_a_row_without_a_route_is_a_dead_letter_or_goes_to_the_route_otherwise(tmp_path: Path) -> None:
    routes = [{"name": "dear", "when": "price > 10"}, {"name": "rest", "when": "price < 0"}]
    three = events({"price": "11"}, {"price": "5"}, {"price": None})
    output = run(load(tmp_path, routes=routes), three)
    assert (len(rows(output, "dear")), len(rows(output, "rest"))) == (1, 0)
    assert [code for code, _ in letters(output)] == ["no_route", "no_route"]
    output = run(load(tmp_path, routes=routes, otherwise="rest"), three)
    assert (len(rows(output, "rest")), letters(output)) == (2, [])


def test_duplicates_go_to_their_lane_without_the_columns_of_dead_letters(tmp_path: Path) -> None:
    settings = load(tmp_path, deduplicate={"horizon_ms": 60_000, "duplicates_to": "again"})
    output = run(settings, events({"id": "x"}, {"id": "x"}, {"id": "y"}))
    assert [row["id"] for row in rows(output)] == ["x", "y"]
    (again,) = rows(output, "again")
    assert again["id"] == "x"
    assert not any(name.startswith(("@", "__")) for name in again)


def test_duplicates_are_masked(tmp_path: Path) -> None:
    document = {"horizon_ms": 60_000, "duplicates_to": "again"}
    settings = load(tmp_path, deduplicate=document, mask={"id": {"how": "keep_last", "characters": 1}})
    output = run(settings, events({"id": "secret"}, {"id": "secret"}))
    assert [row["id"] for row in (*rows(output), *rows(output, "again"))] == ["*****t", "*****t"]


def test_a_row_too_late_for_deduplication_is_a_dead_letter_with_its_bytes(tmp_path: Path) -> None:
    settings = load(tmp_path, deduplicate={"horizon_ms": 1_000}, max_out_of_orderness_ms=0)
    old = events({"at": 1_000_000_000_000, "id": "old"}, first=5)
    output = run(settings, events({}), old)
    (letter,) = [record for record in output if record.lane == "deadletters"]
    assert letter.value == old[0].value
    assert dict(letter.headers)["source_offset"] == b"5"


PRICES = st.one_of(
    st.decimals("-9999.99", "9999.99", places=2).map(str), st.sampled_from(["x", "", "1.234", "99999999", "+1", ".5"])
)


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PRICES, max_size=30), st.lists(st.integers(0, 30), max_size=4), st.integers(1, 3))
def test_rows_and_dead_letters_do_not_depend_on_how_the_stream_is_cut(
    tmp_path: Path, prices: list[str], borders: list[int], shards: int
) -> None:
    found = []
    for edges in ([], sorted(borders)):
        more: dict[str, object] = {"deduplicate": {"horizon_ms": 60_000}, "rules": {"cheap": "price < 5000"}}
        app = load(tmp_path, None, **more, shards=shards)
        every = events(*({"id": f"o{n % 7}", "price": p} for n, p in enumerate(prices)))
        places = [0, *edges, len(every)]
        output = run(app, *(every[a:b] for a, b in itertools.pairwise(places)))
        found.append((sorted(map(str, rows(output))), sorted(letters(output))))
        assert len(rows(output)) <= 7
        assert all(Decimal(str(row["price"])) < 5_000 for row in rows(output))
    assert found[0] == found[1]
