"""Compares the alerts in the rules service's topics with the expected alerts.

The expectation (``headgate.demo.shop.expected_alerts``) shares no code with the product. Promises: every alert of the
shipped rules is expected, missing, duplicated or unexpected; the rules that are not compared are named in
``not_compared``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.demo.shop.expected_alerts import PER_EVENT, WINDOWED, AlertExpectation, AlertId, ExpectedAlerts
from headgate.demo.shop.stream import records
from headgate.demo.verify.summary import VerifySummary
from headgate.demo.workspace import PARTITIONS, Workspace
from headgate.rules.history import published_rules
from rulecore.documents.rule import Rule, RuleMode
from streamcore.kafka.readers import Record, end_offsets, read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.wire.lanes import ALERTS, DEAD_LETTERS, LATE

if TYPE_CHECKING:
    from headgate.rules.bundle import RuleBundle

_READ_LIMIT_MS = 600_000


@dataclass(frozen=True, slots=True)
class AlertCounts:
    """Counts of the topics at one moment: input events, and records of the output lanes."""

    events: int
    alerts: int
    dead_letters: int
    late: int


@dataclass(frozen=True, slots=True)
class AlertOutput:
    """The content of the topics. ``alerts``: the id of each alert, and its subject (None for a rule that is not
    compared)."""

    events: int
    alerts: tuple[tuple[str, AlertId | None], ...]
    dead_letters: int
    late: int

    @property
    def counts(self) -> AlertCounts:
        """The counts of this output."""
        return AlertCounts(self.events, len(self.alerts), self.dead_letters, self.late)


@dataclass(frozen=True, slots=True)
class AlertVerifyResult:
    """``run`` counts this run's alerts, ``total`` all since the shop was created, both of the compared rules.

    Missing, unexpected and duplicated alerts are counted in the total; duplicated ones among the alerts of all rules.
    ``uncertain`` alerts may be there or not (see ``ExpectedAlerts``).
    """

    run: AlertCounts
    run_expected: AlertCounts
    total: AlertCounts
    total_expected: AlertCounts
    uncertain: int
    missing: int
    duplicated: int
    unexpected: int
    not_compared: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Return whether no alert is missing, duplicated or unexpected, and every event is accounted for."""
        accounted_for = (self.total.dead_letters, self.total.late) == (
            self.total_expected.dead_letters,
            self.total_expected.late,
        )
        return accounted_for and not (self.missing or self.duplicated or self.unexpected)

    def summary(self) -> VerifySummary:
        """Return the result in the schema of all services."""
        return VerifySummary(
            passed=self.passed,
            events=self.run.events,
            produced=self.total.alerts,
            expected=self.total_expected.alerts,
            missing=self.missing,
            unexpected=self.unexpected,
            duplicated=self.duplicated,
            wrong=0,
            dead_letters=self.total.dead_letters,
            details={
                "run": {**asdict(self.run), "expected": asdict(self.run_expected)},
                "total": {**asdict(self.total), "expected": asdict(self.total_expected)},
                "uncertain": self.uncertain,
                "not_compared": list(self.not_compared),
            },
        )


class AlertVerifier:
    """Verifies the rules service: reads the topics before the run and at its end."""

    def __init__(self, kafka: KafkaSettings, shop: Workspace, bundle: RuleBundle, streams: Path | None) -> None:
        self._kafka = kafka
        self._shop = shop
        self._streams = streams
        self._shipped = [rule.rule for rule in bundle.rules]
        self._before = read(kafka, shop)
        self._rules: frozenset[str] = frozenset()
        self._others: tuple[str, ...] = ()

    def on_events_processed(self) -> None:
        """Read which rules the app runs, to compare only those that run as shipped."""
        published = published_rules(self._kafka, self._shop.names.app, self._streams)
        self._rules, self._others = comparable(self._shipped, published)

    def compare(self) -> AlertVerifyResult:
        """Read the topics again, and compare their content with the expected alerts."""
        return compare(self._before, read(self._kafka, self._shop), self._shop, self._rules, self._others)


