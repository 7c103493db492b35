"""``headgate deadletters``: what an app could not take, why, and how it is sent again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click

from headgate.login import Login
from headgate.output import Json, Output, emit, output_option
from headgate.rules_options import target_option

R = TypeVar("R")
_HEAD = ("CODE", "LETTERS", "LATEST", "EXAMPLE", "REASON")


@click.group(name="deadletters")
def command() -> None:
    """List dead letters, show them whole, and send repaired ones to the topics that they came from.

    A letter is named by its place in the topic of dead letters, partition/offset.
    """


def _which(command: Callable[..., R]) -> Callable[..., R]:
    """What names letters."""
    decorators = [
        click.argument("places", nargs=-1),
        click.option("--topic", default=None, help="The topic of dead letters (default: APP.deadletters)."),
        click.option("--code", "codes", multiple=True, help="Only letters with this code; several times: any of them."),
        click.option("--reason", default=None, help="Only letters whose reason holds this text."),
        click.option("--source", "sources", multiple=True, help="Only letters that came from this topic."),
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return target_option(command)


@command.command(name="list")
@_which
@output_option
def list_(
    places: Sequence[str],
    topic: str | None,
    codes: Sequence[str],
    reason: str | None,
    sources: Sequence[str],
    login: Login,
    app: str,
    output: Output,
) -> None:
    """Count letters by the code of their reason, with an example of each. PLACES: 0, 0/17 or 0/17-42 (default: all)."""
    from headgate.deadletters import Letter, Wanted
    from headgate.deadletters_replay import already, read_letters
    from headgate.tables import table
    from rulecore.values import render_time

    kafka, name = login.settings("headgate-deadletters"), topic or f"{app}.deadletters"
    counts: dict[str, int] = {}
    latest: dict[str, Letter] = {}
    sent: dict[str, int] = {}
    done = already(kafka, name)
    for letter in read_letters(kafka, name, Wanted.of(places, codes, reason, sources)):
        counts[letter.code] = counts.get(letter.code, 0) + 1
        sent[letter.code] = sent.get(letter.code, 0) + (letter.place in done)
        if letter.code not in latest or letter.timestamp_ms >= latest[letter.code].timestamp_ms:
            latest[letter.code] = letter
    order = sorted(counts, key=lambda code: (-counts[code], code))
    data: Json = [
        {"code": code, "letters": counts[code], "replayed": sent[code], "example": latest[code].json()}
        for code in order
    ]
    rows = [
        (code, str(counts[code]), render_time(one.timestamp_ms), one.place, one.reason)
        for code in order
        for one in [latest[code]]
    ]
    emit(output, data, "\n".join(table(_HEAD, rows, right=("LETTERS",))))


@command.command()
@_which
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="The first so many.")
@output_option
def show(
    places: Sequence[str],
    topic: str | None,
    codes: Sequence[str],
    reason: str | None,
    sources: Sequence[str],
    login: Login,
    app: str,
    limit: int,
    output: Output,
) -> None:
    """Show letters whole. With -o json one JSON object a line: change its value and give it to replay --edit."""
    import itertools
    import json

    from headgate.deadletters import Wanted
    from headgate.deadletters_replay import read_letters

    kafka, name = login.settings("headgate-deadletters"), topic or f"{app}.deadletters"
    found = read_letters(kafka, name, Wanted.of(places, codes, reason, sources))
    for letter in itertools.islice(found, limit):
        if output is Output.JSON:
            click.echo(json.dumps(letter.json(), ensure_ascii=False))
            continue
        source = letter.source
        origin = "unknown" if source is None else f"{source.topic} {source.partition}/{source.offset}"
        click.echo(f"{letter.place}  {letter.code}  from {origin}\n  {letter.reason}\n  {letter.shown}")


@command.command()
@_which
@click.option(
    "--edit", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="New values, a line a letter."
)
@click.option("--set", "fields", multiple=True, metavar="FIELD=VALUE", help="Set a field of each JSON value.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
@output_option
def replay(
    places: Sequence[str],
    topic: str | None,
    codes: Sequence[str],
    reason: str | None,
    sources: Sequence[str],
    login: Login,
    app: str,
    edit: Path | None,
    fields: Sequence[str],
    dry_run: bool,
    output: Output,
) -> None:
    """Send letters to the topics that they came from, repaired by --edit or --set, each once.

    With --edit and without PLACES only the letters that the file names are sent. What was sent is remembered beside the
    letters, so a second run sends only what is new.
    """
    from headgate import deadletters_replay as sending
    from headgate.deadletters import Repair, Wanted, read_edits, read_fields
    from headgate.progress import progress
    from headgate.talk import to_stderr

    kafka, name = login.settings("headgate-deadletters"), topic or f"{app}.deadletters"
    edits = {} if edit is None else read_edits(edit)
    wanted = Wanted.of(places or tuple(edits), codes, reason, sources)
    letters = [*sending.read_letters(kafka, name, wanted)] if places or edits or edit is None else []
    parcels = sending.plan(letters, Repair(edits, read_fields(fields)), name)
    sending.check_targets(kafka, parcels)
    done = sending.already(kafka, name)
    new = [parcel for parcel in parcels if parcel.name not in done]
    for place in sorted(set(edits) - {letter.place for letter in letters}):
        to_stderr(f"{place}: there is no such letter")
    if not dry_run:
        with progress(f"{name} to their topics", len(new)) as told:
            sent = sending.replay(kafka, name, new, told)
    else:
        sent = len(new)
    homeless = len(letters) - len(parcels)
    before = len(parcels) - sent
    data: dict[str, Json] = {"letters": len(letters), "sent": sent, "sent_before": before, "without_source": homeless}
    said = "would be sent" if dry_run else "sent"
    text = f"{sent} letters {said}, {before} were sent before, {homeless} do not say where they came from"
    emit(output, {**data, "dry_run": dry_run}, text)
