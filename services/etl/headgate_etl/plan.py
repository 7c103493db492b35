"""The settings' meaning: every name looked up, every expression typed, and all that is wrong said at once.

``plan`` gives what the topology is built of. It reads the stream files and looks whether key files are there; it starts
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate_etl import masking
from headgate_etl.expressions import Reader, asks_lists, inlined, nothing
from headgate_etl.phase import Computed, Condition, Phase
from headgate_etl.routing import Route
from headgate_etl.settings import How, InputDocument, Missing, Target
from headgate_etl.sinks import documents
from rulecore.errors import ExpressionError
from rulecore.lang import Expr, ListType, columns
from rulecore.lists import lift
from streamcore.decode import InputFormat
from streamcore.errors import ConfigError
from streamcore.lanes import DEAD_LETTERS, STATUS
from streamcore.schema import STRING, TIMESTAMP, Field, Kind, StreamSchema, Type

if TYPE_CHECKING:
    from headgate_etl.settings import EtlSettings

_NOT_NULL = " not null"
_IDS = (Kind.STRING, Kind.LONG, Kind.BOOLEAN, Kind.TIMESTAMP)


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


@dataclass
class Problems:
    """What is wrong, gathered."""

    lines: list[str] = field(default_factory=list)

    def say(self, place: str, what: str) -> None:
        """``place``: the entry of the document."""
        self.lines.append(f"  {place}: {what}")

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """What is refused inside is a problem of that entry."""
        try:
            yield
        except ExpressionError as error:
            self.lines += [f"  {line}" for line in error.render().splitlines()]
        except ConfigError as error:
            self.say(place, str(error))

    def end(self) -> None:
        """``ConfigError`` when there was something."""
        if self.lines:
            raise ConfigError("\n".join(self.lines))


def plan(settings: EtlSettings) -> Plan:
    """What the document means; ``ConfigError`` with everything that is wrong in it, an entry a line."""
    problems = Problems()
    model, lists = _model(settings, problems), _lists(settings, problems)
    problems.end()  # what follows would only repeat it
    _check_origins(settings, model, problems)
    _check_id(settings, model, problems)
    masks = _masks(settings, model, problems)
    problems.end()
    rules = _rules(settings, model, lists, problems)
    inputs = [_input(settings, n, one, model, rules, problems) for n, one in enumerate(settings.inputs)]
    derived = _derived(settings, model, lists, rules, problems)
    routes = _routes(settings, model, problems)
    _check_sinks(settings, problems)
    streams = [one.schema.name for one in inputs if one is not None]
    for name in sorted({name for name in streams if streams.count(name) > 1}):
        problems.say("inputs", f"stream {name!r} is there twice; give its second topic a stream file with another name")
    problems.end()
    otherwise = None if settings.otherwise == Missing.DEAD_LETTER else settings.otherwise
    found = tuple(one for one in inputs if one is not None)
    return Plan(found, model, lists, derived, masks, routes, otherwise)


# --- names and types ------------------------------------------------------------------------------------------------


def _model(settings: EtlSettings, problems: Problems) -> dict[str, Field]:
    model: dict[str, Field] = {}
    for name, text in settings.model.items():
        with problems.at(f"model.{name}"):
            bare = text.strip()
            nullable = not bare.endswith(_NOT_NULL)
            model[name] = Field(name, Type.parse(bare if nullable else bare.removesuffix(_NOT_NULL)), nullable)
    return model


def _lists(settings: EtlSettings, problems: Problems) -> dict[str, ListType]:
    lists: dict[str, ListType] = {}
    for name, one in settings.lists.items():
        with problems.at(f"lists.{name}"):
            lists[name] = ListType(name, Type.parse(one.of), None if one.value is None else Type.parse(one.value))
    return lists


def _looked_up(settings: EtlSettings) -> tuple[str, ...]:
    return () if settings.lookup is None else settings.lookup.adds


def _mapped(settings: EtlSettings) -> tuple[str, ...]:
    """The fields that inputs give, in the order of the model."""
    others = {*settings.derive, *_looked_up(settings)}
    return tuple(name for name in settings.model if name not in others)


def _check_origins(settings: EtlSettings, model: Mapping[str, Field], problems: Problems) -> None:
    """Every field comes from one place, and every name is a field."""
    origins = {"derive": [*settings.derive], "lookup.adds": [*_looked_up(settings)]}
    origins |= {f"inputs.{n}.map": [*one.map] for n, one in enumerate(settings.inputs)}
    for place, names in origins.items():
        for name in names:
            if name not in model:
                problems.say(f"{place}.{name}", f"is no field of the model; its fields are {', '.join(model)}")
            others = [
                p
                for p, theirs in origins.items()
                if name in theirs and p.startswith("inputs") != place.startswith("inputs")
            ]
            if others and not place.startswith("inputs"):
                problems.say(f"{place}.{name}", f"comes from {others[0]} already; keep one of the two")
    for name in _mapped(settings):
        if not any(name in one.map for one in settings.inputs):
            problems.say(f"model.{name}", "comes from nowhere; give it to inputs.N.map, derive or lookup.adds")
    for name in sorted({*settings.derive} & {*_looked_up(settings)}):
        problems.say(f"derive.{name}", "comes from lookup.adds already; keep one of the two")


def _check_id(settings: EtlSettings, model: Mapping[str, Field], problems: Problems) -> None:
    for name in settings.id:
        if name not in _mapped(settings):
            problems.say("id", f"{name!r} is no field that inputs give; choose among {', '.join(_mapped(settings))}")
        elif model[name].type.kind not in _IDS:
            problems.say("id", f"{name!r} is {model[name].type}; an id is text, a long, a boolean or a timestamp")
    look = settings.lookup
    if look is not None and look.key not in _mapped(settings):
        problems.say("lookup.key", f"{look.key!r} is no field that inputs give")


def _masks(settings: EtlSettings, model: Mapping[str, Field], problems: Problems) -> dict[str, masking.Mask]:
    masks: dict[str, masking.Mask] = {}
    for name, one in settings.mask.items():
        place = f"mask.{name}"
        if name not in model:
            problems.say(place, f"is no field of the model; its fields are {', '.join(model)}")
            continue
        accepted = (STRING, TIMESTAMP) if one.how is How.YEAR else (STRING,)
        if model[name].type not in accepted:
            problems.say(place, f"{one.how} takes {' or '.join(map(str, accepted))}, the field is {model[name].type}")
            continue
        with problems.at(place):
            masks[name] = masking.mask_of(one)
    return masks


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
    return not rule.lookups and _needs(rule) <= {*_mapped(settings)}


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
        for name in _mapped(settings):
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
        names = one.columns or tuple(model)
        for column in names:
            if column not in model:
                problems.say(f"{place}.columns", f"{column!r} is no field of the model")
        for column in one.key:
            if column not in names:
                problems.say(f"{place}.key", f"{column!r} is none of the route's columns")
        when = None
        if one.when is not None:
            with problems.at(f"{place}.when"):
                when = reader.condition(one.when, f"{place}.when")
                if asks_lists(when):
                    problems.say(f"{place}.when", "lists are asked in derive; ask the field that is derived here")
        routes.append(Route(one.name, when, names, one.key, one.to))
    if settings.otherwise != Missing.DEAD_LETTER and settings.otherwise not in {one.name for one in routes}:
        problems.say("otherwise", f"{settings.otherwise!r} is no route; name one, or {Missing.DEAD_LETTER.value}")
    return tuple(routes)


def _check_sinks(settings: EtlSettings, problems: Problems) -> None:
    """Every route to a table has one, and every table a route."""
    known = documents(settings)
    for number, route in enumerate(settings.routes):
        if route.to is not Target.KAFKA and (route.to not in known or route.name not in known[route.to].tables):
            problems.say(f"routes.{number}.to", f"say which table it is: {route.to}.tables.{route.name}")
    for target, document in known.items():
        with problems.at(target):
            document.settings()
        routed = {route.name for route in settings.routes if route.to is target}
        for lane in document.tables:
            if lane not in routed:
                problems.say(f"{target}.tables.{lane}", f"no route with `to: {target}` has this name")
