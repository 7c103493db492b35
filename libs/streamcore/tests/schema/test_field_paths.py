"""Texts of paths, and trees of paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.errors import ConfigError
from streamcore.schema.field_paths import MAX_DEPTH, PathTree, build_tree, format_path, parse_path

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)


@given(st.lists(NAMES, min_size=1, max_size=4).map(tuple))
def test_a_path_is_read_as_it_was_written(path: tuple[str, ...]) -> None:
    assert parse_path(format_path(path)) == path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("userId", ("userId",)),
        ("detail-type", ("detail-type",)),
        ("@timestamp", ("@timestamp",)),
        ("a.b.c", ("a", "b", "c")),
        ("`event.dataset`", ("event.dataset",)),
        ("a.`b c`.`d``e`", ("a", "b c", "d`e")),
    ],
)
def test_names_are_separated_by_dots(text: str, path: tuple[str, ...]) -> None:
    assert parse_path(text) == path


@pytest.mark.parametrize(
    ("text", "at"), [("", 1), (".", 1), ("a.", 3), ("a..b", 3), ("a b", 2), ("a.`b", 3), ("``", 1), ("`a`b", 4)]
)
def test_another_text_is_rejected_with_the_place(text: str, at: int) -> None:
    with pytest.raises(ConfigError, match=f"at character {at}: write names with dots"):
        parse_path(text)


def test_a_path_has_a_limit() -> None:
    assert len(parse_path(".".join("a" * MAX_DEPTH))) == MAX_DEPTH
    with pytest.raises(ConfigError, match=f"more than {MAX_DEPTH} names"):
        parse_path(".".join("a" * (MAX_DEPTH + 1)))


def test_a_tree_has_each_field_at_its_place() -> None:
    tree = build_tree([("a",), ("b", "c"), ("b", "d", "e")])
    assert tree == PathTree({"a": 0, "b": PathTree({"c": 1, "d": PathTree({"e": 2})})})
    assert [*tree.numbers()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("paths", "says"),
    [
        ([("a",), ("a",)], "path a is that of another field, or contains one: a"),
        ([("a", "b"), ("a",)], "path a is that of another field, or contains one: a.b"),
        ([("a",), ("a", "b")], "path a.b goes through a, which is a field"),
    ],
)
def test_two_fields_with_one_place_are_rejected(paths: list[tuple[str, ...]], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build_tree(paths)
