"""Applies a log of control records one by one to one copy of a rule set's tables.

``RuleSet.apply`` copies the tables for each set that it returns. A log of n records that needs only the last set would
copy them n times, which costs the square of n. The statuses and the last set are those of ``RuleSet.apply``, record by
record.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rulecore.backfill import BackfillRows
from rulecore.compile.rule import CompiledRule
from rulecore.documents.slots import Slot, VersionSlot
from rulecore.documents.status import RuleStatus
from rulecore.ruleset.apply import RuleSetUpdate
from streamcore.kernel import ControlRecord


@dataclass(slots=True)
class LogReplay:
    """The tables of a set while a log is applied. ``epoch``, ``revision`` and ``backfills`` are those of the set after
    the last record; ``streams``: the streams whose rules have changed since the beginning; ``changed``: whether
    anything has changed since then."""

    update: RuleSetUpdate
    epoch: int
    revision: int
    backfills: tuple[BackfillRows, ...]
    streams: set[str] = field(default_factory=set)
    changed: bool = False
    governed: bool = False

    def apply(self, record: ControlRecord, clock_ms: int) -> tuple[RuleStatus, ...]:
        """Apply a record and then the time, and return the statuses of all changes."""
        update = self.update
        self._begin(clock_ms)
        statuses = update.apply_record(record)
        statuses += [*update.end_emergencies(), *update.versions.advance_time()]
        if update.touched:
            self._count()
        return tuple(replace(status, rules_epoch=self.epoch) for status in statuses)

    def _begin(self, clock_ms: int) -> None:
        """Forget the marks of the record before."""
        update = self.update
        update.versions.clock_ms = update.governance.clock_ms = clock_ms
        update.versions.touched = update.versions.changed = update.governance.touched = update.restaged = False
        update.policies.touched = False
        update.backfills.clear()

    def _count(self) -> None:
        """Count the change of a record as one set after another would have."""
        update = self.update
        self.changed = True
        self.governed |= update.governance.touched
        self.epoch += update.changed
        self.revision += 1
        self.backfills = tuple(update.backfills)
        self.streams |= update.versions.streams
        update.versions.unconfirmed &= update.versions.quarantined.keys()

    def stored(self, rule: str) -> list[bytes]:
        """Return the canonical JSON of the versions of a rule, by slot."""
        found = (self.update.versions.stored.get(VersionSlot(rule, slot)) for slot in Slot)
        return [value for value in found if value is not None]

    def live(self, rule: str) -> CompiledRule | None:
        """Return the version in the live slot."""
        return self.update.versions.rules.get(VersionSlot(rule, Slot.LIVE))
