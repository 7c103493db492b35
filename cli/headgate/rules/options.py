"""Options that the commands of ``headgate rules`` share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TypeVar

import click

from headgate.errors import InputError
from headgate.kafka_login import login_option
from streamcore.environment import EnvironmentVariable, Reader

R = TypeVar("R")
_Command = TypeVar("_Command", bound=Callable[..., object])
DEFAULT_APP = "shop"
_SERVER = EnvironmentVariable(
    "HEADGATE_SERVER", "Address of a console; the option --server precedes it.", Reader.COMMAND, default="none"
)
_TOKEN = EnvironmentVariable(
    "HEADGATE_TOKEN_FILE",
    "File with the token for the console of --server; the option --token-file precedes it.",
    Reader.COMMAND,
    default="none",
)


def streams_option(command: _Command) -> _Command:
    """Add ``--streams`` to a command."""
    folder = click.Path(file_okay=False, path_type=Path)
    return click.option("--streams", type=folder, default=None, help="Folder of the streams (default: streams/).")(
        command
    )


def formats_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add ``--settings`` to a command, as its parameter ``formats``."""

    @wraps(command)
    def with_formats(*arguments: object, settings: Path | None, **more: object) -> R:
        from headgate.records.formats import read_formats

        return command(*arguments, formats=read_formats(settings), **more)

    return click.option(
        "--settings",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        default=None,
        help="Settings file of the app, for the formats of its topics and its schema registry (default: JSON).",
    )(with_formats)


def topic_option(what: str = "The topic") -> Callable[[_Command], _Command]:
    """Add ``--topic`` to a command, as its parameter ``topic`` with several values."""
    return click.option(
        "--topic",
        multiple=True,
        help=f"{what} of the events (default: that of --settings, else the stream's name); of several streams "
        "STREAM=TOPIC for each.",
    )


def scan_option(command: _Command) -> _Command:
    """Add ``--scan`` to a command."""
    return click.option(
        "--scan",
        type=click.IntRange(1),
        default=200_000,
        show_default=True,
        help="Read at most this many records of a topic.",
    )(command)


def lists_option(command: _Command) -> _Command:
    """Add ``--lists`` to a command."""
    return click.option(
        "--lists", type=click.Path(path_type=Path), default=None, help="Lists that the rules use (default: lists/)."
    )(command)


def files_option(command: _Command) -> _Command:
    """Add ``[PATHS]... --streams --lists`` to a command, as its parameters ``paths``, ``streams`` and ``lists``."""
    return click.argument("paths", nargs=-1, type=click.Path(path_type=Path))(streams_option(lists_option(command)))


def app_option(what: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Add ``--bootstrap --kafka --app`` to a command, as its parameters ``login`` and ``app``. ``what``: the app is."""
    option = click.option("--app", default=DEFAULT_APP, show_default=True, help=what)

    def add(command: Callable[..., R]) -> Callable[..., R]:
        return login_option(option(command))

    return add


def target_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options of ``app_option`` to a command that is about a rules app."""
    return app_option("The rules app.")(command)


def server_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add ``--server`` and ``--token-file`` to a command with ``--app``, as its parameter ``server``: an app behind a
    console; None without."""

    @wraps(command)
    def with_server(*arguments: object, server: str | None, token_file: Path | None, **more: object) -> R:
        from headgate.rules.remote import RemoteApp

        found = None if not server else RemoteApp(server.rstrip("/"), _read_token(token_file), str(more["app"]))
        return command(*arguments, server=found, **more)

    token = click.option(
        "--token-file",
        type=click.Path(dir_okay=False, path_type=Path),
        default=None,
        envvar=_TOKEN,
        show_envvar=True,
        help="File with the token for --server.",
    )
    address = click.option(
        "--server",
        default=None,
        metavar="URL",
        envvar=_SERVER,
        show_envvar=True,
        help="Ask this console instead of Kafka, such as https://rules.example.org.",
    )
    return address(token(with_server))


def _read_token(file: Path | None) -> str:
    if file is None:
        raise InputError("--server: name the file with your token: --token-file FILE")
    try:
        return file.read_text().strip()
    except OSError as error:
        raise InputError(f"--token-file {file}: {error.strerror}") from None
