"""Options that the commands of ``headgate rules`` share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from headgate.kafka_login import login_option

R = TypeVar("R")
_Command = TypeVar("_Command", bound=Callable[..., object])
DEFAULT_APP = "shop"


def streams_option(command: _Command) -> _Command:
    """``--streams``."""
    folder = click.Path(file_okay=False, path_type=Path)
    return click.option("--streams", type=folder, default=None, help="Folder of the streams (default: streams/).")(
        command
    )


def lists_option(command: _Command) -> _Command:
    """Add ``--lists``."""
    return click.option(
        "--lists", type=click.Path(path_type=Path), default=None, help="Lists that the rules use (default: lists/)."
    )(command)


def files_option(command: _Command) -> _Command:
    """``[PATHS]... --streams --lists``, as the parameters ``paths``, ``streams`` and ``lists``."""
    return click.argument("paths", nargs=-1, type=click.Path(path_type=Path))(streams_option(lists_option(command)))


def target_option(command: Callable[..., R]) -> Callable[..., R]:
    """``--bootstrap --kafka --app``, as the parameters ``login`` and ``app``."""
    return login_option(click.option("--app", default=DEFAULT_APP, show_default=True, help="The rules app.")(command))
