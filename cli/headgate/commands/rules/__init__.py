"""``headgate rules``: one module for each group of commands; importing them registers the commands."""

from headgate.commands.rules import checking, listing, publishing
from headgate.commands.rules.options import command

__all__ = ["checking", "command", "listing", "publishing"]
