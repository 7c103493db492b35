"""``headgate feed``: the invented shop's events for an app that runs elsewhere."""

from __future__ import annotations

import click

from headgate.login import Login, login_option
from headgate.output import Output, emit, output_option
from headgate.up_services import SERVICES, Chosen


@click.command(name="feed")
@click.argument("service", type=click.Choice([*SERVICES]), default="rules")
@login_option
@click.option("--topic", default=None, help="Of the events (default: as headgate up names it); others: TOPIC.NAME.")
@click.option("--events", type=click.IntRange(1), default=None, help="Send so many more, then stop (default: go on).")
@click.option("--rate", type=click.FloatRange(0.1), default=100.0, show_default=True, help="Records/s.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed tells the same story.")
@output_option
def command(
    service: str, login: Login, topic: str | None, events: int | None, rate: float, seed: int, output: Output
) -> int:
    """Send an invented shop's events into Kafka, for an app of SERVICE that runs elsewhere.

    \b
    etl       events in four formats, a topic each
    rules     events, with what the shipped rules look for in them (the default)
    search    events, and what becomes of the products in a topic of their own
    sessions  events

    The first thousand go slowly, so that an app that runs sees them in several cuts. Topics that are missing are made.
    A feed that was stopped, in whatever way, goes on where it stopped; Ctrl-C stops it.
    """
    from dataclasses import replace

    from headgate.feeding import feed, story
    from headgate.progress import progress
    from headgate.run_up import Signals
    from headgate.talk import to_stderr

    chosen = SERVICES[service](Chosen(None, None, None, None, None))
    names = chosen.names if topic is None else replace(chosen.names, app=topic)
    kafka = login.settings("headgate-feed")
    what, signals = chosen.feed(names, story(seed)), Signals(to_stderr, setting_up=False)
    with signals.caught(), progress(f"the shop's events to {names.events}", events) as told:
        fed = feed(kafka, what, events, rate, signals.stop.is_set, told)
    emit(
        output,
        {"topic": names.events, "records": fed.records, "next": fed.index},
        f"{fed.records} records to {', '.join(what.topics)}; {fed.index} events of the story are there",
    )
    return 0
