"""Measures releases of 1,000 rules to an app under load, published in parts as ``headgate rules release`` does.

The app has 100 rules and reads events at a steady rate. The first release adds 1,000 rules; each further release has a
new version of each. The figures of a release are the cuts from its record on the topic to its status record, the
duration of the cut that took it beside those of the cuts around it, and the durations of the cuts that took its parts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import orjson
import polars as pl

from bench.harness import rules_oracle as oracle
from bench.harness.child import Child, number
from bench.harness.environment import Environment, create_topic
from bench.harness.events import EventSet
from bench.harness.generated_rules import EventRules, event_rule_id, event_rules
from bench.harness.paced import PacedLoad
from bench.harness.result import Result, phases, spread
from bench.harness.rules_app import AppUnderTest
from bench.harness.yardstick import Yardstick
from bench.spark.latency import SMALL_CUTS
from bench.spark.throughput import compare, event_pairs_found, reject_odd_lanes
from headgate.rules.publish import (
    AppTopics,
    ChangeNote,
    PublishedChange,
    publish,
    publish_in_steps,
    release_changes,
)
from rulecore.documents.loading import decode_record
from rulecore.documents.rule import Rule
from streamcore.kafka.readers import Record, read_topic
from streamcore.kafka.topics import TopicSpec, delete_topics
from streamcore.wire.lanes import STATUS

_BEFORE, _RATE = 100, 2_000
_AROUND = 5  # cuts on each side that a release's cut is compared with
_SETTLE_S, _LIMIT_S, _WAIT_MS = 8, 300, 60_000


@dataclass(frozen=True, slots=True)
class _SentRelease:
    """A published release. ``at_ms``: the timestamp of its record; ``seconds``: the duration of its publication."""

    name: str
    version: int
    at_ms: float
    parts: tuple[str, ...]
    seconds: float


def release(
    environment: Environment, rule_count: int, releases: int, warm_up_s: int, options: Mapping[str, object]
) -> list[Result]:
    """Measure the releases, and return one result per release."""
    events = EventSet(100_000, partitions=2)
    all_rules = event_rules(_BEFORE + rule_count, events.users)
    published = list(all_rules.control_records())
    topic = environment.new_name("paced")
    create_topic(environment.kafka, TopicSpec(topic, 2))
    app = AppUnderTest.prepare(environment, "release", topic, published[:_BEFORE], {**SMALL_CUTS, **options})
    rules = [decode_record(value, len(value)) for _, value in published[_BEFORE:]]
    with Yardstick() as yardstick, app.start() as child:
        child.wait(lambda: bool(child.cuts), _LIMIT_S)
        with PacedLoad(environment.kafka, topic, events, _RATE) as load:
            time.sleep(warm_up_s)
            sent = []
            for version in range(1, releases + 1):
                sent.append(_publish_release(app, version, rules))
                time.sleep(_SETTLE_S)
        child.wait_for_events(load.sent, _LIMIT_S)
        figures = yardstick.figures()
    reject_odd_lanes(child.cuts)
    answers = read_topic(environment.kafka, app.settings.lane_topic(STATUS))
    alerts = app.alerts()
    measured = [_release_figures(one, child, answers, rule_count) for one in sent]
    taken = {one.version: number(m, "taken_by_batch") for one, m in zip(sent, measured, strict=True)}
    checked = _check_alerts(alerts, load.columns(), all_rules, taken)
    app.remove()
    delete_topics(environment.kafka, [topic])
    head: Result = {"workload": "release", "rules_before": _BEFORE, "rules": rule_count, "events_per_second": _RATE}
    return [{**head, **one, **figures, **checked} for one in measured]


def _publish_release(app: AppUnderTest, version: int, rules: Sequence[Rule]) -> _SentRelease:
    """Publish the parts, each after the app has staged the one before, and then the release."""
    name, topics, note = f"release-{version}", AppTopics(app.name), ChangeNote("bench")
    *parts, last = release_changes(name, [rule.model_copy(update={"version": version}) for rule in rules], ())
    began = time.monotonic()
    _reject_unanswered(publish_in_steps(app.environment.kafka, topics, parts, note, _WAIT_MS), len(parts))
    _reject_unanswered(publish(app.environment.kafka, topics, [last], note, _WAIT_MS), 1)
    seconds = time.monotonic() - began
    at_ms = next(
        r.timestamp_ms for r in read_topic(app.environment.kafka, app.settings.control_topic) if _key(r) == last.key
    )
    return _SentRelease(name, version, at_ms, tuple(part.name for part in parts), seconds)


def _key(record: Record) -> str:
    return (record.key or b"").decode()


def _reject_unanswered(published: Sequence[PublishedChange], wanted: int) -> None:
    bad = [change for change in published if change.response is None or not change.response.accepted]
    if bad or len(published) != wanted:
        raise RuntimeError(
            f"{len(published)} of {wanted} records were published; rejected or without a response: {bad[:1]}"
        )


def _release_figures(sent: _SentRelease, child: Child, answers: Sequence[Record], rule_count: int) -> Result:
    """Return figures from the app's status records and cut reports.

    Raise ``RuntimeError`` unless one cut accepted all rules of the release.
    """
    bodies = [(int(r.header("batch") or b"-1"), orjson.loads(r.value or b"{}")) for r in answers]
    [(batch, own)] = [(b, a) for b, a in bodies if a["subject"] == "release" and a["rule"] == sent.name]
    of_rules = [(b, a) for b, a in bodies if a["release"] == sent.name]
    right = {(batch, "accepted", sent.version, own["rules_epoch"])}
    if len(of_rules) != rule_count or {(b, a["status"], a["version"], a["rules_epoch"]) for b, a in of_rules} != right:
        raise RuntimeError(f"{sent.name}: {len(of_rules)} status records of rules, not all accepted in one cut")
    staged = {b for b, a in bodies if a["subject"] == "part" and a["rule"] in sent.parts}
    took = _whole_ms(child)
    busy = {b for b, _ in bodies}
    quiet = [b for b in took if b not in busy]
    near = [b for b in quiet if b < batch][-_AROUND:] + [b for b in quiet if b > batch][:_AROUND]
    around = [took[b] for b in near]
    return {
        "release": sent.version,
        "parts": len(sent.parts),
        "published_in_s": round(sent.seconds, 1),
        "taken_by_batch": batch,
        "epoch": own["rules_epoch"],
        "published_to_accepted_cuts": batch - max(c.batch for c in child.cuts if c.at_ms <= sent.at_ms),
        "release_cut_ms": took[batch],
        "release_cut_cpu_ms": _cpu_ms(child, [batch]),
        "release_cut_phases_ms": phases(child, [c for c in child.cuts if c.batch == batch]),
        "cuts_around_ms": spread(around),
        "cuts_around_cpu_ms": _cpu_ms(child, near),
        "cuts_around_phases_ms": phases(child, [c for c in child.cuts if c.batch in near]),
        "over_cuts_around": round(took[batch] / statistics.median(around), 2),
        "part_cuts_ms": spread([took[b] for b in sorted(staged)]),
        "part_cuts_over_cuts_around": round(statistics.median(took[b] for b in staged) / statistics.median(around), 2),
    }


def _cpu_ms(child: Child, batches: Sequence[int]) -> Result:
    """Return the mean CPU time of these cuts by kind of process. A cut lasts from the previous report to its own."""
    used = [b.cpu - a.cpu for a, b in pairwise(child.cuts) if b.batch in batches]
    kinds = {"driver": [c.driver for c in used], "jvm": [c.jvm for c in used], "workers": [c.workers for c in used]}
    return {name: round(statistics.mean(seconds) * 1000) for name, seconds in kinds.items()}


def _whole_ms(child: Child) -> Mapping[int, float]:
    """Return the milliseconds from trigger to end of each cut, as the app reports them."""
    progress = {b: p["durationMs"] for b, p in sorted(child.spark.items())}
    return {b: float(d["triggerExecution"]) for b, d in progress.items() if isinstance(d, dict) and "addBatch" in d}


def _check_alerts(
    alerts: Sequence[Record], events: pl.DataFrame, all_rules: EventRules, taken: Mapping[int, int]
) -> Result:
    """Raise ``RuntimeError`` unless the alerts are the oracle's pairs and each has the rule version of its cut.

    The 100 rules must have all pairs. Released rules must have all pairs from their first alert in each partition on.
    ``taken``: the cut that took each version of the release.
    """
    expected, found = oracle.event_pairs(events, all_rules), event_pairs_found(alerts)
    first = found.filter(pl.col("rule") >= _BEFORE).group_by("partition").agg(first=pl.col("offset").min())
    own, reached = pl.col("rule") < _BEFORE, pl.col("offset") >= pl.col("first")
    due = expected.join(first, on="partition").filter(own | reached)
    result = compare(found, due.select(found.columns))
    before = {event_rule_id(n) for n in range(_BEFORE)}
    for record in alerts:
        body, batch = orjson.loads(record.value or b"{}"), int(record.header("batch") or b"-1")
        version = 1 if body["rule"] in before else max((v for v, b in taken.items() if b <= batch), default=0)
        if body["version"] != version:
            raise RuntimeError(f"{body['rule']}: the alert in cut {batch} has version {body['version']}, not {version}")
    released = found.filter(pl.col("rule") >= _BEFORE).height
    if not released:
        raise RuntimeError("no event matched a released rule")
    return {**result, "alerts_of_released_rules": released}
