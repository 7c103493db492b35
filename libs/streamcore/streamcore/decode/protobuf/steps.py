"""Turns what is read of a message type into the steps of a compiled walk (``streamcore.decode.walk.binary.steps``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamcore.decode.protobuf.schema import ProtoEnum
from streamcore.decode.protobuf.schema_match import (
    TIMESTAMP_MESSAGE,
    ReadList,
    ReadMessage,
    ReadTarget,
    ReadValue,
)
from streamcore.decode.walk.binary import steps as walk
from streamcore.decode.walk.binary.layout import Layout, Place
from streamcore.decode.walk.binary.steps import Conversion, Steps, StepsBuilder
from streamcore.schema import BOOLEAN, LONG, Kind

_VARINTS = {
    "int32": walk.SIGNED_32,
    "int64": walk.SIGNED_64,
    "uint32": walk.UNSIGNED_32,
    "uint64": walk.UNSIGNED_64,
    "sint32": walk.ZIGZAG_32,
    "sint64": walk.ZIGZAG_64,
}
_OTHERS = {
    "double": (walk.READ_DOUBLE, 0),
    "float": (walk.READ_FLOAT, 0),
    "fixed64": (walk.READ_FIXED64, 1),
    "sfixed64": (walk.READ_FIXED64, 0),
    "fixed32": (walk.READ_FIXED32, 1),
    "sfixed32": (walk.READ_FIXED32, 0),
    "bool": (walk.READ_TRUTH, 0),
    "string": (walk.READ_TEXT, 0),
    TIMESTAMP_MESSAGE: (walk.READ_STAMP, 0),
}


def make_steps(layout: Layout, want: ReadMessage) -> Steps:
    """Return the steps that read a message: one for each field that is read, breadth first."""
    maker = _StepsMaker(StepsBuilder(len(layout.levels)))
    maker.builder.add(walk.MESSAGE)
    maker.waiting.append(_Message(0, want, {place.field.name: place for place in layout.places}, 0))
    for message in maker.waiting:  # which grows
        maker.add_children(message)
    return maker.builder.build()


@dataclass(frozen=True, slots=True)
class _Message:
    """A message whose children are to be added. ``at``: its step; ``places``: by name, of what is read of it.
    ``is_entry``: whether it is an entry of a map."""

    at: int
    want: ReadMessage
    places: Mapping[str, Place]
    level: int
    is_entry: bool = False


@dataclass(slots=True)
class _StepsMaker:
    builder: StepsBuilder
    waiting: list[_Message] = field(default_factory=list)

    def add_children(self, message: _Message) -> None:
        """Add the fields of a message, in the order of their numbers, and then what the items of lists are."""
        want, steps = message.want, self.builder.steps
        step = steps[message.at]
        step[walk.FIRST_CHILD] = len(steps)
        oneofs = {name: self.builder.add_column(message.level) for name in sorted({*want.oneofs.values()})}
        lists: list[tuple[int, ReadList, Place]] = []
        for number in sorted({*want.inside, *want.others}):
            target = want.inside.get(number)
            if target is None:
                added, wire = self.builder.add(walk.OTHER), want.others[number]
            else:
                added, wire = self.add_target(target, message), target.wire
            if isinstance(target, ReadList):
                lists.append((added, target, message.places[target.name]))
            child = steps[added]
            child[walk.NUMBER], child[walk.WIRE] = number, wire
            if message.is_entry and child[walk.PRESENCE] == walk.EXPLICIT:
                child[walk.PRESENCE] = walk.NEEDED
            if number in want.oneofs:
                child[walk.ONEOF] = oneofs[want.oneofs[number]]
            step[walk.CHILDREN] += 1
            step[walk.IMPLICIT] += child[walk.PRESENCE] != walk.EXPLICIT
        for at, target, place in lists:
            steps[at][walk.FIRST_CHILD] = added = self.add_item(target, place)
            steps[added][walk.WIRE], steps[added][walk.PRESENCE] = target.wire, walk.EXPLICIT

    def add_target(self, target: ReadTarget, message: _Message) -> int:
        """Add the step of a field; return its number."""
        if isinstance(target, ReadMessage) and not target.name:
            return self.add_message(target, -1, message.places, message.level)
        place = message.places[target.name]
        if not isinstance(target, ReadList):
            return self.add_one(target, place)
        added = self.builder.add(walk.LIST, 0, place.column)
        self.builder.steps[added][walk.LEVEL] = place.inside[0].level
        self.builder.steps[added][walk.PRESENCE] = walk.DEFAULT
        return added

    def add_item(self, target: ReadList, place: Place) -> int:
        """Add the step of an element of an array, or of an entry of a map; return its number."""
        if isinstance(target.item, ReadMessage) and target.is_map:
            places = dict(zip(("key", "value"), place.inside, strict=True))
            return self.add_message(target.item, -1, places, place.inside[0].level, is_entry=True)
        return self.add_one(target.item, place.inside[0])

    def add_one(self, target: ReadValue | ReadMessage, place: Place) -> int:
        """Add the step of a struct or a value; return its number."""
        if isinstance(target, ReadMessage):
            members = {member.field.name: member for member in place.inside}
            return self.add_message(target, place.column, members, place.level)
        added = self.add_value(target, place)
        self.builder.steps[added][walk.PRESENCE] = walk.EXPLICIT if target.presence else walk.DEFAULT
        return added

    def add_message(
        self, want: ReadMessage, column: int, places: Mapping[str, Place], level: int, *, is_entry: bool = False
    ) -> int:
        added = self.builder.add(walk.MESSAGE, 0, column)
        self.waiting.append(_Message(added, want, places, level, is_entry))
        return added

    def add_value(self, target: ReadValue, place: Place) -> int:
        add, kind, one = self.builder.add, target.kind, place.field
        if isinstance(kind, ProtoEnum):
            first, names = self.builder.add_symbols(dict(kind.values)), [*kind.values.values()]
            default = first if names else -1
            return add(walk.READ_ENUM, first, place.column, Conversion(p=len(names), r=default))
        conversion = Conversion() if one.type.kind is Kind.STRING else Conversion.of(one)
        if one.type.kind is Kind.STRING and kind != "string":  # the key of a map
            self.builder.keys[place.column] = BOOLEAN if kind == "bool" else LONG
        if kind in _VARINTS:
            return add(walk.READ_VARINT, _VARINTS[kind], place.column, conversion)
        op, s = _OTHERS[kind]
        return add(op, s, place.column, conversion)
