"""What came out of a shop, read from its topics by a client that shares no code with the writer, against what must.

The expectation (``headgate.local.shop.expected``) shares no code with the product either. Promises: every alert on the
topic is found, missed, repeated or unexpected; nothing is left out silently: rules that are not the shipped ones are
named in ``not_compared``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.local.services.rules import published
from headgate.local.shop.expected import PER_EVENT, WINDOWED, AlertId, Expectation, Expected
from headgate.local.shop.stream import records
from headgate.local.workspace import PARTITIONS, Workspace
from headgate.output import Json
from rulecore.model import Mode, Rule
from streamcore.kafka.readers import Record, end_offsets, read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.lanes import ALERTS, DEAD_LETTERS, LATE

if TYPE_CHECKING:
    from headgate.rulebook import Book

_READ_LIMIT_MS = 600_000


@dataclass(frozen=True, slots=True)
class Mark:
    """How much was there at some moment: events, and records of the output lanes."""

    events: int
    alerts: int
    dead_letters: int
    late: int


@dataclass(frozen=True, slots=True)
class Found:
    """What the topics hold: ``alerts`` in order of reading."""

    events: int
    alerts: tuple[tuple[str, AlertId | None], ...]
    dead_letters: int
    late: int

    @property
    def mark(self) -> Mark:
        """The numbers."""
        return Mark(self.events, len(self.alerts), self.dead_letters, self.late)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``run`` counts what this run added, ``total`` everything since the shop was made, both of the compared rules.

    What is lost, unexpected or duplicated is looked for in everything; duplicated, among the alerts of all rules.
    ``uncertain`` alerts may be there or not (see ``Expected``).
    """

    run: Mark
    run_expected: Mark
    total: Mark
    total_expected: Mark
    uncertain: int
    lost: int
    duplicated: int
    unexpected: int
    not_compared: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Nothing lost, nothing twice, nothing too much, and every event accounted for."""
        told = (self.total.dead_letters, self.total.late) == (
            self.total_expected.dead_letters,
            self.total_expected.late,
        )
        return told and not (self.lost or self.duplicated or self.unexpected)

    def document(self) -> dict[str, Json]:
        """For programs."""
        return {
            **asdict(self.run),
            "expected_alerts": self.run_expected.alerts,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "unexpected": self.unexpected,
            "total": {**asdict(self.total), "expected": asdict(self.total_expected), "uncertain": self.uncertain},
            "not_compared": list(self.not_compared),
        }


class AlertCheck:
    """The check of the rules service: what the topics held before, and in the end."""

    def __init__(self, kafka: KafkaSettings, shop: Workspace, book: Book, streams: Path | None) -> None:
        self._kafka = kafka
        self._shop = shop
        self._streams = streams
        self._shipped = [rule.rule for rule in book.rules]
        self._before = read(kafka, shop)
        self._rules: frozenset[str] = frozenset()
        self._others: tuple[str, ...] = ()

    def processed(self) -> None:
        """See which rules run."""
        there = published(self._kafka, self._shop.names, self._streams)
        self._rules, self._others = comparable(self._shipped, there)

    def verdict(self) -> Verdict:
        """Read everything again, and compare."""
        return compare(self._before, read(self._kafka, self._shop), self._shop, self._rules, self._others)


def read(kafka: KafkaSettings, shop: Workspace) -> Found:
    """Everything that the shop's topics hold now, as far as it is committed."""
    names = shop.names
    alerts = tuple(_alert(record) for record in _all(kafka, names.lane(ALERTS)))
    events = sum(end_offsets(kafka, [names.events]).values())
    return Found(events, alerts, len(_all(kafka, names.lane(DEAD_LETTERS))), len(_all(kafka, names.lane(LATE))))


def _all(kafka: KafkaSettings, topic: str) -> Sequence[Record]:
    return read_topic(kafka, topic, limit_ms=_READ_LIMIT_MS)


def _alert(record: Record) -> tuple[str, AlertId | None]:
    """Its id and what it is about, None for a rule that is not among the shipped ones."""
    body = json.loads(record.value or b"")
    known = body["rule"] in PER_EVENT or body["rule"] in WINDOWED
    return body["alert_id"], AlertId.of(record.value or b"") if known else None


def expectations(shop: Workspace, stops: Iterable[int]) -> list[Expected]:
    """What must have come of the first records of the stream, for each of these rising numbers of records."""
    expectation = Expectation(PARTITIONS)
    found: list[Expected] = []
    start = 0
    for stop in stops:
        for record in records(shop.shop, start, stop):
            expectation.add(record)
        found.append(expectation.result())
        start = stop
    return found


def comparable(shipped: Iterable[Rule], published: Mapping[str, Rule]) -> tuple[frozenset[str], tuple[str, ...]]:
    """The rules that run as shipped, live; and the others, of either side."""
    same = frozenset(r.id for r in shipped if published.get(r.id) == r and r.mode is Mode.LIVE)
    known = {*PER_EVENT, *WINDOWED}
    return same & known, tuple(sorted((published.keys() | known) - (same & known)))


def compare(before: Found, after: Found, shop: Workspace, rules: frozenset[str], others: tuple[str, ...]) -> Verdict:
    """The verdict on everything, with the numbers of what came between the two readings."""
    was, now = (_only(e, rules) for e in expectations(shop, (before.events, after.events)))
    ids = Counter(alert_id for alert_id, _ in after.alerts)
    before, after = _found(before, rules), _found(after, rules)
    seen = {about for _, about in after.alerts}
    run = _difference(after.mark, before.mark)
    return Verdict(
        run=run,
        run_expected=_difference(_mark(now), _mark(was)),
        total=after.mark,
        total_expected=_mark(now),
        uncertain=len(now.uncertain),
        lost=len(now.alerts - seen),
        duplicated=sum(count - 1 for count in ids.values()),
        unexpected=len(seen - now.alerts - now.uncertain),
        not_compared=others,
    )


def _found(found: Found, rules: frozenset[str]) -> Found:
    alerts = tuple((i, about) for i, about in found.alerts if about is not None and about.rule in rules)
    return replace(found, alerts=alerts)


def _only(expected: Expected, rules: frozenset[str]) -> Expected:
    return Expected(
        expected.records,
        frozenset(a for a in expected.alerts if a.rule in rules),
        frozenset(a for a in expected.uncertain if a.rule in rules),
        expected.dead_letters,
        expected.late,
    )


def _mark(expected: Expected) -> Mark:
    return Mark(expected.records, len(expected.alerts), expected.dead_letters, expected.late)


def _difference(after: Mark, before: Mark) -> Mark:
    return Mark(
        after.events - before.events,
        after.alerts - before.alerts,
        after.dead_letters - before.dead_letters,
        after.late - before.late,
    )
