"""``headgate search``: shows and rebuilds the indexes that an app's OpenSearch sink writes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from headgate.console.messages import to_stderr
from headgate.console.output import Json, Output, emit, output_option

if TYPE_CHECKING:
    from streamcore.sinks.opensearch.client import SearchClient
    from streamcore.sinks.opensearch.status import IndexStatus

_Command = TypeVar("_Command", bound=Callable[..., object])
_HEAD = ("INDEX", "APP", "LANE", "SEARCHED", "LIVE", "DOCUMENTS", "MB", "TEMPLATE", "GC-DELETES", "NEXT")
_FILE = click.Path(dir_okay=False, path_type=Path)


def _server(command: _Command) -> _Command:
    """``--url`` and the login, as parameters of the same names."""
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


@click.group(name="search")
def command() -> None:
    """Show the OpenSearch indexes behind an alias, and rebuild them while the app runs.

    A rebuild creates a new index from the app's newest template, copies the documents while live updates go to both
    indexes, compares them, and moves the alias to the new index. After a crash, run it again: it continues.
    """


@command.command()
@_server
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
        found = [(name, *read_statuses(client, name)) for name in ([alias] if alias else aliases(client))]
    data: Json = [
        {"alias": name, "stage": state.stage.value, "indexes": [asdict(one) for one in indexes]}
        for name, state, indexes in found
    ]
    lines = []
    for name, state, indexes in found:
        lines += [f"{name}: {_STAGES[state.stage.value]}", *table(_HEAD, [_row(one) for one in indexes]), ""]
    emit(output, data, "\n".join(lines[:-1]) if lines else "no index of an app's sink here")


_STAGES = {
    "idle": "no rebuild under way",
    "created": "a rebuild made a new index and ended; `headgate search rebuild` goes on",
    "live": "a rebuild is under way, or ended: both indexes get updates; `headgate search rebuild` goes on",
    "swapped": "the new index is searched, both get updates; `headgate search rebuild` goes on",
}


def _row(one: IndexStatus) -> tuple[str, ...]:
    following = ""
    if not one.live and not one.searched:
        following = "headgate search drop"
    elif one.searched and one.current_version is not None and one.current_version != one.template_version:
        following = f"template is {one.current_version}: headgate search rebuild"
    flags = ("yes" if one.searched else "-", "yes" if one.live else "-")
    sizes = (str(one.documents), f"{one.size_bytes / 1e6:.1f}", str(one.template_version or "-"), one.gc_deletes)
    return (one.index, one.app, one.lane, *flags, *sizes, following)


@command.command()
@_server
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
        done = Rebuild(client, alias, sink, limits, report=to_stderr).run()
    text = f"{alias} is {done.now} now, {done.documents} documents; {done.before} is kept: headgate search drop"
    emit(output, {"alias": alias, **asdict(done)}, text)


@command.command()
@_server
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
