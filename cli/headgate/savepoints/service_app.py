"""A service's settings and its app, by the service's name: the input of commands that compare or restore savepoints."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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


def load_app(service: str, file: Path) -> ServiceApp:
    """Read the settings and build the app; nothing is started. Raises ``StreamError`` if that is not possible."""
    if service not in SERVICES:
        raise InputError(f"there is no service {service}; there are {', '.join(SERVICES)}")
    no_pandas.unblock()  # the modules of apps load pyspark
    definition: ServiceDefinition[ServiceSettings] = importlib.import_module(f"headgate_{service}.service").SERVICE
    settings = definition.load_settings(file)
    return ServiceApp(settings, definition.build_app(settings))
