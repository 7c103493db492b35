"""Translates a Sigma detection (logsource, selections, conditions) to one condition on an event."""

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

_MAX_NAMED: Final = 20  # fields in one problem


@dataclass(frozen=True, slots=True)
class TranslatedDetection:
    """The condition of a detection. ``notes``: approximations. ``source``: the entry of the map for its logsource."""

    where: ConditionText
    notes: tuple[str, ...]
    source: LogSource | None


def translate(detection: SigmaDetection, fields: FieldMap) -> TranslatedDetection:
    """Return the condition of a detection; raise ``SigmaImportError`` if a part cannot be expressed."""
    source = fields.logsource(detection.logsource)

    def resolve(name: str, path: PathKey) -> FieldTarget:
        return fields.target(name, source, path)

    _reject_unmapped(detection, fields, source)
    translator = SelectionTranslator(resolve, fields.keywords)
    made: dict[str, ConditionText] = {}

    def condition_of(name: str) -> ConditionText:
        if name not in made:
            made[name] = _selection(translator, detection.selections[name], ("detection", name))
        return made[name]

    alternatives, used = [], set[str]()
    for text in detection.conditions:
        try:
            condition, names = read_condition(text, tuple(detection.selections), condition_of)
        except SigmaImportError as error:
            raise SigmaImportError(error.message, error.path or ("detection", "condition")) from None
        alternatives.append(condition)
        used |= names
    where = disjunction(alternatives)
    if source is not None and source.where is not None:
        where = conjunction([source.where, where])
    notes = [*translator.notes, *_logsource_notes(detection.logsource, source)]
    if unused := [name for name in detection.selections if name not in used]:
        notes.append(f"the condition does not use {', '.join(unused)[:200]}")
    return TranslatedDetection(where, tuple(notes), source)


def _reject_unmapped(detection: SigmaDetection, fields: FieldMap, source: LogSource | None) -> None:
    """Raise one ``SigmaImportError`` that names all unmapped fields, at the position of the first."""
    missing: dict[str, PathKey] = {}
    for name, path in _field_paths(detection.selections):
        try:
            fields.target(name, source, path)
        except SigmaImportError:
            missing.setdefault(name, path)
    if missing:
        raise SigmaImportError(fields.missing([*missing][:_MAX_NAMED]), next(iter(missing.values())))


def _field_paths(selections: Mapping[str, Json]) -> Iterator[tuple[str, PathKey]]:
    """Yield the name and path of each field in the selections; keywords have none."""
    for selection, value in selections.items():
        parts = enumerate(value) if isinstance(value, list) else [("", value)]
        for index, one in parts:
            path = ("detection", selection, index) if index != "" else ("detection", selection)
            for name in one if isinstance(one, dict) else ():
                if field := name.split("|")[0]:
                    yield field, (*path, name)


def _logsource_notes(logsource: Mapping[str, str], source: LogSource | None) -> list[str]:
    """Return a note if the map has no ``logsources``. An entry without ``where`` means all events."""
    if source is not None:
        return []
    shown = ", ".join(f"{k} {v}" for k, v in logsource.items()) or "nothing"
    return [f"logsource ({shown}): the map has no logsources, so the rule reads every event of the stream"]


def _selection(translator: SelectionTranslator, value: Json, path: PathKey) -> ConditionText:
    """Return the condition of a selection.

    It is true if all entries of a mapping are, or any item of a list, each of which is a mapping or a keyword.
    """
    if isinstance(value, dict):
        return _mapping(translator, value, path)
    if not isinstance(value, list):
        return translator.translate(SelectionItem.of("", value, path))
    if not value:
        raise SigmaImportError("is empty", path)
    parts = [
        _mapping(translator, one, (*path, i))
        if isinstance(one, dict)
        else translator.translate(SelectionItem.of("", one, (*path, i)))
        for i, one in enumerate(value)
    ]
    return disjunction(parts)


def _mapping(translator: SelectionTranslator, value: Mapping[str, Json], path: PathKey) -> ConditionText:
    if not value:
        raise SigmaImportError("is empty", path)
    return conjunction(translator.translate(SelectionItem.of(name, one, (*path, name))) for name, one in value.items())
