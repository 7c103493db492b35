"""``headgate up``: broker, a service and an invented shop, from one command."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.output import Json
from headgate.up_services import SERVICES, Chosen, address, login, refuse_foreign

if TYPE_CHECKING:
    from headgate.local.services.service import Service, Verdict
    from headgate.local.stack import StackSettings

_LIVE_RATE = 250.0
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(name="up")
@click.argument("service", type=click.Choice([*SERVICES]), default="rules")
@click.option("--events", type=click.IntRange(1), default=None, help="Send so many more, then stop (default: go on).")
@click.option("--json", "as_json", is_flag=True, help="No view: compare with what must come, print one JSON object.")
@click.option("--rate", type=click.FloatRange(0.1), default=None, help="Events/s (view: 250; --json: what goes).")
@click.option("--seed", type=int, default=None, help="Of a new shop; the same seed tells the same story.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), default=None, help="Data folder of the shop.")
@click.option("--fresh", is_flag=True, help="Delete the shop of the data folder and what came of it; begin anew.")
@click.option("--rules", type=click.Path(path_type=Path), default=None, help="Rules to publish (default: rules/shop).")
@click.option("--streams", type=click.Path(file_okay=False, path_type=Path), default=None, help="Folder of streams.")
@click.option("--port", type=click.IntRange(1, 65535), default=None, help="Of the local broker (default: 19092).")
@click.option("--broker-folder", type=click.Path(file_okay=False, path_type=Path), default=None, help="Its data.")
@click.option("--bootstrap", default=None, help="Use this Kafka (host:port) instead of the local broker.")
@click.option("--keep-broker", is_flag=True, help="Leave the local servers running.")
@click.option("--to", type=click.Choice(["delta", "postgres"]), default=None, help="etl: its table (default: delta).")
@click.option("--postgres", default=None, help="Use this server (HOST:PORT/DATABASE) instead of a local one.")
@click.option("--postgres-user", default="headgate", show_default=True, help="With --postgres: log in as.")
@click.option("--postgres-password-file", type=_FILE, help="With --postgres.")
@click.option("--postgres-password-env", default=None, help="With --postgres: a variable that holds the password.")
@click.option("--postgres-ca-file", type=_FILE, help="To prove who it is.")
@click.option("--opensearch", default=None, help="Use this server (URL) instead of a local one.")
@click.option("--opensearch-user", default=None, help="With --opensearch: log in as.")
@click.option("--opensearch-password-file", type=_FILE, help="With --opensearch.")
@click.option("--opensearch-password-env", default=None, help="With --opensearch: a variable that holds the password.")
@click.option("--opensearch-ca-file", type=_FILE, help="Certificate authority, PEM.")
@click.option("--verbose", is_flag=True, help="Say when what happened.")
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
    *,
    as_json: bool,
    fresh: bool,
    keep_broker: bool,
    verbose: bool,
) -> int:
    """Run the shop: a local Kafka, a service, and a generator of shop events.

    \b
    etl       events in four formats into clean rows, in Kafka and a Delta table (or PostgreSQL: --to, --postgres)
    rules     the shipped rules; alerts (the default)
    search    product documents, with what is sold and seen, in OpenSearch (local, unless --opensearch names another)
    sessions  user sessions and figures, in Kafka and PostgreSQL (a local one, unless --postgres names another)

    Ctrl-C stops at a batch boundary, and the next run goes on there. --json needs --events: it sends them, waits until
    they are processed, reads all that came out with another client and compares. Exit code 1 unless all is right.
    """
    began_s = time.monotonic()
    if as_json and events is None:
        raise click.UsageError("--json needs --events N: without an end there is nothing to compare")
    from headgate.local import broker as local_broker
    from headgate.local import workspace
    from headgate.local.stack import StackSettings

    refuse_foreign(service)
    at = address(postgres, postgres_user, postgres_password_file, postgres_password_env, postgres_ca_file)
    there = login(opensearch, opensearch_user, opensearch_password_file, opensearch_password_env, opensearch_ca_file)
    chosen = SERVICES[service](Chosen(rules, streams, to, at, there))
    settings = StackSettings(
        folder=(data or workspace.default_folder(chosen.names.app)).absolute(),
        broker_folder=broker_folder or local_broker.default_folder(),
        port=port or local_broker.DEFAULT_PORT,
        streams=streams,
        bootstrap=bootstrap,
        seed=seed,
        fresh=fresh,
        keep_broker=keep_broker,
    )
    with workspace.alone(settings.folder):
        return _run(chosen, settings, events, rate, began_s, as_json=as_json, verbose=verbose)


def _run(
    service: Service,
    settings: StackSettings,
    events: int | None,
    rate: float | None,
    began_s: float,
    *,
    as_json: bool,
    verbose: bool,
) -> int:
    from rich.console import Console

    from headgate.errors import InputError
    from headgate.local.generator import Orders
    from headgate.local.stack import Stack
    from headgate.run_up import Signals, Up
    from headgate.talk import silent, to_stderr
    from headgate.timeline import Timeline

    _log_to(settings.folder / "up.log")
    timeline = Timeline(to_stderr if verbose else silent, began_s)
    signals = Signals(to_stderr)
    up = Up(Stack(service, settings, to_stderr, timeline), signals, to_stderr, timeline)
    verdict = None
    with signals.caught():
        try:
            up.stack.start()
            if as_json and events is not None:
                verdict = up.counted(events, Orders(events, rate))
            else:
                up.live(Orders(events, rate or _LIVE_RATE), Console())
        except BaseException:
            up.abandon()
            raise
        up.close()
    if not as_json:
        return 0
    if verdict is None:
        raise InputError("interrupted: nothing was compared; the next run goes on where this one stopped")
    click.echo(_document(verdict, timeline.elapsed_s))
    return 0 if verdict.good else 1


def _log_to(file: Path) -> None:
    """What Kafka's clients say: into a file, for the view has the screen."""
    import logging

    handler = logging.FileHandler(file, mode="w", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    for name in ("streamcore", "kafka"):
        logging.getLogger(name).addHandler(handler)


def _document(verdict: Verdict, seconds: float) -> str:
    import json

    document: Json = {**verdict.document(), "seconds": round(seconds, 1)}
    return json.dumps(document)
