"""``headgate rules explain``: why a rule fired, or why it did not."""

from __future__ import annotations

import click


@click.command()
def explain() -> None:
    """Say why."""
