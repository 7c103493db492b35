"""The tests of a rule: run its events through a runner and compare the alerts with the expected ones.

An event may omit nullable fields, the event id (``e1``, ``e2``, ... by default), and the event time (by default one
second after the event before, from ``START_MS`` on). A time may also be written as ``+90s``: 90 s after ``START_MS``.
An event of a rule on several streams names its own in ``_stream``.

An expected alert names only some fields. A name is a field of the alert or else of its ``key``. A mapping is compared
entry by entry; a number equals a decimal written as text. Alerts may be in any order. Each expected alert must match an
alert of its own, and no other alerts are allowed.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final, Protocol

import orjson

from rulecore.documents.decision_policy import DecisionPolicy
from rulecore.documents.rule import Rule, RuleMode, RuleTest
from rulecore.documents.scalars import FieldValue
from rulecore.documents.slots import EVALUATED
from rulecore.documents.yaml_reader import Json
from rulecore.errors import RuleSetError
from rulecore.streams import STREAM, stream_names
from streamcore.durations import parse_duration_ms
from streamcore.errors import StreamError
from streamcore.schema import Kind, StreamSchema

START_MS: Final = 1_767_571_200_000  # 2026-01-05 00:00 UTC, a Monday
_STEP_MS: Final = 1_000

#: The top-level fields of alerts.
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
        "event",
        "events",
    }
)

#: The fields of an alert that nobody expected which are shown.
_SHOWN: Final = ("rule", "severity", "key", "window", "timing", "values", "message")

#: The fields of decisions.
DECISION_FIELDS: Final = frozenset(
    {
        "decision_id",
        "policy",
        "version",
        "outcome",
        "score",
        "band",
        "cause",
        "stream",
        "event_id",
        "key",
        "source",
        "event_time_ms",
        "rules_epoch",
        "rules",
        "shadow",
        "left_out",
    }
)

_SHOWN_OF_DECISIONS: Final = ("event_id", "outcome", "score", "band", "cause", "key", "rules", "shadow")

Event = Mapping[str, FieldValue]
Alert = Mapping[str, Json]
Expected = Mapping[str, FieldValue]


class RuleRunner(Protocol):
    """Runs rules on events, with empty state, and returns the alerts in order, as the JSON objects of their lane.

    ``events``: by stream, JSON objects in order of arrival. After the last event, the watermark passes the end of every
    window.
    """

    def __call__(
        self, rules: Sequence[Rule], streams: Mapping[str, StreamSchema], events: Mapping[str, Sequence[Event]]
    ) -> Sequence[Alert]: ...


class PolicyRunner(Protocol):
    """Runs rules and a decision policy on events, as ``RuleRunner`` does, and returns the decisions."""

    def __call__(
        self,
        policy: DecisionPolicy,
        rules: Sequence[Rule],
        streams: Mapping[str, StreamSchema],
        events: Mapping[str, Sequence[Event]],
    ) -> Sequence[Alert]: ...


@dataclass(frozen=True, slots=True)
class TestResult:
    """The result of one test of a rule or policy. ``diff``: lines that show the differences, empty if the test passed.
    ``alerts``: those that the rule has raised."""

    __test__ = False  # pytest: not a class of tests

    rule: str
    test: str
    diff: tuple[str, ...] = ()
    alerts: tuple[Alert, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the alerts were the expected ones."""
        return not self.diff


def run_tests(
    rule: Rule, streams: Mapping[str, StreamSchema], runner: RuleRunner, others: Sequence[Rule] = ()
) -> tuple[TestResult, ...]:
    """Run all tests of a valid rule, each separately. An error of the runner is a failed test and is not raised.

    ``others``: rules of which those run too that a score rule names; their alerts are ignored. A rule in a mode in
    which it is not evaluated, such as a draft, is tested as a live one.
    """
    rule = rule if rule.status in EVALUATED else rule.model_copy(update={"mode": RuleMode.LIVE})
    named = rule.score.of if rule.score is not None else {}
    rules = [*(other for other in others if other.id in named), rule]
    return tuple(_run(rules, test, streams, runner) for test in rule.tests)


def _run(rules: Sequence[Rule], test: RuleTest, streams: Mapping[str, StreamSchema], runner: RuleRunner) -> TestResult:
    rule = rules[-1]
    try:
        found = runner(rules, streams, split_by_stream(rule, test.events, streams))
        alerts = [alert for alert in found if alert["rule"] == rule.id]
    except Exception as error:
        return TestResult(rule.id, test.name, (_failure(error),))
    return TestResult(rule.id, test.name, compare(test.expect, alerts), tuple(alerts))


def run_policy_tests(
    policy: DecisionPolicy, streams: Mapping[str, StreamSchema], runner: PolicyRunner, rules: Sequence[Rule]
) -> tuple[TestResult, ...]:
    """Run all tests of a decision policy, each separately, with those of the rules that read its streams. An error is a
    failed test and is not raised.

    A decision is compared as an alert is. ``rules`` and ``shadow`` of it are lists of the rules' ids.
    """
    names = {*stream_names(policy.on)}
    reading = [rule for rule in rules if rule.status in EVALUATED and names & {*stream_names(rule.on)}]
    return tuple(_run_policy(policy, test, streams, runner, reading) for test in policy.tests)


