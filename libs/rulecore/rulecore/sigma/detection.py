"""A Sigma detection as one condition on an event: its logsource, its selections, its condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rulecore.documents.yaml_reader import Json, PathKey
from rulecore.sigma.condition import read_condition
from rulecore.sigma.document import SigmaDetection
from rulecore.sigma.errors import SigmaImportError
from rulecore.sigma.expression_text import ConditionText, conjunction, disjunction
from rulecore.sigma.field_map import FieldMap, FieldTarget, LogSource
from rulecore.sigma.selections import SelectionItem, SelectionTranslator

_SHOWN: Final = 20  # fields that one problem names at most


@dataclass(frozen=True, slots=True)
class TranslatedDetection:
    """The condition, the approximations, and the entry of the map that the logsource has (for fields)."""

    where: ConditionText
    notes: tuple[str, ...]
    source: LogSource | None


def translate(detection: SigmaDetection, fields: FieldMap) -> TranslatedDetection:
    """Return the condition of a detection; raise ``SigmaImportError`` if a part cannot be expressed."""
    source = fields.logsource(detection.logsource)

    def resolve(name: str, path: PathKey) -> FieldTarget:
        return fields.target(name, source, path)

    _refuse_unmapped(detection, fields, source)
    matcher = SelectionTranslator(resolve, fields.keywords)
    made: dict[str, ConditionText] = {}

    def formula_named(name: str) -> ConditionText:
        if name not in made:
            made[name] = _selection(matcher, detection.selections[name], ("detection", name))
        return made[name]

    alternatives, used = [], set[str]()
    for text in detection.conditions:
        try:
            formula, some = read_condition(text, tuple(detection.selections), formula_named)
        except SigmaImportError as error:
            raise SigmaImportError(error.message, error.path or ("detection", "condition")) from None
        alternatives.append(formula)
        used |= some
    where = disjunction(alternatives)
    if source is not None and source.where is not None:
        where = conjunction([source.where, where])
    notes = [*matcher.notes, *_about(detection.logsource, source)]
    if unused := [name for name in detection.selections if name not in used]:
        notes.append(f"the condition does not use {', '.join(unused)[:200]}")
    return TranslatedDetection(where, tuple(notes), source)


def _refuse_unmapped(detection: SigmaDetection, fields: FieldMap, source: LogSource | None) -> None:
    """Reject all unmapped fields at once, at the position of the first."""
    missing: dict[str, PathKey] = {}
    for name, path in _fields(detection.selections):
        try:
            fields.target(name, source, path)
        except SigmaImportError:
            missing.setdefault(name, path)
    if missing:
        raise SigmaImportError(fields.missing([*missing][:_SHOWN]), next(iter(missing.values())))


def _fields(selections: Mapping[str, Json]) -> Iterator[tuple[str, PathKey]]:
    for selection, value in selections.items():
        parts = enumerate(value) if isinstance(value, list) else [("", value)]
        for index, one in parts:
            path = ("detection", selection, index) if index != "" else ("detection", selection)
            for name in one if isinstance(one, dict) else ():
                if field := name.split("|")[0]:
                    yield field, (*path, name)


def _about(logsource: Mapping[str, str], source: LogSource | None) -> list[str]:
    """Return a note about a logsource without a map entry; an entry without `where` means all events."""
    if source is not None:
        return []
    shown = ", ".join(f"{k} {v}" for k, v in logsource.items()) or "nothing"
    return [f"logsource ({shown}) became no condition: every event of the stream is looked at"]


def _selection(matcher: SelectionTranslator, value: Json, path: PathKey) -> ConditionText:
    """Return a mapping: all of its entries. A list: any of them, each a mapping or a keyword."""
    if isinstance(value, dict):
        return _mapping(matcher, value, path)
    if not isinstance(value, list):
        return matcher.formula(SelectionItem.of("", value, path))
    if not value:
        raise SigmaImportError("is empty", path)
    parts = [
        _mapping(matcher, one, (*path, i))
        if isinstance(one, dict)
        else matcher.formula(SelectionItem.of("", one, (*path, i)))
        for i, one in enumerate(value)
    ]
    return disjunction(parts)


def _mapping(matcher: SelectionTranslator, value: Mapping[str, Json], path: PathKey) -> ConditionText:
    if not value:
        raise SigmaImportError("is empty", path)
    return conjunction(matcher.formula(SelectionItem.of(name, one, (*path, name))) for name, one in value.items())
