"""``headgate demo``: the demo shop for apps that run elsewhere."""

import click

from headgate.console.lazy_group import LazyGroup

_IMPORT_PATHS = {"produce": "headgate.commands.demo.produce:command"}


@click.group(name="demo", cls=LazyGroup, import_paths=_IMPORT_PATHS)
def command() -> None:
    """Produce the events of the demo shop, for demonstrations and trials. To run all of it locally: headgate up."""
