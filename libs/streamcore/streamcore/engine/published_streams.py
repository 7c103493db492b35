"""The sources of an app with streams that are published while it runs: a new document of a source's stream, or one more
stream on a topic that the app reads.

``plan_stream`` decides about one document, for an app that runs; what it accepts, ``add_streams`` can do at each start.
Both are pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from streamcore.app import MAX_STREAMS, Source, check_shared_topic
from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema
from streamcore.schema.evolution import RESTART, check_evolution, is_rounded
from streamcore.schema.published_document import PublishedDocument, choose_schema
from streamcore.schema.record_places import EXTRA_FIELDS
from streamcore.schema.stream_schema import Field


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The plan for a published document.

    ``stream``: the document with its topic. ``before``: the schema that it replaces; None for a new stream.
    ``sources``: of the app with it. ``note``: to its author, or empty.
    """

    stream: PublishedDocument
    before: StreamSchema | None
    sources: tuple[Source, ...]
    note: str = ""

    @property
    def changes_nothing(self) -> bool:
        """Whether the document is the one in force."""
        return self.before == self.stream.schema and self.before.version == self.stream.version


def plan_stream(sources: Sequence[Source], document: Mapping[str, object], topic: str | None) -> StreamPlan:
    """Return the plan for a document. ``sources``: those of the running app; ``topic``: None for that of the stream.

    ``ConfigError`` says why the app cannot take it, and what to do instead.
    """
    schema = PublishedDocument.of("", document).schema
    found = next((source for source in sources if source.schema.name == schema.name), None)
    if found is None:
        return _plan_new(sources, document, schema, topic)
    if topic is not None and topic != found.topic:
        raise ConfigError(
            f"stream {schema.name}: its records are in topic {found.topic}, not {topic}: leave the topic out, or "
            "publish it under another name"
        )
    plan = StreamPlan(PublishedDocument.of(found.topic, document), found.schema, tuple(sources))
    if plan.changes_nothing:
        return plan
    if schema.version <= found.schema.version:
        raise ConfigError(
            f"stream {schema.name}: version {schema.version} is not above version {found.schema.version}, which is in "
            "force; raise it"
        )
    check_evolution(found.schema, schema)
    changed = tuple(replace(one, schema=schema) if one is found else one for one in sources)
    return replace(plan, sources=changed, note=_note(found.schema, schema))


def _plan_new(
    sources: Sequence[Source], document: Mapping[str, object], schema: StreamSchema, topic: str | None
) -> StreamPlan:
    topics = list(dict.fromkeys(source.topic for source in sources))
    if topic is None:
        raise ConfigError(
            f"stream {schema.name}: it is new, so name the topic of its records; there are {', '.join(topics)}"
        )
    added = _new_source(sources, schema, topic)
    rest = next((one.schema.name for one in sources if one.topic == topic and one.schema.when is None), None)
    note = "" if rest is None else f"records with {schema.when} are no events of {rest} any more"
    return StreamPlan(PublishedDocument.of(topic, document), None, (*sources, added), note)


def _new_source(sources: Sequence[Source], schema: StreamSchema, topic: str) -> Source:
    """Return the source of a new stream, which is read as the others of its topic are."""
    beside = [source for source in sources if source.topic == topic]
    if not beside:
        topics = ", ".join(dict.fromkeys(source.topic for source in sources))
        raise ConfigError(
            f"stream {schema.name}: the app does not read topic {topic}, only {topics}: {RESTART}, with the topic in "
            "its settings"
        )
    if len(sources) >= MAX_STREAMS:
        raise ConfigError(f"stream {schema.name}: there are {len(sources)} streams, which is the limit")
    if any(source.format != beside[0].format for source in beside):
        raise ConfigError(
            f"stream {schema.name}: the streams of topic {topic} have several formats, and which one this has is in "
            f"the settings alone: {RESTART}"
        )
    if schema.when is None:
        raise ConfigError(
            f"stream {schema.name}: it needs a condition (when) that tells its events from those of "
            f"{', '.join(source.schema.name for source in beside)}, which are in topic {topic} too"
        )
    if schema.deduplicate_ms is not None and all(source.schema.deduplicate_ms is None for source in sources):
        raise ConfigError(
            f"stream {schema.name}: no other stream of the app has deduplicate, so it would have one more keyed stage: "
            f"leave it out, or {RESTART}"
        )
    added = replace(beside[0], schema=schema, reject_extra_fields=False)
    check_shared_topic([*beside, added], f"stream {schema.name}")
    return added


def _note(old: StreamSchema, new: StreamSchema) -> str:
    """Return what the author of a changed document should know: which values are not what they were."""
    before: Mapping[str, Field] = {field.name: field for field in old.fields}
    rounded = [f.name for f in new.fields if f.name in before and is_rounded(before[f.name].type, f.type)]
    notes = [f"whole numbers of {', '.join(rounded)} above 2**53 are rounded from now on"] if rounded else []
    extra = next((field.name for field in old.fields if field.location == EXTRA_FIELDS), None)
    added = [field.name for field in new.fields if field.name not in before]
    if extra is not None and added:
        notes.append(f"{extra} has the members of {', '.join(added)} no more")
    return "; ".join(notes)


def add_streams(sources: Sequence[Source], published: Iterable[PublishedDocument]) -> tuple[Source, ...]:
    """Return the sources of an app that starts, with the streams that were published before while it ran.

    Of the file of a stream and its published document the one with the higher version is used; ``ConfigError`` if two
    of one version differ. A published stream whose topic the settings no longer name is left out with it. Further keys
    of streams change no source.
    """
    every = list(sources)
    for stream in published:
        if stream.further_keys is not None:
            continue
        number = next((n for n, one in enumerate(every) if one.schema.name == stream.name), None)
        if number is not None:
            every[number] = replace(every[number], schema=choose_schema(every[number].schema, stream))
        elif any(one.topic == stream.topic for one in every):
            every.append(_new_source(every, stream.schema, stream.topic))
    return tuple(every)
