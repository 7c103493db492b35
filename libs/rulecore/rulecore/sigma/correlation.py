"""Converts a Sigma correlation to the entries of a window rule or of a sequence.

``event_count``, ``value_count`` and ``temporal`` become windows over the events that match one of the rules;
``temporal_ordered`` becomes a sequence with a step for each rule. An ``event_count`` that is the first of two rules
of a ``temporal_ordered`` becomes a step with ``times``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rulecore.documents.yaml_reader import Json
from rulecore.sigma.detection import TranslatedDetection
from rulecore.sigma.document import SigmaCorrelation
from rulecore.sigma.errors import SigmaImportError
from rulecore.sigma.expression_text import ConditionText, conjunction, disjunction
from rulecore.sigma.field_map import FieldMap, FieldTarget
from streamcore.durations import render_duration

_AT: Final = ("correlation",)
_OPERATORS: Final[Mapping[str, str]] = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "eq": "=", "neq": "<>"}
_PANES: Final = (60, 50, 40, 30, 25, 20, 10, 5, 4, 2)  # a timespan of whole seconds divides by at least one of them


@dataclass(frozen=True, slots=True)
class CorrelationMember:
    """A rule that a correlation refers to.

    ``names``: its ids and names, also those of the rule that it counts. ``times``: the number of its events, within
    ``within_ms``, that match.
    """

    name: str
    names: tuple[str, ...]
    translated: TranslatedDetection
    times: int = 1
    within_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CorrelatedRule:
    """The entries of the rule's document that the correlation determines. ``notes``: approximations."""

    entries: Mapping[str, Json]
    group_by: tuple[str, ...]
    notes: tuple[str, ...]


def correlate(
    correlation: SigmaCorrelation, members: Sequence[CorrelationMember], fields: FieldMap, default: Sequence[str]
) -> CorrelatedRule:
    """Convert a correlation. ``default``: the columns to group by if it names none."""
    groups = _find_groups(correlation, members, fields, default)
    notes = [note for member in members for note in member.translated.notes]
    if not correlation.group_by:
        notes.append(f"no group-by of its own: grouped by {', '.join(groups.columns)}, the default of this import")
    kinds = {"event_count": _event_count, "value_count": _value_count, "temporal": _temporal}
    if correlation.type == "temporal_ordered":
        entries = _sequence(correlation, members, groups)
    elif correlation.type not in kinds:
        known = ", ".join([*kinds, "temporal_ordered"])
        message = f"{correlation.type!r} is no type that can be imported; there are {known}"
        raise SigmaImportError(message, (*_AT, "type"))
    elif any(member.times > 1 for member in members):
        message = "only an event_count can be part of another, as the first of two rules of a temporal_ordered"
        raise SigmaImportError(message, (*_AT, "rules"))
    else:
        having = kinds[correlation.type](correlation, members, fields)
        entries, note = _window(correlation, members, groups, having)
        notes.append(note)
    return CorrelatedRule({"group_by": [*groups.columns], **entries}, groups.columns, tuple(dict.fromkeys(notes)))


# --- groups -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Groups:
    """The columns to group by. ``present``: conditions that they are not NULL; an event without one has no group."""

    columns: tuple[str, ...]
    present: tuple[ConditionText, ...]

    def of(self, where: ConditionText) -> ConditionText:
        return conjunction([where, *self.present])


def _find_groups(
    correlation: SigmaCorrelation, members: Sequence[CorrelationMember], fields: FieldMap, default: Sequence[str]
) -> _Groups:
    if correlation.group_by:
        targets = [_find_column(correlation, name, members, fields) for name in correlation.group_by]
    elif default:
        targets = [fields.target(name, None, _AT) for name in default]
    else:
        raise SigmaImportError("no group-by: Headgate counts per key; write one, or name columns with --group-by", _AT)
    columns = tuple(dict.fromkeys(t.column for t in targets if t.column is not None))
    present = [ConditionText.atom(f"{t.text} is not null", nullable=False) for t in targets if t.nullable]
    return _Groups(columns, tuple(present))


def _find_column(
    correlation: SigmaCorrelation, name: str, members: Sequence[CorrelationMember], fields: FieldMap
) -> FieldTarget:
    """Return the column of a name in ``group-by``, which has to be the same in every rule."""
    path = (*_AT, "group-by")
    alias = correlation.aliases.get(name)
    found: dict[str, FieldTarget] = {}
    for member in members:
        own = name if alias is None else next((alias[n] for n in member.names if n in alias), None)
        if own is None:
            raise SigmaImportError(f"the alias {name!r} names no field of {member.name}", (*_AT, "aliases"))
        target = fields.target(own, member.translated.logsource_mapping, path)
        if target.column is None:
            raise SigmaImportError(f"{own!r} is an expression; only a column can be grouped by: {target.text}", path)
        found[target.column] = target
    if len(found) > 1:
        columns = " and ".join(found)
        raise SigmaImportError(f"{name!r} is {columns}, depending on the rule; a group has one column", path)
    return next(iter(found.values()))


