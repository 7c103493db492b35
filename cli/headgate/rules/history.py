"""The rules of an app and their history, from its control topic."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headgate.rules.bundle import load_streams
from headgate.rules.publish import AppTopics, ControlResponse, read_log
from rulecore.documents.rule import Rule
from rulecore.documents.status import Subject
from rulecore.ruleset.history import ControlEntry, RuleHistory, replay_log
from rulecore.ruleset.ruleset import RuleSet
from streamcore.engine.publication import decode_app_document
from streamcore.kafka.control_topic import RecordOffset
from streamcore.kafka.settings import KafkaSettings
from streamcore.schema import StreamSchema


def read_history(
    kafka: KafkaSettings, topics: AppTopics, streams: Path | None, now_ms: int | None = None
) -> RuleHistory:
    """Replay the control topic from its beginning. ``streams``: the folder of stream files; None: the default one.

    ``now_ms``: the clock by which versions start and expire after the last record, in epoch milliseconds.
    """
    history = replay_log(RuleSet.empty(load_streams(streams)), read_log(kafka, topics))
    if now_ms is not None:
        history.rules, _ = history.rules.at_time(now_ms)
    return history


def published_rules(kafka: KafkaSettings, app: str, streams: Path | None = None) -> Mapping[str, Rule]:
    """Return the newest version of each rule that the app now has in any slot, by rule id."""
    return newest_rules(read_history(kafka, AppTopics(app), streams, int(time.time() * 1000)))


def newest_rules(history: RuleHistory) -> Mapping[str, Rule]:
    """Return the newest version of each rule in any slot, by rule id."""
    held = sorted((one.rule for one in history.rules.rules.values()), key=lambda rule: rule.version)
    return {rule.id: rule for rule in held}


@dataclass(frozen=True, slots=True)
class AcceptedMapping:
    """The mapping that an etl app has accepted last. ``fields``: the number of those that it maps. ``streams``: of each
    stream that came with it, the name, the version and the number of fields."""

    version: int
    fields: int
    streams: tuple[tuple[str, int, int], ...]


def accepted_mapping(
    app: str, log: Iterable[ControlEntry], responses: Iterable[ControlResponse]
) -> AcceptedMapping | None:
    """Return the mapping in force of those that were published to an app; None if it has accepted none.

    ``log``: of its control topic. ``responses``: all answers of the app.
    """
    accepted = {one.position for one in responses if one.accepted and one.subject == Subject.DOCUMENT}
    found = None
    for entry in log:
        control = entry.control
        if RecordOffset(control.partition, control.offset) in accepted:
            found = decode_app_document(app, control).document
    if found is None:
        return None
    schemas = [StreamSchema.parse(each["stream"]) for each in found["inputs"] if len(each["stream"]) > 1]
    return AcceptedMapping(
        found["version"],
        len({name for each in found["inputs"] for name in each["map"]}),
        tuple((schema.name, schema.version, len(schema.fields)) for schema in schemas),
    )
