"""Decides for each firing whether it becomes an alert, and on which lane; compares versions on trial.

A decision depends only on the firing, the rule set and the state of this shard. The module knows neither how rules are
evaluated nor the format of an alert.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from rulecore.alerts.key_hashes import owned_entries
from rulecore.alerts.suppression import Suppression
from rulecore.alerts.trial_comparison import TrialComparison
from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import Canary, RuleMode
from rulecore.documents.status import RuleStatus, StatusKind
from rulecore.language.types import Value
from rulecore.ruleset.ruleset import RuleSet
from rulecore.settings import DispatchSettings
from streamcore.kernel import Cut
from streamcore.state import StateTable
from streamcore.state.scope import LOCAL, ScopeKind, TableScope
from streamcore.wire.lanes import ALERTS, SHADOW

SUPPRESSED: Final = "suppressed"
_SUPPRESSION, _COUNTS, _SUBJECTS = "suppressed", "compared", "subjects"


@dataclass(frozen=True, slots=True)
class FiredRule:
    """The part of a firing that decides about its alert.

    ``key``: the physical values of the rule's key columns. ``by``: the values of ``suppress.by``. ``mark`` identifies
    the firing among those of the key. ``time_ms``: the event time of the firing. ``end_ms``: once the watermark has
    passed this time, no version of the rule fires with this mark. Times are in epoch milliseconds.
    """

    rule: CompiledRule
    key: Sequence[Value]
    by: Sequence[Value]
    mark: Sequence[object]
    time_ms: int
    end_ms: int


class AlertDelivery(enum.StrEnum):
    """Whether a firing's alert is sent, or why not: suppressed, or the rule has ``alert: false``."""

    SENT = "sent"
    SUPPRESSED = "suppressed"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class DispatchedFiring:
    """The lane of a firing, whether its alert is sent there, whether the firing counts in a decision, and
    ``suppressed`` (see ``AlertContext``)."""

    lane: str
    delivery: AlertDelivery
    counts: bool
    suppressed: int | None = None


class AlertDispatcher:
    """Decides about the alerts of one shard, and holds the state for that."""

    def __init__(self, settings: DispatchSettings) -> None:
        self.suppression = Suppression(settings.late_ms)
        self.comparison = TrialComparison(settings.compared, settings.compare_every_ms)
        self.counters: dict[str, int] = {}

    def tables(self) -> Mapping[str, StateTable]:
        """Return the tables by name."""
        return {
            _SUPPRESSION: self.suppression.table,
            _COUNTS: self.comparison.counts,
            _SUBJECTS: self.comparison.subjects,
        }

    def scope(self, name: str, rules: RuleSet) -> TableScope:
        """Return the scope of a table. A comparison of versions begins anew with another number of shards."""
        if name != _SUPPRESSION:
            return LOCAL
        return TableScope(ScopeKind.KEYED, lambda rows: owned_entries(rows, rules))

    def on_state_loaded(self) -> None:
        """Rebuild the queues of expiries after the tables' rows have been loaded."""
        self.suppression.on_state_loaded()
        self.comparison.on_state_loaded()

    def dispatch(self, fired: FiredRule, rules: RuleSet) -> DispatchedFiring:
        """Return the lane of a firing and whether its alert is sent; update suppression and the comparison of versions
        on trial."""
        rule = fired.rule.rule
        lane = alert_lane(fired.rule, fired.key, rules)
        counts = lane == ALERTS if divides_by_key(rule.id, rules) else rule.mode is RuleMode.LIVE
        self._compare(fired, rules)
        if not rule.then.alert:
            return DispatchedFiring(lane, AlertDelivery.NONE, counts)
        if rule.suppress is None:
            return DispatchedFiring(lane, AlertDelivery.SENT, counts)
        before = self.suppression.passes(fired.rule, fired.by, fired.time_ms)
        if before is None:
            self.count(f"{SUPPRESSED}.{rule.id}")
            return DispatchedFiring(lane, AlertDelivery.SUPPRESSED, counts)
        return DispatchedFiring(lane, AlertDelivery.SENT, counts, before)

    def _compare(self, fired: FiredRule, rules: RuleSet) -> None:
        """Record the firing for the comparison, if a candidate is on trial beside a live version."""
        live, candidate = rules.live(fired.rule.rule.id), rules.candidate(fired.rule.rule.id)
        if live is None or candidate is None:
            return
        subject = orjson.dumps([list(fired.key), list(fired.mark)], default=str).decode()
        self.comparison.record_firing(
            fired.rule.rule.id,
            (live.rule.version, candidate.rule.version),
            candidate=fired.rule.rule.version == candidate.rule.version,
            subject=subject,
            end_ms=fired.end_ms,
        )

    def close(self, cut: Cut, rules: RuleSet) -> Iterable[RuleStatus]:
        """End a cut: drop expired state and report the results of trials."""
        self.suppression.expire(cut.next_watermark_ms)
        self.comparison.expire(cut.next_watermark_ms)
        for rule, counts in self.comparison.counts_to_report(cut.clock_ms):
            firings = {"only_live": counts.only_live, "only_candidate": counts.only_candidate, "both": counts.both}
            compared = {"live": counts.live, "candidate": counts.candidate, "shard": cut.shard, **firings}
            yield RuleStatus(rule, counts.candidate, StatusKind.COMPARED, None, rules.epoch, 0, -1, compared=compared)

    def count(self, name: str, more: int = 1) -> None:
        """Add to a counter of this cut."""
        self.counters[name] = self.counters.get(name, 0) + more

    def take_counters(self) -> Mapping[str, int]:
        """Return the counters of this cut and reset them."""
        counters, self.counters = self.counters, {}
        return counters


def alert_lane(compiled: CompiledRule, key: Sequence[Value], rules: RuleSet) -> str:
    """Return the lane of the alerts of a version for a key.

    While a canary is on trial, its alerts go to ``alerts`` for its percentage of the keys, and those of the live
    version for the other keys. All others go to ``shadow``.
    """
    rule = compiled.rule
    if isinstance(rule.mode, Canary):
        return ALERTS if canary_fraction(rule.id, key) < rule.mode.percent / 100 else SHADOW
    if rule.mode is not RuleMode.LIVE:
        return SHADOW
    trial = rules.candidate(rule.id)
    if trial is not None and isinstance(trial.rule.mode, Canary) and trial in rules.evaluated_versions(rule.id):
        return SHADOW if canary_fraction(rule.id, key) < trial.rule.mode.percent / 100 else ALERTS
    return ALERTS


def divides_by_key(rule_id: str, rules: RuleSet) -> bool:
    """Return whether a canary and the live version, if both are evaluated, have one key, so that exactly one of them
    alerts for each. Else an event is of one key for the canary and of another for the live version, and a decision
    about the event would have both versions or none: there the live version counts alone."""
    return len({version.group_by or version.route_key for version in rules.evaluated_versions(rule_id)}) < 2


def canary_fraction(rule_id: str, key: Sequence[Value]) -> float:
    """Return a number in [0, 1), a hash of rule id and key. A canary of p percent has the keys below p / 100."""
    digest = hashlib.blake2b(orjson.dumps([rule_id, list(key)], default=str), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
