"""``headgate demo produce``: the demo shop's events for an app that runs elsewhere."""

from __future__ import annotations

import click

from headgate.console.output import Output, emit, output_option
from headgate.demo.service_options import SERVICES, ServiceOptions
from headgate.kafka_login import KafkaLogin, login_option


@click.command(name="produce")
@click.argument("service", type=click.Choice([*SERVICES]), default="rules")
@login_option
@click.option(
    "--topic", default=None, help="Event topic (default: as headgate up names it); further topics are TOPIC.NAME."
)
@click.option(
    "--events", type=click.IntRange(1), default=None, help="Send this many more events, then stop (default: no end)."
)
@click.option("--rate", type=click.FloatRange(0.1), default=100.0, show_default=True, help="Records per second.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same events.")
@output_option
def command(
    service: str, login: KafkaLogin, topic: str | None, events: int | None, rate: float, seed: int, output: Output
) -> int:
    """Send the demo shop's events to Kafka, for an app of SERVICE that runs elsewhere.

    \b
    etl       events in four formats, each in its own topic
    rules     events that include the frauds the shipped rules look for (the default)
    search    events, and product changes in their own topic
    sessions  events

    The first thousand events are sent slowly, so that a running app reads them in several cuts. Missing topics are
    created. Ctrl-C stops; the next run continues where this one stopped, also after a crash.
    """
    from dataclasses import replace

    from headgate.console.messages import to_stderr
    from headgate.console.progress import progress
    from headgate.demo.datagen import send_feed, shop_settings
    from headgate.demo.run import Signals

    chosen = SERVICES[service](ServiceOptions(None, None, None, None, None))
    names = chosen.app_names if topic is None else replace(chosen.app_names, app=topic)
    kafka = login.settings("headgate-demo")
    source, signals = chosen.event_feed(names, shop_settings(seed)), Signals(to_stderr, setting_up=False)
    with signals.handling(), progress(f"the shop's events to {names.events}", events) as on_progress:
        sent = send_feed(kafka, source, events, rate, signals.stop.is_set, on_progress)
    emit(
        output,
        {"topic": names.events, "records": sent.record_count, "next": sent.next_index},
        f"{sent.record_count} records to {', '.join(source.topics)}; "
        f"the shop has produced {sent.next_index} events so far",
    )
    return 0
