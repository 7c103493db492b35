"""Documents that are published while the app runs: of a stream (``headgate streams publish``), and of the mapping with
its streams (``headgate etl publish``).

A document is taken if the app can go on with all state, in the same tables and topics, from the next cut on. Otherwise
it is rejected with the reason, and with what to do instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any  # a document is made of anything

from headgate_etl.documents import EtlDocument, MappingDocument, PublishedMapping
from headgate_etl.name_resolution import read_lists, read_model
from headgate_etl.table_lookup import table_sources
from headgate_etl.topology import build_topology
from rulecore.mapping.problems import Problems
from streamcore.app import App, Source
from streamcore.engine.document_changes import DocumentAnswer, DocumentPlan, find_missing_stream
from streamcore.engine.publication import decode_app_document, decode_stream, is_stream
from streamcore.engine.published_streams import add_streams, plan_stream
from streamcore.errors import ConfigError
from streamcore.kernel import ControlRecord
from streamcore.schema.evolution import RESTART
from streamcore.schema.published_document import PublishedDocument
from streamcore.service.config.documents import checked_document
from streamcore.service.live_documents import answer_record, bind_app, find_differences, reject_differences
from streamcore.wire.lanes import Record

if TYPE_CHECKING:
    from streamcore.topology.topology import Topology

#: What to do instead of a change that a running app cannot take.
_RESTART = RESTART.replace("stream file", "settings file")
_STREAM, _NAME = "stream", "name"
_SOURCE_ENTRIES = ("format", "reject_extra_fields", "reject_other_records")


@dataclass(frozen=True, slots=True)
class EtlDocuments:
    """The documents of an app: ``settings`` with the mapping in force, and ``sources``, in the order of its inputs."""

    settings: EtlDocument
    sources: tuple[Source, ...]

    def topology(self) -> Topology:
        """Build the topology. ``ConfigError`` lists every entry that is wrong."""
        return build_topology(self.settings, self.sources)

    def app(self) -> App:
        """Build the app, which takes further documents while it runs."""
        return bind_app(self.topology(), self.settings, (*self.sources, *table_sources(self.settings)), self)

    def plan(self, record: ControlRecord) -> tuple[DocumentPlan, EtlDocuments]:
        """Return the plan for a record, and the documents with it. ``ConfigError`` if the app cannot take it."""
        return self._plan_stream(record) if is_stream(record) else self._plan_mapping(record)

    def find_missing(self, published: PublishedDocument) -> str:
        """Return why an accepted document is not in force, or nothing if it is."""
        if published.is_stream:
            return find_missing_stream((source.schema for source in self.sources), published)
        version = self.settings.version
        if version > published.version:
            return f"the app was started with version {version} before it took this one"
        is_same = version == published.version and _is_same(self.settings, _parse_stored(published))
        return "" if is_same else "the app was started with another document before it took it"

    def to_record(self, answer: DocumentAnswer) -> Record:
        """Return an answer as a record of the status lane."""
        return answer_record(answer)

    def _plan_stream(self, record: ControlRecord) -> tuple[DocumentPlan, EtlDocuments]:
        publication = decode_stream(record)
        plan = plan_stream(self.sources, publication.document, publication.topic)
        if plan.changes_nothing:
            return DocumentPlan(plan.stream.version, ()), self
        if plan.before is None:
            raise ConfigError(
                f"stream {plan.stream.name}: the app has no mapping of it: add it to the inputs of the settings file, "
                "and publish that (headgate etl publish)"
            )
        after = replace(self, sources=plan.sources)
        check_fits(self, after)
        return DocumentPlan(plan.stream.version, (plan.stream,), plan.note), after

    def _plan_mapping(self, record: ControlRecord) -> tuple[DocumentPlan, EtlDocuments]:
        content = decode_app_document(self.settings.app, record).document
        mapping = checked_document(content, PublishedMapping, "the document")
        after, streams, notes = self, list[PublishedDocument](), list[str]()
        for each in mapping.inputs:
            plan = plan_stream(after.sources, each.stream, each.topic)
            if not plan.changes_nothing:
                after = replace(after, sources=plan.sources)
                streams.append(plan.stream)
                notes += [plan.note] if plan.note else []
        after = after.with_mapping(mapping)
        self._check_sources(after)
        if not streams and _is_same(self.settings, after.settings) and mapping.version == self.settings.version:
            return DocumentPlan(mapping.version, ()), self
        if mapping.version <= self.settings.version:
            raise ConfigError(
                f"version {mapping.version} of the mapping is not above version {self.settings.version}, which is in "
                "force; raise it"
            )
        check_fits(self, after)
        notes += _notes(self.settings, after.settings)
        stored = PublishedDocument.of_app(to_document(after.settings, [{_NAME: s.schema.name} for s in after.sources]))
        return DocumentPlan(mapping.version, (*streams, stored), "; ".join(notes)), after

    def with_mapping(self, mapping: PublishedMapping) -> EtlDocuments:
        """Return the documents with another mapping. ``ConfigError`` if a source has none, or a mapping no source."""
        inputs = {str(each.stream.get(_NAME)): each for each in mapping.inputs}
        if len(inputs) < len(mapping.inputs):
            raise ConfigError("a stream appears twice in the inputs; each has one mapping")
        names = [source.schema.name for source in self.sources]
        if gone := [name for name in names if name not in inputs]:
            raise ConfigError(f"input {gone[0]} is gone: keep it, or {_RESTART}")
        if unknown := [name for name in inputs if name not in names]:
            raise ConfigError(f"input {unknown[0]}: the app has no such stream")
        entries = {name: getattr(mapping, name) for name in MappingDocument.model_fields}
        ordered = tuple(inputs[name] for name in names)
        return replace(self, settings=self.settings.model_copy(update={**entries, "inputs": ordered}))

    def _check_sources(self, after: EtlDocuments) -> None:
        """Raise ``ConfigError`` if an input is to be read otherwise than the app reads it, or its topic."""
        known = dict(zip([s.schema.name for s in self.sources], self.settings.inputs, strict=True))
        formats = {one.topic: one.format for one in self.settings.inputs}
        for source, each in zip(after.sources, after.settings.inputs, strict=True):
            before = known.get(source.schema.name)
            now = {name: getattr(each, name) for name in _SOURCE_ENTRIES}
            wanted = (
                {"format": formats[each.topic], "reject_extra_fields": False, "reject_other_records": False}
                if before is None
                else {name: getattr(before, name) for name in _SOURCE_ENTRIES}
            )
            if changed := [name for name in _SOURCE_ENTRIES if now[name] != wanted[name]]:
                raise ConfigError(
                    f"input {source.schema.name}: {changed[0]} does not change while the app runs: {_RESTART}"
                )


def check_fits(before: EtlDocuments, after: EtlDocuments) -> None:
    """Raise ``ConfigError``, with all reasons, unless the app can go on with other documents: they are valid, and keep
    state, tables and topics."""
    try:
        app = after.app()
    except ConfigError as error:
        raise ConfigError(f"the mapping does not fit:\n{error}") from None
    old = before.app()
    problems = [
        *_fixed_entries(before.settings, after.settings),
        *_moved_topics(old, app),
        *find_differences(old, app, rows=False),
    ]
    reject_differences(problems, _RESTART)


def _moved_topics(old: App, new: App) -> Iterator[str]:
    """Yield the topics whose place among the sources, by which watermarks are stored, would be another."""
    for topic in dict.fromkeys(old.topics):
        if topic in new.topics and new.topics.index(topic) != old.topics.index(topic):
            yield f"topic {topic} would have another place among the sources, behind the new streams"


def _fixed_entries(old: EtlDocument, new: EtlDocument) -> Iterator[str]:
    """Yield what differs and must not: state is stored by it, or it names files of the machine."""
    for name in ("id", "deduplicate", "lookup", "lookups"):
        if getattr(old, name) != getattr(new, name):
            yield f"{name} would be another"
    ignored = Problems()
    if read_lists(old, ignored) != read_lists(new, ignored):
        yield "lists would be others, or have other types"
    was, now = read_model(old, ignored), read_model(new, ignored)
    yield from (f"id: {name} would be {now[name].type}" for name in new.id if _type(was, name) != _type(now, name))
    files = _key_files(old)
    yield from (f"key file {file} is not in use yet" for file in sorted(_key_files(new) - files))


def _type(model: Mapping[str, Any], name: str) -> str:
    return str(model[name].type) if name in model else ""


def _key_files(settings: EtlDocument) -> set[Path]:
    return {mask.key_file for mask in settings.mask.values() if mask.key_file is not None}


def _notes(old: EtlDocument, new: EtlDocument) -> list[str]:
    """Return a note to the author of a changed mapping."""
    pairs = zip(old.inputs, new.inputs, strict=False)  # new inputs come last
    changed = sorted({name for was, now in pairs for name in new.id if was.map.get(name) != now.map.get(name)})
    if new.deduplicate is None or not changed:
        return []
    return [f"{', '.join(changed)} of the id is computed otherwise: earlier rows are no duplicates of later ones"]


def to_document(settings: MappingDocument, streams: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mapping of settings as a document to publish. ``streams``: the documents of the inputs' streams."""
    document = settings.model_dump(mode="json", include={*MappingDocument.model_fields})
    for each, stream in zip(document["inputs"], streams, strict=True):
        each[_STREAM] = dict(stream)
    return document


