"""``headgate up``: broker, a service and an invented shop, from one command."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.output import Json

if TYPE_CHECKING:
    from headgate.local.services.service import Service, Verdict
    from headgate.local.stack import StackSettings
    from headgate.rulebook import Book

_LIVE_RATE = 250.0


@dataclass(frozen=True, slots=True)
class Options:
    """What only some services take, beside the folder of streams. None: not said."""

    streams: Path | None = None
    rules: Path | None = None
    opensearch: str | None = None
    opensearch_user: str | None = None
    opensearch_password_file: Path | None = None
    opensearch_password_env: str | None = None
    opensearch_ca_file: Path | None = None

    def refuse_others(self, service: str) -> None:
        """Refuse options of other services. They begin with the name of what they are about."""
        used = {"streams", *_USED[service]}
        for option in fields(self):
            if option.name.split("_")[0] not in used and getattr(self, option.name) is not None:
                raise click.UsageError(f"--{option.name.replace('_', '-')}: the {service} service has no use for it")


def _rules(options: Options) -> Service:
    from headgate.local.services.rules import RulesService

    return RulesService(lambda: _book(options.rules, options.streams))


def _search(options: Options) -> Service:
    from headgate.local.services.search import SearchService
    from streamcore.sinks.opensearch.settings import Login

    if options.opensearch is None:
        if options != Options(streams=options.streams):
            raise click.UsageError("--opensearch-...: of a server that is named with --opensearch URL")
        return SearchService()
    login = Login(
        (options.opensearch,),
        options.opensearch_user,
        options.opensearch_password_file,
        options.opensearch_password_env,
        options.opensearch_ca_file,
    )
    return SearchService(login)


_MAKERS: Mapping[str, Callable[[Options], Service]] = {"rules": _rules, "search": _search}
_USED: Mapping[str, tuple[str, ...]] = {"rules": ("rules",), "search": ("opensearch",)}
SERVICES = tuple(_MAKERS)

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(name="up")
@click.argument("service", type=click.Choice(SERVICES), default="rules")
@click.option("--events", type=click.IntRange(1), default=None, help="Send so many more, then stop (default: go on).")
@click.option("--json", "as_json", is_flag=True, help="No view: compare with what must come, print one JSON object.")
@click.option("--rate", type=click.FloatRange(0.1), default=None, help="Events/s (view: 250; --json: what goes).")
@click.option("--seed", type=int, default=None, help="Of a new shop; the same seed tells the same story.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), default=None, help="Data folder of the shop.")
@click.option(
    "--fresh", is_flag=True, help="Delete the shop of the data folder and all that came of it, and begin anew."
)
@click.option("--rules", type=click.Path(path_type=Path), default=None, help="rules: to publish (default: rules/shop).")
@click.option("--streams", type=click.Path(file_okay=False, path_type=Path), default=None, help="Folder of streams.")
@click.option("--port", type=click.IntRange(1, 65535), default=None, help="Of the local broker (default: 19092).")
@click.option("--broker-folder", type=click.Path(file_okay=False, path_type=Path), default=None, help="Its data.")
@click.option("--bootstrap", default=None, help="Use this Kafka (host:port) instead of the local broker.")
@click.option("--opensearch", default=None, help="search: write to this OpenSearch (URL) instead of a local node.")
@click.option("--opensearch-user", default=None, help="User name there.")
@click.option("--opensearch-password-file", type=_FILE, default=None, help="File that holds the password.")
@click.option("--opensearch-password-env", default=None, help="Environment variable that holds the password.")
@click.option("--opensearch-ca-file", type=_FILE, default=None, help="Certificate authority, PEM.")
@click.option("--keep-broker", is_flag=True, help="Leave the local servers running.")
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

    rules publishes the shipped rules, or those of --rules, and finds alerts. search reads product changes too, and
    keeps documents in an OpenSearch that is started beside the broker.

    Ctrl-C stops at a batch boundary, and the next run goes on there. --json needs --events: it sends them, waits until
    they are processed, reads all that came out again with another client and compares. Exit code 1 unless all is right.
    """
    began_s = time.monotonic()
    if as_json and events is None:
        raise click.UsageError("--json needs --events N: without an end there is nothing to compare")
    from headgate.local import broker as local_broker
    from headgate.local import workspace
    from headgate.local.stack import StackSettings

    options = Options(
        streams,
        rules,
        opensearch,
        opensearch_user,
        opensearch_password_file,
        opensearch_password_env,
        opensearch_ca_file,
    )
    options.refuse_others(service)
    chosen = _MAKERS[service](options)
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
