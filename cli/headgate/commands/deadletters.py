"""``headgate deadletters``: lists the records that an app rejected, repairs them and sends them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from headgate.console.output import Json, Output, emit, output_option
from headgate.errors import InputError
from headgate.kafka_login import KafkaLogin
from headgate.rules.options import app_option, server_option

if TYPE_CHECKING:
    from headgate.dead_letters.model import DeadLetter, DeadLetterFilter
    from headgate.rules.remote import RemoteApp
    from streamcore.kafka.idempotent_sender import KeyedRecord

R = TypeVar("R")
#: The entries that ``list`` can group by, each a property of a dead letter.
_GROUPS = ("code", "input", "field")
_HEAD = ("RECORDS", "LATEST", "EXAMPLE", "REASON")


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
    return app_option("The app that wrote the dead letters, of any service.")(server_option(command))


def _read(
    login: KafkaLogin, app: str, topic: str | None, server: RemoteApp | None, wanted: DeadLetterFilter
) -> tuple[Iterable[DeadLetter], set[str]]:
    """Return the dead letters that are wanted, and the positions of those that were sent again."""
    if server is not None:
        if topic is not None:
            raise InputError("--topic: not through --server, which has the dead letters of the apps that it shows")
        return server.dead_letters(wanted)
    from headgate.dead_letters.resend import read_dead_letters, read_sent_positions

    kafka, name = login.settings("headgate-deadletters"), topic or f"{app}.deadletters"
    return read_dead_letters(kafka, name, wanted), read_sent_positions(kafka, name)


@command.command(name="list")
@_which
@click.option(
    "--by",
    "names",
    default=",".join(_GROUPS),
    show_default=True,
    help="What a line is for: code, input and field, separated by commas.",
)
@output_option
def list_(
    positions: Sequence[str],
    topic: str | None,
    codes: Sequence[str],
    reason: str | None,
    sources: Sequence[str],
    login: KafkaLogin,
    app: str,
    server: RemoteApp | None,
    names: str,
    output: Output,
) -> None:
    """Count dead letters by reason code, input topic and field, with an example of each.

    POSITIONS: 0, 0/17 or 0/17-42 (default: all).
    """
    from headgate.console.tables import table
    from headgate.dead_letters.model import DeadLetterFilter
    from rulecore.documents.scalars import render_time

    groups = _parse_groups(names)
    counts: Counter[tuple[str, ...]] = Counter()
    sent: Counter[tuple[str, ...]] = Counter()
    latest: dict[tuple[str, ...], DeadLetter] = {}
    wanted = DeadLetterFilter.of(positions, codes, reason, sources)
    dead_letters, done = _read(login, app, topic, server, wanted)
    for dead_letter in dead_letters:
        group = tuple(getattr(dead_letter, one) or "-" for one in groups)
        counts[group] += 1
        sent[group] += dead_letter.position in done
        if group not in latest or dead_letter.timestamp_ms >= latest[group].timestamp_ms:
            latest[group] = dead_letter
    order = sorted(counts, key=lambda group: (-counts[group], group))
    data: Json = [
        {
            **{one: None if value == "-" else value for one, value in zip(groups, group, strict=True)},
            "dead_letters": counts[group],
            "replayed": sent[group],
            "example": latest[group].json(),
        }
        for group in order
    ]
    rows = [
        (*group, str(counts[group]), render_time(one.timestamp_ms), one.position, one.reason)
        for group in order
        for one in [latest[group]]
    ]
    emit(output, data, "\n".join(table((*map(str.upper, groups), *_HEAD), rows, right=("RECORDS",))))


def _parse_groups(names: str) -> list[str]:
    """Return the entries to group by. ``InputError`` for an unknown one."""
    groups = [name.strip() for name in names.split(",")]
    if unknown := [name for name in groups if name not in _GROUPS]:
        raise InputError(f"--by {unknown[0]!r}: write some of {', '.join(_GROUPS)}, separated by commas")
    return groups


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
    server: RemoteApp | None,
    limit: int,
    output: Output,
) -> None:
    """Show whole dead letters. With -o json: one JSON object per line; change its value and pass it to replay
    --edit."""
    import itertools
    import json

    from headgate.dead_letters.model import DeadLetterFilter

    wanted = DeadLetterFilter.of(positions, codes, reason, sources)
    found, _ = _read(login, app, topic, server, wanted)
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
    server: RemoteApp | None,
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

    name = topic or f"{app}.deadletters"
    edits = {} if edit is None else read_edits(edit)
    wanted = DeadLetterFilter.of(positions or tuple(edits), codes, reason, sources)
    found, done = _read(login, app, topic, server, wanted)
    dead_letters = [*found] if positions or edits or edit is None else []
    records = sending.plan(dead_letters, Repair(edits, read_fields(fields)), name)
    if server is None:
        sending.check_targets(login.settings("headgate-deadletters"), records)
    new = [record for record in records if record.dedup_key not in done]
    for position in sorted(set(edits) - {dead_letter.position for dead_letter in dead_letters}):
        to_stderr(f"{position}: no dead letter has this position")
    if not dry_run:
        with progress(f"{name} to their topics", len(new)) as on_progress:
            if server is None:
                sent = sending.replay(login.settings("headgate-deadletters"), name, new, on_progress)
            else:
                sent = _send_through(server, dead_letters, new, on_progress)
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


def _send_through(
    server: RemoteApp, letters: Sequence[DeadLetter], records: Sequence[KeyedRecord], on_progress: Callable[[int], None]
) -> int:
    """Send records one by one through a console; return how many were not sent before."""
    known, sent = {letter.position: letter for letter in letters}, 0
    for number, record in enumerate(records, 1):
        sent += server.send_again(known[record.dedup_key], record.value)
        on_progress(number)
    return sent
