"""The two forms of every command's result on stdout: text for a person, JSON for a program."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import click

#: What a command may print as JSON.
Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]

_Command = TypeVar("_Command", bound=Callable[..., object])


class Output(enum.StrEnum):
    """The value of ``-o``."""

    TEXT = "text"
    JSON = "json"


def output_option(command: _Command) -> _Command:
    """Add ``-o text|json`` to a command, as its parameter ``output``."""
    form = click.Choice([o.value for o in Output])
    return click.option(
        "-o",
        "--output",
        type=form,
        default=Output.TEXT.value,
        callback=_parse_output,
        help="Form of the result on stdout.",
    )(command)


def emit(output: Output, data: Json, text: str) -> None:
    """Print a result: ``data`` as one JSON document, or ``text``."""
    click.echo(json.dumps(data, ensure_ascii=False) if output is Output.JSON else text)


def _parse_output(_context: click.Context, _option: click.Parameter, value: str) -> Output:
    return Output(value)
