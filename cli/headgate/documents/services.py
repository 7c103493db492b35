"""The services whose settings documents the command works on."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any  # a service has settings of its own

if TYPE_CHECKING:
    from streamcore.service.definition import ServiceDefinition


def find_service(name: str) -> ServiceDefinition[Any]:
    """Return the definition of a service, such as etl."""
    found: ServiceDefinition[Any] = importlib.import_module(f"headgate_{name}.service").SERVICE
    return found
