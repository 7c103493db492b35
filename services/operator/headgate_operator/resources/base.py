"""Base of every resource: documents with names as Kubernetes writes them, durations and instants as numbers inside.

Inside the operator a duration and an instant are integers in milliseconds; people and the API server see ``120s`` and
RFC 3339.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, PlainSerializer, Strict, WithJsonSchema
from pydantic.alias_generators import to_camel

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = r"^[0-9]{1,9}(ms|s|m|h|d)$"

#: For dataclasses that are stored in a resource's status.
STORED = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")


class ResourceModel(BaseModel):
    """A mapping that people write: known names only, camelCase outside; a value."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


def parse_duration_ms(text: object) -> object:
    """``"120s"`` to 120000; a number stays. Anything else is left for the validator to refuse."""
    found = re.fullmatch(r"([0-9]+)(ms|s|m|h|d)", text) if isinstance(text, str) else None
    return int(found[1]) * _UNITS_MS[found[2]] if found else text


def format_duration(duration_ms: int) -> str:
    """Return the shortest exact form: ``21600000`` to ``"6h"``."""
    if not duration_ms:
        return "0s"
    unit = next((unit for unit in ("d", "h", "m", "s") if duration_ms % _UNITS_MS[unit] == 0), "ms")
    return f"{duration_ms // _UNITS_MS[unit]}{unit}"


def parse_instant_ms(text: object) -> object:
    """RFC 3339 to milliseconds since 1970; a number stays."""
    if not isinstance(text, str):
        return text
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1_000)


def format_instant(instant_ms: int) -> str:
    """Milliseconds since 1970 as RFC 3339, in UTC."""
    return datetime.fromtimestamp(instant_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


DurationMs = Annotated[
    int,
    Strict(),
    BeforeValidator(parse_duration_ms),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _DURATION}),
]
InstantMs = Annotated[
    int,
    BeforeValidator(parse_instant_ms),
    PlainSerializer(format_instant, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]

#: A mapping whose entries the operator passes on and does not judge.
FreeObject = Annotated[
    dict[str, JsonValue], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
]
