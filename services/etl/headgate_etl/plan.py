"""The settings' meaning: every name looked up, every expression typed, and all problems reported at once.

``build_plan`` returns the parts that the topology is built of. It reads the stream files and checks that key files
exist; it starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate_etl import masking
from headgate_etl import name_resolution as names
from headgate_etl.documents import InputDocument, OnMissing
from headgate_etl.expressions import ExpressionReader, asks_lists, inline, null_of_type
from headgate_etl.mapping_stage import MappingStage
from headgate_etl.mapping_types import ComputedField, RowRule
from headgate_etl.problems import Problems
from headgate_etl.routing import Route
from rulecore.language import Expr, ListType, columns
from rulecore.lists.list_columns import extract_list_columns
from streamcore.decode.formats import InputFormat
from streamcore.errors import ConfigError
from streamcore.schema import Field, StreamSchema
from streamcore.wire.lanes import DEAD_LETTERS, STATUS

if TYPE_CHECKING:
    from headgate_etl.documents import EtlDocument


@dataclass(frozen=True)
class Input:
    """A stream, and how its events become rows of the model."""

    schema: StreamSchema
    topic: str
    reject_extra_fields: bool
    format: InputFormat
    phase: MappingStage


@dataclass(frozen=True)
class EtlPlan:
    """``derived``: the fields computed after look-ups and deduplication; None without such fields."""

    inputs: tuple[Input, ...]
    model: Mapping[str, Field]
    lists: Mapping[str, ListType]
    derived: MappingStage | None
    masks: Mapping[str, masking.Mask]
    routes: tuple[Route, ...]
    otherwise: str | None

    @property
    def asks_lists(self) -> bool:
        """Whether the second phase needs the control topic."""
        phase = self.derived
        return phase is not None and (any(f.lookups for f in phase.fields) or any(r.lookups for r in phase.rules))


def build_plan(settings: EtlDocument) -> EtlPlan:
    """Build the plan of the document; ``ConfigError`` lists everything that is wrong in it, an entry a line."""
    problems = Problems()
    model, lists = names.read_model(settings, problems), names.read_lists(settings, problems)
    problems.raise_if_any()  # what follows would only repeat it
    names.check_origins(settings, model, problems)
    names.check_id(settings, model, problems)
    masks = names.read_masks(settings, model, problems)
    problems.raise_if_any()
    rules = _rules(settings, model, lists, problems)
    inputs = [_input(settings, n, one, model, rules, problems) for n, one in enumerate(settings.inputs)]
    derived = _derived_stage(settings, model, lists, rules, problems)
    routes = _routes(settings, model, problems)
    names.check_sinks(settings, problems)
    streams = [one.schema.name for one in inputs if one is not None]
    for name in sorted({name for name in streams if streams.count(name) > 1}):
        problems.add("inputs", f"stream {name!r} is there twice; give its second topic a stream file with another name")
    problems.raise_if_any()
    otherwise = None if settings.otherwise == OnMissing.DEAD_LETTER else settings.otherwise
    found = tuple(one for one in inputs if one is not None)
    return EtlPlan(found, model, lists, derived, masks, routes, otherwise)


# --- expressions ----------------------------------------------------------------------------------------------------


def _rules(
    settings: EtlDocument, model: Mapping[str, Field], lists: Mapping[str, ListType], problems: Problems
) -> list[RowRule]:
    reader, rules = ExpressionReader({f.name: f.type for f in model.values()}, lists), []
    for name, text in settings.rules.items():
        with problems.at(f"rules.{name}"):
            expr, lookups = extract_list_columns(reader.condition(text, f"rules.{name}"))
            rules.append(RowRule(name, expr, text, lookups))
    return rules


def _needs(rule: RowRule) -> frozenset[str]:
    return frozenset().union(columns(rule.expr), *(columns(one.operand) for one in rule.lookups))


def _is_early(settings: EtlDocument, rule: RowRule) -> bool:
    """Whether it can be asked before anything is looked up."""
    return not rule.lookups and _needs(rule) <= {*names.mapped_fields(settings)}


def _input(
    settings: EtlDocument,
    number: int,
    one: InputDocument,
    model: Mapping[str, Field],
    rules: Sequence[RowRule],
    problems: Problems,
) -> Input | None:
    place = f"inputs.{number}"
    found: Input | None = None
    with problems.at(f"{place}.schema_file"):
        schema = one.stream_schema()
        given = {f.name: f.type for f in schema.fields}
        reader, fields = ExpressionReader(given, {}), []
        for name in names.mapped_fields(settings):
            with problems.at(f"{place}.map.{name}"):
                fields.append(_field(model[name], one.map.get(name), f"{place}.map.{name}", reader))
        private = {*settings.mask} | {c for f in fields if f.name in settings.mask for c in columns(f.expr)}
        early = tuple(rule for rule in rules if _is_early(settings, rule))
        phase = MappingStage(given, tuple(fields), early, (), frozenset(private))
        found = Input(schema, one.topic, one.reject_extra_fields, one.input_format(), phase)
    return found


def _field(declared: Field, text: str | None, place: str, reader: ExpressionReader) -> ComputedField:
    if text is None:
        if not declared.nullable:
            raise ConfigError(f"this input does not give it, and the model says {declared.type} not null")
        return ComputedField(declared.name, null_of_type(declared.type), declared.type, nullable=True, text="null")
    expr = reader.value(text, place, declared.type)
    return ComputedField(declared.name, expr, declared.type, declared.nullable, text)


def _derived_stage(
    settings: EtlDocument,
    model: Mapping[str, Field],
    lists: Mapping[str, ListType],
    rules: Sequence[RowRule],
    problems: Problems,
) -> MappingStage | None:
    given = {f.name: f.type for f in model.values() if f.name not in settings.derive}
    known: dict[str, Expr] = {}
    fields = []
    for name, text in settings.derive.items():
        place, declared = f"derive.{name}", model[name]
        with problems.at(place):
            reader = ExpressionReader(given | {n: model[n].type for n in known}, lists)
            known[name] = inline(reader.value(text, place, declared.type), known)
            expr, lookups = extract_list_columns(known[name])
            needed = tuple(one for one in lookups if settings.lists[one.list.name].missing is OnMissing.DEAD_LETTER)
            fields.append(ComputedField(name, expr, declared.type, declared.nullable, text, lookups, needed))
    late = tuple(rule for rule in rules if not _is_early(settings, rule))
    if not settings.derive and not late:
        return None
    return MappingStage(given, tuple(fields), late, tuple(given), frozenset(settings.mask))


# --- the way out ----------------------------------------------------------------------------------------------------


def _routes(settings: EtlDocument, model: Mapping[str, Field], problems: Problems) -> tuple[Route, ...]:
    reader = ExpressionReader({f.name: f.type for f in model.values()}, {})
    taken = {DEAD_LETTERS, STATUS, "control", "markers"}
    taken |= {settings.deduplicate.duplicates_to or ""} if settings.deduplicate else set()
    routes = []
    for number, one in enumerate(settings.routes):
        place = f"routes.{number}"
        if one.name in taken:
            problems.add(f"{place}.name", f"{one.name!r} is another lane's already")
        taken.add(one.name)
        shown = one.columns or tuple(model)
        for column in shown:
            if column not in model:
                problems.add(f"{place}.columns", f"{column!r} is no field of the model")
        for column in one.key:
            if column not in shown:
                problems.add(f"{place}.key", f"{column!r} is none of the route's columns")
        when = None
        if one.when is not None:
            with problems.at(f"{place}.when"):
                when = reader.condition(one.when, f"{place}.when")
                if asks_lists(when):
                    problems.add(f"{place}.when", "lists are asked in derive; ask the field that is derived here")
        routes.append(Route(one.name, when, shown, one.key, one.to))
    if settings.otherwise != OnMissing.DEAD_LETTER and settings.otherwise not in {one.name for one in routes}:
        problems.add("otherwise", f"{settings.otherwise!r} is no route; name one, or {OnMissing.DEAD_LETTER.value}")
    return tuple(routes)
