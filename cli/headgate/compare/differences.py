"""The differences between the records of one lane of two apps, A and B.

Records are compared as values: JSON objects field by field, other values as text. The name of app B is replaced by that
of app A first, in keys and in all texts, so that ids that contain it are equal. Equal records are taken out in pairs,
whatever their order. Of the rest, records with the same key and time are one record that was changed, in order of
arrival; all others are only in A or only in B.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.console.output import Json

#: Fields that may hold the time of a record, in order of preference.
TIME_FIELDS = ("window_start", "window_first", "event_time_ms", "event_time", "at", "time", "ts", "timestamp")
VALUE = "value"


@dataclass(frozen=True, slots=True)
class LaneRecord:
    """A record of a lane. ``value``: by field; a value that is no JSON object has one field, ``VALUE``."""

    key: str | None
    value: Mapping[str, Json]

    def time(self, fields: Sequence[str]) -> str:
        """Return the first of the fields that the record has, as text; empty without any."""
        found = next((self.value[name] for name in fields if self.value.get(name) is not None), "")
        return found if isinstance(found, str) else json.dumps(found)


@dataclass(frozen=True, slots=True)
class ChangedRecord:
    """A record that both have with other values. ``fields``: the values of A and B by field; None where it is
    missing."""

    key: str | None
    time: str
    fields: Mapping[str, tuple[Json, Json]]


@dataclass(frozen=True, slots=True)
class LaneDifferences:
    """The comparison of one lane. ``equal``: the number of records that are equal."""

    lane: str
    equal: int
    changed: tuple[ChangedRecord, ...] = ()
    only_a: tuple[LaneRecord, ...] = ()
    only_b: tuple[LaneRecord, ...] = ()
    time_fields: tuple[str, ...] = field(default=TIME_FIELDS)

    @property
    def differs(self) -> bool:
        """Whether the lanes differ."""
        return bool(self.changed or self.only_a or self.only_b)

    def times(self) -> Iterator[tuple[str, str]]:
        """Yield kind (``changed``, ``only_a``, ``only_b``) and time of each difference."""
        yield from (("changed", record.time) for record in self.changed)
        yield from (("only_a", record.time(self.time_fields)) for record in self.only_a)
        yield from (("only_b", record.time(self.time_fields)) for record in self.only_b)


def parse_record(key: bytes | None, value: bytes | None, app: str, as_app: str) -> LaneRecord:
    """Return the record with the name ``app`` replaced by ``as_app`` in its key and in all its texts."""
    text = (value or b"").decode("utf-8", "replace")
    try:
        document = json.loads(text, parse_float=str)  # the digits of a number as they were written
    except ValueError:
        document = text
    fields: Mapping[str, Json] = document if isinstance(document, dict) else {VALUE: document}
    name = None if key is None else _renamed(key.decode("utf-8", "replace"), app, as_app)
    return LaneRecord(name, {field: _rename(entry, app, as_app) for field, entry in fields.items()})


def compare_lane(
    lane: str,
    first: Iterable[LaneRecord],
    second: Iterable[LaneRecord],
    ignored: Sequence[str] = (),
    time_fields: Sequence[str] = TIME_FIELDS,
) -> LaneDifferences:
    """Compare the records of A (``first``) and B. ``ignored``: names of fields that do not count."""
    ours = [_without(record, ignored) for record in first]
    theirs = [_without(record, ignored) for record in second]
    common = Counter(map(_identity, ours)) & Counter(map(_identity, theirs))
    left_a, left_b = _without_common(ours, common), _without_common(theirs, common)
    by_place: dict[tuple[str | None, str], deque[LaneRecord]] = defaultdict(deque)
    for record in left_b:
        by_place[record.key, record.time(time_fields)].append(record)
    changed, only_a, paired = [], [], set()
    for record in left_a:
        time = record.time(time_fields)
        partners = by_place.get((record.key, time))
        # Without a time the key alone would pair records that have nothing to do with each other.
        if partners and time:
            partner = partners.popleft()
            paired.add(id(partner))
            changed.append(ChangedRecord(record.key, time, _changed_fields(record, partner)))
        else:
            only_a.append(record)
    only_b = tuple(record for record in left_b if id(record) not in paired)
    equal = sum(common.values())
    return LaneDifferences(lane, equal, tuple(changed), tuple(only_a), only_b, tuple(time_fields))


def _changed_fields(first: LaneRecord, second: LaneRecord) -> dict[str, tuple[Json, Json]]:
    names = dict.fromkeys([*first.value, *second.value])
    pairs = {name: (first.value.get(name), second.value.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _without(record: LaneRecord, ignored: Sequence[str]) -> LaneRecord:
    return LaneRecord(record.key, {name: entry for name, entry in record.value.items() if name not in ignored})


def _without_common(records: Sequence[LaneRecord], common: Mapping[str, int]) -> list[LaneRecord]:
    """Return the records without as many of each identity as both have, the first ones."""
    rest, left = dict(common), []
    for record in records:
        identity = _identity(record)
        if rest.get(identity, 0):
            rest[identity] -= 1
        else:
            left.append(record)
    return left


def _identity(record: LaneRecord) -> str:
    return json.dumps([record.key, record.value], sort_keys=True)


def _rename(entry: Json, app: str, as_app: str) -> Json:
    match entry:
        case str():
            return _renamed(entry, app, as_app)
        case Mapping():
            return {name: _rename(value, app, as_app) for name, value in entry.items()}
        case Sequence():
            return [_rename(value, app, as_app) for value in entry]
    return entry


def _renamed(text: str, app: str, as_app: str) -> str:
    return text.replace(app, as_app)
