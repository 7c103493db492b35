"""``headgate rules``: the import paths of its commands."""

import click

from headgate.console.lazy_group import LazyGroup

_IMPORT_PATHS = {
    "approve": "headgate.commands.rules.approving:approve",
    "backtest": "headgate.commands.rules.backtest:backtest",
    "check": "headgate.commands.rules.checking:check",
    "check-settings": "headgate.documents.commands.check:rules",
    "diff": "headgate.commands.rules.diff:command",
    "explain": "headgate.commands.rules.explain:explain",
    "import": "headgate.commands.rules.import_sigma:command",
    "list": "headgate.commands.rules.listing:list_",
    "new-key": "headgate.commands.rules.approving:new_key",
    "policy": "headgate.commands.rules.approving:policy",
    "proposals": "headgate.commands.rules.approving:proposals",
    "propose": "headgate.commands.rules.approving:propose",
    "publish": "headgate.commands.rules.publishing:publish",
    "release": "headgate.commands.rules.publishing:release",
    "rollback": "headgate.commands.rules.publishing:rollback",
    "signer": "headgate.commands.rules.approving:signer",
    "tables": "headgate.documents.commands.tables:rules",
    "test": "headgate.commands.rules.checking:test",
    "backfill": "headgate.commands.rules.backfill:backfill",
}


@click.group(name="rules", cls=LazyGroup, import_paths=_IMPORT_PATHS)
def command() -> None:
    """Check, test, publish, compare and explain rules.

    PATHS are files and folders of rules; without any, the shipped rules/shop.
    """
