"""``headgate etl test``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from headgate.console.output import Json, Output, emit, output_option
from headgate.documents.commands.options import FILE


@click.command(name="test", short_help="Run the tests in settings files.")
@click.argument("files", nargs=-1, required=True, type=FILE)
@output_option
def etl(files: Sequence[Path], output: Output) -> int:
    """Run the tests in the settings FILES of etl apps, in this process. Needs no cluster.

    A test has records, and the rows and dead letters that they must give. Exit code 1 if one fails or a file is wrong.
    """
    from headgate.documents.mapping_tests import run_mapping_tests

    results = {file: run_mapping_tests(file) for file in files}
    failed = [(file, one) for file, found in results.items() for one in found if not one.passed]
    untested = [str(file) for file, found in results.items() if not found]
    count = sum(map(len, results.values()))
    data: Json = {
        "passed": count - len(failed),
        "failed": [{"file": str(file), "test": one.name, "diff": list(one.diff)} for file, one in failed],
        "untested": untested,
    }
    lines = [
        line for file, one in failed for line in (f"FAILED {file}: {one.name}", *(f"    {text}" for text in one.diff))
    ]
    lines += [f"{name}: has no tests" for name in untested]
    plural = "" if count == 1 else "s"
    lines.append(f"{count} test{plural} of {len(files)} file{'s' * (len(files) > 1)}: {len(failed)} failed")
    emit(output, data, "\n".join(lines))
    return 1 if failed else 0
