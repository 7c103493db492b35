"""Gathers the figures of the rules service's live view, from the app's reports, the generator and the app's topics.

Promises: ``state`` is cheap and never waits. Alerts, dead letters and late events are counted from the beginning of
their topics, so a view that starts later shows the same numbers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import orjson

from headgate.console.timeline import Timeline
from headgate.demo.service import ServiceRun
from headgate.demo.views.panels import RunMetrics
from headgate.demo.views.reason_counts import ReasonCounts
from headgate.demo.views.rules import AlertRow, RuleRow, ViewState, render
from headgate.demo.views.service_watch import run_metrics
from headgate.rules.publish import ControlResponse, read_responses
from rulecore.documents.rule import Rule
from rulecore.documents.status import StatusKind, Subject
from rulecore.ruleset.ruleset import RuleSet
from streamcore.kafka.readers import Follower, Record
from streamcore.kernel import ControlRecord
from streamcore.wire.lanes import ALERTS, DEAD_LETTERS, LATE, SHADOW, STATUS

if TYPE_CHECKING:
    from rich.layout import Layout

    from headgate.rules.bundle import RuleBundle

_ALERTS_KEPT: Final = 100
_POLLS: Final = 5  # of 10,000 records each, so that a long history does not freeze the view


class RulesLiveView:
    """Reads the app's topics until it is closed. For one thread."""

    def __init__(self, run: ServiceRun, bundle: RuleBundle, timeline: Timeline) -> None:
        self._run = run
        self._timeline = timeline
        names = run.workspace.names
        self._lanes = {names.lane(lane): lane for lane in (ALERTS, SHADOW, STATUS, LATE, DEAD_LETTERS)}
        self._control = names.control
        self._follower = Follower(run.kafka, [*self._lanes, self._control])
        self._counts: Counter[str] = Counter()
        self._reasons = ReasonCounts()
        self._matches: Counter[tuple[str, int]] = Counter()
        self._rules = RuleSet.empty(bundle.streams)
        self._responses: dict[tuple[str, int | None], ControlResponse] = {}
        self._alerts: list[tuple[int, int, AlertRow]] = []  # (time of writing, number, row)

    def close(self) -> None:
        """Close the consumer."""
        self._follower.close()

    def render(self, phase: str, width: int, height: int) -> Layout:
        """Draw the view for a terminal of ``width`` columns and ``height`` lines."""
        return render(self.state(phase), width, height)

    def status_line(self) -> str:
        """Render the metrics as one line."""
        state = self.state("")
        return (
            f"{state.processed or 0:,} events processed, lag {state.lag or 0:,}, {state.events_per_second:,.0f}/s; "
            f"{state.alert_count:,} alerts, {state.dead_letters:,} dead letters"
            f"{f' ({reasons})' if (reasons := state.reasons) else ''}, {state.late:,} late"
        )

    def poll(self) -> None:
        """Read the records that have arrived, without waiting for more."""
        for _ in range(_POLLS):
            records = self._follower.poll(0)
            if not records:
                return
            for record in records:
                self._add(record)
            self._alerts = sorted(self._alerts)[-_ALERTS_KEPT:]

    def state(self, phase: str) -> ViewState:
        """Return the current state of the view."""
        common = run_metrics(self._run, self._timeline, phase)
        return ViewState(
            **{name: getattr(common, name) for name in RunMetrics.__slots__},
            alert_count=self._counts[ALERTS],
            shadow_count=self._counts[SHADOW],
            dead_letters=self._counts[DEAD_LETTERS],
            late=self._counts[LATE],
            reasons=self._reasons.most(),
            rules=tuple(self._row(rule.rule) for _, rule in sorted(self._rules.rules.items())),
            alerts=tuple(row for *_, row in reversed(self._alerts)),
        )

    def _row(self, rule: Rule) -> RuleRow:
        response = self._responses.get((rule.id, rule.version))
        status = None if response is None else response.status
        return RuleRow(rule.id, rule.version, rule.mode_text, status, self._matches[rule.id, rule.version])

    def _add(self, record: Record) -> None:
        if record.topic == self._control:
            self._apply_control_record(record)
            return
        lane = self._lanes[record.topic]
        self._counts[lane] += 1
        if lane == STATUS:
            responses = (
                response
                for response in read_responses([record])
                if response.subject == Subject.RULE and response.status != StatusKind.COMPARED
            )
            self._responses |= {(response.rule, response.version): response for response in responses}
        elif lane == DEAD_LETTERS:
            self._reasons.add(record)
        elif lane in (ALERTS, SHADOW):
            self._add_alert(record, lane)

    def _apply_control_record(self, record: Record) -> None:
        """Apply a control record as the app does; `rules list --history` shows the reasons of rejected records."""
        change = ControlRecord(record.partition, record.offset, record.key, record.value)
        self._rules, _ = self._rules.apply([change], record.timestamp_ms)

    def _add_alert(self, record: Record, lane: str) -> None:
        body = orjson.loads(record.value or b"{}")
        self._matches[body["rule"], body["version"]] += 1
        if lane == ALERTS:
            key = " ".join(f"{name}={'null' if value is None else value}" for name, value in body["key"].items())
            row = AlertRow(body["event_time_ms"], body["severity"], body["rule"], key, body["message"])
            self._alerts.append((record.timestamp_ms, self._counts[ALERTS], row))
