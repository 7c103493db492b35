"""Where Kafka is and how to log in to it, as a command is told: ``--bootstrap`` and ``--kafka``, or their variables.

The file of ``--kafka`` is what a service has under ``kafka:`` in its settings, read by the same model: it names the
files and variables that passwords are in, and holds none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from streamcore.kafka.settings import KafkaSettings

R = TypeVar("R")
DEFAULT_BOOTSTRAP = "127.0.0.1:19092"


@dataclass(frozen=True, slots=True)
class Login:
    """``bootstrap``: host:port[,host:port]; None: what the file says, or the local broker. ``file``: the rest of it."""

    bootstrap: str | None = None
    file: Path | None = None

    def settings(self, client_id: str) -> KafkaSettings:
        """The engine's value. ``ConfigError`` names the file and what is wrong in it."""
        from streamcore.kafka.settings import KafkaSettings

        if self.file is None:
            return KafkaSettings(self.bootstrap or DEFAULT_BOOTSTRAP, client_id=client_id)
        from streamcore.service.documents import KafkaDocument, checked_document, read_yaml

        said = {"bootstrap": DEFAULT_BOOTSTRAP} | read_yaml(self.file)
        if self.bootstrap is not None:
            said["bootstrap"] = self.bootstrap
        return replace(checked_document(said, KafkaDocument, str(self.file)).settings(), client_id=client_id)


def login_option(command: Callable[..., R]) -> Callable[..., R]:
    """``--bootstrap --kafka``, as the parameter ``login``."""

    @wraps(command)
    def with_login(*args: object, bootstrap: str | None, kafka: Path | None, **rest: object) -> R:
        return command(*args, login=Login(bootstrap, kafka), **rest)

    for option in (_BOOTSTRAP, _KAFKA):
        with_login = option(with_login)
    return with_login


_BOOTSTRAP = click.option(
    "--bootstrap",
    default=None,
    envvar="HEADGATE_BOOTSTRAP",
    show_default=DEFAULT_BOOTSTRAP,
    show_envvar=True,
    help="Kafka, as host:port[,host:port].",
)
_KAFKA = click.option(
    "--kafka",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    envvar="HEADGATE_KAFKA",
    show_envvar=True,
    help="A file that says how to log in: what a service has under kafka: in its settings.",
)
