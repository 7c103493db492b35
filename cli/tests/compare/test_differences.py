"""What differs between two lanes: by value and not by order, names of apps aside, changed records by key and time."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ET

import pytest

from headgate.compare import plot, render
from headgate.compare.differences import LaneDifferences, LaneRecord, compare_lane, parse_record


def record(app: str, key: str | None, **value: object) -> LaneRecord:
    return parse_record(None if key is None else key.encode(), json.dumps(value).encode(), app, "first")


def test_equal_records_in_any_order_do_not_differ_and_the_names_of_the_apps_do_not_count() -> None:
    ours = [record("first", f"first-{n}", id=f"first/{n % 3}", n=n % 2, at="t") for n in range(20)]
    theirs = [record("second", f"second-{n}", id=f"second/{n % 3}", n=n % 2, at="t") for n in range(20)]
    random.Random(1).shuffle(theirs)
    found = compare_lane("out", ours, theirs)
    assert (found.equal, found.differs) == (20, False)


def test_what_only_one_has_and_what_was_changed_are_told_apart() -> None:
    ours = [
        record("first", "a", at="1", n=1),
        record("first", "a", at="2", n=1),
        record("first", "b", at="1", n=5, more="x"),
        record("first", "c", at="1", n=9),
    ]
    theirs = [
        record("second", "a", at="1", n=1),
        record("second", "a", at="1", n=1),
        record("second", "b", at="1", n=6),
        record("second", "c", at="3", n=9),
    ]
    found = compare_lane("out", ours, theirs)
    assert found.equal == 1
    assert [(r.key, r.time, r.fields) for r in found.changed] == [("b", "1", {"n": (5, 6), "more": ("x", None)})]
    assert [(r.key, r.value["at"]) for r in found.only_a] == [("a", "2"), ("c", "1")]
    assert [(r.key, r.value["at"]) for r in found.only_b] == [("a", "1"), ("c", "3")]


def test_records_without_a_time_or_that_are_no_objects_are_only_in_one() -> None:
    found = compare_lane("out", [record("first", "k", n=1)], [record("second", "k", n=2)])
    assert (len(found.changed), len(found.only_a), len(found.only_b)) == (0, 1, 1)
    bad = parse_record(None, b"\xff no json", "second", "first")
    assert compare_lane("out", [bad], [bad]).equal == 1


def test_ignored_fields_do_not_count_and_another_field_may_be_the_time() -> None:
    ours, theirs = [record("first", "k", n=1, day=3, x=1)], [record("second", "k", n=2, day=3, x=2)]
    assert not compare_lane("out", ours, theirs, ignored=["n", "x"]).differs
    assert compare_lane("out", ours, theirs, time_fields=["day"]).changed[0].fields == {"n": (1, 2), "x": (1, 2)}


def test_digits_of_numbers_are_compared_as_they_are_written() -> None:
    one = parse_record(b"k", b'{"at":"1","v":0.1}', "first", "first")
    other = parse_record(b"k", b'{"at":"1","v":0.10000000000000001}', "second", "first")
    assert compare_lane("out", [one], [other]).changed[0].fields == {"v": ("0.1", "0.10000000000000001")}


@pytest.fixture(name="lanes")
def _lanes() -> list[LaneDifferences]:
    ours = [record("first", f"k{n}", at=f"2026-01-01T00:{n:02}", n=n) for n in range(60)]
    theirs = [record("second", f"k{n}", at=f"2026-01-01T00:{n:02}", n=n + (n % 7 == 0)) for n in range(5, 70)]
    return [compare_lane("out <1>", ours, theirs), compare_lane("same", ours, ours)]


def test_text_and_json_have_the_counts_and_the_records(lanes: list[LaneDifferences]) -> None:
    text = render.text("first", "second", lanes, 2)
    assert "A is first, B is second" in text
    assert "changed    k7 2026-01-01T00:07: n 7 -> 8" in text
    assert "... and 6 more; -o json has all" in text
    assert text.count("only in B  k") == 2
    data = json.loads(json.dumps(render.data("first", "second", lanes)))
    assert data["equal"] is False
    out, same = data["lanes"]
    assert (out["equal"], len(out["changed"]), len(out["only_a"]), len(out["only_b"])) == (47, 8, 5, 10)
    assert (same["equal"], same["changed"]) == (60, [])


def test_the_picture_is_valid_and_each_bar_says_what_it_shows(lanes: list[LaneDifferences]) -> None:
    root = ET.fromstring(plot.svg("first", "second", lanes))
    titles = [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "out <1>: 8 changed" in titles
    assert "2026-01-01T00:07: 1 changed" in titles
    drawn = sum(int(t.rpartition(": ")[2].split()[0]) for t in titles if t.startswith("2026"))
    assert drawn == 8 + 5 + 10, "every difference is in a bar of the time axis"
    ET.fromstring(plot.svg("first", "second", []))
