"""Options that the commands about savepoints share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headgate.programs.service_app import SERVICES, ServiceApp, is_program, load_app
from headgate.rules.options import DEFAULT_APP
from streamcore.environment import EnvironmentVariable, Reader
from streamcore.savepoint import ACCEPTABLE, RestoreDecisions, Savepoint, SavepointRepository
from streamcore.savepoint.fork import find_savepoint
from streamcore.storage import open_object_store

_Command = TypeVar("_Command", bound=Callable[..., object])
_Result = TypeVar("_Result")
DEFAULT_SAVEPOINTS = "savepoints"
_SAVEPOINTS = EnvironmentVariable(
    "HEADGATE_SAVEPOINTS",
    "Folder or s3://bucket/prefix with the savepoints of all apps; the option --savepoints precedes it.",
    Reader.COMMAND,
    default=f"`{DEFAULT_SAVEPOINTS}`, or that of the service's settings",
)


def savepoints_option(command: Callable[..., _Result]) -> Callable[..., _Result]:
    """Add options that name an app and the root of its savepoints, as the command's parameters ``app`` and ``root``.

    They are ``--savepoints`` and ``--app``, or ``--service`` and ``--settings``, from which both follow.
    """

    @functools.wraps(command)
    def with_root(service: str | None, file: Path | None, root: str | None, app: str | None, **more: Any) -> _Result:
        if service is not None and (file is not None or is_program(service)):
            loaded = load_app(service, file)
            root, app = root or loaded.settings.savepoints_root, app or loaded.app.name
        elif service is not None or file is not None:
            raise click.UsageError("--service and --settings belong together: give both, or --app and --savepoints")
        return command(root=root or DEFAULT_SAVEPOINTS, app=app or DEFAULT_APP, **more)

    defaults = f"that of the settings, or {DEFAULT_SAVEPOINTS}"
    app_option = click.option("--app", help=f"The app (default: that of the settings, or {DEFAULT_APP}).")
    return _service_options(app_option(with_root), defaults, required=False)


def settings_options(command: Callable[..., _Result]) -> Callable[..., _Result]:
    """Add ``--service`` and ``--settings`` (parameter ``file``) to a command."""
    return _settings_options(command, required=True)


def service_option(command: Callable[..., _Result]) -> Callable[..., _Result]:
    """Add ``--service``, ``--settings`` (parameter ``file``) and ``--savepoints`` (``root``) to a command."""
    return _service_options(command, "that of the settings", required=True)


def _service_options(command: Callable[..., _Result], default_root: str, *, required: bool) -> Callable[..., _Result]:
    savepoints = click.option(
        "--savepoints",
        "root",
        default=None,
        envvar=_SAVEPOINTS,
        help=f"Folder or s3://bucket/prefix with the savepoints of all apps (default: {default_root}).",
    )
    return _settings_options(savepoints(command), required=required)


def _settings_options(command: Callable[..., _Result], *, required: bool) -> Callable[..., _Result]:
    decorators = [
        click.option(
            "--service",
            metavar="SERVICE",
            required=required,
            help=f"The service that runs the app: {', '.join(SERVICES)}, or a program as MODULE:TOPOLOGY or "
            "FILE.py:TOPOLOGY.",
        ),
        click.option(
            "--settings",
            "file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            default=None,
            help="The settings file of the service, YAML or JSON (default, for a program: those of `headgate run`).",
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


def savepoints_at(root: str, app: str) -> SavepointRepository:
    """Return the savepoints of an app in a folder or bucket."""
    return SavepointRepository(open_object_store(root), app)


def find_for(loaded: ServiceApp, root: str | None, name: str) -> Savepoint:
    """Return the savepoint that an app may start from: its own, or one of the app that it is a fork of."""
    folder = open_object_store(root or loaded.settings.savepoints_root)
    return find_savepoint(folder, name, loaded.app.name, loaded.app.control_topic, loaded.settings.restore.app)
