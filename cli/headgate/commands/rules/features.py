"""``headgate features``: the features that an app computes, and the rules that read them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.console.output import Output, emit, output_option
from headgate.errors import InputError
from headgate.kafka_login import KafkaLogin
from headgate.records.formats import RecordFormats
from headgate.rules.options import formats_option, scan_option, streams_option, target_option, topic_option
from headgate.time_arguments import parse_time

if TYPE_CHECKING:
    from headgate.rules.feature_table import SharedFeature


@click.group(name="features")
def command() -> None:
    """Inspect the published features of an app and those of its rules. Rules that declare the same feature share it."""


@command.command(name="list", short_help="List the features that an app computes.")
@streams_option
@target_option
@output_option
def list_(streams: Path | None, login: KafkaLogin, app: str, output: Output) -> None:
    """List each feature once, with the version and owner of a published one, and the number of rules that read it.

    The command reads only the control topic; the app need not run. A feature counts for a rule that is live, on trial
    or paused. STATE of a published feature is `kept`, or why it is in quarantine. Features are the same if all but the
    name and the length back are equal; BACK is the longest.
    """
    from headgate.rules.feature_table import FEATURES_HEAD, feature_rows
    from headgate.rules.render import as_json, as_table

    rows = feature_rows(_read_features(streams, login, app))
    emit(output, as_json(FEATURES_HEAD, rows), as_table(FEATURES_HEAD, rows))


@command.command(short_help="Show one feature, and the rules that read it.")
@click.argument("name")
@streams_option
@target_option
@output_option
def show(name: str, streams: Path | None, login: KafkaLogin, app: str, output: Output) -> None:
    """Show the features that are published as NAME, or that a rule calls so: what each is, and the rules that read it
    under whatever name."""
    from headgate.rules.feature_table import READERS_HEAD, reader_rows
    from headgate.rules.render import as_json, as_table

    rows = [row for one in _read_features(streams, login, app) if name in one.names for row in reader_rows(one)]
    if not rows:
        raise InputError(f"app {app} has no feature {name}; `headgate features list` names them")
    emit(output, as_json(READERS_HEAD, rows), as_table(READERS_HEAD, rows))


@command.command(short_help="Show the value of a published feature for one key.")
@click.argument("name")
@click.argument("key", nargs=-1, required=True, metavar="KEY...")
@click.option("--at", default=None, help="A time, or how long ago (2h); default: now.")
@topic_option()
@scan_option
@streams_option
@target_option
@formats_option
@output_option
def get(
    name: str,
    key: tuple[str, ...],
    at: str | None,
    topic: tuple[str, ...],
    scan: int,
    streams: Path | None,
    login: KafkaLogin,
    app: str,
    formats: RecordFormats,
    output: Output,
) -> None:
    """Show the value that an event of KEY would find: COLUMN=VALUE for each column of `by`; of one the value is enough.

    It is computed from the events of the key on the topic, with the code of production; the app need not run.

    \b
    headgate features get usual_amount u17
    headgate features get paid_with user_id=u17 card=c4 --at 2h
    """
    from headgate.explain.feature_value import FeatureQuery, read_feature, reading_json, reading_text
    from headgate.rules.history import read_history
    from headgate.rules.publish import AppTopics, require_app

    kafka, topics, now_ms = login.settings("headgate-rules"), AppTopics(app), int(time.time() * 1000)
    require_app(kafka, topics)
    at_ms = None if at is None else parse_time(at, now_ms, "--at")
    query = FeatureQuery(name, key, at_ms, topic, scan, now_ms, formats)
    found = read_feature(kafka, app, read_history(kafka, topics, streams), query)
    emit(output, reading_json(found), reading_text(found))


def _read_features(streams: Path | None, login: KafkaLogin, app: str) -> list[SharedFeature]:
    from headgate.rules.feature_table import shared_features
    from headgate.rules.history import read_history
    from headgate.rules.publish import AppTopics, require_app

    kafka, topics = login.settings("headgate-rules"), AppTopics(app)
    require_app(kafka, topics)
    return shared_features(read_history(kafka, topics, streams).rules)
