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
    """Options that apply to some services. ``rules``: the files to publish; None: the shipped ones. ``streams``: the
    folder of stream files; None: the shipped one. ``to``: the kind of the etl service's table. ``postgres`` and
    ``opensearch``: an external server; None: a local one."""

    rules: Path | None
    streams: Path | None
    to: str | None
    postgres: PostgresAddress | None
    opensearch: ClientSettings | None


def _rules(options: ServiceOptions) -> Service:
    from headgate.demo.services.rules import RulesService

    return RulesService(lambda: _read_bundle(options.rules, options.streams))


def _sessions(options: ServiceOptions) -> Service:
    from headgate.demo.services.sessions import SessionsService

    return SessionsService(options.postgres)


def _etl(options: ServiceOptions) -> Service:
    from headgate.demo.services.etl import EtlService
    from headgate.demo.services.etl_tables import DeltaTable, PostgresTable

    if options.to == "delta" and options.postgres is not None:
        raise click.UsageError("--to delta needs no --postgres; leave one of them out")
    in_postgres = options.to == "postgres" or options.postgres is not None
    return EtlService(PostgresTable(options.postgres) if in_postgres else DeltaTable())


def _search(options: ServiceOptions) -> Service:
    from headgate.demo.services.search import SearchService

    return SearchService(options.opensearch)


#: Creates each service, by its name.
SERVICES: Mapping[str, Callable[[ServiceOptions], Service]] = {
    "etl": _etl,
    "rules": _rules,
    "search": _search,
    "sessions": _sessions,
}
#: The services that take an option, by the name of its parameter; the other options apply to all services.
_SERVICES_WITH: Mapping[str, tuple[str, ...]] = {
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
    """Raise ``click.UsageError`` if an option is given that the service does not take."""
    context = click.get_current_context()
    for name, services in _SERVICES_WITH.items():
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and service not in services:
            raise click.UsageError(f"--{name.replace('_', '-')}: the {service} service does not take this option")


def postgres_address(
    address: str | None, user: str, password_file: Path | None, password_env: str | None, ca_file: Path | None
) -> PostgresAddress | None:
    """Return the address of the external PostgreSQL, or None if ``--postgres`` is not given."""
    if address is None:
        if password_file or password_env or ca_file:
            raise click.UsageError("the login options of PostgreSQL need --postgres")
        return None
    from headgate.demo.services.database import PostgresAddress

    parsed = PostgresAddress.parse(address, user)
    return replace(
        parsed,
        password_file=password_file and password_file.absolute(),
        password_env=password_env,
        ca_file=ca_file and ca_file.absolute(),
    )


def opensearch_login(
    url: str | None, user: str | None, password_file: Path | None, password_env: str | None, ca_file: Path | None
) -> ClientSettings | None:
    """Return the login of the external OpenSearch, or None if ``--opensearch`` is not given."""
    if url is None:
        if user or password_file or password_env or ca_file:
            raise click.UsageError("the login options of OpenSearch need --opensearch")
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