def _run_policy(
    policy: DecisionPolicy,
    test: RuleTest,
    streams: Mapping[str, StreamSchema],
    runner: PolicyRunner,
    rules: Sequence[Rule],
) -> TestResult:
    try:
        events = split_by_stream(policy, test.events, streams)
        decisions = [_with_ids(one) for one in runner(policy, rules, streams, events)]
    except Exception as error:
        return TestResult(policy.decision_policy, test.name, (_failure(error),))
    return TestResult(
        policy.decision_policy, test.name, compare(test.expect, decisions, _SHOWN_OF_DECISIONS), tuple(decisions)
    )


def _failure(error: Exception) -> str:
    """Return the line for an error of a run: what an author can mend has a message that needs no name of a class."""
    return f"the run failed: {error if isinstance(error, StreamError) else f'{type(error).__name__}: {error}'}"


def _with_ids(decision: Alert) -> Alert:
    """Return the decision with the ids of rules in place of their entries."""
    ids: dict[str, Json] = {}
    for name in ("rules", "shadow"):
        entries = decision[name]
        assert isinstance(entries, list)
        ids[name] = [entry["rule"] for entry in entries if isinstance(entry, dict)]
    return {**decision, **ids}


def split_by_stream(
    rule: Rule | DecisionPolicy, events: Sequence[Event], streams: Mapping[str, StreamSchema]
) -> dict[str, list[dict[str, FieldValue]]]:
    """Return the completed events of each stream that the rule or policy reads. ``RuleSetError`` if one names none of
    them."""
    names = stream_names(rule.on)
    if len(names) == 1:
        return {rule.on: complete(events, streams[rule.on])}
    numbered: dict[str, list[tuple[int, Event]]] = {name: [] for name in names}
    for number, event in enumerate(events):
        name = event.get(STREAM)
        if name not in names:
            raise RuleSetError(f"events[{number}]: {STREAM}: name the stream of the event, {' or '.join(names)}")
        numbered[str(name)].append((number, {key: value for key, value in event.items() if key != STREAM}))
    return {
        name: complete([event for _, event in own], streams[name], [number for number, _ in own])
        for name, own in numbered.items()
    }


def complete(
    events: Sequence[Event], schema: StreamSchema, numbers: Sequence[int] | None = None
) -> list[dict[str, FieldValue]]:
    """Return the events with default ids and times (see the module docstring). ``numbers``: their numbers in the test,
    if it has events of other streams too."""
    rows = []
    for number, event in zip(range(len(events)) if numbers is None else numbers, events, strict=True):
        row = dict(event)
        event_id = None if schema.event_id is None else schema.get(schema.event_id)
        if event_id is not None:
            row.setdefault(event_id.name, number + 1 if event_id.type.kind is Kind.LONG else f"e{number + 1}")
        row[schema.event_time] = _time(row.get(schema.event_time), number, f"events[{number}]: {schema.event_time}")
        rows.append(row)
    return rows


def _time(value: FieldValue, number: int, place: str) -> FieldValue:
    if value is None:
        return _iso(START_MS + number * _STEP_MS)
    try:
        after_ms = parse_offset_ms(value)
        return value if after_ms is None else _iso(START_MS + after_ms)
    except (ValueError, OverflowError) as error:
        raise RuleSetError(f"{place}: {error}") from None


def parse_offset_ms(value: object) -> int | None:
    """Return the milliseconds of a time such as ``+90s`` or ``+0s``, None for any other form of a time. Raise
    ``ValueError`` for text that begins with ``+`` and is no such time."""
    return parse_duration_ms(value[1:]) if isinstance(value, str) and value.startswith("+") else None


def _iso(time_ms: int) -> str:
    time = datetime.datetime.fromtimestamp(time_ms / 1_000, datetime.UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def compare(
    expected: Sequence[Expected],
    alerts: Sequence[Alert],
    shown: Collection[str] | None = _SHOWN,
    contained: Collection[str] = (),
) -> tuple[str, ...]:
    """Return lines that list missing and surplus alerts, or other JSON objects; none if they are the expected ones.

    ``shown``: the fields of a surplus one that are shown; None: all. ``contained``: fields of which the expected text
    is a part.
    """
    partner = _pair(expected, alerts, contained)
    taken = set(partner.values())
    left = [alerts[i] for i in range(len(alerts)) if i not in taken]
    lines: list[str] = []
    for number, want in enumerate(expected):
        if number not in partner:
            lines.append(f"- missing  {_json(want)}")
            if left:
                nearest = min(left, key=lambda alert: len(_differences(want, alert, contained)))
                lines += [f"           nearest: {line}" for line in _differences(want, nearest, contained)]
    lines += [f"+ too many {_json({k: alert[k] for k in shown or alert if k in alert})}" for alert in left]
    return tuple(lines)


def _pair(expected: Sequence[Expected], alerts: Sequence[Alert], contained: Collection[str]) -> dict[int, int]:
    """Return a largest matching of expected alerts to alerts, by index (Kuhn's augmenting paths).

    A greedy matching could give the only alert of a detailed expectation to one that names few fields.
    """
    owner: dict[int, int] = {}

    def place(want: int, seen: set[int]) -> bool:
        for i, alert in enumerate(alerts):
            if i not in seen and not _differences(expected[want], alert, contained):
                seen.add(i)
                if i not in owner or place(owner[i], seen):
                    owner[i] = want
                    return True
        return False

    for want in range(len(expected)):
        place(want, set())
    return {want: alert for alert, want in owner.items()}


def _differences(expected: Expected, alert: Alert, contained: Collection[str]) -> list[str]:
    key = alert.get("key")
    fallback = key if isinstance(key, dict) else {}
    lines = []
    for name, want in expected.items():
        found = alert[name] if name in alert else fallback.get(name)
        if name in contained and isinstance(want, str) and isinstance(found, str) and want in found:
            continue
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
