"""The rules of an app and their history, from its control topic."""

from __future__ import annotations

from pathlib import Path

from headgate.publishing import AppTopics, read_log
from headgate.rulebook import load_streams
from rulecore.audit import History, read_back
from rulecore.ruleset import RuleSet
from streamcore.kafka.settings import KafkaSettings


def read_history(kafka: KafkaSettings, topics: AppTopics, streams: Path | None, now_ms: int | None = None) -> History:
    """Apply the control topic from its beginning, against the streams of a folder.

    ``now_ms``: what versions have come and gone by the clock since the last record.
    """
    history = read_back(RuleSet.empty(load_streams(streams)), read_log(kafka, topics))
    if now_ms is not None:
        history.rules, _ = history.rules.at(now_ms)
    return history
