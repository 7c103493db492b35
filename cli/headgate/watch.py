"""Gathers what the live view shows: the app's reports, the generator's position, and the app's topics as read live.

Promises: ``state`` is cheap and never waits. Counts of alerts, dead letters and late events are of the whole topics, so
a view that starts later shows the same numbers.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from types import TracebackType
from typing import Final

import orjson

from headgate.local.stack import Stack
from headgate.publishing import Answer, read_answers
from headgate.timeline import Timeline
from headgate.view import AlertRow, RuleRow, ViewState
from rulecore.errors import RuleError
from rulecore.load import decode_record
from rulecore.model import Rule
from streamcore.kafka.control import key_of
from streamcore.kafka.readers import Follower, Record
from streamcore.lanes import ALERTS, DEAD_LETTERS, LATE, SHADOW, STATUS

_ALERTS_KEPT: Final = 100
_POLLS: Final = 5  # of 10,000 records each, so that a long history does not freeze the view
_RULE_BYTES: Final = 1 << 20


class Watch:
    """Follows a stack's topics. Use it as a context; one thread."""

    def __init__(self, stack: Stack, timeline: Timeline) -> None:
        self._stack = stack
        self._timeline = timeline
        names = stack.shop.names
        self._lanes = {names.lane(lane): lane for lane in (ALERTS, SHADOW, STATUS, LATE, DEAD_LETTERS)}
        self._control = names.control
        self._follower = Follower(stack.kafka, [*self._lanes, self._control])
        self._counts: Counter[str] = Counter()
        self._matches: Counter[str] = Counter()
        self._rules: dict[str, Rule] = {}
        self._offsets: dict[str, int] = {}
        self._answers: dict[str, Answer] = {}
        self._alerts: list[tuple[int, int, AlertRow]] = []  # with time of writing and number, in that order

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._follower.close()

    def poll(self) -> None:
        """Read what has come."""
        for _ in range(_POLLS):
            records = self._follower.poll(0)
            if not records:
                return
            for record in records:
                self._take(record)
            self._alerts = sorted(self._alerts)[-_ALERTS_KEPT:]

    def state(self, phase: str) -> ViewState:
        """What is known now."""
        figures, generator, shop = self._stack.app.figures, self._stack.generator, self._stack.shop
        return ViewState(
            app=shop.names.app,
            bootstrap=self._stack.kafka.bootstrap,
            phase=phase,
            elapsed_s=self._timeline.elapsed_s,
            sent=generator.next_index,
            processed=None if figures.committed is None else figures.processed,
            events_per_second=figures.events_per_second,
            lag_s=generator.waiting_s(figures.processed),
            newest_event_ms=generator.newest_event_ms,
            watermark_ms=figures.watermark_ms,
            cut_ms=figures.cut_ms,
            cuts=figures.cuts,
            epoch=figures.epoch,
            alert_count=self._counts[ALERTS],
            shadow_count=self._counts[SHADOW],
            dead_letters=self._counts[DEAD_LETTERS],
            late=self._counts[LATE],
            rules=tuple(self._row(rule) for _, rule in sorted(self._rules.items())),
            alerts=tuple(row for *_, row in reversed(self._alerts)),
        )

    def _row(self, rule: Rule) -> RuleRow:
        return RuleRow(rule.id, rule.version, rule.mode_text, self._status(rule.id), self._matches[rule.id])

    def _status(self, name: str) -> str | None:
        """The answer to the record that counts, or a later one that answers none (quarantine)."""
        answer = self._answers.get(name)
        answers = answer is not None and (answer.position.offset < 0 or answer.position.offset >= self._offsets[name])
        return answer.status if answer is not None and answers else None

    def _take(self, record: Record) -> None:
        if record.topic == self._control:
            self._take_rule(record)
            return
        lane = self._lanes[record.topic]
        self._counts[lane] += 1
        if lane == STATUS:
            self._answers |= {answer.rule: answer for answer in read_answers([record])}
        elif lane in (ALERTS, SHADOW):
            self._take_alert(record, lane)

    def _take_rule(self, record: Record) -> None:
        name = key_of(record)
        self._rules.pop(name, None)
        if record.value is not None:
            with contextlib.suppress(RuleError):  # the app rejects it too, and `rules list` shows why
                self._rules[name] = decode_record(record.value, _RULE_BYTES)
                self._offsets[name] = record.offset

    def _take_alert(self, record: Record, lane: str) -> None:
        body = orjson.loads(record.value or b"{}")
        self._matches[body["rule"]] += 1
        if lane == ALERTS:
            key = " ".join(f"{name}={'null' if value is None else value}" for name, value in body["key"].items())
            row = AlertRow(body["event_time_ms"], body["severity"], body["rule"], key, body["message"])
            self._alerts.append((record.timestamp_ms, self._counts[ALERTS], row))
