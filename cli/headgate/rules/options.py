"""Options that the commands of ``headgate rules`` share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TypeVar

import click

from headgate.kafka_login import login_option

R = TypeVar("R")
_Command = TypeVar("_Command", bound=Callable[..., object])
DEFAULT_APP = "shop"


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
