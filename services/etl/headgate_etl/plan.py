"""Checks the settings completely, and builds the plan of the topology: names resolved, expressions parsed and typed.

``build_plan`` reports all problems at once. It reads the stream files and the key files of masks; it starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate_etl import masking
from headgate_etl import name_resolution as names
from headgate_etl.documents import InputDocument, OnEmpty, OnMissing, RouteTarget
from headgate_etl.routing import Route
from headgate_etl.table_lookup import read_table
from rulecore.language import Expr, ListType, columns
from rulecore.lists.list_columns import extract_list_columns
from rulecore.mapping.explode import Explode, ExplodingStage
from rulecore.mapping.expressions import ExpressionReader, inline, null_of_type, uses_lists
from rulecore.mapping.problems import Problems
from rulecore.mapping.stage import MappingStage
from rulecore.mapping.types import ComputedField, RowRule
from streamcore.decode.formats import InputFormat
from streamcore.errors import ConfigError
from streamcore.schema import Field, Kind, StreamSchema, Type
from streamcore.schema.record_places import EXTRA_FIELDS
from streamcore.wire.lanes import DEAD_LETTERS, STATUS

if TYPE_CHECKING:
    from headgate_etl.documents import EtlDocument
    from streamcore.app import Source


@dataclass(frozen=True)
class Input:
    """An input stream.

    ``mapping``: the stage that maps its events, or their elements after ``explode``, to rows of the model.
    """

    schema: StreamSchema
    topic: str
    format: InputFormat
    mapping: MappingStage
    explode: Explode | None = None

    @property
    def stage(self) -> MappingStage | ExplodingStage:
        """The step that makes rows of the model out of events."""
        return self.mapping if self.explode is None else ExplodingStage(self.explode, self.mapping)


@dataclass(frozen=True)
class EtlPlan:
    """What the topology is built from.

    ``derived``: the stage that computes fields after lookup and deduplication; None without such fields and rules.
    ``otherwise``: the route of rows that no route takes; None: such rows are dead letters. ``tables``: the stage that
    reads the records of a Kafka table, by the path of its lookup.
    """

    inputs: tuple[Input, ...]
    model: Mapping[str, Field]
    lists: Mapping[str, ListType]
    derived: MappingStage | None
    masks: Mapping[str, masking.Mask]
    routes: tuple[Route, ...]
    otherwise: str | None
    tables: Mapping[str, MappingStage]

    @property
    def uses_lists(self) -> bool:
        """Whether the derive stage reads lists, and so needs the control topic."""
        stage = self.derived
        return stage is not None and (any(f.lookups for f in stage.fields) or any(r.lookups for r in stage.rules))


def build_plan(settings: EtlDocument, sources: Sequence[Source] | None = None) -> EtlPlan:
    """Build the plan of the document. ``ConfigError`` lists everything that is wrong in it, one entry per line.

    ``sources``: the streams and formats of the inputs, in their order; None: those of the files.
    """
    problems = Problems()
    plan = find_plan(settings, problems, sources)
    problems.raise_if_any()
    return plan


def find_plan(settings: EtlDocument, problems: Problems, sources: Sequence[Source | None] | None = None) -> EtlPlan:
    """Return the plan of the document, without what ``problems`` gets: everything that is wrong, in one go.

    ``sources``: as for ``build_plan``; an input without one has that of its file.
    """
    model, lists = names.read_model(settings, problems), names.read_lists(settings, problems)
    names.check_origins(settings, model, problems)
    names.check_id(settings, model, problems)
    masks = names.read_masks(settings, model, problems)
    names.check_secrets(settings, problems)
    rules = _rules(settings, model, lists, problems)
    inputs = [
        _input(settings, n, document, None if sources is None else sources[n], model, rules, problems)
        for n, document in enumerate(settings.inputs)
    ]
    derived = _derived_stage(settings, model, lists, rules, problems)
    routes = _routes(settings, model, problems)
    _check_merged([each for each in inputs if each is not None], routes, problems)
    names.check_sinks(settings, problems)
    streams = [each.schema.name for each in inputs if each is not None]
    for name in sorted({name for name in streams if streams.count(name) > 1}):
        problems.add("inputs", f"stream {name!r} appears twice; give the second input a stream file with another name")
    otherwise = None if settings.otherwise == OnMissing.DEAD_LETTER else settings.otherwise
    valid_inputs = tuple(each for each in inputs if each is not None)
    tables = {
        path: stage
        for path, lookup in settings.all_lookups.items()
        if lookup.table is not None and (stage := read_table(path, lookup, model, problems)) is not None
    }
    return EtlPlan(valid_inputs, model, lists, derived, masks, routes, otherwise, tables)


# --- expressions ----------------------------------------------------------------------------------------------------


def _rules(
    settings: EtlDocument, model: Mapping[str, Field], lists: Mapping[str, ListType], problems: Problems
) -> list[RowRule]:
    reader, rules = ExpressionReader({f.name: f.type for f in model.values()}, lists, names.read_secrets(settings)), []
    for name, text in settings.rules.items():
        with problems.at(f"rules.{name}"):
            expr, lookups = extract_list_columns(reader.condition(text, f"rules.{name}"))
            rules.append(RowRule(name, expr, text, lookups))
    return rules


def _list_columns(rule: RowRule) -> frozenset[str]:
    return frozenset().union(columns(rule.expr), *(columns(lookup.operand) for lookup in rule.lookups))


def _is_early(settings: EtlDocument, rule: RowRule) -> bool:
    """Whether the rule reads only fields that inputs provide, so that the input's stage can check it."""
    return not rule.lookups and _list_columns(rule) <= {*names.mapped_fields(settings)}


