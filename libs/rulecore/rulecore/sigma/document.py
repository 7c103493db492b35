"""Reads Sigma documents: whether each is a detection or a correlation, and its entries with checked types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rulecore.documents.yaml_reader import Json, PathKey, YamlDocument
from rulecore.sigma.errors import SigmaImportError

#: Entries that do not affect which events match.
_DESCRIPTIVE: Final = frozenset(
    {"title", "id", "name", "taxonomy", "related", "status", "description", "license", "author", "references"}
    | {"reference", "date", "modified", "fields", "falsepositives", "level", "tags"}
)
_MAX_SELECTIONS: Final = 500
_MAX_CONDITION_CHARACTERS: Final = 8_192  # all conditions of a rule together
_MAX_RULES: Final = 16
_TIMESPAN: Final = re.compile(r"([1-9][0-9]{0,8})([smhd])\Z")
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVELS: Final[Mapping[str, str]] = {
    "informational": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "critical": "critical",
}


@dataclass(frozen=True, slots=True)
class SigmaHeader:
    """The entries that both kinds of Sigma documents have. Only ``title`` is required; a missing text is empty.

    ``more``: entries that the import appends to the description. ``notes``: approximations, for the import's report.
    """

    document: YamlDocument
    title: str
    id: str
    name: str
    author: str
    description: str
    severity: str
    tags: tuple[str, ...]
    more: Mapping[str, str]
    notes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which a correlation may refer to the document: its id and its name."""
        return tuple(dict.fromkeys(one for one in (self.id, self.name) if one))


@dataclass(frozen=True, slots=True)
class SigmaDetection:
    """A rule about one event. It matches if one of ``conditions`` is true."""

    header: SigmaHeader
    logsource: Mapping[str, str]
    selections: Mapping[str, Json]
    conditions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SigmaCorrelation:
    """A rule about several events.

    ``field``: the counted field of a ``value_count``. ``bounds``: pairs such as ``(gte, 10)``.
    """

    header: SigmaHeader
    type: str
    rules: tuple[str, ...]
    group_by: tuple[str, ...]
    timespan_ms: int
    bounds: tuple[tuple[str, int], ...]
    field: str | None
    aliases: Mapping[str, Mapping[str, str]]
    generate: bool


def read_header(document: YamlDocument) -> SigmaHeader:
    """Return the header; raise ``SigmaImportError`` without a title, or with an unknown level."""
    value = document.value
    if not isinstance(value, dict):
        raise SigmaImportError("a Sigma rule is a mapping")
    title = value.get("title")
    if not isinstance(title, str) or not title.strip():
        raise SigmaImportError("needs a title", ("title",))
    level = _text(value, "level").lower()
    if level and level not in _LEVELS:
        raise SigmaImportError(f"{level!r} is no level; there are {', '.join(_LEVELS)}", ("level",))
    return SigmaHeader(
        document=document,
        title=" ".join(title.split()),
        id=_text(value, "id"),
        name=_text(value, "name"),
        author=_text(value, "author"),
        description=_text(value, "description").strip(),
        severity=_LEVELS.get(level, "medium"),
        tags=_texts(value.get("tags"), ("tags",)),
        more=_appended_entries(value),
        notes=_notes(value, level),
    )


def _appended_entries(value: Mapping[str, Json]) -> dict[str, str]:
    """Return the entries that the import appends to the description."""
    entries = {}
    for name in ("id", "author", "date", "modified", "status", "license", "references", "falsepositives"):
        entry = value.get(name)
        parts = entry if isinstance(entry, list) else [] if entry is None else [entry]
        if parts:
            entries[name] = ", ".join(str(part) for part in parts)
    return entries


def _notes(value: Mapping[str, Json], level: str) -> tuple[str, ...]:
    notes = []
    if not level:
        notes.append("no level: the severity is medium")
    if level == "informational":
        notes.append("level informational: alerts of severity low")
    if value.get("status") in ("deprecated", "unsupported"):
        notes.append(f"its status is {value['status']}")
    known = _DESCRIPTIVE | {"logsource", "detection", "correlation"}
    if others := [name for name in value if name not in known]:
        notes.append(f"ignored: {', '.join(others)[:200]}")
    return tuple(notes)


def read_rule(header: SigmaHeader) -> SigmaDetection | SigmaCorrelation:
    """Return the detection or correlation of a document; raise ``SigmaImportError`` if it is neither."""
    value = header.document.value
    assert isinstance(value, dict)
    if "filter" in value:
        message = "Sigma filters are not supported; write the exception into the rule's condition"
        raise SigmaImportError(message, ("filter",))
    if "action" in value:
        raise SigmaImportError("`action` is Sigma 1 (collections); write each rule out", ("action",))
    kinds = [name for name in ("detection", "correlation") if name in value]
    if len(kinds) != 1:
        raise SigmaImportError("needs either a detection or a correlation")
    return _read_detection(header, value) if kinds == ["detection"] else _read_correlation(header, value["correlation"])


