"""Published documents in a service whose app is a topology: the app with them, and whether it can go on with others.

An app can go on if its stages, its state, its tables and its topics stay what they are. That is seen by building it
with the new documents; nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import orjson

from streamcore.app import App, Source
from streamcore.engine.document_changes import AppDocuments, DocumentAnswer, DocumentPlan, find_missing_stream
from streamcore.engine.publication import decode_stream, is_stream, read_subject
from streamcore.engine.published_streams import add_streams, plan_stream
from streamcore.errors import ConfigError
from streamcore.kernel import ControlRecord
from streamcore.schema.evolution import RESTART
from streamcore.schema.published_document import PublishedDocument
from streamcore.wire.lanes import STATUS, Record

if TYPE_CHECKING:
    from streamcore.service.config.settings import ServiceSettings
    from streamcore.topology.graph import TopologyGraph
    from streamcore.topology.topology import Topology

_REASON_CHARACTERS: Final = 2_000
_NAME_CHARACTERS: Final = 100


def bind_app(topology: Topology, settings: ServiceSettings, sources: Sequence[Source], documents: AppDocuments) -> App:
    """Return the app of a topology, with the topics and limits of the settings. ``sources``: those of its
    streams. ``documents``: decides about those that are published while it runs."""
    app = topology.app(
        topics={source.schema.name: source.topic for source in sources},
        lanes={lane: settings.lane_topic(lane) for lane in (*topology.lanes, STATUS)},
        control_topic=settings.control_topic,
        shards=settings.shards,
        key_groups=settings.key_groups,
        state=settings.state,
        limits=settings.limits,
        documents=documents,
    )
    by_name = {source.schema.name: source for source in sources}

    def treat(source: Source) -> Source:
        wanted = by_name[source.schema.name]
        return replace(
            source,
            reject_extra_fields=wanted.reject_extra_fields,
            reject_other_records=wanted.reject_other_records,
        )

    return replace(app, sources=tuple(map(treat, app.sources)))


def answer_record(answer: DocumentAnswer) -> Record:
    """Return the record for the status lane that answers a published document, keyed by its name."""
    record, name = answer.record, read_subject(answer.record)[:_NAME_CHARACTERS]
    body: dict[str, object] = {
        "subject": "stream" if is_stream(record) else "document",
        "rule": name,
        "version": answer.version,
        "status": "accepted" if answer.accepted else "rejected",
        "mode": None,
        "reason": None if answer.reason is None else answer.reason[:_REASON_CHARACTERS],
        "release": None,
        "rules_epoch": 0,
        "control": {"partition": record.partition, "offset": record.offset},
    }
    return Record(STATUS, name.encode(), orjson.dumps(body))


def find_differences(old: App, new: App, *, rows: bool) -> Iterator[str]:
    """Yield why a running app cannot go on as another one: what it would have to open, to close, or to read otherwise.

    ``rows``: whether rows that go to stages with state may not have other columns either.
    """
    from streamcore.savepoint.app_description import describe

    before, after = _topology(old), _topology(new)
    one, other = (
        (d.stages, d.tables, [operator.name for operator in d.operators], len(d.watermark_groups), app.exchanges)
        for app, d in ((old, describe(old)), (new, describe(new)))
    )
    if one != other:
        yield "its stages or their state would change"
    elif rows and (columns := _changed_columns(_sent(before), _sent(after))):
        yield f"the rows after key_by would have other columns ({', '.join(columns)}); write select before the key"
    tables, new_tables = before.table_columns, after.table_columns
    for lane in sorted(tables.keys() | new_tables.keys()):
        if lane not in new_tables or lane not in tables:
            yield f"route {lane}: a table is not opened or closed"
        elif tables[lane] != new_tables[lane]:
            was, now = ({field.name: str(field.type) for field in some[lane]} for some in (tables, new_tables))
            changed = [name for name in {**was, **now} if was.get(name) != now.get(name)] or ["their order"]
            yield f"route {lane}: its table would have other columns ({', '.join(changed)})"
    for lane in new.lanes:
        if lane not in old.lanes:
            yield f"route {lane} is new, and its topic is made when the app starts"


def reject_differences(problems: Sequence[str], remedy: str) -> None:
    """Raise ``ConfigError`` with these reasons and what to do instead, if there are any."""
    if problems:
        raise ConfigError(f"not while the app runs: {'; '.join(problems)}. Instead: {remedy}")


def _topology(app: App) -> TopologyGraph:
    from streamcore.topology.kernel import TopologyStage

    return next(stage.topology for stage in app.stages if isinstance(stage, TopologyStage))


def _changed_columns(before: Sequence[dict[str, object]], after: Sequence[dict[str, object]]) -> Sequence[str]:
    """Return the columns that an exchange sends and another does not, or with another type."""
    pairs = zip(before, after, strict=True)
    return sorted({name for one, other in pairs for name in one | other if one.get(name) != other.get(name)})


def _sent(topology: TopologyGraph) -> list[dict[str, object]]:
    """Return the columns that each exchange sends."""
    return [
        {
            name: dtype
            for name, dtype in planned.port.schema.items()
            if planned.columns is None or name in planned.columns
        }
        for planned in topology.levels.exchanges
    ]


@dataclass(frozen=True, slots=True)
class StreamDocuments:
    """The streams of an app that takes documents of streams alone.

    ``build``: builds the app with these documents; it is pickled.
    """

    sources: tuple[Source, ...]
    build: Callable[[StreamDocuments], App]

    def plan(self, record: ControlRecord) -> tuple[DocumentPlan, StreamDocuments]:
        """Return the plan for a record, and the documents with it. ``ConfigError`` if the app cannot take it."""
        if not is_stream(record):
            raise ConfigError("the app takes documents of streams alone; change its settings, and start it anew")
        publication = decode_stream(record)
        plan = plan_stream(self.sources, publication.document, publication.topic)
        if plan.changes_nothing:
            return DocumentPlan(plan.stream.version, ()), self
        if plan.before is None:
            raise ConfigError(f"stream {plan.stream.name}: nothing in the app reads it; name one of its streams")
        after = replace(self, sources=plan.sources)
        try:
            problems = [*find_differences(self.build(self), self.build(after), rows=True)]
        except ConfigError as error:
            raise ConfigError(f"the app cannot read the stream so: {error}") from None
        reject_differences(problems, RESTART)
        return DocumentPlan(plan.stream.version, (plan.stream,), plan.note), after

    def find_missing(self, published: PublishedDocument) -> str:
        """Return why an accepted document is not in force, or nothing if it is."""
        return find_missing_stream((source.schema for source in self.sources), published)

    def to_record(self, answer: DocumentAnswer) -> Record:
        """Return an answer as a record of the status lane."""
        return answer_record(answer)


def build_with_streams(
    in_files: Sequence[Source],
    build: Callable[[StreamDocuments], App],
    published: Sequence[PublishedDocument] = (),
) -> App:
    """Build an app that takes documents of its streams while it runs. ``build``: as in ``StreamDocuments``.
    ``published``: the documents that it has taken, beside those of its files."""
    app = build(StreamDocuments(add_streams(in_files, published), build))
    return replace(app, rebuild=partial(build_with_streams, in_files, build))
