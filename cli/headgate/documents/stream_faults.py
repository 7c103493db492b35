"""Finds everything that is wrong in a stream file at once, and what can be used of it all the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any  # a document is made of anything

from rulecore.documents.yaml_reader import PathKey
from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema

_TIME = "time_of_check"
#: A stream file without faults.
_SOUND = {"name": "s", "fields": {_TIME: "timestamp not null"}, "event_time": _TIME, "keys": [[]]}
_OPTIONAL = ("version", "zone", "envelope", "when", "event_id", "deduplicate")
_NAMES = ("name", "fields", "event_time", "keys", *_OPTIONAL)


@dataclass
class StreamFaults:
    """``faults``: path and message of each; ``unusable``: the fields that are wrong; ``schema``: of the rest."""

    faults: list[tuple[PathKey, str]] = field(default_factory=list)
    unusable: set[str] = field(default_factory=set)
    schema: StreamSchema | None = None


def find_stream_faults(document: Mapping[str, Any]) -> StreamFaults:
    """Check each entry of a stream file beside entries that are right."""
    found = StreamFaults()
    _check_names(document, found)
    fields = document.get("fields")
    if not isinstance(fields, dict) or not fields:
        found.faults.append((("fields",), "needs a mapping of names to types, such as id: string not null"))
        return found
    envelope = document.get("envelope")
    whole = {} if envelope is None or _reason({**_SOUND, "envelope": envelope}) else {"envelope": envelope}
    for name, text in fields.items():
        if reason := _reason({**whole, **_field_alone(str(name), text)}):
            found.unusable.add(str(name))
            found.faults.append((("fields", str(name)), reason))
    # A field of a wrong type is text, so that what names it can be checked; a field of a wrong name is left out.
    as_text = {name: "string" for name in fields if not _reason(_field_alone(str(name), "string"))}
    usable = {n: as_text.get(n, "") if str(n) in found.unusable else text for n, text in fields.items()}
    usable = {name: text for name, text in usable.items() if text}
    base = _with_time({**document, **whole}, usable, found, whole)
    _check_keys(base, usable, found)
    _check_optional(base, document, found)
    if reason := _reason(base):
        found.faults.append(((), reason))
    else:
        found.schema = StreamSchema.parse(base if document.get("keys") is not None else base | {"keys": None})
    return found


def _check_keys(base: dict[str, Any], usable: Mapping[str, Any], found: StreamFaults) -> None:
    """Add the keys that are right to ``base``; a key is checked without the fields that are wrong."""
    for number, written in enumerate(base.pop("_keys")):
        names = written if isinstance(written, list) else [written]
        key = [name for name in names if name in usable or str(name) not in found.unusable]
        if reason := _reason(base | {"keys": [key]}):
            found.faults.append((("keys", number), reason))
        else:
            base["keys"] = [*base["keys"], key]
    base["keys"] = base["keys"] or [[]]


def _check_optional(base: dict[str, Any], document: Mapping[str, Any], found: StreamFaults) -> None:
    """Add the other entries that are right to ``base``."""
    for name in _OPTIONAL:
        if document.get(name) is None or document[name] in found.unusable:
            continue
        one = {name: document[name]}
        if name == "deduplicate" and document.get("event_id") is not None and "event_id" not in base:
            reason = _reason({**_field_alone("id", "string not null"), "event_id": "id", **one})
        else:
            reason = _reason(base | one)
        if reason:
            found.faults.append(((name,), reason))
        elif name != "deduplicate" or "event_id" in base:
            base.update(one)


def _field_alone(name: str, text: object) -> dict[str, Any]:
    """Return a stream file that is right but perhaps for one field."""
    fields = {_TIME: "timestamp not null", name: text}
    return {"name": "s", "fields": fields, "event_time": _TIME, "keys": [[]]}


def _check_names(document: Mapping[str, Any], found: StreamFaults) -> None:
    from streamcore.settings import similar_name

    for name in document:
        if name not in _NAMES:
            found.faults.append(((str(name),), f"unknown entry{similar_name(str(name), _NAMES)}"))
    for name in ("name", "event_time"):
        if document.get(name) is None:
            found.faults.append(((name,), "is missing"))
    if document.get("name") is not None and (reason := _reason({**_SOUND, "name": document["name"]})):
        found.faults.append((("name",), reason))
    if document.get("keys") is not None and not (isinstance(document["keys"], list) and document["keys"]):
        found.faults.append((("keys",), "needs a list of keys, each a list of field names, such as [[id]]"))


def _with_time(
    document: Mapping[str, Any], usable: Mapping[str, Any], found: StreamFaults, whole: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a document that is right: the usable fields and an event time. ``_keys``: the keys to check."""
    time, keys = document.get("event_time"), document.get("keys")
    name = "stream" if any(path == ("name",) for path, _ in found.faults) else document.get("name")
    base: dict[str, Any] = {**whole, "name": name, "fields": dict(usable), "event_time": time}
    if reason := _reason(base):
        if time is not None and time not in found.unusable:
            found.faults.append((("event_time",), reason))
        others = [each for each in usable if not _reason(base | {"event_time": each})]
        if not others:
            base["fields"][_TIME] = "timestamp not null"
        base["event_time"] = others[0] if others else _TIME
    return {**base, "keys": [], "_keys": keys if isinstance(keys, list) else []}


def _reason(document: Mapping[str, Any]) -> str:
    """Return why a stream file with these entries cannot be used, without the name of the stream."""
    keys = document.get("keys") or [[]]
    try:
        StreamSchema.parse({**document, "keys": keys})
    except ConfigError as error:
        text = str(error)
        for prefix in (f"stream {document.get('name')}: ", "stream: "):
            text = text.removeprefix(prefix)
        return text
    return ""