def _read_detection(header: SigmaHeader, value: Mapping[str, Json]) -> SigmaDetection:
    detection, logsource = value["detection"], value.get("logsource")
    if not isinstance(detection, dict):
        raise SigmaImportError("must be a mapping of selections and a condition", ("detection",))
    if not isinstance(logsource, dict):
        raise SigmaImportError("needs a logsource: product, category or service", ("logsource",))
    if "timeframe" in detection:
        message = "timeframe is Sigma 1; write a correlation rule with a timespan"
        raise SigmaImportError(message, ("detection", "timeframe"))
    names = {k: str(v).lower() for k, v in logsource.items() if k in ("product", "category", "service")}
    if others := set(logsource) - {"product", "category", "service", "definition"}:
        raise SigmaImportError(f"{min(others)}: is no part of a logsource", ("logsource", min(others)))
    selections = {k: v for k, v in detection.items() if k != "condition"}
    if not selections or len(selections) > _MAX_SELECTIONS:
        message = f"has more than {_MAX_SELECTIONS} selections" if selections else "has no selection"
        raise SigmaImportError(message, ("detection",))
    conditions = _texts(detection.get("condition"), ("detection", "condition"))
    if not conditions:
        raise SigmaImportError("needs a condition", ("detection", "condition"))
    if sum(map(len, conditions)) > _MAX_CONDITION_CHARACTERS:
        message = f"the condition has more than {_MAX_CONDITION_CHARACTERS} characters"
        raise SigmaImportError(message, ("detection", "condition"))
    return SigmaDetection(header, names, selections, conditions)


def _read_correlation(header: SigmaHeader, value: Json) -> SigmaCorrelation:
    at: PathKey = ("correlation",)
    if not isinstance(value, dict):
        raise SigmaImportError("must be a mapping", at)
    known = {"type", "rules", "group-by", "timespan", "condition", "aliases", "generate"}
    if unknown := set(value) - known:
        raise SigmaImportError(f"{min(unknown)!r} is not known in a correlation", (*at, min(unknown)))
    rules = _texts(value.get("rules"), (*at, "rules"))
    if not 0 < len(rules) <= _MAX_RULES:
        raise SigmaImportError(f"needs the names or ids of 1 to {_MAX_RULES} rules", (*at, "rules"))
    generate = value.get("generate", False)
    if not isinstance(generate, bool):
        raise SigmaImportError("must be true or false", (*at, "generate"))
    bounds, field = _read_bounds(value.get("condition"), (*at, "condition"))
    return SigmaCorrelation(
        header=header,
        type=_text(value, "type"),
        rules=rules,
        group_by=_texts(value.get("group-by"), (*at, "group-by")),
        timespan_ms=_parse_timespan(value.get("timespan"), (*at, "timespan")),
        bounds=bounds,
        field=field,
        aliases=_read_aliases(value.get("aliases"), (*at, "aliases")),
        generate=generate,
    )


def _parse_timespan(value: Json, path: PathKey) -> int:
    if isinstance(value, str) and (match := _TIMESPAN.match(value)):
        return int(match[1]) * _UNITS_MS[match[2]]
    raise SigmaImportError("needs a whole number and s, m, h or d, such as 10m", path)


def _read_bounds(value: Json, path: PathKey) -> tuple[tuple[tuple[str, int], ...], str | None]:
    if value is None:
        return (), None
    if not isinstance(value, dict):
        raise SigmaImportError(
            "conditions as text are not supported; there are gt, gte, lt, lte, eq and neq with a number", path
        )
    bounds: list[tuple[str, int]] = []
    field: str | None = None
    for name, bound in value.items():
        if name == "field" and isinstance(bound, str):
            field = bound
        elif name in ("gt", "gte", "lt", "lte", "eq", "neq") and isinstance(bound, int) and not isinstance(bound, bool):
            bounds.append((name, bound))
        else:
            message = f"{name}: there are gt, gte, lt, lte, eq and neq with a whole number, and one `field`"
            raise SigmaImportError(message, (*path, name))
    return tuple(bounds), field


def _read_aliases(value: Json, path: PathKey) -> dict[str, dict[str, str]]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(one, dict) for one in value.values()):
        raise SigmaImportError("must be a mapping of aliases to rules and fields", path)
    return {a: {k: str(v) for k, v in one.items()} for a, one in value.items() if isinstance(one, dict)}


def _text(value: Mapping[str, Json], name: str) -> str:
    """Return the entry as text; "" if it is missing."""
    found = value.get(name)
    return found if isinstance(found, str) else "" if found is None else str(found)


def _texts(value: Json, path: PathKey) -> tuple[str, ...]:
    """Return the texts of an entry that is a text or a list of texts."""
    parts = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(one, str | int) for one in parts):
        raise SigmaImportError("must be text, or a list of texts", path)
    return tuple(str(one) for one in parts)
