"""Base of the resource models: camelCase names, durations and instants.

Inside the operator durations are integers in milliseconds, and instants are milliseconds since 1970. In the resources
they are text: ``120s``, and RFC 3339.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, PlainSerializer, Strict, WithJsonSchema
from pydantic.alias_generators import to_camel

from streamcore import durations
from streamcore.durations import render_duration

_DURATION = r"^[0-9]{1,9}(ms|s|m|h|d)$"

#: The configuration of dataclasses in a status: camelCase names; unknown entries, of a newer operator, are ignored.
STORED = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")


class ResourceModel(BaseModel):
    """A mapping in a spec: immutable, with camelCase names. Unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


def parse_duration_ms(text: object) -> object:
    """Convert ``"120s"`` to 120000. Any other value is returned as it is, for the validator to accept or reject."""
    if isinstance(text, str):
        with contextlib.suppress(ValueError):
            return durations.parse_duration_ms(text)
    return text


def parse_instant_ms(text: object) -> object:
    """Convert RFC 3339 text to milliseconds since 1970. A value that is not text is returned as it is."""
    if not isinstance(text, str):
        return text
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1_000)


def format_instant(instant_ms: int) -> str:
    """Return milliseconds since 1970 as RFC 3339 text, in UTC."""
    return datetime.fromtimestamp(instant_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


DurationMs = Annotated[
    int,
    Strict(),
    BeforeValidator(parse_duration_ms),
    PlainSerializer(render_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _DURATION}),
]
InstantMs = Annotated[
    int,
    BeforeValidator(parse_instant_ms),
    PlainSerializer(format_instant, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]

#: A mapping that the operator passes on without checking its entries.
FreeObject = Annotated[
    dict[str, JsonValue], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
]
