"""The control records that publish documents while an app runs: of a stream (key ``stream/<name>``), and of the app
itself (key ``document/<app>``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final  # a document is made of anything

import orjson

from streamcore.errors import ConfigError
from streamcore.kernel import ControlRecord

STREAM_KEY: Final = "stream/"
DOCUMENT_KEY: Final = "document/"
#: Most bytes of a record with the document of an app.
MAX_DOCUMENT_BYTES: Final = 512 * 1024


@dataclass(frozen=True, slots=True)
class StreamPublication:
    """The content of a stream's record: JSON ``{"topic": null or text, "document": {...}}``.

    ``topic``: that of a new stream; None for a stream that the app has.
    """

    document: Mapping[str, Any]
    topic: str | None = None

    @property
    def key(self) -> str:
        """The key of the control record."""
        return f"{STREAM_KEY}{self.document.get('name')}"

    def encode(self) -> bytes:
        """Return the value of the control record. The order of the document's entries is kept."""
        return orjson.dumps({"topic": self.topic, "document": self.document})


@dataclass(frozen=True, slots=True)
class AppPublication:
    """The content of the record with the document of an app: the document as JSON."""

    app: str
    document: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The key of the control record."""
        return f"{DOCUMENT_KEY}{self.app}"

    def encode(self) -> bytes:
        """Return the value of the control record. The order of the document's entries is kept."""
        return orjson.dumps(self.document)


def is_stream(record: ControlRecord) -> bool:
    """Return whether the control record publishes a stream's document."""
    return record.key is not None and record.key.startswith(STREAM_KEY.encode())


def is_app_document(record: ControlRecord) -> bool:
    """Return whether the control record publishes the document of an app."""
    return record.key is not None and record.key.startswith(DOCUMENT_KEY.encode())


def decode_stream(record: ControlRecord, limit_bytes: int = MAX_DOCUMENT_BYTES) -> StreamPublication:
    """Read a stream's record. Raise ``ConfigError`` if it is none, or is larger than the limit."""
    if record.value is None:
        raise ConfigError("a stream is not removed while the app runs; delete what reads it, or stop its producers")
    content = _decode(record.value, limit_bytes)
    if not isinstance(content.get("document"), dict):
        raise ConfigError("the record has no document; publish it with headgate streams publish")
    topic = content.get("topic")
    if topic is not None and not isinstance(topic, str):
        raise ConfigError("the topic is no text")
    found = StreamPublication(content["document"], topic)
    if record.key != found.key.encode():
        key = (record.key or b"").decode("utf-8", "replace")
        raise ConfigError(f"the record's key is {key[:100]!r} and its stream {found.document.get('name')!r}")
    return found


def decode_app_document(app: str, record: ControlRecord, limit_bytes: int = MAX_DOCUMENT_BYTES) -> AppPublication:
    """Read the record of an app's document. Raise ``ConfigError`` if it is none, of another app, or too large."""
    if record.value is None:
        raise ConfigError("the document of an app is not removed; publish another one")
    found = AppPublication(app, _decode(record.value, limit_bytes))
    if record.key != found.key.encode():
        key = (record.key or b"").decode("utf-8", "replace")
        raise ConfigError(f"the record's key is {key[:100]!r}, and this is the app {app}")
    return found


def _decode(value: bytes, limit_bytes: int) -> dict[str, Any]:
    if len(value) > limit_bytes:
        raise ConfigError(f"the record has {len(value)} bytes, at most {limit_bytes}; shorten the document")
    try:
        content = orjson.loads(value)
    except ValueError as error:
        raise ConfigError(f"the record is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError("the record is no document")
    return content


def read_subject(record: ControlRecord) -> str:
    """Return the name of the stream or app whose document the record publishes."""
    return (record.key or b"").decode("utf-8", "replace").partition("/")[2]
