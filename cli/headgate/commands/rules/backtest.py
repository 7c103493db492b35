"""``headgate rules backtest``: runs the rules of files over past events and compares them with the live versions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.console.output import Output, emit, output_option
from headgate.errors import InputError
from headgate.kafka_login import KafkaLogin
from headgate.records.formats import RecordFormats
from headgate.rules.options import files_option, formats_option, target_option, topic_option

if TYPE_CHECKING:
    from rulecore.backtest.backtest import AlertCallback


@click.command(short_help="Run rules over past events and count the alerts.")
@files_option
@click.option(
    "--parquet", multiple=True, help="A file, or a folder of *.parquet; of several streams STREAM=PATH for each."
)
@click.option("--from", "start", default=None, help="Kafka: a time, how long ago (2h), or an offset.")
@click.option(
    "--to", "end", default="now", show_default=True, help="Kafka: end of the range (exclusive), in the form of --from."
)
@topic_option("Kafka: the topic")
@click.option(
    "--stream",
    default=None,
    help="The stream of the events, or several as logins+payments (default: that of the rules).",
)
@click.option("--compare", default=None, help="live, none, or a file or folder with other versions of the rules.")
@click.option("--disorder", default="10s", show_default=True, help="Allowed disorder of event times, as in the app.")
@click.option("--limit", type=click.IntRange(1), default=None, help="Read at most about this many events.")
@click.option("--sum", "summed", metavar="COLUMN", default=None, help="Add up this column by outcome of the decisions.")
@click.option(
    "--alerts", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write the alerts to this file."
)
@click.option(
    "--decisions",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Write the decisions to this file.",
)
@target_option
@formats_option
@output_option
def backtest(
    paths: Sequence[Path],
    streams: Path | None,
    lists: Path | None,
    parquet: tuple[str, ...],
    start: str | None,
    end: str,
    topic: tuple[str, ...],
    stream: str | None,
    compare: str | None,
    disorder: str,
    limit: int | None,
    summed: str | None,
    alerts: Path | None,
    decisions: Path | None,
    login: KafkaLogin,
    app: str,
    formats: RecordFormats,
    output: Output,
) -> int:
    """Run the rules of PATHS over past events and count the alerts of each rule.

    The events come from Parquet files or from a range of a Kafka topic; the rules run in the code of production. With
    --compare, other versions of the rules run too (default with Kafka: the live versions of the app), and the table
    shows the alerts that both versions raise and those that only one raises. Two alerts of a rule are the same if
    they are about the same event, or the same key and window.

    The times of a range are the broker's timestamps of the records. Windows that are open when the events end do not
    fire. Rules of every mode are evaluated. Records that are not valid events are counted and do not stop the run.

    With a decision policy of the stream among PATHS, the events are counted by outcome; if the other versions have one,
    too, by both outcomes: how many would move from allow to block. A file for --compare with a policy alone compares it
    on the same rules. A policy in a file that PATHS names takes the place of that with its name in a folder of PATHS.
    Rules count that are live or canary. --decisions has each decision that the app would write, as a JSON object on a
    line.

    \b
    headgate rules backtest rules/shop --from 24h
    headgate rules backtest new.yaml --from 2026-12-01T00:00:00Z --to 2026-12-02T00:00:00Z --app shop
    headgate rules backtest new.yaml --parquet lake/december --stream shop --compare rules/shop
    headgate rules backtest both.yaml --from 24h --topic logins=auth.logins --topic payments=pay.done
    headgate rules backtest new.yaml --parquet events.parquet --alerts alerts.jsonl -o json
    headgate rules backtest rules/shop new-policy.yaml --from 24h --compare rules/shop/policy.yaml --sum amount
    """
    from headgate.backtest.render import as_json, as_text
    from headgate.backtest.run import BacktestRequest, run
    from headgate.console.progress import progress
    from rulecore.documents.scalars import parse_duration_ms

    if bool(parquet) == (start is not None):
        raise click.UsageError("name the events: --parquet FILE-OR-FOLDER, or --from TIME for a range of a topic")
    try:
        max_out_of_orderness_ms = parse_duration_ms(disorder)
    except ValueError as error:
        raise InputError(f"--disorder: {error}") from None
    now_ms = int(time.time() * 1000)
    request = BacktestRequest(
        tuple(paths),
        streams,
        lists,
        stream,
        compare,
        max_out_of_orderness_ms,
        limit,
        parquet,
        start,
        end,
        topic,
        login,
        app,
        now_ms,
        formats,
        summed,
    )
    with _line_writer(alerts, "--alerts") as on_alert, _line_writer(decisions, "--decisions") as on_decision:
        result = run(request, progress, on_alert, on_decision)
    emit(output, as_json(result), as_text(result))
    return 0


@contextmanager
def _line_writer(path: Path | None, option: str) -> Iterator[AlertCallback | None]:
    """Yield a function that writes alerts or decisions to the file, one per line; None without a file."""
    if path is None:
        yield None
        return
    try:
        with path.open("wb") as file:
            yield lambda alert: _write_line(file.write, alert)
    except OSError as error:
        raise InputError(f"{option} {path}: {error.strerror}; name a file that you may write") from None


def _write_line(write: Callable[[bytes], int], alert: bytes) -> None:
    write(alert + b"\n")
