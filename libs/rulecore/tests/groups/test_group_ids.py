"""The name of a group is in the names of its tables: whatever its columns are called, it is read back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rulecore.groups.base import GroupId
from streamcore.schema.types import NAME_PATTERN, is_field_name

NAMES = st.from_regex(NAME_PATTERN, fullmatch=True).filter(is_field_name)


@given(st.lists(NAMES, max_size=3))
def test_a_group_is_read_back_from_its_name_which_separates_the_parts_of_a_table(columns: list[str]) -> None:
    group = GroupId("window", "a+b", tuple(columns), 5, 2)
    assert GroupId.parse(str(group)) == group
    assert ":" not in str(group)


def test_the_names_of_tables_of_plain_columns_are_what_they_were() -> None:
    assert str(GroupId("window", "pay", ("user id", "@at", "a.b-c"), 5)) == "window/pay/user id,@at,a.b-c/5/0"
    assert str(GroupId("count", "pay", ("split_part(a, '/', 2)",))) == "count/pay/split_part(a%2C '%2F'%2C 2)/0/0"
