"""A service's settings and its app, by the service's name or a program's reference: the input of commands that compare,
restore or fork savepoints."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any  # a settings document is made of anything

from headgate.errors import InputError
from streamcore.wire import no_pandas

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


@dataclass(frozen=True, slots=True)
class ServiceDocument:
    """A service with a settings document and the settings that were made from it. Nothing is built yet."""

    service: ServiceDefinition[Any]
    document: Mapping[str, Any]
    settings: ServiceSettings

    def with_document(self, document: Mapping[str, Any], where: str) -> ServiceDocument:
        """Return the service with another document. ``ConfigError``, naming ``where``, if it cannot be used."""
        return ServiceDocument(self.service, document, self.service.check_settings(document, where))

    @property
    def loaded(self) -> ServiceApp:
        """Build the app. ``StreamError`` if the settings cannot run."""
        return ServiceApp(self.settings, self.service.build_app(self.settings))


def is_program(service: str) -> bool:
    """Return whether the name is the reference of a program: ``module:topology`` or ``path/to/program.py``."""
    return ":" in service or service.endswith(".py")


def load_app(service: str, file: Path | None) -> ServiceApp:
    """Read the settings and build the app; nothing is started. Raises ``StreamError`` if that is not possible.

    ``file``: None for the settings that ``headgate run`` has written for a program.
    """
    return load_service(service, file).loaded


def load_service(service: str, file: Path | None) -> ServiceDocument:
    """Read the settings of a service or program; ``file`` as for ``load_app``."""
    no_pandas.unblock()  # the modules of apps load pyspark
    if is_program(service):
        from headgate.programs.program_settings import load_program_settings

        program = load_program_settings(service, file)
        return ServiceDocument(program.service, program.document, program.settings)
    if service not in SERVICES:
        raise InputError(
            f"there is no service {service}; there are {', '.join(SERVICES)}, and programs as module:topology or "
            "path/to/program.py:topology"
        )
    if file is None:
        raise InputError(f"the service {service} needs --settings: only a program that ran here has settings here")
    from streamcore.service.config.documents import read_settings

    definition: ServiceDefinition[Any] = importlib.import_module(f"headgate_{service}.service").SERVICE
    document = read_settings(file)
    return ServiceDocument(definition, document, definition.check_settings(document, str(file)))
