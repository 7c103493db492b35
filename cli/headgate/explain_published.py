"""An explanation that needs Kafka: of an alert, of an event or key on a topic, of a rule that an app has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from headgate.circumstances import circumstances
from headgate.circumstances_case import Known
from headgate.errors import InputError
from headgate.explain_ask import Answer, Ask, known_rule, support_of
from headgate.explain_events import events_of_alert, events_of_key, events_of_place
from headgate.explain_file import lines_of
from headgate.explain_inquiry import Inquiry, events_of_lines, explained, without_late
from headgate.explain_reading import Found, Reading
from headgate.history import read_history
from headgate.publishing import AppTopics
from headgate.rulebook import load_streams, read_book
from rulecore.audit import History
from rulecore.compiled import CompiledRule
from rulecore.explanation import Explanation
from rulecore.lists.store import ListStore
from rulecore.model import Kind
from rulecore.ruleset import RuleSet
from rulecore.yamldoc import Json
from streamcore.lanes import ALERTS, LATE, SHADOW, STATUS
from streamcore.schema import StreamSchema

_LATE_RECORDS = 50_000
#: What of an alert does not depend on which events are known.
_COMPARED = ("alert_id", "event_time_ms", "key", "window", "timing", "values", "source", "message", "severity", "score")


def answer_published(ask: Ask) -> Answer:
    """The explanation. ``InputError`` for what is not there."""
    reader = Reading(ask.kafka)
    reader.look([AppTopics(ask.app).control, *(f"{ask.app}.{lane}" for lane in (ALERTS, SHADOW, STATUS, LATE))])
    known = _app(ask, reader)
    return _of_alert(ask, reader, known) if ask.is_alert else _of_rule(ask, reader, known)


def _app(ask: Ask, reader: Reading) -> Known:
    """The rules of the app, none where it was never started."""
    topics = AppTopics(ask.app)
    _, there = reader.bounds(topics.control)
    if there:
        history = read_history(ask.kafka, topics, ask.streams, ask.now_ms)
    else:
        history = History(RuleSet.empty(load_streams(ask.streams)))
    return Known(topics, bool(there), history, ask.now_ms)


def _of_rule(ask: Ask, reader: Reading, known: Known) -> Answer:
    rules, lists = _rules(ask, known)
    rule = _rule(ask, rules, known)
    schema = known.streams[rule.rule.on]
    inquiry = _on_time(ask, reader, rule, _inquiry(ask, reader, rule, schema))
    found = explained(rule, schema, inquiry, support_of(rule, rules), lists)
    kept_back = circumstances(reader, known, found.explanation, inquiry, ask.scan)
    published = _published(reader, AppTopics(ask.app), found.explanation, ask.scan)
    notes = found.notes
    if found.explanation.fired and published is None and ask.rules is None and not kept_back:
        notes = (*notes, f"its alert is not among the last {ask.scan:,} alerts of app {ask.app}")
    return Answer(found.explanation, found.about, kept_back, notes, published=published)


def _rules(ask: Ask, known: Known) -> tuple[Mapping[str, CompiledRule], ListStore]:
    """Those of the files, else the app's; and the lists that they ask."""
    if ask.rules is not None:
        book = read_book([ask.rules], ask.streams, ask.lists, known.history.lists.types(), about=ask.target)
        return {rule.rule.id: rule for rule in book.rules}, book.list_store(known.history.lists)
    if not known.there:
        topic = known.topics.control
        raise InputError(f"app {ask.app}: no topic {topic} at {ask.kafka.bootstrap}; correct --app or --bootstrap")
    return {name: one for name in known.names if (one := known.compiled(name)) is not None}, known.history.lists


def _rule(ask: Ask, rules: Mapping[str, CompiledRule], known: Known) -> CompiledRule:
    name, version = ask.rule
    if version is None or ask.rules is not None:
        return known_rule(ask.target, rules)
    rule = known.compiled(name, version)
    if rule is None:
        there = sorted(number for one, number in known.history.documents if one == name)
        raise InputError(f"{name} has no version {version}; it has {', '.join(map(str, there)) or 'none'}")
    return rule