def _parse_stored(published: PublishedDocument) -> PublishedMapping:
    return PublishedMapping.model_validate_json(published.document)


def _is_same(one: MappingDocument, other: MappingDocument) -> bool:
    """Whether two mappings are equal, whatever the files and the order of their inputs."""

    def content(document: MappingDocument) -> dict[str, Any]:
        found = document.model_dump(mode="json", include={*MappingDocument.model_fields})
        inputs = ([each["topic"], sorted(each["map"].items()), each["explode"]] for each in found["inputs"])
        found["inputs"] = sorted(inputs, key=str)
        return found

    return content(one) == content(other)


def documents_at_start(
    settings: EtlDocument, in_files: tuple[Source, ...], published: Sequence[PublishedDocument]
) -> EtlDocuments:
    """Return the documents that an app starts with: of the settings and of the published ones, the higher versions.

    ``ConfigError`` if two of one version differ. ``in_files``: the sources of the settings.
    """
    streams = [one for one in published if one.is_stream]
    stored = next((_parse_stored(one) for one in published if not one.is_stream), None)
    in_file = {source.schema.name for source in in_files}
    if stored is None or stored.version < settings.version:
        known = [one for one in streams if one.name in in_file]
        return EtlDocuments(settings, add_streams(in_files, known))
    order = [str(each.stream[_NAME]) for each in stored.inputs]
    if (stored.version == settings.version and not _is_same(settings, stored)) or not in_file <= {*order}:
        raise ConfigError(
            f"version {settings.version} of the mapping in the settings is not the version {stored.version} that was "
            "published while the app ran; give the settings a higher version, or the published content"
        )
    sources = [source for source in add_streams(in_files, streams) if source.schema.name in order]
    sources.sort(key=lambda source: order.index(source.schema.name))
    return EtlDocuments(settings, tuple(sources)).with_mapping(stored)
