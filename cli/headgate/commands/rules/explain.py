"""``headgate rules explain``: why a rule fired or did not, and how rules became a decision."""

from __future__ import annotations

import time
from pathlib import Path

import click

from headgate.console.output import Output, emit, output_option
from headgate.kafka_login import KafkaLogin
from headgate.records.formats import RecordFormats
from headgate.rules.options import (
    formats_option,
    lists_option,
    scan_option,
    streams_option,
    target_option,
    topic_option,
)


@click.command(short_help="Explain why a rule fired or did not, or a decision.")
@click.argument("target", metavar="ALERT_ID|DECISION_ID|RULE[@VERSION]")
@click.option("--event", default=None, help="The event, as topic:partition:offset.")
@click.option(
    "--event-json",
    type=click.Path(path_type=Path),
    default=None,
    help="A file with one JSON event per line; of several streams each has its stream as _stream.",
)
@click.option("--key", multiple=True, help="The key, as column=value; once for each column of group_by.")
@click.option("--at", default=None, help="With --key: a time, or how long ago (2h).")
@click.option(
    "--rules",
    type=click.Path(path_type=Path),
    default=None,
    help="Explain the rules of these files instead of the published ones.",
)
@topic_option()
@scan_option
@streams_option
@lists_option
@target_option
@formats_option
@output_option
def explain(
    target: str,
    event: str | None,
    event_json: Path | None,
    key: tuple[str, ...],
    at: str | None,
    rules: Path | None,
    topic: tuple[str, ...],
    scan: int,
    streams: Path | None,
    lists: Path | None,
    login: KafkaLogin,
    app: str,
    formats: RecordFormats,
    output: Output,
) -> None:
    """Explain why an alert was raised, or why a rule fired or did not, clause by clause with the values.

    For an alert, give its id: the command reads the version of the rule and the events, computes the alert again with
    the code of production and compares. For a rule, name an event, or a key and a time. In the tree, * marks the
    clauses that decide the result; the other clauses cannot change it. For a decision, give its id: the tree shows the
    rules that fired at its event with their values, and how the policy made its outcome of them.

    \b
    headgate rules explain 5f0c2e7b9d1a4c3e8f6b7a9d0c1e2f3a
    headgate rules explain large-payment --event shop:2:18311
    headgate rules explain card-testing --rules new.yaml --event-json event.json
    headgate rules explain rapid-payments --key user_id=u17 --at 2026-12-01T08:00:00Z
    """
    from headgate.explain.answer import answer
    from headgate.explain.query import ExplainQuery
    from headgate.explain.render_json import as_json
    from headgate.explain.render_text import as_text

    now_ms = int(time.time() * 1000)
    query = ExplainQuery(
        target, event, event_json, key, at, rules, streams, lists, topic, login, app, scan, now_ms, formats
    )
    if query.is_alert and rules is None:
        from headgate.explain.decision import decision_json, decision_text, find_decision

        if (decided := find_decision(query)) is not None:
            emit(output, decision_json(decided), decision_text(decided))
            return
    result = answer(query)
    emit(output, as_json(result), as_text(result))
