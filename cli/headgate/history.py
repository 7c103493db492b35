"""The rules of an app and their history, from its control topic."""

from __future__ import annotations

from pathlib import Path

from headgate.publishing import AppTopics, read_log
from headgate.rulebook import load_streams
from rulecore.audit import History, read_back
from rulecore.ruleset import RuleSet
from streamcore.kafka.settings import KafkaSettings


def read_history(kafka: KafkaSettings, topics: AppTopics, streams: Path | None) -> History:
    """Apply the control topic from its beginning, against the streams of a folder."""
    return read_back(RuleSet.empty(load_streams(streams)), read_log(kafka, topics))
