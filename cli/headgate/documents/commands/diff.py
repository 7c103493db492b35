"""``headgate etl diff``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.console.messages import to_stderr
from headgate.console.output import Output, emit, output_option
from headgate.documents.commands.options import FILE, enrichment_options, sample_options
from headgate.errors import InputError
from streamcore.errors import StreamError

_TROUBLE = 2

if TYPE_CHECKING:
    from headgate.documents.samples import SampleOptions


@click.command(name="diff", short_help="Compare what two settings files make of a sample.")
@click.argument("old", type=FILE)
@click.argument("new", type=FILE)
@sample_options
@enrichment_options
@click.option("--rows", type=click.IntRange(0), default=20, show_default=True, help="Most differences of each lane.")
@output_option
def etl(
    old: Path,
    new: Path,
    sample: SampleOptions,
    lists: Mapping[str, Path],
    lookup: Path | None,
    rows: int,
    output: Output,
) -> int:
    """Compare what the settings files OLD and NEW make of one sample: rows and letters that change, appear or vanish.

    Rows are known again by the fields of id, and their columns are compared one by one. Exit code 0 without a
    difference, 1 with one, 2 if a file or the sample cannot be used.
    """
    from headgate.documents.difference import compare_results
    from headgate.documents.list_entries import read_lists
    from headgate.documents.lookup_answers import read_answers
    from headgate.documents.opened import opened
    from headgate.documents.samples import read_samples
    from headgate.documents.trial import TrialInput

    try:
        answers = None if lookup is None else read_answers(lookup)
        with opened("etl", old, answers) as first:
            records = read_samples(first.app, sample, first.settings.kafka)
            before = first.run(TrialInput(records, read_lists(lists, first.document)))
        with opened("etl", new, answers) as second:
            if unknown := sorted({*records} - {source.schema.name for source in second.app.sources}):
                raise InputError(f"{new} has no input {unknown[0]}, so it makes nothing of its sample")
            after = second.run(TrialInput(records, read_lists(lists, second.document)))
        found = compare_results(before, after, second.document["id"])
    except StreamError as error:
        to_stderr(f"headgate: {error}")
        return _TROUBLE
    emit(output, found.json(), "\n".join(found.lines(rows)))
    return 0 if found.is_empty else 1
