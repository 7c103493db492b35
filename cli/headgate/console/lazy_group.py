"""A group of commands that are imported when they are used, so no command waits for the imports of the others."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """``import_paths``: by name of a command, ``module:name`` of it."""

    def __init__(self, *args: Any, import_paths: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.import_paths = import_paths

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Their names, sorted."""
        return sorted(self.import_paths)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Return the command of a name, or None."""
        if cmd_name not in self.import_paths:
            return None
        module, _, name = self.import_paths[cmd_name].partition(":")
        found = getattr(importlib.import_module(module), name)
        assert isinstance(found, click.Command)
        return found
