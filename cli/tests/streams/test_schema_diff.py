"""`headgate streams diff` says what a changed document means for records, rules and their state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.errors import InputError
from headgate.main import headgate
from headgate.streams.schema_diff import diff_schemas
from streamcore.schema import StreamSchema
from streamcore.schema.evolution import RESTART

OLD = """
name: orders
event_time: at
keys: [[customer], [city]]
fields:
  at: timestamp not null
  customer: string
  city: string
  amount: decimal(9,2)
  coupon: string
  items: array<struct<sku:string>>
"""
NEW = """
name: orders
event_time: at
keys: [[customer]]
fields:
  at: timestamp not null
  customer: string not null
  city: {type: string, from: address.city}
  amount: decimal(12,2)
  items: array<struct<sku:string, price:double>>
  channel: string
"""
RULES = """
id: coupon
version: 1
owner: shop
on: orders
where: coupon = 'x'
then: {severity: low, message: m}
---
id: much
version: 1
owner: shop
on: orders
group_by: [customer]
within: {tumbling: 1h}
having: sum(amount) > 100
then: {severity: low, message: m}
---
id: town
version: 1
owner: shop
on: orders
group_by: [city]
within: {tumbling: 1h}
having: count(*) > 100
then: {severity: low, message: m}
---
id: single
version: 1
owner: shop
on: orders
where: any(items, i -> i.sku = 'a')
then: {severity: low, message: m}
"""


def run(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    (folder / "old.yaml").write_text(OLD)
    (folder / "new.yaml").write_text(NEW)
    (folder / "rules.yaml").write_text(RULES)
    words = ["streams", "diff", str(folder / "old.yaml"), str(folder / "new.yaml"), *more]
    code = headgate.main(args=words, standalone_mode=False)
    return code, capsys.readouterr().out


def test_it_names_each_change_and_its_effect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = run(tmp_path, capsys, "--rules", str(tmp_path / "rules.yaml"))
    assert code == 1
    assert shown.splitlines() == [
        "orders: 7 changes",
        "  ~ customer: string -> string not null",
        "      records without it are dead letters",
        "  ~ city: string -> string from address.city",
        "      another value of the record",
        "  ~ amount: decimal(9,2) -> decimal(12,2)",
        "      another type: every value fits",
        "  ~ items: array<struct<sku:string>> -> array<struct<sku:string, price:double>>",
        "      another type: every value fits",
        "  + channel: string",
        "      a new field; null for events without it",
        "  - coupon: string",
        "      not read any more; rules that name it are rejected",
        "  ~ keys: [customer], [city] -> [customer]",
        "      start from a savepoint: state is kept where the rule has the same route",
        "4 rules read it",
        "  rejected  coupon: where:1:1: unknown column coupon;"
        " accepted here: at, customer, city, amount, items, channel",
        "  no state  much: 1 of 1 parts of its state begin anew",
        "  rejected  town: it is routed by [city], which is no key any more; keep the key",
        "  same      1 of them",
        "no running app takes it",
        f"  keys does not change while the app runs: {RESTART}",
        f"  field coupon is gone: keep it in the document, for it may be null; or {RESTART}",
        f"  field customer: events without it would be dead letters: leave out not null, or {RESTART}",
        f"  field city: it would be read from address.city, not city: add a field of another name for it, or {RESTART}",
    ]


BOTH = """\
id: both
version: 1
owner: shop
on: [orders, visits]
where: amount > 5 and page is null
then: {severity: low, message: m}
---
id: cities
version: 1
owner: shop
on: [orders, visits]
group_by: [customer]
within: {tumbling: 1h}
having: count(distinct city) > 2 or max(amount) > 9
then: {severity: low, message: m}
---
id: town
version: 1
owner: shop
on: [orders, visits]
where: channel = 'web'
then: {severity: low, message: m}
"""
VISITS = """\
name: visits
event_time: seen
keys: [[customer]]
fields: {seen: timestamp not null, customer: string, city: string, page: string, channel: string, coupon: long}
"""


def test_rules_over_several_streams_are_compiled_with_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``coupon`` stays a field of the other stream; ``channel`` is a field of both with the new document."""
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "visits.yaml").write_text(VISITS.replace("coupon: long", "coupon: string"))
    (tmp_path / "both.yaml").write_text(
        BOTH
        + "---\n"
        + BOTH.split("---", maxsplit=1)[0].replace("both", "used").replace("page is null", "coupon = 'X'")
    )
    more = ["--rules", str(tmp_path / "both.yaml"), "--streams", str(tmp_path / "streams"), "-o", "json"]
    code, shown = run(tmp_path, capsys, *more)
    fates = {one["rule"]: one["fate"] for one in json.loads(shown)["rules"]}
    assert (code, fates) == (0, {"both": "same", "cities": "no state", "town": "same", "used": "same"})
    (tmp_path / "streams" / "visits.yaml").write_text(VISITS.replace("channel: string", "channel: long"))
    (tmp_path / "both.yaml").write_text(BOTH.replace("channel = 'web'", "channel = 7"))
    code, shown = run(tmp_path, capsys, *more)
    (rejected,) = [one for one in json.loads(shown)["rules"] if one["fate"] == "rejected"]
    assert (code, rejected["rule"]) == (1, "town"), "two types, so it is not in the union any more"
    (tmp_path / "streams" / "visits.yaml").unlink()
    with pytest.raises(InputError, match="stream 'visits': no"):
        run(tmp_path, capsys, *more)


def test_the_json_has_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = run(tmp_path, capsys, "-o", "json")
    assert code == 0
    assert [change["entry"] for change in json.loads(shown)["changes"]][-3:] == ["channel", "coupon", "keys"]


def test_a_document_has_no_difference_to_itself() -> None:
    import yaml

    schema = StreamSchema.parse(yaml.safe_load(OLD))
    assert diff_schemas(schema, schema) == []


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        ("long", "double", True),
        ("double", "long", False),
        ("decimal(9,2)", "decimal(9,3)", False),
        ("decimal(9,2)", "decimal(10,3)", True),
        ("array<long>", "array<double>", True),
        ("map<string,long>", "map<string,string>", False),
        ("struct<a:long>", "struct<a:double, b:long>", True),
        ("struct<a:long, b:long>", "struct<a:long>", False),
    ],
)
def test_a_wider_type_takes_every_value(old: str, new: str, fits: bool) -> None:
    before, after = (
        StreamSchema.parse(
            {"name": "t", "event_time": "at", "keys": [[]], "fields": {"at": "timestamp not null", "x": t}}
        )
        for t in (old, new)
    )
    [change] = diff_schemas(before, after)
    assert ("every value fits" in change.effect) == fits
    assert ("above 2^53 is rounded" in change.effect) == (fits and "long" in old and "double" in new)
