"""The rules of one side of a back-test: batches in, hits out.

Which code evaluates a rule: the matcher, on the whole batch, for rules per event of which only counts are wanted; the
kernel for all others, and for rules per event whose alerts or scores are wanted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from rulecore.backtest.counts import HITS, RuleCounter, RuleCounts, empty_hits
from rulecore.compile.overrides import as_live
from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import RuleKind, canonical_json
from rulecore.documents.status import Subject
from rulecore.errors import RuleSetError
from rulecore.factory import RulesFactory
from rulecore.kernel import RulesKernel
from rulecore.lists.fill_columns import with_list_columns
from rulecore.lists.list_columns import distinct
from rulecore.lists.snapshots import control_records
from rulecore.lists.store import ListStore
from rulecore.matching.matcher import EventMatcher
from rulecore.settings import RuleStream
from streamcore.hashing import UInt64Array, hash_columns, mix
from streamcore.kernel import ControlRecord, Cut, StreamKey
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.wire.lanes import ALERTS, SHADOW, STATUS, Record

#: Called with each alert: the bytes of the alerts lane.
AlertSink = Callable[[bytes], None]


class RuleRun:
    """One rule set over the batches of one stream."""

    def __init__(
        self,
        schema: StreamSchema,
        topic: str,
        rules: Sequence[CompiledRule],
        support: Sequence[CompiledRule] = (),
        *,
        lists: ListStore | None = None,
        identities: bool = False,
        alerts: AlertSink | None = None,
    ) -> None:
        """Prepare the run. ``lists``: those that the rules use. ``identities``: for a comparison."""
        self.schema = schema
        self.rules = tuple(rules)
        self._rule_indexes = {rule.rule.id: n for n, rule in enumerate(self.rules)}
        self._identities = identities
        self._alerts = alerts
        self._counter = RuleCounter(len(self.rules))
        self._failed: dict[str, str] = {}
        needed = _signals([*rules, *support])
        alone = [r for r in self.rules if r.kind is RuleKind.EVENT and r.rule.suppress is None]
        matched = [r for r in alone if alerts is None and r.rule.id not in needed]
        self._matcher = EventMatcher(matched)
        self._matched = np.array([self._rule_indexes[r.rule.id] for r in matched], np.uint32)
        self._lists = lists or ListStore.empty()
        self._columns = distinct(column for rule in matched for column in rule.list_columns)
        fast = {r.rule.id for r in matched}
        self._pending = [as_live(r.rule) for r in [*self.rules, *support] if r.rule.id not in fast]
        factory = RulesFactory((RuleStream(schema, topic),), max_rules=max(1, len(self._pending)))
        self._kernel = RulesKernel(factory) if self._pending else None
        self._latest_ms: int | None = None

    def step(self, events: pl.DataFrame, clock_ms: int, watermark_ms: int, next_watermark_ms: int) -> pl.DataFrame:
        """Process one cut: count its hits (``HITS``, ``rule`` an index of ``rules``) and return them."""
        hits = self._match(with_list_columns(events, self._columns, self._lists.contents(clock_ms)))
        if self._kernel is not None:
            records = self._cut(self._kernel, events, (clock_ms, watermark_ms, next_watermark_ms))
            hits = pl.concat([hits, self._read(records)])
        self._counter.add(hits)
        return hits

    # --- rules per event ----------------------------------------------------------------------------------------

    def _match(self, events: pl.DataFrame) -> pl.DataFrame:
        matches = self._matcher.match(events)
        for number, reason in matches.failed:
            self._failed[self._matcher.rules[number].rule.id] = reason
        if not len(matches.row):
            return empty_hits()
        rows, place = np.unique(matches.row, return_inverse=True)
        some = events.select(*self.schema.keys[0], PARTITION, OFFSET, EVENT_MS)[rows]
        key = hash_columns([some[name] for name in self.schema.keys[0]], some.height)
        columns = {
            "rule": pl.Series(self._matched[matches.rule]),
            "key": pl.Series(key[place]),
            "event_ms": pl.Series(some[EVENT_MS].to_numpy()[place]),
            "incomplete": pl.repeat(False, len(place), dtype=pl.Boolean, eager=True),
            "identity": self._events(some, place),
            "settled": pl.repeat(True, len(place), dtype=pl.Boolean, eager=True),
        }
        return pl.DataFrame(columns, schema=HITS)

    def _events(self, some: pl.DataFrame, place: npt.NDArray[np.intp]) -> pl.Series:
        """Return the identities of matches: hashes of partition and offset."""
        if not self._identities:
            return pl.repeat(None, len(place), dtype=pl.UInt64, eager=True)
        return pl.Series(_record_hash(some[PARTITION].to_numpy(), some[OFFSET].to_numpy())[place])

    # --- the kernel ---------------------------------------------------------------------------------------------

    def _cut(self, kernel: RulesKernel, events: pl.DataFrame, times: tuple[int, int, int]) -> Sequence[Record]:
        name = self.schema.name
        records = [(rule.id, canonical_json(rule)) for rule in self._pending]
        if records:
            records = [*control_records(self._lists), *records]
        control = [ControlRecord(0, n, key.encode(), value) for n, (key, value) in enumerate(records)]
        self._pending = []
        # What counts from the first event on is complete only for windows that begin after it.
        latest = int(events[EVENT_MS].min()) if self._latest_ms is None else self._latest_ms  # type: ignore[arg-type]
        routed = {StreamKey(name, route): events for route in range(len(self.schema.keys))}
        output = kernel.step(Cut(0, routed, control, *times, {name: latest}))
        self._latest_ms = max(latest, int(events[EVENT_MS].max()))  # type: ignore[arg-type]
        for table in kernel.tables().values():
            table.changes()  # they are not stored here, and tables keep them until they are taken
        return output.records

    def _read(self, records: Sequence[Record]) -> pl.DataFrame:
        alerts: list[dict[str, Any]] = []
        for record in records:
            if record.lane == STATUS:
                self._read_status(orjson.loads(record.value or b"{}"))
            elif record.lane in (ALERTS, SHADOW) and record.value is not None:
                alert = orjson.loads(record.value)
                if alert["rule"] in self._rule_indexes:
                    alerts.append(alert)
                    if self._alerts is not None and self.rules[self._rule_indexes[alert["rule"]]].rule.then.alert:
                        self._alerts(record.value)
        single = [alert for alert in alerts if alert["kind"] == RuleKind.EVENT]
        others = [alert for alert in alerts if alert["kind"] != RuleKind.EVENT]
        places = [np.array([a["source"][n] for a in single], np.int64) for n in ("partition", "offset")]
        windows = [_hash([alert["key"], self._span(alert)]) for alert in others]
        return pl.concat([self._hits(single, _record_hash(*places), settled=True), self._hits(others, windows)])

    def _span(self, alert: Mapping[str, Any]) -> object:
        """Return the window of an alert, or its beginning if it ends when it fires (a session, a sequence)."""
        fixed = self.rules[self._rule_indexes[alert["rule"]]].window is not None
        return alert["window"] if fixed else alert["window"]["start_ms"]

    def _hits(
        self, alerts: Sequence[Mapping[str, Any]], identities: Sequence[int] | UInt64Array, *, settled: bool = False
    ) -> pl.DataFrame:
        columns = {
            "rule": [self._rule_indexes[alert["rule"]] for alert in alerts],
            "key": [_hash(alert["key"]) for alert in alerts],
            "event_ms": [alert["event_time_ms"] for alert in alerts],
            "incomplete": [alert["incomplete"] for alert in alerts],
            "identity": identities,
            "settled": [settled] * len(alerts),
        }
        return pl.DataFrame(columns, schema=HITS)

    def _read_status(self, status: Mapping[str, object]) -> None:
        if status["status"] == "rejected" and status["subject"] == Subject.RULE:
            raise RuleSetError(f"{status['rule']} is rejected: {status['reason']}")
        if status["status"] == "quarantined":
            self._failed[str(status["rule"])] = str(status["reason"])

    # --- results ------------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, RuleCounts]:
        """Return the counts by rule id, in the order of the rules."""
        counter, keys = self._counter, self._counter.keys()
        found = {}
        for n, rule in enumerate(self.rules):
            some = bool(counter.alerts[n])
            found[rule.rule.id] = RuleCounts(
                version=rule.rule.version,
                kind=rule.kind.value,
                alerts=int(counter.alerts[n]),
                keys=keys[n],
                exact=not counter.full[n],
                first_ms=int(counter.first[n]) if some else None,
                last_ms=int(counter.last[n]) if some else None,
                incomplete=int(counter.incomplete[n]),
                failed=self._failed.get(rule.rule.id),
            )
        return found


def _signals(rules: Collection[CompiledRule]) -> set[str]:
    """Return the rules whose scores others add."""
    return {name for rule in rules if rule.rule.score is not None for name in rule.rule.score.of}


def _record_hash(partition: npt.NDArray[np.integer[Any]], offset: npt.NDArray[np.int64]) -> UInt64Array:
    return mix(mix(partition.astype(np.uint64)) ^ offset.astype(np.uint64))


def _hash(value: object) -> int:
    return int.from_bytes(hashlib.blake2b(orjson.dumps(value), digest_size=8).digest(), "big")
