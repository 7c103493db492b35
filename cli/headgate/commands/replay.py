"""``headgate replay``: sends the rows of a file to a topic."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from headgate.console.output import Json, Output, emit, output_option
from headgate.kafka_login import KafkaLogin, login_option


@click.command(name="replay")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--stream", required=True, help="Stream whose events the file holds (streams/NAME.yaml).")
@click.option("--topic", default=None, help="Target topic (default: the stream's name).")
@login_option
@click.option("--speed", default="max", show_default=True, help="max, or a multiple of event time such as 1x or 100x.")
@click.option(
    "--key", default=None, help="Fields of the record key, separated by commas (default: the stream's first key)."
)
@click.option("--limit", type=click.IntRange(1), default=None, help="Send at most this many rows.")
@click.option(
    "--partitions", type=click.IntRange(1), default=4, show_default=True, help="Partitions of a topic that is created."
)
@click.option("--streams", type=click.Path(file_okay=False, path_type=Path), default=None, help="Folder of streams.")
@output_option
def command(
    file: Path,
    stream: str,
    topic: str | None,
    login: KafkaLogin,
    speed: str,
    key: str | None,
    limit: int | None,
    partitions: int,
    streams: Path | None,
    output: Output,
) -> None:
    """Send the rows of a Parquet or JSON-lines FILE to a topic.

    Column names are mapped to the stream's (InvoiceNo: invoice_no). Rows that do not match the stream are sent
    unchanged; the app sends them to its dead-letter lane with a reason.
    """
    from headgate.records.file_rows import count_rows, read_rows
    from headgate.records.replay import KafkaSink, Speed, SystemClock, ensure_topic, replay
    from headgate.records.stream_files import load_stream

    replay_speed = Speed.parse(speed)
    schema = load_stream(stream, streams)
    target = topic or schema.name
    fields = None if key is None else tuple(part.strip() for part in key.split(","))
    rows = itertools.islice(read_rows(file, schema, fields), limit)
    row_count = count_rows(file)
    total = limit if row_count is None else min(row_count, limit or row_count)
    settings = login.settings("headgate-replay")
    ensure_topic(settings, target, partitions)
    with _progress(f"{file.name} to {target}", total) as on_progress:
        sent = replay(rows, KafkaSink(settings, target), replay_speed, SystemClock(), on_progress)
    data: Json = {"topic": target, "rows": sent.rows, "bytes": sent.bytes, "seconds": round(sent.seconds, 3)}
    emit(output, data, f"{sent.rows} rows, {sent.bytes} bytes to topic {target} in {sent.seconds:.1f} s")


@contextmanager
def _progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr if that is a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(title, total=total)
        yield lambda rows: bar.update(task, completed=rows)
