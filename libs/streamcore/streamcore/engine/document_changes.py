"""Documents that are published while an app runs: a cut decides about each, and the next cut has the accepted ones.

Only then can events be decoded and mapped by an accepted document; the answer comes with that cut. All shards decide
alike. The meaning of a document is the business of the app (``AppDocuments``); this module knows the order of things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import orjson

from streamcore.engine.publication import is_app_document, is_stream
from streamcore.errors import StreamError
from streamcore.kernel import ControlRecord
from streamcore.schema import StreamSchema
from streamcore.schema.published_document import PublishedDocument
from streamcore.state import KeyValueTable
from streamcore.state.scope import REPLICATED
from streamcore.wire.lanes import Record

ACCEPTED: Final = "accepted:"


@dataclass(frozen=True, slots=True)
class DocumentPlan:
    """The plan for a control record with a document.

    ``version``: of the document. ``published``: the documents that the app has with it; none if it is in force already.
    ``note``: to its author, or empty.
    """

    version: int
    published: tuple[PublishedDocument, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class DocumentAnswer:
    """The answer to a control record with a document. ``version``: None if it could not be read."""

    record: ControlRecord
    version: int | None
    accepted: bool
    reason: str | None


class AppDocuments(Protocol):
    """The documents of a stream program, and its answers to further ones. It is pickled for the workers."""

    def plan(self, record: ControlRecord) -> tuple[DocumentPlan, AppDocuments]:
        """Return the plan for a record, and the documents with it. Raise ``StreamError`` if it is rejected: with
        the reason, and what to do instead."""
        ...

    def find_missing(self, published: PublishedDocument) -> str:
        """Return why an accepted document is not in force, or nothing if it is."""
        ...

    def to_record(self, answer: DocumentAnswer) -> Record:
        """Return an answer as a record of the status lane."""
        ...


def find_missing_stream(schemas: Iterable[StreamSchema], published: PublishedDocument) -> str:
    """Return why the accepted document of a stream is not in force, or nothing. ``schemas``: those in force."""
    schema = next((one for one in schemas if one.name == published.name), None)
    version = published.version
    if schema is None or schema.version < version or (schema.version == version and schema != published.schema):
        return "the app was started with other streams before it took it"
    if schema.version > version:
        return f"the app was started with version {schema.version} before it took this one"
    return ""


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A record whose documents the next cut has."""

    record: ControlRecord
    plan: DocumentPlan

    def encode(self) -> bytes:
        record, plan = self.record, self.plan
        rows = [[one.topic, one.document] for one in plan.published]
        key = (record.key or b"").decode()
        return orjson.dumps([record.partition, record.offset, key, plan.version, rows, plan.note])

    @classmethod
    def decode(cls, value: bytes) -> _Accepted:
        partition, offset, key, version, rows, note = orjson.loads(value)
        published = tuple(PublishedDocument(*row) for row in rows)
        return cls(ControlRecord(partition, offset, key.encode(), None), DocumentPlan(version, published, note))


@dataclass(slots=True)
class DocumentChanges:
    """The documents that the next cut has, in ``table``."""

    table: KeyValueTable = field(default_factory=lambda: KeyValueTable(REPLICATED))

    @property
    def is_waiting(self) -> bool:
        """Whether an earlier cut has left something."""
        return any(True for _ in self.table)

    def take_answers(self, find_missing: Callable[[PublishedDocument], str]) -> list[DocumentAnswer]:
        """Return the answers to the documents that the cut before has accepted, and forget these.

        ``find_missing``: returns why the app does not have a document now, or nothing.
        """
        answers = []
        for key, value in [(key, value) for key, value in self.table if key.startswith(ACCEPTED)]:
            self.table.put(key, None)
            one = _Accepted.decode(value)
            missing = next(filter(None, map(find_missing, one.plan.published)), "")
            reason = missing or one.plan.note or None
            answers.append(DocumentAnswer(one.record, one.plan.version, not missing, reason))
        return answers

    def decide(
        self, records: Sequence[ControlRecord], plan: Callable[[ControlRecord], DocumentPlan]
    ) -> tuple[list[DocumentAnswer], list[PublishedDocument]]:
        """Decide about records with documents, in their order. Return the answers to those that are rejected or change
        nothing, and the accepted documents.

        ``plan``: returns the plan for a record after those before it; it raises if the record is rejected.
        """
        answers: list[DocumentAnswer] = []
        accepted: list[_Accepted] = []
        for record in records:
            try:
                found = plan(record)
            except StreamError as error:
                answers.append(DocumentAnswer(record, None, accepted=False, reason=str(error)))
            except Exception as error:  # a program error at one record must not stop the app
                reason = f"internal error: {type(error).__name__}: {error}"
                answers.append(DocumentAnswer(record, None, accepted=False, reason=reason))
            else:
                if found.published:
                    accepted.append(_Accepted(record, found))
                else:
                    answers.append(DocumentAnswer(record, found.version, accepted=True, reason="no change"))
        for number, one in enumerate(accepted):
            self.table.put(f"{ACCEPTED}{number:08}", one.encode())
        return answers, [document for one in accepted for document in one.plan.published]


@dataclass(slots=True)
class DocumentStep:
    """Decides about the documents of a cut, for a stream program: the first step of its last keyed stage."""

    documents: AppDocuments
    changes: DocumentChanges = field(default_factory=DocumentChanges)

    def run(self, control: Sequence[ControlRecord]) -> tuple[list[Record], list[PublishedDocument]]:
        """Return the answers as records, and the documents that the app has from the next cut on."""
        answers = self.changes.take_answers(self.documents.find_missing)
        records = [record for record in control if is_stream(record) or is_app_document(record)]
        after = self.documents

        def plan(record: ControlRecord) -> DocumentPlan:
            nonlocal after
            found, after = after.plan(record)
            return found

        rejected, published = self.changes.decide(records, plan)
        return [self.documents.to_record(answer) for answer in [*answers, *rejected]], published


__all__: Sequence[str] = (
    "ACCEPTED",
    "AppDocuments",
    "DocumentAnswer",
    "DocumentChanges",
    "DocumentPlan",
    "DocumentStep",
    "find_missing_stream",
)
