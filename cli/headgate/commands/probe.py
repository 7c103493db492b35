"""``headgate probe``: sends a test event through a running rules app and waits for its alert."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import click

from headgate.console.output import Output, emit, output_option
from headgate.kafka_login import KafkaLogin
from headgate.rules.options import streams_option, target_option


@click.command(name="probe")
@target_option
@click.option("--stream", default="shop", show_default=True, help="Stream that the app reads (streams/NAME.yaml).")
@click.option("--topic", default=None, help="Topic of the stream (default: its name).")
@click.option("--at", default="now", show_default=True, help="Event time; see below.")
@click.option(
    "--wait", type=click.FloatRange(1), default=60.0, show_default=True, help="Seconds to wait for each step."
)
@streams_option
@output_option
def command(
    login: KafkaLogin,
    app: str,
    stream: str,
    topic: str | None,
    at: str,
    wait: float,
    streams: Path | None,
    output: Output,
) -> None:
    """Send a test event through a running rules app, and await its alert.

    The probe publishes its own rule in shadow mode, so that the alert goes to the shadow lane, and deletes it
    afterwards. Exit code 1 if a step does not finish in time. While old events are replayed, give an --at among them:
    an event with the present time would advance the watermark and make them late.
    """
    from headgate.records.stream_files import load_stream
    from headgate.rules.probe import probe
    from headgate.time_arguments import parse_time

    now_ms = time.time_ns() // 1_000_000
    schema, at_ms = load_stream(stream, streams), parse_time(at, now_ms, "--at")
    kafka = login.settings("headgate-probe")
    result = probe(kafka, app, schema, topic or schema.name, at_ms, round(wait * 1000))
    rule_text, alert_text = f"rule accepted after {result.rule_ms} ms", f"alert {result.alert_ms} ms after its event"
    text = f"app {app} works: {rule_text}, {alert_text} ({result.alert_id})"
    emit(output, asdict(result), text)
