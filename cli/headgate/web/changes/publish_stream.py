"""Publishes documents of streams, as ``headgate streams publish`` does; a lost update is refused, as for rules."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from headgate.rules.publish import ControlChange
from headgate.web.access.roles import Role
from headgate.web.changes.publish import Terms, await_outcome, change_digest, check_etag, write_once
from headgate.web.problems import ProblemCode, ProblemError, ProblemPlace
from headgate.web.state.app_reader import AppReader, Snapshot
from headgate.web.state.values import OutcomeValue
from rulecore.documents.status import Subject
from streamcore.engine.publication import StreamPublication
from streamcore.errors import ConfigError
from streamcore.schema.published_document import PublishedDocument


def publish_stream(
    reader: AppReader, name: str, document: Mapping[str, object], topic: str | None, terms: Terms
) -> OutcomeValue:
    """Publish a stream's document. ``topic``: of a new stream. It needs a publisher of rules of every owner and tag,
    for they all may read it."""

    def changes(snapshot: Snapshot) -> list[ControlChange]:
        check_etag(snapshot, Subject.STREAM, name, terms)
        version = _check(name, document, topic)
        if not terms.by.may_change(Role.PUBLISHER, snapshot.app, (), ""):
            detail = f"{terms.by.subject} is not a publisher of all rules, which may read stream {name}"
            raise ProblemError(403, ProblemCode.NOT_ALLOWED, detail)
        record = StreamPublication(document, topic)
        return [ControlChange(record.key, record.encode(), name, version)]

    words = orjson.dumps([document, topic]).decode()
    offset, repeated = write_once(reader, terms, change_digest(f"stream {name}", f"publish {words}"), changes)
    return await_outcome(reader, (Subject.STREAM, name), offset, terms, repeated=repeated)


def _check(name: str, document: Mapping[str, object], topic: str | None) -> int:
    """Return the version of the document. ``ProblemError`` if it is none, or of another stream."""
    try:
        schema = PublishedDocument.of(topic or "", document).schema
        if schema.name == name:
            return schema.version
        message = f"the stream's name is {schema.name}; the address names {name}"
    except ConfigError as error:
        message = str(error)
    raise ProblemError(422, ProblemCode.INVALID_STREAM, message, [ProblemPlace(path="document", message=message)])
