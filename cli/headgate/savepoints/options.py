"""Options that the commands about savepoints share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from headgate.rules.options import DEFAULT_APP
from headgate.savepoints.service_app import SERVICES
from streamcore.environment import EnvironmentVariable, Reader
from streamcore.savepoint import ACCEPTABLE, RestoreDecisions, SavepointRepository
from streamcore.storage import open_object_store

_Command = TypeVar("_Command", bound=Callable[..., object])
DEFAULT_SAVEPOINTS = "savepoints"
_SAVEPOINTS = EnvironmentVariable(
    "HEADGATE_SAVEPOINTS",
    "Folder or s3://bucket/prefix with the savepoints of all apps; the option --savepoints precedes it.",
    Reader.COMMAND,
    default=f"`{DEFAULT_SAVEPOINTS}`, or that of the service's settings",
)


def place_option(command: _Command) -> _Command:
    """Add ``--savepoints`` and ``--app`` to a command, as its parameters ``place`` and ``app``."""
    place = click.option(
        "--savepoints",
        "place",
        default=DEFAULT_SAVEPOINTS,
        show_default=True,
        envvar=_SAVEPOINTS,
        help="Folder or s3://bucket/prefix with the savepoints of all apps.",
    )
    return place(click.option("--app", default=DEFAULT_APP, show_default=True, help="The app.")(command))


def service_option(command: _Command) -> _Command:
    """Add ``--service``, ``--settings`` (parameter ``file``) and ``--savepoints`` (``place``) to a command."""
    decorators = [
        click.option("--service", type=click.Choice(SERVICES), required=True, help="The service that runs the app."),
        click.option(
            "--settings",
            "file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            required=True,
            help="The settings file of the service, YAML or JSON.",
        ),
        click.option(
            "--savepoints",
            "place",
            default=None,
            envvar=_SAVEPOINTS,
            help="Folder or s3://bucket/prefix with the savepoints of all apps (default: that of the settings).",
        ),
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def decisions_option(command: _Command) -> _Command:
    """Add ``--drop`` and ``--accept`` to a command."""
    drop = click.option(
        "--drop",
        multiple=True,
        metavar="OPERATOR",
        help="Drop the state of this operator or table (OPERATOR or OPERATOR/TABLE). Repeatable.",
    )
    accept = click.option(
        "--accept", multiple=True, type=click.Choice(ACCEPTABLE), help="Restore despite this problem. Repeatable."
    )
    return drop(accept(command))


def parse_decisions(drop: tuple[str, ...], accept: tuple[str, ...]) -> RestoreDecisions:
    """Return the decisions of the options."""
    return RestoreDecisions(frozenset(drop), frozenset(accept))


def savepoints_at(place: str, app: str) -> SavepointRepository:
    """Return the savepoints of an app in a folder or bucket."""
    return SavepointRepository(open_object_store(place), app)
