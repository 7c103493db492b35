"""Decisions of an app: pages of them by outcome, rule, key and policy; one by its id, and how it came about."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.explain.decision import ExplainedDecision, explain_record
from headgate.explain.kafka_reader import KafkaRecord
from headgate.web.problems import not_found
from headgate.web.state.decision_values import DecisionPage, DecisionValue
from headgate.web.state.lanes.decision_records import DECISION_KIND, DecisionFilter
from headgate.web.state.lanes.lane_kind import term
from headgate.web.state.lanes.lane_reader import LaneReader
from rulecore.ruleset.history import RuleHistory
from streamcore.kafka.settings import KafkaSettings
from streamcore.wire.lanes import DECISIONS


class DecisionReader:
    """Reads the decisions of an app. ``scan``: the most records that one search reads."""

    def __init__(self, kafka: KafkaSettings, app: str, scan: int) -> None:
        self._app, self._scan = app, scan
        self._lane = LaneReader(kafka, f"{app}.{DECISIONS}", DECISION_KIND, scan)

    def close(self) -> None:
        """Close the consumer."""
        self._lane.close()

    def page(self, wanted: DecisionFilter, limit: int, below: Mapping[int, int]) -> DecisionPage:
        """Return up to ``limit`` decisions, the newest first."""
        found = self._lane.page(wanted, limit, below)
        return DecisionPage(decisions=found.values, read=found.read, next=found.next)

    def outcomes(self, wanted: DecisionFilter, most: int) -> list[tuple[int, str]]:
        """Return time and outcome of the newest decisions in memory that the filter selects, whenever they were."""
        lead = term("outcome", "")
        found = self._lane.newest(wanted, most)
        return [(ms, one.removeprefix(lead)) for ms, terms in found for one in terms if one.startswith(lead)]

    def find(self, decision_id: str) -> DecisionValue:
        """Return a decision. ``ProblemError`` if it is not among the last ``scan`` ones."""
        return self._find(decision_id)[1]

    def known(self, decision_id: str) -> DecisionValue | None:
        """Return a decision that is among the newest in memory; None if it is not."""
        return self._lane.parse(self._lane.known(decision_id))

    def explain(self, decision_id: str, history: RuleHistory) -> tuple[DecisionValue, ExplainedDecision]:
        """Return a decision, and how it came about. ``ProblemError`` if it is not among the last ``scan`` ones."""
        record, decision = self._find(decision_id)
        return decision, explain_record(record, history)

    def _find(self, decision_id: str) -> tuple[KafkaRecord, DecisionValue]:
        record = self._lane.find(decision_id)
        decision = self._lane.parse(record)
        if record is None or decision is None:
            app = self._app
            raise not_found(f"decision {decision_id} is not among the last {self._scan:,} decisions of app {app}")
        return record, decision
