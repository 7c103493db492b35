"""Options that the commands about savepoints share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from headgate.rules.options import DEFAULT_APP
from headgate.savepoints.service_app import SERVICES
from streamcore.savepoint import ACCEPTABLE, RestoreDecisions, SavepointRepository
from streamcore.storage import open_object_store

_Command = TypeVar("_Command", bound=Callable[..., object])
DEFAULT_PLACE = "savepoints"


def place_option(command: _Command) -> _Command:
    """``--savepoints --app``, as the parameters ``place`` and ``app``."""
    place = click.option(
        "--savepoints",
        "place",
        default=DEFAULT_PLACE,
        show_default=True,
        envvar="HEADGATE_SAVEPOINTS",
        help="Where the savepoints of all apps are.",
    )
    return place(click.option("--app", default=DEFAULT_APP, show_default=True, help="The app.")(command))


def service_option(command: _Command) -> _Command:
    """``--service --settings --savepoints``, for what needs the app itself; its name is in the settings."""
    decorators = [
        click.option("--service", type=click.Choice(SERVICES), required=True, help="What runs the app."),
        click.option(
            "--settings",
            "file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            required=True,
            help="Its settings, YAML or JSON.",
        ),
        click.option(
            "--savepoints",
            "place",
            default=None,
            envvar="HEADGATE_SAVEPOINTS",
            help="Where the savepoints of all apps are (default: as in the settings).",
        ),
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def decisions_option(command: _Command) -> _Command:
    """``--drop --accept``."""
    drop = click.option(
        "--drop", multiple=True, metavar="OPERATOR", help="Leave out its state, or that of one table; several times."
    )
    accept = click.option(
        "--accept", multiple=True, type=click.Choice(ACCEPTABLE), help="Go on in spite of it; several times."
    )
    return drop(accept(command))


def parse_decisions(drop: tuple[str, ...], accept: tuple[str, ...]) -> RestoreDecisions:
    """Return the decisions of the options."""
    return RestoreDecisions(frozenset(drop), frozenset(accept))


def savepoints_at(place: str, app: str) -> SavepointRepository:
    """Those of an app."""
    return SavepointRepository(open_object_store(place), app)
