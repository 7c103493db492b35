"""Control records of lists: which are accepted, which are rejected, what is kept, and what a restart restores."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal

import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.documents.status import RuleStatus, StatusKind, Subject, as_reply
from rulecore.documents.yaml_reader import Json
from rulecore.language import ListType
from rulecore.lists.entries import part_bytes, part_digest, physical, to_parts
from rulecore.lists.records import ListHead, list_records
from rulecore.lists.store import ListStore, save
from rulecore.settings import ListLimits
from streamcore.kernel import ControlRecord
from streamcore.schema import LONG, STRING, Type
from streamcore.state import KeyValueTable, MemoryBlobs, StateLog, StateSettings

CLOCK_MS = 1_800_000_000_000


def head(name: str = "ips", version: int = 1, **fields: object) -> bytes:
    document = {"list": name, "version": version, "owner": "o", "of": "string"} | fields
    return orjson.dumps(document)


def status_of(name: str, version: int | None, kind: StatusKind) -> RuleStatus:
    return RuleStatus(name, version, kind, None, 0, 0, 0, Subject.LIST)


def put(store: ListStore, name: str = "ips", version: int = 1, **fields: object) -> tuple[ListStore, RuleStatus]:
    return store.apply(f"list/{name}", head(name, version, **fields))


def apply_accepted(store: ListStore, name: str = "ips", version: int = 1, **fields: object) -> ListStore:
    after, answer = put(store, name, version, **fields)
    assert answer == status_of(name, version, StatusKind.ACCEPTED)
    return after


def rejection_reason(store: ListStore, name: str = "ips", version: int = 1, **fields: object) -> str:
    after, answer = put(store, name, version, **fields)
    assert after is store
    assert answer.status is StatusKind.REJECTED
    return answer.reason or ""


def values(store: ListStore, name: str = "ips", clock_ms: int = CLOCK_MS) -> set[str | int]:
    return set(store.contents(clock_ms)[name].values)


def apply_part(store: ListStore, entries: Sequence[Json]) -> tuple[ListStore, str]:
    data = part_bytes(entries)
    digest = part_digest(data)
    after, answer = store.apply(f"part/{digest}", data)
    assert answer.status is StatusKind.ACCEPTED
    return after, digest


# --- versions ---------------------------------------------------------------------------------------------------------


def test_a_list_takes_effect_when_its_head_arrives_and_all_parts_are_there() -> None:
    store, digest = apply_part(ListStore.empty(), ["b", "c"])
    assert not store.types()
    store = apply_accepted(store, parts=[digest], entries=["a"])
    assert store.types() == {"ips": ListType("ips", STRING)}
    assert values(store) == {"a", "b", "c"}
    assert store.unused == ()


def test_a_head_with_a_missing_part_is_rejected_and_the_previous_version_stays() -> None:
    store = apply_accepted(ListStore.empty(), entries=["a"])
    assert "publish the parts first" in rejection_reason(store, version=2, parts=["0" * 32])
    assert values(store) == {"a"}


def test_a_part_whose_bytes_do_not_have_its_digest_is_rejected() -> None:
    store, answer = ListStore.empty().apply("part/" + "0" * 32, part_bytes(["a"]))
    assert answer.status is StatusKind.REJECTED
    assert not store.parts


def test_a_version_must_increase_and_a_repeated_record_changes_nothing() -> None:
    store = apply_accepted(ListStore.empty(), version=3, entries=["a"])
    assert "not above the live version 3" in rejection_reason(store, version=3, entries=["b"])
    assert "not above the live version 3" in rejection_reason(store, version=2)
    assert put(store, version=3, entries=["a"]) == (store, status_of("ips", 3, StatusKind.ACCEPTED))


def test_a_list_keeps_its_types() -> None:
    store = apply_accepted(ListStore.empty(), entries=["a"])
    assert "its types cannot change" in rejection_reason(store, version=2, of="long")
    assert "its types cannot change" in rejection_reason(store, version=2, value="long")


def test_a_list_that_rules_use_cannot_be_deleted() -> None:
    store = apply_accepted(ListStore.empty(), entries=["a"])
    after, answer = store.apply("list/ips", None, lambda name: ["r1", "r2"] if name == "ips" else [])
    assert after is store
    assert "2 rules use this list (r1, r2)" in (answer.reason or "")
    after, answer = store.apply("list/ips", None)
    assert answer == status_of("ips", None, StatusKind.DELETED)
    assert "ips" not in after.contents(CLOCK_MS)
    assert not after.types()


def test_a_rule_finds_a_list_that_is_deleted_and_published_again_unchanged() -> None:
    store, digest = apply_part(ListStore.empty(), ["b"])
    store = apply_accepted(store, parts=[digest])
    store, _ = store.apply("list/ips", None)
    assert store.unused == (digest,)
    assert values(apply_accepted(store, parts=[digest])) == {"b"}


def test_unused_parts_are_kept_up_to_the_limits_and_the_oldest_are_dropped_first() -> None:
    store = ListStore.empty(ListLimits(unused_parts=2))
    digests = []
    for text in ("a", "b", "c"):
        store, digest = apply_part(store, [text])
        digests.append(digest)
    assert store.unused == tuple(digests[1:])
    assert set(store.parts) == set(digests[1:])
    store = ListStore.empty(ListLimits(unused_bytes=len(part_bytes(["a"]))))
    for text in ("a", "b"):
        store, _ = apply_part(store, [text])
    assert store.unused == (digests[1],)


def test_a_part_in_use_cannot_be_deleted_and_an_unused_one_can() -> None:
    store, digest = apply_part(ListStore.empty(), ["b"])
    live = apply_accepted(store, parts=[digest])
    assert live.apply(f"part/{digest}", None)[1].reason == "list ips uses this part"
    after, answer = store.apply(f"part/{digest}", None)
    assert (answer.status, dict(after.parts)) == (StatusKind.DELETED, {})


def test_the_store_enforces_its_limits() -> None:
    small = ListStore.empty(ListLimits(lists=1, entries=2, record_bytes=200, total_bytes=200))
    assert "at most 200" in rejection_reason(small, description="x" * 200)
    assert "at most 2" in rejection_reason(small, entries=["a", "b", "c"])
    one = apply_accepted(small, entries=["a"])
    assert "delete one first" in rejection_reason(one, "others")
    wide = ListStore.empty(ListLimits(total_bytes=200))
    assert "more than 200 bytes" in rejection_reason(apply_accepted(wide), "others")


# --- entries ----------------------------------------------------------------------------------------------------------


def test_entries_and_lists_expire_by_the_clock() -> None:
    end, later = "2027-01-15T08:00:00Z", "2027-01-15T09:00:00Z"
    end_ms, later_ms = 1_800_000_000_000, 1_800_003_600_000
    store = apply_accepted(ListStore.empty(), entries=["a", ["b", None, end]], expires=later)
    content = store.contents(end_ms - 1)["ips"]
    assert (set(content.values), content.until_ms) == ({"a", "b"}, end_ms)
    assert "b" in content
    content = store.contents(end_ms)["ips"]
    assert (set(content.values), content.until_ms) == ({"a"}, 2**63 - 1)
    assert "b" not in content
    assert "ips" in store.contents(later_ms - 1)
    assert "ips" not in store.contents(later_ms)
    assert list(store.contents(later_ms)) == []
    assert "ips" in store.types()


def test_lookups_return_values_in_physical_form() -> None:
    entries = [["1.5", "0.250"], [2, 1], [3.25, "7.125", "2100-01-01T00:00:00Z"]]
    store = apply_accepted(ListStore.empty(), "limits", of="decimal(6,2)", value="decimal(9,3)", entries=entries)
    content = store.contents(CLOCK_MS)["limits"]
    assert [content.get(key) for key in (150, 200, 325, 4)] == [250, 1000, 7125, None]
    assert content.look_up(pl.Series([325, None, 1]), Type.parse("decimal(6,2)")).to_list() == [7125, None, None]


WRONG = [
    ("string", None, [1], "1 is no string"),
    ("string", None, ["x" * 2001], "more than 2000 characters"),
    ("string", None, [None], "null is not accepted"),
    ("string", None, [["a", 1]], "entry 1: 1 is a lookup value, but the list declares no type `value`"),
    ("string", None, [[]], "an entry is a value"),
    ("string", None, [["a", None, None, 1]], "an entry is a value"),
    ("string", None, [{"value": "a"}], "is no string"),
    ("string", None, ["b", ["a", None, "soon"]], "entry 2: expires: 'soon' is no time"),
    ("string", None, ["a", ["a"]], "'a' is in the list twice"),
    ("string", "long", ["a"], "entry 1: lookup: null is not accepted"),
    ("string", "long", [["a", "1"]], "'1' is no long"),
    ("string", "boolean", [["a", 1]], "1 is no boolean"),
    ("long", None, [1.0], "1.0 is no long"),
    ("long", None, [True], "True is no long"),
    ("long", None, [2**63], "is no long"),
    ("decimal(4,2)", None, [100], "100 does not fit decimal(4,2)"),
    ("decimal(4,2)", None, ["1.234"], "does not fit"),
    ("decimal(4,2)", None, ["100.00"], "does not fit"),
    ("decimal(4,2)", None, ["-0.001"], "does not fit"),
    ("decimal(4,2)", None, [" 1"], "is no decimal(4,2)"),
    ("decimal(4,2)", None, ["1_0"], "is no decimal(4,2)"),
    ("decimal(4,2)", None, ["\u0661"], "is no decimal(4,2)"),
    ("decimal(4,2)", None, ["NaN"], "is no decimal(4,2)"),
    ("decimal(4,2)", None, ["1e999999"], "is no decimal(4,2)"),
    ("decimal(4,2)", None, ["1e999"], "does not fit"),
    ("decimal(4,2)", None, ["1.5", "1.50"], "is in the list twice"),
    ("decimal(18,17)", None, [1.1234567890123456], "write it in quotes"),
    ("timestamp", None, [5], "5 is no timestamp"),
    ("timestamp", None, ["2027-01-15T08:00:00"], "is no time"),
    ("double", None, [1.5], "a list of double"),
    ("boolean", None, [True], "a list of boolean"),
    ("money", None, [], "unknown type"),
]


@pytest.mark.parametrize(("of", "value", "entries", "words"), WRONG)
def test_an_invalid_entry_is_rejected_with_its_number(
    of: str, value: str | None, entries: list[Json], words: str
) -> None:
    assert words in rejection_reason(ListStore.empty(), of=of, value=value, entries=entries)


@given(st.integers(-(10**18) + 1, 10**18 - 1), st.integers(0, 18), st.sampled_from(["", "0", "+", "e"]))
def test_a_decimal_has_one_value_in_every_spelling(digits: int, scale: int, form: str) -> None:
    number = Decimal(digits).scaleb(-scale)
    text = {"": f"{number:f}", "0": f"{number:f}", "+": f"{number:+f}", "e": f"{number:e}"}[form]
    text = text.rstrip("0") if form == "0" and "." in text else text
    assert physical(text.rstrip("."), Type.parse(f"decimal(18,{scale})")) == digits


def test_a_fault_in_a_part_names_the_part_and_the_entry() -> None:
    store, digest = apply_part(ListStore.empty(), ["a", 5])
    assert rejection_reason(store, parts=[digest]) == f"part {digest}: entry 2: 5 is no string"


HOSTILE = [
    b"",
    b"[]",
    b"{",
    b"null",
    b"\xff\xfe",
    b'{"entries":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"entries":5}',
    b'{"entries":[],"x":1}',
    head(entries=["a"] * 300),
    head(parts=["0" * 32] * 5_000),
    head(parts=["0" * 32, "0" * 32]),
    head(parts=["../../etc"]),
    head(name="a b"),
    head(version=True),
    head(version=2**40),
    head(unknown=1),
    head(entries=[[["a"]]]),
    head(entries={"a": 1}),
    head(expires=5),
    orjson.dumps({"list": "ips"}),
]


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_records_are_rejected_and_change_nothing(value: bytes) -> None:
    store = ListStore.empty()
    for key in ("list/ips", "part/" + "0" * 32, "list/", "part/", "list/" + "x" * 10_000, "other"):
        after, answer = store.apply(key, value)
        assert after is store
        assert answer.status is StatusKind.REJECTED
        status = as_reply(answer, ControlRecord(0, 7, key.encode(), value), epoch=3)
        assert (status.offset, status.rules_epoch) == (7, 3)
        assert len(status.name) <= 100
        assert len(status.reason or "") <= 2_000
    store, digest = _with_bytes(store, value)
    if digest is not None:
        assert rejection_reason(store, parts=[digest])


def _with_bytes(store: ListStore, data: bytes) -> tuple[ListStore, str | None]:
    digest = part_digest(data)
    after, answer = store.apply(f"part/{digest}", data)
    return after, digest if answer.status is StatusKind.ACCEPTED else None


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=12,
    ),
    st.sampled_from(["string", "long", "decimal(5,2)", "timestamp"]),
    st.sampled_from([None, "string", "long", "double", "decimal(5,2)", "boolean", "timestamp"]),
)
def test_the_store_answers_any_entries_with_a_status(entries: Json, of: str, value: str | None) -> None:
    try:
        record = head(of=of, value=value, entries=entries)
    except TypeError:  # numbers that JSON cannot hold
        return
    store, answer = ListStore.empty().apply("list/ips", record)
    if answer.status is StatusKind.ACCEPTED:
        assert isinstance(entries, list)
        assert len(values(store)) == len(entries)


# --- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_adding_one_entry_replaces_one_part() -> None:
    entries: list[Json] = [f"10.0.{n // 256}.{n % 256}" for n in range(40_000)]
    before, after = set(to_parts(entries)), set(to_parts([*entries, "192.168.0.1"]))
    assert len(before) > 3
    assert len(before - after) == len(after - before) == 1
    assert max(map(len, before)) < 200_000


def test_a_published_list_of_any_size_reads_back_complete() -> None:
    for count in (0, 1, 200, 201, 30_000):
        entries: list[Json] = [[n, f"v{n}"] for n in range(count)]
        document = ListHead(list="big", version=1, owner="o", of=LONG, value=STRING)
        store = ListStore.empty()
        for key, value in list_records(document, entries):
            assert len(value) < 1_000_000
            store, answer = store.apply(key, value)
            assert answer.status is StatusKind.ACCEPTED
        content = store.contents(CLOCK_MS)["big"]
        assert {key: content.get(key) for key in content.values} == {n: f"v{n}" for n in range(count)}


# --- restart ----------------------------------------------------------------------------------------------------------


def test_a_restored_store_behaves_like_the_original() -> None:
    random_entries: list[Json] = [str(n) for n in random.Random(3).sample(range(10**6), 5_000)]
    store = ListStore.empty(ListLimits(unused_parts=2))
    for key, value in list_records(ListHead(list="big", version=1, owner="o", of=STRING), random_entries):
        store, _ = store.apply(key, value)
    store = apply_accepted(store, entries=["a", ["b", None, "2027-01-15T08:00:00Z"]])
    store, kept = apply_part(store, ["x"])
    store, gone = apply_part(store, ["y"])

    table, log, blobs = KeyValueTable(), StateLog(StateSettings()), MemoryBlobs()
    save(store, table)
    log.commit(blobs, {"lists": table}, {})
    fresh = KeyValueTable()
    StateLog(StateSettings()).load(blobs.get("head"), blobs, lambda _: fresh)
    again = ListStore.restore(list(fresh), store.limits)

    assert dict(again.records()) == dict(store.records())
    assert again.unused == (kept, gone)
    assert again.types() == store.types()
    for clock_ms in (CLOCK_MS - 1, CLOCK_MS):
        for name in ("ips", "big"):
            assert values(again, name, clock_ms) == values(store, name, clock_ms)
    for after in (store, again):
        assert apply_part(after, ["z"])[0].unused[0] == gone


def test_restored_stores_of_one_process_share_the_parsed_parts() -> None:
    store, digest = apply_part(ListStore.empty(), ["b", "c"])
    store = apply_accepted(store, parts=[digest])
    again = ListStore.restore([(key, bytes(bytearray(value))) for key, value in store.records()])
    assert again.parts[digest] is store.parts[digest]
    assert again.lists["ips"].entries() is store.lists["ips"].entries()


def test_a_restore_skips_rows_that_it_cannot_read() -> None:
    store = apply_accepted(ListStore.empty(), entries=["a"])
    rows = [*store.records(), ("list/broken", b"{"), ("list/torn", head("torn", parts=["0" * 32]))]
    assert list(ListStore.restore(rows).types()) == ["ips"]


def test_an_unchanged_store_writes_nothing() -> None:
    store, _ = apply_part(apply_accepted(ListStore.empty(), entries=["a"]), ["x"])
    table = KeyValueTable()
    save(store, table)
    assert table.changes().height == 3
    save(store, table)
    assert table.changes().height == 0
    save(store.apply("list/ips", None)[0], table)
    assert table.changes()["key"].to_list() == ["list/ips"]
