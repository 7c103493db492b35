"""``headgate lists``: check and publish lists, and show the lists of an app."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.console.output import Json, Output, emit, output_option
from headgate.errors import InputError
from headgate.kafka_login import KafkaLogin
from headgate.rules.options import server_option, target_option

if TYPE_CHECKING:
    from headgate.rules.publish import PublishedChange
    from headgate.rules.remote import RemoteApp
    from rulecore.lists.files import ListFile

_HEAD = ("LIST", "VERSION", "OWNER", "OF", "VALUE", "ENTRIES", "EXPIRES")


@click.group(name="lists")
def command() -> None:
    """Check and publish lists that rules use, and show an app's lists.

    A list is a YAML file with its entries, or with the name of a CSV file beside it. Only parts that
    changed since the previous version are sent.
    """


@command.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@target_option
@server_option
@click.option(
    "--wait", type=click.FloatRange(0.1), default=60.0, show_default=True, help="Seconds to wait for a response."
)
@click.option("--why", default=None, help="Reason for the change, kept in the history.")
@output_option
def publish(
    paths: Sequence[Path],
    login: KafkaLogin,
    app: str,
    server: RemoteApp | None,
    wait: float,
    why: str | None,
    output: Output,
) -> int:
    """Check and publish lists, and show the app's responses. Exit code 1 if a list is rejected."""
    from headgate.rules.bundle import read_lists

    files = [read_lists(path) for path in paths]
    if problems := [problem for _, file_problems in files for problem in file_problems]:
        raise InputError("lists: nothing was published\n" + "\n".join(p.render() for p in problems))
    lists = [list_file for list_files, _ in files for list_file in list_files]
    if server is not None:
        published = [server.publish_list(one, why, round(wait * 1000)) for one in lists]
    else:
        published = _publish(lists, login, app, why, round(wait * 1000))
    responses = [
        (change.change.name, list_file.head.version, *_answer(change))
        for list_file, change in zip(lists, published, strict=True)
    ]
    data: Json = [dict(zip(("list", "version", "status", "reason"), a, strict=True)) for a in responses]
    emit(output, data, "\n".join(_render_response(*response) for response in responses))
    return 0 if all(status == "accepted" for _, _, status, _ in responses) else 1


def _answer(published: PublishedChange) -> tuple[str | None, str | None]:
    response = published.response
    return (None, None) if response is None else (response.status, response.reason)


def _publish(
    lists: Sequence[ListFile], login: KafkaLogin, app: str, why: str | None, wait_ms: int
) -> list[PublishedChange]:
    """Publish lists on the control topic: of each the parts that are not there, then its head."""
    from headgate.rules.publish import AppTopics, ControlChange, note_for_user, publish_in_steps, read_log, require_app
    from headgate.rules.publish import publish as send

    kafka, topics = login.settings("headgate-lists"), AppTopics(app)
    require_app(kafka, topics)
    known = {w.control.key for w in read_log(kafka, topics) if w.control.value is not None}
    note = note_for_user(why)
    done: list[PublishedChange] = []
    for list_file in lists:
        *parts, (key, value) = list_file.records()
        missing = [ControlChange(k, v, k) for k, v in parts if k.encode() not in known]
        send(kafka, topics, missing, note, wait_ms)
        head = [ControlChange(key, value, list_file.head.list)]
        (published,) = publish_in_steps(kafka, topics, head, note, wait_ms)
        if published.response is not None and not published.response.accepted and len(missing) < len(parts):
            # The app has dropped parts that were sent before.
            send(kafka, topics, [ControlChange(k, v, k) for k, v in parts], note, wait_ms)
            (published,) = publish_in_steps(kafka, topics, head, note, wait_ms)
        done.append(published)
    return done


def _render_response(name: str, version: int, status: str | None, reason: str | None) -> str:
    line = f"{status or 'no response':10} {name} version {version}"
    return line if reason is None else f"{line}: {reason}"


@command.command(name="list")
@target_option
@server_option
@output_option
def list_(login: KafkaLogin, app: str, server: RemoteApp | None, output: Output) -> None:
    """Show the lists that were published to an app; reads only its control topic."""
    from headgate.rules.history import read_history
    from headgate.rules.publish import AppTopics, require_app
    from headgate.rules.render import as_json, as_table
    from rulecore.documents.scalars import render_time

    if server is not None:
        found = server.list_rows()
        emit(output, as_json(_HEAD, found), as_table(_HEAD, found))
        return
    kafka, topics = login.settings("headgate-lists"), AppTopics(app)
    require_app(kafka, topics)
    rows = []
    for name, live in sorted(read_history(kafka, topics, None).lists.lists.items()):
        head = live.head
        expires = None if head.expires is None else render_time(head.expires)
        value = None if head.value is None else str(head.value)
        entries = live.entries()
        count = None if entries is None else len(entries.numbers)
        rows.append((name, head.version, head.owner, str(head.of), value, count, expires))
    emit(output, as_json(_HEAD, rows), as_table(_HEAD, rows))
