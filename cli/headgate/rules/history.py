"""The rules of an app and their history, from its control topic."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from headgate.rules.bundle import load_streams
from headgate.rules.publish import AppTopics, read_log
from rulecore.documents.rule import Rule
from rulecore.ruleset.history import RuleHistory, replay_log
from rulecore.ruleset.ruleset import RuleSet
from streamcore.kafka.settings import KafkaSettings


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
