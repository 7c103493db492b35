"""Between a firing and its alert: which lane it goes to, whether it is suppressed, what the trial of a version learns.

Promises: decisions depend on the firing, the rule set and the state of this shard alone. Refuses to know how firings
come about and what an alert looks like.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from rulecore.comparison import Comparison
from rulecore.compiled import CompiledRule
from rulecore.lang.types import Value
from rulecore.model import Canary, Mode
from rulecore.ruleset import RuleSet
from rulecore.settings import OutletSettings
from rulecore.status import Status, StatusKind
from rulecore.suppression import Suppression
from streamcore.kernel import Cut
from streamcore.lanes import ALERTS, SHADOW
from streamcore.state import StateTable

SUPPRESSED: Final = "suppressed"
_SUPPRESSION, _COUNTS, _SUBJECTS = "suppressed", "compared", "subjects"


@dataclass(frozen=True, slots=True)
class Fired:
    """What the outlet has to know of a firing. ``key``: physical values of the rule's key, in order of its columns.

    ``by``: of the columns of ``suppress``. ``mark`` tells firings of the key apart; ``end_ms``: no version of the rule
    fires for the same mark after the watermark has passed it.
    """

    rule: CompiledRule
    key: Sequence[Value]
    by: Sequence[Value]
    mark: Sequence[object]
    time_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """``lane`` None: no alert. ``suppressed``: how many were not given before this one; None where nothing is."""

    lane: str | None
    suppressed: int | None = None


_NO_ALERT: Final = Verdict(None)


class Outlet:
    """Of one shard."""

    def __init__(self, settings: OutletSettings) -> None:
        self.suppression = Suppression(settings.suppressed, settings.late_ms)
        self.comparison = Comparison(settings.compared, settings.compare_every_ms)
        self.counted: dict[str, int] = {}

    def tables(self) -> Mapping[str, StateTable]:
        """By name."""
        return {
            _SUPPRESSION: self.suppression.table,
            _COUNTS: self.comparison.counts,
            _SUBJECTS: self.comparison.subjects,
        }

    def loaded(self) -> None:
        """After the tables' rows have been loaded."""
        self.suppression.loaded()
        self.comparison.loaded()

    def judge(self, fired: Fired, rules: RuleSet) -> Verdict:
        """What becomes of a firing."""
        rule = fired.rule.rule
        lane = lane_of(fired.rule, fired.key, rules)
        self._compare(fired, rules)
        if not rule.then.alert:
            return _NO_ALERT
        if rule.suppress is None:
            return Verdict(lane)
        before = self.suppression.passes(fired.rule, fired.by, fired.time_ms)
        if before is None:
            self.count(f"{SUPPRESSED}.{rule.id}")
            return _NO_ALERT
        return Verdict(lane, before)

    def _compare(self, fired: Fired, rules: RuleSet) -> None:
        live, candidate = rules.live(fired.rule.rule.id), rules.candidate(fired.rule.rule.id)
        if live is None or candidate is None:
            return
        subject = orjson.dumps([list(fired.key), list(fired.mark)], default=str).decode()
        self.comparison.fired(
            fired.rule.rule.id,
            (live.rule.version, candidate.rule.version),
            candidate=fired.rule.rule.version == candidate.rule.version,
            subject=subject,
            end_ms=fired.end_ms,
        )

    def close(self, cut: Cut, rules: RuleSet) -> Iterable[Status]:
        """At the end of a cut: forget what is over, tell what trials have shown."""
        self.suppression.expire(cut.next_watermark_ms)
        self.comparison.expire(cut.next_watermark_ms)
        for rule, counts in self.comparison.news(cut.clock_ms):
            figures = {"only_live": counts.only_live, "only_candidate": counts.only_candidate, "both": counts.both}
            said = {"live": counts.live, "candidate": counts.candidate, "shard": cut.shard, **figures}
            yield Status(rule, counts.candidate, StatusKind.COMPARED, None, rules.epoch, 0, -1, compared=said)

    def count(self, name: str, more: int = 1) -> None:
        """For the metrics of this cut."""
        self.counted[name] = self.counted.get(name, 0) + more

    def take_counted(self) -> Mapping[str, int]:
        """What was counted in this cut."""
        counted, self.counted = self.counted, {}
        return counted


def lane_of(compiled: CompiledRule, key: Sequence[Value], rules: RuleSet) -> str:
    """Where alerts of a version go: a canary decides for its share of the keys, the live version for the others."""
    rule = compiled.rule
    if isinstance(rule.mode, Canary):
        return ALERTS if share(rule.id, key) < rule.mode.percent / 100 else SHADOW
    if rule.mode is not Mode.LIVE:
        return SHADOW
    trial = rules.candidate(rule.id)
    if trial is not None and isinstance(trial.rule.mode, Canary) and trial in rules.evaluated_of(rule.id):
        return SHADOW if share(rule.id, key) < trial.rule.mode.percent / 100 else ALERTS
    return ALERTS


def share(rule_id: str, key: Sequence[Value]) -> float:
    """Where in [0, 1) a key stands for the canaries of a rule: by hash, so the same keys for every version."""
    digest = hashlib.blake2b(orjson.dumps([rule_id, list(key)], default=str), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
