"""Collects what a shard knows about the decisions of a cut: a row for each rule that fired at an event of a policy.

The rules of one event may run in several shards, so no shard knows a whole decision. The driver has the rows of all
shards and merges them (``rulecore.alerts.decisions``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final  # an entry is a row of JSON

import numpy as np
import orjson
import polars as pl

from rulecore.alerts.alerts import Alert, to_json_value, write_decimal
from rulecore.alerts.decisions import DECISION_PARTS, DecisionCause, decision_id
from rulecore.alerts.dispatch import AlertDelivery, DispatchedFiring
from rulecore.compile.decision_policy import CompiledPolicy
from rulecore.documents.message_template import format_value
from rulecore.firing import Origin
from rulecore.language.columnar.compiler import to_polars
from rulecore.language.types import Value
from streamcore.hashing import hash_columns
from streamcore.kernel import StreamKey
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import OFFSET, PARTITION, StreamSchema, Type

if TYPE_CHECKING:
    from streamcore.wire.lane_rows import LaneRows

#: The columns of a part. ``policy``, ``event`` and ``entry`` are JSON; ``cause``: why the event has a decision. Of a
#: row without a rule, ``rule`` is "". ``withheld``: 0 if the alert was sent, else the number of its delivery.
#: ``start_ms``: where the window of the firing begins, 0 without one.
_SCHEMA: Final = {
    "policy": pl.String,
    "topic": pl.String,
    "partition": pl.Int32,
    "offset": pl.Int64,
    "cause": pl.String,
    "event": pl.String,
    "rule": pl.String,
    "version": pl.Int64,
    "counts": pl.Boolean,
    "outcome": pl.String,
    "score": pl.Int64,
    "withheld": pl.Int32,
    "start_ms": pl.Int64,
    "entry": pl.String,
}
#: The fields of an alert that a decision has of each rule.
_ENTRY: Final = ("rule", "version", "mode", "kind", "outcome", "score", "severity", "message", "values", "alert_id")
#: Most bytes of a value in a decision as JSON.
MAX_VALUE_BYTES: Final = 1_000
_NO_RULE: Final = ("", 0, False, None, 0, 0, 0, "")
_DELIVERIES: Final = tuple(AlertDelivery)


@dataclass(frozen=True, slots=True)
class DecidedEvent:
    """An event of a stream with a decision policy. ``row``: its physical values by column."""

    policy: CompiledPolicy
    schema: StreamSchema
    row: Mapping[str, Value]
    origin: Origin

    @property
    def decision(self) -> str:
        """The id of its decision."""
        return decision_id(self.policy.name, self.policy.policy.version, self.origin.place)


class DecisionParts:
    """The parts of one shard in one cut."""

    def __init__(self) -> None:
        self._rows: list[tuple[object, ...]] = []
        self._policies: dict[str, str] = {}
        self._event_texts: dict[tuple[str, int, int], str] = {}  # an event at which several rules fire is written once
        self._events: Mapping[StreamKey, pl.DataFrame] = {}
        self._places: dict[StreamKey, dict[tuple[Value, Value], int]] = {}

    def begin(self, events: Mapping[StreamKey, pl.DataFrame]) -> None:
        """Begin a cut with these events."""
        self._events, self._places = events, {}

    def find_event(self, schema: StreamSchema, row: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return an event of a union as one of its own stream, which may have fields that the union does not have."""
        place = (row[PARTITION], row[OFFSET])
        for key in self._events:
            if key.stream == schema.name and (number := self._index(key).get(place)) is not None:
                return self._events[key].row(number, named=True)
        raise AssertionError("a union has the events of its streams")

    def _index(self, key: StreamKey) -> Mapping[tuple[Value, Value], int]:
        if key not in self._places:
            places = self._events[key].select(PARTITION, OFFSET).iter_rows()
            self._places[key] = {(partition, offset): number for number, (partition, offset) in enumerate(places)}
        return self._places[key]

    def add_firing(self, event: DecidedEvent, alert: Alert, dispatched: DispatchedFiring, epoch: int) -> None:
        """Add a rule that fired at an event."""
        document = alert.document
        entry: dict[str, Any] = {name: document[name] for name in _ENTRY} | {"alert": dispatched.delivery.value}
        entry["outcome"] = alert.outcome
        values: Mapping[str, object] = entry["values"]
        entry["values"] = {name: _shorten(value) for name, value in values.items()}
        if document["incomplete"]:
            entry["incomplete"] = True
        text = orjson.dumps(entry, default=write_decimal).decode()
        rule = (entry["rule"], entry["version"], dispatched.counts, entry["outcome"], entry["score"])
        window = document["window"] or {"start_ms": 0}
        assert isinstance(window, dict)
        place = (_DELIVERIES.index(dispatched.delivery), window["start_ms"])
        self._add(event, DecisionCause.RULES, epoch, (*rule, *place, text))

    def add_event(self, event: DecidedEvent, cause: DecisionCause, epoch: int) -> None:
        """Add an event that has a decision even if no rule fires at it."""
        self._add(event, cause, epoch, _NO_RULE)

    def _add(self, event: DecidedEvent, cause: DecisionCause, epoch: int, rule: tuple[object, ...]) -> None:
        place = (event.origin.topic, event.origin.partition, event.origin.offset)
        if place not in self._event_texts:
            self._event_texts[place] = _event_json(event, epoch)
        self._rows.append((self._policy(event.policy), *place, cause.value, self._event_texts[place], *rule))

    def _policy(self, compiled: CompiledPolicy) -> str:
        """Return the parts of a policy that the merge needs, as JSON."""
        if compiled.name not in self._policies:
            policy = compiled.policy
            parts = {"policy": policy.decision_policy, "version": policy.version}
            decide = policy.decide.model_dump(mode="json")
            self._policies[compiled.name] = orjson.dumps(parts | decide).decode()
        return self._policies[compiled.name]

    def take(self) -> tuple[LaneRows, ...]:
        """Return the parts as rows for the merge, and forget them."""
        rows, self._rows, self._policies, self._event_texts = self._rows, [], {}, {}
        self._events, self._places = {}, {}
        if not rows:
            return ()
        from streamcore.wire.lane_rows import LaneRows  # with Arrow's compute functions, which few apps need

        columns = dict(zip(_SCHEMA, zip(*rows, strict=True), strict=True))
        return (LaneRows(DECISION_PARTS, (), pl.DataFrame(columns, schema=_SCHEMA), whole=True),)


