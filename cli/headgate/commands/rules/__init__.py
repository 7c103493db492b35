"""``headgate rules``: where each of its commands is."""

import click

from headgate.lazy import LazyGroup

_PLACES = {
    "backtest": "headgate.backtest_command:backtest",
    "check": "headgate.commands.rules.checking:check",
    "diff": "headgate.rules_diff:command",
    "explain": "headgate.explain_command:explain",
    "import": "headgate.rules_import:command",
    "list": "headgate.commands.rules.listing:list_",
    "publish": "headgate.commands.rules.publishing:publish",
    "release": "headgate.commands.rules.publishing:release",
    "rollback": "headgate.commands.rules.publishing:rollback",
    "test": "headgate.commands.rules.checking:test",
    "warm": "headgate.commands.rules.warming:warm",
}


@click.group(name="rules", cls=LazyGroup, places=_PLACES)
def command() -> None:
    """Check, test, publish, compare and explain rules.

    PATHS are files and folders of rules; without any, the shipped rules/shop.
    """
