"""The page of the command line: the help of every command of ``headgate``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from headgate.main import headgate
from tools.reference.markdown import head


def page() -> str:
    """Return the page."""
    lines = head("The command line")
    for path, command, context in _commands(headgate, click.Context(headgate, info_name="headgate")):
        lines += [f"## {path}", "", "```", command.get_help(context), "```", ""]
    return "\n".join(lines)


def _commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield a command and all commands below it, in the order of their names."""
    context.terminal_width = context.max_content_width = 100
    yield context.command_path, command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from _commands(child, click.Context(child, info_name=name, parent=context))
