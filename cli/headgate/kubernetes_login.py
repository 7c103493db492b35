"""The options of a command that asks the API server of Kubernetes for a ``StreamApp``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from streamcore.environment import EnvironmentVariable, Reader

_Command = TypeVar("_Command", bound=Callable[..., object])
_KUBECONFIG = EnvironmentVariable(
    "KUBECONFIG",
    "File with address and login of the API server; --kubeconfig and the console's settings precede it.",
    Reader.COMMAND,
    default="the service account of the pod",
)


def find_kubeconfig(named: Path | None) -> str | None:
    """Return the file that an option or a setting names, else what the environment names: a path, or several with a
    colon between; None for the service account of the pod."""
    return str(named) if named is not None else os.environ.get(_KUBECONFIG)


def kubeconfig_option(command: _Command) -> _Command:
    """Add ``--kubeconfig`` to a command."""
    return click.option(
        "--kubeconfig",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        default=None,
        help="Address and login of the API server (default: that of KUBECONFIG, else the service account of the pod).",
    )(command)


def check_stream_app(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Return the value of an option, which is a namespace and a name with a slash between."""
    if value is not None and len([part for part in value.split("/") if part]) != 2:
        raise click.BadParameter(f"{value!r} is not NAMESPACE/NAME, such as streams/shop")
    return value
