"""``headgate deadletters``: lists the records that an app rejected, repairs them and sends them again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click

from headgate.console.output import Json, Output, emit, output_option
from headgate.kafka_login import KafkaLogin
from headgate.rules.options import target_option

R = TypeVar("R")
_HEAD = ("CODE", "RECORDS", "LATEST", "EXAMPLE", "REASON")


@click.group(name="deadletters")
def command() -> None:
    """List, show, repair and replay dead letters.

    A dead letter is named by its position in the dead-letter topic: partition/offset.
    """


def _which(command: Callable[..., R]) -> Callable[..., R]:
    """Add the arguments and options that select dead letters."""
    decorators = [
        click.argument("positions", nargs=-1),
        click.option("--topic", default=None, help="Dead-letter topic (default: APP.deadletters)."),
        click.option("--code", "codes", multiple=True, help="Only this reason code; repeatable."),
        click.option("--reason", default=None, help="Only reasons that contain this text."),
        click.option("--source", "sources", multiple=True, help="Only records that came from this topic."),
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return target_option(command)


@command.command(name="list")
@_which
@output_option
def list_(
    positions: Sequence[str],
    topic: str | None,
    codes: Sequence[str],
    reason: str | None,
    sources: Sequence[str],
    login: KafkaLogin,
    app: str,
    output: Output,
) -> None:
    """Count dead letters by reason code, with an example of each. POSITIONS: 0, 0/17 or 0/17-42 (default: all)."""
    from headgate.console.tables import table
    from headgate.dead_letters.model import DeadLetter, DeadLetterFilter
    from headgate.dead_letters.resend import read_dead_letters, read_sent_positions
    from rulecore.documents.scalars import render_time

    kafka, name = login.settings("headgate-deadletters"), topic or f"{app}.deadletters"
    counts: dict[str, int] = {}
    latest: dict[str, DeadLetter] = {}
    sent: dict[str, int] = {}
    done = read_sent_positions(kafka, name)
    for dead_letter in read_dead_letters(kafka, name, DeadLetterFilter.of(positions, codes, reason, sources)):
        counts[dead_letter.code] = counts.get(dead_letter.code, 0) + 1
        sent[dead_letter.code] = sent.get(dead_letter.code, 0) + (dead_letter.position in done)
        if dead_letter.code not in latest or dead_letter.timestamp_ms >= latest[dead_letter.code].timestamp_ms:
            latest[dead_letter.code] = dead_letter
    order = sorted(counts, key=lambda code: (-counts[code], code))
    data: Json = [
        {"code": code, "dead_letters": counts[code], "replayed": sent[code], "example": latest[code].json()}
        for code in order
    ]
    rows = [
        (code, str(counts[code]), render_time(one.timestamp_ms), one.position, one.reason)
        for code in order
        for one in [latest[code]]
    ]
    emit(output, data, "\n".join(table(_HEAD, rows, right=("RECORDS",))))


@command.command()
@_which
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="Show at most this many.")
@output_option
def show(
    positions: Sequence[str],
    topic: str | None,
    codes: Sequence[str],
    reason: str | None,
    sources: Sequence[str],
    login: KafkaLogin,
    app: str,
    limit: int,
    output: Output,
) -> None:
    """Show whole dead letters. With -o json: one JSON object per line; change its value and pass it to replay
    --edit."""
    import itertools
    import json

    from headgate.dead_letters.model import DeadLetterFilter
    from headgate.dead_letters.resend import read_dead_letters

    kafka, name = login.settings("headgate-deadletters"), topic or f"{app}.deadletters"
    found = read_dead_letters(kafka, name, DeadLetterFilter.of(positions, codes, reason, sources))
    for dead_letter in itertools.islice(found, limit):
        if output is Output.JSON:
            click.echo(json.dumps(dead_letter.json(), ensure_ascii=False))
            continue
        source = dead_letter.source
        origin = "unknown" if source is None else f"{source.topic} {source.partition}/{source.offset}"
        click.echo(
            f"{dead_letter.position}  {dead_letter.code}  from {origin}\n  {dead_letter.reason}\n"
            f"  {dead_letter.text_line}"
        )


@command.command()
@_which
@click.option(
    "--edit",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with new values, one JSON object per line.",
)
@click.option("--set", "fields", multiple=True, metavar="FIELD=VALUE", help="Set a field of each JSON value.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing.")
@output_option
def replay(
    positions: Sequence[str],
    topic: str | None,
    codes: Sequence[str],
    reason: str | None,
    sources: Sequence[str],
    login: KafkaLogin,
    app: str,
    edit: Path | None,
    fields: Sequence[str],
    dry_run: bool,
    output: Output,
) -> None:
    """Send dead letters back to their source topics, repaired by --edit or --set, each once.

    With --edit and without POSITIONS only the records in the file are sent. A ledger topic lists the records that were
    sent, so a second run sends only new ones.
    """
    from headgate.console.messages import to_stderr
    from headgate.console.progress import progress
    from headgate.dead_letters import resend as sending
    from headgate.dead_letters.model import DeadLetterFilter, Repair, read_edits, read_fields

    kafka, name = login.settings("headgate-deadletters"), topic or f"{app}.deadletters"
    edits = {} if edit is None else read_edits(edit)
    wanted = DeadLetterFilter.of(positions or tuple(edits), codes, reason, sources)
    dead_letters = [*sending.read_dead_letters(kafka, name, wanted)] if positions or edits or edit is None else []
    records = sending.plan(dead_letters, Repair(edits, read_fields(fields)), name)
    sending.check_targets(kafka, records)
    done = sending.read_sent_positions(kafka, name)
    new = [record for record in records if record.dedup_key not in done]
    for position in sorted(set(edits) - {dead_letter.position for dead_letter in dead_letters}):
        to_stderr(f"{position}: no dead letter has this position")
    if not dry_run:
        with progress(f"{name} to their topics", len(new)) as on_progress:
            sent = sending.replay(kafka, name, new, on_progress)
    else:
        sent = len(new)
    without_source = len(dead_letters) - len(records)
    before = len(records) - sent
    data: dict[str, Json] = {
        "dead_letters": len(dead_letters),
        "sent": sent,
        "sent_before": before,
        "without_source": without_source,
    }
    verb = "would be sent" if dry_run else "sent"
    text = f"{sent} dead letters {verb}, {before} were sent before, {without_source} cannot be sent again"
    emit(output, {**data, "dry_run": dry_run}, text)
