"""``headgate up``: broker, a service and an invented shop, from one command."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from headgate.output import Json

if TYPE_CHECKING:
    from headgate.local.services.database import Address
    from headgate.local.services.service import Service, Verdict
    from headgate.local.stack import StackSettings
    from headgate.rulebook import Book

_LIVE_RATE = 250.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """What options say to some of the services. ``postgres``: None: a local one."""

    rules: Path | None
    streams: Path | None
    postgres: Address | None


def _rules(chosen: Chosen) -> Service:
    from headgate.local.services.rules import RulesService

    return RulesService(lambda: _book(chosen.rules, chosen.streams))


def _sessions(chosen: Chosen) -> Service:
    from headgate.local.services.sessions import SessionsService

    return SessionsService(chosen.postgres)


def _etl(_: Chosen) -> Service:
    from headgate.local.services.etl import EtlService

    return EtlService()


#: What makes each service.
SERVICES: Mapping[str, Callable[[Chosen], Service]] = {"etl": _etl, "rules": _rules, "sessions": _sessions}
#: Options that only some services have, by the name of their parameter.
_ONLY: Mapping[str, tuple[str, ...]] = {
    "rules": ("rules",),
    "postgres": ("sessions",),
    "postgres_user": ("sessions",),
    "postgres_password_file": ("sessions",),
    "postgres_password_env": ("sessions",),
    "postgres_ca_file": ("sessions",),
}


@click.command(name="up")
@click.argument("service", type=click.Choice([*SERVICES]), default="rules")
@click.option("--events", type=click.IntRange(1), default=None, help="Send so many more, then stop (default: go on).")
@click.option("--json", "as_json", is_flag=True, help="No view: compare with what must come, print one JSON object.")
@click.option("--rate", type=click.FloatRange(0.1), default=None, help="Events/s (view: 250; --json: what goes).")
@click.option("--seed", type=int, default=None, help="Of a new shop; the same seed tells the same story.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), default=None, help="Data folder of the shop.")
@click.option("--fresh", is_flag=True, help="Forget the shop of the data folder and its topics, and begin anew.")
@click.option("--rules", type=click.Path(path_type=Path), default=None, help="Rules to publish (default: rules/shop).")
@click.option("--streams", type=click.Path(file_okay=False, path_type=Path), default=None, help="Folder of streams.")
@click.option("--port", type=click.IntRange(1, 65535), default=None, help="Of the local broker (default: 19092).")
@click.option("--broker-folder", type=click.Path(file_okay=False, path_type=Path), default=None, help="Its data.")
@click.option("--bootstrap", default=None, help="Use this Kafka (host:port) instead of the local broker.")
@click.option("--keep-broker", is_flag=True, help="Leave the local servers running.")
@click.option("--postgres", default=None, help="Use this server (HOST:PORT/DATABASE) instead of a local one.")
@click.option("--postgres-user", default="headgate", show_default=True, help="With --postgres: log in as.")
@click.option("--postgres-password-file", type=click.Path(dir_okay=False, path_type=Path), help="With --postgres.")
@click.option("--postgres-password-env", default=None, help="With --postgres: a variable that holds the password.")
@click.option("--postgres-ca-file", type=click.Path(dir_okay=False, path_type=Path), help="To prove who it is.")
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
    postgres: str | None,
    postgres_user: str,
    postgres_password_file: Path | None,
    postgres_password_env: str | None,
    postgres_ca_file: Path | None,
    *,
    as_json: bool,
    fresh: bool,
    keep_broker: bool,
    verbose: bool,
) -> int:
    """Run the shop: a local Kafka, a service, and a generator of shop events.

    \b
    etl       events in four formats into clean rows, in Kafka and a Delta table
    rules     the shipped rules; alerts (the default)
    sessions  user sessions and figures, in Kafka and PostgreSQL (a local one, unless --postgres names another)

    Ctrl-C stops at a batch boundary, and the next run goes on there. --json needs --events: it sends them, waits until
    they are processed, reads again all that came out and compares. Exit code 1 unless all is right.
    """
    began_s = time.monotonic()
    if as_json and events is None:
        raise click.UsageError("--json needs --events N: without an end there is nothing to compare")
    from headgate.local import broker as local_broker
    from headgate.local import workspace
    from headgate.local.stack import StackSettings

    _refuse_foreign(service)
    at = _address(postgres, postgres_user, postgres_password_file, postgres_password_env, postgres_ca_file)
    chosen = SERVICES[service](Chosen(rules, streams, at))
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


def _refuse_foreign(service: str) -> None:
    """Options of other services."""
    context = click.get_current_context()
    for name, services in _ONLY.items():
        said = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if said and service not in services:
            raise click.UsageError(f"--{name.replace('_', '-')}: the {service} service has no use for it")


def _address(
    place: str | None, user: str, password_file: Path | None, password_env: str | None, ca_file: Path | None
) -> Address | None:
    """Of the PostgreSQL that is named."""
    if place is None:
        if password_file or password_env or ca_file:
            raise click.UsageError("how to log in belongs to a server that --postgres names")
        return None
    from headgate.local.services.database import Address

    found = Address.parse(place, user)
    return replace(
        found,
        password_file=password_file and password_file.absolute(),
        password_env=password_env,
        ca_file=ca_file and ca_file.absolute(),
    )


def _book(rules: Path | None, streams: Path | None) -> Book:
    from headgate.errors import InputError
    from headgate.rulebook import read_book, shipped_rules

    book = read_book([rules or shipped_rules("shop")], streams)
    if book.problems:
        raise InputError("rules: " + "\n".join(problem.render() for problem in book.problems))
    return book


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
