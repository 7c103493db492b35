"""``headgate fork``: a second app from a savepoint of a first one, beside it."""

from __future__ import annotations

from pathlib import Path

import click

from headgate.console.output import Output, emit, output_option
from headgate.savepoints.options import decisions_option, parse_decisions, service_option
from headgate.savepoints.render import compatibility_json, compatibility_text


@click.command(name="fork")
@service_option
@click.option("--from", "savepoint", required=True, metavar="SAVEPOINT", help="A savepoint of the first app.")
@click.option("--as", "name", required=True, metavar="APP", help="Name of the fork, the prefix of its topics.")
@click.option(
    "--set",
    "entries",
    multiple=True,
    metavar="ENTRY=VALUE",
    help="A setting that differs in the fork, such as gap.gap_ms=600000. Repeatable.",
)
@click.option("--checkpoint", default=None, help="Its checkpoint (default: APP-checkpoint beside that of the first).")
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="File for the settings of the fork (default: APP.settings.json).",
)
@decisions_option
@output_option
def command(
    service: str,
    file: Path | None,
    root: str | None,
    savepoint: str,
    name: str,
    entries: tuple[str, ...],
    checkpoint: str | None,
    write: Path | None,
    drop: tuple[str, ...],
    accept: tuple[str, ...],
    output: Output,
) -> None:
    """Prepare a second app that starts from a savepoint of the first, with changed settings: an A/B test.

    The first app goes on. The fork has its own name, checkpoint, epochs, lanes and control topic, and continues the
    topics of events where the savepoint ends. headgate compare shows what differs in their output.
    """
    from headgate.programs.service_app import load_service
    from headgate.savepoints.fork import fork
    from rulecore.documents.scalars import render_time

    first = load_service(service, file)
    if root is not None:
        first = first.with_document({**first.document, "savepoints": root}, str(file))
    target = write or Path(f"{name}.settings.json")
    made = fork(first, savepoint, name, entries, parse_decisions(drop, accept), target, checkpoint)
    since = render_time(made.created_ms)
    start = f"headgate run {service}" if ":" in service or service.endswith(".py") else f"python -m headgate_{service}"
    text = (
        f"{made.checkpoint}: epoch {made.restored.epoch}, a fork of {first.settings.app}\n"
        f"{compatibility_text(made.restored.plan)}\n"
        f"start it:   {start} --settings {made.file}\n"
        f"compare:    headgate compare {first.settings.app} {name} --since {since}"
    )
    data = {
        "app": name,
        "of": first.settings.app,
        "checkpoint": made.checkpoint,
        "epoch": made.restored.epoch,
        "settings": str(made.file),
        "since": since,
        **compatibility_json(made.restored.plan),
    }
    emit(output, data, text)
