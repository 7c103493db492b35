"""``headgate rules``: the import paths of its commands."""

import click

from headgate.console.lazy_group import LazyGroup

_IMPORT_PATHS = {
    "backtest": "headgate.commands.rules.backtest:backtest",
    "check": "headgate.commands.rules.checking:check",
    "check-settings": "headgate.documents.commands.check:rules",
    "diff": "headgate.commands.rules.diff:command",
    "explain": "headgate.commands.rules.explain:explain",
    "import": "headgate.commands.rules.import_sigma:command",
    "list": "headgate.commands.rules.listing:list_",
    "publish": "headgate.commands.rules.publishing:publish",
    "release": "headgate.commands.rules.publishing:release",
    "rollback": "headgate.commands.rules.publishing:rollback",
    "test": "headgate.commands.rules.checking:test",
    "backfill": "headgate.commands.rules.backfill:backfill",
}


@click.group(name="rules", cls=LazyGroup, import_paths=_IMPORT_PATHS)
def command() -> None:
    """Check, test, publish, compare and explain rules.

    PATHS are files and folders of rules; without any, the shipped rules/shop.
    """
