"""The content of the records of a sample at each path: kinds of values, how often, and whether they differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headgate.streams.envelopes import find_envelope, read_event
from headgate.streams.sample import SampleRecord
from streamcore.decode.scalar.values import Number, ObjectValue, RecordError
from streamcore.schema import Envelope, TimeUnit
from streamcore.schema.field_paths import MAX_DEPTH, Path
from streamcore.timestamps import from_iso, load_zone

if TYPE_CHECKING:  # samples of JSON have none
    from headgate.streams.shapes import Shape

#: How many distinct values of a path are remembered.
MAX_DISTINCT: Final = 10_000
#: How many paths a sample may have; further ones are counted only.
MAX_PATHS: Final = 5_000
#: How many names of objects in one array are remembered.
MAX_MEMBERS: Final = 200
_WHOLE: Final = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_FIRST_YEAR_MS, _LAST_YEAR_MS = 946_684_800_000, 4_102_444_800_000  # 2000 and 2100
_PER_SECOND: Final = {
    TimeUnit.SECONDS: 1,
    TimeUnit.MILLISECONDS: 1_000,
    TimeUnit.MICROSECONDS: 1_000_000,
    TimeUnit.NANOSECONDS: 1_000_000_000,
}
_MAX_TIME_DIGITS: Final = 19
_MAX_LONG: Final = 2**63 - 1
_UTC: Final = load_zone("UTC")


@dataclass(slots=True)
class ObservedField:
    """The values at a path. Counts are of records; ``digits`` and ``scale``: the most before and behind the point.
    ``times``: texts in ISO 8601, and numbers that may be times; ``units``: whole numbers that are times of the years
    2000 to 2099 in a unit. ``large``: whole numbers of more than 64 bits. ``elements``: the values in arrays;
    ``members``: the values in objects that are in arrays, by name; ``longest``: the most elements of an array.
    ``shape``: by the schemas of the records, if they have some.
    """

    path: Path
    present: int = 0
    nulls: int = 0
    booleans: int = 0
    wholes: int = 0
    numbers: int = 0
    texts: int = 0
    arrays: int = 0
    objects: int = 0
    times: int = 0
    units: Counter[TimeUnit] = field(default_factory=Counter)
    digits: int = 0
    scale: int = 0
    exponents: int = 0
    large: int = 0
    example: str = ""
    distinct: set[str] = field(default_factory=set)
    earliest_ms: int | None = None
    latest_ms: int | None = None
    elements: ObservedField | None = None
    members: dict[str, ObservedField] = field(default_factory=dict)
    longest: int = 0
    shape: Shape | None = None

    @property
    def values(self) -> int:
        """How many values are neither null nor an object."""
        return self.booleans + self.numbers + self.texts + self.arrays

    def add(self, value: object) -> None:
        """Count a value."""
        self.present += 1
        match value:
            case None:
                self.nulls += 1
            case bool():
                self.booleans += 1
            case Number():
                self._add_number(value)
            case str():
                self.texts += 1
                if _WHOLE.match(value) and len(value) <= _MAX_TIME_DIGITS:
                    self._add_epoch(int(value))
                else:
                    self._add_time(from_iso(value, _UTC))
            case list():
                self._add_array(value)
            case _:
                self.objects += 1
        if isinstance(value, str | bool):
            text = str(value)
            self.example = self.example or text
            if len(self.distinct) < MAX_DISTINCT:
                self.distinct.add(text[:200])

    def _add_array(self, array: list[object]) -> None:
        self.arrays += 1
        self.longest = max(self.longest, len(array))
        if self.elements is None:
            self.elements = ObservedField(self.path)
        for item in array:
            self.elements.add_element(item)

    def add_element(self, value: object) -> None:
        """Count a value in an array, and those inside of it."""
        self.add(value)
        for name, item in value.pairs if isinstance(value, ObjectValue) else ():
            if name not in self.members:
                if len(self.members) >= MAX_MEMBERS:
                    continue
                self.members[name] = ObservedField((*self.path, name))
            self.members[name].add_element(item)

    def _add_number(self, text: str) -> None:
        self.numbers += 1
        if _WHOLE.match(text):
            self.wholes += 1
            number = int(text)
            self.large += abs(number) > _MAX_LONG
            self._add_epoch(number)
        elif "e" in text or "E" in text:
            self.exponents += 1
            return
        whole, _, fraction = text.lstrip("-").partition(".")
        self.digits, self.scale = max(self.digits, len(whole)), max(self.scale, len(fraction))

    def _add_epoch(self, number: int) -> None:
        for unit, per_second in _PER_SECOND.items():
            ms = number * 1_000 // per_second
            if _FIRST_YEAR_MS <= ms < _LAST_YEAR_MS:  # of one unit at most: they are far apart
                self.units[unit] += 1
                self._add_time(ms)

    def _add_time(self, ms: int | None) -> None:
        if ms is None:
            return
        self.times += 1
        self.earliest_ms = ms if self.earliest_ms is None else min(self.earliest_ms, ms)
        self.latest_ms = ms if self.latest_ms is None else max(self.latest_ms, ms)


@dataclass(slots=True)
class Observation:
    """A sample: the number of its objects, the records that are none, with the reason, and the fields by path.

    ``schemas``, ``kinds``: the records of each schema, and of each kind that schemas name.
    """

    objects: int = 0
    bad: list[tuple[str, str]] = field(default_factory=list)
    fields: dict[Path, ObservedField] = field(default_factory=dict)
    left_out: int = 0
    envelope: Envelope | None = None
    schemas: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)

    def field_at(self, path: Path) -> ObservedField | None:
        """Return the field at a path, a new one too; None, and count the value, beyond ``MAX_PATHS``."""
        observed = self.fields.get(path)
        if observed is None:
            if len(self.fields) >= MAX_PATHS:
                self.left_out += 1
                return None
            observed = self.fields[path] = ObservedField(path)
        return observed


def observe(records: Sequence[SampleRecord], into: Observation | None = None) -> Observation:
    """Look at all records of JSON: at the events in their envelope, if they have one. Tombstones are left out."""
    found = into or Observation(envelope=find_envelope(records))
    for record in records:
        if found.envelope is Envelope.DEBEZIUM and record.record.value is None:
            continue
        try:
            value = read_event(record.record, found.envelope)
        except RecordError as error:
            found.bad.append((record.place, error.reason))
            continue
        found.objects += 1
        for path, item in _paths(value, ()):
            if (observed := found.field_at(path)) is not None:
                observed.add(item)
    return found


def _paths(value: ObjectValue, outer: Path) -> Iterator[tuple[Path, object]]:
    for name, item in value.pairs:
        if not name:
            continue
        path = (*outer, name)
        yield path, item
        if isinstance(item, ObjectValue) and len(path) < MAX_DEPTH:
            yield from _paths(item, path)
