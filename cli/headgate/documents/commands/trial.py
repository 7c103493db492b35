"""``headgate etl try``, and the same for the other services."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.console.output import Json, Output, emit, output_option
from headgate.documents.commands.options import FILE, enrichment_options, sample_options

if TYPE_CHECKING:
    from headgate.documents.samples import SampleOptions

_WHAT = {
    "etl": "the rows of each route",
    "search": "the documents",
    "sessions": "the sessions and metrics, as they are when all windows are closed",
}


def _command(service: str) -> click.Command:
    def run(
        file: Path,
        sample: SampleOptions,
        rows: int,
        output: Output,
        lists: Mapping[str, Path] | None = None,
        lookup: Path | None = None,
    ) -> int:
        from headgate.documents.list_entries import read_lists
        from headgate.documents.lookup_answers import read_answers
        from headgate.documents.opened import opened
        from headgate.documents.rendering import render_result
        from headgate.documents.samples import read_samples
        from headgate.documents.trial import TrialInput

        with opened(service, file, None if lookup is None else read_answers(lookup)) as document:
            records = read_samples(document.app, sample, document.settings.kafka)
            control = read_lists(lists or {}, document.document)
            result = document.run(TrialInput(records, control, document.ends))
        data: Json = {
            "records": result.records,
            "rows": {lane: list(found) for lane, found in result.rows.items()},
            "dead_letters": [letter.json() for letter in result.letters],
            "counted": dict(result.counted),
        }
        emit(output, data, "\n".join(render_result(result, rows)))
        return 0

    run.__doc__ = (
        f"Run the app of the settings FILE on a sample, and print {_WHAT[service]}, and the dead letters.\n\n"
        "Without Spark, Kafka and sinks, with the code that runs there. Dead letters have the line of the sample. The "
        "sample is one cut of one partition, so nothing is late, and nothing is written. Exit code 1 if FILE is wrong."
    )
    command = click.option(
        "--rows",
        type=click.IntRange(0),
        default=10,
        show_default=True,
        help="Most rows of each route, and letters of each code, that the text shows.",
    )(output_option(run))
    if service == "etl":
        command = enrichment_options(command)
    return click.command(name="try", short_help="Show what a sample of records gives, without a cluster.")(
        click.argument("file", type=FILE)(sample_options(command))
    )


etl, search, sessions = map(_command, ("etl", "search", "sessions"))
