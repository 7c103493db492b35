"""The settings of a Kafka cluster and login, and their translation to the options of two client libraries.

The settings hold the *name* of a file or environment variable, not the password, which is read whenever a client is
built. So no ``repr``, log line, error, query plan or checkpoint contains the secret. The file or variable must exist on
every machine that runs a task.

Client options outside ``EXTRA_OPTIONS`` are rejected: their names differ between the two clients, and some
(``transactional.id``, ``isolation.level``, ``acks``) would break the exactly-once protocol.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass as settings_dataclass

from streamcore.errors import ConfigError
from streamcore.settings import STRICT

#: The value of an option of librdkafka or kafka-python.
Option = str | int | float | bool

#: Allowed extra options: librdkafka's name -> kafka-python's name, None if it has no such option. The values of options
#: with a kafka-python name are milliseconds.
EXTRA_OPTIONS: Mapping[str, str | None] = {
    "client.rack": None,
    "metadata.max.age.ms": "metadata_max_age_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "connections.max.idle.ms": "connections_max_idle_ms",
}

_SERVER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):\d{1,5}\Z")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class SecurityProtocol(enum.StrEnum):
    """Security protocol of the connection, by Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def sasl(self) -> bool:
        """Whether the client sends a user name and a password."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)


class SaslMechanism(enum.StrEnum):
    """SASL mechanism, by Kafka's names."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class _Masked(str):
    """A password whose ``repr`` is stars, because client libraries log their options."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


@settings_dataclass(frozen=True, slots=True, config=STRICT)
class KafkaSettings:
    """How to reach Kafka. The password is named (a file, an environment variable), never written here.

    A SASL protocol needs ``username`` and exactly one of ``password_file`` and ``password_env``.

    Raises ``ConfigError`` for invalid or contradictory settings.
    """

    bootstrap: Annotated[str, Field(description="Addresses of brokers, host:port, separated by commas.")]
    security: Annotated[
        SecurityProtocol,
        Field(description="Protocol towards the brokers, as Kafka names it."),
    ] = SecurityProtocol.PLAINTEXT
    mechanism: Annotated[
        SaslMechanism,
        Field(description="SASL mechanism; used by the SASL protocols only."),
    ] = SaslMechanism.SCRAM_SHA_512
    username: Annotated[str | None, Field(description="SASL user name.")] = None
    password_file: Annotated[
        Path | None,
        Field(description="File with the password; without it and password_env no password is sent."),
    ] = None
    password_env: Annotated[str | None, Field(description="Environment variable with the password.")] = None
    ca_file: Annotated[
        Path | None,
        Field(description="PEM file of the certificate authority; without it the system's are trusted."),
    ] = None
    cert_file: Annotated[Path | None, Field(description="PEM file of the client's certificate.")] = None
    key_file: Annotated[Path | None, Field(description="PEM file of the key of the client's certificate.")] = None
    client_id: Annotated[str, Field(description="Name of the client in the logs and quotas of the brokers.")] = (
        "headgate"
    )
    request_timeout_ms: Annotated[
        int,
        Field(
            description="Time limit of a request and of a call at the start, in milliseconds.",
            json_schema_extra={"exclusiveMinimum": 0},
        ),
    ] = 30_000
    options: Annotated[
        Mapping[str, str],
        Field(
            description=f"Further options of the clients, by librdkafka's name: {', '.join(sorted(EXTRA_OPTIONS))}.",
        ),
    ] = field(default_factory=dict, hash=False)  # workers keep a reader for each settings

    def __post_init__(self) -> None:
        for server in self.servers:
            if not _SERVER.match(server):
                raise ConfigError(f"kafka bootstrap {server!r}: write host:port, several separated by commas")
        if self.request_timeout_ms <= 0:
            raise ConfigError(f"kafka request_timeout_ms is {self.request_timeout_ms}: must be above zero")
        if unknown := [name for name in self.options if name not in EXTRA_OPTIONS]:
            raise ConfigError(f"kafka options {unknown} are not allowed; allowed are {sorted(EXTRA_OPTIONS)}")
        for name, value in self.options.items():
            if EXTRA_OPTIONS[name] is not None and not value.isdecimal():
                raise ConfigError(f"kafka option {name} is {value!r}: must be a whole number of milliseconds")
        self._check_login()
        self._check_tls()

    def _check_login(self) -> None:
        sources = [s for s in (self.password_file, self.password_env) if s is not None]
        if not self.security.sasl:
            if sources or self.username is not None:
                raise ConfigError(f"kafka: a user or password needs a SASL protocol, not {self.security}")
            return
        if not self.username or len(sources) != 1:
            raise ConfigError(f"kafka {self.security}: needs username and one of password_file, password_env")
        if self.password_env is not None and not _ENVIRONMENT_NAME.match(self.password_env):
            # The message omits the value: it may be a password, written here by mistake.
            raise ConfigError("kafka password_env: must be the name of an environment variable")

    def _check_tls(self) -> None:
        files = (self.ca_file, self.cert_file, self.key_file)
        if not self.security.tls and any(f is not None for f in files):
            raise ConfigError(f"kafka: TLS files need SSL or SASL_SSL, not {self.security}")
        if (self.cert_file is None) != (self.key_file is None):
            raise ConfigError("kafka: cert_file and key_file come together")

    @property
    def servers(self) -> list[str]:
        """The bootstrap servers as a list of ``host:port``."""
        return [server.strip() for server in self.bootstrap.split(",")]

    def password(self) -> str | None:
        """Read the password; None without SASL. Raise ``ConfigError`` if its file or variable is missing or empty."""
        if not self.security.sasl:
            return None
        secret = self._read_password()
        if not secret:
            raise ConfigError(f"kafka password: {self._password_source} is empty")
        return _Masked(secret)

    @property
    def _password_source(self) -> str:
        return f"file {self.password_file}" if self.password_file else f"environment variable {self.password_env}"

    def _read_password(self) -> str:
        if self.password_file is None:
            return os.environ.get(self.password_env or "", "")
        try:
            return self.password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise ConfigError(f"kafka password: cannot read {self.password_file}: {reason}") from None

    def librdkafka(self) -> dict[str, Option]:
        """Return the connection options for confluent-kafka."""
        options: dict[str, Option] = {
            "bootstrap.servers": ",".join(self.servers),
            "client.id": self.client_id,
            "security.protocol": self.security.value,
            "socket.nagle.disable": True,
            "socket.keepalive.enable": True,
            "log_level": 3,  # lower levels report abandoned producers, which are abandoned on purpose
            **self.options,
        }
        if password := self.password():
            options |= {"sasl.mechanism": self.mechanism.value, "sasl.username": self.username or ""}
            options["sasl.password"] = password
        names = {"ssl.ca.location": self.ca_file, "ssl.certificate.location": self.cert_file}
        names["ssl.key.location"] = self.key_file
        return options | {name: str(path) for name, path in names.items() if path is not None}

    def kafka_python(self) -> dict[str, Option | list[str]]:
        """Return the connection keyword arguments for kafka-python."""
        options: dict[str, Option | list[str]] = {
            "bootstrap_servers": self.servers,
            "client_id": self.client_id,
            "security_protocol": self.security.value,
            "request_timeout_ms": self.request_timeout_ms,
            "bootstrap_timeout_ms": self.request_timeout_ms,
        }
        for name, value in self.options.items():
            if (python := EXTRA_OPTIONS[name]) is not None:
                options[python] = int(value)
        if password := self.password():
            options |= {"sasl_mechanism": self.mechanism.value, "sasl_plain_username": self.username or ""}
            options["sasl_plain_password"] = password
        names = {"ssl_cafile": self.ca_file, "ssl_certfile": self.cert_file, "ssl_keyfile": self.key_file}
        return options | {name: str(path) for name, path in names.items() if path is not None}