def _input(
    settings: EtlDocument,
    number: int,
    document: InputDocument,
    source: Source | None,
    model: Mapping[str, Field],
    rules: Sequence[RowRule],
    problems: Problems,
) -> Input | None:
    """Return the input with its stage; None, with a problem added, if its stream file cannot be used."""
    path = f"inputs.{number}"
    checked: Input | None = None
    with problems.at(f"{path}.schema_file"):
        schema = document.stream_schema() if source is None else source.schema
        input_format = document.input_format() if source is None else source.format
        given = {f.name: f.type for f in schema.fields}
        explode = _read_explode(document, given, path, problems)
        given = given if explode is None else explode.add_types(given)
        reader, fields = ExpressionReader(given, {}, names.read_secrets(settings)), []
        for name in names.mapped_fields(settings):
            with problems.at(f"{path}.map.{name}"):
                fields.append(_field(model[name], document.map.get(name), f"{path}.map.{name}", reader))
        private = {*settings.mask} | {c for f in fields if f.name in settings.mask for c in columns(f.expr)}
        early = tuple(rule for rule in rules if _is_early(settings, rule))
        mapping = MappingStage(given, tuple(fields), early, (), frozenset(private))
        checked = Input(schema, document.topic, input_format, mapping, explode)
    return checked


def _read_explode(document: InputDocument, given: Mapping[str, Type], path: str, problems: Problems) -> Explode | None:
    declared = document.explode
    if declared is None:
        return None
    kind = given.get(declared.field)
    if kind is None or kind.kind is not Kind.ARRAY:
        arrays = [name for name, one in given.items() if one.kind is Kind.ARRAY]
        found = f"is {kind}" if kind is not None else "is no field of the stream"
        hint = f"the arrays are {', '.join(arrays)}" if arrays else "the stream has no array"
        problems.add(f"{path}.explode.field", f"{declared.field!r} {found}; {hint}")
        return None
    for entry, name in (("element", declared.element), ("position", declared.position)):
        if name in given or declared.element == declared.position:
            problems.add(f"{path}.explode.{entry}", f"{name!r} is the name of another column; choose one of its own")
            return None
    return Explode(
        declared.field, declared.element, declared.position, declared.empty is OnEmpty.ROW, declared.max_elements
    )


def _field(declared: Field, text: str | None, path: str, reader: ExpressionReader) -> ComputedField:
    """Return the field that an input maps with the expression ``text``; without one, the field is null."""
    if text is None:
        if not declared.nullable:
            raise ConfigError(f"the input does not map this field, and the model declares it {declared.type} not null")
        return ComputedField(declared.name, null_of_type(declared.type), declared.type, nullable=True, text="null")
    expr = reader.value(text, path, declared.type)
    return ComputedField(declared.name, expr, declared.type, declared.nullable, text)


