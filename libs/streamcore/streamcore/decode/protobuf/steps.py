"""Turns what is read of a message type into the steps of a compiled walk (``streamcore.decode.walk.steps``)."""

from __future__ import annotations

from streamcore.decode.protobuf.reader import PREFIXED, wire_type
from streamcore.decode.protobuf.schema import ProtoEnum
from streamcore.decode.protobuf.schema_match import TIMESTAMP_MESSAGE, ReadMessage, ReadValue
from streamcore.decode.walk import steps as walk
from streamcore.decode.walk.steps import Conversion, Steps, StepsBuilder
from streamcore.schema import Kind, StreamSchema

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


def make_steps(schema: StreamSchema, want: ReadMessage) -> Steps:
    """Return the steps that read a message: one for each field that is read, breadth first."""
    builder, numbers = StepsBuilder(), {field.name: n for n, field in enumerate(schema.fields)}
    builder.add(walk.MESSAGE)
    queue = [(0, want)]
    for at, message in queue:
        builder.steps[at][walk.FIRST_CHILD] = len(builder.steps)
        builder.steps[at][walk.CHILDREN] = len(message.inside)
        for number, target in sorted(message.inside.items()):
            if isinstance(target, ReadMessage):
                added, wire, presence = builder.add(walk.MESSAGE), PREFIXED, True
                queue.append((added, target))
            else:
                added, wire = _add_value(builder, target, numbers[target.field.name]), wire_type(target.kind)
                presence = target.presence
            step = builder.steps[added]
            step[walk.NUMBER], step[walk.WIRE], step[walk.PRESENCE] = number, wire, int(presence)
    return builder.build()


def _add_value(builder: StepsBuilder, target: ReadValue, number: int) -> int:
    kind, field = target.kind, target.field
    if isinstance(kind, ProtoEnum):
        first = builder.add_symbols(dict(kind.values))
        return builder.add(walk.READ_ENUM, first, number, Conversion(p=len(kind.values)))
    conversion = Conversion() if field.type.kind is Kind.STRING else Conversion.of(field)
    if kind in _VARINTS:
        return builder.add(walk.READ_VARINT, _VARINTS[kind], number, conversion)
    op, s = _OTHERS[kind]
    return builder.add(op, s, number, conversion)
