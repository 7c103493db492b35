"""Compares the decisions of two policies on the same events: how many would move from one outcome to another.

Each side has its own rules and its own policy. An event at which no rule of a side fires has the default outcome of its
policy. Beside the number of events, a column of numbers may be summed, such as the amount.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import orjson
import polars as pl

from rulecore import language as lang
from rulecore.alerts.decisions import decide
from rulecore.alerts.dispatch import AlertDelivery
from rulecore.documents.decision_policy import DecisionPolicy
from rulecore.documents.rule import Rule, RuleMode
from rulecore.documents.slots import EVALUATED
from rulecore.errors import RuleSetError
from rulecore.streams import RuleInput, stream_names
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import OFFSET, PARTITION, UNION, Kind, Type

#: The modes in which a rule counts in a decision. A back-test evaluates rules of all modes.
_COUNTS = (RuleMode.LIVE, RuleMode.CANARY)
_NUMBERS = (Kind.LONG, Kind.DOUBLE, Kind.DECIMAL)
_Place = tuple[int, int]


def policy_for(policies: Sequence[DecisionPolicy], on: str) -> DecisionPolicy | None:
    """Return the policy of the streams that a back-test reads, for these streams alone; None if there is none.

    Raises ``RuleSetError`` if there are several: a back-test has one.
    """
    names = {*stream_names(on)}
    found = [policy for policy in policies if names & {*stream_names(policy.on)}]
    if len(found) > 1:
        raise RuleSetError(f"on: {found[0].decision_policy} and {found[1].decision_policy} decide about {on}; name one")
    shared = [sorted(names & {*stream_names(policy.on)}) for policy in found]
    return found[0].model_copy(update={"on": UNION.join(shared[0])}) if found else None


@dataclass(frozen=True, slots=True)
class OutcomeMove:
    """Events that have the outcome ``new``, and with the other policy the outcome ``live`` (None without one).

    ``total``: the sum of the column over these events, None without a column.
    """

    live: str | None
    new: str
    events: int
    total: Decimal | float | None


@dataclass(frozen=True, slots=True)
class DecisionCounts:
    """The policies and the moves between their outcomes, the strongest first; ``summed``: the name of the column.
    ``records`` and ``live_records``: the number of events that the app would write a decision about; the others have
    the default outcome in ``moves``, and no record.
    """

    new: DecisionPolicy
    live: DecisionPolicy | None
    summed: str | None
    moves: tuple[OutcomeMove, ...]
    records: int
    live_records: int | None


class DecisionCounter:
    """Counts the moves between the outcomes of two policies, or the outcomes of one, cut by cut."""

    def __init__(
        self, source: RuleInput, new: DecisionPolicy, live: DecisionPolicy | None, summed: str | None = None
    ) -> None:
        """``summed``: the name of a column of numbers; ``RuleSetError`` if a stream of ``new`` does not have it."""
        self.source, self.new, self.live, self.summed = source, new, live, summed
        self._types = {} if summed is None else {name: self._type(name, summed) for name in stream_names(new.on)}
        self._events: Counter[tuple[str | None, str]] = Counter()
        self._records, self._live_records = 0, 0
        self._sums: dict[tuple[str | None, str], dict[str, Decimal | float]] = defaultdict(dict)

    def _type(self, stream: str, column: str) -> Type:
        (schema,) = (one.schema for one in self.source.streams if one.schema.name == stream)
        found = schema.get(column)
        if found is None or found.type.kind not in _NUMBERS:
            raise RuleSetError(f"stream {stream} has no number {column} to add up")
        return found.type

    def add(self, frames: Mapping[str, pl.DataFrame], new: Decided, live: Decided | None) -> None:
        """Add the events of one cut, by stream, with what each side has decided about them."""
        self._records += len(new.recorded)
        self._live_records += 0 if live is None else len(live.recorded)
        for stream in stream_names(self.new.on):
            frame = frames[stream]
            places: list[_Place] = [*zip(frame[PARTITION].to_list(), frame[OFFSET].to_list(), strict=True)]
            moves = [(None if live is None else live.outcome(place), new.outcome(place)) for place in places]
            self._events.update(moves)
            if self.summed is not None and frame.height:
                self._add_sums(stream, frame[self.summed], moves)

    def _add_sums(self, stream: str, values: pl.Series, moves: Sequence[tuple[str | None, str]]) -> None:
        """Add the values of the events of one stream."""
        for move, value in zip(moves, values.to_list(), strict=True):
            if value is not None:
                own = self._sums[move]
                own[stream] = own.get(stream, 0) + value

    def counts(self) -> DecisionCounts:
        """Return the counts so far."""
        order = [*self.new.decide.order, *(() if self.live is None else self.live.decide.order)]
        moves = sorted(self._events, key=lambda m: (order.index(m[1]), -1 if m[0] is None else order.index(m[0])))
        found = (OutcomeMove(*move, self._events[move], self._total(move)) for move in moves)
        live_records = None if self.live is None else self._live_records
        return DecisionCounts(self.new, self.live, self.summed, tuple(found), self._records, live_records)

    def _total(self, move: tuple[str | None, str]) -> Decimal | float | None:
        if self.summed is None:
            return None
        parts = [lang.to_logical(value, self._types[stream]) for stream, value in self._sums[move].items()]
        return sum(parts[1:], parts[0]) if parts else 0


def restore_modes(parts: pl.DataFrame, rules: Mapping[str, Rule]) -> pl.DataFrame:
    """Return the parts of a cut as they would be in the app: a back-test runs rules of all modes as live ones, with
    alerts. ``rules``: by id, those of the side as their author wrote them; others take no part."""
    rows: list[dict[str, object]] = []
    for row in parts.iter_rows(named=True):
        rule = rules.get(row["rule"])
        if rule is not None and rule.status in EVALUATED:
            entry = orjson.loads(row["entry"]) | {"mode": rule.status.value}
            entry |= {} if rule.then.alert else {"alert": AlertDelivery.NONE.value}
            rows.append({**row, "counts": rule.status in _COUNTS, "entry": orjson.dumps(entry).decode()})
        elif not row["rule"]:
            rows.append(row)
    return pl.DataFrame(rows, schema=parts.schema)


@dataclass(slots=True)
class Decided:
    """The outcomes of one side in one cut, by source partition and offset; others have the default. ``recorded``: the
    places of the events that have a decision."""

    policy: DecisionPolicy
    outcomes: dict[_Place, str] = field(default_factory=dict)
    recorded: set[_Place] = field(default_factory=set)

    def outcome(self, place: _Place) -> str:
        """Return the outcome of an event."""
        return self.outcomes.get(place, self.policy.decide.default)


def decide_parts(
    policy: DecisionPolicy, parts: Sequence[pl.DataFrame], source: RuleInput, modes: Mapping[str, RuleMode]
) -> Decided:
    """Return a policy's decisions, from the parts of a cut. ``modes``: by id, those of the rules of the side."""
    recorded: set[_Place] = set()
    fired: dict[_Place, dict[str, tuple[str | None, int]]] = defaultdict(dict)
    for frame in parts:
        for row in frame.select("topic", "partition", "offset", "rule", "outcome", "score").iter_rows():
            topic, partition, offset, rule, outcome, score = row
            place = (source.source(topic) * PARTITIONS_PER_TOPIC + partition, offset)
            if not rule or modes.get(rule) in EVALUATED:
                recorded.add(place)
            if modes.get(rule) in _COUNTS:
                fired[place][rule] = (outcome, score)
    how = policy.decide.model_dump(mode="json")
    return Decided(policy, {place: decide(how, rules.values())[0] for place, rules in fired.items()}, recorded)
