"""Checks the settings completely, and builds the plan of the topology: names resolved, expressions parsed and typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate_search.changes import DELETED, ID, LOG_POSITION, MapChanges
from headgate_search.settings import DOCUMENTS, ChangesDocument, CountDocument, CounterDocument, SearchDocument
from rulecore.errors import ExpressionError
from rulecore.language import Call, Case, ColumnRef, Expr, When, columns
from rulecore.mapping.expressions import ExpressionReader
from rulecore.mapping.problems import Problems
from rulecore.mapping.stage import MappingStage
from rulecore.mapping.types import ComputedField, RowRule
from streamcore.app import Source
from streamcore.schema import BOOLEAN, STRING, Kind, StreamSchema, Type
from streamcore.service.config.documents import StreamDocument

_COUNTED = (Kind.LONG, Kind.DECIMAL)
_TO_TEXT = (Kind.LONG, Kind.DECIMAL, Kind.BOOLEAN, Kind.TIMESTAMP)


@dataclass(frozen=True)
class DocumentStream:
    """A stream of changes. ``source``: its position among the sources."""

    source: int
    changes: MapChanges
    partial: bool


@dataclass(frozen=True)
class CounterStream:
    """A stream of events that are counted. ``counts``: the types of its counts, by name."""

    source: int
    stage: MappingStage
    counts: Mapping[str, Type]


@dataclass(frozen=True)
class SearchPlan:
    """The parts of the topology. ``sources``: each stream that is read, once."""

    sources: tuple[Source, ...]
    documents: tuple[DocumentStream, ...]
    counters: tuple[CounterStream, ...]

    @property
    def counts(self) -> Mapping[str, Type]:
        """The types of all that is counted, by name."""
        return {name: type_ for counter in self.counters for name, type_ in counter.counts.items()}


def read_sources(settings: SearchDocument) -> list[Source]:
    """Return each stream that the settings read, once, with its file and format."""
    found: dict[tuple[str, str], Source] = {}
    for each in settings.streams:
        key = _key(each)
        if key not in found:
            found[key] = each.apply_to(Source(each.stream_schema(), each.topic, format=each.input_format()))
    return [*found.values()]


def build_plan(settings: SearchDocument, sources: Sequence[Source] | None = None) -> SearchPlan:
    """Build the plan of the settings. ``ConfigError`` lists everything that is wrong in them, one entry per line.

    ``sources``: the streams as ``read_sources`` returns them; None: those of the files.
    """
    sources = read_sources(settings) if sources is None else sources
    numbers = _source_numbers(settings)
    problems = Problems()
    plan = find_plan(settings, [sources[number] for number in numbers], problems)
    problems.raise_if_any()
    return plan


def find_plan(settings: SearchDocument, of_streams: Sequence[Source | None], problems: Problems) -> SearchPlan:
    """Return the plan of the settings without its wrong entries, which ``problems`` gets, all in one go.

    ``of_streams``: the source of each of ``settings.streams``; None where its file cannot be used.
    """
    numbers = _source_numbers(settings)
    documents, counters = [], []
    for number, (declared, source) in enumerate(zip(settings.documents, of_streams, strict=False)):
        if source is not None:
            changes = _changes(declared, source.schema, f"documents.{number}", problems)
            documents.append(DocumentStream(numbers[number], changes, declared.partial))
    first = len(settings.documents)
    for number, (counter, source) in enumerate(zip(settings.counters, of_streams[first:], strict=True)):
        if source is not None:
            stage, counts = _counter(counter, source.schema, f"counters.{number}", problems)
            counters.append(CounterStream(numbers[first + number], stage, counts))
    sources = {number: source for number, source in zip(numbers, of_streams, strict=True) if source is not None}
    _check_streams([*sources.values()], problems)
    plan = SearchPlan(tuple(sources[number] for number in sorted(sources)), tuple(documents), tuple(counters))
    if len(sources) == len(set(numbers)):
        _check_names(settings, plan, problems)
    return plan


def counted_columns(settings: SearchDocument, plan: SearchPlan) -> list[str]:
    """Return the columns of counts, span by span, then those of half-lives."""
    return [f"{name}_{suffix}" for suffix in settings.suffixes for name in plan.counts]


def _key(stream: StreamDocument) -> tuple[str, str]:
    return str(stream.schema_file), stream.topic


def _source_numbers(settings: SearchDocument) -> list[int]:
    """Return for each stream of the settings the position of its source."""
    known: dict[tuple[str, str], int] = {}
    return [known.setdefault(_key(each), len(known)) for each in settings.streams]


def _changes(declared: ChangesDocument, schema: StreamSchema, path: str, problems: Problems) -> MapChanges:
    given = {field.name: field.type for field in schema.fields}
    reader = ExpressionReader(given, {})
    fields: list[ComputedField] = []
    with problems.at(f"{path}.id"):
        fields.append(ComputedField(ID, _as_text(reader, declared.id, f"{path}.id"), STRING, False, declared.id))
    if declared.deleted is not None:
        with problems.at(f"{path}.deleted"):
            condition = reader.condition(declared.deleted, f"{path}.deleted")
            fields.append(ComputedField(DELETED, condition, BOOLEAN, True, declared.deleted))
    names = []
    for name, text in _fields(declared, schema, fields).items():
        if name in (ID, DELETED, *LOG_POSITION) or name.startswith(("__", "@to:")):
            problems.add(f"{path}.fields.{name}", f"{name!r} is a column of the app's own; choose another name")
            continue
        with problems.at(f"{path}.fields.{name}"):
            expr = (
                ColumnRef(name=name, type=given[name])
                if text is None
                else reader.any_value(text, f"{path}.fields.{name}")
            )
            fields.append(ComputedField(name, expr, expr.type, True, text or name))
            names.append(name)
    rules, keeps = _rules(declared, given, fields, path, problems)
    return MapChanges(MappingStage(given, tuple(fields), rules, keeps), tuple(names))


def _fields(
    declared: ChangesDocument, schema: StreamSchema, fields: Sequence[ComputedField]
) -> Mapping[str, str | None]:
    """Return the fields of the document and their expressions; None: the field of the stream with that name."""
    if declared.fields is not None:
        return dict(declared.fields)
    copied = {field.same_as for field in fields if field.name == ID}
    return {field.name: None for field in schema.fields if field.name not in copied}


def _rules(
    declared: ChangesDocument,
    given: Mapping[str, Type],
    fields: Sequence[ComputedField],
    path: str,
    problems: Problems,
) -> tuple[tuple[RowRule, ...], tuple[str, ...]]:
    """Return the rules, which read fields of the document and of the stream, and the latter that they read."""
    computed = {field.name: field.type for field in fields}
    reader, rules = ExpressionReader({**given, **computed}, {}), []
    for name, text in declared.rules.items():
        with problems.at(f"{path}.rules.{name}"):
            rules.append(RowRule(name, reader.condition(text, f"{path}.rules.{name}"), text))
    read = frozenset[str]().union(*(columns(rule.expr) for rule in rules))
    return tuple(rules), tuple(name for name in given if name in read - computed.keys())


def _counter(
    declared: CounterDocument, schema: StreamSchema, path: str, problems: Problems
) -> tuple[MappingStage, Mapping[str, Type]]:
    given = {field.name: field.type for field in schema.fields}
    reader = ExpressionReader(given, {})
    fields: list[ComputedField] = []
    with problems.at(f"{path}.id"):
        fields.append(ComputedField(ID, _as_text(reader, declared.id, f"{path}.id"), STRING, True, declared.id))
    counts: dict[str, Type] = {}
    for name, count in declared.counts.items():
        with problems.at(f"{path}.counts.{name}.when"):
            condition = None if count.when is None else reader.condition(count.when, f"{path}.counts.{name}.when")
            with problems.at(f"{path}.counts.{name}.add"):
                expr = _added(count, condition, reader, f"{path}.counts.{name}.add")
                fields.append(ComputedField(name, expr, expr.type, True, count.add))
                counts[name] = expr.type
    return MappingStage(given, tuple(fields)), counts


def _added(count: CountDocument, condition: Expr | None, reader: ExpressionReader, path: str) -> Expr:
    """Return the contribution of an event; null for an event that is not counted."""
    added = reader.any_value(count.add, path)
    if added.type.kind not in _COUNTED:
        message, hint = f"a long or a decimal is counted, this is {added.type}", "write: to_long(...)"
        raise ExpressionError(message, field=path, text=count.add, length=len(count.add), hint=hint)
    return added if condition is None else Case.of((When(condition=condition, result=added),), None)


def _as_text(reader: ExpressionReader, text: str, path: str) -> Expr:
    expr = reader.any_value(text, path)
    return Call.of("to_text", (expr,)) if expr.type.kind in _TO_TEXT else reader.value(text, path, STRING)


def _check_streams(sources: Sequence[Source], problems: Problems) -> None:
    names = [source.schema.name for source in sources]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.add("documents", f"stream {name!r} appears twice; give the second one a stream file with another name")


def _check_names(settings: SearchDocument, plan: SearchPlan, problems: Problems) -> None:
    """Check that all columns of a document have different names, and that the index names no others."""
    owners: dict[str, str] = {}
    for number, document in enumerate(plan.documents):
        for name in document.changes.fields:
            _own(owners, name, f"documents.{number}.fields.{name}", problems)
    for number, counter in enumerate(plan.counters):
        for name in counter.counts:
            for suffix in settings.suffixes:
                _own(owners, f"{name}_{suffix}", f"counters.{number}.counts.{name}", problems)
    known = [ID, *owners]
    index = settings.opensearch.indexes.get(DOCUMENTS)
    for name in () if index is None else index.properties:
        if name not in known:
            problems.add(
                f"opensearch.indexes.{DOCUMENTS}.properties.{name}",
                f"a document has no field {name!r}; it has {', '.join(known)}",
            )


def _own(owners: dict[str, str], name: str, path: str, problems: Problems) -> None:
    if name in owners:
        problems.add(path, f"another entry makes the column {name!r}: {owners[name]}")
    owners.setdefault(name, path)