# --- windows ----------------------------------------------------------------------------------------------------------


def _event_count(correlation: SigmaCorrelation, _members: Sequence[CorrelationMember], _fields: FieldMap) -> str:
    return _comparison("count(*)", _required_bounds(correlation))


def _value_count(correlation: SigmaCorrelation, members: Sequence[CorrelationMember], fields: FieldMap) -> str:
    if correlation.field is None:
        raise SigmaImportError("value_count needs the `field` whose values are counted", (*_AT, "condition"))
    path = (*_AT, "condition", "field")
    counted = {fields.target(correlation.field, member.translated.logsource_mapping, path).text for member in members}
    if len(counted) > 1:
        raise SigmaImportError(f"{correlation.field!r} is {' and '.join(sorted(counted))}, depending on the rule", path)
    return _comparison(f"count_distinct({counted.pop()})", _required_bounds(correlation))


def _temporal(correlation: SigmaCorrelation, members: Sequence[CorrelationMember], _fields: FieldMap) -> str:
    seen = [f"sum(case when {member.translated.where.text} then 1 else 0 end) >= 1" for member in members]
    if not correlation.bounds:
        return "\nand ".join(seen)
    return _comparison(" + ".join(f"(case when {text} then 1 else 0 end)" for text in seen), correlation.bounds)


def _required_bounds(correlation: SigmaCorrelation) -> Sequence[tuple[str, int]]:
    if not correlation.bounds:
        raise SigmaImportError(f"{correlation.type} needs a condition, such as gte: 10", (*_AT, "condition"))
    return correlation.bounds


def _comparison(text: str, bounds: Sequence[tuple[str, int]]) -> str:
    return " and ".join(f"{text} {_OPERATORS[name]} {bound}" for name, bound in bounds)


def _window(
    correlation: SigmaCorrelation, members: Sequence[CorrelationMember], groups: _Groups, having: str
) -> tuple[dict[str, Json], str]:
    where = groups.of(disjunction(member.translated.where for member in members))
    if all(name in ("gt", "gte") for name, _ in correlation.bounds):
        panes = next(n for n in _PANES if correlation.timespan_ms % n == 0)
        size, every = render_duration(correlation.timespan_ms), render_duration(correlation.timespan_ms // panes)
        within: dict[str, Json] = {"sliding": size, "every": every}
        together = render_duration(correlation.timespan_ms - correlation.timespan_ms // panes)
        note = f"windows of {size} begin every {every}: events within {together} count together, beyond {size} never"
        emit = "early"
    else:
        within = {"tumbling": render_duration(correlation.timespan_ms)}
        note = "the condition has an upper bound: evaluated at the end of tumbling windows that have an event"
        emit = "final"
    return {"where": where.lines, "within": within, "having": having, "emit": emit}, note


# --- sequences --------------------------------------------------------------------------------------------------------


def _sequence(correlation: SigmaCorrelation, members: Sequence[CorrelationMember], groups: _Groups) -> dict[str, Json]:
    if correlation.bounds and correlation.bounds != (("gte", len(members)),):
        message = "temporal_ordered means all of its rules, in their order; leave the condition out"
        raise SigmaImportError(message, (*_AT, "condition"))
    if len(members) < 2:
        raise SigmaImportError("temporal_ordered needs at least two rules", (*_AT, "rules"))
    names = _step_names(members)
    steps: list[Json] = []
    span_ms = correlation.timespan_ms
    for number, (name, member) in enumerate(zip(names, members, strict=True)):
        step: dict[str, Json] = {"step": name, "where": groups.of(member.translated.where).lines}
        if member.times > 1:
            if number or len(members) > 2 or member.within_ms is None:
                message = "an event_count can only be the first of two rules of a temporal_ordered"
                raise SigmaImportError(message, (*_AT, "rules"))
            step |= {"times": member.times, "within": render_duration(member.within_ms)}
            span_ms += member.within_ms
        elif members[0].times > 1:
            step["within"] = render_duration(correlation.timespan_ms)
        steps.append(step)
    return {"sequence": steps, "within": render_duration(span_ms)}


def _step_names(members: Sequence[CorrelationMember]) -> list[str]:
    """Return a distinct step name for each rule, from its name."""
    found: dict[str, None] = {}
    for number, member in enumerate(members):
        name = re.sub("[^a-z0-9]+", "_", member.name.lower()).strip("_")[:50]
        name = name if name[:1].isalpha() else f"step_{number + 1}"
        found[name if name not in found else f"{name}_{number + 1}"] = None
    return [*found]
