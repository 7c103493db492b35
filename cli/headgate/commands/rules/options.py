"""What the commands of ``headgate rules`` share: options, the group, and how rules are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from headgate.output import Json

if TYPE_CHECKING:
    from headgate.rulebook import Book
    from rulecore.yamldoc import Problem

_Command = TypeVar("_Command", bound=Callable[..., object])
DEFAULT = "shop"


def streams_option(command: _Command) -> _Command:
    """``--streams``."""
    folder = click.Path(file_okay=False, path_type=Path)
    help_text = "Folder of the streams (default: streams/)."
    return click.option("--streams", type=folder, default=None, help=help_text)(command)


def files(command: _Command) -> _Command:
    """``[PATHS]... --streams --lists``, as the parameters ``paths``, ``streams`` and ``lists``."""
    with_lists = click.option(
        "--lists", type=click.Path(path_type=Path), default=None, help="Lists that rules ask (default: lists/)."
    )
    return click.argument("paths", nargs=-1, type=click.Path(path_type=Path))(streams_option(with_lists(command)))


def target(command: _Command) -> _Command:
    """``--bootstrap --app``."""
    bootstrap = click.option(
        "--bootstrap", default="127.0.0.1:19092", show_default=True, help="Kafka, as host:port[,host:port]."
    )
    return bootstrap(click.option("--app", default=DEFAULT, show_default=True, help="The rules app.")(command))


@click.group(name="rules")
def command() -> None:
    """Check, test, publish, compare and explain rules.

    PATHS are files and folders of rules; without any, the shipped rules/shop.
    """


def read(paths: Sequence[Path], streams: Path | None, lists: Path | None = None) -> Book:
    """The rules of these files and folders, or the shipped ones."""
    from headgate.rulebook import read_book, shipped_rules

    return read_book(paths or [shipped_rules(DEFAULT)], streams, lists)


def problem_json(problem: Problem) -> Json:
    """A problem for programs."""
    return {
        "file": problem.file,
        "line": problem.place.line,
        "column": problem.place.column,
        "path": problem.path,
        "message": problem.message,
        "rule": problem.rule,
    }
