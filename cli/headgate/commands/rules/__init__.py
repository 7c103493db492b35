"""``headgate rules``: one module for each group of commands; importing them registers the commands."""

from headgate import rules_diff, rules_import
from headgate.backtest_command import backtest
from headgate.commands.rules import checking, listing, publishing, warming
from headgate.commands.rules.options import command
from headgate.explain_command import explain

for _one in (rules_import.command, rules_diff.command, backtest, explain):
    command.add_command(_one)

__all__ = ["checking", "command", "listing", "publishing", "warming"]
