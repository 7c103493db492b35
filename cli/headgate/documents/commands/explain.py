"""``headgate etl explain``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.console.output import Output, emit, output_option
from headgate.documents.commands.options import FILE, enrichment_options, sample_options

if TYPE_CHECKING:
    from headgate.documents.samples import SampleOptions


@click.command(name="explain", short_help="Show which stage made which column of one record.")
@click.argument("file", type=FILE)
@sample_options
@click.option("--record", type=click.IntRange(1), default=1, show_default=True, help="Number of the record, from 1.")
@enrichment_options
@output_option
def etl(
    file: Path,
    sample: SampleOptions,
    record: int,
    lists: Mapping[str, Path],
    lookup: Path | None,
    output: Output,
) -> int:
    """Explain what the settings FILE of an etl app do with one record of a sample.

    For each stage (stream, map, look-up, deduplicate, derive, mask, route) the columns that it made, with value and
    expression, and why the record was rejected. The records before it run too: they may make it a duplicate.
    """
    from headgate.documents.explanation import explain_record
    from headgate.documents.list_entries import read_lists
    from headgate.documents.lookup_answers import read_answers
    from headgate.documents.opened import opened
    from headgate.documents.samples import read_samples
    from headgate.documents.trial import TrialInput

    with opened("etl", file, None if lookup is None else read_answers(lookup)) as document:
        records = read_samples(document.app, sample, document.settings.kafka)
        given = TrialInput(records, read_lists(lists, document.document))
        found = explain_record(document, given, record)
    emit(output, found.json(), "\n".join(found.lines()))
    return 0
