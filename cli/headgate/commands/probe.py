"""``headgate probe``: does a running rules app work, from an event to its alert?"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import click

from headgate.login import Login
from headgate.output import Output, emit, output_option
from headgate.rules_options import streams_option, target_option


@click.command(name="probe")
@target_option
@click.option("--stream", default="shop", show_default=True, help="A stream that the app reads (streams/NAME.yaml).")
@click.option("--topic", default=None, help="The stream's topic (default: the stream's name).")
@click.option("--at", default="now", show_default=True, help="The event's time; see below.")
@click.option("--wait", type=click.FloatRange(1), default=60.0, show_default=True, help="For each step, in seconds.")
@streams_option
@output_option
def command(
    login: Login,
    app: str,
    stream: str,
    topic: str | None,
    at: str,
    wait: float,
    streams: Path | None,
    output: Output,
) -> None:
    """Send one event through a running rules app and wait for its alert.

    A rule of the probe's own is published in shadow, so the alert goes to the shadow lane, and is deleted afterwards.
    Exit code 1 when a step did not come in time. While old events are replayed, give an --at among them: an event of
    now would move the watermark and make them late.
    """
    from headgate.moments import parse_time
    from headgate.probing import probe
    from headgate.streams import load_stream

    now_ms = time.time_ns() // 1_000_000
    schema, at_ms = load_stream(stream, streams), parse_time(at, now_ms, "--at")
    kafka = login.settings("headgate-probe")
    found = probe(kafka, app, schema, topic or schema.name, at_ms, round(wait * 1000))
    taken, seen = f"rule taken after {found.rule_ms} ms", f"alert {found.alert_ms} ms after its event"
    text = f"app {app} works: {taken}, {seen} ({found.alert_id})"
    emit(output, asdict(found), text)
