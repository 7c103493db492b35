"""The control record that publishes a stream's document: JSON ``{"topic": null or text, "document": {...}}``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any  # a document is made of anything

import orjson

from rulecore.documents.control_keys import STREAM_KEY
from rulecore.errors import DocumentError
from streamcore.kernel import ControlRecord


@dataclass(frozen=True, slots=True)
class StreamPublication:
    """The content of a record. ``topic``: that of a new stream; None for a stream that the app has."""

    document: Mapping[str, Any]
    topic: str | None = None

    @property
    def key(self) -> str:
        """The key of the control record."""
        return f"{STREAM_KEY}{self.document.get('name')}"

    def encode(self) -> bytes:
        """Return the value of the control record. The order of the document's entries is kept."""
        return orjson.dumps({"topic": self.topic, "document": self.document})


def is_stream(record: ControlRecord) -> bool:
    """Return whether the control record publishes a stream's document."""
    return record.key is not None and record.key.startswith(STREAM_KEY.encode())


def decode_stream(key: str, value: bytes, limit_bytes: int) -> StreamPublication:
    """Read a record. Raise ``DocumentError`` if it is none, or is larger than the limit."""
    if len(value) > limit_bytes:
        raise DocumentError(f"the record has {len(value)} bytes, at most {limit_bytes}; shorten the document")
    try:
        content = orjson.loads(value)
    except ValueError as error:
        raise DocumentError(f"the record is no JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("document"), dict):
        raise DocumentError("the record has no document; publish it with headgate streams publish")
    topic = content.get("topic")
    if topic is not None and not isinstance(topic, str):
        raise DocumentError("the topic is no text")
    record = StreamPublication(content["document"], topic)
    if key != record.key:
        raise DocumentError(f"the record's key is {key[:100]!r} and its stream {record.document.get('name')!r}")
    return record
