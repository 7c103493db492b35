"""The tests that a rule carries: its events through the kernel, its alerts compared with the expected ones.

Of an event may be left out: nullable fields, the event id (``e1``, ``e2``, ... are given), and the event time (one
second after the other, from ``START_MS``). A time may also be written as ``+90s``: that long after ``START_MS``.

An expected alert names only the fields that matter. A name is looked for in the alert itself, then in its ``key``; a
mapping is compared the same way, entry by entry; a number equals a decimal that is written as text. Alerts may come in
any order; each expected one needs an alert of its own, and none may be left over.

Promises: a result is a value, and the same for the same rule and runner. Refuses to know how alerts are made: that is
the runner's part.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final, Protocol

import orjson

from rulecore.documents.rule import Rule, RuleTest
from rulecore.documents.scalars import ScalarValue, parse_duration_ms
from rulecore.documents.yaml_reader import Json
from streamcore.schema import StreamSchema

START_MS: Final = 1_767_571_200_000  # 2026-01-05 00:00 UTC, a Monday
_STEP_MS: Final = 1_000

#: What an alert has at its top.
ALERT_FIELDS: Final = frozenset(
    {
        "alert_id",
        "rule",
        "version",
        "kind",
        "stream",
        "severity",
        "outcome",
        "score",
        "message",
        "key",
        "window",
        "timing",
        "event_time_ms",
        "values",
        "source",
        "incomplete",
        "events",
    }
)

Event = Mapping[str, ScalarValue]
Alert = Mapping[str, Json]
Expected = Mapping[str, ScalarValue | dict[str, ScalarValue]]


class RuleRunner(Protocol):
    """Runs rules over events in this process, as if no other event had ever been.

    ``events`` holds, by stream, JSON objects in order of arrival; after the last one the watermark passes the end of
    every window. Gives the alerts, in order, as the JSON objects of the alerts lane (or of the shadow lane).
    """

    def __call__(
        self, rules: Sequence[Rule], streams: Mapping[str, StreamSchema], events: Mapping[str, Sequence[Event]]
    ) -> Sequence[Alert]: ...


@dataclass(frozen=True, slots=True)
class TestResult:
    """How one test of a rule went. ``diff`` is empty when it passed, else lines for a person."""

    __test__ = False  # pytest: not a class of tests

    rule: str
    test: str
    diff: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the alerts were the expected ones."""
        return not self.diff


def run_tests(
    rule: Rule, streams: Mapping[str, StreamSchema], runner: RuleRunner, others: Sequence[Rule] = ()
) -> tuple[TestResult, ...]:
    """Run all tests of a rule that compiles, each on its own. A runner that raises fails the test, not the caller.

    Of ``others`` those that a score rule names run with it; their own alerts are not looked at.
    """
    named = rule.score.of if rule.score is not None else {}
    rules = [*(other for other in others if other.id in named), rule]
    return tuple(_run(rules, test, streams, runner) for test in rule.tests)


def _run(rules: Sequence[Rule], test: RuleTest, streams: Mapping[str, StreamSchema], runner: RuleRunner) -> TestResult:
    rule = rules[-1]
    try:
        found = runner(rules, streams, {rule.on: complete(test.events, streams[rule.on])})
        alerts = [alert for alert in found if alert["rule"] == rule.id]
    except Exception as error:
        return TestResult(rule.id, test.name, (f"the run failed: {type(error).__name__}: {error}",))
    return TestResult(rule.id, test.name, compare(test.expect, alerts))


def complete(events: Sequence[Event], schema: StreamSchema) -> list[dict[str, ScalarValue]]:
    """Return the events with id and time filled in (see the top of the module)."""
    rows = []
    for number, event in enumerate(events):
        row = dict(event)
        if schema.event_id is not None:
            row.setdefault(schema.event_id, f"e{number + 1}")
        row[schema.event_time] = _time(row.get(schema.event_time), number)
        rows.append(row)
    return rows


def _time(value: ScalarValue, number: int) -> ScalarValue:
    if value is None:
        return _iso(START_MS + number * _STEP_MS)
    if isinstance(value, str) and value.startswith("+"):
        return _iso(START_MS + parse_duration_ms(value[1:]))
    return value


def _iso(time_ms: int) -> str:
    time = datetime.datetime.fromtimestamp(time_ms / 1_000, datetime.UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def compare(expected: Sequence[Expected], alerts: Sequence[Alert]) -> tuple[str, ...]:
    """Return the lines that list missing and surplus alerts; none when the alerts are the expected ones."""
    partner = _pair(expected, alerts)
    taken = set(partner.values())
    left = [alerts[i] for i in range(len(alerts)) if i not in taken]
    lines: list[str] = []
    for number, want in enumerate(expected):
        if number not in partner:
            lines.append(f"- missing  {_json(want)}")
            if left:
                nearest = min(left, key=lambda alert: len(_differences(want, alert)))
                lines += [f"           nearest: {line}" for line in _differences(want, nearest)]
    shown = ("rule", "severity", "key", "window", "timing", "values", "message")
    lines += [f"+ too many {_json({k: alert[k] for k in shown if k in alert})}" for alert in left]
    return tuple(lines)


def _pair(expected: Sequence[Expected], alerts: Sequence[Alert]) -> dict[int, int]:
    """Find a largest matching of expected to actual alerts (Kuhn's augmenting paths): a vague one must not take the
    only alert of an exact one."""
    owner: dict[int, int] = {}

    def place(want: int, seen: set[int]) -> bool:
        for i, alert in enumerate(alerts):
            if i not in seen and not _differences(expected[want], alert):
                seen.add(i)
                if i not in owner or place(owner[i], seen):
                    owner[i] = want
                    return True
        return False

    for want in range(len(expected)):
        place(want, set())
    return {want: alert for alert, want in owner.items()}


def _differences(expected: Expected, alert: Alert) -> list[str]:
    key = alert.get("key")
    fallback = key if isinstance(key, dict) else {}
    lines = []
    for name, want in expected.items():
        found = alert[name] if name in alert else fallback.get(name)
        if not _equal(want, found):
            lines.append(f"{name}: expected {_json(want)}, got {_json(found)}")
    return lines


def _equal(want: object, found: Json) -> bool:
    if isinstance(want, dict):
        return isinstance(found, dict) and all(_equal(value, found.get(name)) for name, value in want.items())
    if isinstance(want, bool) or isinstance(found, bool):
        return want is found
    if isinstance(want, int | float) and isinstance(found, int | float | str):
        try:
            return Decimal(str(want)) == Decimal(str(found))
        except InvalidOperation:
            return False
    return want == found


def _json(value: object) -> str:
    return orjson.dumps(value, default=str).decode()
