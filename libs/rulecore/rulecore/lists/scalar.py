"""Contents of lists for the reference evaluator, which evaluates one event: mappings of logical values.

A logical value is as rules use it, such as ``Decimal("1.50")``; a physical one is as columns store it, such as 150.
Explanations of alerts and tests use these mappings. Nothing is copied: a lookup converts its key and its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

from rulecore import language as lang
from rulecore.language.types import Value
from rulecore.lists.content import ListContent
from streamcore.schema import Kind, Type


class LogicalList(Mapping[Value, Value]):
    """A list as a mapping of its logical entries to their values, which are None in a list without values."""

    def __init__(self, content: ListContent) -> None:
        self.content = content

    def __getitem__(self, key: Value) -> Value:
        physical_key = _physical(key, self.content.type.of)
        if physical_key not in self.content:
            raise KeyError(key)
        value = self.content.type.value
        return None if value is None else lang.to_logical(self.content.get(physical_key), value)

    def __iter__(self) -> Iterator[Value]:
        return (lang.to_logical(key, self.content.type.of) for key in self.content.values)

    def __len__(self) -> int:
        return len(self.content.values)


def logical_lists(contents: Mapping[str, ListContent]) -> Mapping[str, Mapping[Value, Value]]:
    """Return the contents as the mapping that ``lang.evaluate`` takes as ``lists``."""
    return {name: LogicalList(content) for name, content in contents.items()}


def _physical(key: Value, of: Type) -> Value:
    """Return the physical value of a logical key; None if the type ``of`` has no such value."""
    if of.kind not in (Kind.LONG, Kind.DECIMAL):
        return key
    if isinstance(key, bool) or not isinstance(key, int | Decimal):
        return None
    digits = Decimal(key).scaleb(of.scale)
    return int(digits) if digits == digits.to_integral_value() else None