def _event_json(event: DecidedEvent, epoch: int) -> str:
    """Return the fields of a decision that are of its event."""
    schema, row = event.schema, event.row
    types = {field.name: field.type for field in schema.fields}
    names = dict.fromkeys(name for key in schema.keys for name in key)
    fields = {
        "stream": schema.name,
        "event_id": None if schema.event_id is None else _read(row, schema.event_id, types),
        "key": {name: _read(row, name, types) for name in names},
        "source": event.origin.place,
        "event_time_ms": event.origin.event_ms,
        "rules_epoch": epoch,
    }
    return orjson.dumps(fields, default=write_decimal).decode()


def _read(row: Mapping[str, Value], name: str, types: Mapping[str, Type]) -> object:
    return _shorten(to_json_value(row[name], types[name]))


def _shorten(value: object) -> object:
    """Return a JSON value; one of more than ``MAX_VALUE_BYTES`` as a text that is cut, as messages have it."""
    if not isinstance(value, str | list | dict):
        return value
    return value if len(orjson.dumps(value, default=write_decimal)) <= MAX_VALUE_BYTES else format_value(value)


def chosen_events(
    policy: CompiledPolicy, schema: StreamSchema, events: pl.DataFrame
) -> Iterator[tuple[DecisionCause, pl.DataFrame | None]]:
    """Yield the events that get a decision even if no rule fires: those of the policy's condition, then the others of
    its share; None for a condition that cannot be evaluated on these events.
    """
    others = events
    if (where := policy.wheres.get(schema.name)) is not None:
        chosen: pl.DataFrame | None
        try:
            condition = to_polars(where).fill_null(value=False)
            chosen, others = events.filter(condition), events.filter(~condition)
        except (Exception, pl.exceptions.PanicException):  # a panic inside Polars is no ``Exception``
            chosen = None
        yield DecisionCause.WHERE, chosen
    if policy.policy.share:
        yield DecisionCause.SHARE, others.filter(pl.Series(_in_share(policy.policy.share, schema, others)))


def _in_share(percent: float, schema: StreamSchema, events: pl.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return whether each event is in the share, by a hash of its id; of its partition and offset if it has none."""
    ids = None if schema.event_id is None else events[schema.event_id]
    if ids is not None and not ids.null_count():
        numbers = hash_columns([ids], events.height)
    else:
        numbers = hash_columns([events[PARTITION] % PARTITIONS_PER_TOPIC, events[OFFSET]], events.height)
        if ids is not None:
            numbers = np.where(ids.is_null().to_numpy(), numbers, hash_columns([ids], events.height))
    numbers = numbers >> np.uint64(11)  # 53 bits: a double has them all
    return numbers.astype(np.float64) < percent / 100 * 2.0**53
