"""Turns a writer's Avro schema into the steps of a compiled walk (``streamcore.decode.walk.steps``)."""

from __future__ import annotations

from collections.abc import Mapping

from streamcore.decode.avro.schema import (
    ArrayOf,
    AvroType,
    Enumeration,
    Fixed,
    MapOf,
    Primitive,
    RecordOf,
    UnionOf,
    is_empty,
)
from streamcore.decode.avro.schema_match import FieldMapping
from streamcore.decode.walk import steps as walk
from streamcore.decode.walk.steps import Conversion, Steps, StepsBuilder
from streamcore.schema import Field, Kind, StreamSchema

#: The most steps; a larger schema is not walked.
_MAX_STEPS = 20_000
_PER_MS = {"millis": 1, "micros": 1_000, "nanos": 1_000_000}
_DAY_MS = 86_400_000
_SIMPLE = {"boolean": walk.READ_TRUTH, "float": walk.READ_FLOAT, "double": walk.READ_DOUBLE}
_SKIPS = {"boolean": walk.SKIP_TRUTH, "int": walk.SKIP_INT, "long": walk.SKIP_LONG}
_SKIPS |= {"string": walk.SKIP_PREFIXED, "bytes": walk.SKIP_PREFIXED}


class _TooLargeError(Exception):
    """The schema has too many steps."""


def make_steps(schema: StreamSchema, kind: AvroType, want: FieldMapping, max_depth: int) -> Steps | None:
    """Return the steps that read the fields in ``want`` from datums of a type; None if there would be too many."""
    maker = _StepsMaker({field.name: n for n, field in enumerate(schema.fields)}, max_depth)
    try:
        maker.read(kind, want, 0)
    except _TooLargeError:
        return None
    maker.builder.add(walk.END)
    return maker.builder.build()


class _StepsMaker:
    def __init__(self, numbers: Mapping[str, int], max_depth: int) -> None:
        self.numbers, self.max_depth = numbers, max_depth
        self.builder = StepsBuilder()

    def read(self, kind: AvroType, want: Field | FieldMapping | None, depth: int) -> None:
        """Add the steps of a value: into a field, a record into the fields of its mapping, or skipped."""
        if len(self.builder.steps) > _MAX_STEPS:
            raise _TooLargeError
        match kind:
            case UnionOf():
                self.read_union(kind, want, depth)
            case RecordOf() if not isinstance(want, Field):
                if want is None and is_empty(kind):
                    return
                if depth > self.max_depth:
                    self.builder.add(walk.DOUBT)
                    return
                inside = want.inside if want is not None else {}
                for name, inner in kind.fields:
                    self.read(inner, inside.get(name), depth + 1)
            case _ if isinstance(want, Field):
                self.read_field(kind, want)
            case _:
                self.skip(kind, depth)

    def read_union(self, union: UnionOf, want: Field | FieldMapping | None, depth: int) -> None:
        add, steps = self.builder.add, self.builder.steps
        first = add(walk.UNION, len(union.branches)) + 1
        for _ in union.branches:
            add(walk.JUMP)
        ends = []
        for number, branch in enumerate(union.branches):
            steps[first + number][walk.S] = len(steps)
            self.read(branch, want, depth)
            ends.append(add(walk.JUMP))
        for end in ends:
            steps[end][walk.S] = len(steps)

    def read_field(self, kind: AvroType, field: Field) -> None:
        add, number = self.builder.add, self.numbers[field.name]
        match kind:
            case Primitive("null"):
                pass
            case Primitive("boolean" | "float" | "double"):
                add(_SIMPLE[kind.name], 0, number)
            case Primitive("int" | "long"):
                op = walk.READ_INT if kind.name == "int" else walk.READ_LONG
                add(op, 0, number, _whole_conversion(kind, field))
            case Primitive("string"):
                conversion = Conversion() if field.type.kind is Kind.STRING else Conversion.of(field)
                add(walk.READ_TEXT, 0, number, conversion)
            case Primitive("bytes"):
                add(walk.READ_BYTES, 0, number, Conversion.of(field, kind.scale))
            case Fixed() if kind.logical == "decimal":
                add(walk.READ_FIXED, kind.size, number, Conversion.of(field, kind.scale))
            case Enumeration():
                first = self.builder.add_symbols(dict(enumerate(kind.symbols)))
                add(walk.READ_ENUM, first, number, Conversion(p=len(kind.symbols)))
            case _:
                add(walk.DOUBT)

    def skip(self, kind: AvroType, depth: int) -> None:
        add, steps = self.builder.add, self.builder.steps
        match kind:
            case Primitive("null"):
                pass
            case Primitive("float" | "double"):
                add(walk.SKIP_BYTES, 4 if kind.name == "float" else 8)
            case Primitive():
                add(_SKIPS[kind.name])
            case Enumeration():
                add(walk.SKIP_INT)
            case Fixed():
                add(walk.SKIP_BYTES, kind.size)
            case ArrayOf() | MapOf():
                if depth > self.max_depth:
                    add(walk.DOUBT)
                    return
                items = (kind.items,) if isinstance(kind, ArrayOf) else (Primitive("string"), kind.values)
                start = add(walk.ARRAY)
                steps[start][walk.P] = int(all(is_empty(item) for item in items))
                for item in items:
                    self.read(item, None, depth + 1)
                add(walk.ARRAY_END, start)
                steps[start][walk.S] = len(steps)


def _whole_conversion(kind: Primitive, field: Field) -> Conversion:
    logical = kind.logical
    if field.type.kind is not Kind.TIMESTAMP or not logical:
        return Conversion.of(field)
    if logical == "date":
        return Conversion(walk.AS_LOCAL, _DAY_MS, 1)
    local = logical.startswith("local")
    return Conversion(walk.AS_LOCAL if local else walk.AS_TIME, 1, _PER_MS[logical.rpartition("-")[2]])
