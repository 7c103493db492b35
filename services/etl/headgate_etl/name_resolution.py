"""The names of the settings: fields and their types, where each comes from, masks, and the tables of routes.

Nothing here reads an expression; ``plan`` does, once the names are sound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate_etl import masking
from headgate_etl.documents import How, RouteTarget
from headgate_etl.problems import Problems
from headgate_etl.sinks import table_sinks
from rulecore.language import ListType
from streamcore.schema import STRING, TIMESTAMP, Field, Kind, Type

if TYPE_CHECKING:
    from headgate_etl.documents import EtlDocument

_NOT_NULL = " not null"
_IDS = (Kind.STRING, Kind.LONG, Kind.BOOLEAN, Kind.TIMESTAMP)


def read_model(settings: EtlDocument, problems: Problems) -> dict[str, Field]:
    model: dict[str, Field] = {}
    for name, text in settings.model.items():
        with problems.at(f"model.{name}"):
            bare = text.strip()
            nullable = not bare.endswith(_NOT_NULL)
            model[name] = Field(name, Type.parse(bare if nullable else bare.removesuffix(_NOT_NULL)), nullable)
    return model


def read_lists(settings: EtlDocument, problems: Problems) -> dict[str, ListType]:
    lists: dict[str, ListType] = {}
    for name, one in settings.lists.items():
        with problems.at(f"lists.{name}"):
            lists[name] = ListType(name, Type.parse(one.of), None if one.value is None else Type.parse(one.value))
    return lists


def _looked_up(settings: EtlDocument) -> tuple[str, ...]:
    return () if settings.lookup is None else settings.lookup.adds


def mapped_fields(settings: EtlDocument) -> tuple[str, ...]:
    """Return the fields that inputs provide, in the order of the model."""
    others = {*settings.derive, *_looked_up(settings)}
    return tuple(name for name in settings.model if name not in others)


def check_origins(settings: EtlDocument, model: Mapping[str, Field], problems: Problems) -> None:
    """Every field comes from one place, and every name is a field."""
    origins = {"derive": [*settings.derive], "lookup.adds": [*_looked_up(settings)]}
    origins |= {f"inputs.{n}.map": [*one.map] for n, one in enumerate(settings.inputs)}
    for place, names in origins.items():
        for name in names:
            if name not in model:
                problems.add(f"{place}.{name}", f"is no field of the model; its fields are {', '.join(model)}")
            others = [
                p
                for p, theirs in origins.items()
                if name in theirs and p.startswith("inputs") != place.startswith("inputs")
            ]
            if others and not place.startswith("inputs"):
                problems.add(f"{place}.{name}", f"comes from {others[0]} already; keep one of the two")
    for name in mapped_fields(settings):
        if not any(name in one.map for one in settings.inputs):
            problems.add(f"model.{name}", "comes from nowhere; give it to inputs.N.map, derive or lookup.adds")
    for name in sorted({*settings.derive} & {*_looked_up(settings)}):
        problems.add(f"derive.{name}", "comes from lookup.adds already; keep one of the two")


def check_id(settings: EtlDocument, model: Mapping[str, Field], problems: Problems) -> None:
    for name in settings.id:
        if name not in mapped_fields(settings):
            problems.add(
                "id", f"{name!r} is no field that inputs give; choose among {', '.join(mapped_fields(settings))}"
            )
        elif model[name].type.kind not in _IDS:
            problems.add("id", f"{name!r} is {model[name].type}; an id is text, a long, a boolean or a timestamp")
    look = settings.lookup
    if look is not None and look.key not in mapped_fields(settings):
        problems.add("lookup.key", f"{look.key!r} is no field that inputs give")


def read_masks(settings: EtlDocument, model: Mapping[str, Field], problems: Problems) -> dict[str, masking.Mask]:
    masks: dict[str, masking.Mask] = {}
    for name, one in settings.mask.items():
        place = f"mask.{name}"
        if name not in model:
            problems.add(place, f"is no field of the model; its fields are {', '.join(model)}")
            continue
        accepted = (STRING, TIMESTAMP) if one.how is How.YEAR else (STRING,)
        if model[name].type not in accepted:
            problems.add(place, f"{one.how} takes {' or '.join(map(str, accepted))}, the field is {model[name].type}")
            continue
        with problems.at(place):
            masks[name] = masking.to_mask(one)
    return masks


def check_sinks(settings: EtlDocument, problems: Problems) -> None:
    """Every route to a table has one, and every table a route."""
    known = table_sinks(settings)
    for number, route in enumerate(settings.routes):
        if route.to is not RouteTarget.KAFKA and (route.to not in known or route.name not in known[route.to].tables):
            problems.add(f"routes.{number}.to", f"say which table it is: {route.to}.tables.{route.name}")
    for target, sink in known.items():
        routed = {route.name for route in settings.routes if route.to is target}
        for lane in sink.tables:
            if lane not in routed:
                problems.add(f"{target}.tables.{lane}", f"no route with `to: {target}` has this name")
