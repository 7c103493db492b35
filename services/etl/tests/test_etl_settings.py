"""Loading settings finds every mistake, with its place and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamcore.errors import ConfigError
from tests.harness.apps.small_etl import MAP, load

MODEL = {
    "id": "string not null",
    "price": "decimal(8,2)",
    "ratio": "double",
    "email": "string",
    "ip": "string",
    "born": "string",
    "currency": "string",
}
LOOKUP = {"url": "http://h/{key}", "key": "id", "adds": ["email"]}
DATABASE = {"host": "db", "database": "shop", "user": "reader"}
INDEX_B = {"hosts": ["http://h:9200"], "indexes": {"b": {"alias": "b", "id": ["id"]}}}


def load_error(folder: Path, mapped: dict[str, str] | None = None, /, **more: object) -> str:
    with pytest.raises(ConfigError) as error:
        load(folder, mapped, **more)
    assert str(error.value).startswith(str(folder / "etl.yaml"))
    return str(error.value)


def test_the_shipped_example_is_valid() -> None:
    from headgate_etl.app import build_topology
    from headgate_etl.service import SERVICE

    assert "derive" in build_topology(SERVICE.load_settings(Path("services/etl/example.yaml"))).text()


def test_an_expression_is_underlined_where_it_is_wrong(tmp_path: Path) -> None:
    message = load_error(tmp_path, {**MAP, "price": "to_decimal(prize, 8, 2)"})
    assert "inputs.0.map.price:1:12: unknown column prize" in message
    assert "to_decimal(prize, 8, 2)\n               ^^^^^" in message
    assert "did you mean" in message or "price" in message


@pytest.mark.parametrize(
    ("mapped", "words"),
    [
        ({"price": "price"}, "decimal(8,2) is needed, this is string"),
        ({"price": "to_decimal(price, 12, 4)"}, "round(..., 2)"),
        ({"email": "ratio"}, "to_text(...)"),
        ({"id": "count(*)"}, "count is an aggregate"),
        ({"nobody": "id"}, "inputs.0.map.nobody: 'nobody' is no field of the model"),
        ({"price": "to_timestamp(price, 'yyyy')"}, "the pattern has no month"),
        ({"price": "to_timestamp(price, 'iso', 'Mars/Base')"}, "no such time zone"),
    ],
)
def test_the_error_about_a_wrong_mapping_says_what_to_write(mapped: dict[str, str], words: str, tmp_path: Path) -> None:
    assert words in load_error(tmp_path, MAP | mapped)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"model": MODEL | {"price": "money"}}, "model.price: unknown type 'money'"),
        ({"model": MODEL | {"extra": "long"}}, "model.extra: comes from nowhere"),
        ({"id": ["ratio"]}, "an id is a string, a long"),
        ({"id": ["nobody"]}, "is no field that inputs provide"),
        ({"rules": {"positive": "price > 'a'"}}, "rules.positive:1:9"),
        ({"derive": {"price": "1.00"}}, "derive.price: comes from inputs.0.map already"),
        ({"routes": [{"name": "a", "when": "price"}]}, "routes.0.when:1:1: a condition is needed"),
        ({"routes": [{"name": "a", "columns": ["x"]}]}, "routes.0.columns.0: 'x' is no field"),
        ({"routes": [{"name": "a"}, {"name": "a"}]}, "routes.1.name: another lane has the name 'a' already"),
        ({"routes": [{"name": "status"}]}, "routes.0.name"),
        ({"otherwise": "b"}, "otherwise: 'b' is no route"),
        ({"mask": {"price": {"how": "redact"}}}, "mask.price: redact takes string"),
        ({"mask": {"email": {"how": "keep_last"}}}, "mask.email: keep_last: needs characters"),
        ({"mask": {"email": {"how": "pseudonym", "key_file": "/nowhere/key"}}}, "openssl rand -hex 32"),
        (
            {"lookup": {"url": "http://h/x", "key": "id", "adds": ["email"]}},
            "url or body must have the placeholder {key}",
        ),
        ({"lookup": {"key": "id", "adds": ["email"]}}, "one of url, postgres, redis and table is needed"),
        ({"lookup": {"postgres": DATABASE | {"query": "select 1"}, "key": "id", "adds": ["email"]}}, "postgres.query"),
        ({"lookup": {"redis": {"host": "h"}, "key": "id", "adds": ["ratio"]}}, "lookup.adds.ratio: is double, and the"),
        ({"lookup": LOOKUP | {"body": "{'a': {key}}"}}, "body: no JSON"),
        ({"lookup": LOOKUP | {"headers": {"Api-Key": "hush"}}}, "Api-Key is a secret"),
        ({"lookup": LOOKUP | {"key": "nobody"}}, "lookup.key: 'nobody' is no field that inputs provide"),
        ({"lookup": LOOKUP, "lookups": {"b": LOOKUP}}, "lookups.b.adds.email: comes from lookup.adds already"),
        (
            {"lookups": {"b": LOOKUP | {"key": "x"}}},
            "lookups.b.key: 'x' is no field that inputs provide, and no earlier",
        ),
        ({"routes": [{"name": "a", "to": "delta"}]}, "routes.0.to: name its table in delta.tables.a"),
        ({"delta": {"tables": {"b": {"uri": "/t"}}}}, "delta.tables.b: no route with `to: delta`"),
        ({"routes": [{"name": "a", "to": "opensearch"}]}, "routes.0.to: name its index in opensearch.indexes.a"),
        ({"routes": [{"name": "a", "to": "webhook"}]}, "routes.0.to: name its endpoint in webhook.endpoints.a"),
        ({"routes": [{"name": "a", "to": "iceberg"}]}, "routes.0.to: name its table in iceberg.tables.a"),
        ({"webhook": {"endpoints": {"b": {"url": "http://h/"}}}}, "webhook.endpoints.b: no route with `to: webhook`"),
        ({"opensearch": INDEX_B}, "opensearch.indexes.b: no route with `to: opensearch`"),
        ({"lists": {"rates": {"of": "numbers"}}}, "lists.rates.of: unknown type"),
    ],
)
def test_the_error_names_the_wrong_entry(more: dict[str, object], words: str, tmp_path: Path) -> None:
    assert words in load_error(tmp_path, None, **more)


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    message = load_error(tmp_path, MAP | {"price": "x"}, rules={"a": "y > 1"}, routes=[{"name": "c", "when": "z = 1"}])
    assert all(place in message for place in ("inputs.0.map.price", "rules.a", "routes.0.when"))


def test_no_text_of_the_settings_contains_a_key(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef-unseen")
    settings = load(tmp_path, mask={"email": {"how": "pseudonym", "key_file": str(key)}})
    from headgate_etl.app import build_app

    assert "unseen" not in repr(settings) + repr(build_app(settings)) + settings.model_dump_json()
