"""The settings' meaning: every name looked up, every expression typed, and all that is wrong said at once.

``plan`` gives what the topology is built of. It reads the stream files and looks whether key files are there; it starts
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate_etl import masking, names
from headgate_etl.expressions import Reader, asks_lists, inlined, nothing
from headgate_etl.phase import Computed, Condition, Phase
from headgate_etl.problems import Problems
from headgate_etl.routing import Route
from headgate_etl.settings import InputDocument, Missing
from rulecore.lang import Expr, ListType, columns
from rulecore.lists.asked import lift
from streamcore.decode import InputFormat
from streamcore.errors import ConfigError
from streamcore.lanes import DEAD_LETTERS, STATUS
from streamcore.schema import Field, StreamSchema

if TYPE_CHECKING:
    from headgate_etl.settings import EtlSettings


@dataclass(frozen=True)
class Input:
    """A stream, and how its events become rows of the model."""

    schema: StreamSchema
    topic: str
    reject_extra_fields: bool
    format: InputFormat
    phase: Phase


@dataclass(frozen=True)
class Plan:
    """``derived``: what is computed behind look-ups and deduplication, None where there is nothing."""

    inputs: tuple[Input, ...]
    model: Mapping[str, Field]
    lists: Mapping[str, ListType]
    derived: Phase | None
    masks: Mapping[str, masking.Mask]
    routes: tuple[Route, ...]
    otherwise: str | None

    @property
    def asks_lists(self) -> bool:
        """Whether the second phase needs the control topic."""
        phase = self.derived
        return phase is not None and (any(f.lookups for f in phase.fields) or any(r.lookups for r in phase.rules))


def plan(settings: EtlSettings) -> Plan:
    """What the document means; ``ConfigError`` with everything that is wrong in it, an entry a line."""
    problems = Problems()
    model, lists = names.model_of(settings, problems), names.lists_of(settings, problems)
    problems.end()  # what follows would only repeat it
    names.check_origins(settings, model, problems)
    names.check_id(settings, model, problems)
    masks = names.masks_of(settings, model, problems)
    problems.end()
    rules = _rules(settings, model, lists, problems)
    inputs = [_input(settings, n, one, model, rules, problems) for n, one in enumerate(settings.inputs)]
    derived = _derived(settings, model, lists, rules, problems)
    routes = _routes(settings, model, problems)
    names.check_sinks(settings, problems)
    streams = [one.schema.name for one in inputs if one is not None]
    for name in sorted({name for name in streams if streams.count(name) > 1}):
        problems.say("inputs", f"stream {name!r} is there twice; give its second topic a stream file with another name")
    problems.end()
    otherwise = None if settings.otherwise == Missing.DEAD_LETTER else settings.otherwise
    found = tuple(one for one in inputs if one is not None)
    return Plan(found, model, lists, derived, masks, routes, otherwise)


# --- expressions ----------------------------------------------------------------------------------------------------


def _rules(
    settings: EtlSettings, model: Mapping[str, Field], lists: Mapping[str, ListType], problems: Problems
) -> list[Condition]:
    reader, rules = Reader({f.name: f.type for f in model.values()}, lists), []
    for name, text in settings.rules.items():
        with problems.at(f"rules.{name}"):
            expr, lookups = lift(reader.condition(text, f"rules.{name}"))
            rules.append(Condition(name, expr, text, lookups))
    return rules


def _needs(rule: Condition) -> frozenset[str]:
    return frozenset().union(columns(rule.expr), *(columns(one.operand) for one in rule.lookups))


def _is_early(settings: EtlSettings, rule: Condition) -> bool:
    """Whether it can be asked before anything is looked up."""
    return not rule.lookups and _needs(rule) <= {*names.mapped(settings)}


def _input(
    settings: EtlSettings,
    number: int,
    one: InputDocument,
    model: Mapping[str, Field],
    rules: Sequence[Condition],
    problems: Problems,
) -> Input | None:
    place = f"inputs.{number}"
    found: Input | None = None
    with problems.at(f"{place}.schema_file"):
        schema = one.schema_of()
        given = {f.name: f.type for f in schema.fields}
        reader, fields = Reader(given, {}), []
        for name in names.mapped(settings):
            with problems.at(f"{place}.map.{name}"):
                fields.append(_field(model[name], one.map.get(name), f"{place}.map.{name}", reader))
        private = {*settings.mask} | {c for f in fields if f.name in settings.mask for c in columns(f.expr)}
        early = tuple(rule for rule in rules if _is_early(settings, rule))
        phase = Phase(given, tuple(fields), early, (), frozenset(private))
        found = Input(schema, one.topic, one.reject_extra_fields, one.format_of(), phase)
    return found


def _field(declared: Field, text: str | None, place: str, reader: Reader) -> Computed:
    if text is None:
        if not declared.nullable:
            raise ConfigError(f"this input does not give it, and the model says {declared.type} not null")
        return Computed(declared.name, nothing(declared.type), declared.type, nullable=True, text="null")
    expr = reader.value(text, place, declared.type)
    return Computed(declared.name, expr, declared.type, declared.nullable, text)


def _derived(
    settings: EtlSettings,
    model: Mapping[str, Field],
    lists: Mapping[str, ListType],
    rules: Sequence[Condition],
    problems: Problems,
) -> Phase | None:
    given = {f.name: f.type for f in model.values() if f.name not in settings.derive}
    known: dict[str, Expr] = {}
    fields = []
    for name, text in settings.derive.items():
        place, declared = f"derive.{name}", model[name]
        with problems.at(place):
            reader = Reader(given | {n: model[n].type for n in known}, lists)
            known[name] = inlined(reader.value(text, place, declared.type), known)
            expr, lookups = lift(known[name])
            needed = tuple(one for one in lookups if settings.lists[one.list.name].missing is Missing.DEAD_LETTER)
            fields.append(Computed(name, expr, declared.type, declared.nullable, text, lookups, needed))
    late = tuple(rule for rule in rules if not _is_early(settings, rule))
    if not settings.derive and not late:
        return None
    return Phase(given, tuple(fields), late, tuple(given), frozenset(settings.mask))


# --- the way out ----------------------------------------------------------------------------------------------------


def _routes(settings: EtlSettings, model: Mapping[str, Field], problems: Problems) -> tuple[Route, ...]:
    reader = Reader({f.name: f.type for f in model.values()}, {})
    taken = {DEAD_LETTERS, STATUS, "control", "markers"}
    taken |= {settings.deduplicate.duplicates_to or ""} if settings.deduplicate else set()
    routes = []
    for number, one in enumerate(settings.routes):
        place = f"routes.{number}"
        if one.name in taken:
            problems.say(f"{place}.name", f"{one.name!r} is another lane's already")
        taken.add(one.name)
        shown = one.columns or tuple(model)
        for column in shown:
            if column not in model:
                problems.say(f"{place}.columns", f"{column!r} is no field of the model")
        for column in one.key:
            if column not in shown:
                problems.say(f"{place}.key", f"{column!r} is none of the route's columns")
        when = None
        if one.when is not None:
            with problems.at(f"{place}.when"):
                when = reader.condition(one.when, f"{place}.when")
                if asks_lists(when):
                    problems.say(f"{place}.when", "lists are asked in derive; ask the field that is derived here")
        routes.append(Route(one.name, when, shown, one.key, one.to))
    if settings.otherwise != Missing.DEAD_LETTER and settings.otherwise not in {one.name for one in routes}:
        problems.say("otherwise", f"{settings.otherwise!r} is no route; name one, or {Missing.DEAD_LETTER.value}")
    return tuple(routes)