def _derived_stage(
    settings: EtlDocument,
    model: Mapping[str, Field],
    lists: Mapping[str, ListType],
    rules: Sequence[RowRule],
    problems: Problems,
) -> MappingStage | None:
    """Return the stage of the derived fields, and of the rules that read them, the lookup's fields or lists."""
    given = {f.name: f.type for f in model.values() if f.name not in settings.derive}
    known: dict[str, Expr] = {}
    fields = []
    for name, text in settings.derive.items():
        path, declared = f"derive.{name}", model.get(name)
        if declared is None:  # a name that is no field, of which the origins tell
            continue
        with problems.at(path):
            reader = ExpressionReader(given | {n: model[n].type for n in known}, lists, names.read_secrets(settings))
            known[name] = inline(reader.value(text, path, declared.type), known)
            expr, lookups = extract_list_columns(known[name])
            needed = tuple(look for look in lookups if settings.lists[look.list.name].missing is OnMissing.DEAD_LETTER)
            fields.append(ComputedField(name, expr, declared.type, declared.nullable, text, lookups, needed))
    late = tuple(rule for rule in rules if not _is_early(settings, rule))
    if not settings.derive and not late:
        return None
    return MappingStage(given, tuple(fields), late, tuple(given), frozenset(settings.mask))


def _check_merged(inputs: Sequence[Input], routes: Sequence[Route], problems: Problems) -> None:
    """Add a problem for each merged column that is no copy of an input's extra fields: only these are surely JSON."""
    for number, route in enumerate(routes):
        path = f"routes.{number}.merge"
        if route.merge and route.to is not RouteTarget.KAFKA:
            problems.add(path, f"the rows of a table have columns; write {route.merge} to one of them")
        for each in inputs if route.merge else ():
            field = next((one for one in each.mapping.fields if one.name == route.merge), None)
            read = None if field is None or field.same_as is None else each.schema.get(field.same_as)
            is_absent = field is not None and field.text == "null"
            if not is_absent and (read is None or read.location != EXTRA_FIELDS or route.merge in each.mapping.private):
                problems.add(
                    path,
                    f"{route.merge!r} must be mapped, and not masked, from a field of the stream {each.schema.name} "
                    f"with from: {EXTRA_FIELDS[0]}",
                )


# --- routes ---------------------------------------------------------------------------------------------------------


def _routes(settings: EtlDocument, model: Mapping[str, Field], problems: Problems) -> tuple[Route, ...]:
    reader = ExpressionReader({f.name: f.type for f in model.values()}, {}, names.read_secrets(settings))
    used_names = {DEAD_LETTERS, STATUS, "control", "markers"}
    used_names |= {settings.deduplicate.duplicates_to or ""} if settings.deduplicate else set()
    routes = []
    for number, document in enumerate(settings.routes):
        path = f"routes.{number}"
        if document.name in used_names:
            problems.add(f"{path}.name", f"another lane has the name {document.name!r} already")
        used_names.add(document.name)
        route_columns = document.columns or tuple(model)
        for place, column in enumerate(document.columns):
            if column not in model:
                problems.add(f"{path}.columns.{place}", f"{column!r} is no field of the model", about=column)
            elif column in document.columns[:place]:
                problems.add(f"{path}.columns.{place}", f"{column!r} is there twice", about=column)
        for column in document.key:
            if column not in route_columns:
                problems.add(f"{path}.key", f"{column!r} is none of the route's columns")
        when = None
        if document.when is not None:
            with problems.at(f"{path}.when"):
                when = reader.condition(document.when, f"{path}.when")
                if uses_lists(when):
                    problems.add(
                        f"{path}.when", "a route cannot read lists; derive a field from the list and test it here"
                    )
        routes.append(Route(document.name, when, route_columns, document.key, document.to, document.merge or ""))
    if settings.otherwise != OnMissing.DEAD_LETTER and settings.otherwise not in {route.name for route in routes}:
        problems.add("otherwise", f"{settings.otherwise!r} is no route; name one, or {OnMissing.DEAD_LETTER.value}")
    return tuple(routes)
