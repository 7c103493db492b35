"""The services that ``headgate up`` knows, and what its options say to them. Imports what belongs to the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from headgate.local.services.database import Address
    from headgate.local.services.service import Service
    from headgate.rulebook import Book
    from streamcore.sinks.opensearch.settings import Login


@dataclass(frozen=True, slots=True)
class Chosen:
    """What options say to some of the services. ``to``: the etl service's table. ``postgres``, ``opensearch``: None: a
    local one."""

    rules: Path | None
    streams: Path | None
    to: str | None
    postgres: Address | None
    opensearch: Login | None


def _rules(chosen: Chosen) -> Service:
    from headgate.local.services.rules import RulesService

    return RulesService(lambda: _book(chosen.rules, chosen.streams))


def _sessions(chosen: Chosen) -> Service:
    from headgate.local.services.sessions import SessionsService

    return SessionsService(chosen.postgres)


def _etl(chosen: Chosen) -> Service:
    from headgate.local.services.etl import EtlService
    from headgate.local.services.etl_tables import DeltaTable, PostgresTable

    if chosen.to == "delta" and chosen.postgres is not None:
        raise click.UsageError("--to delta needs no --postgres; leave one of them out")
    in_postgres = chosen.to == "postgres" or chosen.postgres is not None
    return EtlService(PostgresTable(chosen.postgres) if in_postgres else DeltaTable())


def _search(chosen: Chosen) -> Service:
    from headgate.local.services.search import SearchService

    return SearchService(chosen.opensearch)


#: What makes each service.
SERVICES: Mapping[str, Callable[[Chosen], Service]] = {
    "etl": _etl,
    "rules": _rules,
    "search": _search,
    "sessions": _sessions,
}
#: Options that only some services have, by the name of their parameter.
_ONLY: Mapping[str, tuple[str, ...]] = {
    "rules": ("rules",),
    "to": ("etl",),
    "postgres": ("etl", "sessions"),
    "postgres_user": ("etl", "sessions"),
    "postgres_password_file": ("etl", "sessions"),
    "postgres_password_env": ("etl", "sessions"),
    "postgres_ca_file": ("etl", "sessions"),
    "opensearch": ("search",),
    "opensearch_user": ("search",),
    "opensearch_password_file": ("search",),
    "opensearch_password_env": ("search",),
    "opensearch_ca_file": ("search",),
}


def refuse_foreign(service: str) -> None:
    """Options of other services."""
    context = click.get_current_context()
    for name, services in _ONLY.items():
        said = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if said and service not in services:
            raise click.UsageError(f"--{name.replace('_', '-')}: the {service} service has no use for it")


def address(
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


def login(
    url: str | None, user: str | None, password_file: Path | None, password_env: str | None, ca_file: Path | None
) -> Login | None:
    """Of the OpenSearch that is named."""
    if url is None:
        if user or password_file or password_env or ca_file:
            raise click.UsageError("how to log in belongs to a server that --opensearch names")
        return None
    from streamcore.sinks.opensearch.settings import Login

    return Login(
        (url,),
        user,
        password_file and password_file.absolute(),
        password_env,
        ca_file and ca_file.absolute(),
    )


def _book(rules: Path | None, streams: Path | None) -> Book:
    from headgate.errors import InputError
    from headgate.rulebook import read_book, shipped_rules

    book = read_book([rules or shipped_rules("shop")], streams)
    if book.problems:
        raise InputError("rules: " + "\n".join(problem.render() for problem in book.problems))
    return book
