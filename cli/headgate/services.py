"""A service's settings and its app, by the service's name: what the commands about savepoints compare and restore."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headgate import pandas_ban
from headgate.errors import InputError
from streamcore.service.documents import load_document

if TYPE_CHECKING:
    from streamcore.app import App
    from streamcore.service.settings import ServiceSettings

SERVICES = ("etl", "rules", "search", "sessions")


@dataclass(frozen=True, slots=True)
class ServiceApp:
    """What would run: ``settings`` as the file says, and the app that they make."""

    settings: ServiceSettings
    app: App


def load_app(service: str, file: Path) -> ServiceApp:
    """Read the settings and build the app; nothing is started. ``StreamError`` where that is not possible."""
    if service not in SERVICES:
        raise InputError(f"there is no service {service}; there are {', '.join(SERVICES)}")
    pandas_ban.lift()  # the modules of apps load pyspark
    kind = getattr(importlib.import_module(f"headgate_{service}.settings"), f"{service.title()}Settings")
    settings: ServiceSettings = load_document(file, kind)
    app: App = importlib.import_module(f"headgate_{service}.app").build_app(settings)
    return ServiceApp(settings, app)
