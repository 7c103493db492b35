"""The arguments and options that the commands about programs share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TypeVar

import click

from headgate.kafka_login import KafkaLogin, login_option
from headgate.programs.program_settings import ProgramOptions

R = TypeVar("R")


def program_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add PROGRAM and the options of its settings to a command, as its parameters ``program`` and ``options``."""

    @wraps(command)
    def with_options(
        *args: object,
        file: Path | None,
        entries: tuple[str, ...],
        login: KafkaLogin,
        data: Path | None,
        **rest: object,
    ) -> R:
        return command(*args, options=ProgramOptions(file, entries, login, data), **rest)

    decorators: list[Callable[[Callable[..., R]], Callable[..., R]]] = [
        click.argument("program"),
        click.option(
            "--settings",
            "file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            default=None,
            help="The settings file of the program, YAML or JSON (default: none is needed on a laptop).",
        ),
        click.option(
            "--set",
            "entries",
            multiple=True,
            metavar="ENTRY=VALUE",
            help="An entry of the settings, such as shards=8 or streams.orders.topic=shop.orders. Repeatable.",
        ),
        click.option(
            "--data",
            type=click.Path(file_okay=False, path_type=Path),
            default=None,
            help="Folder of checkpoint, savepoints and logs, where the settings name none (default: programs/APP in "
            "the cache).",
        ),
        login_option,
    ]
    decorated: Callable[..., R] = with_options
    for decorator in reversed(decorators):
        decorated = decorator(decorated)
    return decorated
