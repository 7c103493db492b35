"""``headgate rules backfill``: counts the history that a new rule has missed."""

from __future__ import annotations

import time
from pathlib import Path

import click

from headgate.console.output import Json, Output, emit, output_option
from headgate.kafka_login import KafkaLogin
from headgate.rules.options import streams_option, target_option


@click.command(short_help="Fill a new rule's windows from history, before it goes live.")
@click.argument("rule")
@click.option("--from", "start", required=True, help="A time (2026-12-01T08:00:00Z), or how long ago (24h).")
@click.option("--topic", default=None, help="The topic of the events (default: the stream's name).")
@click.option("--parquet", type=click.Path(path_type=Path), default=None, help="Files instead of the topic's history.")
@click.option("--why", default=None, help="The reason of the change, kept in the history.")
@click.option("--wait", type=click.FloatRange(0.1), default=60.0, show_default=True, help="For an answer, in seconds.")
@streams_option
@target_option
@output_option
def backfill(
    rule: str,
    start: str,
    topic: str | None,
    parquet: Path | None,
    why: str | None,
    wait: float,
    streams: Path | None,
    login: KafkaLogin,
    app: str,
    output: Output,
) -> int:
    """Count what RULE has missed and give it to the app, so that its windows are full and its alerts not warming.

    Publish the version in shadow first; the app says from which offsets on it counts. What came before them is counted
    here, by the same code, and added to what the app has. Then publish the version live: its aggregates are kept.

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
    history = BackfillSource(topic, parse_time(start, now_ms, "--from"), now_ms, parquet)
    note = note_for_user(why or "backfill")
    done = backfill_rule(kafka, topics, rule, history, streams, note, round(wait * 1000), progress)
    data: Json = [
        {
            "rule": one.rule,
            "version": one.version,
            "events": one.events,
            "aggregates": one.aggregates,
            "status": None if one.published.response is None else one.published.response.status,
        }
        for one in done
    ]
    emit(output, data, "\n".join(render_results(done)))
    return 0 if all(one.published.response is not None and one.published.response.accepted for one in done) else 1