def _on_time(ask: Ask, reader: Reading, rule: CompiledRule, inquiry: Inquiry) -> Inquiry:
    if rule.kind is Kind.EVENT or ask.event_json is not None:
        return inquiry
    return without_late(reader, f"{ask.app}.{LATE}", inquiry, min(ask.scan, _LATE_RECORDS))


def _inquiry(ask: Ask, reader: Reading, rule: CompiledRule, schema: StreamSchema) -> Inquiry:
    if ask.event_json is not None:
        return events_of_lines(ask.event_json, lines_of(ask.event_json), schema, rule, ask.now_ms)
    if ask.event is not None:
        topic, partition, offset = _place(ask.event)
        return events_of_place(reader, schema, rule, (topic, partition, offset), ask.scan, ask.now_ms)
    if ask.key:
        return events_of_key(reader, schema, rule, ask.key, ask.topic or schema.name, ask.at_ms, ask.scan, ask.now_ms)
    raise InputError(
        f"explain {ask.target}: for which event? add --event topic:partition:offset, --event-json FILE, "
        f"or --key {'=… --key '.join(rule.group_by or schema.keys[0])}=… [--at TIME]"
    )


def _place(text: str) -> tuple[str, int, int]:
    topic, _, rest = text.partition(":")
    partition, _, offset = rest.partition(":")
    if not topic or not partition.isdecimal() or not offset.isdecimal():
        raise InputError(f"--event {text!r}: write topic:partition:offset, as an alert's source has them")
    return topic, int(partition), int(offset)


def _of_alert(ask: Ask, reader: Reading, known: Known) -> Answer:
    alert = _alert(ask, reader)
    name, version = str(alert["rule"]), int(str(alert["version"]))
    if (schema := known.streams.get(str(alert["stream"]))) is None:
        raise InputError(f"alert {ask.target} is on stream {alert['stream']!r}, which is not declared; see --streams")
    rule = known.compiled(name, version)
    notes: tuple[str, ...] = ()
    if rule is None:
        rule = known_rule(name, {r: c for r in known.names if (c := known.compiled(r)) is not None})
        notes = (
            f"version {version} of {name} is not on the control topic any more; this is version {rule.rule.version}",
        )
    inquiry = events_of_alert(reader, schema, rule, alert, ask.topic or schema.name, ask.scan, ask.now_ms)
    inquiry = _on_time(ask, reader, rule, inquiry)
    signals = rule.rule.score.of if rule.rule.score is not None else ()
    support = tuple(c for s in signals if (c := known.compiled(s)) is not None)
    found = explained(rule, schema, inquiry, support, known.history.lists)
    differences = _differences(alert, found.explanation.alerts)
    return Answer(found.explanation, found.about, (), (*notes, *found.notes), alert, differences)


def _alert(ask: Ask, reader: Reading) -> Mapping[str, Json]:
    topics = [f"{ask.app}.{lane}" for lane in (ALERTS, SHADOW)]
    for topic in topics:
        found = reader.find(topic, "key", ask.target.encode(), ask.scan)
        if found is not None and found.value is not None:
            alert = orjson.loads(found.value)
            assert isinstance(alert, dict)
            return alert
    raise InputError(
        f"no alert {ask.target} among the last {ask.scan:,} of {' and '.join(topics)}; raise --scan, or correct --app"
    )


def _published(reader: Reading, topics: AppTopics, explanation: Explanation, scan: int) -> Found | None:
    """Where the alert is that the event in question gives."""
    if not explanation.fired or explanation.event is None:
        return None
    place = explanation.event.origin.place
    mine = [alert for alert in explanation.alerts if alert["source"] == place]
    for alert in mine[-1:]:
        for lane in (ALERTS, SHADOW):
            found = reader.find(f"{topics.app}.{lane}", "key", str(alert["alert_id"]).encode(), scan)
            if found is not None:
                return found
    return None


def _differences(alert: Mapping[str, Json], again: Sequence[Mapping[str, Json]]) -> tuple[str, ...]:
    """What is different in the recomputed alert; one sentence when there is none."""
    same = next((one for one in again if one["alert_id"] == alert["alert_id"]), None)
    if same is None:
        return ("the rule gives no such alert over the events that are there now",)
    return tuple(
        f"{name}: published {orjson.dumps(alert.get(name)).decode()}, now {orjson.dumps(same.get(name)).decode()}"
        for name in _COMPARED
        if alert.get(name) != same.get(name)
    )
