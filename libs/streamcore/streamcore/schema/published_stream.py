"""A stream's document that was published while an app runs, and the documents of all such streams of an app."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamcore.errors import ConfigError
from streamcore.schema.stream_schema import StreamSchema


@dataclass(frozen=True, slots=True)
class PublishedStream:
    """The document of a stream, as JSON with its entries in the author's order, and the topic of its records."""

    topic: str
    document: str

    @classmethod
    def of(cls, topic: str, document: Mapping[str, object]) -> PublishedStream:
        """Return the stream of a document that was read. ``ConfigError`` if it is none."""
        try:
            published = cls(topic, json.dumps(document, separators=(",", ":"), ensure_ascii=False))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"stream {document.get('name')}: not all of it is text or numbers: {error}") from None
        _parse(published.document)
        return published

    @property
    def schema(self) -> StreamSchema:
        """The schema of the document."""
        return _parse(self.document)

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self.schema.name

    @property
    def version(self) -> int:
        """The version of the document."""
        return self.schema.version


@functools.lru_cache(maxsize=512)
def _parse(document: str) -> StreamSchema:
    return StreamSchema.parse(json.loads(document))


def merge_streams(before: Iterable[PublishedStream], later: Iterable[PublishedStream]) -> tuple[PublishedStream, ...]:
    """Return the streams with those that were published later in place of the earlier ones of their names, or last."""
    merged = {one.name: one for one in before}
    merged.update((one.name, one) for one in later)
    return tuple(merged.values())


def digest_streams(streams: Iterable[PublishedStream]) -> str:
    """Return a digest of the documents; empty if there are none."""
    rows = [[one.topic, one.document] for one in streams]
    return hashlib.blake2b(json.dumps(rows).encode(), digest_size=8).hexdigest() if rows else ""


def choose_schema(in_file: StreamSchema, published: PublishedStream) -> StreamSchema:
    """Return which document of a stream an app starts with: the one of the higher version.

    Raise ``ConfigError`` if documents of one version differ.
    """
    own = published.schema
    if own.version == in_file.version and own != in_file:
        raise ConfigError(
            f"stream {own.name}: version {own.version} of the stream file is not the version {own.version} that was "
            "published while the app ran; give the file a higher version to start with it, or the published content"
        )
    return own if own.version > in_file.version else in_file
