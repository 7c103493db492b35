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
from rulecore.sigma.field_map import FieldMap, FieldTarget, LogSourceMapping
from rulecore.sigma.selections import SelectionItem, SelectionTranslator

_MAX_FIELDS_IN_ERROR: Final = 20


@dataclass(frozen=True, slots=True)
class TranslatedDetection:
    """The condition of a detection. ``notes``: approximations. ``logsource_mapping``: the entry of the map for its
    logsource."""

    where: ConditionText
    notes: tuple[str, ...]
    logsource_mapping: LogSourceMapping | None


def translate(detection: SigmaDetection, field_map: FieldMap) -> TranslatedDetection:
    """Return the condition of a detection; raise ``SigmaImportError`` if a part cannot be expressed."""
    logsource_mapping = field_map.logsource(detection.logsource)

    def resolve(name: str, path: PathKey) -> FieldTarget:
        return field_map.target(name, logsource_mapping, path)

    _reject_unmapped(detection, field_map, logsource_mapping)
    translator = SelectionTranslator(resolve, field_map.keywords)
    translated: dict[str, ConditionText] = {}

    def translate(name: str) -> ConditionText:
        if name not in translated:
            translated[name] = _translate_selection(translator, detection.selections[name], ("detection", name))
        return translated[name]

    alternatives, used = [], set[str]()
    for text in detection.conditions:
        try:
            condition, names = read_condition(text, tuple(detection.selections), translate)
        except SigmaImportError as error:
            raise SigmaImportError(error.message, error.path or ("detection", "condition")) from None
        alternatives.append(condition)
        used |= names
    where = disjunction(alternatives)
    if logsource_mapping is not None and logsource_mapping.where is not None:
        where = conjunction([logsource_mapping.where, where])
    notes = [*translator.notes, *_logsource_notes(detection.logsource, logsource_mapping)]
    if unused := [name for name in detection.selections if name not in used]:
        notes.append(f"the condition does not use {', '.join(unused)[:200]}")
    return TranslatedDetection(where, tuple(notes), logsource_mapping)


def _reject_unmapped(
    detection: SigmaDetection, field_map: FieldMap, logsource_mapping: LogSourceMapping | None
) -> None:
    """Raise one ``SigmaImportError`` that names all unmapped fields, at the position of the first."""
    missing: dict[str, PathKey] = {}
    for name, path in _field_paths(detection.selections):
        try:
            field_map.target(name, logsource_mapping, path)
        except SigmaImportError:
            missing.setdefault(name, path)
    if missing:
        raise SigmaImportError(field_map.missing([*missing][:_MAX_FIELDS_IN_ERROR]), next(iter(missing.values())))


def _field_paths(selections: Mapping[str, Json]) -> Iterator[tuple[str, PathKey]]:
    """Yield the name and path of each field in the selections. A keyword is not a field."""
    for selection, value in selections.items():
        items = enumerate(value) if isinstance(value, list) else [("", value)]
        for index, item in items:
            path = ("detection", selection, index) if index != "" else ("detection", selection)
            for name in item if isinstance(item, dict) else ():
                if field := name.split("|")[0]:
                    yield field, (*path, name)


def _logsource_notes(logsource: Mapping[str, str], logsource_mapping: LogSourceMapping | None) -> list[str]:
    """Return a note if the map has no ``logsources``; then the rule applies to all events."""
    if logsource_mapping is not None:
        return []
    shown = ", ".join(f"{k} {v}" for k, v in logsource.items()) or "nothing"
    return [f"logsource ({shown}): the map has no logsources, so the rule reads every event of the stream"]


def _translate_selection(translator: SelectionTranslator, value: Json, path: PathKey) -> ConditionText:
    """Return the condition of a selection.

    A mapping is true if all its entries are. A list, whose items are mappings or keywords, is true if any item is.
    """
    if isinstance(value, dict):
        return _translate_mapping(translator, value, path)
    if not isinstance(value, list):
        return translator.translate(SelectionItem.of("", value, path))
    if not value:
        raise SigmaImportError("is empty", path)
    conditions = [
        _translate_mapping(translator, item, (*path, i))
        if isinstance(item, dict)
        else translator.translate(SelectionItem.of("", item, (*path, i)))
        for i, item in enumerate(value)
    ]
    return disjunction(conditions)


def _translate_mapping(translator: SelectionTranslator, value: Mapping[str, Json], path: PathKey) -> ConditionText:
    if not value:
        raise SigmaImportError("is empty", path)
    return conjunction(
        translator.translate(SelectionItem.of(name, entry, (*path, name))) for name, entry in value.items()
    )
