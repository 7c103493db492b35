"""Turns a writer's Avro schema into the steps of a compiled walk (``streamcore.decode.walk.binary.steps``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
from streamcore.decode.walk.binary import steps as walk
from streamcore.decode.walk.binary.layout import Layout, Place
from streamcore.decode.walk.binary.steps import Conversion, Steps, StepsBuilder
from streamcore.schema import Field, Kind

#: The most steps; a larger schema is not walked.
_MAX_STEPS = 20_000
_PER_MS = {"millis": 1, "micros": 1_000, "nanos": 1_000_000}
_DAY_MS = 86_400_000
_SIMPLE = {"boolean": walk.READ_TRUTH, "float": walk.READ_FLOAT, "double": walk.READ_DOUBLE}
_SKIPS = {"boolean": walk.SKIP_TRUTH, "int": walk.SKIP_INT, "long": walk.SKIP_LONG}
_SKIPS |= {"string": walk.SKIP_PREFIXED, "bytes": walk.SKIP_PREFIXED}
_SIZES = {"float": 4, "double": 8}
_NULL = Primitive("null")
#: What a value is read into: a field or a value inside of one, or the fields of a record; None: it is skipped.
_Want = Place | FieldMapping | None


class _TooLargeError(Exception):
    """The schema has too many steps."""


def make_steps(layout: Layout, kind: AvroType, want: FieldMapping, max_depth: int) -> Steps | None:
    """Return the steps that read the fields in ``want`` from datums of a type; None if there would be too many."""
    places = {place.field.name: place for place in layout.places}
    maker = _StepsMaker(places, max_depth, StepsBuilder(len(layout.levels)))
    try:
        maker.read(kind, want, 0)
        maker.builder.add(walk.END)
        maker.add_called()
    except _TooLargeError:
        return None
    return maker.builder.build()


@dataclass(slots=True)
class _StepsMaker:
    """Makes the steps. ``calls``: by record that contains itself, the steps that call those that skip it.
    ``recursive``: whether a record contains itself, of those that were asked for. ``deepest``: the deepest nesting in
    the steps that are being added. ``target``: the last step to which another one leads."""

    places: Mapping[str, Place]
    max_depth: int
    builder: StepsBuilder
    calls: dict[RecordOf, list[int]] = field(default_factory=dict)
    recursive: dict[RecordOf, bool] = field(default_factory=dict)
    deepest: int = 0
    target: int = 0

    def read(self, kind: AvroType, want: _Want, depth: int) -> None:
        """Add the steps of a value."""
        if len(self.builder.steps) > _MAX_STEPS:
            raise _TooLargeError
        match kind:
            case UnionOf():
                self.read_union(kind, want, depth)
            case RecordOf() if want is None and (is_empty(kind) or self.is_recursive(kind)):
                if not is_empty(kind):
                    self.calls.setdefault(kind, []).append(self.builder.add(walk.CALL, conversion=Conversion(p=depth)))
            case ArrayOf() | MapOf() | RecordOf():
                self.deepest = max(self.deepest, depth)
                if depth > self.max_depth:
                    self.builder.add(walk.DOUBT)
                elif isinstance(kind, RecordOf):
                    self.read_record(kind, want, depth)
                else:
                    self.read_items(kind, want, depth)
            case _ if isinstance(want, Place):
                self.read_value(kind, want)
            case _:
                self.skip(kind)

    def read_union(self, union: UnionOf, want: _Want, depth: int) -> None:
        add, steps = self.builder.add, self.builder.steps
        if len(union.branches) == 2 and _NULL in union.branches:
            null = union.branches.index(_NULL)
            option = add(walk.OPTION, conversion=Conversion(p=null))
            self.read(union.branches[1 - null], want, depth)
            steps[option][walk.S] = self.next_step()
            return
        first = add(walk.UNION, len(union.branches)) + 1
        for _ in union.branches:
            add(walk.JUMP)
        ends = []
        for number, branch in enumerate(union.branches):
            steps[first + number][walk.S] = self.next_step()
            self.read(branch, want, depth)
            ends.append(add(walk.JUMP))
        for end in ends:
            steps[end][walk.S] = self.next_step()

    def read_record(self, record: RecordOf, want: _Want, depth: int) -> None:
        """Add the steps of a record: into a struct, into the fields of its mapping, or skipped."""
        inside: Mapping[str, Place | FieldMapping | Field] = {}
        if isinstance(want, Place):
            self.builder.add(walk.STRUCT, 0, want.column)
            inside = {place.field.name: place for place in want.inside}
        elif want is not None:
            inside = want.inside
        for name, inner in record.fields:
            found = inside.get(name)
            self.read(inner, self.places[found.name] if isinstance(found, Field) else found, depth + 1)

    def read_items(self, kind: ArrayOf | MapOf, want: _Want, depth: int) -> None:
        """Add the steps of the elements of an array, or of the entries of a map."""
        add, steps = self.builder.add, self.builder.steps
        types = (kind.items,) if isinstance(kind, ArrayOf) else (Primitive("string"), kind.values)
        targets: Sequence[Place | None] = (None,) * len(types)
        if isinstance(want, Place):
            start, end, targets = add(walk.LIST, 0, want.column), walk.LIST_END, want.inside
            steps[start][walk.LEVEL] = want.inside[0].level
            steps[start][walk.P] = sum(_least_bytes(one) for one in types)
        else:
            start, end = add(walk.ARRAY), walk.ARRAY_END
            steps[start][walk.P] = _fixed_bytes(kind.items) if isinstance(kind, ArrayOf) else -1
        self.next_step()
        for one, target in zip(types, targets, strict=True):
            self.read(one, target, depth + 1)
        add(end, start)
        steps[start][walk.S] = self.next_step()

    def read_value(self, kind: AvroType, place: Place) -> None:
        add, field, column = self.builder.add, place.field, place.column
        match kind:
            case Primitive("null"):
                pass
            case Primitive("boolean" | "float" | "double"):
                add(_SIMPLE[kind.name], 0, column)
            case Primitive("int" | "long"):
                op = walk.READ_INT if kind.name == "int" else walk.READ_LONG
                add(op, 0, column, _whole_conversion(kind, field))
            case Primitive("string"):
                conversion = Conversion() if field.type.kind is Kind.STRING else Conversion.of(field)
                add(walk.READ_TEXT, 0, column, conversion)
            case Primitive("bytes"):
                add(walk.READ_BYTES, 0, column, Conversion.of(field, kind.scale))
            case Fixed() if kind.logical == "decimal":
                add(walk.READ_FIXED, kind.size, column, Conversion.of(field, kind.scale))
            case Enumeration():
                first = self.builder.add_symbols(dict(enumerate(kind.symbols)))
                add(walk.READ_ENUM, first, column, Conversion(p=len(kind.symbols)))
            case _:
                add(walk.DOUBT)

    def skip(self, kind: AvroType) -> None:
        """Add the step that skips a value which is neither a union nor contains others."""
        match kind:
            case Primitive("null"):
                pass
            case Primitive("float" | "double"):
                self.skip_bytes(_SIZES[kind.name])
            case Primitive():
                self.builder.add(_SKIPS[kind.name])
            case Enumeration():
                self.builder.add(walk.SKIP_INT)
            case Fixed():
                self.skip_bytes(kind.size)

    def skip_bytes(self, count: int) -> None:
        """Add the step that skips bytes, to that which does the same before it, if none leads to between them."""
        steps = self.builder.steps
        if len(steps) > self.target and steps[-1][walk.OP] == walk.SKIP_BYTES:
            steps[-1][walk.S] += count
        else:
            self.builder.add(walk.SKIP_BYTES, count)

    def next_step(self) -> int:
        """Return the number of the next step, to which another one leads."""
        self.target = len(self.builder.steps)
        return self.target

    def add_called(self) -> None:
        """Add the steps that skip records which contain themselves. They call each other, so they have no end."""
        added: dict[RecordOf, tuple[int, int]] = {}
        while waiting := [record for record in self.calls if record not in added]:
            for record in waiting:
                start, self.deepest = self.next_step(), 0
                self.read_record(record, None, 0)
                self.builder.add(walk.RETURN)
                added[record] = start, self.deepest
        for record, calls in self.calls.items():
            for call in calls:
                self.builder.steps[call][walk.S], self.builder.steps[call][walk.Q] = added[record]

    def is_recursive(self, record: RecordOf) -> bool:
        """Return whether a record contains itself."""
        if record not in self.recursive:
            self.recursive[record] = _contains_itself(record)
        return self.recursive[record]


def _contains_itself(record: RecordOf) -> bool:
    seen: set[RecordOf] = set()
    waiting: list[AvroType] = [kind for _, kind in record.fields]
    while waiting:
        match waiting.pop():
            case UnionOf() as union:
                waiting += union.branches
            case ArrayOf() as array:
                waiting.append(array.items)
            case MapOf() as entries:
                waiting.append(entries.values)
            case RecordOf() as inner:
                if inner is record:
                    return True
                if inner not in seen:
                    seen.add(inner)
                    waiting += [kind for _, kind in inner.fields]
    return False


def _least_bytes(kind: AvroType) -> int:
    """Return bytes that each value has at least: 0 for none."""
    match kind:
        case Primitive():
            return _SIZES.get(kind.name, int(kind != _NULL))
        case Fixed():
            return kind.size
        case RecordOf():
            return len(kind.non_empty)
    return 1


def _fixed_bytes(kind: AvroType) -> int:
    """Return the bytes of each value of a type; -1 if they vary, are checked, or are those of a record."""
    match kind:
        case Primitive():
            return _SIZES.get(kind.name, 0 if kind == _NULL else -1)
        case Fixed():
            return kind.size
    return 0 if is_empty(kind) else -1


def _whole_conversion(kind: Primitive, field: Field) -> Conversion:
    logical = kind.logical
    if field.type.kind is not Kind.TIMESTAMP or not logical:
        return Conversion.of(field)
    if logical == "date":
        return Conversion(walk.AS_LOCAL, _DAY_MS, 1)
    local = logical.startswith("local")
    return Conversion(walk.AS_LOCAL if local else walk.AS_TIME, 1, _PER_MS[logical.rpartition("-")[2]])
