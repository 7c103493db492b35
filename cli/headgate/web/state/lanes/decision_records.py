"""Decisions as records of a lane, and the filter that selects some."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from headgate.explain.kafka_reader import KafkaRecord
from headgate.web.state.decision_values import DecisionValue
from headgate.web.state.lanes.lane_kind import LaneKind, find_needles, key_terms, term


@dataclass(frozen=True, slots=True)
class DecisionFilter:
    """Selects decisions; an entry that is empty selects all. ``rule``: one that fired, in shadow too. ``key``: a value
    of the key, or ``column=value``. ``since_ms`` and ``until_ms``: bounds of the time of the record, the second
    exclusive."""

    outcome: str = ""
    rule: str = ""
    key: str = ""
    policy: str = ""
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def terms(self) -> frozenset[str]:
        """The terms that each selected decision has."""
        words = {"outcome": self.outcome, "rule": self.rule, "key": self.key, "policy": self.policy}
        return frozenset(term(name, word) for name, word in words.items() if word)

    def matches(self, decision: DecisionValue) -> bool:
        """Return whether the filter selects the decision."""
        return (
            self.terms.issubset(decision_terms(decision))
            and (self.until_ms is None or decision.decided_ms < self.until_ms)
            and (self.since_ms is None or decision.decided_ms >= self.since_ms)
        )

    @property
    def needles(self) -> tuple[bytes, ...]:
        """Bytes that the record of each selected decision contains."""
        return find_needles((self.outcome, self.rule, self.policy, self.key.rpartition("=")[2]))


def decision_terms(decision: DecisionValue) -> Iterator[str]:
    """Yield the terms by which a decision is found."""
    yield term("outcome", decision.outcome)
    yield term("policy", decision.policy)
    for fired in (*decision.rules, *decision.shadow):
        yield term("rule", fired.rule)
    yield from key_terms(decision.key)


def parse_decision(record: KafkaRecord) -> DecisionValue | None:
    """Return the decision of a record; None for one that is none, because others may write there."""
    try:
        body = orjson.loads(record.value or b"")
        source = body["source"]
        return DecisionValue.model_validate(
            {
                **body,
                "decision_id": (record.key or b"").decode(),
                "source": f"{source['topic']}:{source['partition']}:{source['offset']}",
                "decided_ms": record.timestamp_ms,
                "left_out": body.get("left_out", 0),
                "partition": record.partition,
                "offset": record.offset,
            }
        )
    except (ValueError, KeyError, TypeError):
        return None


#: How decisions are read.
DECISION_KIND = LaneKind(parse_decision, decision_terms)
