"""The services that ``headgate up`` knows, and their options. Imports only the modules of the chosen service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from headgate.demo.service import Service
    from headgate.demo.services.database import PostgresAddress
    from headgate.rules.bundle import RuleBundle
    from streamcore.sinks.opensearch.settings import ClientSettings


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The options of some of the services. ``to``: the etl service's table. ``postgres``, ``opensearch``: None: a local
    server."""

    rules: Path | None
    streams: Path | None
    to: str | None
    postgres: PostgresAddress | None
    opensearch: ClientSettings | None


def _rules(chosen: ServiceOptions) -> Service:
    from headgate.demo.services.rules import RulesService

    return RulesService(lambda: _read_bundle(chosen.rules, chosen.streams))


def _sessions(chosen: ServiceOptions) -> Service:
    from headgate.demo.services.sessions import SessionsService

    return SessionsService(chosen.postgres)


def _etl(chosen: ServiceOptions) -> Service:
    from headgate.demo.services.etl import EtlService
    from headgate.demo.services.etl_tables import DeltaTable, PostgresTable

    if chosen.to == "delta" and chosen.postgres is not None:
        raise click.UsageError("--to delta needs no --postgres; leave one of them out")
    in_postgres = chosen.to == "postgres" or chosen.postgres is not None
    return EtlService(PostgresTable(chosen.postgres) if in_postgres else DeltaTable())


def _search(chosen: ServiceOptions) -> Service:
    from headgate.demo.services.search import SearchService

    return SearchService(chosen.opensearch)


#: What makes each service.
SERVICES: Mapping[str, Callable[[ServiceOptions], Service]] = {
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


def check_options(service: str) -> None:
    """Options of other services."""
    context = click.get_current_context()
    for name, services in _ONLY.items():
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and service not in services:
            raise click.UsageError(f"--{name.replace('_', '-')}: the {service} service has no use for it")


def postgres_address(
    place: str | None, user: str, password_file: Path | None, password_env: str | None, ca_file: Path | None
) -> PostgresAddress | None:
    """Of the PostgreSQL that is named."""
    if place is None:
        if password_file or password_env or ca_file:
            raise click.UsageError("how to log in belongs to a server that --postgres names")
        return None
    from headgate.demo.services.database import PostgresAddress

    found = PostgresAddress.parse(place, user)
    return replace(
        found,
        password_file=password_file and password_file.absolute(),
        password_env=password_env,
        ca_file=ca_file and ca_file.absolute(),
    )


def opensearch_login(
    url: str | None, user: str | None, password_file: Path | None, password_env: str | None, ca_file: Path | None
) -> ClientSettings | None:
    """Of the OpenSearch that is named."""
    if url is None:
        if user or password_file or password_env or ca_file:
            raise click.UsageError("how to log in belongs to a server that --opensearch names")
        return None
    from streamcore.sinks.opensearch.settings import ClientSettings

    return ClientSettings(
        (url,),
        user,
        password_file and password_file.absolute(),
        password_env,
        ca_file and ca_file.absolute(),
    )


def _read_bundle(rules: Path | None, streams: Path | None) -> RuleBundle:
    from headgate.errors import InputError
    from headgate.rules.bundle import read_bundle, shipped_rules

    bundle = read_bundle([rules or shipped_rules("shop")], streams)
    if bundle.problems:
        raise InputError("rules: " + "\n".join(problem.render() for problem in bundle.problems))
    return bundle
