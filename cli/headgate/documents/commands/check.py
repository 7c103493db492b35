"""``headgate etl check``, and the same for the other services."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.console.output import Json, Output, emit, output_option

if TYPE_CHECKING:
    from headgate.documents.checking import CheckedDocument


def _command(service: str, name: str = "check") -> click.Command:
    @click.command(name=name, short_help="Find all mistakes in a settings file.")
    @click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
    @output_option
    def check(file: Path, output: Output) -> int:
        from headgate.documents.checking import check_document
        from headgate.documents.services import find_service

        checked = check_document(find_service(service), file)
        emit(output, _json(file, checked), "\n".join(_lines(file, checked)))
        return 1 if checked.problems else 0

    check.help = (
        f"Find all mistakes in the settings FILE of the {service} service, and in the stream files that it names.\n\n"
        "Form, names, expressions, routes and tables are checked in one go; each mistake has its line and column. What "
        "is right but missing on this machine is a warning. Needs no cluster. Exit code 1 if there are mistakes."
    )
    return check


etl, rules, search, sessions = (
    _command(name, "check-settings" if name == "rules" else "check") for name in ("etl", "rules", "search", "sessions")
)


def _json(file: Path, checked: CheckedDocument) -> Json:
    from headgate.console.problems import problem_json

    return {
        "file": str(file),
        "streams": [str(path) for path in checked.streams],
        "problems": [problem_json(each) for each in checked.problems],
        "warnings": [problem_json(each) for each in checked.warnings],
    }


def _lines(file: Path, checked: CheckedDocument) -> list[str]:
    lines = [f"warning: {each.render()}" for each in checked.warnings]
    lines += [each.render() for each in checked.problems]
    count = len(checked.problems)
    read = f" and {len(checked.streams)} stream file{'s' * (len(checked.streams) != 1)}" if checked.streams else ""
    return [*lines, f"{file}{read}: " + (f"{count} mistake{'s' * (count > 1)}" if count else "no mistakes")]
