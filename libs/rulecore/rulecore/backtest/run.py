"""One side of a back-test: evaluates a set of rules on the events that they read, and counts and returns the hits.

The matcher evaluates the event rules of which only the hits are needed: rules without suppression whose alerts neither
the caller nor a score rule uses. It evaluates each on all events of a cut at once, and each match is a hit. The kernel
evaluates all other rules, and each alert is a hit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from rulecore.alerts.decisions import DECISION_PARTS, merge_decisions
from rulecore.backtest.counts import HITS, RuleCounter, RuleCounts, empty_hits
from rulecore.backtest.decisions import Decided, decide_parts, restore_modes
from rulecore.compile.overrides import as_live
from rulecore.compile.rule import CompiledRule
from rulecore.documents.control_keys import DECISION_POLICY_KEY
from rulecore.documents.decision_policy import DecisionPolicy, encode_policy
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
from rulecore.settings import DispatchSettings, StateBudgets
from rulecore.streams import RuleInput
from rulecore.union_events import unite_events
from streamcore.hashing import UInt64Array, hash_columns, mix
from streamcore.kernel import ControlRecord, Cut, StreamKey
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.wire.arrow_ipc import to_table
from streamcore.wire.lanes import ALERTS, SHADOW, STATUS, Record

#: Called with each alert of a rule with ``then.alert``, or each decision, as the JSON bytes that the app writes.
AlertCallback = Callable[[bytes], None]
#: A back-test has one shard with all keys.
#: Kinds of rules whose alerts are about one event each.
_OF_ONE_EVENT = (RuleKind.EVENT, RuleKind.FEATURE)
_BUDGETS = StateBudgets(rule_bytes=2 << 30, group_bytes=2 << 30, shard_bytes=3 << 30)


class BacktestRun:
    """Evaluates a set of rules on one stream or one union of streams, cut by cut, and counts the hits of each rule."""

    def __init__(
        self,
        source: RuleInput,
        rules: Sequence[CompiledRule],
        signal_rules: Sequence[CompiledRule] = (),
        *,
        lists: ListStore | None = None,
        match_identities: bool = False,
        on_alert: AlertCallback | None = None,
        policy: DecisionPolicy | None = None,
        on_decision: AlertCallback | None = None,
    ) -> None:
        """Create the matcher and the kernel.

        ``source``: the input of ``rules``. ``signal_rules``: further rules whose alerts the
        score rules of ``rules`` add up; their hits are neither counted nor returned. ``lists``: the lists that the
        rules use. ``match_identities``: whether the hits of the matcher have identities, which only a comparison
        needs. ``on_alert``: called with each alert of those of ``rules`` with ``then.alert``; it makes the kernel
        evaluate all rules, as ``policy`` does, the decision policy of the streams. ``on_decision``: called with each
        decision that the app would write.
        """
        self.source, self.schema = source, source.schema
        self.rules = tuple(rules)
        self._rule_indexes = {rule.rule.id: n for n, rule in enumerate(self.rules)}
        self._match_identities = match_identities
        self._on_alert = on_alert
        self._counter = RuleCounter(len(self.rules))
        self._failure_reasons: dict[str, str] = {}
        signal_rule_ids = _signal_rule_ids([*rules, *signal_rules])
        plain_event_rules = [r for r in self.rules if r.kind is RuleKind.EVENT and r.rule.suppress is None]
        in_kernel = on_alert is not None or policy is not None
        matcher_rules = [r for r in plain_event_rules if not in_kernel and r.rule.id not in signal_rule_ids]
        matcher_rule_ids = {r.rule.id for r in matcher_rules}
        self._matcher = EventMatcher(matcher_rules)
        # By the matcher's rule number: the index in ``rules``.
        self._matcher_rule_indexes = np.array([self._rule_indexes[r.rule.id] for r in matcher_rules], np.uint32)
        self._lists = lists or ListStore.empty()
        self._list_columns = distinct(column for rule in matcher_rules for column in rule.list_columns)
        kernel_rules = [rule.whole for rule in [*self.rules, *signal_rules] if rule.rule.id not in matcher_rule_ids]
        self._unpublished = [as_live(rule) for rule in kernel_rules]  # empty once the kernel has the rules
        most = max(1, len(self._unpublished))
        all_chosen = DispatchSettings(chosen=2**31)
        factory = RulesFactory(source.streams, max_rules=most, budgets=_BUDGETS, dispatch=all_chosen, is_alone=True)
        self._kernel = RulesKernel(factory) if self._unpublished else None
        self._latest_event_ms: int | None = None
        self._policy, self._on_decision = policy, on_decision
        self._modes = {rule.rule.id: rule.rule.status for rule in self.rules}
        self._parts: Sequence[pl.DataFrame] = ()

    def step(
        self, frames: Mapping[str, pl.DataFrame], clock_ms: int, watermark_ms: int, next_watermark_ms: int
    ) -> pl.DataFrame:
        """Process one cut, count its hits, and return them as ``HITS``, ``rule`` being an index of ``rules``.

        ``frames``: the events by stream. ``watermark_ms``: the watermark at the start of the cut.
        ``next_watermark_ms``: the watermark at its end. Raises ``RuleSetError`` if the kernel rejects a rule.
        """
        events = unite_events(self.source, frames)
        hits = self._match(with_list_columns(events, self._list_columns, self._lists.contents(clock_ms)))
        if self._kernel is not None:
            records = self._run_kernel(self._kernel, frames, clock_ms, watermark_ms, next_watermark_ms)
            hits = pl.concat([hits, self._read_records(records)])
        self._counter.add(hits)
        return hits

    def decided(self) -> Decided | None:
        """Return the policy's decisions of the last cut; None without a policy."""
        if self._policy is None:
            return None
        return decide_parts(self._policy, self._parts, self.source, self._modes)

    # --- event rules in the matcher -----------------------------------------------------------------------------

    def _match(self, events: pl.DataFrame) -> pl.DataFrame:
        """Return the hits of the rules that the matcher evaluates, and note which of them failed."""
        matches = self._matcher.match(events)
        for number, reason in matches.failed:
            self._failure_reasons[self._matcher.rules[number].rule.id] = reason
        if not len(matches.row):
            return empty_hits()
        # Hash each event once, however many rules it matches.
        rows, inverse = np.unique(matches.row, return_inverse=True)
        matched_events = events.select(*self.schema.keys[0], PARTITION, OFFSET, EVENT_MS)[rows]
        keys = hash_columns([matched_events[name] for name in self.schema.keys[0]], matched_events.height)
        columns = {
            "rule": pl.Series(self._matcher_rule_indexes[matches.rule]),
            "key": pl.Series(keys[inverse]),
            "event_ms": pl.Series(matched_events[EVENT_MS].to_numpy()[inverse]),
            "incomplete": pl.repeat(False, len(inverse), dtype=pl.Boolean, eager=True),
            "identity": self._identify_matches(matched_events, inverse),
            "same_cut": pl.repeat(True, len(inverse), dtype=pl.Boolean, eager=True),
        }
        return pl.DataFrame(columns, schema=HITS)

    def _identify_matches(self, matched_events: pl.DataFrame, inverse: npt.NDArray[np.intp]) -> pl.Series:
        """Return one identity per match, the hash of partition and offset; nulls if identities are off.

        ``inverse``: for each match, the row of its event in ``matched_events``.
        """
        if not self._match_identities:
            return pl.repeat(None, len(inverse), dtype=pl.UInt64, eager=True)
        partitions, offsets = matched_events[PARTITION].to_numpy(), matched_events[OFFSET].to_numpy()
        return pl.Series(_record_hash(partitions, offsets)[inverse])

    # --- the kernel ---------------------------------------------------------------------------------------------

    def _run_kernel(
        self,
        kernel: RulesKernel,
        frames: Mapping[str, pl.DataFrame],
        clock_ms: int,
        watermark_ms: int,
        next_watermark_ms: int,
    ) -> Sequence[Record]:
        """Process the cut in the kernel and return the output records. The first cut with events also brings the lists
        and rules."""
        times = [frame[EVENT_MS] for frame in frames.values() if frame.height]
        if self._latest_event_ms is None and not times:
            return ()  # the rules wait for the first event, because its time decides which windows are complete
        published = [(rule.id, canonical_json(rule)) for rule in self._unpublished]
        if published:
            published = [*control_records(self._lists), *published]
            if self._policy is not None:
                published.append((DECISION_POLICY_KEY + self._policy.decision_policy, encode_policy(self._policy)))
        control = [ControlRecord(0, n, key.encode(), value) for n, (key, value) in enumerate(published)]
        self._unpublished = []
        # In the first cut the time of the first event: windows that began before it are incomplete.
        first_ms = min((int(t.min()) for t in times), default=0)  # type: ignore[arg-type]
        latest_event_ms = first_ms if self._latest_event_ms is None else self._latest_event_ms
        names = [stream.schema.name for stream in self.source.streams]
        output = kernel.step(
            Cut(
                shard=0,
                events={StreamKey(name, 0): frame for name, frame in frames.items()},
                control=control,
                clock_ms=clock_ms,
                watermark_ms=watermark_ms,
                next_watermark_ms=next_watermark_ms,
                latest_event_ms=dict.fromkeys(names, latest_event_ms),
            )
        )
        self._latest_event_ms = max([latest_event_ms, *(int(t.max()) for t in times)])  # type: ignore[arg-type]
        for table in kernel.tables().values():
            table.changes()  # a back-test stores no state, and a table keeps its changes until they are taken
        self._parts = [rows.rows for rows in output.lanes if rows.lane == DECISION_PARTS]
        if self._on_decision is not None:
            rules = {rule.rule.id: rule.rule for rule in self.rules}
            for parts in self._parts:
                for record in merge_decisions(to_table(restore_modes(parts, rules))):
                    self._on_decision(record.value or b"")
        return output.records

    def _read_records(self, records: Sequence[Record]) -> pl.DataFrame:
        """Return the hits of the alerts among the records, pass the alerts on, and note which rules failed."""
        alerts: list[dict[str, Any]] = []
        for record in records:
            if record.lane == STATUS:
                self._handle_status(orjson.loads(record.value or b"{}"))
            elif record.lane in (ALERTS, SHADOW) and record.value is not None:
                alert = orjson.loads(record.value)
                if alert["rule"] in self._rule_indexes:
                    alerts.append(alert)
                    if self._on_alert is not None and self.rules[self._rule_indexes[alert["rule"]]].rule.then.alert:
                        self._on_alert(record.value)
        event_alerts = [alert for alert in alerts if alert["kind"] in _OF_ONE_EVENT]
        stateful_alerts = [alert for alert in alerts if alert["kind"] not in _OF_ONE_EVENT]
        partitions = np.array([self._source_partition(alert["source"]) for alert in event_alerts], np.int64)
        offsets = np.array([alert["source"]["offset"] for alert in event_alerts], np.int64)
        window_hashes = [_hash([alert["key"], self._window_identity(alert)]) for alert in stateful_alerts]
        return pl.concat(
            [
                self._alert_hits(event_alerts, _record_hash(partitions, offsets)),
                self._alert_hits(stateful_alerts, window_hashes),
            ]
        )

    def _source_partition(self, place: Mapping[str, Any]) -> int:
        """Return the source partition of the event of an alert, which the matcher's events have."""
        return self.source.source(place["topic"]) * PARTITIONS_PER_TOPIC + int(place["partition"])

    def _window_identity(self, alert: Mapping[str, Any]) -> object:
        """Return the window of an alert, or only its start if it ends when the rule fires (session, sequence)."""
        fixed = self.rules[self._rule_indexes[alert["rule"]]].window is not None
        return alert["window"] if fixed else alert["window"]["start_ms"]

    def _alert_hits(self, alerts: Sequence[Mapping[str, Any]], identities: Sequence[int] | UInt64Array) -> pl.DataFrame:
        """Return one row of ``HITS`` per alert. ``identities``: one per alert."""
        columns = {
            "rule": [self._rule_indexes[alert["rule"]] for alert in alerts],
            "key": [_hash(alert["key"]) for alert in alerts],
            "event_ms": [alert["event_time_ms"] for alert in alerts],
            "incomplete": [alert["incomplete"] for alert in alerts],
            "identity": identities,
            "same_cut": [alert["kind"] == RuleKind.EVENT for alert in alerts],  # features may wait for the watermark
        }
        return pl.DataFrame(columns, schema=HITS)

    def _handle_status(self, status: Mapping[str, object]) -> None:
        """Note the rule as failed if it is in quarantine; raise ``RuleSetError`` if the kernel rejected it."""
        if status["status"] == "rejected" and status["subject"] in (Subject.RULE, Subject.DECISION_POLICY):
            raise RuleSetError(f"{status['subject']} {status['rule']} was rejected: {status['reason']}")
        if status["status"] == "quarantined":
            self._failure_reasons[str(status["rule"])] = str(status["reason"])

    # --- results ------------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, RuleCounts]:
        """Return the counts so far by rule id, in the order of ``rules``."""
        counter, keys = self._counter, self._counter.keys()
        counts = {}
        for n, rule in enumerate(self.rules):
            has_hits = bool(counter.hits[n])
            counts[rule.rule.id] = RuleCounts(
                version=rule.rule.version,
                kind=rule.kind.value,
                hits=int(counter.hits[n]),
                keys=keys[n],
                keys_exact=not counter.keys_overflowed[n],
                first_ms=int(counter.first_ms[n]) if has_hits else None,
                last_ms=int(counter.last_ms[n]) if has_hits else None,
                incomplete=int(counter.incomplete[n]),
                failure_reason=self._failure_reasons.get(rule.rule.id),
            )
        return counts


def _signal_rule_ids(rules: Collection[CompiledRule]) -> set[str]:
    """Return the ids of the rules whose alerts are signals: those that a score rule among ``rules`` adds up."""
    return {name for rule in rules if rule.rule.score is not None for name in rule.rule.score.of}


def _record_hash(partition: npt.NDArray[np.integer[Any]], offset: npt.NDArray[np.int64]) -> UInt64Array:
    """Return a 64-bit hash of the partition and offset of each record."""
    return mix(mix(partition.astype(np.uint64)) ^ offset.astype(np.uint64))


def _hash(value: object) -> int:
    """Return a 64-bit hash of a JSON value."""
    return int.from_bytes(hashlib.blake2b(orjson.dumps(value), digest_size=8).digest(), "big")
