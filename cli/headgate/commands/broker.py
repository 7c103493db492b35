"""``headgate broker``: the Kafka of this machine, for development."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from headgate.console.output import Json, Output, emit, output_option
from headgate.local.servers.kafka import DEFAULT_PORT, BrokerSettings, EmbeddedBroker, default_folder
from headgate.local.servers.postgres import local_postgres

_FOLDER = click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Data folder (default: broker/ in the cache).",
)


@click.group(name="broker")
def command() -> None:
    """Start, stop and inspect the local Kafka broker."""


@command.command()
@_FOLDER
@click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="Port; 0: any free one."
)
@click.option("--heap-mb", type=click.IntRange(128), default=512, show_default=True, help="Java heap.")
@output_option
def start(folder: Path | None, port: int, heap_mb: int, output: Output) -> None:
    """Start the broker unless it runs, and print its address."""
    broker = EmbeddedBroker(BrokerSettings(folder or default_folder(), port, heap_mb))
    bootstrap = broker.start()
    emit(output, {"bootstrap": bootstrap, "folder": str(broker.files.folder)}, bootstrap)


@command.command()
@_FOLDER
@click.option("--delete", is_flag=True, help="Delete its data as well: all topics and all records.")
@output_option
def stop(folder: Path | None, output: Output, *, delete: bool) -> None:
    """Stop the broker if it runs, and without --folder the PostgreSQL that a run has left with --keep-broker."""
    if folder is None:
        local_postgres().stop()
    broker = EmbeddedBroker(BrokerSettings(folder or default_folder()))
    was_running = broker.running is not None
    broker.stop()
    # Only a folder that holds a broker is deleted, whatever was typed after --folder.
    deleted = delete and broker.files.formatted_marker.exists()
    if deleted:
        shutil.rmtree(broker.files.folder)
    text = ("stopped" if was_running else "was not running") + (", data deleted" if deleted else "")
    emit(output, {"was_running": was_running, "deleted": deleted}, text)


@command.command()
@_FOLDER
@output_option
def status(folder: Path | None, output: Output) -> int:
    """Show whether the broker runs; exit code 1 if not."""
    broker = EmbeddedBroker(BrokerSettings(folder or default_folder()))
    found = broker.running
    where = str(broker.files.folder)
    if found is None:
        emit(output, {"running": False, "folder": where}, "not running; start it with `headgate broker start`")
        return 1
    bootstrap = f"127.0.0.1:{found.port}"
    data: Json = {"running": True, "bootstrap": bootstrap, "pid": found.pid, "folder": where}
    emit(output, data, f"running on {bootstrap}, process {found.pid}, data in {where}")
    return 0
