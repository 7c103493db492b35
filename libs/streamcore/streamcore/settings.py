"""The base of all classes of settings. A class of settings is a pydantic dataclass that describes its fields."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from pydantic import ConfigDict

#: Settings classes reject unknown names, and their errors do not show the rejected value, which may be a secret.
STRICT = ConfigDict(extra="forbid", hide_input_in_errors=True)


def describe_error(details: Mapping[str, Any], kind: Any) -> str:
    """Return the message for one error of pydantic in a document. ``kind``: as for ``unknown_entry``."""
    return unknown_entry(kind, details["loc"]) if details["type"] == "extra_forbidden" else str(details["msg"])


#: How the message begins for an entry that a document does not have.
UNKNOWN_ENTRY: Final = "unknown entry"


def unknown_entry(kind: Any, path: Sequence[int | str]) -> str:
    """Return the message for an entry that a document does not have, with the most similar name that it has there.

    ``kind``: the model or the settings class of the document. ``path``: where pydantic found the entry (``loc``).
    """
    models = _models_at(kind, path)
    names = sorted({name for model in models for name in (*_fields(model), *getattr(model, "accepted_entries", ()))})
    return f"{UNKNOWN_ENTRY}{similar_name(str(path[-1]), names)}"


def similar_name(name: str, names: Sequence[str]) -> str:
    """Return the question whether the most similar of the names is meant, for the end of a message; "" without one."""
    similar = difflib.get_close_matches(name[:64], names, n=1)
    return f"; did you mean {similar[0]}?" if similar else ""


def find_fields(kind: Any, path: Sequence[int | str]) -> list[Any]:
    """Return the fields of the models of a document that an entry may be. ``path``: as for ``unknown_entry``."""
    return [fields[path[-1]] for model in _models_at(kind, path) if path[-1] in (fields := _fields(model))]


def _models_at(kind: Any, path: Sequence[int | str]) -> list[Any]:
    """Return the models that the mapping around an entry may have."""
    models = list(_models(kind))
    for part in path[:-1]:
        # A part without a field is the number of an item or the tag of a union: its models are among these already.
        fields = [field for model in models for name, field in _fields(model).items() if name == part]
        models = [inner for field in fields for inner in _models(field.annotation)] or models
    return models


def _models(annotation: Any) -> Iterator[Any]:
    """Yield the models and settings classes in a type."""
    if _fields(annotation):
        yield annotation
    for argument in get_args(getattr(annotation, "__value__", annotation)):
        yield from _models(argument)


def _fields(model: Any) -> dict[str, Any]:
    """Return the fields of a model by the names that a document gives them."""
    fields = getattr(model, "model_fields", None) or getattr(model, "__pydantic_fields__", None) or {}
    return {field.alias or name: field for name, field in fields.items()} if isinstance(fields, dict) else {}
