"""``headgate state``: what an app keeps, as a savepoint has it."""

from __future__ import annotations

import click

from headgate.output import Output, emit, output_option
from headgate.savepoint_options import place_option, savepoints_at


@click.group(name="state")
def command() -> None:
    """Look into the state of an app. Take a savepoint first: a running app's own state is nobody else's to read."""


@command.command()
@click.argument("name")
@click.argument("table")
@place_option
@click.option(
    "--where", "conditions", multiple=True, metavar="COLUMN=VALUE", help="Only such rows; several times: all hold."
)
@click.option("--shard", type=click.IntRange(0), default=None, help="Only rows of this shard.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="The first so many.")
@output_option
def show(
    name: str,
    table: str,
    place: str,
    app: str,
    conditions: tuple[str, ...],
    shard: int | None,
    limit: int,
    output: Output,
) -> None:
    """Show rows of TABLE in the savepoint NAME. Which tables there are: headgate savepoint show NAME.

    Columns that begin with __ are the engine's. What is packed is shown as its size.
    """
    from headgate.state_view import data, read, text

    rows = read(savepoints_at(place, app).get(name), table, conditions, shard, limit)
    emit(output, data(rows), text(rows))
