"""``headgate up``: a local Kafka, one service and a simulated shop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.console.output import Json
from headgate.demo.service_options import SERVICES, ServiceOptions, check_options, opensearch_login, postgres_address

if TYPE_CHECKING:
    from headgate.demo.run import DemoRun
    from headgate.demo.service import Service, VerifyResult
    from headgate.demo.stack import StackSettings

_LIVE_RATE = 250.0
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(name="up")
@click.argument("service", type=click.Choice([*SERVICES]), default="rules")
@click.option(
    "--events", type=click.IntRange(1), default=None, help="Send this many more events, then stop (default: no end)."
)
@click.option("--json", "as_json", is_flag=True, help="No live view: verify the output and print one JSON object.")
@click.option(
    "--rate", type=click.FloatRange(0.1), default=None, help="Events per second (default: 250; with --json: no limit)."
)
@click.option("--seed", type=int, default=None, help="Seed of a new shop; the same seed gives the same events.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), default=None, help="Data folder of the shop.")
@click.option("--fresh", is_flag=True, help="Delete the shop in the data folder and all its output, and start anew.")
@click.option("--rules", type=click.Path(path_type=Path), default=None, help="Rules to publish (default: rules/shop).")
@click.option("--streams", type=click.Path(file_okay=False, path_type=Path), default=None, help="Folder of streams.")
@click.option("--port", type=click.IntRange(1, 65535), default=None, help="Port of the local broker (default: 19092).")
@click.option(
    "--broker-folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Data folder of the local broker.",
)
@click.option("--bootstrap", default=None, help="Use this Kafka (host:port) instead of the local broker.")
@click.option("--keep-broker", is_flag=True, help="Leave the local servers running.")
@click.option(
    "--to", type=click.Choice(["delta", "postgres"]), default=None, help="etl: kind of the table (default: delta)."
)
@click.option("--postgres", default=None, help="Use this server (HOST:PORT/DATABASE) instead of a local one.")
@click.option("--postgres-user", default="headgate", show_default=True, help="With --postgres: user name.")
@click.option("--postgres-password-file", type=_FILE, help="With --postgres: file that holds the password.")
@click.option(
    "--postgres-password-env", default=None, help="With --postgres: environment variable that holds the password."
)
@click.option("--postgres-ca-file", type=_FILE, help="With --postgres: certificate authority of the server, PEM.")
@click.option("--opensearch", default=None, help="Use this server (URL) instead of a local one.")
@click.option("--opensearch-user", default=None, help="With --opensearch: user name.")
@click.option("--opensearch-password-file", type=_FILE, help="With --opensearch: file that holds the password.")
@click.option(
    "--opensearch-password-env", default=None, help="With --opensearch: environment variable that holds the password."
)
@click.option("--opensearch-ca-file", type=_FILE, help="With --opensearch: certificate authority of the server, PEM.")
@click.option("--no-console", is_flag=True, help="rules: serve no console in a browser.")
@click.option("--verbose", is_flag=True, help="Print the time of each step.")
@click.option(
    "--settings",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="No demo: run the service with this settings file of your own, as headgate SERVICE run does.",
)
def command(
    service: str,
    events: int | None,
    rate: float | None,
    seed: int | None,
    data: Path | None,
    rules: Path | None,
    streams: Path | None,
    port: int | None,
    broker_folder: Path | None,
    bootstrap: str | None,
    to: str | None,
    postgres: str | None,
    postgres_user: str,
    postgres_password_file: Path | None,
    postgres_password_env: str | None,
    postgres_ca_file: Path | None,
    opensearch: str | None,
    opensearch_user: str | None,
    opensearch_password_file: Path | None,
    opensearch_password_env: str | None,
    opensearch_ca_file: Path | None,
    settings: Path | None,
    *,
    as_json: bool,
    fresh: bool,
    keep_broker: bool,
    no_console: bool,
    verbose: bool,
) -> int:
    """Run a demo: a local Kafka, one service, and a simulated shop.

    \b
    etl       events in four formats become clean rows, in Kafka and a Delta table (or PostgreSQL: --to, --postgres)
    rules     the shipped rules raise alerts (the default)
    search    product documents with their popularity, in OpenSearch (local, unless --opensearch names a server)
    sessions  user sessions and dashboard metrics, in Kafka and PostgreSQL (local, unless --postgres names a server)

    The rules demo serves the console too: its address is printed, and opens one session in a browser of this machine.
    Ctrl-C stops at a batch boundary; the next run continues there. --json needs --events: it sends them, waits until
    they are processed, reads all output with an independent client and compares it with the expected output. Exit
    code 1 if anything is missing, duplicated, wrong or unexpected.
    """
    if settings is not None:
        _run_settings(service, settings, keep_broker=keep_broker)
        return 0
    began_s = time.monotonic()
    if as_json and events is None:
        raise click.UsageError("--json needs --events N: a run without an end cannot be verified")
    from headgate.demo import workspace
    from headgate.demo.stack import StackSettings
    from headgate.local.servers import kafka as local_broker

    check_options(service)
    postgres_server = postgres_address(
        postgres, postgres_user, postgres_password_file, postgres_password_env, postgres_ca_file
    )
    opensearch_server = opensearch_login(
        opensearch, opensearch_user, opensearch_password_file, opensearch_password_env, opensearch_ca_file
    )
    chosen = SERVICES[service](ServiceOptions(rules, streams, to, postgres_server, opensearch_server))
    stack = StackSettings(
        folder=(data or workspace.default_folder(chosen.app_names.app)).absolute(),
        broker_folder=broker_folder or local_broker.default_folder(),
        port=port or local_broker.DEFAULT_PORT,
        streams=streams,
        bootstrap=bootstrap,
        seed=seed,
        fresh=fresh,
        keep_broker=keep_broker,
    )
    with workspace.lock_folder(stack.folder):
        console = service == "rules" and not as_json and not no_console
        return _run(chosen, stack, events, rate, began_s, as_json=as_json, verbose=verbose, console=console)


def _run_settings(service: str, file: Path, *, keep_broker: bool) -> None:
    """Run a settings file of the user; other options are those of the demo, and are rejected."""
    from click.core import ParameterSource

    from headgate.documents.run import RunOptions, run_document

    context = click.get_current_context()
    others = [
        name
        for name in context.params
        if name not in ("service", "settings", "keep_broker")
        and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if others:
        name = "json" if others[0] == "as_json" else others[0].replace("_", "-")
        raise click.UsageError(f"--{name} is for the demo; with --settings the settings file says it")
    run_document(service, file, RunOptions(keep_broker=keep_broker))


def _run(
    service: Service,
    settings: StackSettings,
    events: int | None,
    rate: float | None,
    began_s: float,
    *,
    as_json: bool,
    verbose: bool,
    console: bool,
) -> int:
    from rich.console import Console

    from headgate.console.messages import silent, to_stderr
    from headgate.console.timeline import Timeline
    from headgate.demo.generator import GeneratorSettings
    from headgate.demo.run import DemoRun, Signals
    from headgate.demo.stack import DemoStack
    from headgate.errors import InputError

    _log_clients_to(settings.folder / "up.log")
    timeline = Timeline(to_stderr if verbose else silent, began_s)
    signals = Signals(to_stderr)
    demo = DemoRun(DemoStack(service, settings, to_stderr, timeline), signals, to_stderr, timeline)
    result = None
    with signals.handling():
        try:
            demo.stack.start()
            if as_json and events is not None:
                result = demo.run_and_verify(events, GeneratorSettings(events, rate))
            else:
                with _console(demo) if console else nullcontext():
                    demo.run_live(GeneratorSettings(events, rate or _LIVE_RATE), Console())
        except BaseException:
            demo.stop_after_error()
            raise
        demo.close()
    if not as_json:
        return 0
    if result is None:
        raise InputError("interrupted: nothing was verified; the next run continues where this one stopped")
    click.echo(_document(result, timeline.elapsed_s))
    return 0 if result.passed else 1


@contextmanager
def _console(demo: DemoRun) -> Iterator[None]:
    """Serve the console of the demo's app inside the context, on its own port or, if that is taken, on any free one."""
    from headgate.console.messages import to_stderr
    from headgate.errors import InputError
    from headgate.web.server import ConsoleServer, running
    from headgate.web.settings import ConsoleApp, ConsoleSettings

    stack = demo.stack
    workspace = stack.workspace
    app = ConsoleApp(name=workspace.names.app, streams=stack.settings.streams, settings=workspace.settings_file)
    settings = ConsoleSettings(kafka=stack.kafka, apps=(app,))
    try:
        server = ConsoleServer(settings)
    except InputError:
        server = ConsoleServer(settings.model_copy(update={"port": 0}))
    addresses = [server.open_address()]
    server.sessions.on_opened = lambda: addresses.append(server.open_address())
    demo.footer = lambda: f"console: {addresses[-1]}"
    to_stderr(demo.footer())
    with running(server):
        yield


def _log_clients_to(file: Path) -> None:
    """Send the logs of Kafka's clients to a file, because the live view fills the screen."""
    import logging

    handler = logging.FileHandler(file, mode="w", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    for name in ("streamcore", "kafka"):
        logging.getLogger(name).addHandler(handler)


def _document(result: VerifyResult, seconds: float) -> str:
    import json

    document: Json = {**result.summary().document(), "seconds": round(seconds, 1)}
    return json.dumps(document)
