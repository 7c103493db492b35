"""The names that an expression may use: columns, aggregates, lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from streamcore.schema import LONG, StreamSchema, Type

#: Between the name of a step and that of a column, in the name of a column of a step; no other name has it.
OF_STEP = "#"
#: The name of such a column, or of ``first(step.column)`` and ``last(step.column)``.
_COLUMN_OF_STEP = re.compile(rf"(?:(first|last)\((\w+){OF_STEP}(.*)\)|(\w+){OF_STEP}(.*))", re.DOTALL)


def split_step_column(name: str) -> tuple[str, str, str] | None:
    """Return ``first``, ``last`` or nothing, the step and the column of the name of a column of a step; None for
    another name."""
    match = _COLUMN_OF_STEP.fullmatch(name)
    if match is None:
        return None
    function, step_of_call, column_of_call, step, column = match.groups()
    return (function, step_of_call, column_of_call) if function else ("", step, column)


@dataclass(frozen=True, slots=True)
class ListType:
    """A list that rules may use. ``of``: the type of its entries; ``value``: that of their values, if any."""

    name: str
    of: Type
    value: Type | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that an expression may use.

    ``columns``: the columns outside of aggregates. ``arguments``: the columns inside of aggregates; None for
    ``columns``. ``aggregates``: whether aggregates are allowed. ``where`` may use the event's columns; ``having`` may
    use the columns of ``group_by``, and aggregates of the event's columns. ``steps``: the steps of a sequence whose
    events the expression may read, as ``step.column`` (of the last one), ``first``, ``last`` and aggregates.
    ``later_steps``: those that come after the expression, for errors.
    ``secrets``: the file of each key that ``secret('name')`` may name. ``more_aggregates``: names of
    aggregates that are accepted, too.
    """

    columns: Mapping[str, Type]
    aggregates: bool = False
    arguments: Mapping[str, Type] | None = None
    lists: Mapping[str, ListType] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    more_aggregates: tuple[str, ...] = ()
    later_steps: tuple[str, ...] = ()

    def with_steps(self, steps: tuple[str, ...], later: tuple[str, ...] = ()) -> Scope:
        """Return the scope of a condition of a sequence, which may read the events of these steps. ``later``: those
        after it."""
        of_steps = {f"{step}{OF_STEP}{name}": kind for step in steps for name, kind in self.columns.items()}
        arguments = of_steps | dict.fromkeys(steps, LONG)
        columns = {**self.columns, **of_steps}
        return replace(self, columns=columns, aggregates=True, arguments=arguments, steps=steps, later_steps=later)

    @classmethod
    def of_event(cls, schema: StreamSchema) -> Scope:
        """Return the scope of ``where``."""
        return cls({f.name: f.type for f in schema.fields})

    @classmethod
    def of_group(cls, schema: StreamSchema, group_by: tuple[str, ...]) -> Scope:
        """Return the scope of ``having``. Every name of ``group_by`` is a field of the schema."""
        event = {f.name: f.type for f in schema.fields}
        return cls({name: event[name] for name in group_by}, aggregates=True, arguments=event)
