"""Options that commands on settings documents share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TypeVar

import click

R = TypeVar("R")
_Command = TypeVar("_Command", bound=Callable[..., object])
FILE = click.Path(dir_okay=False, exists=True, path_type=Path)


def _lists(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> dict[str, Path]:
    """Return the file of each list."""
    if wrong := [value for value in values if not all(value.partition("="))]:
        raise click.BadParameter(f"{wrong[0]}: write NAME=FILE")
    return {name: Path(file) for name, _, file in (value.partition("=") for value in values)}


def sample_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add ``--sample``, ``--topic`` and ``--limit`` to a command, as its parameter ``sample``."""

    @wraps(command)
    def with_sample(*arguments: object, samples: Sequence[str], topics: Sequence[str], limit: int, **more: object) -> R:
        from headgate.documents.samples import SampleOptions

        return command(*arguments, sample=SampleOptions(samples, topics, limit), **more)

    options = [
        click.option(
            "--sample",
            "samples",
            metavar="[INPUT=]PATH",
            multiple=True,
            help="File or folder with records, one on each line; with several inputs STREAM=PATH for each.",
        ),
        click.option(
            "--topic",
            "topics",
            metavar="[INPUT=]TOPIC",
            multiple=True,
            help="Take the latest records of this topic, at the Kafka of the settings.",
        ),
        click.option(
            "--limit", type=click.IntRange(1), default=1_000, show_default=True, help="Most records of each input."
        ),
    ]
    return _add(with_sample, options)


def enrichment_options(command: _Command) -> _Command:
    """Add ``--list`` and ``--lookup`` to a command."""
    options = [
        click.option(
            "--list",
            "lists",
            metavar="NAME=FILE",
            multiple=True,
            callback=_lists,
            help="Content of a list: a list document, a CSV file, or a YAML mapping of keys to values.",
        ),
        click.option(
            "--lookup",
            type=FILE,
            default=None,
            help="Answers of the look-up: an object for each key, JSON or YAML. Without it the server is called.",
        ),
    ]
    return _add(command, options)


def _add(command: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command
