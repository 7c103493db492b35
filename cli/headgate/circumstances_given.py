"""What becomes of a firing before it is an alert: silences, rules without alerts, shadows, shares of canaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import orjson
import polars as pl

from headgate.circumstances_case import Case
from headgate.moments import show_time
from rulecore.explanation import Circumstance
from rulecore.lang.types import Value
from rulecore.model import Canary, Kind, Mode
from rulecore.outlet import lane_of, share
from rulecore.yamldoc import Json
from streamcore.lanes import ALERTS, SHADOW

_LANES = (ALERTS, SHADOW)


def _no_alert(case: Case) -> Circumstance | None:
    if case.rule.rule.then.alert:
        return None
    return Circumstance("no alert", "then.alert is false: its firings count for score rules only", decisive=False)


def _lane(case: Case) -> Circumstance | None:
    """By the code that decides it in production."""
    rule, rules = case.rule.rule, case.known.history.rules
    live = rules.live(rule.id)
    beside = "" if live is None or live.rule == rule else f"; version {live.rule.version} alerts"
    topic = f"{case.known.topics.app}.{SHADOW}"
    if rule.status is Mode.SHADOW:
        return Circumstance("shadow", f"its alerts go to {topic}, not to .alerts{beside}", decisive=False)
    key = _key(case)
    if key is None:
        return None
    trial = rules.candidate(rule.id)
    canary = rule if isinstance(rule.mode, Canary) else None if trial is None else trial.rule
    if canary is None or not isinstance(canary.mode, Canary):
        return None
    stands, percent = share(rule.id, key) * 100, canary.mode.percent
    lane = lane_of(case.rule, key, rules)
    said = (
        f"the key stands at {stands:.1f} % and version {canary.version} decides below {percent:g} %: alerts of this "
        f"version for it go to {case.known.topics.app}.{lane}"
    )
    return Circumstance("canary", said, decisive=False)


def _key(case: Case) -> list[Value] | None:
    """Physical values of the key in question; None where there is no event."""
    events, row = case.inquiry.events, case.inquiry.question.row
    if not events.height:
        return None
    rule = case.rule
    schema = case.known.streams[rule.rule.on]
    names = rule.group_by if rule.kind is not Kind.EVENT else schema.keys[rule.route]
    found = events.row(-1 if row is None else row, named=True)
    return [found[name] for name in names]


def _suppressed(case: Case) -> Circumstance | None:
    rule = case.rule.rule
    if rule.suppress is None or not case.explanation.asked:
        return None
    mine = case.explanation.asked[-1]
    if any(_is_there(case, lane, str(mine["alert_id"])) for lane in _LANES):
        return None
    duration = rule.suppress.duration
    for alert in _earlier(case, mine):
        at_ms = int(str(alert["event_time_ms"]))
        said = (
            f"alert {alert['alert_id']} of {show_time(at_ms)} UTC began a silence of {duration / 1000:g} s, until "
            f"{show_time(at_ms + duration)} UTC: firings in it give no alert and are counted in the next one"
        )
        return Circumstance("suppressed", said, decisive=False)
    said = f"suppress gives one alert in {duration / 1000:g} s; the one that began a silence was not found"
    return Circumstance("suppressed?", said, decisive=False)


def _is_there(case: Case, lane: str, alert_id: str) -> bool:
    return case.reader.find(f"{case.known.topics.app}.{lane}", "key", alert_id.encode(), case.scan) is not None


def _earlier(case: Case, mine: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    """Alerts of the rule that were given for the same values and whose silence holds the time of this one."""
    rule = case.rule.rule
    assert rule.suppress is not None
    at_ms = int(str(mine["event_time_ms"]))
    by = rule.suppress.by or case.rule.group_by
    for lane in _LANES:
        for alert in _of_rule(case, lane):
            same = (alert["rule"], alert["mode"]) == (rule.id, rule.status.value) and _at(alert, by) == _at(mine, by)
            if same and 0 <= at_ms - int(str(alert["event_time_ms"])) < rule.suppress.duration:
                yield alert


def _of_rule(case: Case, lane: str) -> Iterator[Mapping[str, Json]]:
    """The lane's alerts that may be the rule's, in chunks from the last one back."""
    needle = orjson.dumps({"rule": case.rule.rule.id})[1:-1]
    for table in case.reader.backwards(f"{case.known.topics.app}.{lane}", case.scan):
        values = pl.Series("value", table.column("value"), dtype=pl.Binary)
        yield from (orjson.loads(v) for v in values.filter(values.bin.contains(needle)))


def _at(alert: Mapping[str, Json], by: tuple[str, ...]) -> list[Json]:
    """What an alert's key says of these columns: of one per event it may hold a part of them."""
    key = alert["key"]
    assert isinstance(key, dict)
    return [key[name] for name in by if name in key]


#: Checks of ``circumstances``.
GIVEN = (_no_alert, _lane, _suppressed)
