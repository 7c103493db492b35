"""``headgate search``: shows and rebuilds the indexes that an app's OpenSearch sink writes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from headgate.console.lazy_group import LazyGroup
from headgate.console.messages import to_stderr
from headgate.console.output import Json, Output, emit, output_option
from headgate.documents.commands import import_paths

if TYPE_CHECKING:
    from streamcore.sinks.opensearch.client import SearchClient
    from streamcore.sinks.opensearch.status import IndexStatus

_Command = TypeVar("_Command", bound=Callable[..., object])
_HEAD = ("INDEX", "APP", "LANE", "SEARCHED", "LIVE", "DOCUMENTS", "MB", "TEMPLATE", "GC-DELETES", "NEXT")
_FILE = click.Path(dir_okay=False, path_type=Path)


def _server_options(command: _Command) -> _Command:
    """Add ``--url`` and the login options to a command."""
    options = [
        click.option(
            "--url",
            "urls",
            multiple=True,
            default=["http://127.0.0.1:19200"],
            show_default=True,
            help="URL of a node. Repeatable.",
        ),
        click.option("--user", default=None, help="User name."),
        click.option("--password-file", type=_FILE, default=None, help="File that holds the password."),
        click.option("--password-env", default=None, help="Environment variable that holds the password."),
        click.option("--ca-file", type=_FILE, default=None, help="Certificate authority, PEM."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@contextmanager
def _client(
    urls: tuple[str, ...],
    user: str | None,
    password_file: Path | None,
    password_env: str | None,
    ca_file: Path | None,
) -> Iterator[SearchClient]:
    from streamcore.sinks.opensearch.client import SearchClient
    from streamcore.sinks.opensearch.settings import ClientSettings

    client = SearchClient(ClientSettings(tuple(urls), user, password_file, password_env, ca_file))
    try:
        yield client
    finally:
        client.close()


@click.group(name="search", cls=LazyGroup, import_paths=import_paths("search"))
def command() -> None:
    """Check, try and run the settings document of a search app; show and rebuild its indexes while the app runs.

    A rebuild creates a new index from the app's newest template, copies the documents while live updates go to both
    indexes, compares them, and moves the alias to the new index. After a crash, run it again: it continues.
    """


@command.command()
@_server_options
@click.option("--alias", default=None, help="Only this alias (default: all that apps write to).")
@output_option
def status(
    urls: tuple[str, ...],
    user: str | None,
    password_file: Path | None,
    password_env: str | None,
    ca_file: Path | None,
    alias: str | None,
    output: Output,
) -> None:
    """Show the indexes of each alias and the progress of a rebuild."""
    from headgate.console.tables import table
    from streamcore.sinks.opensearch.status import aliases, read_statuses

    with _client(urls, user, password_file, password_env, ca_file) as client:
        statuses = [(name, *read_statuses(client, name)) for name in ([alias] if alias else aliases(client))]
    data: Json = [
        {"alias": name, "stage": state.stage.value, "indexes": [asdict(index) for index in indexes]}
        for name, state, indexes in statuses
    ]
    lines = []
    for name, state, indexes in statuses:
        lines += [f"{name}: {_STAGE_TEXTS[state.stage.value]}", *table(_HEAD, [_row(index) for index in indexes]), ""]
    emit(output, data, "\n".join(lines[:-1]) if lines else "no index that an app's sink writes to")


_STAGE_TEXTS = {
    "idle": "no rebuild is running",
    "created": "a rebuild created a new index and ended; `headgate search rebuild` continues it",
    "live": "a rebuild is running, or ended: both indexes get updates; `headgate search rebuild` continues it",
    "swapped": "the new index is searched, both get updates; `headgate search rebuild` continues it",
}


def _row(index: IndexStatus) -> tuple[str, ...]:
    next_command = ""
    if not index.live and not index.searched:
        next_command = "headgate search drop"
    elif index.searched and index.current_version is not None and index.current_version != index.template_version:
        next_command = f"template is {index.current_version}: headgate search rebuild"
    flags = ("yes" if index.searched else "-", "yes" if index.live else "-")
    sizes = (
        str(index.documents),
        f"{index.size_bytes / 1e6:.1f}",
        str(index.template_version or "-"),
        index.gc_deletes,
    )
    return (index.index, index.app, index.lane, *flags, *sizes, next_command)


@command.command()
@_server_options
@click.option("--alias", required=True, help="The alias that readers search.")
@click.option("--sink", default="opensearch", show_default=True, help="Name of the app's sink.")
@click.option(
    "--wait", type=click.FloatRange(0.1), default=60.0, show_default=True, help="Longest wait for the app, in seconds."
)
@click.option(
    "--samples", type=click.IntRange(1, 10_000), default=1_000, show_default=True, help="Documents to compare."
)
@output_option
def rebuild(
    urls: tuple[str, ...],
    user: str | None,
    password_file: Path | None,
    password_env: str | None,
    ca_file: Path | None,
    alias: str,
    sink: str,
    wait: float,
    samples: int,
    output: Output,
) -> None:
    """Copy the documents to a new index and move the alias to it; the old index stays until `drop`."""
    from streamcore.sinks.opensearch.rebuild import Rebuild, RebuildLimits

    limits = RebuildLimits(follow_ms=round(wait * 1000), samples=samples)
    with _client(urls, user, password_file, password_env, ca_file) as client:
        result = Rebuild(client, alias, sink, limits, report=to_stderr).run()
    text = f"{alias} is {result.now} now, {result.documents} documents; {result.before} is kept: headgate search drop"
    emit(output, {"alias": alias, **asdict(result)}, text)


@command.command()
@_server_options
@click.option("--alias", required=True, help="The alias that readers search.")
@click.option("--sink", default="opensearch", show_default=True, help="Name of the app's sink.")
@click.option(
    "--wait", type=click.FloatRange(0.1), default=60.0, show_default=True, help="Longest wait for the app, in seconds."
)
@output_option
def drop(
    urls: tuple[str, ...],
    user: str | None,
    password_file: Path | None,
    password_env: str | None,
    ca_file: Path | None,
    alias: str,
    sink: str,
    wait: float,
    output: Output,
) -> None:
    """Delete the old indexes that rebuilds have replaced."""
    from streamcore.sinks.opensearch.rebuild import Rebuild, RebuildLimits

    limits = RebuildLimits(follow_ms=round(wait * 1000))
    with _client(urls, user, password_file, password_env, ca_file) as client:
        dropped = Rebuild(client, alias, sink, limits, report=to_stderr).drop()
    emit(output, {"alias": alias, "dropped": list(dropped)}, "\n".join(dropped) or "nothing to delete")
