"""``headgate etl init`` and ``headgate sessions init``: the first documents for records of one's own."""

from __future__ import annotations

from pathlib import Path

import click

from headgate.console.output import Output, emit, output_option


def _command(service: str) -> click.Command:
    @click.command(name="init", short_help="Write the first documents for a sample of records.")
    @click.argument("sample", nargs=-1, required=True, type=click.Path(dir_okay=False, exists=True, path_type=Path))
    @click.option(
        "--to",
        type=click.Choice(["postgres", "kafka"]),
        default="postgres",
        show_default=True,
        help="Where the rows go: to a table of the local PostgreSQL, or to a topic.",
    )
    @click.option("--name", default=None, help="Name of stream, topic and table (default: that of the file).")
    @click.option(
        "--folder",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(),
        help="Folder of the documents (default: the working directory).",
    )
    @output_option
    def init(
        sample: tuple[Path, ...], to: str, name: str | None, folder: Path, output: Output, user: str | None = None
    ) -> None:
        from headgate.documents.first_document import write_first_document

        found = write_first_document(service, sample, folder, name, user, to_postgres=to == "postgres")
        schema, files = found.schema, [str(path) for path in found.files]
        lines = [
            f"{files[0]}: {len(schema.fields)} fields in {found.records:,} records; the event time is "
            f"{schema.event_time}, the id {schema.event_id or 'the place in the topic'}",
            f"{files[1]}: what the app does; change both as you like",
            f"  headgate {service} try {files[1]} --sample {sample[0]}    # what it makes of the sample",
            f"  headgate {service} run {files[1]} --send {sample[0]}    # runs it, with Kafka"
            + (" and PostgreSQL" if to == "postgres" else ""),
        ]
        emit(output, {"files": files, "records": found.records, "fields": len(schema.fields)}, "\n".join(lines))

    what = "a column for each field" if service == "etl" else "the sessions of a user, with columns of some fields"
    init.help = (
        f"Write the first documents for SAMPLE, files of JSON lines or CSV: NAME.stream.yaml with its fields, and "
        f"NAME.{service}.yaml, the settings of the {service} service, with {what}.\n\nThey have no mistakes, and "
        "say what is to be decided. No file is overwritten."
    )
    if service == "sessions":
        init.params.insert(
            1,
            click.Option(["--user"], help="Field with the user (default: one that looks like it)."),
        )
    return init


etl, sessions = map(_command, ("etl", "sessions"))
