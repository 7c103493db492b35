"""The pages of keys, lists, streams, health and upgrades."""

from __future__ import annotations

import time
from itertools import islice
from urllib.parse import quote

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from headgate.records.formats import read_formats
from headgate.web.context import TheApp, TheConsole, TheSession
from headgate.web.pages import html
from headgate.web.pages.routes import make_frame
from headgate.web.state.app_reader import Snapshot
from headgate.web.state.entity import key_columns, read_entity
from headgate.web.state.health import read_health
from headgate.web.state.rule_views import find_list, find_stream, list_changes, list_lists, list_streams
from headgate.web.state.samples import read_sample, seen_values
from headgate.web.state.values import ListEntry
from streamcore.errors import StreamError

ROUTER = APIRouter(prefix="/apps/{app}", include_in_schema=False, default_response_class=HTMLResponse)
_ENTRIES = 500
_CHANGES = 50
_SAMPLE = 50


@ROUTER.get("/keys")
def keys_page(app: TheApp, console: TheConsole, session: TheSession, column: str = "", value: str = "") -> str:
    """Show the events, alerts and lists of a key."""
    snapshot, entity = app.snapshot(), None
    if column and value:
        scan = console.settings.limits.scan_records
        with console.working():
            entity = read_entity(snapshot, app.kafka, app.app, app.alerts, (column, value), scan)
    command = (
        f"headgate rules explain RULE --key {quote(column) or 'COLUMN'}={quote(value) or 'VALUE'} --app {app.name}"
    )
    frame = make_frame(console, session, app.name, "keys", value or "Keys", command)
    return html.keys_page(frame, key_columns(snapshot), entity, {"column": column, "value": value})


@ROUTER.get("/lists")
def lists_page(app: TheApp, console: TheConsole, session: TheSession) -> str:
    """Show the lists."""
    frame = make_frame(console, session, app.name, "lists", "Lists", f"headgate lists list --app {app.name}")
    return html.lists_page(frame, list_lists(app.snapshot()))


@ROUTER.get("/lists/{name}")
def list_page(app: TheApp, name: str, console: TheConsole, session: TheSession) -> str:
    """Show a list with its entries."""
    snapshot = app.snapshot()
    found = find_list(snapshot, name)
    changes = (c for c in list_changes(snapshot) if (c.subject, c.name) == ("list", name))
    frame = make_frame(console, session, app.name, "lists", name, f"headgate lists show {quote(name)} --app {app.name}")
    return html.list_page(frame, found, _entries(snapshot, name), [*islice(changes, _CHANGES)])


def _entries(snapshot: Snapshot, name: str) -> list[ListEntry]:
    content = snapshot.history.lists.contents(int(time.time() * 1000)).get(name)
    if content is None:
        return []
    with_value = content.type.value is not None
    keys = sorted(map(str, islice(content.values, _ENTRIES)))
    by_text = {str(key): key for key in islice(content.values, _ENTRIES)}
    return [ListEntry(key=text, value=str(content.get(by_text[text])) if with_value else None) for text in keys]


@ROUTER.get("/streams")
def streams_page(app: TheApp, console: TheConsole, session: TheSession) -> str:
    """Show the streams."""
    frame = make_frame(console, session, app.name, "streams", "Streams", "headgate streams check STREAM.yaml")
    return html.streams_page(frame, list_streams(app.snapshot()))


@ROUTER.get("/streams/{name}")
def stream_page(app: TheApp, name: str, console: TheConsole, session: TheSession) -> str:
    """Show a stream with a sample of its records."""
    found = find_stream(app.snapshot(), name)
    sample, fault, topic = [], "", ""
    try:
        topic = read_formats(app.app.settings).topics.get(name, "" if app.app.settings else name)
        sample = read_sample(app.kafka, topic, _SAMPLE) if topic else []
    except StreamError as error:
        fault = str(error)
    command = f"headgate streams check {name}.yaml --topic {topic or 'TOPIC'}"
    frame = make_frame(console, session, app.name, "streams", name, command)
    return html.stream_page(frame, found, topic, sample, seen_values(found, sample), fault)


@ROUTER.get("/health")
def health_page(app: TheApp, console: TheConsole, session: TheSession) -> str:
    """Show how the app works."""
    frame = make_frame(console, session, app.name, "health", "Health", "headgate status rules --settings FILE")
    return html.health_page(frame, read_health(app.kafka, app.app.settings))


@ROUTER.get("/upgrades")
def upgrades_page(app: TheApp, console: TheConsole, session: TheSession) -> str:
    """Show the upgrades of the app on Kubernetes."""
    command = f"headgate upgrades {app.app.stream_app or 'NAMESPACE/NAME'}"
    frame = make_frame(console, session, app.name, "upgrades", "Upgrades", command)
    return html.upgrades_page(frame, app.upgrades.read())
