"""Answers queries that need Kafka: about an alert, an event or key of a topic, or a published rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from headgate.errors import InputError
from headgate.explain.event_selection import find_alert_events, find_events_at, find_key_events
from headgate.explain.evidence import Evidence, decode_lines, drop_duplicates, drop_late_events, explain_evidence
from headgate.explain.from_file import file_input, read_lines
from headgate.explain.kafka_reader import KafkaReader, KafkaRecord
from headgate.explain.query import ExplainQuery, ExplainResult, known_rule, signal_rules
from headgate.explain.reason_context import AppRules
from headgate.explain.reasons import find_reasons
from headgate.records.inputs import find_input
from headgate.rules.bundle import load_streams, read_bundle
from headgate.rules.history import read_history
from headgate.rules.publish import AppTopics
from headgate.time_arguments import parse_number
from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import RuleKind
from rulecore.documents.yaml_reader import Json
from rulecore.explain.explanation import Explanation
from rulecore.lists.store import ListStore
from rulecore.ruleset.history import RuleHistory
from rulecore.ruleset.ruleset import RuleSet
from rulecore.streams import RuleInput, find_stream, is_union, stream_names
from streamcore.schema import StreamSchema
from streamcore.wire.lanes import ALERTS, LATE, SHADOW, STATUS

_LATE_RECORDS = 50_000
#: The fields of an alert that do not depend on which events have been read.
_COMPARED = ("alert_id", "event_time_ms", "key", "window", "timing", "values", "source", "message", "severity", "score")


def answer_published(query: ExplainQuery) -> ExplainResult:
    """Answer the query from Kafka. Raises ``InputError``, naming the missing part, if that is not possible."""
    reader = KafkaReader(query.kafka, query.formats)
    reader.load_bounds(
        [AppTopics(query.app).control, *(f"{query.app}.{lane}" for lane in (ALERTS, SHADOW, STATUS, LATE))]
    )
    known = _read_app_rules(query, reader)
    return _explain_alert(query, reader, known) if query.is_alert else _explain_rule(query, reader, known)


def _read_app_rules(query: ExplainQuery, reader: KafkaReader) -> AppRules:
    """Read the rules of the app; none if the app was never started."""
    topics = AppTopics(query.app)
    _, ends = reader.bounds(topics.control)
    if query.history is not None:
        history = query.history
    elif ends:
        history = read_history(query.kafka, topics, query.streams, query.now_ms)
    else:
        history = RuleHistory(RuleSet.empty(load_streams(query.streams)))
    return AppRules(topics, bool(ends), history, query.now_ms)


def _explain_rule(query: ExplainQuery, reader: KafkaReader, known: AppRules) -> ExplainResult:
    rules, lists = _rules(query, known)
    rule = _rule(query, rules, known)
    evidence = _find_evidence(query, reader, rule, known.streams)
    evidence = drop_duplicates(_drop_late(query, reader, rule, evidence))
    found = explain_evidence(rule, evidence, signal_rules(rule, rules), lists)
    reasons = find_reasons(reader, known, found.explanation, evidence, query.scan)
    published = _find_published_alert(reader, AppTopics(query.app), found.explanation, query.scan)
    notes = found.notes
    if found.explanation.fired and published is None and query.rules is None and not reasons:
        notes = (*notes, f"its alert is not among the last {query.scan:,} alerts of app {query.app}")
    return ExplainResult(found.explanation, found.about, reasons, notes, published=published)


def _rules(query: ExplainQuery, known: AppRules) -> tuple[Mapping[str, CompiledRule], ListStore]:
    """Return the rules of the query's files, or else the app's; and the lists that the rules use."""
    if query.rules is not None:
        lists = known.history.lists.types()
        bundle = read_bundle(
            [query.rules],
            query.streams,
            query.lists,
            lists,
            about=query.target,
            schemas=known.streams,
            published=known.history.rules.features.documents,
        )
        return {rule.rule.id: rule for rule in bundle.rules}, bundle.list_store(known.history.lists)
    if not known.app_exists:
        topic = known.topics.control
        raise InputError(f"app {query.app}: no topic {topic} at {query.kafka.bootstrap}; correct --app or --bootstrap")
    return {name: rule for name in known.names if (rule := known.find_compiled(name)) is not None}, known.history.lists


def _rule(query: ExplainQuery, rules: Mapping[str, CompiledRule], known: AppRules) -> CompiledRule:
    name, version = query.rule
    if version is None or query.rules is not None:
        return known_rule(query.target, rules)
    rule = known.find_compiled(name, version)
    if rule is None:
        versions = sorted(number for rule_id, number in known.history.documents if rule_id == name)
        raise InputError(f"{name} has no version {version}; it has {', '.join(map(str, versions)) or 'none'}")
    return rule


def _drop_late(query: ExplainQuery, reader: KafkaReader, rule: CompiledRule, evidence: Evidence) -> Evidence:
    once = any(one.schema.deduplicate_ms is not None for one in evidence.source.streams)
    if (rule.kind is RuleKind.EVENT and not once) or query.event_json is not None:
        return evidence
    return drop_late_events(reader, f"{query.app}.{LATE}", evidence, min(query.scan, _LATE_RECORDS))


def _find_evidence(
    query: ExplainQuery, reader: KafkaReader, rule: CompiledRule, streams: Mapping[str, StreamSchema]
) -> Evidence:
    if query.event_json is not None:
        own = file_input(query.event_json, rule.rule.on, streams)
        return decode_lines(query.event_json, read_lines(query.event_json), own, rule, query.now_ms)
    if query.event is not None:
        position = _parse_position(query.event)
        at = _input(query, rule, streams, position[0])
        return find_events_at(reader, at, rule, position, query.scan, query.now_ms)
    if query.key:
        source = _input(query, rule, streams)
        return find_key_events(reader, source, rule, query.key, query.at_ms, query.scan, query.now_ms)
    raise InputError(
        f"explain {query.target}: name the event with --event topic:partition:offset, --event-json FILE, "
        f"or --key {'=… --key '.join(rule.group_by or find_stream(streams, rule.rule.on).keys[0])}=… [--at TIME]"
    )


def _input(
    query: ExplainQuery, rule: CompiledRule, streams: Mapping[str, StreamSchema], topic: str | None = None
) -> RuleInput:
    """Return the input of a rule. ``topic``: that of the event, which for one stream needs no ``--topic``."""
    on = rule.rule.on
    if topic is not None and not is_union(on):
        return find_input(on, streams, (topic,), query.formats)
    source = find_input(on, streams, query.topics, query.formats)
    if topic is not None and topic not in source.topics:
        known = ", ".join(f"{one.schema.name} is on {one.topic}" for one in source.streams)
        raise InputError(f"topic {topic}: {known}; name the topic of each stream with --topic STREAM=TOPIC")
    return source


def _parse_position(text: str) -> tuple[str, int, int]:
    topic, _, rest = text.partition(":")
    partition, _, offset = rest.partition(":")
    numbers = parse_number(partition), parse_number(offset)
    if not topic or numbers[0] is None or numbers[1] is None:
        raise InputError(f"--event {text!r}: write topic:partition:offset, as an alert's source has them")
    return topic, numbers[0], numbers[1]


def _explain_alert(query: ExplainQuery, reader: KafkaReader, known: AppRules) -> ExplainResult:
    alert = _find_alert(query, reader)
    name, version = str(alert["rule"]), int(str(alert["version"]))
    for stream in stream_names(str(alert["stream"])):
        if stream not in known.streams:
            raise InputError(f"alert {query.target} is on stream {stream!r}, which is not declared; see --streams")
    rule = known.find_compiled(name, version)
    notes: tuple[str, ...] = ()
    if rule is None:
        rule = known_rule(name, {r: c for r in known.names if (c := known.find_compiled(r)) is not None})
        notes = (
            f"version {version} of {name} is no longer on the control topic; this explains version {rule.rule.version}",
        )
    place = alert["source"]
    source = _input(query, rule, known.streams, str(place["topic"]) if isinstance(place, dict) else None)
    evidence = find_alert_events(reader, source, rule, alert, query.scan, query.now_ms)
    evidence = drop_duplicates(_drop_late(query, reader, rule, evidence))
    signals = rule.rule.score.of if rule.rule.score is not None else ()
    support = tuple(c for s in signals if (c := known.find_compiled(s)) is not None)
    found = explain_evidence(rule, evidence, support, known.history.lists)
    differences = _differences(alert, found.explanation.alerts)
    return ExplainResult(found.explanation, found.about, (), (*notes, *found.notes), alert, differences)


def _find_alert(query: ExplainQuery, reader: KafkaReader) -> Mapping[str, Json]:
    topics = [f"{query.app}.{lane}" for lane in (ALERTS, SHADOW)]
    for topic in topics:
        found = reader.find(topic, "key", query.target.encode(), query.scan)
        if found is not None and found.value is not None:
            alert = orjson.loads(found.value)
            assert isinstance(alert, dict)
            return alert
    raise InputError(
        f"no alert {query.target} among the last {query.scan:,} of {' and '.join(topics)}; "
        "raise --scan, or correct --app"
    )


def _find_published_alert(
    reader: KafkaReader, topics: AppTopics, explanation: Explanation, scan: int
) -> KafkaRecord | None:
    """Return the published record of the alert that the event in question raises; None if it is not found."""
    if not explanation.fired or explanation.event is None:
        return None
    position = explanation.event.origin.place
    own_alerts = [alert for alert in explanation.alerts if alert["source"] == position]
    for alert in own_alerts[-1:]:
        for lane in (ALERTS, SHADOW):
            found = reader.find(f"{topics.app}.{lane}", "key", str(alert["alert_id"]).encode(), scan)
            if found is not None:
                return found
    return None


def _differences(alert: Mapping[str, Json], recomputed: Sequence[Mapping[str, Json]]) -> tuple[str, ...]:
    """Return one text for each field that differs in the recomputed alert, or one if the rule does not raise it
    again."""
    same = next((candidate for candidate in recomputed if candidate["alert_id"] == alert["alert_id"]), None)
    if same is None:
        return ("the rule does not raise this alert for the events that still exist",)
    return tuple(
        f"{name}: published {orjson.dumps(alert.get(name)).decode()}, now {orjson.dumps(same.get(name)).decode()}"
        for name in _COMPARED
        if alert.get(name) != same.get(name)
    )
