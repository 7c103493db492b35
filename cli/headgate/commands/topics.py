"""``headgate topics``: creates topics, sends lines and shows records, for machines without Kafka's own tools."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.console.output import Output, emit, output_option
from headgate.errors import InputError
from headgate.kafka_login import KafkaLogin, login_option

if TYPE_CHECKING:
    from streamcore.kafka.readers import Record
    from streamcore.kafka.settings import KafkaSettings

_POLL_MS = 200


class _Topic(click.ParamType["tuple[str, int]"]):
    """An argument ``NAME`` or ``NAME:PARTITIONS``, as a pair of name and number of partitions."""

    name = "name[:partitions]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        name, _, partitions = str(value).partition(":")
        if not name or (partitions and not (partitions.isdigit() and int(partitions))):
            self.fail(f"{value!r}: write a name, or a name and its number of partitions, such as shop:4", param, ctx)
        return name, int(partitions or 4)


@click.group(name="topics")
def command() -> None:
    """Create topics, send lines of files to them, and show records."""


@command.command()
@click.argument("topics", nargs=-1, required=True, type=_Topic())
@click.option(
    "--wait", type=click.FloatRange(0), default=30.0, show_default=True, help="Seconds to wait for the broker."
)
@login_option
@output_option
def create(topics: tuple[tuple[str, int], ...], wait: float, login: KafkaLogin, output: Output) -> None:
    """Create TOPICS (name, or name:partitions; default 4). Existing topics stay unchanged."""
    from headgate.records.replay import ensure_topic
    from streamcore.kafka.topics import wait_for_broker

    kafka = login.settings("headgate-topics")
    wait_for_broker(kafka, round(wait * 1000))
    partition_counts = {name: ensure_topic(kafka, name, partitions) for name, partitions in topics}
    emit(output, partition_counts, "\n".join(f"{name}: {count} partitions" for name, count in partition_counts.items()))


@command.command()
@click.argument("topic")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--skip-first", is_flag=True, help="Leave out the first line of each file, such as the names of CSV.")
@click.option(
    "--key-separator",
    help="What is before the first one in a line is the record's key, what is behind it the value; a line that ends "
    "with it is a record without a value, which deletes its key from a table.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    help="Partitions of a topic that is created (default: 1, which holds lines without a key in order; with keys 4).",
)
@login_option
@output_option
def send(
    topic: str,
    files: tuple[Path, ...],
    skip_first: bool,
    key_separator: str | None,
    partitions: int | None,
    login: KafkaLogin,
    output: Output,
) -> None:
    """Send each line of FILES to TOPIC as a record, as it is: CSV, logs, JSON lines. Empty lines are left out."""
    from headgate.records.replay import KafkaSink, ensure_topic

    kafka = login.settings("headgate-topics")
    ensure_topic(kafka, topic, partitions or (1 if key_separator is None else 4))
    sink, sent = KafkaSink(kafka, topic), 0
    for file in files:
        with file.open("rb") as lines:
            for number, line in enumerate(lines):
                value = line.rstrip(b"\r\n")
                if value and not (skip_first and number == 0):
                    sink.send_record(*_divide(value, key_separator, f"{file}:{number + 1}"))
                    sent += 1
    sink.flush_all()
    emit(output, {"topic": topic, "sent": sent}, f"{topic}: sent {sent:,} records")


def _divide(line: bytes, separator: str | None, place: str) -> tuple[bytes | None, bytes | None]:
    """Return the value and the key of a line."""
    if separator is None:
        return line, None
    key, found, value = line.partition(separator.encode())
    if not found:
        raise InputError(f"{place}: the line has no {separator!r} behind a key")
    return value or None, key


@command.command()
@click.argument("topic")
@click.option("--count", type=click.IntRange(1), default=10, show_default=True, help="Show at most this many records.")
@click.option(
    "--wait", type=click.FloatRange(0), default=10.0, show_default=True, help="Seconds to wait for further records."
)
@login_option
def show(topic: str, count: int, wait: float, login: KafkaLogin) -> int:
    """Print the values of committed records of TOPIC, from its beginning, one per line.

    Exit code 1 if no record arrives in time.
    """

    kafka = login.settings("headgate-topics")
    shown = 0
    for record in _records(kafka, topic, wait):
        click.echo((record.value or b"").decode("utf-8", "replace"))
        shown += 1
        if shown == count:
            break
    if not shown:
        click.echo(f"{topic}: no committed record within {wait:g} s", err=True)
    return 0 if shown else 1


def _records(kafka: KafkaSettings, topic: str, wait_s: float) -> Iterator[Record]:
    """Yield the topic's records until none arrives for ``wait_s`` seconds."""
    from streamcore.kafka.readers import Follower

    with Follower(kafka, [topic]) as follower:
        last = time.monotonic()
        while time.monotonic() - last < wait_s:
            for record in follower.poll(_POLL_MS):
                yield record
                last = time.monotonic()
