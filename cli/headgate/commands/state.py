"""``headgate state``: shows the state of an app, read from a savepoint."""

from __future__ import annotations

import click

from headgate.console.output import Output, emit, output_option
from headgate.savepoints.options import savepoints_at, savepoints_option


@click.group(name="state")
def command() -> None:
    """Inspect the state of an app in a savepoint.

    Take a savepoint first: the state of a running app cannot be read by another process.
    """


@command.command()
@click.argument("name")
@click.argument("table")
@savepoints_option
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Only rows with this value; repeatable, all must match.",
)
@click.option("--shard", type=click.IntRange(0), default=None, help="Only rows of this shard.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Show at most this many rows.")
@output_option
def show(
    name: str,
    table: str,
    root: str,
    app: str,
    conditions: tuple[str, ...],
    shard: int | None,
    limit: int,
    output: Output,
) -> None:
    """Show rows of TABLE in the savepoint NAME. To list its tables: headgate savepoint show NAME.

    Columns that begin with __ belong to the engine. Binary values are shown as their size.
    """
    from headgate.savepoints.state_render import data, read, text

    rows = read(savepoints_at(root, app).get(name), table, conditions, shard, limit)
    emit(output, data(rows), text(rows))
