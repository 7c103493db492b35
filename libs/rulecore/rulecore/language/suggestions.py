"""Suggestions in the error message for an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from streamcore.schema import StreamSchema
from streamcore.schema.field_paths import format_path

_SHOWN_NAMES = 12


def format_list(names: Collection[str], shown: int = _SHOWN_NAMES) -> str:
    """Return the first ``shown`` names with commas between them; "no column" if there are none."""
    text = ", ".join(list(names)[:shown]) + (", ..." if len(names) > shown else "")
    return text or "no column"


def suggest(name: str, accepted: list[str], close: list[str], shown: int = _SHOWN_NAMES) -> str:
    """Return a hint: the name in ``close`` that is most similar to ``name``, if any, and the first accepted names."""
    similar = difflib.get_close_matches(name[:64], close, n=1)
    meant = f"did you mean {similar[0]}? " if similar else ""
    return f"{meant}accepted here: {format_list(accepted, shown)}"


def suggest_field(name: str, schema: StreamSchema) -> str:
    """Return a hint: the field that is from this place in a record, or ``suggest`` of the fields' names."""
    found = next((field.name for field in schema.fields if field.path and format_path(field.path) == name), None)
    return f"write {found}, the field from {name}" if found else suggest(name, [*schema.names], [*schema.names])
