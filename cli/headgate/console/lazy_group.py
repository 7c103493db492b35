"""A group of commands that imports a command only when it is used, so that no command waits for another's imports."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """A click group. ``import_paths``: for each command that is imported later, the path ``module:name`` of its click
    command."""

    def __init__(self, *args: Any, import_paths: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.import_paths = import_paths

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the sorted names of the commands."""
        return sorted({*self.import_paths, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if there is none of this name."""
        if cmd_name not in self.import_paths:
            return super().get_command(ctx, cmd_name)
        module, _, name = self.import_paths[cmd_name].partition(":")
        loaded = getattr(importlib.import_module(module), name)
        assert isinstance(loaded, click.Command)
        return loaded
