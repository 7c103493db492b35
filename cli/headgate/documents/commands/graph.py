"""``headgate etl graph``."""

from __future__ import annotations

from pathlib import Path

import click

from headgate.documents.commands.options import FILE


@click.command(name="graph", short_help="Draw a settings file as SVG.")
@click.argument("file", type=FILE)
@click.option(
    "--to", type=click.Path(dir_okay=False, path_type=Path), default=None, help="File to write (default: stdout)."
)
def etl(file: Path, to: Path | None) -> None:
    """Draw the settings FILE of an etl app: its inputs, stages, look-ups, lists and routes, as SVG.

    The picture needs no other file, and follows the light or dark theme of the browser.
    """
    from headgate.documents.graph import draw_document
    from headgate.documents.opened import naming_mistakes
    from headgate.documents.services import find_service
    from headgate.errors import InputError

    service = find_service("etl")
    with naming_mistakes(service, file):
        picture = draw_document(service.load_settings(file))
    if to is None:
        click.echo(picture, nl=False)
        return
    try:
        to.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--to {to}: cannot be written: {error}") from None
