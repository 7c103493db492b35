"""``headgate rules``: one module for each group of commands; importing them registers the commands."""

from headgate import rules_diff, rules_import
from headgate.commands.rules import checking, listing, publishing
from headgate.commands.rules.options import command

command.add_command(rules_import.command)
command.add_command(rules_diff.command)

__all__ = ["checking", "command", "listing", "publishing"]
