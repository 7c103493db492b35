"""A service's settings and its app, by the service's name or a program's reference: the input of commands that compare
or restore savepoints."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.console import no_pandas
from headgate.errors import InputError

if TYPE_CHECKING:
    from streamcore.app import App
    from streamcore.service.config.settings import ServiceSettings
    from streamcore.service.definition import ServiceDefinition

SERVICES = ("etl", "rules", "search", "sessions")


@dataclass(frozen=True, slots=True)
class ServiceApp:
    """A service's settings, and the app that they define."""

    settings: ServiceSettings
    app: App


def is_program(service: str) -> bool:
    """Return whether the name is the reference of a program: ``module:topology`` or ``path/to/program.py``."""
    return ":" in service or service.endswith(".py")


def load_app(service: str, file: Path | None) -> ServiceApp:
    """Read the settings and build the app; nothing is started. Raises ``StreamError`` if that is not possible.

    ``file``: None for the settings that ``headgate run`` has written for a program.
    """
    no_pandas.unblock()  # the modules of apps load pyspark
    if is_program(service):
        from headgate.programs.program_settings import load_program_settings

        program = load_program_settings(service, file)
        return ServiceApp(program.settings, program.service.build_app(program.settings))
    if service not in SERVICES:
        raise InputError(
            f"there is no service {service}; there are {', '.join(SERVICES)}, and programs as module:topology or "
            "path/to/program.py:topology"
        )
    if file is None:
        raise InputError(f"the service {service} needs --settings: only a program that ran here has settings here")
    definition: ServiceDefinition[ServiceSettings] = importlib.import_module(f"headgate_{service}.service").SERVICE
    settings = definition.load_settings(file)
    return ServiceApp(settings, definition.build_app(settings))
