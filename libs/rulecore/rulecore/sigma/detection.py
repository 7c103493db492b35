"""A Sigma detection as one condition on an event: its logsource, its selections, its condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rulecore.sigma.condition import read_condition
from rulecore.sigma.document import Detection
from rulecore.sigma.formula import Formula, all_of, any_of
from rulecore.sigma.mapping import FieldMap, LogSource, Target
from rulecore.sigma.matching import Item, Matcher
from rulecore.sigma.problems import CannotImport
from rulecore.yamldoc import Json, PathKey

_SHOWN: Final = 20  # fields that one problem names at most


@dataclass(frozen=True, slots=True)
class Translated:
    """The condition, what was approximated, and the entry of the map that the logsource has (for fields)."""

    where: Formula
    notes: tuple[str, ...]
    source: LogSource | None


def translate(detection: Detection, fields: FieldMap) -> Translated:
    """The condition of a detection; ``CannotImport`` for what cannot be said."""
    source = fields.logsource(detection.logsource)

    def resolve(name: str, path: PathKey) -> Target:
        return fields.target(name, source, path)

    _refuse_unmapped(detection, fields, source)
    matcher = Matcher(resolve, fields.keywords)
    made: dict[str, Formula] = {}

    def formula_of(name: str) -> Formula:
        if name not in made:
            made[name] = _selection(matcher, detection.selections[name], ("detection", name))
        return made[name]

    alternatives, used = [], set[str]()
    for text in detection.conditions:
        try:
            formula, some = read_condition(text, tuple(detection.selections), formula_of)
        except CannotImport as error:
            raise CannotImport(error.message, error.path or ("detection", "condition")) from None
        alternatives.append(formula)
        used |= some
    where = any_of(alternatives)
    if source is not None and source.where is not None:
        where = all_of([source.where, where])
    notes = [*matcher.notes, *_about(detection.logsource, source)]
    if unused := [name for name in detection.selections if name not in used]:
        notes.append(f"the condition does not use {', '.join(unused)[:200]}")
    return Translated(where, tuple(notes), source)


def _refuse_unmapped(detection: Detection, fields: FieldMap, source: LogSource | None) -> None:
    """All fields that nobody mapped at once, at the place of the first."""
    missing: dict[str, PathKey] = {}
    for name, path in _fields(detection.selections):
        try:
            fields.target(name, source, path)
        except CannotImport:
            missing.setdefault(name, path)
    if missing:
        raise CannotImport(fields.missing([*missing][:_SHOWN]), next(iter(missing.values())))


def _fields(selections: Mapping[str, Json]) -> Iterator[tuple[str, PathKey]]:
    for selection, value in selections.items():
        parts = enumerate(value) if isinstance(value, list) else [("", value)]
        for index, one in parts:
            path = ("detection", selection, index) if index != "" else ("detection", selection)
            for name in one if isinstance(one, dict) else ():
                if field := name.split("|")[0]:
                    yield field, (*path, name)


def _about(logsource: Mapping[str, str], source: LogSource | None) -> list[str]:
    """A logsource that nobody mapped is said; an entry without `where` says that all events are meant."""
    if source is not None:
        return []
    shown = ", ".join(f"{k} {v}" for k, v in logsource.items()) or "nothing"
    return [f"logsource ({shown}) became no condition: every event of the stream is looked at"]


def _selection(matcher: Matcher, value: Json, path: PathKey) -> Formula:
    """A mapping: all of its entries. A list: any of them, each a mapping or a keyword."""
    if isinstance(value, dict):
        return _mapping(matcher, value, path)
    if not isinstance(value, list):
        return matcher.formula(Item.of("", value, path))
    if not value:
        raise CannotImport("is empty", path)
    parts = [
        _mapping(matcher, one, (*path, i)) if isinstance(one, dict) else matcher.formula(Item.of("", one, (*path, i)))
        for i, one in enumerate(value)
    ]
    return any_of(parts)


def _mapping(matcher: Matcher, value: Mapping[str, Json], path: PathKey) -> Formula:
    if not value:
        raise CannotImport("is empty", path)
    return all_of(matcher.formula(Item.of(name, one, (*path, name))) for name, one in value.items())
