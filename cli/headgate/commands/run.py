"""``headgate run``: runs a program of the user as a service."""

from __future__ import annotations

import os
import sys

import click

from headgate.programs.options import program_options
from headgate.programs.program_settings import ProgramOptions


@click.command(name="run")
@program_options
@click.option(
    "--from",
    "starting",
    default=None,
    metavar="PLACE",
    help="Where the first start begins in topics: earliest, latest, an offset, or a time with its zone.",
)
@click.option(
    "--until",
    "ending",
    default=None,
    metavar="PLACE",
    help="Where the topics end, in the same forms, as it is at the first start: the program reads so far and stops.",
)
@click.option("--local", is_flag=True, help="Start the local broker, create missing topics, and show a live view.")
@click.option("--live", is_flag=True, help="The same with the Kafka of the settings, without the local broker.")
@click.option(
    "--fresh", is_flag=True, help="With --local or --live: delete checkpoint and savepoints here, start anew."
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="With --local or --live: partitions of the topics that are created for the program to read.",
)
@click.option("--keep-broker", is_flag=True, help="With --local: leave the local broker running.")
@click.option("--reports", is_flag=True, help="Write each batch as JSON to stdout instead of as a line to stderr.")
def command(
    program: str,
    options: ProgramOptions,
    partitions: int,
    starting: str | None,
    ending: str | None,
    *,
    local: bool,
    live: bool,
    fresh: bool,
    keep_broker: bool,
    reports: bool,
) -> None:
    """Run PROGRAM, a topology of your own, as a service: MODULE:TOPOLOGY or FILE.py:TOPOLOGY.

    TOPOLOGY is a topology, or a function that returns one; it is `topology` if you leave it out. Messages go
    to stderr, with a line for each batch that has rows. SIGTERM and Ctrl-C stop between two batches, and the next run
    continues there.
    """
    from dataclasses import replace

    from streamcore.wire import no_pandas

    bounds = {"starting_offsets": starting, "ending_offsets": ending}
    given = [f"{name}='{place}'" for name, place in bounds.items() if place is not None]
    options = replace(options, entries=(*options.entries, *given))
    no_pandas.unblock()
    if local or live:
        _run_with_view(program, options, partitions, local=local, fresh=fresh, keep_broker=keep_broker)
        return
    from headgate.programs.program_settings import load_program
    from headgate.programs.spark_jars import ensure_spark
    from streamcore.service.program.definition import MODULE

    loaded = load_program(program, options)
    jars = ensure_spark(loaded.settings.checkpoint)
    loaded = loaded.save(**({} if "jars" in loaded.document or jars is None else {"jars": str(jars)}))
    arguments = [sys.executable, "-m", MODULE, program, "--settings", str(loaded.settings_file)]
    arguments += ["--reports"] if reports else []
    os.execv(sys.executable, arguments)  # noqa: S606 - the program's process gets signals and gives its exit code


def _run_with_view(
    program: str, options: ProgramOptions, partitions: int, *, local: bool, fresh: bool, keep_broker: bool
) -> None:
    from dataclasses import replace

    from rich.console import Console

    from headgate.console.messages import to_stderr
    from headgate.kafka_login import KafkaLogin
    from headgate.local.servers.base import HOST
    from headgate.local.servers.kafka import DEFAULT_PORT
    from headgate.programs.local_run import LocalOptions, LocalRun
    from headgate.programs.program_settings import load_program

    if local:
        options = replace(options, login=KafkaLogin(options.login.bootstrap or f"{HOST}:{DEFAULT_PORT}"))
    is_default = options.login.bootstrap == f"{HOST}:{DEFAULT_PORT}"
    loaded = load_program(program, options)
    local_options = LocalOptions(DEFAULT_PORT if local and is_default else None, partitions, fresh, keep_broker)
    LocalRun(loaded, local_options, to_stderr).run(Console())
