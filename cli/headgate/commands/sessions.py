"""``headgate sessions``: the settings document of a sessions app."""

from __future__ import annotations

import click

from headgate.console.lazy_group import LazyGroup
from headgate.documents.commands import import_paths


@click.group(name="sessions", cls=LazyGroup, import_paths=import_paths("sessions"))
def command() -> None:
    """Check, try and run the settings document of a sessions app."""
