"""``headgate etl diff``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from headgate.console.messages import to_stderr
from headgate.console.output import Output, emit, output_option
from headgate.documents.commands.options import FILE, enrichment_options, sample_options
from streamcore.errors import StreamError

_TROUBLE = 2


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
    samples: Sequence[str],
    topics: Sequence[str],
    limit: int,
    lists: Mapping[str, Path],
    lookup: Path | None,
    rows: int,
    output: Output,
) -> int:
    """Compare what the settings files OLD and NEW make of one sample: rows and dead letters that change, appear, vanish.

    Rows are known again by the fields of id, and their columns are compared one by one. Exit code 0 without a
    difference, 1 with one, 2 if a file or the sample cannot be used.
    """
    from headgate.documents.difference import compare_results
    from headgate.documents.list_entries import read_lists
    from headgate.documents.lookup_answers import read_answers
    from headgate.documents.opened import opened
    from headgate.documents.samples import SampleOptions, read_samples
    from headgate.documents.trial import TrialInput

    try:
        answers = None if lookup is None else read_answers(lookup)
        results = []
        for file in (old, new):
            with opened("etl", file, answers) as document:
                records = read_samples(document.app, SampleOptions(samples, topics, limit), document.settings.kafka)
                results.append(document.run(TrialInput(records, read_lists(lists, document.document))))
        found = compare_results(*results, id_fields=document.document["id"])
    except StreamError as error:
        to_stderr(f"headgate: {error}")
        return _TROUBLE
    emit(output, found.json(), "\n".join(found.lines(rows)))
    return 0 if found.is_empty else 1
