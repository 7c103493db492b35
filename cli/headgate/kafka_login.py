"""The options ``--bootstrap`` and ``--kafka`` of a command: the address of Kafka and the login.

The file of ``--kafka`` has the form of ``kafka:`` in a service's settings, read by the same model: it names the files
and variables that hold the passwords, and holds none itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import click

from streamcore.environment import EnvironmentVariable, Reader

if TYPE_CHECKING:
    from streamcore.kafka.settings import KafkaSettings

R = TypeVar("R")
DEFAULT_BOOTSTRAP = "127.0.0.1:19092"
_BOOTSTRAP_VARIABLE = EnvironmentVariable(
    "HEADGATE_BOOTSTRAP",
    "Addresses of brokers, host:port, separated by commas; the option --bootstrap precedes it.",
    Reader.COMMAND,
    default=f"that of the file of --kafka, or `{DEFAULT_BOOTSTRAP}`",
)
_KAFKA_VARIABLE = EnvironmentVariable(
    "HEADGATE_KAFKA",
    "File with the Kafka connection, as under kafka: in the settings of a service; the option --kafka precedes it.",
    Reader.COMMAND,
    default="no login",
)


class Login(Protocol):
    """The way to a Kafka."""

    def settings(self, client_id: str) -> KafkaSettings:
        """Return the engine's settings."""


@dataclass(frozen=True, slots=True)
class KnownLogin:
    """The login of settings that were read already."""

    kafka: KafkaSettings

    def settings(self, client_id: str) -> KafkaSettings:
        """Return the settings, with another client id."""
        return replace(self.kafka, client_id=client_id)


@dataclass(frozen=True, slots=True)
class KafkaLogin:
    """``bootstrap``: host:port[,host:port]; None: the file's address, or the local broker. ``file``: the login."""

    bootstrap: str | None = None
    file: Path | None = None

    def settings(self, client_id: str) -> KafkaSettings:
        """Return the engine's settings. ``ConfigError`` names the file and the wrong entry."""
        from streamcore.kafka.settings import KafkaSettings

        if self.file is None:
            return KafkaSettings(self.bootstrap or DEFAULT_BOOTSTRAP, client_id=client_id)
        from streamcore.service.config.documents import checked_document, read_yaml

        document = {"bootstrap": DEFAULT_BOOTSTRAP} | read_yaml(self.file)
        if self.bootstrap is not None:
            document["bootstrap"] = self.bootstrap
        return replace(checked_document(document, KafkaSettings, str(self.file)), client_id=client_id)


def login_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add ``--bootstrap`` and ``--kafka`` to a command, as its parameter ``login``."""

    @wraps(command)
    def with_login(*args: object, bootstrap: str | None, kafka: Path | None, **rest: object) -> R:
        return command(*args, login=KafkaLogin(bootstrap, kafka), **rest)

    for option in (_BOOTSTRAP, _KAFKA):
        with_login = option(with_login)
    return with_login


_BOOTSTRAP = click.option(
    "--bootstrap",
    default=None,
    envvar=_BOOTSTRAP_VARIABLE,
    show_default=DEFAULT_BOOTSTRAP,
    show_envvar=True,
    help="Kafka, as host:port[,host:port].",
)
_KAFKA = click.option(
    "--kafka",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    envvar=_KAFKA_VARIABLE,
    show_envvar=True,
    help="A file with the Kafka connection, as under kafka: in the settings of a service.",
)
