"""Finds reasons why a rule that fired raised no alert: suppression, ``then.alert: false``, shadow mode, canary mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import orjson
import polars as pl

from headgate.explain.reason_context import ReasonContext
from headgate.records.topic_decoder import key_columns
from headgate.time_arguments import show_time
from rulecore.alerts.dispatch import alert_lane, canary_fraction
from rulecore.documents.rule import Canary, RuleKind, RuleMode
from rulecore.documents.yaml_reader import Json
from rulecore.explain.explanation import RuleReason
from rulecore.language.types import Value
from streamcore.wire.lanes import ALERTS, SHADOW

_LANES = (ALERTS, SHADOW)


def _without_alert(context: ReasonContext) -> RuleReason | None:
    if context.rule.rule.then.alert:
        return None
    return RuleReason("no alert", "then.alert is false: its firings count for score rules only", decisive=False)


def _lane(context: ReasonContext) -> RuleReason | None:
    """Check whether the alert goes to the shadow lane, with the code by which the app decides it."""
    rule, rules = context.rule.rule, context.known.history.rules
    live = rules.live(rule.id)
    live_text = "" if live is None or live.rule == rule else f"; version {live.rule.version} alerts"
    topic = f"{context.known.topics.app}.{SHADOW}"
    if rule.status is RuleMode.SHADOW:
        return RuleReason("shadow", f"its alerts go to {topic}, not to .alerts{live_text}", decisive=False)
    key = _key(context)
    if key is None:
        return None
    trial = rules.candidate(rule.id)
    canary = rule if isinstance(rule.mode, Canary) else None if trial is None else trial.rule
    if canary is None or not isinstance(canary.mode, Canary):
        return None
    position, percent = canary_fraction(rule.id, key) * 100, canary.mode.percent
    lane = alert_lane(context.rule, key, rules)
    text = (
        f"the key is at {position:.1f} %, and version {canary.version} raises the alerts below {percent:g} %: "
        f"alerts of this version for the key go to {context.known.topics.app}.{lane}"
    )
    return RuleReason("canary", text, decisive=False)


def _key(context: ReasonContext) -> list[Value] | None:
    """Return the physical values of the key in question; None if there is no event."""
    events, row = context.evidence.events, context.evidence.question.row
    if not events.height:
        return None
    rule = context.rule
    names = rule.group_by if rule.kind is not RuleKind.EVENT else rule.route_key
    columns = key_columns(events, names, context.evidence.source.schema)
    return list(events.select(columns).row(-1 if row is None else row))


def _suppression(context: ReasonContext) -> RuleReason | None:
    rule = context.rule.rule
    if rule.suppress is None or not context.explanation.in_question:
        return None
    alert_in_question = context.explanation.in_question[-1]
    if any(_alert_exists(context, lane, str(alert_in_question["alert_id"])) for lane in _LANES):
        return None
    duration = rule.suppress.duration
    for alert in _suppressing_alerts(context, alert_in_question):
        at_ms = int(str(alert["event_time_ms"]))
        text = (
            f"alert {alert['alert_id']} of {show_time(at_ms)} UTC began a silence of {duration / 1000:g} s, until "
            f"{show_time(at_ms + duration)} UTC: firings in it raise no alert and are counted in the next alert"
        )
        return RuleReason("suppressed", text, decisive=False)
    text = f"suppress allows one alert in {duration / 1000:g} s; the alert that began the silence was not found"
    return RuleReason("suppressed?", text, decisive=False)


def _alert_exists(context: ReasonContext, lane: str, alert_id: str) -> bool:
    return context.reader.find(f"{context.known.topics.app}.{lane}", "key", alert_id.encode(), context.scan) is not None


def _suppressing_alerts(context: ReasonContext, alert_in_question: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    """Yield earlier alerts with the same values whose suppression includes the time of the alert
    ``alert_in_question``."""
    rule = context.rule.rule
    assert rule.suppress is not None
    at_ms = int(str(alert_in_question["event_time_ms"]))
    by = rule.suppress.by or context.rule.group_by
    for lane in _LANES:
        for alert in _read_rule_alerts(context, lane):
            same = (alert["rule"], alert["mode"]) == (rule.id, rule.status.value) and _key_values(
                alert, by
            ) == _key_values(alert_in_question, by)
            if same and 0 <= at_ms - int(str(alert["event_time_ms"])) < rule.suppress.duration:
                yield alert


def _read_rule_alerts(context: ReasonContext, lane: str) -> Iterator[Mapping[str, Json]]:
    """Yield the lane's alerts that may be the rule's, in chunks from the last one back."""
    needle = orjson.dumps({"rule": context.rule.rule.id})[1:-1]
    for table in context.reader.backwards(f"{context.known.topics.app}.{lane}", context.scan):
        values = pl.Series("value", table.column("value"), dtype=pl.Binary)
        yield from (orjson.loads(v) for v in values.filter(values.bin.contains(needle)))


def _key_values(alert: Mapping[str, Json], by: tuple[str, ...]) -> list[Json]:
    """Return the alert's key values in these columns: an alert of an event rule may have only some of them."""
    key = alert["key"]
    assert isinstance(key, dict)
    return [key[name] for name in by if name in key]


#: The checks that apply when the rule fired.
CHECKS_AFTER_FIRING = (_without_alert, _lane, _suppression)
