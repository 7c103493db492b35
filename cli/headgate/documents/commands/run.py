"""``headgate etl run``, and the same for the other services."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from headgate.documents.commands.options import FILE


def _command(service: str) -> click.Command:
    def run(
        file: Path,
        entries: Sequence[str],
        sends: Sequence[str],
        partitions: int | None,
        *,
        local: bool,
        create_topics: bool,
        keep_broker: bool,
    ) -> None:
        from headgate.documents.run import RunOptions, run_document

        run_document(service, file, RunOptions(entries, local, create_topics, partitions, keep_broker, sends))

    run.__doc__ = (
        f"Run the {service} service with the settings FILE on this machine, with a live view.\n\n"
        "It checks FILE, fetches Java and Spark's jars once, starts the local broker if FILE names it "
        "(127.0.0.1:19092) and the local PostgreSQL with its tables if FILE names it (127.0.0.1:19432), creates the "
        "topics that are missing on this machine, and starts the app. Ctrl-C stops at a batch boundary; the next run "
        "continues there. Other servers of tables and indexes must run already. Without a terminal the view is a line "
        "every few seconds."
    )
    options = [
        click.argument("file", type=FILE),
        click.option(
            "--set",
            "entries",
            multiple=True,
            metavar="ENTRY=VALUE",
            help="An entry instead of that of FILE. Repeatable.",
        ),
        click.option(
            "--send",
            "sends",
            metavar="[INPUT=]PATH",
            multiple=True,
            help="Send the records of this file first, one on each line; with several inputs STREAM=PATH. Repeatable.",
        ),
        click.option("--local", is_flag=True, help="Use the local broker, whatever Kafka FILE names."),
        click.option(
            "--create-topics", is_flag=True, help="Create missing topics also at a Kafka that is not on this machine."
        ),
        click.option(
            "--partitions",
            type=click.IntRange(1),
            help="Partitions of the topics that are created for the app to read (default: 4; with --send 1, which "
            "holds the lines in order).",
        ),
        click.option("--keep-broker", is_flag=True, help="Leave the local broker and PostgreSQL running."),
    ]
    command = run
    for option in reversed(options):
        command = option(command)
    return click.command(name="run", short_help="Run the service with a settings file, with a live view.")(command)


etl, search, sessions = map(_command, ("etl", "search", "sessions"))
