"""Checks the names in the settings: fields and their types, the origin of each field, masks, and sinks of routes.

Each function adds what is wrong to ``problems``. ``plan`` parses the expressions, after these checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate_etl import masking
from headgate_etl.documents import How, RedisValue, RouteTarget
from rulecore.language import ListType
from rulecore.language.secrets import read_secret
from rulecore.mapping.problems import Problems
from streamcore.schema import STRING, TIMESTAMP, Field, Kind, Type
from streamcore.service.config.sinks import sink_lanes

if TYPE_CHECKING:
    from headgate_etl.documents import EtlDocument

_NOT_NULL = " not null"
_ENTRIES = {RouteTarget.OPENSEARCH: "indexes", RouteTarget.WEBHOOK: "endpoints"}
_ENTRY_NAMES = {"tables": "table", "indexes": "index", "endpoints": "endpoint"}
_ID_KINDS = (Kind.STRING, Kind.LONG, Kind.BOOLEAN, Kind.TIMESTAMP)


def read_model(settings: EtlDocument, problems: Problems) -> dict[str, Field]:
    """Return the fields of the clean model, by name. A field of a wrong type is text, and ``problems.unclear``."""
    model: dict[str, Field] = {}
    for name, text in settings.model.items():
        bare = text.strip()
        nullable = not bare.endswith(_NOT_NULL)
        with problems.at(f"model.{name}"):
            model[name] = Field(name, Type.parse(bare if nullable else bare.removesuffix(_NOT_NULL)), nullable)
        if name not in model:
            model[name] = Field(name, STRING, nullable=True)
            problems.unclear.add(name)
    return model


def read_lists(settings: EtlDocument, problems: Problems) -> dict[str, ListType]:
    """Return the types of the declared lists, by name."""
    lists: dict[str, ListType] = {}
    for name, declared in settings.lists.items():
        value = None
        with problems.at(f"lists.{name}.value"):
            value = None if declared.value is None else Type.parse(declared.value)
        with problems.at(f"lists.{name}.of"):
            lists[name] = ListType(name, Type.parse(declared.of), value)
        if name not in lists or (value is None and declared.value is not None):
            problems.unclear.add(name)
    return lists


def _lookup_fields(settings: EtlDocument) -> tuple[str, ...]:
    return tuple(name for lookup in settings.all_lookups.values() for name in lookup.adds)


def mapped_fields(settings: EtlDocument) -> tuple[str, ...]:
    """Return the fields that inputs provide, in the order of the model."""
    computed = {*settings.derive, *_lookup_fields(settings)}
    return tuple(name for name in settings.model if name not in computed)


def check_origins(settings: EtlDocument, model: Mapping[str, Field], problems: Problems) -> None:
    """Check that every field has one origin (the inputs, ``derive`` or a lookup), and every name is a field."""
    origins = {"derive": [*settings.derive]}
    origins |= {f"{path}.adds": [*lookup.adds] for path, lookup in settings.all_lookups.items()}
    origins |= {f"inputs.{n}.map": [*each.map] for n, each in enumerate(settings.inputs)}
    for path, names in origins.items():
        for place, name in enumerate(names):
            if name not in model:
                entry = f"{path}.{place}" if path.endswith(".adds") else f"{path}.{name}"
                problems.add(entry, f"{name!r} is no field of the model; its fields are {', '.join(model)}", about=name)
            others = [
                other
                for other, other_names in origins.items()
                if name in other_names and other.startswith("inputs") != path.startswith("inputs")
            ]
            if others and not path.startswith("inputs"):
                problems.add(f"{path}.{name}", f"comes from {others[0]} already; keep one of the two")
    for name in mapped_fields(settings):
        if not any(name in each.map for each in settings.inputs):
            problems.add(f"model.{name}", "comes from nowhere; give it to inputs.N.map, derive or lookup.adds")
    added: dict[str, str] = {}
    for path, lookup in settings.all_lookups.items():
        for place, name in enumerate(lookup.adds):
            if name in lookup.adds[:place]:
                problems.add(f"{path}.adds.{place}", f"{name!r} is there twice", about=name)
                continue
            if name in settings.derive:
                problems.add(f"derive.{name}", f"comes from {path}.adds already; keep one of the two")
            if name in added:
                problems.add(f"{path}.adds.{name}", f"comes from {added[name]}.adds already; keep one of the two")
            added.setdefault(name, path)
    if "lookup" in settings.lookups:
        problems.add("lookups.lookup", "has the name of the entry `lookup`; give it another name")


def check_id(settings: EtlDocument, model: Mapping[str, Field], problems: Problems) -> None:
    """Check that ``id`` and the keys of lookups name fields that are there, and that ids have types with equality."""
    for name in settings.id:
        if name not in mapped_fields(settings):
            problems.add(
                "id", f"{name!r} is no field that inputs provide; choose among {', '.join(mapped_fields(settings))}"
            )
        elif model[name].type.kind not in _ID_KINDS:
            problems.add("id", f"{name!r} is {model[name].type}; an id is a string, a long, a boolean or a timestamp")
    known = {*mapped_fields(settings)}
    for path, lookup in settings.all_lookups.items():
        if lookup.key not in known:
            others = "" if path == "lookup" else ", and no earlier lookup adds it"
            problems.add(f"{path}.key", f"{lookup.key!r} is no field that inputs provide{others}")
        known |= {*lookup.adds}
        if lookup.redis is not None and lookup.redis.value is RedisValue.HASH:
            for name in lookup.adds:
                if name in model and model[name].type != STRING:
                    problems.add(
                        f"{path}.adds.{name}",
                        f"is {model[name].type}, and the fields of a hash are text; declare it string and convert "
                        "it in derive, or use value: json",
                    )


def read_masks(settings: EtlDocument, model: Mapping[str, Field], problems: Problems) -> dict[str, masking.Mask]:
    """Return the masks by field."""
    masks: dict[str, masking.Mask] = {}
    for name, document in settings.mask.items():
        path = f"mask.{name}"
        if name not in model:
            problems.add(path, f"is no field of the model; its fields are {', '.join(model)}")
            continue
        accepted = (STRING, TIMESTAMP) if document.how is How.YEAR else (STRING,)
        if model[name].type not in accepted:
            types = " or ".join(map(str, accepted))
            problems.add(path, f"{document.how} takes {types}, the field is {model[name].type}")
            continue
        with problems.at(path):
            masks[name] = masking.to_mask(document)
    return masks


def read_secrets(settings: EtlDocument) -> dict[str, str]:
    """Return the file of each secret, by name."""
    return {name: str(path) for name, path in settings.secrets.items()}


def check_secrets(settings: EtlDocument, problems: Problems) -> None:
    """Check that the file of each secret can be read, and has a key."""
    for name, path in settings.secrets.items():
        with problems.at(f"secrets.{name}"):
            read_secret(str(path))


def check_sinks(settings: EtlDocument, problems: Problems) -> None:
    """Check that every route to a sink has an entry there (table, index, endpoint), and each entry a route."""
    sinks = {RouteTarget(name): sink_lanes(sink) for name, sink in settings.sinks.items()}
    for number, route in enumerate(settings.routes):
        if route.to is RouteTarget.KAFKA:
            continue
        entry, lanes = sinks.get(route.to, (_ENTRIES.get(route.to, "tables"), ()))
        if route.name not in lanes:
            what = _ENTRY_NAMES[entry]
            problems.add(f"routes.{number}.to", f"name its {what} in {route.to}.{entry}.{route.name}")
    for target, (entry, lanes) in sinks.items():
        routed = {route.name for route in settings.routes if route.to is target}
        for lane in lanes:
            if lane not in routed:
                problems.add(f"{target}.{entry}.{lane}", f"no route with `to: {target}` has this name")