def read(kafka: KafkaSettings, shop: Workspace) -> AlertOutput:
    """Read the committed content of the app's topics."""
    names = shop.names
    alerts = tuple(_alert(record) for record in _read_topic(kafka, names.lane(ALERTS)))
    events = sum(end_offsets(kafka, [names.events]).values())
    return AlertOutput(
        events, alerts, len(_read_topic(kafka, names.lane(DEAD_LETTERS))), len(_read_topic(kafka, names.lane(LATE)))
    )


def _read_topic(kafka: KafkaSettings, topic: str) -> Sequence[Record]:
    return read_topic(kafka, topic, limit_ms=_READ_LIMIT_MS)


def _alert(record: Record) -> tuple[str, AlertId | None]:
    """Return the alert's id and its subject; the subject is None for a rule that is not a shipped one."""
    body = json.loads(record.value or b"")
    is_verified = body["rule"] in PER_EVENT or body["rule"] in WINDOWED
    return body["alert_id"], AlertId.of(record.value or b"") if is_verified else None


def expectations(shop: Workspace, stops: Iterable[int]) -> list[ExpectedAlerts]:
    """Return the expected output of the first ``stop`` records, for each of the ascending ``stops``."""
    expectation = AlertExpectation(PARTITIONS)
    expected: list[ExpectedAlerts] = []
    start = 0
    for stop in stops:
        for record in records(shop.shop, start, stop):
            expectation.add(record)
        expected.append(expectation.result())
        start = stop
    return expected


def comparable(shipped: Iterable[Rule], published_rules: Mapping[str, Rule]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the ids of the rules that run live and as shipped, and the ids of all other shipped or published rules."""
    unchanged = frozenset(r.id for r in shipped if published_rules.get(r.id) == r and r.mode is RuleMode.LIVE)
    verified_rules = {*PER_EVENT, *WINDOWED}
    return unchanged & verified_rules, tuple(
        sorted((published_rules.keys() | verified_rules) - (unchanged & verified_rules))
    )


def compare(
    before: AlertOutput, after: AlertOutput, shop: Workspace, rules: frozenset[str], others: tuple[str, ...]
) -> AlertVerifyResult:
    """Compare the alerts of ``rules`` with the expected ones. ``others``: the rules that are not compared."""
    expected_before, expected = (_select_expected(e, rules) for e in expectations(shop, (before.events, after.events)))
    ids = Counter(alert_id for alert_id, _ in after.alerts)
    before, after = _select_rules(before, rules), _select_rules(after, rules)
    actual = {subject for _, subject in after.alerts}
    run = _difference(after.counts, before.counts)
    return AlertVerifyResult(
        run=run,
        run_expected=_difference(_expected_counts(expected), _expected_counts(expected_before)),
        total=after.counts,
        total_expected=_expected_counts(expected),
        uncertain=len(expected.uncertain),
        missing=len(expected.alerts - actual),
        duplicated=sum(count - 1 for count in ids.values()),
        unexpected=len(actual - expected.alerts - expected.uncertain),
        not_compared=others,
    )


def _select_rules(output: AlertOutput, rules: frozenset[str]) -> AlertOutput:
    alerts = tuple((i, subject) for i, subject in output.alerts if subject is not None and subject.rule in rules)
    return replace(output, alerts=alerts)


def _select_expected(expected: ExpectedAlerts, rules: frozenset[str]) -> ExpectedAlerts:
    return ExpectedAlerts(
        expected.records,
        frozenset(a for a in expected.alerts if a.rule in rules),
        frozenset(a for a in expected.uncertain if a.rule in rules),
        expected.dead_letters,
        expected.late,
    )


def _expected_counts(expected: ExpectedAlerts) -> AlertCounts:
    return AlertCounts(expected.records, len(expected.alerts), expected.dead_letters, expected.late)


def _difference(after: AlertCounts, before: AlertCounts) -> AlertCounts:
    return AlertCounts(
        after.events - before.events,
        after.alerts - before.alerts,
        after.dead_letters - before.dead_letters,
        after.late - before.late,
    )
