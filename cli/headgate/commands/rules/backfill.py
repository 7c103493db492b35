"""``headgate rules backfill``: counts the past events that a new rule has missed."""

from __future__ import annotations

import time
from pathlib import Path

import click

from headgate.console.output import Json, Output, emit, output_option
from headgate.kafka_login import KafkaLogin
from headgate.records.formats import RecordFormats
from headgate.rules.options import formats_option, streams_option, target_option, topic_option


@click.command(short_help="Fill the windows or features of a new rule with past events, before it goes live.")
@click.argument("rule")
@click.option(
    "--from",
    "start",
    required=True,
    help="Start of the past events: a time (2026-12-01T08:00:00Z), or how long ago (24h).",
)
@topic_option()
@click.option(
    "--parquet",
    multiple=True,
    help="Read the past events from this file or folder instead of the topic; of several streams STREAM=PATH for each.",
)
@click.option("--why", default=None, help="The reason for the change, kept in the history.")
@click.option(
    "--wait",
    type=click.FloatRange(0.1),
    default=60.0,
    show_default=True,
    help="Longest wait for a response, in seconds.",
)
@streams_option
@target_option
@formats_option
@output_option
def backfill(
    rule: str,
    start: str,
    topic: tuple[str, ...],
    parquet: tuple[str, ...],
    why: str | None,
    wait: float,
    streams: Path | None,
    login: KafkaLogin,
    app: str,
    formats: RecordFormats,
    output: Output,
) -> int:
    """Count the past events that RULE has missed and send the counts to the app: its windows or features are complete.

    Features are filled likewise.

    Publish the version in shadow mode first: the app reports the offsets from which it counts. This command counts
    the events before those offsets with the same code, and the app adds the counts to its state. Then publish the
    version live: it keeps its aggregates. Exit code 1 unless the app accepts every part of the backfill in time.

    \b
    headgate rules publish new.yaml --mode shadow --app shop
    headgate rules backfill many-cards --from 24h --topic shop.events --app shop
    headgate rules publish new.yaml --app shop        # with the next version number
    """
    from headgate.backtest.backfill import BackfillSource, backfill_rule, render_results
    from headgate.console.progress import progress
    from headgate.rules.publish import AppTopics, note_for_user, require_app
    from headgate.time_arguments import parse_time

    kafka, topics = login.settings("headgate-rules"), AppTopics(app)
    require_app(kafka, topics)
    now_ms = int(time.time() * 1000)
    history = BackfillSource(topic, parse_time(start, now_ms, "--from"), now_ms, parquet, formats)
    note = note_for_user(why or "backfill")
    results = backfill_rule(kafka, topics, rule, history, streams, note, round(wait * 1000), progress)
    data: Json = [
        {
            "rule": result.rule,
            "version": result.version,
            "events": result.events,
            "aggregates": result.aggregates,
            "status": None if result.published.response is None else result.published.response.status,
        }
        for result in results
    ]
    emit(output, data, "\n".join(render_results(results)))
    responses = [result.published.response for result in results]
    return 0 if all(response is not None and response.accepted for response in responses) else 1
