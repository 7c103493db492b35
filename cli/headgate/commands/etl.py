"""``headgate etl``: the settings document of an etl app, tried before it runs and published while it runs."""

from __future__ import annotations

from pathlib import Path

import click

from headgate.commands.rules.publishing import response_options, running_app, show_published
from headgate.console.lazy_group import LazyGroup
from headgate.console.output import Output, output_option
from headgate.documents.commands import import_paths
from headgate.kafka_login import KafkaLogin, login_option


@click.group(name="etl", cls=LazyGroup, import_paths=import_paths("etl"))
def command() -> None:
    """Check, try, test, compare and run the settings document of an etl app; publish it while the app runs."""


@command.command(short_help="Publish the mapping of a settings file to the running app.")
@click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@login_option
@response_options
@click.option("--no-wait", is_flag=True, help="Do not wait for the app's response.")
@output_option
def publish(file: Path, login: KafkaLogin, wait: float, why: str | None, output: Output, *, no_wait: bool) -> int:
    """Check the settings FILE of an etl app, publish its mapping with its streams, and show the app's response.

    The app has it from the next cut on, with all state. It takes other expressions, rules, masks and routes of its
    topics, fields of the model that no table has, the changes of streams that headgate streams publish takes, and new
    streams on topics that it reads. What it cannot take while it runs is rejected with the reason and what to do
    instead. Other settings of FILE are not published. Raise version with each change. Exit code 1 when the file is
    wrong, when the app rejects it, or when the response does not come in time.
    """
    from headgate.records.stream_files import read_document
    from headgate.rules.publish import ControlChange, note_for_user
    from headgate.rules.publish import publish as send
    from headgate_etl.live_documents import to_document
    from headgate_etl.service import SERVICE
    from headgate_etl.settings import EtlSettings
    from streamcore.engine.publication import AppPublication

    settings = SERVICE.load_settings(file)
    assert isinstance(settings, EtlSettings), "the settings of the service"
    streams = [read_document(each.schema_file) for each in settings.inputs]
    record = AppPublication(settings.app, to_document(settings, streams))
    change = ControlChange(record.key, record.encode(), settings.app, settings.version)
    kafka, topics = running_app(login, settings.app)
    published = send(kafka, topics, [change], note_for_user(why), None if no_wait else round(wait * 1000))
    return show_published(published, settings.app, wait, output, waited=not no_wait)
