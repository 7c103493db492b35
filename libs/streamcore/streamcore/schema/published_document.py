"""A document that was published while an app runs, of a stream or of the app itself, and all such documents of an
app. The keys by which an app routes the events of a stream, beyond those of the stream's document, are kept likewise.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamcore.errors import ConfigError
from streamcore.schema.stream_schema import StreamSchema


@dataclass(frozen=True, slots=True)
class PublishedDocument:
    """A document as JSON, with its entries in the author's order.

    ``topic``: of the records of a stream; empty for the document of the app itself, which has an entry ``version``, and
    for the further keys of a stream, which has ``keys_of`` and ``keys``.
    """

    topic: str
    document: str

    @classmethod
    def of(cls, topic: str, document: Mapping[str, object]) -> PublishedDocument:
        """Return the published form of a stream's document that was read. ``ConfigError`` if it is none."""
        published = cls(topic, _to_json(document, f"stream {document.get('name')}"))
        _parse(published.document)
        return published

    @classmethod
    def of_app(cls, document: Mapping[str, object]) -> PublishedDocument:
        """Return the published form of the document of an app. ``ConfigError`` if it is none."""
        version = document.get("version")
        if not isinstance(version, int) or isinstance(version, bool):
            raise ConfigError("the document has no version, a whole number that each change raises")
        return cls("", _to_json(document, "the document"))

    @classmethod
    def of_keys(cls, stream: str, keys: Sequence[Sequence[str]]) -> PublishedDocument:
        """Return the further keys of a stream; they replace those that the app has had."""
        return cls("", _to_json({"keys_of": stream, "keys": keys}, f"keys of {stream}"))

    @property
    def further_keys(self) -> tuple[str, tuple[tuple[str, ...], ...]] | None:
        """The name of a stream, and its further keys; None for a document."""
        content = {} if self.is_stream else json.loads(self.document)
        return (content["keys_of"], tuple(map(tuple, content["keys"]))) if "keys_of" in content else None

    @property
    def is_stream(self) -> bool:
        """Whether it is the document of a stream."""
        return bool(self.topic)

    @property
    def schema(self) -> StreamSchema:
        """The schema of a stream's document."""
        return _parse(self.document)

    @property
    def name(self) -> str:
        """The name of the stream; empty for the document of the app. No two that count at a time have one name."""
        if self.is_stream:
            return self.schema.name
        keys = self.further_keys
        return "" if keys is None else f"keys of {keys[0]}"

    @property
    def version(self) -> int:
        """The version of the document."""
        return self.schema.version if self.is_stream else int(json.loads(self.document)["version"])

    def __str__(self) -> str:
        """Return its kind and name, for the log."""
        keys = self.further_keys
        if keys is None:
            return f"{self.name or 'its mapping'} version {self.version}, as published"
        return f"{len(keys[1])} further keys of {keys[0]}, by which rules group"


def _to_json(document: Mapping[str, object], what: str) -> str:
    try:
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what}: not all of it is text or numbers: {error}") from None


@functools.lru_cache(maxsize=512)
def _parse(document: str) -> StreamSchema:
    return StreamSchema.parse(json.loads(document))


def merge_documents(
    before: Iterable[PublishedDocument], later: Iterable[PublishedDocument]
) -> tuple[PublishedDocument, ...]:
    """Return the documents with those that were published later in place of the earlier ones of their names, or
    last."""
    merged = {one.name: one for one in before}
    merged.update((one.name, one) for one in later)
    return tuple(merged.values())


def digest_documents(documents: Iterable[PublishedDocument]) -> str:
    """Return a digest of the documents; empty if there are none."""
    rows = [[one.topic, one.document] for one in documents]
    return hashlib.blake2b(json.dumps(rows).encode(), digest_size=8).hexdigest() if rows else ""


def choose_schema(in_file: StreamSchema, published: PublishedDocument) -> StreamSchema:
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
