"""``headgate compare``: the differences between the output of two apps."""

from __future__ import annotations

import time
from pathlib import Path

import click

from headgate.console.output import Output, emit, output_option
from headgate.kafka_login import KafkaLogin, login_option


@click.command(name="compare")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@login_option
@click.option("--lane", "lanes", multiple=True, help="Only this lane; repeatable (default: all that both apps have).")
@click.option(
    "--since",
    default=None,
    metavar="TIME",
    help="Only records that were written since then: a time with its zone, or 2h (default: all). For a fork: the time "
    "of its savepoint, which headgate fork prints.",
)
@click.option("--ignore", multiple=True, metavar="FIELD", help="A field that does not count. Repeatable.")
@click.option(
    "--time",
    "time_field",
    default=None,
    metavar="FIELD",
    help="Field with the time of a record (default: window_start, event_time_ms, at, time and the like).",
)
@click.option(
    "--limit", type=click.IntRange(0), default=10, show_default=True, help="Most differences shown of a kind and lane."
)
@click.option(
    "--svg", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Also draw them to this file."
)
@output_option
def command(
    first: str,
    second: str,
    login: KafkaLogin,
    lanes: tuple[str, ...],
    since: str | None,
    ignore: tuple[str, ...],
    time_field: str | None,
    limit: int,
    svg: Path | None,
    output: Output,
) -> int:
    """Show the differences between the lanes of two apps, such as an app and its fork. Exit code 1 if anything does.

    Records are compared by value, whatever their order; the name of B in keys and texts counts as that of A. Records
    with the same key and time are one record that was changed. Wait until both apps have no lag: what one of them has
    not written yet is only in the other.
    """
    from headgate.compare import plot, render
    from headgate.compare.differences import TIME_FIELDS
    from headgate.compare.lanes import compare_apps
    from headgate.time_arguments import parse_time

    since_ms = 0 if since is None else parse_time(since, time.time_ns() // 1_000_000, "--since")
    time_fields = TIME_FIELDS if time_field is None else (time_field,)
    kafka = login.settings("headgate-compare")
    found = [*compare_apps(kafka, first, second, lanes, since_ms, ignore, time_fields)]
    if svg is not None:
        svg.write_text(plot.svg(first, second, found), encoding="utf-8")
    emit(output, render.data(first, second, found), render.text(first, second, found, limit))
    return 1 if any(lane.differs for lane in found) else 0
